/* SPDX-License-Identifier: MIT */
/* Plans: that each walks to the right program for every pointer, its depth, and its shape. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shunt/log.h>
#include "runtime/dispatch/plan.h"
#include "targets/target.h"

#define MISS UINT32_MAX
#define CHUNK 64u

static const enum shunt_plan_kind kinds[] = { SHUNT_PLAN_DEFAULT, SHUNT_PLAN_LINEAR, SHUNT_PLAN_BALANCED, SHUNT_PLAN_KERNEL,
					      SHUNT_PLAN_WEIGHTED };
#define NR_KINDS (sizeof(kinds) / sizeof(kinds[0]))

static void fill_programs(uint64_t *programs, uint32_t nr)
{
	for (uint32_t i = 0; i < nr; i++)
		programs[i] = UINT64_C(0x7f1234560000) + (uint64_t)i * 3 * CHUNK;
}

/* What the plan does with pointer, by the words of targets/plan.h; counts compares. */
static uint32_t walk(const struct shunt_plan *plan, uint64_t pointer, uint32_t *compares)
{
	uint32_t i = 0;
	bool above;

	*compares = 0;
	for (;;) {
		const struct shunt_plan_node *node = &plan->nodes[i];

		cr_assert_lt(i, plan->nr_nodes, "fell off the plan");
		switch (node->op) {
		case SHUNT_PLAN_OP_EQUAL:
			++*compares;
			if (pointer == plan->programs[node->program])
				return node->program;
			i++;
			break;
		case SHUNT_PLAN_OP_ABOVE:
			cr_assert_gt(node->node, i, "ABOVE goes backwards");
			++*compares;
			above = pointer > plan->programs[node->program];
			if (plan->outside_is_below && pointer > plan->programs[plan->nr_programs - 1])
				above = false;
			i = above ? node->node : i + 1;
			break;
		case SHUNT_PLAN_OP_INSIDE:
			cr_assert_gt(node->node, i, "INSIDE goes backwards");
			++*compares;
			i = pointer >= plan->programs[0] && pointer <= plan->programs[plan->nr_programs - 1] ? node->node : i + 1;
			break;
		case SHUNT_PLAN_OP_ANCHOR:
			cr_assert_eq(i, 0);
			i++;
			break;
		case SHUNT_PLAN_OP_RANGE:
			cr_assert(i == 0 || plan->nodes[0].op == SHUNT_PLAN_OP_ANCHOR);
			++*compares;
			if (pointer < plan->programs[0] || pointer > plan->programs[plan->nr_programs - 1])
				return MISS;
			i++;
			break;
		case SHUNT_PLAN_OP_FALLBACK:
			return MISS;
		case SHUNT_PLAN_OP_PART:
			cr_assert_fail("a part in a plan of its own");
		}
	}
}

static void check_plan(const struct shunt_plan *plan)
{
	uint32_t deepest = 0, compares;

	cr_assert_eq(plan->nodes[plan->nr_nodes - 1].op, SHUNT_PLAN_OP_FALLBACK);
	for (uint32_t i = 0; i < plan->nr_programs; i++) {
		cr_assert_eq(walk(plan, plan->programs[i], &compares), i);
		deepest = compares > deepest ? compares : deepest;
		cr_assert_eq(walk(plan, plan->programs[i] - CHUNK, &compares), MISS);
		deepest = compares > deepest ? compares : deepest;
		cr_assert_eq(walk(plan, plan->programs[i] + CHUNK, &compares), MISS);
		deepest = compares > deepest ? compares : deepest;
	}
	cr_assert_eq(walk(plan, 0, &compares), MISS);
	cr_assert_eq(walk(plan, UINT64_MAX, &compares), MISS);
	cr_assert_eq(plan->depth, deepest, "depth %u, walked %u with %u programs", plan->depth, deepest, plan->nr_programs);
}

Test(plan, every_kind_leads_every_pointer_to_its_program_or_the_fallback)
{
	uint64_t programs[300];

	fill_programs(programs, 300);
	for (size_t k = 0; k < NR_KINDS; k++) {
		for (uint32_t nr = 0; nr <= 300; nr += nr < 70 ? 1 : 23) {
			struct shunt_plan plan;

			cr_assert_eq(shunt_plan_make(kinds[k], programs, NULL, nr, &plan), 0);
			check_plan(&plan);
			shunt_plan_fini(&plan);
		}
	}
}

Test(plan, no_programs_make_a_single_fallback)
{
	for (size_t k = 0; k < NR_KINDS; k++) {
		struct shunt_plan plan;

		cr_assert_eq(shunt_plan_make(kinds[k], NULL, NULL, 0, &plan), 0);
		cr_assert_eq(plan.nr_nodes, 1);
		cr_assert_eq(plan.depth, 0);
		shunt_plan_fini(&plan);
	}
}

Test(plan, up_to_three_programs_are_a_chain_without_an_anchor)
{
	uint64_t programs[4];
	struct shunt_plan plan;

	fill_programs(programs, 4);
	for (uint32_t nr = 1; nr <= 3; nr++) {
		cr_assert_eq(shunt_plan_make(SHUNT_PLAN_DEFAULT, programs, NULL, nr, &plan), 0);
		cr_assert_eq(plan.nr_nodes, nr + 1);
		for (uint32_t i = 0; i < nr; i++)
			cr_assert_eq(plan.nodes[i].op, SHUNT_PLAN_OP_EQUAL);
		shunt_plan_fini(&plan);
	}
	cr_assert_eq(shunt_plan_make(SHUNT_PLAN_DEFAULT, programs, NULL, 4, &plan), 0);
	cr_assert_eq(plan.nodes[0].op, SHUNT_PLAN_OP_ANCHOR);
	shunt_plan_fini(&plan);
}

Test(plan, a_foreign_pointer_leaves_the_default_plan_after_four_compares_that_fall_through)
{
	uint64_t programs[300];
	struct shunt_plan plan;
	uint32_t compares;

	fill_programs(programs, 300);
	for (uint32_t nr = 4; nr <= 300; nr++) {
		cr_assert_eq(shunt_plan_make(SHUNT_PLAN_DEFAULT, programs, NULL, nr, &plan), 0);
		cr_assert_eq(walk(&plan, programs[0] - 1, &compares), MISS);
		cr_assert_leq(compares, 4, "%u programs", nr);
		cr_assert_eq(walk(&plan, programs[nr - 1] + 1, &compares), MISS);
		cr_assert_leq(compares, 4, "%u programs", nr);
		/* Nodes that fall through follow each other. */
		for (uint32_t i = 1; i <= compares; i++)
			cr_assert(plan.nodes[i].op == SHUNT_PLAN_OP_ABOVE || plan.nodes[i].op == SHUNT_PLAN_OP_EQUAL ||
				  plan.nodes[i].op == SHUNT_PLAN_OP_INSIDE);
		cr_assert_eq(plan.nodes[1 + compares].op, SHUNT_PLAN_OP_FALLBACK);
		shunt_plan_fini(&plan);
	}
}

Test(plan, programs_attached_more_often_are_tested_first)
{
	uint64_t programs[20];
	uint32_t weights[20];
	struct shunt_plan plan;
	uint32_t compares;

	fill_programs(programs, 20);
	for (uint32_t i = 0; i < 20; i++)
		weights[i] = 1;
	weights[13] = 9;
	weights[4] = 7;
	weights[19] = 3;
	cr_assert_eq(shunt_plan_make(SHUNT_PLAN_DEFAULT, programs, weights, 20, &plan), 0);
	check_plan(&plan);
	cr_assert_eq(walk(&plan, programs[13], &compares), 13);
	cr_assert_eq(compares, 1);
	cr_assert_eq(walk(&plan, programs[4], &compares), 4);
	cr_assert_eq(compares, 2);
	cr_assert_eq(walk(&plan, programs[19], &compares), 19);
	cr_assert_eq(compares, 3);
	shunt_plan_fini(&plan);

	/* All heavier than the lightest: only SHUNT_PLAN_HOT_MAX come first. */
	for (uint32_t i = 0; i < 20; i++)
		weights[i] = 1 + i;
	cr_assert_eq(shunt_plan_make(SHUNT_PLAN_DEFAULT, programs, weights, 20, &plan), 0);
	check_plan(&plan);
	for (uint32_t i = 0; i < SHUNT_PLAN_HOT_MAX; i++)
		cr_assert_eq(plan.nodes[1 + i].program, 19 - i);
	cr_assert_eq(plan.nodes[1 + SHUNT_PLAN_HOT_MAX].op, SHUNT_PLAN_OP_INSIDE);
	shunt_plan_fini(&plan);

	/* Equal weights name nobody hot. */
	for (uint32_t i = 0; i < 20; i++)
		weights[i] = 5;
	cr_assert_eq(shunt_plan_make(SHUNT_PLAN_DEFAULT, programs, weights, 20, &plan), 0);
	cr_assert_eq(plan.nodes[1].op, SHUNT_PLAN_OP_ABOVE);
	shunt_plan_fini(&plan);
}

/* Weights of every kind, those included for which halving by weight alone would be as deep as there are programs. */
static void fill_weights(uint32_t *weights, uint32_t nr, unsigned int kind, uint64_t *state)
{
	for (uint32_t i = 0; i < nr; i++) {
		*state = *state * UINT64_C(6364136223846793005) + 1442695040888963407;
		switch (kind) {
		case 0: weights[i] = 0; break;
		case 1: weights[i] = i == nr / 3 ? UINT32_MAX : 1; break;
		case 2: weights[i] = (uint32_t)1 << i % 32; break;
		case 3: weights[i] = UINT32_MAX; break;
		case 4: weights[i] = UINT32_MAX / (i + 1); break;
		default: weights[i] = (uint32_t)(*state >> 40); break;
		}
	}
}

Test(plan, any_weights_lead_every_pointer_to_its_program_by_a_path_of_bounded_length)
{
	static uint64_t programs[4096];
	static uint32_t weights[4096];
	static const uint32_t counts[] = { 1, 2, 3, 4, 5, 6, 7, 9, 16, 33, 100, 257, 4096 };
	uint64_t state = 1;

	fill_programs(programs, 4096);
	for (size_t k = 0; k < NR_KINDS; k++) {
		for (unsigned int kind = 0; kind < 6; kind++) {
			for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
				struct shunt_plan plan;

				/* A chain's length is its count, and walking it the square of that. */
				if (kinds[k] == SHUNT_PLAN_LINEAR && counts[c] > 257)
					continue;
				fill_weights(weights, counts[c], kind, &state);
				cr_assert_eq(shunt_plan_make(kinds[k], programs, weights, counts[c], &plan), 0);
				check_plan(&plan);
				if (kinds[k] != SHUNT_PLAN_LINEAR)
					cr_assert_leq(plan.depth, 80, "%u programs, weights %u: depth %u", counts[c], kind, plan.depth);
				shunt_plan_fini(&plan);
			}
		}
	}
}

Test(plan, the_weighted_plan_needs_few_compares_on_average)
{
	uint64_t programs[64];
	uint32_t weights[64];
	struct shunt_plan plan;
	uint64_t sum = 0, total = 0;
	uint32_t compares;

	/* Half of the calls go to one, a quarter to the next one, and so on: 2 compares, and a little for the range. */
	fill_programs(programs, 64);
	for (uint32_t i = 0; i < 64; i++)
		weights[i * 37 % 64] = i < 20 ? (uint32_t)1 << (20 - i) : 1;
	cr_assert_eq(shunt_plan_make(SHUNT_PLAN_WEIGHTED, programs, weights, 64, &plan), 0);
	for (uint32_t i = 0; i < 64; i++) {
		walk(&plan, programs[i], &compares);
		sum += (uint64_t)weights[i] * compares;
		total += weights[i];
	}
	cr_assert_leq(sum, total * 22 / 10, "%llu compares in %llu calls", (unsigned long long)sum, (unsigned long long)total);
	shunt_plan_fini(&plan);
}

Test(plan, one_in_parts_tests_hot_programs_first_and_is_no_deeper_than_one_piece)
{
	enum { NR = 200, NR_PARTS = 5 };
	static const uint32_t last[NR_PARTS] = { 39, 79, 119, 159, 199 }, hot[2] = { 77, 3 };
	uint64_t programs[NR], ends[NR_PARTS + 2];
	uint32_t end_of_part[NR_PARTS], hot_at[2] = { 2, 0 };
	struct shunt_plan whole, one, head;
	uint32_t nr_parts = 0, compares;

	fill_programs(programs, NR);
	cr_assert_eq(shunt_plan_make_whole(programs, NR, hot, 2, last, NR_PARTS, &whole), 0);
	check_plan(&whole);
	cr_assert_eq(shunt_plan_make(SHUNT_PLAN_DEFAULT, programs, NULL, NR, &one), 0);
	cr_assert_leq(whole.depth, one.depth + 2 + 1);
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(whole.nodes[1 + i].op, SHUNT_PLAN_OP_EQUAL);
		cr_assert_eq(whole.nodes[1 + i].program, hot[i]);
	}
	cr_assert_eq(walk(&whole, programs[NR - 1] + 1, &compares), MISS);
	cr_assert_leq(compares, 4);

	/* The head has the compares above the parts, each part once, in order, and the fallback of its range check. */
	ends[0] = programs[3];
	ends[1] = programs[39];
	ends[2] = programs[77];
	for (uint32_t i = 1; i < NR_PARTS; i++)
		ends[2 + i] = programs[last[i]];
	for (uint32_t i = 0; i < NR_PARTS; i++)
		end_of_part[i] = i ? 2 + i : 1;
	cr_assert_eq(shunt_plan_make_head(ends, NR_PARTS + 2, hot_at, 2, end_of_part, NR_PARTS, &head), 0);
	for (uint32_t i = 0; i < head.nr_nodes; i++)
		if (head.nodes[i].op == SHUNT_PLAN_OP_PART)
			cr_assert_eq(head.nodes[i].program, nr_parts++);
	cr_assert_eq(nr_parts, NR_PARTS);
	cr_assert_eq(head.nodes[head.nr_nodes - 1].op, SHUNT_PLAN_OP_FALLBACK);
	shunt_plan_fini(&whole);
	shunt_plan_fini(&one);
	shunt_plan_fini(&head);
}

Test(plan, a_chain_begins_with_the_pivot_that_was_just_compared)
{
	uint64_t programs[8];
	struct shunt_plan plan;

	fill_programs(programs, 8);
	cr_assert_eq(shunt_plan_make_part(programs, 8, &plan), 0);
	cr_assert_eq(plan.nodes[0].op, SHUNT_PLAN_OP_ABOVE);
	cr_assert_eq(plan.nodes[1].op, SHUNT_PLAN_OP_ABOVE);
	cr_assert_eq(plan.nodes[2].op, SHUNT_PLAN_OP_EQUAL);
	cr_assert_eq(plan.nodes[2].program, plan.nodes[1].program);
	shunt_plan_fini(&plan);
}

static size_t measure(enum shunt_plan_kind kind, const uint64_t *programs, uint32_t nr)
{
	struct shunt_plan plan;
	struct shunt_code code;

	cr_assert_eq(shunt_plan_make(kind, programs, NULL, nr, &plan), 0);
	shunt_code_init(&code, NULL, 0, programs[0] & ~UINT64_C(63));
	shunt_target_x86_64.emit_tree(&code, &plan, SHUNT_FALLBACK_JUMP);
	cr_assert_eq(code.error, 0);
	shunt_plan_fini(&plan);
	return code.len;
}

Test(plan, the_default_plan_is_never_longer_than_the_kernel_s)
{
	uint64_t programs[300];

	fill_programs(programs, 300);
	for (uint32_t nr = 2; nr <= 300; nr++) {
		size_t ours = measure(SHUNT_PLAN_DEFAULT, programs, nr);
		size_t kernel = measure(SHUNT_PLAN_KERNEL, programs, nr);

		cr_assert_leq(ours, kernel, "%u programs: %zu bytes, kernel %zu", nr, ours, kernel);
	}
}

/* Cache lines of x86-64 code that a pointer is led through: each that it jumps or runs into. */
static uint32_t count_lines(const struct shunt_plan *plan, uint64_t pointer)
{
	uint32_t at = 0, lines = 0, last = 0;
	bool has_jumped = true;
	struct shunt_tree tree;

	cr_assert_eq(shunt_target_x86_64.lay_out_tree(&tree, plan, SHUNT_FALLBACK_JUMP, 0), 0);
	for (;;) {
		const struct shunt_plan_node *node = &plan->nodes[at];
		const struct shunt_tree_node *code = &tree.nodes[at];
		/* The int3 behind a fallback's jump is not run. */
		uint32_t end = code->offset + code->len - 1 - (node->op == SHUNT_PLAN_OP_FALLBACK);

		lines += has_jumped || code->offset / 64 != last;
		lines += end / 64 - code->offset / 64;
		last = end / 64;
		has_jumped = false;
		if (node->op == SHUNT_PLAN_OP_FALLBACK || (node->op == SHUNT_PLAN_OP_EQUAL && plan->programs[node->program] == pointer))
			break;
		if ((node->op == SHUNT_PLAN_OP_ABOVE && pointer > plan->programs[node->program] && pointer <= tree.high) ||
		    (node->op == SHUNT_PLAN_OP_INSIDE && pointer >= tree.low && pointer <= tree.high)) {
			has_jumped = true;
			at = node->node;
		} else {
			at++;
		}
	}
	shunt_tree_fini(&tree);
	return lines;
}

Test(plan, a_foreign_pointer_is_led_through_one_cache_line_of_the_default_plan_and_one_between_its_halves_through_two)
{
	uint64_t programs[300];
	struct shunt_plan plan;

	fill_programs(programs, 300);
	for (uint32_t nr = 4; nr <= 300; nr++) {
		cr_assert_eq(shunt_plan_make(SHUNT_PLAN_DEFAULT, programs, NULL, nr, &plan), 0);
		cr_assert_eq(count_lines(&plan, programs[0] - 64), 1, "%u programs", nr);
		cr_assert_eq(count_lines(&plan, programs[nr - 1] + 64), 1, "%u programs", nr);
		if (nr <= 48)
			cr_assert_leq(count_lines(&plan, programs[nr / 2 - 1] + CHUNK), 2, "%u programs: %u lines", nr,
				      count_lines(&plan, programs[nr / 2 - 1] + CHUNK));
		shunt_plan_fini(&plan);
	}
}

Test(plan, the_kernel_plan_has_the_compares_that_the_kernel_s_dispatcher_has)
{
	static const struct { uint32_t nr, depth; } known[] = { { 1, 1 }, { 8, 4 }, { 16, 5 }, { 32, 6 }, { 48, 7 }, { 64, 7 } };
	uint64_t programs[64];

	fill_programs(programs, 64);
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		struct shunt_plan plan;

		cr_assert_eq(shunt_plan_make(SHUNT_PLAN_KERNEL, programs, NULL, known[i].nr, &plan), 0);
		cr_assert_eq(plan.depth, known[i].depth);
		shunt_plan_fini(&plan);
	}
}

Test(plan, the_lower_half_gets_the_odd_program)
{
	uint64_t programs[7];
	struct shunt_plan plan;

	fill_programs(programs, 7);
	cr_assert_eq(shunt_plan_make(SHUNT_PLAN_KERNEL, programs, NULL, 3, &plan), 0);
	cr_assert_eq(plan.nodes[1].op, SHUNT_PLAN_OP_ABOVE);
	cr_assert_eq(plan.nodes[1].program, 1);
	shunt_plan_fini(&plan);
	cr_assert_eq(shunt_plan_make(SHUNT_PLAN_KERNEL, programs, NULL, 7, &plan), 0);
	cr_assert_eq(plan.nodes[1].program, 3);
	shunt_plan_fini(&plan);
}

/*
 * The listing, node by node: "cmp programN, jg offset" is an ABOVE to the node at that offset, "cmp programN, je programN" an
 * EQUAL, "jmp fallback" a FALLBACK; a jg's destination is an aligned node.
 */
struct listed {
	unsigned int offset, program, target;
	enum shunt_plan_op op;
};

static uint32_t read_listing(const char *path, struct listed *nodes, uint32_t max)
{
	FILE *file = fopen(path, "r");
	char line[256], op[16], operand[32];
	unsigned int offset, cmp_offset = 0, cmp_program = 0;
	uint32_t nr = 0;

	cr_assert_not_null(file, "%s is missing", path);
	while (fgets(line, sizeof(line), file)) {
		if (line[0] == '#' || sscanf(line, "%x %15s %31s", &offset, op, operand) < 2 || !strcmp(op, "nop"))
			continue;
		cr_assert_lt(nr, max);
		if (!strcmp(op, "cmp")) {
			cmp_offset = offset;
			cr_assert_eq(sscanf(operand, "program%u", &cmp_program), 1);
		} else if (!strcmp(op, "jg")) {
			nodes[nr++] = (struct listed){ .offset = cmp_offset, .program = cmp_program, .op = SHUNT_PLAN_OP_ABOVE,
						       .target = (unsigned int)strtoul(operand, NULL, 16) };
		} else if (!strcmp(op, "je")) {
			nodes[nr++] = (struct listed){ .offset = cmp_offset, .program = cmp_program, .op = SHUNT_PLAN_OP_EQUAL };
		} else {
			cr_assert_str_eq(op, "jmp");
			nodes[nr++] = (struct listed){ .offset = offset, .op = SHUNT_PLAN_OP_FALLBACK };
		}
	}
	fclose(file);
	return nr;
}

Test(plan, the_kernel_plan_for_16_is_the_published_tree_node_by_node)
{
	struct listed listed[128];
	uint32_t nr = read_listing(SHUNT_TEST_DATA "/kernel_tree_16.txt", listed, 128);
	uint64_t programs[16];
	struct shunt_plan plan;

	fill_programs(programs, 16);
	cr_assert_eq(shunt_plan_make(SHUNT_PLAN_KERNEL, programs, NULL, 16, &plan), 0);
	cr_assert_eq(plan.nodes[0].op, SHUNT_PLAN_OP_ANCHOR);
	cr_assert_eq(plan.nr_nodes, nr + 1);
	for (uint32_t i = 0; i < nr; i++) {
		const struct shunt_plan_node *node = &plan.nodes[i + 1];
		bool is_target = false;

		cr_assert_eq(node->op, listed[i].op, "node %u", i);
		if (node->op != SHUNT_PLAN_OP_FALLBACK)
			cr_assert_eq(node->program, listed[i].program, "node %u", i);
		if (node->op == SHUNT_PLAN_OP_ABOVE)
			cr_assert_eq(listed[node->node - 1].offset, listed[i].target, "node %u", i);
		for (uint32_t j = 0; j < nr; j++)
			is_target |= listed[j].op == SHUNT_PLAN_OP_ABOVE && listed[j].target == listed[i].offset;
		cr_assert_eq(node->align16, is_target, "node %u", i);
	}
	shunt_plan_fini(&plan);
}

Test(plan, unsorted_or_double_programs_and_unknown_kinds_are_refused)
{
	uint64_t descending[2] = { 128, 64 };
	uint64_t twice[2] = { 64, 64 };
	struct shunt_plan plan;

	cr_assert_eq(shunt_plan_make(SHUNT_PLAN_DEFAULT, descending, NULL, 2, &plan), -EINVAL);
	cr_assert_eq(shunt_plan_make(SHUNT_PLAN_DEFAULT, twice, NULL, 2, &plan), -EINVAL);
	cr_assert_eq(shunt_plan_make((enum shunt_plan_kind)77, twice, NULL, 0, &plan), -EINVAL);
	cr_assert_neq(strlen(shunt_error()), 0);
}

Test(plan, each_kind_has_a_name_of_its_own)
{
	for (size_t i = 0; i < NR_KINDS; i++)
		for (size_t j = 0; j < i; j++)
			cr_assert_str_neq(shunt_plan_name(kinds[i]), shunt_plan_name(kinds[j]));
	cr_assert_not_null(shunt_plan_name((enum shunt_plan_kind)77));
}
