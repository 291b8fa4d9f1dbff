/* SPDX-License-Identifier: MIT */
/* arm64 trees walked by an interpreter: every program is reached directly, every other pointer by the fallback. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "arm64_walk.h"
#include "plans.h"
#include "shapes.h"
#include "targets/target.h"

#define TREE_ADDR UINT64_C(0xffff80000010)
#define TREE_MAX (UINT64_C(1) << 20)

struct tree {
	uint8_t *bytes;
	size_t len;
	uint64_t addr, head; /* head: where it is entered */
	const struct shunt_plan *plan;
	bool is_graph;
};

static void emit_tree(struct tree *tree, const struct shunt_plan *plan)
{
	struct shunt_code measure, code;

	shunt_code_init(&measure, NULL, 0, tree->addr);
	shunt_target_arm64.emit_tree(&measure, plan, SHUNT_FALLBACK_JUMP);
	shunt_code_init(&code, tree->bytes, TREE_MAX, tree->addr);
	shunt_target_arm64.emit_tree(&code, plan, SHUNT_FALLBACK_JUMP);
	cr_assert_eq(code.error, 0, "%d", code.error);
	cr_assert_eq(measure.error, 0);
	cr_assert_eq(measure.len, code.len);
	tree->len = code.len;
	tree->head = tree->addr;
	tree->plan = plan;
	/* Any address will do to measure, as long as it is as aligned. */
	shunt_code_init(&measure, NULL, 0, tree->addr % 64);
	shunt_target_arm64.emit_tree(&measure, plan, SHUNT_FALLBACK_JUMP);
	cr_assert_eq(measure.len, code.len);
}

static void check_pointer(void *context, uint64_t pointer, bool is_program)
{
	const struct tree *tree = context;
	struct arm64_walk walk = { .pc = tree->head };

	for (unsigned i = 0; i < 31; i++)
		walk.x[i] = 0x1111111111111111u * (i % 16);
	walk.x[18] = pointer;
	if (pointer - tree->addr < tree->len)
		return; /* a walk could not tell that it has left */
	arm64_walk(&walk, tree->bytes, tree->len, tree->addr);
	cr_assert_null(walk.error, "%s", walk.error);
	cr_assert_eq(walk.pc, pointer, "%#lx led to %#lx", (unsigned long)pointer, (unsigned long)walk.pc);
	cr_assert_eq(walk.was_indirect, !shape_finds(tree->plan, pointer), "%#lx", (unsigned long)pointer);
	cr_assert(walk.was_indirect == !is_program || tree->is_graph, "%#lx", (unsigned long)pointer);
	for (unsigned i = 0; i < 31; i++)
		if (i != 16 && i != 17 && i != 18)
			cr_assert_eq(walk.x[i], 0x1111111111111111u * (i % 16), "x%u was clobbered", i);
	cr_assert_eq(walk.x[18], pointer);
}

static void check_random_trees(uint64_t seed, unsigned nr_trees, uint32_t max_programs, uint64_t span, uint64_t align)
{
	struct tree tree = { .bytes = malloc(TREE_MAX), .addr = TREE_ADDR };
	uint64_t *programs = malloc((max_programs + 1) * sizeof(*programs));

	for (unsigned i = 0; i < nr_trees; i++) {
		uint32_t nr = (uint32_t)(shape_random(&seed) % (max_programs + 1));
		struct shape shape = shape_any(&seed);
		struct shunt_plan plan;

		if (nr > 300 && !shape.leaf_max)
			shape.leaf_max = 4;
		/* Below or above the tree, never over it. */
		shape_programs(&seed, i & 1 ? TREE_ADDR - span - 4096 - TREE_ADDR % 4096 : TREE_ADDR - TREE_ADDR % 4096 + TREE_MAX,
			       span, align, programs, nr);
		shape_plan(shape, programs, nr, &plan);
		emit_tree(&tree, &plan);
		tree.is_graph = shape.is_graph;
		shape_for_each_pointer(programs, nr, &seed, check_pointer, &tree);
		free((void *)plan.nodes);
	}
	free(programs);
	free(tree.bytes);
}

Test(arm64_trees, lead_every_program_and_nothing_else_to_itself)
{
	check_random_trees(1, 400, 64, UINT64_C(1) << 20, 64);
}

Test(arm64_trees, tell_programs_apart_over_the_whole_arena)
{
	check_random_trees(2, 300, 64, UINT64_C(120) << 20, 64);
}

Test(arm64_trees, tell_programs_apart_that_are_not_aligned_to_chunks)
{
	check_random_trees(3, 200, 64, UINT64_C(120) << 20, 4);
	check_random_trees(4, 200, 64, 1024, 4);
}

Test(arm64_trees, hold_thousands_of_programs)
{
	check_random_trees(5, 6, 4096, UINT64_C(64) << 20, 64);
	check_random_trees(6, 2, 4096, UINT64_C(64) << 20, 4);
}

static void check_runtime_plan(void *context, const struct shunt_plan *plan, uint64_t *state)
{
	struct tree *tree = context;

	emit_tree(tree, plan);
	tree->is_graph = false;
	shape_for_each_pointer(plan->programs, plan->nr_programs, state, check_pointer, tree);
}

Test(arm64_trees, of_every_plan_of_the_runtime_lead_every_program_and_nothing_else_to_itself)
{
	struct tree tree = { .bytes = malloc(TREE_MAX), .addr = TREE_ADDR };

	plans_for_each(31, 40, TREE_ADDR - TREE_ADDR % 4096 + TREE_MAX, UINT64_C(64) << 20, 64, check_runtime_plan, &tree);
	plans_for_each(32, 20, TREE_ADDR - TREE_ADDR % 4096 + TREE_MAX, UINT64_C(1) << 15, 4, check_runtime_plan, &tree);
	free(tree.bytes);
}

Test(arm64_trees, in_parts_lead_every_program_and_nothing_else_to_itself)
{
	static const struct { uint64_t span, align; } sets[] = { { UINT64_C(64) << 20, 64 }, { 1 << 20, 64 }, { 1 << 17, 4 }, { UINT64_C(64) << 20, 4 } };
	struct tree tree = { .bytes = malloc(TREE_MAX), .addr = TREE_ADDR & ~UINT64_C(63) };
	uint64_t *programs = malloc(PLANS_MAX * sizeof(*programs));
	uint64_t seed = 41;

	for (unsigned i = 0; i < 40; i++) {
		uint32_t nr = 1 + (uint32_t)(shape_random(&seed) % (i % 8 ? 600 : PLANS_MAX));
		struct shunt_code code;
		struct shunt_plan whole;

		shape_programs(&seed, TREE_ADDR - TREE_ADDR % 4096 + TREE_MAX, sets[i % 4].span, sets[i % 4].align, programs, nr);
		shunt_code_init(&code, tree.bytes, TREE_MAX, tree.addr);
		tree.head = plans_emit_in_parts(&shunt_target_arm64, programs, nr, SHUNT_FALLBACK_JUMP, &seed, &code, &whole);
		tree.len = code.len;
		tree.plan = &whole;
		shape_for_each_pointer(programs, nr, &seed, check_pointer, &tree);
		free((void *)whole.nodes);
	}
	free(programs);
	free(tree.bytes);
}

Test(arm64_trees, with_counts_count_each_program_in_the_row_of_the_thread_s_number)
{
	enum { ROWS = 8, ROW_SHIFT = 16 };
	uint64_t *rows = calloc(ROWS, 1 << ROW_SHIFT);
	struct tree tree = { .bytes = malloc(TREE_MAX), .addr = TREE_ADDR & ~UINT64_C(63) };
	struct { uint32_t before[20]; uint32_t number; uint32_t after[20]; } thread;
	uint64_t programs[300];
	uint32_t words[300];
	uint64_t seed = 51;

	for (unsigned i = 0; i < 60; i++) {
		uint32_t nr = 1 + (uint32_t)(shape_random(&seed) % 300);
		bool is_below = i % 2; /* of the thread pointer */
		struct shunt_plan_counts counts = { .rows = (uint64_t)(uintptr_t)rows, .row_shift = ROW_SHIFT, .row_bits = i % 3 ? 3 : 0, .words = words };
		struct shunt_plan plan;
		struct shunt_code code, measure;

		memset(rows, 0, ROWS << ROW_SHIFT);
		memset(&thread, 0xff, sizeof(thread));
		counts.number_offset = is_below ? (int32_t)(offsetof(typeof(thread), number) - sizeof(thread)) : (int32_t)offsetof(typeof(thread), number);
		shape_programs(&seed, TREE_ADDR - TREE_ADDR % 4096 + TREE_MAX, UINT64_C(32) << 20, i % 4 ? 64 : 4, programs, nr);
		for (uint32_t k = 0; k < nr; k++)
			words[k] = k * 27;
		shape_plan((struct shape){ .head = SHUNT_PLAN_OP_ANCHOR, .leaf_max = 1 + i % 3, .align16 = i % 2 }, programs, nr, &plan);
		plan.counts = &counts;
		shunt_code_init(&code, tree.bytes, TREE_MAX, tree.addr);
		shunt_target_arm64.emit_tree(&code, &plan, SHUNT_FALLBACK_JUMP);
		cr_assert_eq(code.error, 0, "%d", code.error);
		shunt_code_init(&measure, NULL, 0, 0);
		shunt_target_arm64.emit_tree(&measure, &plan, SHUNT_FALLBACK_JUMP);
		cr_assert_eq(measure.len, code.len);
		for (uint32_t k = 0; k < nr; k++) {
			uint32_t row = counts.row_bits ? k % ROWS : 0;
			struct arm64_walk walk = { .pc = tree.addr, .tp = (uint64_t)(uintptr_t)&thread + (is_below ? sizeof(thread) : 0) };

			/* Numbers beyond the rows, and that of a thread that has none, are some row's too. */
			thread.number = k % 5 ? row : row + ROWS * 1000;
			walk.x[18] = programs[k];
			arm64_walk(&walk, tree.bytes, code.len, tree.addr);
			cr_assert_null(walk.error, "%s", walk.error);
			cr_assert_eq(walk.pc, programs[k]);
			cr_assert_not(walk.was_indirect);
			cr_assert_eq(rows[((size_t)row << ROW_SHIFT) / 8 + words[k]], 1, "program %u of %u", k, nr);
			rows[((size_t)row << ROW_SHIFT) / 8 + words[k]] = 0;
		}
		for (size_t k = 0; k < ((size_t)ROWS << ROW_SHIFT) / 8; k++)
			cr_assert_eq(rows[k], 0, "word %zu was counted in", k);
		free((void *)plan.nodes);
	}
	free(rows);
	free(tree.bytes);
}

Test(arm64_trees, compare_with_12_bytes_within_4096_chunks_and_16_beyond)
{
	static const struct { uint64_t chunk; size_t len; } cases[] = {
		{ 1, 12 }, { 4095, 12 }, { 4096, 12 }, { 4097, 16 }, { 0xffff, 16 }, { 0x10001, 16 }, { 0xff000, 12 }, { 0xfffff, 16 },
	};
	const struct shunt_plan_node two[] = { { .op = SHUNT_PLAN_OP_ANCHOR }, { .op = SHUNT_PLAN_OP_EQUAL },
					       { .op = SHUNT_PLAN_OP_FALLBACK } };
	const struct shunt_plan_node none[] = { { .op = SHUNT_PLAN_OP_ANCHOR }, { .op = SHUNT_PLAN_OP_FALLBACK } };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const uint64_t programs[] = { 0x10000000, 0x10000000 + cases[i].chunk * 64 };
		struct shunt_plan plan = { .programs = programs, .nr_programs = 2, .nodes = two, .nr_nodes = 3 };
		struct shunt_code with, without;

		shunt_code_init(&with, NULL, 0, 0x10000000);
		shunt_target_arm64.emit_tree(&with, &plan, SHUNT_FALLBACK_JUMP);
		plan.nodes = none;
		plan.nr_nodes = 2;
		shunt_code_init(&without, NULL, 0, 0x10000000);
		shunt_target_arm64.emit_tree(&without, &plan, SHUNT_FALLBACK_JUMP);
		cr_expect_eq(with.error, 0);
		cr_expect_eq(with.len - without.len, cases[i].len, "chunk %#lx: %zu", (unsigned long)cases[i].chunk,
			     with.len - without.len);
	}
}

Test(arm64_trees, refuse_a_program_out_of_reach_and_one_that_is_no_code_address)
{
	const struct shunt_plan_node nodes[] = { { .op = SHUNT_PLAN_OP_EQUAL }, { .op = SHUNT_PLAN_OP_FALLBACK } };
	const uint64_t branch = TREE_ADDR + 16; /* adrp, add, cmp, b.ne stand before */
	const struct { uint64_t program; int error; } cases[] = {
		{ branch + (UINT64_C(1) << 27) - 4, 0 },  { branch + (UINT64_C(1) << 27), -ERANGE },
		{ branch - (UINT64_C(1) << 27), 0 },      { branch - (UINT64_C(1) << 27) - 4, -ERANGE },
		{ branch + (UINT64_C(1) << 40), -ERANGE }, { branch + 2, -EINVAL },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct shunt_plan plan = { .programs = &cases[i].program, .nr_programs = 1, .nodes = nodes, .nr_nodes = 2 };
		uint8_t bytes[64];
		struct shunt_code code;

		shunt_code_init(&code, bytes, sizeof(bytes), TREE_ADDR);
		shunt_target_arm64.emit_tree(&code, &plan, SHUNT_FALLBACK_JUMP);
		cr_expect_eq(code.error, cases[i].error, "case %zu: %d", i, code.error);
	}
}
