/* SPDX-License-Identifier: MIT */
/* How many times slower this machine is than what the tests' times are meant for: SHUNT_TEST_SLOWNESS in the environment, for emulators. */
#ifndef TEST_SLOWNESS_H
#define TEST_SLOWNESS_H

#include <stdlib.h>

static inline double test_slowness(void)
{
	const char *text = getenv("SHUNT_TEST_SLOWNESS");
	double factor = text ? strtod(text, NULL) : 1;

	return factor >= 1 ? factor : 1;
}

#endif
