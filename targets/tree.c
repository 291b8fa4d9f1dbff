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
	case SHUNT_PLAN_OP_RANGE:
		return index == 0 && plan->nr_programs > 0;
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

static void emit_pass(struct shunt_tree *tree, struct shunt_code *code, const struct shunt_tree_ops *ops)
{
	tree->start = code->len;
	tree->changed = false;
	for (uint32_t i = 0; i < tree->plan->nr_nodes; i++) {
		size_t offset;

		if (tree->plan->nodes[i].align16)
			ops->emit_nops(code, -shunt_code_here(code) & 15);
		offset = code->len - tree->start;
		if (offset != tree->nodes[i].offset) {
			tree->nodes[i].offset = offset;
			tree->changed = true;
		}
		ops->emit_node(tree, code, i);
	}
}

void shunt_tree_emit(struct shunt_code *code, const struct shunt_plan *plan, enum shunt_fallback fallback,
		     const struct shunt_tree_ops *ops)
{
	struct shunt_tree tree = { .plan = plan, .fallback = fallback, .reuses_flags = true };
	struct shunt_code measure;

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
		if (plan->nodes[i].align16)
			tree.reuses_flags = false;
	}
	do {
		shunt_code_init(&measure, NULL, 0, shunt_code_here(code));
		emit_pass(&tree, &measure, ops);
		if (!tree.is_laid_out)
			tree.changed = true;
		tree.is_laid_out = true;
	} while (tree.changed);
	emit_pass(&tree, code, ops);
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
