/* SPDX-License-Identifier: MIT */
/* C entries of every number of arguments: each argument arrives, results of every width come back, and the page as linked has
 * the bytes that the target generates for it. */
#include <criterion/criterion.h>
#include "test/lacks.h"
#include <errno.h>
#include <shunt/dispatcher.h>
#include <shunt/log.h>
#include <shunt/pack.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/pack/backing_sys.h"
#include "runtime/dispatch/dispatcher.h"
#include "targets/target.h"

struct thing {
	int value;
};
enum color { RED, GREEN };

SHUNT_DISPATCHER_DEFINE(args1, uint64_t, (uint64_t a));
SHUNT_DISPATCHER_DEFINE(args2, uint32_t, (struct thing *a, unsigned char b));
SHUNT_DISPATCHER_DEFINE(args3, int, (int a, enum color b, const struct thing *c));
SHUNT_DISPATCHER_DEFINE(args4, void *, (void *a, int b, int c, int d));
SHUNT_DISPATCHER_DEFINE(args5, double, (char a, short b, int c, long d, int (*e)(int, int)));
SHUNT_DISPATCHER_DEFINE(nothing, void, (int *a));

static uint64_t one(uint64_t a)
{
	return a + 1;
}

static uint32_t two(struct thing *a, unsigned char b)
{
	return (uint32_t)a->value * 100 + b;
}

static int three(int a, enum color b, const struct thing *c)
{
	return a * 100 + (int)b * 10 + c->value;
}

static void *four(void *a, int b, int c, int d)
{
	return (char *)a + b * 100 + c * 10 + d;
}

static int add(int a, int b)
{
	return a + b;
}

static double five(char a, short b, int c, long d, int (*e)(int, int))
{
	return a + b * 10.0 + c * 100.0 + (double)d * 1000.0 + e(10000, 20000);
}

static void none(int *a)
{
	++*a;
}

static void check_all(void)
{
	struct thing thing = { 7 };
	char base[1000];
	int count = 0;

	cr_assert_eq(args1(41, (const void *)one), 42);
	cr_assert_eq(args2(&thing, 9, (const void *)two), 709);
	cr_assert_eq(args3(3, GREEN, &thing, (const void *)three), 317);
	cr_assert_eq(args4(base, 1, 2, 3, (const void *)four), base + 123);
	cr_assert_eq(args5(1, 2, 3, 4, add, (const void *)five), 34321.0);
	nothing(&count, (const void *)none);
	cr_assert_eq(count, 1);
}

/* Host functions are programs too when they lie in reach of the arena. */
static int attach_all(void)
{
	return shunt_dispatcher_attach(shunt_dispatcher_args1(), (const void *)one) ||
	       shunt_dispatcher_attach(shunt_dispatcher_args2(), (const void *)two) ||
	       shunt_dispatcher_attach(shunt_dispatcher_args3(), (const void *)three) ||
	       shunt_dispatcher_attach(shunt_dispatcher_args4(), (const void *)four) ||
	       shunt_dispatcher_attach(shunt_dispatcher_args5(), (const void *)five) ||
	       shunt_dispatcher_attach(shunt_dispatcher_nothing(), (const void *)none);
}

Test(dispatch_arguments, every_argument_arrives_before_and_after_the_page_is_replaced)
{
	check_all();
	cr_assert_eq(attach_all(), 0, "%s", shunt_error());
	check_all();
}

/* Threads may be anywhere in the page when it is replaced, so both must have the same instructions at the same places. */
static void check_page(struct shunt_dispatcher *d, unsigned nr_args)
{
	const unsigned char *page = shunt_dispatcher_stub(d);
	unsigned char expected[SHUNT_DISPATCHER_PAGE_USED];
	struct shunt_plan_node node = { .op = SHUNT_PLAN_OP_FALLBACK };
	struct shunt_plan plan = { .nodes = &node, .nr_nodes = 1 };
	uint64_t addr = (uint64_t)(uintptr_t)page;
	struct shunt_code code;

	shunt_target_host()->fill_traps(expected, sizeof(expected));
	shunt_code_init(&code, expected, 32, addr);
	shunt_target_host()->emit_stub(&code, addr + SHUNT_DISPATCHER_IDLE_OFFSET);
	shunt_target_host()->emit_c_entry(&code, nr_args, addr);
	cr_assert_eq(code.error, 0);
	shunt_code_init(&code, expected + SHUNT_DISPATCHER_IDLE_OFFSET, 16, addr + SHUNT_DISPATCHER_IDLE_OFFSET);
	shunt_target_host()->emit_tree(&code, &plan, SHUNT_FALLBACK_JUMP);
	cr_assert_eq(code.error, 0);
	cr_assert_eq(memcmp(page, expected, sizeof(expected)), 0, "page of %u arguments differs", nr_args);
	cr_assert(shunt_target_host()->is_traps(page + SHUNT_DISPATCHER_PAGE_USED, SHUNT_STUB_PAGE_LEN - SHUNT_DISPATCHER_PAGE_USED));
}

Test(dispatch_arguments, the_page_as_linked_has_the_bytes_that_replace_it)
{
	check_page(shunt_dispatcher_args1(), 1);
	check_page(shunt_dispatcher_args2(), 2);
	check_page(shunt_dispatcher_args3(), 3);
	check_page(shunt_dispatcher_args4(), 4);
	check_page(shunt_dispatcher_args5(), 5);
	cr_assert_eq(attach_all(), 0, "%s", shunt_error());
	cr_assert_eq(shunt_dispatcher_detach(shunt_dispatcher_args3(), (const void *)three), 0);
	check_page(shunt_dispatcher_args3(), 3);
}

/* arm64's page, word for word as the header writes it, against the arm64 encoder, on every host. */
Test(dispatch_arguments, the_arm64_page_has_the_bytes_that_the_arm64_target_generates)
{
	static const uint32_t moves[] = { 0xaa0103f2, 0xaa0203f2, 0xaa0303f2, 0xaa0403f2, 0xaa0503f2, 0xaa0603f2, 0xaa0703f2 };
	const uint64_t addr = 0x400000;

	for (unsigned i = 0; i < 7; i++) {
		const uint32_t page[10] = { 0xd503245f, 0xd503201f, 0x14000006, 0x0000cccc, 0xd503245f, moves[i], 0x17fffffa, 0x0000cccc,
					    0xaa1203f0, 0xd61f0200 };
		struct shunt_plan_node node = { .op = SHUNT_PLAN_OP_FALLBACK };
		struct shunt_plan plan = { .nodes = &node, .nr_nodes = 1 };
		unsigned char bytes[40];
		struct shunt_code code;

		shunt_target_arm64.fill_traps(bytes, sizeof(bytes));
		shunt_code_init(&code, bytes, 32, addr);
		shunt_target_arm64.emit_stub(&code, addr + SHUNT_DISPATCHER_IDLE_OFFSET);
		shunt_target_arm64.emit_c_entry(&code, i + 1, addr);
		cr_assert_eq(code.error, 0);
		shunt_code_init(&code, bytes + SHUNT_DISPATCHER_IDLE_OFFSET, 8, addr + SHUNT_DISPATCHER_IDLE_OFFSET);
		shunt_target_arm64.emit_tree(&code, &plan, SHUNT_FALLBACK_JUMP);
		cr_assert_eq(code.error, 0);
		cr_assert_eq(memcmp(bytes, page, sizeof(page)), 0, "%u arguments", i + 1);
	}
}

Test(dispatch_arguments, a_foreign_layout_or_a_taken_name_is_refused)
{
	struct shunt_dispatcher_record newer = { .layout = SHUNT_DISPATCHER_LAYOUT + 1, .nr_args = 1, .name = "newer" };
	struct shunt_dispatcher_record twice = { .layout = SHUNT_DISPATCHER_LAYOUT, .nr_args = 1, .name = "args1" };

	cr_assert_eq(shunt_dispatcher_register(&newer), -EINVAL);
	cr_assert_eq(shunt_dispatcher_register(&twice), -EEXIST);
	cr_assert_null(shunt_dispatcher_of(&twice));
	cr_assert_eq(shunt_dispatcher_attach(shunt_dispatcher_of(&twice), (const void *)one), -EINVAL);
}

/* A page that shares its memory with other code, as a careless linker script would make it. */
Test(dispatch_arguments, a_page_that_holds_other_code_stays_as_it_is_and_attach_says_why)
{
	static _Alignas(65536) unsigned char page[65536];
	struct shunt_dispatcher_record record = { .layout = SHUNT_DISPATCHER_LAYOUT, .nr_args = 1, .name = "shared_page", .page = page,
						  .page_len = sizeof(page) };

	shunt_target_host()->fill_traps(page, sizeof(page));
	page[1000] = 0x90;
	cr_assert_eq(shunt_dispatcher_register(&record), 0);
	cr_assert_eq(shunt_dispatcher_attach(shunt_dispatcher_of(&record), (const void *)one), -EINVAL);
	cr_assert_not_null(strstr(shunt_error(), "shared_page"));
	cr_assert_eq(page[1000], 0x90);
	cr_assert_null(shunt_dispatcher_arena(shunt_dispatcher_of(&record)));
	shunt_dispatcher_unregister(&record);
	cr_assert_null(shunt_dispatcher_find("shared_page"));
}

static void *no_mremap(void *old_addr, size_t old_len, size_t new_len, int flags, void *new_addr)
{
	errno = ENOMEM;
	return MAP_FAILED;
}

Test(dispatch_arguments, where_the_page_cannot_be_replaced_calls_go_on_and_attach_says_why)
{
	struct shunt_sys saved = shunt_sys;
	struct shunt_pack_stats before, after;
	struct shunt_dispatcher_stats stats;

	if (lacks_second_views())
		cr_skip_test(LACKS_SECOND_VIEWS);
	cr_assert_eq(shunt_pack_get_stats(NULL, &before), 0);
	shunt_sys.mremap = no_mremap;
	for (int i = 0; i < 3; i++) {
		cr_assert_eq(shunt_dispatcher_attach(shunt_dispatcher_args1(), (const void *)one), -ENOMEM);
		cr_assert_not_null(strstr(shunt_error(), "args1"));
		check_all();
	}
	shunt_dispatcher_get_stats(shunt_dispatcher_args1(), &stats);
	cr_assert_eq(stats.nr_programs, 0);
	cr_assert_eq(stats.nr_attaches, 0);
	cr_assert_eq(shunt_pack_get_stats(NULL, &after), 0);
	cr_assert_eq(after.nr_blocks[SHUNT_SEGMENT_CODE], before.nr_blocks[SHUNT_SEGMENT_CODE], "the failed page was not given back");
	/* A later attempt is a new one. */
	shunt_sys = saved;
	cr_assert_eq(attach_all(), 0, "%s", shunt_error());
	check_all();
}
