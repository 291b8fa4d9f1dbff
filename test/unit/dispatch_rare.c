/* SPDX-License-Identifier: MIT */
/*
 * Programs that the host's weights make rare are left to the fallback by the default plan. That is a matter of time alone: every call lands
 * in the program that its pointer names, whatever weights say and however they come and go.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shunt/dispatcher.h>
#include <shunt/log.h>
#include <shunt/reader.h>

#include "test/exec/dispatch_programs.h"

#define NR 200

static struct shunt_block blocks[NR];
static const void *programs[NR];
static uint32_t weights[NR];

static void make_programs(void)
{
	for (uint32_t i = 0; i < NR; i++) {
		cr_assert_eq(make_program(NULL, i, &blocks[i]), 0, "%s", shunt_error());
		programs[i] = blocks[i].rx;
	}
}

static struct shunt_dispatcher *make_dispatcher(enum shunt_plan_kind plan, enum shunt_miss_kind miss, uint32_t nr)
{
	struct shunt_dispatcher_options options = { .plan = plan, .miss = miss };
	struct shunt_dispatcher *d;

	cr_assert_eq(shunt_dispatcher_create("rare", &options, &d), 0, "%s", shunt_error());
	cr_assert_eq(shunt_dispatcher_attach_many(d, programs, nr), 0, "%s", shunt_error());
	return d;
}

static void weigh(struct shunt_dispatcher *d, uint32_t nr)
{
	cr_assert_eq(shunt_dispatcher_set_weights(d, programs, weights, nr), 0, "%s", shunt_error());
}

static struct shunt_dispatcher_stats stats_of(const struct shunt_dispatcher *d)
{
	struct shunt_dispatcher_stats stats;

	shunt_dispatcher_get_stats(d, &stats);
	return stats;
}

static void call_all(const struct shunt_dispatcher *d)
{
	shunt_read_begin();
	for (uint32_t i = 0; i < NR; i++)
		cr_assert_eq(call_stub(shunt_dispatcher_stub(d), 1000, programs[i]), 1000 + i);
	shunt_read_end();
}

/* Programs that the picture has. */
static uint32_t count_drawn(struct shunt_dispatcher *d)
{
	char *text = NULL;
	size_t len;
	uint32_t nr = 0;
	FILE *file = open_memstream(&text, &len);

	cr_assert_not_null(file);
	cr_assert_eq(shunt_dispatcher_draw(d, NULL, NULL, file), 0);
	fclose(file);
	for (const char *at = text; (at = strstr(at, "fillcolor")); at++)
		nr++;
	free(text);
	return nr;
}

/* weights[0] of nr programs, the others weigh 1 each. */
static void expect_leaves(uint32_t nr, uint32_t nr_hot, uint32_t hot, bool leaves)
{
	struct shunt_dispatcher *d = make_dispatcher(SHUNT_PLAN_DEFAULT, SHUNT_MISS_JUMP, nr);

	for (uint32_t i = 0; i < nr; i++)
		weights[i] = i < nr_hot ? hot : 1;
	weigh(d, nr);
	cr_assert_eq(stats_of(d).leaves_rare, leaves, "%u of %u with %u", nr_hot, nr, hot);
	cr_assert_eq(stats_of(d).nr_programs, nr);
	cr_assert_eq(count_drawn(d), leaves ? nr_hot : nr);
	if (leaves)
		cr_assert_leq(stats_of(d).tree_len, 128);
	call_all(d);
	cr_assert_eq(shunt_dispatcher_detach_many(d, programs, nr), 0);
	cr_assert_eq(shunt_dispatcher_destroy(d), 0);
}

Test(dispatch_rare, programs_are_left_to_the_fallback_where_up_to_four_have_three_quarters_of_the_weight)
{
	make_programs();
	expect_leaves(16, 1, 45, true); /* of 60 */
	expect_leaves(16, 1, 44, false);
	expect_leaves(2, 1, 3, true);
	expect_leaves(2, 1, 2, false);
	expect_leaves(200, 4, 147, true); /* of 784 */
	expect_leaves(200, 4, 146, false);
	expect_leaves(16, 5, 1000, false);
	expect_leaves(5, 1, 1, false);
	/* All that there are is nothing to leave. */
	expect_leaves(4, 4, 1000, false);
	expect_leaves(1, 1, 1000, false);
}

Test(dispatch_rare, weights_that_are_only_counts_leave_nothing_to_the_fallback)
{
	struct shunt_dispatcher *d;

	make_programs();
	d = make_dispatcher(SHUNT_PLAN_DEFAULT, SHUNT_MISS_JUMP, 8);
	for (int i = 0; i < 99; i++)
		cr_assert_eq(shunt_dispatcher_attach(d, programs[3]), 0);
	cr_assert_eq(shunt_dispatcher_attach(d, programs[9]), 0);
	cr_assert(!stats_of(d).leaves_rare);
	call_all(d);
}

Test(dispatch_rare, other_plans_an_lfence_and_counting_keep_every_program_in_the_tree)
{
	struct shunt_dispatcher_program there[NR];
	struct shunt_dispatcher *d;

	make_programs();
	for (uint32_t i = 0; i < NR; i++)
		weights[i] = i == 7 ? 100000 : 1;
	d = make_dispatcher(SHUNT_PLAN_DEFAULT, SHUNT_MISS_JUMP, 100);
	weigh(d, 100);
	cr_assert(stats_of(d).leaves_rare);
	for (int plan = SHUNT_PLAN_DEFAULT; plan <= SHUNT_PLAN_WEIGHTED; plan++)
		for (int miss = SHUNT_MISS_JUMP; miss <= SHUNT_MISS_LFENCE; miss++) {
			cr_assert_eq(shunt_dispatcher_set_plan(d, (enum shunt_plan_kind)plan, (enum shunt_miss_kind)miss), 0);
			cr_assert_eq(stats_of(d).leaves_rare, plan == SHUNT_PLAN_DEFAULT && miss != SHUNT_MISS_LFENCE, "%d %d", plan, miss);
			call_all(d);
		}
	cr_assert_eq(shunt_dispatcher_set_plan(d, SHUNT_PLAN_DEFAULT, SHUNT_MISS_JUMP), 0);
	cr_assert_eq(shunt_dispatcher_count_hits(d, true), 0);
	cr_assert(!stats_of(d).leaves_rare);
	call_all(d);
	cr_assert_eq(shunt_dispatcher_get_programs(d, there, NR), 100);
	for (uint32_t i = 0; i < 100; i++)
		cr_assert_eq(there[i].nr_hits, 1, "program %u: %llu", i, (unsigned long long)there[i].nr_hits);
	cr_assert_eq(shunt_dispatcher_count_hits(d, false), 0);
	cr_assert(stats_of(d).leaves_rare);
	call_all(d);
}

Test(dispatch_rare, what_comes_and_goes_beside_a_hot_program_is_called_all_the_same)
{
	struct shunt_dispatcher *d;
	uint32_t nr_rare = 0, nr_full = 0;
	uint64_t random = 1;

	make_programs();
	d = make_dispatcher(SHUNT_PLAN_DEFAULT, SHUNT_MISS_RETPOLINE, 1);
	for (int change = 0; change < 1000; change++) {
		uint32_t i, weight;
		struct shunt_dispatcher_stats stats;

		random = random * 6364136223846793005u + 1442695040888963407u;
		i = (uint32_t)(random >> 40) % (change < 500 ? NR : 12);
		weight = random >> 33 & 7 ? 0 : (uint32_t)(random >> 36 & 0xffff);
		switch (random >> 61) {
		case 0: case 1: case 2:
			cr_assert_eq(shunt_dispatcher_attach(d, programs[i]), 0);
			break;
		case 3: case 4:
			(void)shunt_dispatcher_detach(d, programs[i]);
			break;
		case 5:
			(void)shunt_dispatcher_replace(d, programs[i], programs[(i + 1) % 12]);
			break;
		default:
			(void)shunt_dispatcher_set_weights(d, &programs[i], &weight, 1);
		}
		stats = stats_of(d);
		nr_rare += stats.leaves_rare;
		nr_full += !stats.leaves_rare && stats.nr_programs > 1;
		cr_assert(!stats.leaves_rare || (stats.tree_depth >= 1 && stats.tree_depth <= 6 && stats.nr_parts == 0));
		if (change % 8 == 0)
			call_all(d);
	}
	call_all(d);
	cr_assert_gt(nr_rare, 50, "%u", nr_rare);
	cr_assert_gt(nr_full, 50, "%u", nr_full);
}
