/* SPDX-License-Identifier: MIT */
/* Dispatchers that are made at run time: names, counts, replacing, all or none, and what a failure leaves. */
#include "test/unit/dispatcher_test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/dispatch/miss.h"
#include "runtime/dispatch/patch.h"
#include "targets/target.h"

static void check_same(const struct shunt_dispatcher_stats *a, const struct shunt_dispatcher_stats *b)
{
	cr_assert_eq(a->nr_programs, b->nr_programs);
	cr_assert_eq(a->tree_depth, b->tree_depth);
	cr_assert_eq(a->tree_len, b->tree_len);
	cr_assert_eq(a->nr_attaches, b->nr_attaches);
	cr_assert_eq(a->nr_detaches, b->nr_detaches);
	cr_assert_eq(a->nr_patches, b->nr_patches);
	cr_assert_eq(a->tree, b->tree);
}

/* Where the stub jumps, as its bytes say. */
static const void *stub_target(const struct shunt_dispatcher *d)
{
	const char *stub = shunt_dispatcher_stub(d);
	uint64_t word, dest;

	memcpy(&word, stub + SHUNT_STUB_WORD, sizeof(word));
	cr_assert_eq(shunt_target_host()->decode_stub_word((uint64_t)(uintptr_t)stub, word, &dest), 0);
	return (const void *)(uintptr_t)dest;
}

Test(dispatcher, an_empty_one_calls_every_program_through_the_fallback)
{
	struct shunt_dispatcher *d = make_dispatcher("hook");
	struct shunt_block p = program(7);
	struct shunt_dispatcher_stats stats = stats_of(d);

	cr_assert_eq(call(d, 100, p.rx), 107);
	cr_assert_eq(stats.nr_programs, 0);
	cr_assert_eq(stats.tree_depth, 0);
	cr_assert_gt(stats.tree_len, 0);
	cr_assert_eq(stats.tree, stub_target(d));
	cr_assert_eq(stats.stub, shunt_dispatcher_stub(d));
	cr_assert_eq((uintptr_t)stats.stub % SHUNT_STUB_LEN, 0);
}

Test(dispatcher, attach_makes_a_tree_and_detach_takes_it_away)
{
	struct shunt_dispatcher *d = make_dispatcher("hook");
	struct shunt_block p = program(7), q = program(9);
	const void *idle = stub_target(d);

	cr_assert_eq(shunt_dispatcher_attach(d, p.rx), 0, "%s", shunt_error());
	cr_assert_eq(stats_of(d).nr_programs, 1);
	cr_assert_eq(stats_of(d).tree_depth, 1);
	cr_assert_neq(stub_target(d), idle);
	cr_assert_eq(stub_target(d), stats_of(d).tree);
	cr_assert_eq(call(d, 1, p.rx), 8);
	cr_assert_eq(call(d, 1, q.rx), 10);
	cr_assert_eq(shunt_dispatcher_detach(d, p.rx), 0, "%s", shunt_error());
	cr_assert_eq(stub_target(d), idle);
	cr_assert_eq(stats_of(d).nr_programs, 0);
	cr_assert_eq(stats_of(d).nr_patches, 2);
	cr_assert_eq(call(d, 1, p.rx), 8);
}

Test(dispatcher, a_program_attached_twice_needs_two_detaches)
{
	struct shunt_dispatcher *d = make_dispatcher("hook");
	struct shunt_block p = program(7);
	struct shunt_dispatcher_stats once;

	cr_assert_eq(shunt_dispatcher_attach(d, p.rx), 0);
	once = stats_of(d);
	cr_assert_eq(shunt_dispatcher_attach(d, p.rx), 0);
	cr_assert_eq(stats_of(d).nr_programs, 1);
	cr_assert_eq(stats_of(d).nr_attaches, 2);
	cr_assert_eq(stats_of(d).nr_patches, once.nr_patches, "counting needs no patch");
	cr_assert_eq(shunt_dispatcher_detach(d, p.rx), 0);
	cr_assert_eq(stats_of(d).nr_programs, 1);
	cr_assert_eq(stub_target(d), once.tree);
	cr_assert_eq(shunt_dispatcher_detach(d, p.rx), 0);
	cr_assert_eq(stats_of(d).nr_programs, 0);
	cr_assert_eq(shunt_dispatcher_detach(d, p.rx), -ENOENT);
	cr_assert_eq(stats_of(d).nr_detaches, 2);
}

Test(dispatcher, replace_moves_the_count_in_one_patch)
{
	struct shunt_dispatcher *d = make_dispatcher("hook");
	struct shunt_block p = program(1), q = program(2);
	uint64_t nr_patches;

	cr_assert_eq(shunt_dispatcher_attach(d, p.rx), 0);
	cr_assert_eq(shunt_dispatcher_attach(d, p.rx), 0);
	cr_assert_eq(shunt_dispatcher_replace(d, q.rx, p.rx), -ENOENT);
	cr_assert_eq(shunt_dispatcher_replace(d, p.rx, NULL), -EINVAL);
	cr_assert_eq(stats_of(d).nr_programs, 1);
	nr_patches = stats_of(d).nr_patches;
	cr_assert_eq(shunt_dispatcher_replace(d, p.rx, q.rx), 0);
	cr_assert_eq(stats_of(d).nr_patches, nr_patches + 1);
	cr_assert_eq(shunt_dispatcher_detach(d, p.rx), -ENOENT);
	cr_assert_eq(shunt_dispatcher_replace(d, q.rx, q.rx), 0);
	cr_assert_eq(shunt_dispatcher_replace(d, p.rx, p.rx), -ENOENT);
	cr_assert_eq(stats_of(d).nr_patches, nr_patches + 1);
	cr_assert_eq(shunt_dispatcher_detach(d, q.rx), 0);
	cr_assert_eq(shunt_dispatcher_detach(d, q.rx), 0);
	cr_assert_eq(shunt_dispatcher_detach(d, q.rx), -ENOENT);
}

Test(dispatcher, many_are_attached_and_detached_in_one_patch_each)
{
	enum { NR = 40 };
	struct shunt_dispatcher *d = make_dispatcher("hook");
	struct shunt_block p[NR];
	const void *list[NR];

	for (uint32_t i = 0; i < NR; i++) {
		p[i] = program(i);
		list[NR - 1 - i] = p[i].rx;
	}
	cr_assert_eq(shunt_dispatcher_attach_many(d, list, NR), 0, "%s", shunt_error());
	cr_assert_eq(stats_of(d).nr_patches, 1);
	cr_assert_eq(stats_of(d).nr_programs, NR);
	for (uint32_t i = 0; i < NR; i++)
		cr_assert_eq(call(d, 1000, p[i].rx), 1000 + i);
	cr_assert_eq(shunt_dispatcher_attach_many(d, list, 0), 0);
	cr_assert_eq(shunt_dispatcher_detach_many(d, list, NR), 0);
	cr_assert_eq(stats_of(d).nr_patches, 2);
	cr_assert_eq(stats_of(d).nr_programs, 0);
}

Test(dispatcher, a_list_with_one_bad_program_changes_nothing)
{
	struct shunt_dispatcher *d = make_dispatcher("hook");
	struct shunt_block p = program(1), q = program(2), r = program(3);
	const void *with_null[] = { q.rx, NULL };
	const void *with_foreign[] = { p.rx, r.rx };
	const void *twice[] = { p.rx, p.rx };
	struct shunt_dispatcher_stats before, after;

	cr_assert_eq(shunt_dispatcher_attach(d, p.rx), 0);
	before = stats_of(d);
	cr_assert_eq(shunt_dispatcher_attach_many(d, with_null, 2), -EINVAL);
	cr_assert_eq(shunt_dispatcher_attach_many(d, NULL, 2), -EINVAL);
	cr_assert_eq(shunt_dispatcher_detach_many(d, with_foreign, 2), -ENOENT);
	cr_assert_eq(shunt_dispatcher_detach_many(d, twice, 2), -ENOENT);
	after = stats_of(d);
	check_same(&before, &after);
	cr_assert_eq(stub_target(d), before.tree);
}

Test(dispatcher, a_program_out_of_reach_is_refused_and_still_callable)
{
	struct shunt_dispatcher *d = make_dispatcher("hook");
	struct shunt_block near = program(1);
	struct shunt_dispatcher_stats before, after;
	struct shunt_pack_stats packs, packs_after;
	const void *list[] = { near.rx, (const void *)0x10000 };

	cr_assert_eq(shunt_dispatcher_attach(d, near.rx), 0);
	before = stats_of(d);
	cr_assert_eq(shunt_pack_get_stats(NULL, &packs), 0);
	cr_assert_eq(shunt_dispatcher_attach(d, (const void *)0x10000), -ERANGE);
	cr_assert_not_null(strstr(shunt_error(), "hook"));
	cr_assert_eq(shunt_dispatcher_attach_many(d, list, 2), -ERANGE);
	after = stats_of(d);
	check_same(&before, &after);
	cr_assert_eq(shunt_pack_get_stats(NULL, &packs_after), 0);
	cr_assert_eq(packs.nr_blocks[SHUNT_SEGMENT_CODE], packs_after.nr_blocks[SHUNT_SEGMENT_CODE], "a tree was left behind");
	cr_assert_eq(call(d, 1, near.rx), 2);
	cr_assert_eq(shunt_dispatcher_detach(d, near.rx), 0);
	cr_assert_eq(shunt_dispatcher_attach(d, (const void *)0x10000), -ERANGE);
	cr_assert_not_null(strstr(shunt_error(), "program 0x10000 is out of direct reach"), "%s", shunt_error());
}

Test(dispatcher, a_full_arena_leaves_the_dispatcher_as_it_was)
{
	struct shunt_arena_options arena_options = { .size = SHUNT_PACK_SIZE };
	struct shunt_dispatcher_options options = { 0 };
	struct shunt_dispatcher *d;
	struct shunt_block p, q, filler;
	struct shunt_dispatcher_stats before, after;

	cr_assert_eq(shunt_arena_create(&arena_options, &options.arena), 0, "%s", shunt_error());
	cr_assert_eq(shunt_dispatcher_create("small", &options, &d), 0, "%s", shunt_error());
	cr_assert_eq(make_program(options.arena, 1, &p), 0);
	cr_assert_eq(make_program(options.arena, 2, &q), 0);
	cr_assert_eq(shunt_dispatcher_attach(d, p.rx), 0);
	for (size_t size = SHUNT_PACK_SIZE; size >= SHUNT_CHUNK_SIZE; size /= 2)
		while (shunt_pack_alloc(options.arena, SHUNT_SEGMENT_CODE, size, 0, &filler) == 0)
			;
	before = stats_of(d);
	cr_assert_eq(shunt_dispatcher_attach(d, q.rx), -ENOMEM);
	cr_assert_eq(shunt_dispatcher_replace(d, p.rx, q.rx), -ENOMEM);
	after = stats_of(d);
	check_same(&before, &after);
	cr_assert_eq(call(d, 1, p.rx), 2);
	cr_assert_eq(call(d, 1, q.rx), 3);
	/* Going idle needs no code memory. */
	cr_assert_eq(shunt_dispatcher_detach(d, p.rx), 0, "%s", shunt_error());
	cr_assert_eq(call(d, 1, p.rx), 2);
}

Test(dispatcher, a_stub_that_somebody_else_wrote_to_is_left_alone)
{
	_Alignas(16) unsigned char slot[SHUNT_STUB_LEN];
	struct shunt_patch_site site = { .slot = (uint64_t)(uintptr_t)slot, .rw = slot };
	uint64_t word, dest;
	unsigned char before[SHUNT_STUB_LEN];

	cr_assert_eq(shunt_target_host()->encode_stub_word(site.slot, site.slot + 64, &site.word), 0);
	memset(slot, 0xcc, sizeof(slot));
	memcpy(before, slot, sizeof(slot));
	cr_assert_eq(shunt_patch_stub(&site, site.slot + 128), -EBUSY);
	cr_assert_eq(memcmp(before, slot, sizeof(slot)), 0);
	memcpy(slot + SHUNT_STUB_WORD, &site.word, sizeof(site.word));
	cr_assert_eq(shunt_patch_stub(&site, site.slot + 128), 0);
	memcpy(&word, slot + SHUNT_STUB_WORD, sizeof(word));
	cr_assert_eq(shunt_target_host()->decode_stub_word(site.slot, word, &dest), 0);
	cr_assert_eq(dest, site.slot + 128);
	cr_assert_eq(memcmp(before, slot, SHUNT_STUB_WORD), 0, "bytes beside the word changed");
	cr_assert_eq(shunt_patch_stub(&site, site.slot + (uint64_t)shunt_target_host()->branch_reach * 2), -ERANGE);
	memcpy(&word, slot + SHUNT_STUB_WORD, sizeof(word));
	cr_assert_eq(word, site.word);
}

Test(dispatcher, names_are_c_identifiers_of_up_to_63_bytes_and_unique)
{
	char longest[65];
	struct shunt_dispatcher *d = NULL, *other = NULL;

	memset(longest, 'x', 64);
	longest[64] = '\0';
	cr_assert_eq(shunt_dispatcher_create(longest, NULL, &d), -EINVAL);
	longest[63] = '\0';
	cr_assert_eq(shunt_dispatcher_create(longest, NULL, &d), 0);
	cr_assert_eq(shunt_dispatcher_find(longest), d);
	cr_assert_eq(shunt_dispatcher_create(longest, NULL, &other), -EEXIST);
	cr_assert_not_null(strstr(shunt_error(), longest));
	cr_assert_null(other);
	cr_assert_eq(shunt_dispatcher_create("", NULL, &other), -EINVAL);
	cr_assert_eq(shunt_dispatcher_create(NULL, NULL, &other), -EINVAL);
	cr_assert_eq(shunt_dispatcher_create("1st", NULL, &other), -EINVAL);
	cr_assert_eq(shunt_dispatcher_create("a.b", NULL, &other), -EINVAL);
	cr_assert_eq(shunt_dispatcher_create("a b", NULL, &other), -EINVAL);
	cr_assert_eq(shunt_dispatcher_create("_a9", NULL, &other), 0);
	cr_assert_null(shunt_dispatcher_find("nobody"));
	cr_assert_null(shunt_dispatcher_find(NULL));
}

Test(dispatcher, a_destroyed_name_can_be_taken_again_but_not_while_programs_are_attached)
{
	struct shunt_dispatcher *d = make_dispatcher("hook");
	struct shunt_block p = program(1);

	cr_assert_eq(shunt_dispatcher_attach(d, p.rx), 0);
	cr_assert_eq(shunt_dispatcher_destroy(d), -EBUSY);
	cr_assert_eq(shunt_dispatcher_detach(d, p.rx), 0);
	cr_assert_eq(shunt_dispatcher_destroy(d), 0);
	cr_assert_null(shunt_dispatcher_find("hook"));
	d = make_dispatcher("hook");
	cr_assert_eq(call(d, 1, p.rx), 2);
	cr_assert_eq(shunt_dispatcher_destroy(NULL), -EINVAL);
}

Test(dispatcher, options_that_do_not_exist_are_refused)
{
	struct shunt_dispatcher_options plan = { .plan = (enum shunt_plan_kind)9 };
	struct shunt_dispatcher_options miss = { .miss = (enum shunt_miss_kind)9 };
	struct shunt_dispatcher *d;

	cr_assert_eq(shunt_dispatcher_create("hook", &plan, &d), -EINVAL);
	cr_assert_eq(shunt_dispatcher_create("hook", &miss, &d), -EINVAL);
	cr_assert_eq(shunt_dispatcher_create("hook", NULL, NULL), -EINVAL);
	cr_assert_eq(shunt_dispatcher_attach(NULL, &d), -EINVAL);
	cr_assert_eq(shunt_dispatcher_detach(NULL, &d), -EINVAL);
	cr_assert_eq(shunt_dispatcher_replace(NULL, &d, &d), -EINVAL);
	cr_assert_null(shunt_dispatcher_find("hook"));
}

Test(dispatcher, every_plan_and_miss_lands_every_call)
{
	enum { NR = 24 };
	struct shunt_block p[NR];

	for (uint32_t i = 0; i < NR; i++)
		p[i] = program(i);
	for (int plan = SHUNT_PLAN_DEFAULT; plan <= SHUNT_PLAN_WEIGHTED; plan++) {
		for (int miss = SHUNT_MISS_JUMP; miss <= SHUNT_MISS_AUTO; miss++) {
			struct shunt_dispatcher_options options = { .plan = (enum shunt_plan_kind)plan,
								    .miss = (enum shunt_miss_kind)miss };
			struct shunt_dispatcher *d;

			cr_assert_eq(shunt_dispatcher_create("hook", &options, &d), 0, "%s", shunt_error());
			for (uint32_t i = 0; i < NR; i += 2) {
				cr_assert_eq(shunt_dispatcher_attach(d, p[i].rx), 0, "%s", shunt_error());
				for (uint32_t j = 0; j < NR; j++)
					cr_assert_eq(call(d, 50, p[j].rx), 50 + j);
			}
			for (uint32_t i = 0; i < NR; i += 2)
				cr_assert_eq(shunt_dispatcher_detach(d, p[i].rx), 0);
			cr_assert_eq(shunt_dispatcher_destroy(d), 0);
		}
	}
}

Test(dispatcher, auto_does_what_the_kernel_does_on_this_machine)
{
	static const struct { const char *line; bool shadow; enum shunt_fallback fallback; } cases[] = {
		{ NULL, false, SHUNT_FALLBACK_JUMP },
		{ "Not affected\n", false, SHUNT_FALLBACK_JUMP },
		{ "Vulnerable\n", false, SHUNT_FALLBACK_JUMP },
		{ "Vulnerable: eIBRS with unprivileged eBPF\n", false, SHUNT_FALLBACK_JUMP },
		{ "Mitigation: Enhanced / Automatic IBRS; IBPB: conditional; RSB filling\n", false, SHUNT_FALLBACK_JUMP },
		{ "Mitigation: IBRS; IBPB: conditional\n", false, SHUNT_FALLBACK_JUMP },
		{ "Mitigation: Retpolines; IBPB: conditional; IBRS_FW; STIBP: disabled\n", false, SHUNT_FALLBACK_RETPOLINE },
		{ "Mitigation: Full generic retpoline, IBPB: conditional\n", false, SHUNT_FALLBACK_RETPOLINE },
		{ "Mitigation: Enhanced / Automatic IBRS + Retpolines\n", false, SHUNT_FALLBACK_RETPOLINE },
		{ "Mitigation: Retpolines; IBPB: conditional\n", true, SHUNT_FALLBACK_LFENCE },
		{ "Mitigation: Full AMD retpoline\n", false, SHUNT_FALLBACK_LFENCE },
		{ "Mitigation: LFENCE; IBPB: conditional\n", false, SHUNT_FALLBACK_LFENCE },
		{ "Mitigation: CSV2, BHB\n", false, SHUNT_FALLBACK_JUMP },
	};
	struct shunt_dispatcher_options options = { .miss = SHUNT_MISS_AUTO };
	struct shunt_dispatcher *d;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		cr_expect_eq(shunt_miss_parse(cases[i].line, cases[i].shadow), cases[i].fallback, "%s", cases[i].line);
	cr_assert_eq(shunt_dispatcher_create("hook", &options, &d), 0);
	cr_assert_eq((int)stats_of(d).miss, (int)shunt_miss_resolve(SHUNT_MISS_AUTO));
	cr_assert_neq(stats_of(d).miss, SHUNT_MISS_AUTO);
	cr_assert_str_eq(shunt_miss_name(SHUNT_MISS_AUTO), "auto");
}

Test(dispatcher, plan_and_fallback_can_be_changed_while_programs_are_attached)
{
	enum { NR = 20 };
	struct shunt_dispatcher *d = make_dispatcher("hook");
	struct shunt_block p[NR], stranger = program(99);
	struct shunt_dispatcher_stats before;

	for (uint32_t i = 0; i < NR; i++) {
		p[i] = program(i);
		cr_assert_eq(shunt_dispatcher_attach(d, p[i].rx), 0);
	}
	for (int plan = SHUNT_PLAN_DEFAULT; plan <= SHUNT_PLAN_WEIGHTED; plan++) {
		for (int miss = SHUNT_MISS_JUMP; miss <= SHUNT_MISS_AUTO; miss++) {
			cr_assert_eq(shunt_dispatcher_set_plan(d, (enum shunt_plan_kind)plan, (enum shunt_miss_kind)miss), 0);
			cr_assert_eq((int)stats_of(d).plan, plan);
			for (uint32_t i = 0; i < NR; i++)
				cr_assert_eq(call(d, 1, p[i].rx), 1 + i);
			cr_assert_eq(call(d, 1, stranger.rx), 100);
		}
	}
	cr_assert_eq(shunt_dispatcher_set_plan(d, SHUNT_PLAN_DEFAULT, SHUNT_MISS_RETPOLINE), 0);
	before = stats_of(d);
	cr_assert_eq(shunt_dispatcher_set_plan(d, (enum shunt_plan_kind)9, SHUNT_MISS_JUMP), -EINVAL);
	cr_assert_eq(shunt_dispatcher_set_plan(d, SHUNT_PLAN_DEFAULT, SHUNT_MISS_RETPOLINE), 0, "nothing new needs no patch");
	cr_assert_eq(stats_of(d).nr_patches, before.nr_patches);
	for (uint32_t i = 0; i < NR; i++)
		cr_assert_eq(shunt_dispatcher_detach(d, p[i].rx), 0);
	/* Empty, it still takes the fallback that was chosen, not the one that its stub was made with. */
	cr_assert_eq(call(d, 1, stranger.rx), 100);
	cr_assert_neq((const char *)stats_of(d).tree, (const char *)shunt_dispatcher_stub(d) + 32);
	cr_assert_eq(shunt_dispatcher_set_plan(d, SHUNT_PLAN_DEFAULT, SHUNT_MISS_JUMP), 0);
	cr_assert_eq((const char *)stats_of(d).tree, (const char *)shunt_dispatcher_stub(d) + 32);
	cr_assert_eq(call(d, 1, stranger.rx), 100);
	cr_assert_eq(shunt_dispatcher_set_plan(d, SHUNT_PLAN_DEFAULT, SHUNT_MISS_LFENCE), 0);
	cr_assert_eq(shunt_dispatcher_destroy(d), 0, "%s", shunt_error());
}

/* Bytes of the tree before the compare with program. */
static size_t offset_in_tree(const struct shunt_dispatcher *d, const void *program_rx)
{
	struct shunt_dispatcher_stats stats = stats_of(d);
	const char *tree = stats.tree;

	/* A jump to the program from anywhere in the tree. */
	for (size_t i = 0; i + 4 <= stats.head_len; i++) {
#if defined(__x86_64__)
		int32_t disp;

		memcpy(&disp, tree + i, sizeof(disp));
		/* je rel32; the anchor may be the same address. */
		if (i >= 2 && !memcmp(tree + i - 2, "\x0f\x84", 2) && tree + i + 4 + disp == (const char *)program_rx)
			return i;
#else
		int32_t word;

		memcpy(&word, tree + i, sizeof(word));
		if (i % 4 == 0 && (uint32_t)word >> 26 == 5 && tree + i + (int64_t)(word << 6) / 16 == (const char *)program_rx)
			return i;
#endif
	}
	return SIZE_MAX;
}

/* One change after the other in a dispatcher whose tree is in parts; a second one that takes no short cut must agree with it. */
Test(dispatcher, many_programs_come_and_go_one_by_one_and_every_call_lands)
{
	enum { NR = 700, NR_CHANGES = 3000 };
	struct shunt_dispatcher *d = make_dispatcher("hook");
	static struct shunt_block p[NR];
	static const void *list[NR];
	static bool is_there[NR];
	struct shunt_pack_stats start, end;
	struct shunt_dispatcher_stats stats;
	uint32_t nr_there = 0, nr_parts_first, most_parts = 0, heavy = 1000;
	uint64_t random = 1;

	for (uint32_t i = 0; i < NR; i++) {
		p[i] = program(i);
		list[i] = p[i].rx;
	}
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(shunt_pack_get_stats(NULL, &start), 0);
	cr_assert_eq(shunt_dispatcher_attach_many(d, list, NR / 2), 0, "%s", shunt_error());
	for (nr_there = 0; nr_there < NR / 2; nr_there++)
		is_there[nr_there] = true;
	nr_parts_first = stats_of(d).nr_parts;
	cr_assert_gt(nr_parts_first, 1);
	for (int change = 0; change < NR_CHANGES; change++) {
		uint32_t i;

		random = random * 6364136223846793005u + 1442695040888963407u;
		/* First it grows, at its upper end too, then it shrinks below what parts are worth. */
		i = (uint32_t)(random >> 33) % NR;
		if (change % 2)
			i = change < NR_CHANGES / 2 ? (nr_there + (uint32_t)change / 50) % NR : i;
		if (change == NR_CHANGES / 3)
			cr_assert_eq(shunt_dispatcher_set_weights(d, &list[is_there[7] ? 7 : i], &heavy, is_there[7]), 0);
		if (is_there[i] && (change >= NR_CHANGES / 2 || change % 8 == 0)) {
			cr_assert_eq(shunt_dispatcher_detach(d, list[i]), 0, "%s", shunt_error());
			is_there[i] = false;
			nr_there--;
		} else if (!is_there[i] && change < NR_CHANGES / 2) {
			cr_assert_eq(shunt_dispatcher_attach(d, list[i]), 0, "%s", shunt_error());
			is_there[i] = true;
			nr_there++;
		}
		stats = stats_of(d);
		most_parts = stats.nr_parts > most_parts ? stats.nr_parts : most_parts;
		cr_assert_eq(stats.nr_programs, nr_there);
		cr_assert_leq(stats.head_len, stats.tree_len);
		if (change % 64 && change > 20)
			continue;
		for (uint32_t k = 0; k < NR; k++)
			cr_assert_eq(call(d, 1000, list[k]), 1000 + k);
	}
	cr_assert_gt(most_parts, nr_parts_first);
	for (uint32_t i = 0; i < NR; i++) {
		if (!is_there[i])
			continue;
		cr_assert_eq(shunt_dispatcher_detach(d, list[i]), 0);
		cr_assert(--nr_there >= 32 || stats_of(d).nr_parts == 0, "%u programs in parts", nr_there);
	}
	cr_assert_eq(stats_of(d).tree, stub_target(d));
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(shunt_pack_get_stats(NULL, &end), 0);
	cr_assert_eq(start.nr_blocks[SHUNT_SEGMENT_CODE], end.nr_blocks[SHUNT_SEGMENT_CODE], "%llu blocks are %llu",
		     (unsigned long long)start.nr_blocks[SHUNT_SEGMENT_CODE], (unsigned long long)end.nr_blocks[SHUNT_SEGMENT_CODE]);
}

Test(dispatcher, a_change_of_many_programs_that_fails_leaves_all_as_it_was)
{
	enum { NR = 200 };
	struct shunt_dispatcher *d = make_dispatcher("hook");
	struct shunt_block p[NR];
	const void *list[NR];
	struct shunt_dispatcher_stats before, after;

	for (uint32_t i = 0; i < NR; i++) {
		p[i] = program(i);
		list[i] = p[i].rx;
	}
	cr_assert_eq(shunt_dispatcher_attach_many(d, list, NR), 0);
	before = stats_of(d);
	cr_assert_eq(shunt_dispatcher_attach(d, (void *)(uintptr_t)0x1000), -ERANGE);
	cr_assert_eq(shunt_dispatcher_attach(d, NULL), -EINVAL);
	cr_assert_eq(shunt_dispatcher_detach(d, (void *)(uintptr_t)0x1000), -ENOENT);
	after = stats_of(d);
	check_same(&before, &after);
	/* Counts do not touch the tree. */
	cr_assert_eq(shunt_dispatcher_attach(d, list[5]), 0);
	cr_assert_eq(shunt_dispatcher_detach(d, list[5]), 0);
	cr_assert_eq(stats_of(d).nr_patches, before.nr_patches);
	cr_assert_eq(stats_of(d).nr_programs, NR);
	for (uint32_t i = 0; i < NR; i++)
		cr_assert_eq(call(d, 1, p[i].rx), 1 + i);
}

Test(dispatcher, weights_say_what_is_tested_first_and_stay_until_the_last_detach)
{
	enum { NR = 24, HOT = 13 };
	struct shunt_dispatcher *d = make_dispatcher("hook");
	struct shunt_dispatcher_stats before, after;
	struct shunt_block p[NR], q;
	const void *list[NR], *hot[1], *stranger[2];
	uint32_t heavy = 100, none = 0, two[2] = { 5, 5 };

	for (uint32_t i = 0; i < NR; i++) {
		p[i] = program(i);
		list[i] = p[i].rx;
	}
	q = program(99); /* above the others */
	hot[0] = p[HOT].rx;
	stranger[0] = p[1].rx;
	stranger[1] = q.rx;
	cr_assert_eq(shunt_dispatcher_attach_many(d, list, NR), 0);
	before = stats_of(d);
	cr_assert_eq(shunt_dispatcher_set_weights(d, stranger, two, 2), -ENOENT);
	cr_assert_eq(shunt_dispatcher_set_weights(d, hot, NULL, 1), -EINVAL);
	after = stats_of(d);
	check_same(&before, &after);

	cr_assert_eq(shunt_dispatcher_set_weights(d, hot, &heavy, 1), 0, "%s", shunt_error());
	cr_assert_eq(stats_of(d).nr_patches, before.nr_patches + 1);
	for (uint32_t i = 0; i < NR; i++) {
		cr_assert_eq(call(d, 1, p[i].rx), 1 + i);
		if (i != HOT)
			cr_assert_lt(offset_in_tree(d, hot[0]), offset_in_tree(d, p[i].rx));
	}
	cr_assert_eq(shunt_dispatcher_set_weights(d, hot, &heavy, 1), 0);
	cr_assert_eq(stats_of(d).nr_patches, before.nr_patches + 1, "the same weight again needs no patch");

	/* A replacement inherits the weight. */
	cr_assert_eq(shunt_dispatcher_replace(d, hot[0], q.rx), 0);
	cr_assert_lt(offset_in_tree(d, q.rx), offset_in_tree(d, p[0].rx));
	cr_assert_eq(shunt_dispatcher_detach(d, q.rx), 0);
	cr_assert_eq(shunt_dispatcher_attach(d, q.rx), 0);
	cr_assert_gt(offset_in_tree(d, q.rx), offset_in_tree(d, p[0].rx), "a weight outlived the last detach");
	hot[0] = q.rx;
	cr_assert_eq(shunt_dispatcher_set_weights(d, hot, &heavy, 1), 0);
	cr_assert_eq(shunt_dispatcher_set_weights(d, hot, &none, 1), 0);
	cr_assert_gt(offset_in_tree(d, q.rx), offset_in_tree(d, p[0].rx), "0 takes a weight back");
}

static const char *name_program(void *user, const void *program_rx)
{
	return program_rx == user ? "the \"hot\" one" : NULL;
}

/* Follows the picture for a pointer as a reader would: returns the program's number, or UINT32_MAX for the fallback. */
static uint32_t follow(const char *dot, const uint64_t *programs, uint32_t nr, uint64_t pointer)
{
	uint32_t at = 0;

	for (int step = 0; step < 1000; step++) {
		char key[64], *line, label[64];
		bool yes = true;
		uint32_t to, program;
		unsigned long long addr;

		snprintf(key, sizeof(key), "\n  n%u [", at);
		line = strstr(dot, key);
		cr_assert_not_null(line, "node %u is not drawn", at);
		if (strstr(line, "shape=ellipse") && strstr(line, "shape=ellipse") < strchr(line + 1, '\n'))
			return UINT32_MAX;
		if (sscanf(line + strlen(key), "label=\"%63[^0-9\"]%llx", label, &addr) == 2)
			yes = label[0] == '=' ? pointer == addr : pointer > addr;
		else if (sscanf(line + strlen(key), "label=\"%63[^\"]", label) == 1 && !strcmp(label, "among the programs"))
			yes = pointer >= programs[0] && pointer <= programs[nr - 1];
		snprintf(key, sizeof(key), "\n  n%u -> ", at);
		for (line = strstr(dot, key); line; line = strstr(line + 1, key)) {
			const char *end = strchr(line + 1, '\n'), *said = strstr(line, yes ? "\"yes\"" : "\"no\"");

			if (said && said < end)
				break;
			if (!strchr(line, '[') || strchr(line, '[') > end)
				break; /* the only way on */
		}
		cr_assert_not_null(line, "node %u has no way on", at);
		if (sscanf(line + strlen(key), "p%u", &program) == 1)
			return program;
		cr_assert_eq(sscanf(line + strlen(key), "n%u", &to), 1);
		at = to;
	}
	return UINT32_MAX - 1;
}

Test(dispatcher, a_picture_leads_every_pointer_where_the_tree_does)
{
	enum { NR = 21 };
	struct shunt_dispatcher *d = make_dispatcher("hook");
	uint64_t programs[NR];
	const void *list[NR];
	uint32_t weight = 50;
	char *dot = NULL;
	size_t len;
	FILE *out;

	for (uint32_t i = 0; i < NR; i++) {
		list[i] = program(i).rx;
		programs[i] = (uint64_t)(uintptr_t)list[i];
		cr_assert(i == 0 || programs[i] > programs[i - 1]);
	}
	cr_assert_eq(shunt_dispatcher_attach_many(d, list, NR), 0);
	cr_assert_eq(shunt_dispatcher_set_weights(d, &list[7], &weight, 1), 0);
	for (int plan = SHUNT_PLAN_DEFAULT; plan <= SHUNT_PLAN_WEIGHTED; plan++) {
		cr_assert_eq(shunt_dispatcher_set_plan(d, (enum shunt_plan_kind)plan, SHUNT_MISS_LFENCE), 0);
		out = open_memstream(&dot, &len);
		cr_assert_eq(shunt_dispatcher_draw(d, NULL, NULL, out), 0);
		fclose(out);
		cr_assert_not_null(strstr(dot, "by lfence"));
		cr_assert_not_null(strstr(dot, "weight 50"));
		for (uint32_t i = 0; i < NR; i++) {
			cr_assert_eq(follow(dot, programs, NR, programs[i]), i);
			cr_assert_eq(follow(dot, programs, NR, programs[i] + 1), UINT32_MAX);
		}
		cr_assert_eq(follow(dot, programs, NR, 0), UINT32_MAX);
		free(dot);
	}
	out = open_memstream(&dot, &len);
	cr_assert_eq(shunt_dispatcher_draw(d, name_program, (void *)(uintptr_t)list[3], out), 0);
	fclose(out);
	cr_assert_not_null(strstr(dot, "the \\\"hot\\\" one"), "names are quoted");
	free(dot);
}

Test(dispatcher, everything_is_given_back_at_the_end)
{
	struct shunt_block p = program(1);
	struct shunt_dispatcher *d;
	struct shunt_pack_stats before, after;

	cr_assert_eq(shunt_pack_get_stats(NULL, &before), 0);
	d = make_dispatcher("hook");
	for (int i = 0; i < 100; i++) {
		cr_assert_eq(shunt_dispatcher_attach(d, p.rx), 0);
		cr_assert_eq(shunt_dispatcher_detach(d, p.rx), 0);
	}
	cr_assert_eq(shunt_dispatcher_destroy(d), 0);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(shunt_pack_get_stats(NULL, &after), 0);
	cr_assert_eq(before.nr_blocks[SHUNT_SEGMENT_CODE], after.nr_blocks[SHUNT_SEGMENT_CODE]);
	cr_assert_eq(after.bytes_pending, 0);
}
