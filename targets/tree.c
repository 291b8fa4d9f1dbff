/* SPDX-License-Identifier: MIT */
/* Checking and laying out dispatch trees, for every target. See targets/tree.h. */
#include "targets/tree.h"

#include <stdlib.h>

/* But EQUAL and ABOVE. */
static bool is_valid_node(const struct shunt_plan *plan, uint32_t index)
{
	const struct shunt_plan_node *node = &plan->nodes[index];

	switch (node->op) {
	case SHUNT_PLAN_OP_INSIDE:
		return plan->nr_programs > 0 && plan->nodes[0].op == SHUNT_PLAN_OP_ANCHOR && node->node > index && node->node < plan->nr_nodes;
	case SHUNT_PLAN_OP_ANCHOR:
		return index == 0 && plan->nr_programs > 0 && !plan->is_part;
	case SHUNT_PLAN_OP_RANGE:
		return plan->nr_programs > 0 && !plan->is_part && (index == 0 || plan->nodes[0].op == SHUNT_PLAN_OP_ANCHOR);
	case SHUNT_PLAN_OP_FALLBACK:
		return true;
	case SHUNT_PLAN_OP_PART:
		return node->program < plan->nr_parts && !plan->is_part;
	default:
		return false;
	}
}

static bool are_valid_programs(const struct shunt_plan *plan)
{
	bool is_sorted = true;

	for (uint32_t i = 1; i < plan->nr_programs; i++)
		is_sorted &= plan->programs[i - 1] < plan->programs[i];
	/* Bounds are around all programs. */
	return is_sorted && ((!plan->low && !plan->high) || !plan->nr_programs ||
			     (plan->low <= plan->programs[0] && plan->high >= plan->programs[plan->nr_programs - 1]));
}

/* The nodes as the plan has them; false when it breaks the rules. Nearly all are compares. */
static bool take_nodes(struct shunt_tree *tree)
{
	const struct shunt_plan *plan = tree->plan;
	const struct shunt_plan_node *nodes = plan->nodes;
	struct shunt_tree_node *out = tree->nodes;
	uint32_t nr_nodes = plan->nr_nodes, nr_programs = plan->nr_programs;

	for (uint32_t i = 0; i < nr_nodes; i++) {
		enum shunt_plan_op op = nodes[i].op;
		bool is_valid;

		out[i].align_mask = nodes[i].align16 ? 15 : 0;
		out[i].is_placed = nodes[i].align16 | nodes[i].one_line;
		if (op == SHUNT_PLAN_OP_EQUAL)
			is_valid = nodes[i].program < nr_programs;
		else if (op == SHUNT_PLAN_OP_ABOVE)
			is_valid = nodes[i].program < nr_programs && nodes[i].node > i && nodes[i].node < nr_nodes;
		else
			is_valid = is_valid_node(plan, i);
		if (!is_valid)
			return false;
		if (op == SHUNT_PLAN_OP_ABOVE || op == SHUNT_PLAN_OP_INSIDE)
			out[nodes[i].node].is_jumped_to = true;
	}
	return nodes[nr_nodes - 1].op == SHUNT_PLAN_OP_FALLBACK && are_valid_programs(plan);
}

/* What a pointer runs through that takes no jump at this node and behind it, until it leaves; more than a line is not told apart. */
static uint32_t run_len(const struct shunt_tree *tree, uint32_t node)
{
	uint32_t len = 0;

	for (;; node++) {
		len += tree->nodes[node].len;
		if (len > SHUNT_CACHE_LINE || tree->plan->nodes[node].op == SHUNT_PLAN_OP_FALLBACK || tree->plan->nodes[node].op == SHUNT_PLAN_OP_PART)
			return len;
	}
}

static uint32_t padding_of(const struct shunt_tree *tree, uint32_t node, uint64_t addr)
{
	uint32_t padding = (uint32_t)-addr & tree->nodes[node].align_mask;
	uint32_t left, len;

	if (!tree->plan->nodes[node].one_line)
		return padding;
	left = SHUNT_CACHE_LINE - ((uint32_t)(addr + padding) & (SHUNT_CACHE_LINE - 1));
	len = run_len(tree, node);
	return padding + (len > left && len <= SHUNT_CACHE_LINE ? left : 0);
}

/* Adds lengths and padding up; returns the tree's length. */
static uint32_t place_nodes(struct shunt_tree *tree, uint64_t addr)
{
	struct shunt_tree_node *nodes = tree->nodes, *end = nodes + tree->plan->nr_nodes;
	uint32_t offset = 0;

	for (struct shunt_tree_node *node = nodes; node < end; node++) {
		if (node->is_placed)
			offset += padding_of(tree, (uint32_t)(node - nodes), addr + offset);
		node->offset = offset;
		offset += node->len;
	}
	return offset;
}

/* Makes jumps that do not reach long; false when there were none. */
static bool grow_jumps(struct shunt_tree *tree, int64_t reach)
{
	struct shunt_tree_node *nodes = tree->nodes;
	uint32_t *jumps = tree->jumps;
	uint32_t nr_short = 0;

	for (uint32_t i = 0; i < tree->nr_jumps; i++) {
		struct shunt_tree_node *node = &nodes[jumps[i]];

		if ((int64_t)nodes[node->to].offset - (node->offset + node->len) <= reach) {
			jumps[nr_short++] = jumps[i];
			continue;
		}
		node->is_long = true;
		node->len = (uint16_t)(node->len + node->growth);
	}
	if (nr_short == tree->nr_jumps)
		return false;
	tree->nr_jumps = nr_short;
	return true;
}

/* What EQUALs jump to lies behind the nodes, so that what does not match goes on as if nothing were counted. */
static void place_counts(struct shunt_tree *tree, uint64_t addr)
{
	uint32_t nr = 0;

	for (uint32_t i = 0; i < tree->plan->nr_nodes; i++)
		if (tree->plan->nodes[i].op == SHUNT_PLAN_OP_EQUAL)
			tree->nodes[i].to = nr++;
	tree->counts_offset = tree->len + ((uint32_t)-(addr + tree->len) & 7);
	tree->literal_offset = tree->counts_offset + nr * tree->ops->count_len(tree);
	tree->literal_offset += (uint32_t)-(addr + tree->literal_offset) & 7;
	tree->len = tree->literal_offset + 8;
}

static void emit_counts(const struct shunt_tree *tree, struct shunt_code *code)
{
	uint64_t literal = code->addr + tree->start + tree->literal_offset;

	tree->ops->emit_nops(code, tree->start + tree->counts_offset - code->len);
	for (uint32_t i = 0; i < tree->plan->nr_nodes && !code->error; i++)
		if (tree->plan->nodes[i].op == SHUNT_PLAN_OP_EQUAL)
			tree->ops->emit_count(tree, code, tree->plan->nodes[i].program, literal);
	if (code->error)
		return;
	tree->ops->emit_nops(code, tree->start + tree->literal_offset - code->len);
	shunt_code_emit64(code, tree->plan->counts->rows);
	if (code->len - tree->start != tree->len)
		shunt_code_fail(code, EINVAL);
}

static bool are_valid_counts(const struct shunt_plan *plan)
{
	const struct shunt_plan_counts *counts = plan->counts;
	bool fit = !counts || (counts->rows % 8 == 0 && counts->row_bits <= 16 && counts->row_shift >= 3 && counts->row_shift < 32);

	for (uint32_t i = 0; counts && fit && i < plan->nr_programs; i++)
		fit = counts->words[i] < SHUNT_TREE_WORDS_MAX;
	return fit;
}

int shunt_tree_lay_out(struct shunt_tree *tree, const struct shunt_plan *plan, enum shunt_fallback fallback, uint64_t addr,
		       const struct shunt_tree_ops *ops)
{
	*tree = (struct shunt_tree){ .plan = plan, .fallback = fallback, .ops = ops, .reuses_flags = !plan->is_literal,
				     .low = plan->low, .high = plan->high };
	if (!plan->nr_nodes)
		return -EINVAL;
	tree->nodes = calloc(plan->nr_nodes, sizeof(*tree->nodes) + sizeof(*tree->jumps));
	if (!tree->nodes)
		return -ENOMEM;
	tree->jumps = (uint32_t *)(tree->nodes + plan->nr_nodes);
	if (!take_nodes(tree) || !are_valid_counts(plan)) {
		shunt_tree_fini(tree);
		return -EINVAL;
	}
	if (plan->nr_programs && !plan->low && !plan->high) {
		tree->low = plan->programs[0];
		tree->high = plan->programs[plan->nr_programs - 1];
	}
	if (plan->is_part || plan->nodes[0].op == SHUNT_PLAN_OP_ANCHOR || plan->nodes[0].op == SHUNT_PLAN_OP_RANGE)
		tree->is_anchored = tree->high - tree->low <= ops->max_span;
	while (plan->nodes[tree->first_fallback].op != SHUNT_PLAN_OP_FALLBACK)
		tree->first_fallback++;
	ops->measure(tree);
	do
		tree->len = place_nodes(tree, addr);
	while (grow_jumps(tree, ops->short_reach));
	if (plan->counts)
		place_counts(tree, addr);
	return 0;
}

void shunt_tree_emit_laid_out(struct shunt_tree *tree, struct shunt_code *code)
{
	tree->start = code->len;
	if (!code->bytes)
		code->len += tree->len;
	else if (code->capacity < code->len || code->capacity - code->len < tree->len)
		shunt_code_fail(code, ENOSPC);
	else
		tree->ops->emit(tree, code);
	if (code->bytes && !code->error && tree->plan->counts)
		emit_counts(tree, code);
}

void shunt_tree_fini(struct shunt_tree *tree)
{
	free(tree->nodes);
	tree->nodes = NULL;
}

void shunt_tree_emit(struct shunt_code *code, const struct shunt_plan *plan, enum shunt_fallback fallback,
		     const struct shunt_tree_ops *ops)
{
	struct shunt_tree tree;
	int err = shunt_tree_lay_out(&tree, plan, fallback, shunt_code_here(code), ops);

	if (err) {
		shunt_code_fail(code, err);
		return;
	}
	shunt_tree_emit_laid_out(&tree, code);
	shunt_tree_fini(&tree);
}
