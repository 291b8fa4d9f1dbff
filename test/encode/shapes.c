/* SPDX-License-Identifier: MIT */
/* See shapes.h. */
#include "shapes.h"

#include <stdlib.h>

uint64_t shape_random(uint64_t *state)
{
	/* splitmix64 */
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

struct shape shape_any(uint64_t *state)
{
	static const enum shunt_plan_op heads[] = { SHUNT_PLAN_OP_FALLBACK, SHUNT_PLAN_OP_ANCHOR, SHUNT_PLAN_OP_RANGE };
	static const uint32_t leaves[] = { 0, 1, 1, 2, 4 };
	uint64_t bits = shape_random(state);

	return (struct shape){
		.head = heads[bits % 3],
		.late_range = (bits >> 40) % 2 == 0,
		.leaf_max = leaves[(bits >> 8) % 5],
		.nr_hot = (uint32_t)(bits >> 16) % 5,
		.align16 = (bits >> 24) % 3 == 0,
		.is_graph = (bits >> 32) % 4 == 0,
	};
}

static int compare(const void *left, const void *right)
{
	uint64_t l = *(const uint64_t *)left, r = *(const uint64_t *)right;

	return (l > r) - (l < r);
}

void shape_programs(uint64_t *state, uint64_t base, uint64_t span, uint64_t align, uint64_t *programs, uint32_t nr)
{
	uint32_t have = 0;

	while (have < nr) {
		uint32_t kept = 0;

		for (uint32_t i = have; i < nr; i++)
			programs[i] = base + shape_random(state) % (span / align) * align;
		qsort(programs, nr, sizeof(*programs), compare);
		for (uint32_t i = 0; i < nr; i++)
			if (!i || programs[i] != programs[kept - 1])
				programs[kept++] = programs[i];
		have = kept;
	}
}

static void add_equals(struct shunt_plan *plan, struct shunt_plan_node *nodes, uint32_t first, uint32_t nr)
{
	for (uint32_t i = 0; i < nr; i++)
		nodes[plan->nr_nodes++] = (struct shunt_plan_node){ .op = SHUNT_PLAN_OP_EQUAL, .program = first + i };
}

static void add_halves(struct shunt_plan *plan, struct shunt_plan_node *nodes, struct shape shape, uint32_t first, uint32_t nr)
{
	uint32_t lower = (nr + 1) / 2;
	uint32_t above = plan->nr_nodes;

	if (!shape.leaf_max || nr <= shape.leaf_max) {
		add_equals(plan, nodes, first, nr);
		nodes[plan->nr_nodes++] = (struct shunt_plan_node){ .op = SHUNT_PLAN_OP_FALLBACK };
		return;
	}
	nodes[plan->nr_nodes++] = (struct shunt_plan_node){ .op = SHUNT_PLAN_OP_ABOVE, .program = first + lower - 1 };
	add_halves(plan, nodes, shape, first, lower);
	nodes[above].node = plan->nr_nodes;
	add_halves(plan, nodes, shape, first + lower, nr - lower);
	nodes[nodes[above].node].align16 = shape.align16;
}

static void add_graph(struct shunt_plan *plan, struct shunt_plan_node *nodes, bool align16)
{
	static const enum shunt_plan_op ops[] = { SHUNT_PLAN_OP_EQUAL, SHUNT_PLAN_OP_ABOVE, SHUNT_PLAN_OP_ABOVE, SHUNT_PLAN_OP_FALLBACK };
	bool is_anchored = nodes[0].op == SHUNT_PLAN_OP_ANCHOR;
	uint32_t first = plan->nr_nodes, nr = 3 * plan->nr_programs;
	uint64_t state = plan->nr_programs;

	for (uint32_t i = first; i < first + nr; i++) {
		uint64_t bits = shape_random(&state);
		bool repeats = i > first && bits % 4 == 0; /* the program of the node before, which may make its compare unneeded */

		nodes[i] = (struct shunt_plan_node){
			.op = ops[(bits >> 8) % (i % 4 ? 3 : 4)],
			.align16 = align16 && (bits >> 16) % 3 == 0,
			.program = repeats ? nodes[i - 1].program : (uint32_t)(bits >> 32) % plan->nr_programs,
		};
		if (is_anchored && (bits >> 40) % 16 == 0)
			nodes[i].op = SHUNT_PLAN_OP_INSIDE;
		/* Mostly near, so that many jumps meet. */
		nodes[i].node = i + 1 + (uint32_t)(bits >> 24) % (i + 8 < first + nr ? 7 : first + nr - i);
	}
	nodes[first + nr].op = SHUNT_PLAN_OP_FALLBACK;
	plan->nr_nodes = first + nr + 1;
}

void shape_plan(struct shape shape, const uint64_t *programs, uint32_t nr, struct shunt_plan *out)
{
	struct shunt_plan_node *nodes = calloc(3 * (size_t)nr + shape.nr_hot + 3, sizeof(*nodes));

	if (!nodes)
		abort();
	*out = (struct shunt_plan){ .programs = programs, .nr_programs = nr, .nodes = nodes, .outside_is_below = nr % 2,
				    .is_literal = shape.align16 && shape.head != SHUNT_PLAN_OP_RANGE };
	if (nr && (shape.head == SHUNT_PLAN_OP_ANCHOR || shape.head == SHUNT_PLAN_OP_RANGE))
		nodes[out->nr_nodes++].op = shape.head;
	/* Hot ones are tested twice, which a plan allows. */
	if (nr >= shape.nr_hot)
		add_equals(out, nodes, nr - shape.nr_hot, shape.nr_hot);
	if (nr && shape.head == SHUNT_PLAN_OP_ANCHOR && shape.late_range)
		nodes[out->nr_nodes++].op = SHUNT_PLAN_OP_RANGE;
	if (nr && shape.is_graph)
		add_graph(out, nodes, shape.align16);
	else
		add_halves(out, nodes, shape, 0, nr);
}

bool shape_finds(const struct shunt_plan *plan, uint64_t pointer)
{
	for (uint32_t i = 0;;) {
		const struct shunt_plan_node *node = &plan->nodes[i++];

		switch (node->op) {
		case SHUNT_PLAN_OP_EQUAL:
			if (pointer == plan->programs[node->program])
				return true;
			break;
		case SHUNT_PLAN_OP_ABOVE:
			if (pointer > plan->programs[node->program])
				i = node->node;
			break;
		case SHUNT_PLAN_OP_INSIDE:
			if (pointer >= plan->programs[0] && pointer <= plan->programs[plan->nr_programs - 1])
				i = node->node;
			break;
		case SHUNT_PLAN_OP_FALLBACK:
			return false;
		default:
			break;
		}
	}
}

void shape_for_each_pointer(const uint64_t *programs, uint32_t nr, uint64_t *state,
			    void (*visit)(void *context, uint64_t pointer, bool is_program), void *context)
{
	static const uint64_t distances[] = { 1, 2, 4, 63, 64, 4096, UINT64_C(1) << 18, UINT64_C(1) << 30, UINT64_C(1) << 32,
					      UINT64_C(1) << 38, UINT64_C(1) << 47, UINT64_C(1) << 58, UINT64_C(1) << 63 };
	const uint32_t nr_distances = sizeof(distances) / sizeof(distances[0]);
	uint64_t others[2 * sizeof(distances) / sizeof(distances[0]) + 5];

	for (uint32_t i = 0; i < nr; i++)
		visit(context, programs[i], true);
	for (uint32_t i = 0; i < nr || !i; i++) {
		uint64_t program = nr ? programs[i] : shape_random(state);
		uint32_t nr_others = 0;

		/* All neighbours and aliases of some, the closest ones of all. */
		for (uint32_t d = 0; d < (i % 16 && i != nr - 1 ? 2 : nr_distances); d++) {
			others[nr_others++] = program + distances[d];
			others[nr_others++] = program - distances[d];
		}
		if (i % 64 == 0) {
			others[nr_others++] = 0;
			others[nr_others++] = UINT64_MAX;
			others[nr_others++] = shape_random(state);
			others[nr_others++] = program & UINT32_MAX;
			others[nr_others++] = -program;
		}
		for (uint32_t k = 0; k < nr_others; k++)
			if (!nr || !bsearch(&others[k], programs, nr, sizeof(*programs), compare))
				visit(context, others[k], false);
	}
}
