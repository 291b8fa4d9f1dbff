/* SPDX-License-Identifier: MIT */
/*
 * Dispatch trees on arm64. The pointer is in x18; x16, x17 and the flags are all that may be changed.
 *
 *	without an anchor      adrp x16, program; add x16, x16, #lo12; cmp x18, x16
 *	with one, once         adrp x16, high; add x16, x16, #lo12; sub x16, x16, x18; ror x16, x16, #6
 *	      then a compare   cmp x16, #(high - program) / 64
 *
 * The anchor is the upper bound (the last program), so order is reversed there: "above" is "less".
 *
 * The rotation is for programs that are all 64-byte aligned. It divides by 64 so that most distances fit an imm12, and a pointer
 * between two chunks gets its low bits at the top: huge, so equal to no program. As it is one-to-one, no foreign pointer matches.
 * Where any program is not aligned the distance is compared in bytes.
 *
 * Order relative to an anchor is signed: exact for every distance that is compared, whichever form the compare takes. The top bits of a
 * rotated distance are 0 where the pointer is aligned, so pointers on either side of the bounds are further away than any program
 * then: outside_is_below holds without a word. Where compares are in bytes, pointers above the bounds go the way of the last program.
 */
#include "targets/arm64/tree.h"
#include "targets/arm64/encode.h"
#include "targets/tree.h"

#include <errno.h>

#define CHUNK_SHIFT 6
#define SUB_CMP_LIMIT (UINT64_C(1) << 24) /* 12 bits in the sub, 12 in the cmp */

static bool is_in_chunks(const struct shunt_tree *tree)
{
	const struct shunt_plan *plan = tree->plan;
	uint64_t bits = plan->bits | tree->high;

	for (uint32_t i = 0; i < plan->nr_programs; i++)
		bits |= plan->programs[i];
	return !(bits & ((1u << CHUNK_SHIFT) - 1));
}

static void emit_load_addr(struct shunt_code *code, enum arm64_reg to, uint64_t addr)
{
	/* Never the shorter adr: a length must not depend on where the tree lies. */
	arm64_adrp_reg_imm21(code, to, addr);
	arm64_add_reg_reg_imm12(code, to, to, addr & 0xfff);
}

/* The distance from the anchor as x16 has it. */
static uint64_t distance_of(const struct shunt_tree *tree, uint64_t addr)
{
	return tree->is_in_chunks ? (tree->high - addr) >> CHUNK_SHIFT : tree->high - addr;
}

static void emit_cmp_wide(struct shunt_code *code, uint64_t value)
{
	arm64_movz_reg_imm16(code, ARM64_X17, value & 0xffff, 0);
	arm64_movk_reg_imm16(code, ARM64_X17, value >> 16, 16);
	arm64_cmp_reg_reg(code, ARM64_X16, ARM64_X17);
}

/* Equality and signed order are exact. */
static void emit_compare(const struct shunt_tree *tree, struct shunt_code *code, uint32_t program)
{
	uint64_t value;

	if (!tree->is_anchored) {
		emit_load_addr(code, ARM64_X16, tree->plan->programs[program]);
		arm64_cmp_reg_reg(code, ARM64_X18, ARM64_X16);
		return;
	}
	value = distance_of(tree, tree->plan->programs[program]);
	if (arm64_is_imm12(value)) {
		arm64_cmp_reg_imm12(code, ARM64_X16, value);
	} else if (value < SUB_CMP_LIMIT) {
		arm64_sub_reg_reg_imm12(code, ARM64_X17, ARM64_X16, value & ~UINT64_C(0xfff));
		arm64_cmp_reg_imm12(code, ARM64_X17, value & 0xfff);
	} else {
		emit_cmp_wide(code, value);
	}
}

/* Unsigned order is exact: the subtraction of the form above would wrap for programs below it. */
static void emit_range(struct shunt_code *code, uint64_t span)
{
	if (arm64_is_imm12(span))
		arm64_cmp_reg_imm12(code, ARM64_X16, span);
	else
		emit_cmp_wide(code, span);
}

static void emit_node(struct shunt_tree *tree, struct shunt_code *code, uint32_t index)
{
	const struct shunt_plan *plan = tree->plan;
	const struct shunt_plan_node *node = &plan->nodes[index];

	switch (node->op) {
	case SHUNT_PLAN_OP_EQUAL:
		if (!shunt_tree_has_flags(tree, index))
			emit_compare(tree, code, node->program);
		/* A conditional branch reaches 1 MiB, b reaches 128. */
		arm64_bcond_imm19(code, ARM64_NE, shunt_code_here(code) + 8);
		arm64_b_imm26(code, shunt_tree_dest(tree, code, index));
		break;
	case SHUNT_PLAN_OP_ABOVE:
		emit_compare(tree, code, node->program);
		arm64_bcond_imm19(code, tree->is_anchored ? ARM64_LT : ARM64_HI, shunt_tree_addr(tree, code, node->node));
		break;
	case SHUNT_PLAN_OP_INSIDE:
		/* Without an anchor every pointer is let in. */
		if (tree->is_anchored) {
			emit_range(code, distance_of(tree, tree->low));
			arm64_bcond_imm19(code, ARM64_LS, shunt_tree_addr(tree, code, node->node));
		} else {
			arm64_b_imm26(code, shunt_tree_addr(tree, code, node->node));
		}
		break;
	case SHUNT_PLAN_OP_ANCHOR:
	case SHUNT_PLAN_OP_RANGE:
		if (!tree->is_anchored)
			break;
		if (index == 0) {
			emit_load_addr(code, ARM64_X16, tree->high);
			arm64_sub_reg_reg_reg(code, ARM64_X16, ARM64_X16, ARM64_X18);
			if (tree->is_in_chunks)
				arm64_ror_reg_reg_imm6(code, ARM64_X16, ARM64_X16, CHUNK_SHIFT);
		}
		if (node->op == SHUNT_PLAN_OP_RANGE) {
			emit_range(code, distance_of(tree, tree->low));
			arm64_bcond_imm19(code, ARM64_HI, shunt_tree_addr(tree, code, shunt_tree_next_fallback(tree, index)));
		}
		break;
	case SHUNT_PLAN_OP_FALLBACK:
		/* A `bti c` landing pad accepts an indirect jump only through x16 or x17. */
		arm64_mov_reg_reg(code, ARM64_X16, ARM64_X18);
		arm64_br_reg(code, ARM64_X16);
		break;
	case SHUNT_PLAN_OP_PART:
		/* A part may be further away than a conditional branch reaches. */
		arm64_b_imm26(code, plan->parts[node->program]);
		break;
	}
}

static void emit_nops(struct shunt_code *code, size_t len)
{
	for (; len >= 4; len -= 4)
		arm64_nop(code);
}

#define WORD 4u

static uint16_t compare_len(const struct shunt_tree *tree, uint32_t program)
{
	uint64_t value;

	if (!tree->is_anchored)
		return 3 * WORD;
	value = distance_of(tree, tree->plan->programs[program]);
	if (arm64_is_imm12(value))
		return WORD;
	return value < SUB_CMP_LIMIT ? 2 * WORD : 3 * WORD;
}

static uint16_t range_len(const struct shunt_tree *tree)
{
	return arm64_is_imm12(distance_of(tree, tree->low)) ? WORD : 3 * WORD;
}

/* No jump grows: one form of each reaches as far as any tree goes. */
static void measure_node(struct shunt_tree *tree, uint32_t index, struct shunt_tree_node *out)
{
	const struct shunt_plan *plan = tree->plan;
	const struct shunt_plan_node *node = &plan->nodes[index];

	switch (node->op) {
	case SHUNT_PLAN_OP_EQUAL:
		out->len = (uint16_t)((shunt_tree_has_flags(tree, index) ? 0 : compare_len(tree, node->program)) + 2 * WORD);
		break;
	case SHUNT_PLAN_OP_ABOVE:
		out->len = (uint16_t)(compare_len(tree, node->program) + WORD);
		break;
	case SHUNT_PLAN_OP_INSIDE:
		out->len = WORD;
		if (tree->is_anchored)
			out->len = (uint16_t)(range_len(tree) + WORD);
		break;
	case SHUNT_PLAN_OP_ANCHOR:
	case SHUNT_PLAN_OP_RANGE:
		out->len = 0;
		if (!tree->is_anchored)
			break;
		if (index == 0)
			out->len = (uint16_t)(3 * WORD + (tree->is_in_chunks ? WORD : 0));
		if (node->op == SHUNT_PLAN_OP_RANGE)
			out->len = (uint16_t)(out->len + range_len(tree) + WORD);
		break;
	case SHUNT_PLAN_OP_FALLBACK:
		out->len = 2 * WORD;
		break;
	case SHUNT_PLAN_OP_PART:
		out->len = WORD;
		break;
	}
}

static uint32_t count_len(const struct shunt_tree *tree)
{
	return (tree->plan->counts->row_bits ? 11 : 6) * WORD;
}

/* Two registers do for everything; an atomic addition would need a third, or a newer machine. */
static void emit_count(const struct shunt_tree *tree, struct shunt_code *code, uint32_t program, uint64_t literal)
{
	const struct shunt_plan_counts *counts = tree->plan->counts;
	uint64_t offset = (uint64_t)counts->words[program] * 8;

	if (counts->row_bits) {
		arm64_mrs_reg_tpidr(code, ARM64_X16);
		if (counts->number_offset < 0)
			arm64_movn_reg_imm16(code, ARM64_X17, ~(uint64_t)(int64_t)counts->number_offset);
		else
			arm64_movz_reg_imm16(code, ARM64_X17, (uint64_t)counts->number_offset, 0);
		arm64_ldr32_reg_reg_reg(code, ARM64_X16, ARM64_X16, ARM64_X17);
		arm64_and32_low_bits(code, ARM64_X16, ARM64_X16, counts->row_bits);
		arm64_ldr_reg_imm19(code, ARM64_X17, literal);
		arm64_add_reg_reg_reg_lsl(code, ARM64_X16, ARM64_X17, ARM64_X16, counts->row_shift);
	} else {
		arm64_ldr_reg_imm19(code, ARM64_X16, literal);
	}
	arm64_add_reg_reg_imm12(code, ARM64_X16, ARM64_X16, offset & ~UINT64_C(0xfff));
	arm64_ldr_reg_reg_imm12(code, ARM64_X17, ARM64_X16, offset & 0xfff);
	arm64_add_reg_reg_imm12(code, ARM64_X17, ARM64_X17, 1);
	arm64_str_reg_reg_imm12(code, ARM64_X17, ARM64_X16, offset & 0xfff);
	arm64_b_imm26(code, tree->plan->programs[program]);
}

static void measure(struct shunt_tree *tree)
{
	tree->is_in_chunks = tree->is_anchored && is_in_chunks(tree);
	for (uint32_t i = 0; i < tree->plan->nr_nodes; i++)
		measure_node(tree, i, &tree->nodes[i]);
}

static void emit(struct shunt_tree *tree, struct shunt_code *code)
{
	for (uint32_t i = 0; i < tree->plan->nr_nodes && !code->error; i++) {
		shunt_tree_begin_node(tree, code, i);
		emit_node(tree, code, i);
		shunt_tree_end_node(tree, code, i);
	}
}

static const struct shunt_tree_ops ops = { .max_span = UINT32_MAX, .measure = measure, .emit = emit, .emit_nops = emit_nops,
					   .count_len = count_len, .emit_count = emit_count };

int arm64_lay_out_tree(struct shunt_tree *tree, const struct shunt_plan *plan, enum shunt_fallback fallback, uint64_t addr)
{
	return addr % 4 ? -EINVAL : shunt_tree_lay_out(tree, plan, fallback, addr, &ops);
}

void arm64_emit_tree(struct shunt_code *code, const struct shunt_plan *plan, enum shunt_fallback fallback)
{
	if (shunt_code_here(code) % 4) {
		shunt_code_fail(code, EINVAL);
		return;
	}
	shunt_tree_emit(code, plan, fallback, &ops);
}
