/* SPDX-License-Identifier: MIT */
/*
 * The shapes of dispatch trees.
 *
 * linear    [RANGE from 4 on] EQUAL... FALLBACK
 * balanced  [RANGE from 2 on] halving by ABOVE down to one EQUAL and its FALLBACK
 * kernel    ANCHOR, then the Linux BPF dispatcher's tree: as balanced, every upper half at a multiple of 16 bytes. The kernel compares
 *           against sign-extended 32-bit addresses; ours do not fit those, so the compares are relative to an anchor
 * default   linear up to 3; from 4 on RANGE, up to 4 programs that are attached more often than the others, then a tree whose
 *           leaves are chains of up to 4 EQUALs: a mispredicted branch costs more than a compare, and chains need fewer bytes
 *
 * A leaf that matches nothing falls through to its own FALLBACK node, a bare indirect jump of a few bytes: shorter than a
 * jump to a shared one would be.
 */
#include "runtime/plan.h"

#include <errno.h>
#include <stdlib.h>

#include "runtime/log.h"

/* Beyond this a tree would not fit a pack anyway; it keeps the arithmetic on node counts far from overflow. */
#define PROGRAMS_MAX (1u << 20)

struct builder {
	struct shunt_plan_node *nodes;
	uint32_t nr;
};

static uint32_t add(struct builder *builder, enum shunt_plan_op op, uint32_t program)
{
	builder->nodes[builder->nr] = (struct shunt_plan_node){ .op = op, .program = program };
	return builder->nr++;
}

/*
 * EQUALs over the programs named by order and the FALLBACK behind them; returns the compares on the longest path. Right
 * behind an ABOVE the pivot comes first: a target can test it with the flags that the ABOVE left.
 */
static uint32_t add_chain(struct builder *builder, const uint32_t *order, uint32_t nr)
{
	const struct shunt_plan_node *before = builder->nr ? &builder->nodes[builder->nr - 1] : NULL;

	if (nr && before && before->op == SHUNT_PLAN_OP_ABOVE && before->program == order[nr - 1]) {
		add(builder, SHUNT_PLAN_OP_EQUAL, order[nr - 1]);
		for (uint32_t i = 0; i < nr - 1; i++)
			add(builder, SHUNT_PLAN_OP_EQUAL, order[i]);
	} else {
		for (uint32_t i = 0; i < nr; i++)
			add(builder, SHUNT_PLAN_OP_EQUAL, order[i]);
	}
	add(builder, SHUNT_PLAN_OP_FALLBACK, 0);
	return nr;
}

/* The lower half gets the odd program, as in the kernel's tree. Recursion is as deep as the tree, at most log2(PROGRAMS_MAX). */
static uint32_t add_halves(struct builder *builder, const uint32_t *order, uint32_t nr, uint32_t leaf_max, bool align16)
{
	uint32_t lower = nr / 2 + nr % 2;
	uint32_t above, depth_lower, depth_upper;

	if (nr <= leaf_max)
		return add_chain(builder, order, nr);
	above = add(builder, SHUNT_PLAN_OP_ABOVE, order[lower - 1]);
	depth_lower = add_halves(builder, order, lower, leaf_max, align16);
	builder->nodes[above].node = builder->nr;
	depth_upper = add_halves(builder, order + lower, nr - lower, leaf_max, align16);
	builder->nodes[builder->nodes[above].node].align16 = align16;
	return 1 + (depth_lower > depth_upper ? depth_lower : depth_upper);
}

/*
 * Moves up to SHUNT_PLAN_HOT_MAX programs that outweigh the lightest to hot, heaviest first, and closes the gaps in order. Equal
 * weights name nobody hot. Returns how many.
 */
static uint32_t take_hot(uint32_t *order, uint32_t *nr, const uint32_t *weights, uint32_t *hot)
{
	uint32_t lightest = UINT32_MAX;
	uint32_t nr_hot = 0;

	for (uint32_t i = 0; i < *nr; i++)
		lightest = weights[order[i]] < lightest ? weights[order[i]] : lightest;
	while (nr_hot < SHUNT_PLAN_HOT_MAX) {
		uint32_t best = 0;

		for (uint32_t i = 1; i < *nr; i++)
			best = weights[order[i]] > weights[order[best]] ? i : best;
		if (*nr == 0 || weights[order[best]] <= lightest)
			break;
		hot[nr_hot++] = order[best];
		--*nr;
		for (uint32_t i = best; i < *nr; i++)
			order[i] = order[i + 1];
	}
	return nr_hot;
}

static uint32_t add_default(struct builder *builder, uint32_t *order, uint32_t nr, const uint32_t *weights)
{
	uint32_t hot[SHUNT_PLAN_HOT_MAX];
	uint32_t nr_hot = 0;

	if (nr < 4)
		return add_chain(builder, order, nr);
	add(builder, SHUNT_PLAN_OP_RANGE, 0);
	if (weights)
		nr_hot = take_hot(order, &nr, weights, hot);
	for (uint32_t i = 0; i < nr_hot; i++)
		add(builder, SHUNT_PLAN_OP_EQUAL, hot[i]);
	return 1 + nr_hot + add_halves(builder, order, nr, SHUNT_PLAN_LEAF_MAX, false);
}

static uint32_t add_kind(struct builder *builder, enum shunt_plan_kind kind, uint32_t *order, uint32_t nr,
			 const uint32_t *weights)
{
	uint32_t head = 0;

	if (nr == 0)
		return add_chain(builder, order, 0);
	switch (kind) {
	case SHUNT_PLAN_LINEAR:
		if (nr >= 4) {
			add(builder, SHUNT_PLAN_OP_RANGE, 0);
			head = 1;
		}
		return head + add_chain(builder, order, nr);
	case SHUNT_PLAN_BALANCED:
		if (nr >= 2) {
			add(builder, SHUNT_PLAN_OP_RANGE, 0);
			head = 1;
		}
		return head + add_halves(builder, order, nr, 1, false);
	case SHUNT_PLAN_KERNEL:
		add(builder, SHUNT_PLAN_OP_ANCHOR, 0);
		return add_halves(builder, order, nr, 1, true);
	case SHUNT_PLAN_DEFAULT:
		break;
	}
	return add_default(builder, order, nr, weights);
}

int shunt_plan_make(enum shunt_plan_kind kind, const uint64_t *programs, const uint32_t *weights, uint32_t nr,
		    struct shunt_plan *out)
{
	struct builder builder = { 0 };
	uint32_t *order;
	uint32_t depth;

	if ((unsigned int)kind > SHUNT_PLAN_KERNEL)
		return shunt_fail(EINVAL, "plan kind %u does not exist, take one of enum shunt_plan_kind", (unsigned int)kind);
	if (nr > PROGRAMS_MAX)
		return shunt_fail(EINVAL, "%u programs are too many for one dispatch tree, the limit is %u", nr, PROGRAMS_MAX);
	for (uint32_t i = 1; i < nr; i++) {
		if (programs[i - 1] >= programs[i])
			return shunt_fail(EINVAL, "program %u of a plan is not above the one before it, sort them", i);
	}
	/* An ABOVE and a FALLBACK for each EQUAL at the most, and one node in front. */
	builder.nodes = malloc((3 * (size_t)nr + 2) * sizeof(*builder.nodes));
	order = calloc((size_t)nr + 1, sizeof(*order));
	if (!builder.nodes || !order) {
		free(builder.nodes);
		free(order);
		return shunt_fail(ENOMEM, "no memory for the plan of a dispatch tree over %u programs", nr);
	}
	for (uint32_t i = 0; i < nr; i++)
		order[i] = i;
	depth = add_kind(&builder, kind, order, nr, weights);
	free(order);
	*out = (struct shunt_plan){ .programs = programs, .nr_programs = nr, .nodes = builder.nodes, .nr_nodes = builder.nr,
				    .depth = depth };
	return 0;
}

void shunt_plan_fini(struct shunt_plan *plan)
{
	free((void *)plan->nodes);
	*plan = (struct shunt_plan){ 0 };
}

const char *shunt_plan_name(enum shunt_plan_kind kind)
{
	switch (kind) {
	case SHUNT_PLAN_DEFAULT:
		return "default";
	case SHUNT_PLAN_LINEAR:
		return "linear";
	case SHUNT_PLAN_BALANCED:
		return "balanced";
	case SHUNT_PLAN_KERNEL:
		return "kernel";
	}
	return "unknown";
}
