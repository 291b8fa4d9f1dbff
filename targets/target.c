/* SPDX-License-Identifier: MIT */
/* The table of targets. Both are built on every host; only the choice of the host's own one looks at the compiler. */
#include "targets/target.h"

#include <string.h>

static const struct shunt_target *const targets[] = { &shunt_target_x86_64, &shunt_target_arm64 };

const struct shunt_target *shunt_target_host(void)
{
#if defined(__x86_64__)
	return &shunt_target_x86_64;
#elif defined(__aarch64__) && defined(__AARCH64EL__)
	return &shunt_target_arm64;
#else
#error "shunt runs on x86-64 and on little-endian arm64"
#endif
}

const struct shunt_target *shunt_target_find(const char *name)
{
	if (!name)
		return NULL;
	for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++)
		if (!strcmp(targets[i]->name, name))
			return targets[i];
	return NULL;
}
