/* SPDX-License-Identifier: MIT */
/* What the tests of dispatchers that are made at run time begin with. */
#ifndef TEST_UNIT_DISPATCHER_TEST_H
#define TEST_UNIT_DISPATCHER_TEST_H

#include <criterion/criterion.h>
#include <shunt/dispatcher.h>
#include <shunt/log.h>
#include <shunt/reader.h>
#include "test/exec/dispatch_programs.h"

static inline struct shunt_dispatcher *make_dispatcher(const char *name)
{
	struct shunt_dispatcher *d;

	cr_assert_eq(shunt_dispatcher_create(name, NULL, &d), 0, "%s", shunt_error());
	return d;
}

static inline struct shunt_block program(uint32_t id)
{
	struct shunt_block block;

	cr_assert_eq(make_program(NULL, id, &block), 0, "%s", shunt_error());
	return block;
}

static inline struct shunt_dispatcher_stats stats_of(const struct shunt_dispatcher *d)
{
	struct shunt_dispatcher_stats stats;

	shunt_dispatcher_get_stats(d, &stats);
	return stats;
}

static inline uint64_t call(const struct shunt_dispatcher *d, uint64_t arg, const void *prog)
{
	uint64_t result;

	shunt_read_begin();
	result = call_stub(shunt_dispatcher_stub(d), arg, prog);
	shunt_read_end();
	return result;
}

#endif
