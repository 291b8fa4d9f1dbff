/* SPDX-License-Identifier: MIT */
/* Checking and laying out dispatch trees, for every target. See targets/tree.h. */
#include "targets/tree.h"

#include <errno.h>
#include <stdlib.h>

static bool is_valid_node(const struct shunt_plan *plan, uint32_t index)
{
	const struct shunt_plan_node *node = &plan->nodes[index];

	switch (node->op) {
	case SHUNT_PLAN_OP_EQUAL:
		return node->program < plan->nr_programs;
	case SHUNT_PLAN_OP_ABOVE:
		return node->program < plan->nr_programs && node->node > index && node->node < plan->nr_nodes;
	case SHUNT_PLAN_OP_ANCHOR:
		return index == 0 && plan->nr_programs > 0;
	case SHUNT_PLAN_OP_RANGE:
		return plan->nr_programs > 0 && (index == 0 || plan->nodes[0].op == SHUNT_PLAN_OP_ANCHOR);
	case SHUNT_PLAN_OP_FALLBACK:
		return true;
	}
	return false;
}

static bool is_valid(const struct shunt_plan *plan)
{
	if (!plan->nr_nodes || plan->nodes[plan->nr_nodes - 1].op != SHUNT_PLAN_OP_FALLBACK)
		return false;
	for (uint32_t i = 1; i < plan->nr_programs; i++)
		if (plan->programs[i - 1] >= plan->programs[i])
			return false;
	for (uint32_t i = 0; i < plan->nr_nodes; i++)
		if (!is_valid_node(plan, i))
			return false;
	return true;
}

/* Adds lengths and padding up; returns the tree's length. */
static uint32_t place_nodes(struct shunt_tree *tree, uint64_t addr)
{
	uint32_t offset = 0;

	for (uint32_t i = 0; i < tree->plan->nr_nodes; i++) {
		if (tree->plan->nodes[i].align16)
			offset += (uint32_t)-(addr + offset) & 15;
		tree->nodes[i].offset = offset;
		offset += tree->nodes[i].len;
	}
	return offset;
}

/* Makes jumps that do not reach long; false when there were none. */
static bool grow_jumps(struct shunt_tree *tree, int64_t reach)
{
	bool grown = false;

	for (uint32_t i = 0; i < tree->plan->nr_nodes; i++) {
		struct shunt_tree_node *node = &tree->nodes[i];

		if (!node->growth || node->is_long || (int64_t)tree->nodes[node->to].offset - (node->offset + node->len) <= reach)
			continue;
		node->is_long = true;
		node->len += node->growth;
		grown = true;
	}
	return grown;
}

static uint32_t lay_out(struct shunt_tree *tree, uint64_t addr, const struct shunt_tree_ops *ops)
{
	uint32_t len;

	for (uint32_t i = 0; i < tree->plan->nr_nodes; i++) {
		struct shunt_tree_node *node = &tree->nodes[i];

		node->to = SHUNT_TREE_NOWHERE;
		ops->measure_node(tree, i, node);
	}
	do
		len = place_nodes(tree, addr);
	while (grow_jumps(tree, ops->short_reach));
	return len;
}

static void emit_nodes(struct shunt_tree *tree, struct shunt_code *code, const struct shunt_tree_ops *ops)
{
	tree->start = code->len;
	for (uint32_t i = 0; i < tree->plan->nr_nodes && !code->error; i++) {
		ops->emit_nops(code, tree->start + tree->nodes[i].offset - code->len);
		ops->emit_node(tree, code, i);
		if (!code->error && code->len - tree->start != tree->nodes[i].offset + tree->nodes[i].len)
			shunt_code_fail(code, EINVAL);
	}
}

void shunt_tree_emit(struct shunt_code *code, const struct shunt_plan *plan, enum shunt_fallback fallback,
		     const struct shunt_tree_ops *ops)
{
	struct shunt_tree tree = { .plan = plan, .fallback = fallback, .reuses_flags = !plan->is_literal };
	uint32_t len;

	if (!is_valid(plan)) {
		shunt_code_fail(code, EINVAL);
		return;
	}
	tree.nodes = calloc(plan->nr_nodes, sizeof(*tree.nodes));
	if (!tree.nodes) {
		shunt_code_fail(code, ENOMEM);
		return;
	}
	if (plan->nodes[0].op == SHUNT_PLAN_OP_ANCHOR || plan->nodes[0].op == SHUNT_PLAN_OP_RANGE)
		tree.is_anchored = plan->programs[plan->nr_programs - 1] - plan->programs[0] <= ops->max_span;
	for (uint32_t i = 0; i < plan->nr_nodes; i++) {
		if (plan->nodes[i].op == SHUNT_PLAN_OP_ABOVE)
			tree.nodes[plan->nodes[i].node].is_jumped_to = true;
	}
	if (ops->begin)
		ops->begin(&tree);
	len = lay_out(&tree, shunt_code_here(code), ops);
	if (code->bytes)
		emit_nodes(&tree, code, ops);
	else
		code->len += len;
	free(tree.nodes);
}

uint64_t shunt_tree_addr(const struct shunt_tree *tree, const struct shunt_code *code, uint32_t node)
{
	return code->addr + tree->start + tree->nodes[node].offset;
}

bool shunt_tree_has_flags(const struct shunt_tree *tree, uint32_t node)
{
	const struct shunt_plan_node *nodes = tree->plan->nodes;

	return tree->reuses_flags && node > 0 && !tree->nodes[node].is_jumped_to &&
	       nodes[node - 1].op == SHUNT_PLAN_OP_ABOVE && nodes[node - 1].program == nodes[node].program;
}

uint32_t shunt_tree_next_fallback(const struct shunt_tree *tree, uint32_t node)
{
	do
		node++;
	while (tree->plan->nodes[node].op != SHUNT_PLAN_OP_FALLBACK);
	return node;
}
