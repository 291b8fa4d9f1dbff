/* SPDX-License-Identifier: MIT */
/*
 * That attached programs really are reached by direct jumps. A tree only ever jumps to the address that the pointer names, so
 * a tree that is wrong in every compare (generated for the wrong view, say, as the first version of the kernel's writable
 * image was) gives right results through its fallback. Here the fallbacks of the tree are overwritten to return 0: attached
 * programs must not notice, all others must.
 */
#include <criterion/criterion.h>
#include <shunt/dispatcher.h>
#include <shunt/log.h>
#include <shunt/pack.h>
#include <shunt/reader.h>
#include <string.h>

#include "test/exec/dispatch_programs.h"

#define NR_PROGRAMS 300u
#define ARG 1000u

static struct shunt_block programs[NR_PROGRAMS];
static const void *addrs[NR_PROGRAMS], *attached[NR_PROGRAMS];

SHUNT_DISPATCHER_DEFINE(direct_image, uint64_t, (uint64_t arg));

/* Makes every indirect jump of a piece of code return 0 instead; counts them. */
static int disable_jumps(void *nr, const void *code, size_t len)
{
#if defined(__x86_64__)
	static const unsigned char jump[] = { 0x41, 0xff, 0xe2 }; /* jmp r10 */
	static const unsigned char zero[] = { 0x31, 0xc0, 0xc3 }; /* xor eax, eax; ret */
	const size_t step = 1;
#elif defined(__aarch64__)
	static const uint32_t jump[] = { 0xaa1203f0, 0xd61f0200 }; /* mov x16, x18; br x16 */
	static const uint32_t zero[] = { 0xd2800000, 0xd65f03c0 }; /* mov x0, 0; ret */
	const size_t step = 4;
#endif
	struct shunt_block block;
	char *rw;

	cr_assert_eq(shunt_pack_find(code, &block, NULL), 0, "%s", shunt_error());
	rw = (char *)block.rw + ((const char *)code - (const char *)block.rx);
	for (size_t i = 0; i + sizeof(jump) <= len; i += step) {
		if (memcmp(rw + i, jump, sizeof(jump)) == 0) {
			memcpy(rw + i, zero, sizeof(zero));
			++*(unsigned *)nr;
		}
	}
	cr_assert_eq(shunt_pack_finalize(&block, 1), 0);
	return 0;
}

static unsigned disable_fallbacks(struct shunt_dispatcher *d)
{
	unsigned nr = 0;

	cr_assert_eq(shunt_dispatcher_each_code(d, disable_jumps, &nr), 0);
	return nr;
}

static void make_programs(struct shunt_arena *arena)
{
	for (uint32_t i = 0; i < NR_PROGRAMS; i++) {
		cr_assert_eq(make_program(arena, i + 1, &programs[i]), 0, "%s", shunt_error());
		addrs[i] = programs[i].rx;
	}
}

/* Programs at every third index are attached: there are foreign pointers below, between and above. */
static void check_direct(struct shunt_dispatcher *d, uint32_t nr)
{
	const void *stub = shunt_dispatcher_stub(d);

	for (uint32_t i = 0; i < nr; i++)
		attached[i] = addrs[3 * i + 1];
	cr_assert_eq(shunt_dispatcher_attach_many(d, attached, nr), 0, "%s", shunt_error());
	cr_assert_geq(disable_fallbacks(d), 1, "the tree of %u programs has no fallback", nr);
	shunt_read_begin();
	for (uint32_t i = 0; i < 3 * nr; i++)
		cr_assert_eq(call_stub(stub, ARG, addrs[i]), i % 3 == 1 ? ARG + i + 1 : 0, "program %u of %u", i, 3 * nr);
	shunt_read_end();
	cr_assert_eq(shunt_dispatcher_detach_many(d, attached, nr), 0);
}

Test(dispatch_direct, attached_programs_and_only_they_are_reached_by_direct_jumps)
{
	make_programs(NULL);
	for (int plan = SHUNT_PLAN_DEFAULT; plan <= SHUNT_PLAN_KERNEL; plan++) {
		struct shunt_dispatcher_options options = { .plan = (enum shunt_plan_kind)plan };
		struct shunt_dispatcher *d;

		cr_assert_eq(shunt_dispatcher_create("hook", &options, &d), 0, "%s", shunt_error());
		for (uint32_t nr = 1; nr <= NR_PROGRAMS / 3; nr += nr < 20 ? 1 : 16)
			check_direct(d, nr);
		cr_assert_eq(shunt_dispatcher_destroy(d), 0);
	}
}

Test(dispatch_direct, so_they_are_from_an_image_s_own_stub)
{
	struct shunt_dispatcher *d = shunt_dispatcher_direct_image();

	make_programs(shunt_dispatcher_arena(d));
	for (uint32_t nr = 1; nr <= NR_PROGRAMS / 3; nr += nr < 20 ? 1 : 16)
		check_direct(d, nr);
	cr_assert_eq(direct_image(ARG, addrs[0]), ARG + 1, "idle");
}

Test(dispatch_direct, the_fallback_of_an_empty_dispatcher_is_the_only_way)
{
	struct shunt_dispatcher *d;

	make_programs(NULL);
	cr_assert_eq(shunt_dispatcher_create("hook", NULL, &d), 0);
	cr_assert_eq(call_stub(shunt_dispatcher_stub(d), ARG, addrs[0]), ARG + 1);
	cr_assert_eq(disable_fallbacks(d), 1);
	cr_assert_eq(call_stub(shunt_dispatcher_stub(d), ARG, addrs[0]), 0);
}

/* More often attached means tested earlier, after the next change: still the same landings. */
Test(dispatch_direct, programs_attached_more_often_land_as_all_others_do)
{
	struct shunt_dispatcher *d;

	make_programs(NULL);
	cr_assert_eq(shunt_dispatcher_create("hook", NULL, &d), 0);
	for (uint32_t i = 0; i < 6; i++)
		cr_assert_eq(shunt_dispatcher_attach(d, addrs[3 * i + 1]), 0);
	check_direct(d, 20);
}

Test(dispatch_direct, one_by_one_as_well_as_all_at_once)
{
	enum { NR = NR_PROGRAMS };
	struct shunt_dispatcher_stats stats;
	struct shunt_dispatcher *d;

	make_programs(NULL);
	cr_assert_eq(shunt_dispatcher_create("hook", NULL, &d), 0);
	/* Every other one at once, a third of the rest one by one, then some of either go. */
	for (uint32_t i = 0; i < NR / 2; i++)
		attached[i] = addrs[2 * i];
	cr_assert_eq(shunt_dispatcher_attach_many(d, attached, NR / 2), 0);
	for (uint32_t i = 1; i < NR; i += 6)
		cr_assert_eq(shunt_dispatcher_attach(d, addrs[i]), 0);
	for (uint32_t i = 0; i < NR; i += 7) {
		if (i % 2 == 0 || i % 6 == 1)
			cr_assert_eq(shunt_dispatcher_detach(d, addrs[i]), 0);
	}
	shunt_dispatcher_get_stats(d, &stats);
	cr_assert_gt(stats.nr_parts, 1);
	cr_assert_geq(disable_fallbacks(d), stats.nr_parts);
	shunt_read_begin();
	for (uint32_t i = 0; i < NR; i++)
		cr_assert_eq(call_stub(shunt_dispatcher_stub(d), ARG, addrs[i]), i % 7 && (i % 2 == 0 || i % 6 == 1) ? ARG + i + 1 : 0,
			     "program %u", i);
	shunt_read_end();
}
