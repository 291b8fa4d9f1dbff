/* SPDX-License-Identifier: MIT */
/*
 * Dispatch trees on x86-64. The pointer is in r10; r11 and the flags are all that may be changed.
 *
 *	without an anchor      lea r11, [rip + program]; cmp r10, r11
 *	with one, once         lea r11, [rip + high]; sub r11, r10
 *	      then a compare   cmp r11, high - program
 *
 * One scratch register cannot hold pointer - anchor in two instructions, but it can hold anchor - pointer. So order is reversed
 * there: "above" is "less". With the upper bound (the last program) as the anchor, every compared value is at least 0 and the range
 * check is one unsigned compare. Compares are of all 64 bits and the subtraction is one-to-one, so no foreign pointer matches.
 */
#include "targets/x86_64/tree.h"
#include "targets/tree.h"
#include "targets/x86_64/encode.h"

static inline void emit_jcc(struct shunt_code *code, enum x86_64_cond cond, uint64_t dest, bool is_long)
{
	if (is_long)
		x86_64_jcc_rel32(code, cond, dest);
	else
		x86_64_jcc_rel8(code, cond, dest);
}

static inline void emit_compare(const struct shunt_tree *tree, struct shunt_code *code, uint32_t program)
{
	if (tree->is_anchored) {
		x86_64_cmp_reg_imm(code, X86_64_R11, (int64_t)(tree->high - tree->plan->programs[program]));
		return;
	}
	x86_64_lea_reg_rip(code, X86_64_R11, tree->plan->programs[program]);
	x86_64_cmp_reg_reg(code, X86_64_R10, X86_64_R11);
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

/* A retpoline is long, so there are two: where pointers outside the programs come out, and in the last node for all others. */
static bool has_retpoline(const struct shunt_tree *tree, uint32_t node)
{
	return node == tree->plan->nr_nodes - 1 || node == tree->first_fallback;
}

static void emit_fallback(struct shunt_tree *tree, struct shunt_code *code, uint32_t node)
{
	uint32_t last = tree->plan->nr_nodes - 1;

	switch (tree->fallback) {
	case SHUNT_FALLBACK_RETPOLINE:
		if (!has_retpoline(tree, node))
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

static bool leads_to_part(const struct shunt_plan *plan, const struct shunt_plan_node *node)
{
	return plan->nodes[node->node].op == SHUNT_PLAN_OP_PART;
}

/* An ABOVE or INSIDE jumps to a part itself; nothing is emitted for a part that nothing else leads to. */
static bool is_passed_over(const struct shunt_tree *tree, uint32_t index)
{
	const struct shunt_plan_node *nodes = tree->plan->nodes;

	return index && tree->nodes[index].is_jumped_to &&
	       (nodes[index - 1].op == SHUNT_PLAN_OP_PART || nodes[index - 1].op == SHUNT_PLAN_OP_FALLBACK);
}

static enum x86_64_cond above_of(const struct shunt_tree *tree)
{
	/* Unsigned, high - pointer is more than any other value for pointers on either side of the bounds. */
	return !tree->is_anchored ? X86_64_A : tree->plan->outside_is_below ? X86_64_B : X86_64_L;
}

static void emit_node(struct shunt_tree *tree, struct shunt_code *code, uint32_t index)
{
	const struct shunt_plan *plan = tree->plan;
	const struct shunt_plan_node *node = &plan->nodes[index];

	switch (node->op) {
	case SHUNT_PLAN_OP_EQUAL:
		if (!shunt_tree_has_flags(tree, index))
			emit_compare(tree, code, node->program);
		x86_64_jcc_rel32(code, X86_64_E, shunt_tree_dest(tree, code, index));
		break;
	case SHUNT_PLAN_OP_ABOVE:
		emit_compare(tree, code, node->program);
		if (leads_to_part(plan, node))
			x86_64_jcc_rel32(code, above_of(tree), plan->parts[plan->nodes[node->node].program]);
		else
			emit_jcc(code, above_of(tree), shunt_tree_addr(tree, code, node->node), tree->nodes[index].is_long);
		break;
	case SHUNT_PLAN_OP_INSIDE:
		/* Without an anchor every pointer is let in. */
		if (tree->is_anchored)
			x86_64_cmp_reg_imm(code, X86_64_R11, (int64_t)(tree->high - tree->low));
		if (leads_to_part(plan, node) && tree->is_anchored)
			x86_64_jcc_rel32(code, X86_64_BE, plan->parts[plan->nodes[node->node].program]);
		else if (leads_to_part(plan, node))
			x86_64_jmp_rel32(code, plan->parts[plan->nodes[node->node].program]);
		else if (tree->is_anchored)
			emit_jcc(code, X86_64_BE, shunt_tree_addr(tree, code, node->node), tree->nodes[index].is_long);
		else
			emit_jmp_node(tree, code, index, node->node);
		break;
	case SHUNT_PLAN_OP_ANCHOR:
	case SHUNT_PLAN_OP_RANGE:
		if (!tree->is_anchored)
			break;
		if (index == 0) {
			x86_64_lea_reg_rip(code, X86_64_R11, tree->high);
			x86_64_sub_reg_reg(code, X86_64_R11, X86_64_R10);
		}
		if (node->op == SHUNT_PLAN_OP_RANGE) {
			x86_64_cmp_reg_imm(code, X86_64_R11, (int64_t)(tree->high - tree->low));
			emit_jcc(code, X86_64_A, shunt_tree_addr(tree, code, shunt_tree_next_fallback(tree, index)), tree->nodes[index].is_long);
		}
		break;
	case SHUNT_PLAN_OP_FALLBACK:
		emit_fallback(tree, code, index);
		break;
	case SHUNT_PLAN_OP_PART:
		if (!is_passed_over(tree, index))
			x86_64_jmp_rel32(code, plan->parts[node->program]);
		break;
	}
}

#define LEA_LEN 7u
#define SUB_LEN 3u
#define CMP_LEN 3u
#define CMP_IMM8_LEN 4u
#define CMP_IMM32_LEN 7u
#define JCC_LONG_LEN 6u
#define JMP_LONG_LEN 5u
#define SHORT_LEN 2u /* of either jump */
#define JCC_GROWTH 4u
#define JMP_GROWTH 3u
#define JMP_REG_LEN 4u /* and the int3 behind it */
#define LFENCE_LEN 3u
#define RETPOLINE_LEN 18u

static uint16_t cmp_imm_len(uint64_t value)
{
	return value <= INT8_MAX ? CMP_IMM8_LEN : CMP_IMM32_LEN;
}

static uint16_t compare_len(const struct shunt_tree *tree, uint32_t program)
{
	if (!tree->is_anchored)
		return LEA_LEN + CMP_LEN;
	return cmp_imm_len(tree->high - tree->plan->programs[program]);
}

static void measure_fallback(struct shunt_tree *tree, uint32_t index, struct shunt_tree_node *out)
{
	uint32_t last = tree->plan->nr_nodes - 1;

	if (tree->fallback == SHUNT_FALLBACK_RETPOLINE && !has_retpoline(tree, index)) {
		out->len = SHORT_LEN;
		shunt_tree_jumps(tree, index, last, JMP_GROWTH);
	} else if (tree->fallback == SHUNT_FALLBACK_RETPOLINE) {
		out->len = RETPOLINE_LEN;
	} else {
		out->len = (uint16_t)(JMP_REG_LEN + (tree->fallback == SHUNT_FALLBACK_LFENCE ? LFENCE_LEN : 0));
	}
}

static void measure_node(struct shunt_tree *tree, uint32_t index, struct shunt_tree_node *out)
{
	const struct shunt_plan *plan = tree->plan;
	const struct shunt_plan_node *node = &plan->nodes[index];

	switch (node->op) {
	case SHUNT_PLAN_OP_EQUAL:
		out->len = (uint16_t)((shunt_tree_has_flags(tree, index) ? 0 : compare_len(tree, node->program)) + JCC_LONG_LEN);
		break;
	case SHUNT_PLAN_OP_ABOVE:
		if (leads_to_part(plan, node)) {
			out->len = (uint16_t)(compare_len(tree, node->program) + JCC_LONG_LEN);
			break;
		}
		out->len = (uint16_t)(compare_len(tree, node->program) + SHORT_LEN);
		shunt_tree_jumps(tree, index, node->node, JCC_GROWTH);
		break;
	case SHUNT_PLAN_OP_INSIDE:
		out->len = tree->is_anchored ? cmp_imm_len(tree->high - tree->low) : 0;
		if (leads_to_part(plan, node)) {
			out->len = (uint16_t)(out->len + (tree->is_anchored ? JCC_LONG_LEN : JMP_LONG_LEN));
			break;
		}
		out->len = (uint16_t)(out->len + SHORT_LEN);
		shunt_tree_jumps(tree, index, node->node, tree->is_anchored ? JCC_GROWTH : JMP_GROWTH);
		break;
	case SHUNT_PLAN_OP_ANCHOR:
	case SHUNT_PLAN_OP_RANGE:
		out->len = 0;
		if (!tree->is_anchored)
			break;
		out->len = (uint16_t)(index == 0 ? LEA_LEN + SUB_LEN : 0);
		if (node->op == SHUNT_PLAN_OP_RANGE) {
			out->len = (uint16_t)(out->len + cmp_imm_len(tree->high - tree->low) + SHORT_LEN);
			shunt_tree_jumps(tree, index, shunt_tree_next_fallback(tree, index), JCC_GROWTH);
		}
		break;
	case SHUNT_PLAN_OP_FALLBACK:
		measure_fallback(tree, index, out);
		break;
	case SHUNT_PLAN_OP_PART:
		out->len = (uint16_t)(is_passed_over(tree, index) ? 0 : JMP_LONG_LEN);
		break;
	}
}

#define LOAD_FS_LEN 9u
#define AND_LEN 7u
#define SHL_LEN 4u
#define ADD_RIP_LEN 7u
#define INC_LEN 7u

static uint32_t count_len(const struct shunt_tree *tree)
{
	return (tree->plan->counts->row_bits ? LOAD_FS_LEN + AND_LEN + SHL_LEN : 0) + ADD_RIP_LEN + INC_LEN + JMP_LONG_LEN;
}

/* One instruction adds: what interrupts the thread finds the count before or after it. */
static void emit_count(const struct shunt_tree *tree, struct shunt_code *code, uint32_t program, uint64_t literal)
{
	const struct shunt_plan_counts *counts = tree->plan->counts;

	if (counts->row_bits) {
		x86_64_mov_reg32_fs(code, X86_64_R11, counts->number_offset);
		x86_64_and_reg32_imm32(code, X86_64_R11, (1u << counts->row_bits) - 1);
		x86_64_shl_reg_imm8(code, X86_64_R11, counts->row_shift);
		x86_64_add_reg_rip(code, X86_64_R11, literal);
	} else {
		x86_64_mov_reg_rip(code, X86_64_R11, literal);
	}
	x86_64_inc_mem_disp32(code, X86_64_R11, (int32_t)(counts->words[program] * 8));
	x86_64_jmp_rel32(code, tree->plan->programs[program]);
}

static void measure(struct shunt_tree *tree)
{
	bool is_plain = tree->is_anchored && !tree->reuses_flags;
	const uint64_t *programs = tree->plan->programs;
	uint64_t high = tree->high;

	/*
	 * A retpoline's return is mispredicted by design, so whoever comes through one fetches all that leads to it anew: it is in one cache
	 * line where pointers outside the programs come out (1.08 instead of 1.12 times a bare one). Not when it is all there is.
	 */
	if (tree->fallback == SHUNT_FALLBACK_RETPOLINE && tree->first_fallback) {
		tree->nodes[tree->first_fallback].align_mask = SHUNT_CACHE_LINE - 1;
		tree->nodes[tree->first_fallback].is_placed = true;
	}
	for (uint32_t i = 0; i < tree->plan->nr_nodes; i++) {
		const struct shunt_plan_node *node = &tree->plan->nodes[i];

		if (node->op == SHUNT_PLAN_OP_EQUAL && is_plain)
			tree->nodes[i].len = (uint16_t)(cmp_imm_len(high - programs[node->program]) + JCC_LONG_LEN);
		else
			measure_node(tree, i, &tree->nodes[i]);
	}
}

/*
 * An EQUAL or ABOVE as nearly all are: its length, or 0 for emit_node to do it. Behind one there is always another node, of which the last
 * bytes that this writes are.
 */
static inline size_t write_test(const struct shunt_tree *tree, uint32_t index, uint8_t *bytes, uint64_t start, enum x86_64_cond above)
{
	const struct shunt_plan *plan = tree->plan;
	const struct shunt_plan_node *node = &plan->nodes[index];
	const struct shunt_tree_node *out = &tree->nodes[index];
	int64_t distance = (int64_t)(tree->high - plan->programs[node->program]);

	if (node->op == SHUNT_PLAN_OP_EQUAL)
		return x86_64_write_cmp_jcc(bytes, start + out->offset, X86_64_R11, distance, X86_64_E, plan->programs[node->program], true);
	if (leads_to_part(plan, node))
		return 0;
	return x86_64_write_cmp_jcc(bytes, start + out->offset, X86_64_R11, distance, above, start + tree->nodes[node->node].offset, out->is_long);
}

static void emit(struct shunt_tree *tree, struct shunt_code *code)
{
	const struct shunt_plan_node *nodes = tree->plan->nodes;
	bool is_plain = tree->is_anchored && !tree->reuses_flags && !tree->plan->counts;
	uint8_t *bytes = code->bytes + tree->start;
	uint64_t start = code->addr + tree->start;
	enum x86_64_cond above = above_of(tree);
	uint32_t end = 0;

	for (uint32_t i = 0; i < tree->plan->nr_nodes; i++) {
		uint32_t offset = tree->nodes[i].offset, len = 0;

		code->len = tree->start + end;
		if (offset != end)
			x86_64_nops(code, offset - end);
		if (is_plain && nodes[i].op <= SHUNT_PLAN_OP_ABOVE && tree->len - offset >= 16)
			len = (uint32_t)write_test(tree, i, bytes + offset, start, above);
		else if (nodes[i].op == SHUNT_PLAN_OP_FALLBACK && tree->fallback == SHUNT_FALLBACK_JUMP)
			len = (uint32_t)x86_64_write_jmp_reg_int3(bytes + offset, X86_64_R10);
		if (!len) {
			emit_node(tree, code, i);
			len = (uint32_t)(code->len - tree->start) - offset;
		}
		end = offset + len;
		if (len != tree->nodes[i].len)
			shunt_code_fail(code, EINVAL);
		if (code->error)
			return;
	}
	code->len = tree->start + end;
}

static const struct shunt_tree_ops ops = { .max_span = INT32_MAX, .short_reach = INT8_MAX, .measure = measure, .emit = emit,
					   .emit_nops = x86_64_nops, .count_len = count_len, .emit_count = emit_count };

int x86_64_lay_out_tree(struct shunt_tree *tree, const struct shunt_plan *plan, enum shunt_fallback fallback, uint64_t addr)
{
	return shunt_tree_lay_out(tree, plan, fallback, addr, &ops);
}

void x86_64_emit_tree(struct shunt_code *code, const struct shunt_plan *plan, enum shunt_fallback fallback)
{
	shunt_tree_emit(code, plan, fallback, &ops);
}
