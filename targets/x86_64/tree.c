/* SPDX-License-Identifier: MIT */
/*
 * Dispatch trees on x86-64. The pointer is in r10; r11 and the flags are all that may be changed.
 *
 *	without an anchor      lea r11, [rip + program]; cmp r10, r11
 *	with one, once         lea r11, [rip + last program]; sub r11, r10
 *	      then a compare   cmp r11, last - program
 *
 * One scratch register cannot hold pointer - anchor in two instructions, but it can hold anchor - pointer. So order is reversed
 * there: "above" is "less". With the last program as the anchor, every compared value is at least 0 and the range check
 * is one unsigned compare. Compares are of all 64 bits and the subtraction is one-to-one, so no foreign pointer matches.
 */
#include "targets/x86_64/tree.h"
#include "targets/tree.h"
#include "targets/x86_64/encode.h"

static uint64_t last_program(const struct shunt_plan *plan)
{
	return plan->programs[plan->nr_programs - 1];
}

static void emit_cmp_imm(struct shunt_code *code, uint64_t value)
{
	if (value <= INT8_MAX)
		x86_64_cmp_reg_imm8(code, X86_64_R11, (int64_t)value);
	else
		x86_64_cmp_reg_imm32(code, X86_64_R11, (int64_t)value);
}

static void emit_compare(const struct shunt_tree *tree, struct shunt_code *code, uint32_t program)
{
	if (tree->is_anchored) {
		emit_cmp_imm(code, last_program(tree->plan) - tree->plan->programs[program]);
	} else {
		x86_64_lea_reg_rip(code, X86_64_R11, tree->plan->programs[program]);
		x86_64_cmp_reg_reg(code, X86_64_R10, X86_64_R11);
	}
}

static void emit_jcc_node(struct shunt_tree *tree, struct shunt_code *code, enum x86_64_cond cond, uint32_t node, uint32_t to)
{
	if (tree->nodes[node].is_long)
		x86_64_jcc_rel32(code, cond, shunt_tree_addr(tree, code, to));
	else
		x86_64_jcc_rel8(code, cond, shunt_tree_addr(tree, code, to));
}

static void emit_jmp_node(struct shunt_tree *tree, struct shunt_code *code, uint32_t node, uint32_t to)
{
	if (tree->nodes[node].is_long)
		x86_64_jmp_rel32(code, shunt_tree_addr(tree, code, to));
	else
		x86_64_jmp_rel8(code, shunt_tree_addr(tree, code, to));
}

/*
 * The return is predicted to the loop behind the call, which holds speculation until the real target is known. A return that its call
 * does not match is what a shadow stack exists to refuse, so this is not for processes that run with one.
 */
static void emit_retpoline(struct shunt_code *code)
{
	uint64_t loop = shunt_code_here(code) + 5;
	uint64_t replace = loop + 7;

	x86_64_call_rel32(code, replace);
	x86_64_pause(code);
	x86_64_lfence(code);
	x86_64_jmp_rel8(code, loop);
	x86_64_mov_rsp_reg(code, X86_64_R10);
	x86_64_ret(code);
	x86_64_int3(code);
}

static void emit_fallback(struct shunt_tree *tree, struct shunt_code *code, uint32_t node)
{
	uint32_t last = tree->plan->nr_nodes - 1;

	switch (tree->fallback) {
	case SHUNT_FALLBACK_RETPOLINE:
		/* Long, so there is one, in the last node. */
		if (node != last)
			emit_jmp_node(tree, code, node, last);
		else
			emit_retpoline(code);
		return;
	case SHUNT_FALLBACK_LFENCE:
		x86_64_lfence(code);
		break;
	case SHUNT_FALLBACK_JUMP:
		break;
	}
	x86_64_jmp_reg(code, X86_64_R10);
	x86_64_int3(code); /* stops straight-line speculation behind the jump */
}

static void emit_node(struct shunt_tree *tree, struct shunt_code *code, uint32_t index)
{
	const struct shunt_plan *plan = tree->plan;
	const struct shunt_plan_node *node = &plan->nodes[index];

	switch (node->op) {
	case SHUNT_PLAN_OP_EQUAL:
		if (!shunt_tree_has_flags(tree, index))
			emit_compare(tree, code, node->program);
		x86_64_jcc_rel32(code, X86_64_E, plan->programs[node->program]);
		break;
	case SHUNT_PLAN_OP_ABOVE:
		emit_compare(tree, code, node->program);
		emit_jcc_node(tree, code, tree->is_anchored ? X86_64_L : X86_64_A, index, node->node);
		break;
	case SHUNT_PLAN_OP_ANCHOR:
	case SHUNT_PLAN_OP_RANGE:
		if (!tree->is_anchored)
			break;
		if (index == 0) {
			x86_64_lea_reg_rip(code, X86_64_R11, last_program(plan));
			x86_64_sub_reg_reg(code, X86_64_R11, X86_64_R10);
		}
		if (node->op == SHUNT_PLAN_OP_RANGE) {
			emit_cmp_imm(code, last_program(plan) - plan->programs[0]);
			emit_jcc_node(tree, code, X86_64_A, index, shunt_tree_next_fallback(tree, index));
		}
		break;
	case SHUNT_PLAN_OP_FALLBACK:
		emit_fallback(tree, code, index);
		break;
	}
}

#define LEA_LEN 7u
#define SUB_LEN 3u
#define CMP_LEN 3u
#define CMP_IMM8_LEN 4u
#define CMP_IMM32_LEN 7u
#define JCC_LONG_LEN 6u
#define SHORT_LEN 2u /* of either jump */
#define JCC_GROWTH 4u
#define JMP_GROWTH 3u
#define JMP_REG_LEN 4u /* and the int3 behind it */
#define LFENCE_LEN 3u
#define RETPOLINE_LEN 18u

static uint32_t cmp_imm_len(uint64_t value)
{
	return value <= INT8_MAX ? CMP_IMM8_LEN : CMP_IMM32_LEN;
}

static uint32_t compare_len(const struct shunt_tree *tree, uint32_t program)
{
	if (!tree->is_anchored)
		return LEA_LEN + CMP_LEN;
	return cmp_imm_len(last_program(tree->plan) - tree->plan->programs[program]);
}

static void measure_fallback(const struct shunt_tree *tree, uint32_t index, struct shunt_tree_node *out)
{
	uint32_t last = tree->plan->nr_nodes - 1;

	if (tree->fallback == SHUNT_FALLBACK_RETPOLINE && index != last) {
		out->len = SHORT_LEN;
		out->to = last;
		out->growth = JMP_GROWTH;
	} else if (tree->fallback == SHUNT_FALLBACK_RETPOLINE) {
		out->len = RETPOLINE_LEN;
	} else {
		out->len = JMP_REG_LEN + (tree->fallback == SHUNT_FALLBACK_LFENCE ? LFENCE_LEN : 0);
	}
}

static void measure_node(const struct shunt_tree *tree, uint32_t index, struct shunt_tree_node *out)
{
	const struct shunt_plan *plan = tree->plan;
	const struct shunt_plan_node *node = &plan->nodes[index];

	switch (node->op) {
	case SHUNT_PLAN_OP_EQUAL:
		out->len = (shunt_tree_has_flags(tree, index) ? 0 : compare_len(tree, node->program)) + JCC_LONG_LEN;
		break;
	case SHUNT_PLAN_OP_ABOVE:
		out->len = compare_len(tree, node->program) + SHORT_LEN;
		out->to = node->node;
		out->growth = JCC_GROWTH;
		break;
	case SHUNT_PLAN_OP_ANCHOR:
	case SHUNT_PLAN_OP_RANGE:
		out->len = 0;
		if (!tree->is_anchored)
			break;
		out->len = index == 0 ? LEA_LEN + SUB_LEN : 0;
		if (node->op == SHUNT_PLAN_OP_RANGE) {
			out->len += cmp_imm_len(last_program(plan) - plan->programs[0]) + SHORT_LEN;
			out->to = shunt_tree_next_fallback(tree, index);
			out->growth = JCC_GROWTH;
		}
		break;
	case SHUNT_PLAN_OP_FALLBACK:
		measure_fallback(tree, index, out);
		break;
	}
}

void x86_64_emit_tree(struct shunt_code *code, const struct shunt_plan *plan, enum shunt_fallback fallback)
{
	static const struct shunt_tree_ops ops = { .max_span = INT32_MAX, .short_reach = INT8_MAX, .measure_node = measure_node,
						   .emit_node = emit_node, .emit_nops = x86_64_nops };

	shunt_tree_emit(code, plan, fallback, &ops);
}
