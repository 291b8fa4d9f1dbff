/* SPDX-License-Identifier: MIT */
/*
 * The shapes of dispatch trees.
 *
 * linear    [RANGE from 4 on] EQUAL... FALLBACK, heaviest first
 * balanced  [RANGE from 2 on] halving by ABOVE down to one EQUAL and its FALLBACK
 * kernel    ANCHOR, then the Linux BPF dispatcher's tree: as balanced, every upper half at a multiple of 16 bytes. The kernel compares
 *           against sign-extended 32-bit addresses; ours do not fit those, so the compares are relative to an anchor
 * weighted  RANGE, then halving by weight; a program that weighs a third of what is left is tested before that
 * default   linear up to 3; from 4 on up to 4 programs that outweigh the others, then the others cut in up to 4, those in halves, and a way
 *           out for foreign pointers: outside the programs they go to the lowest ones, falling through every compare, and INSIDE lets them
 *           out before the last ones. Of many programs the same with leaves of two, in parts
 *
 * Measured on Zen 3 (bench_dispatch), in cycles of 0.31 ns: a jump that is taken costs one, and so does each cache line of code that is
 * come to, by a jump or by running on into it; compares that fall through and are never taken cost nothing beside that. Hence four ways at
 * first, whose compares with the way out fill a line, and no more than one line from there to any fallback of up to 12 programs: a pointer
 * that misses among 48 takes a cycle more than a bare fallback, among as many in halves two or three. Where calls of many programs take
 * turns, each pair of jumps that are taken now and then costs what a line does, so below halves are as good as any more ways. A range check
 * ahead of everything would cost a foreign pointer a cycle, as its jump is taken, and one that lets insiders jump would cost those that.
 * Leaves of two save compares for hits, but the fallback behind one is jumped to for two different gaps between programs, which costs a
 * predictor up to 17 % when misses take turns, and 10 % among 8 programs. A second jump by the flags of one compare saves bytes and costs a
 * cycle: the processor fuses a compare with the one jump behind it. So default and weighted plans are literal.
 *
 * A leaf that matches nothing falls through to its own FALLBACK node, a bare indirect jump of a few bytes: shorter than a
 * jump to a shared one would be.
 */
#include "runtime/dispatch/plan.h"

#include <errno.h>
#include <stdlib.h>

#include "runtime/log.h"

/* Beyond this a tree would not fit a pack anyway; it keeps the arithmetic on node counts far from overflow. */
#define PROGRAMS_MAX (1u << 20)
/* Most programs in a row that are tested since each weighs a third of the rest. */
#define WEIGHTED_HOT_MAX 32u
/* Compares that fall through which a pointer outside the programs sees: so many in a row cost nothing beside a bare fallback. */
#define OUTSIDE_MAX 4u
#define NOT_LOWEST UINT32_MAX
/* Of a node above parts; the last of them is jumped to whatever happens, so that more ways save a jump. */
#define WAYS_TO_PARTS 4u
/* Pairs of a large tree are too many to be padded: what that saves is lost again where their jumps are predicted. */
#define ONE_LINE_FROM 3u
#define ONE_LINE_PAIRS_MAX 16u

struct builder {
	struct shunt_plan_node *nodes;
	uint32_t nr;
	uint32_t one_line_from; /* programs below a node that is kept in one cache line */
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

enum placing {
	PACKED,
	ALIGNED,   /* as the kernel's: upper halves at multiples of 16 */
	IN_LINES,  /* what a pointer runs through lies in as few cache lines as may be */
};

static void place(struct builder *builder, uint32_t node, uint32_t nr, enum placing placing)
{
	builder->nodes[node].align16 = placing == ALIGNED;
	builder->nodes[node].one_line = placing == IN_LINES && nr >= builder->one_line_from;
}

/*
 * The odd program goes to the lower half, as in the kernel's tree, but where lines count to the upper one, which is jumped to anyway.
 * Recursion is as deep as the tree, at most log2(PROGRAMS_MAX).
 */
static uint32_t add_halves(struct builder *builder, const uint32_t *order, uint32_t nr, uint32_t leaf_max, enum placing placing)
{
	uint32_t lower = placing == IN_LINES ? nr / 2 : nr - nr / 2;
	uint32_t above, depth_lower, depth_upper;

	if (nr <= leaf_max)
		return add_chain(builder, order, nr);
	above = add(builder, SHUNT_PLAN_OP_ABOVE, order[lower - 1]);
	depth_lower = add_halves(builder, order, lower, leaf_max, placing);
	builder->nodes[above].node = builder->nr;
	depth_upper = add_halves(builder, order + lower, nr - lower, leaf_max, placing);
	place(builder, builder->nodes[above].node, nr - lower, placing);
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

/* Stable, so that equal weights keep the order of addresses. Chains are short, and a linear plan is asked for by name. */
static void sort_by_weight(uint32_t *order, uint32_t nr, const uint32_t *weights)
{
	if (!weights)
		return;
	for (uint32_t i = 1; i < nr; i++) {
		uint32_t program = order[i], at = i;

		for (; at > 0 && weights[order[at - 1]] < weights[program]; at--)
			order[at] = order[at - 1];
		order[at] = program;
	}
}

/* Hot programs are tested even before the range is: a compare that nobody else pays much for. */
static void add_head(struct builder *builder, const uint32_t *hot, uint32_t nr_hot)
{
	if (nr_hot)
		add(builder, SHUNT_PLAN_OP_ANCHOR, 0);
	for (uint32_t i = 0; i < nr_hot; i++)
		add(builder, SHUNT_PLAN_OP_EQUAL, hot[i]);
	add(builder, SHUNT_PLAN_OP_RANGE, 0);
}

static uint32_t weight_of(const uint32_t *weights, uint32_t program)
{
	return weights && weights[program] ? weights[program] : 1;
}

/* Heaviest first. */
static uint32_t add_weighted_chain(struct builder *builder, uint32_t *order, uint32_t nr, const uint32_t *weights)
{
	bool differ = false;

	for (uint32_t i = 1; weights && i < nr; i++)
		differ |= weights[order[i]] != weights[order[0]];
	if (!differ)
		return add_chain(builder, order, nr);
	sort_by_weight(order, nr, weights);
	for (uint32_t i = 0; i < nr; i++)
		add(builder, SHUNT_PLAN_OP_EQUAL, order[i]);
	add(builder, SHUNT_PLAN_OP_FALLBACK, 0);
	return nr;
}

/* Takes programs that weigh at least a third of what is left, up to max, out of order; returns how many. */
static uint32_t take_heavy(uint32_t *order, uint32_t *nr, const uint32_t *weights, uint32_t *heavy, uint32_t max)
{
	uint64_t total = 0;
	uint32_t nr_heavy = 0;

	for (uint32_t i = 0; i < *nr; i++)
		total += weight_of(weights, order[i]);
	while (nr_heavy < max && *nr > SHUNT_PLAN_LEAF_MAX) {
		uint32_t best = 0;

		for (uint32_t i = 1; i < *nr; i++)
			best = weight_of(weights, order[i]) > weight_of(weights, order[best]) ? i : best;
		if (3 * (uint64_t)weight_of(weights, order[best]) < total)
			break;
		total -= weight_of(weights, order[best]);
		heavy[nr_heavy++] = order[best];
		--*nr;
		for (uint32_t i = best; i < *nr; i++)
			order[i] = order[i + 1];
	}
	return nr_heavy;
}

/*
 * None that weighs a third is left when the rest is split (but where max stopped that): each part then has at most two thirds of the
 * weight, which bounds depth and recursion by the logarithm of the weights' sum.
 */
static uint32_t add_weighted(struct builder *builder, uint32_t *order, uint32_t nr, const uint32_t *weights, bool is_first)
{
	uint64_t total = 0, below = 0, least = UINT64_MAX;
	uint32_t heavy[WEIGHTED_HOT_MAX] = { 0 };
	uint32_t nr_heavy, lower = 1, above, depth_lower, depth_upper;

	nr_heavy = take_heavy(order, &nr, weights, heavy, WEIGHTED_HOT_MAX);
	if (is_first) {
		add_head(builder, heavy, nr_heavy);
	} else {
		for (uint32_t i = 0; i < nr_heavy; i++)
			add(builder, SHUNT_PLAN_OP_EQUAL, heavy[i]);
	}
	if (nr <= SHUNT_PLAN_LEAF_MAX)
		return nr_heavy + add_weighted_chain(builder, order, nr, weights);
	for (uint32_t i = 0; i < nr; i++)
		total += weight_of(weights, order[i]);
	/* The split after which both parts weigh most alike. */
	for (uint32_t i = 1; i < nr; i++) {
		uint64_t difference;

		below += weight_of(weights, order[i - 1]);
		difference = 2 * below > total ? 2 * below - total : total - 2 * below;
		if (difference < least) {
			least = difference;
			lower = i;
		}
	}
	above = add(builder, SHUNT_PLAN_OP_ABOVE, order[lower - 1]);
	depth_lower = add_weighted(builder, order, lower, weights, false);
	builder->nodes[above].node = builder->nr;
	depth_upper = add_weighted(builder, order + lower, nr - lower, weights, false);
	builder->nodes[builder->nodes[above].node].align16 = true;
	return nr_heavy + 1 + (depth_lower > depth_upper ? depth_lower : depth_upper);
}

/* Compares on the longest way through add_halves with leaves of one. */
static uint32_t depth_of_halves(uint32_t nr)
{
	uint32_t depth = 1;

	for (; nr > 1; nr = nr / 2 + nr % 2)
		depth++;
	return depth;
}

/*
 * Cuts nr things, whose last programs are named by `last`, in `ways` groups of about as many: pointers of the upper ones jump, the highest
 * first, to nodes that begin_group names later; those of the lowest go on. Group g begins with number nr * g / ways. Returns the first compare.
 */
static uint32_t add_ways(struct builder *builder, const uint32_t *last, uint32_t nr, uint32_t ways)
{
	uint32_t first = builder->nr;

	for (uint32_t group = ways - 1; group > 0; group--)
		add(builder, SHUNT_PLAN_OP_ABOVE, last[(uint64_t)nr * group / ways - 1]);
	return first;
}

/* What follows is where the ways that begin at `first` lead to group number `group`. */
static void begin_group(struct builder *builder, uint32_t first, uint32_t ways, uint32_t group)
{
	if (group)
		builder->nodes[first + ways - 1 - group].node = builder->nr;
}

/* Outsiders have fallen through to here, and no further. */
static void add_way_out(struct builder *builder)
{
	uint32_t inside = add(builder, SHUNT_PLAN_OP_INSIDE, 0);

	add(builder, SHUNT_PLAN_OP_FALLBACK, 0);
	builder->nodes[inside].node = builder->nr;
}

/*
 * All programs but the hot ones, behind `before` compares of those. Foreign pointers outside the bounds come down without having taken a
 * jump, and are let out before they have seen more than OUTSIDE_MAX compares.
 */
static uint32_t add_top(struct builder *builder, const uint32_t *order, uint32_t nr, uint32_t before)
{
	uint32_t ways = before < OUTSIDE_MAX ? OUTSIDE_MAX - before : 1;
	uint32_t first_way, depth = 0;

	if (before + depth_of_halves(nr) <= OUTSIDE_MAX)
		return add_halves(builder, order, nr, 1, IN_LINES);
	ways = ways < nr ? ways : nr;
	first_way = add_ways(builder, order, nr, ways);
	for (uint32_t group = 0; group < ways; group++) {
		uint32_t first = (uint32_t)((uint64_t)nr * group / ways), end = (uint32_t)((uint64_t)nr * (group + 1) / ways), node, below;

		if (group == 0)
			add_way_out(builder);
		begin_group(builder, first_way, ways, group);
		node = builder->nr;
		below = add_halves(builder, order + first, end - first, 1, IN_LINES) + (group ? ways - group : ways);
		place(builder, node, end - first, IN_LINES);
		depth = below > depth ? below : depth;
	}
	return depth;
}

static uint32_t add_default(struct builder *builder, uint32_t *order, uint32_t nr, const uint32_t *weights)
{
	uint32_t hot[SHUNT_PLAN_HOT_MAX];
	uint32_t nr_hot = 0;

	if (nr < 4)
		return add_weighted_chain(builder, order, nr, weights);
	if (weights)
		nr_hot = take_hot(order, &nr, weights, hot);
	add(builder, SHUNT_PLAN_OP_ANCHOR, 0);
	for (uint32_t i = 0; i < nr_hot; i++)
		add(builder, SHUNT_PLAN_OP_EQUAL, hot[i]);
	return nr_hot + add_top(builder, order, nr, nr_hot);
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
		sort_by_weight(order, nr, weights);
		return head + add_chain(builder, order, nr);
	case SHUNT_PLAN_BALANCED:
		if (nr >= 2) {
			add(builder, SHUNT_PLAN_OP_RANGE, 0);
			head = 1;
		}
		return head + add_halves(builder, order, nr, 1, PACKED);
	case SHUNT_PLAN_KERNEL:
		add(builder, SHUNT_PLAN_OP_ANCHOR, 0);
		return add_halves(builder, order, nr, 1, ALIGNED);
	case SHUNT_PLAN_WEIGHTED:
		if (nr < 4)
			return add_weighted_chain(builder, order, nr, weights);
		return 1 + add_weighted(builder, order, nr, weights, true);
	case SHUNT_PLAN_DEFAULT:
		break;
	}
	return add_default(builder, order, nr, weights);
}

static int check_programs(const uint64_t *programs, uint32_t nr)
{
	if (nr > PROGRAMS_MAX)
		return shunt_fail(EINVAL, "%u programs are too many for one dispatch tree, the limit is %u", nr, PROGRAMS_MAX);
	for (uint32_t i = 1; i < nr; i++) {
		if (programs[i - 1] >= programs[i])
			return shunt_fail(EINVAL, "program %u of a plan is not above the one before it, sort them", i);
	}
	return 0;
}

/* Memory for the nodes of any plan over nr programs, and 0, 1, 2... in order. */
static int begin(struct builder *builder, uint32_t nr, uint32_t **order)
{
	/* An ABOVE and a FALLBACK for each EQUAL at the most, two nodes in front, and hot programs may come twice. */
	builder->nodes = malloc((3 * (size_t)nr + 3 + SHUNT_PLAN_HOT_MAX) * sizeof(*builder->nodes));
	builder->nr = 0;
	builder->one_line_from = nr <= ONE_LINE_PAIRS_MAX ? 2 : ONE_LINE_FROM;
	*order = malloc(((size_t)nr + 1) * sizeof(**order));
	if (!builder->nodes || !*order) {
		free(builder->nodes);
		free(*order);
		return shunt_fail(ENOMEM, "no memory for the plan of a dispatch tree over %u programs", nr);
	}
	for (uint32_t i = 0; i < nr; i++)
		(*order)[i] = i;
	return 0;
}

int shunt_plan_make(enum shunt_plan_kind kind, const uint64_t *programs, const uint32_t *weights, uint32_t nr,
		    struct shunt_plan *out)
{
	struct builder builder;
	uint32_t *order;
	uint32_t depth;
	int err;

	if ((unsigned int)kind > SHUNT_PLAN_WEIGHTED)
		return shunt_fail(EINVAL, "plan kind %u does not exist, take one of enum shunt_plan_kind", (unsigned int)kind);
	err = check_programs(programs, nr);
	if (!err)
		err = begin(&builder, nr, &order);
	if (err)
		return err;
	depth = add_kind(&builder, kind, order, nr, weights);
	free(order);
	*out = (struct shunt_plan){ .programs = programs, .nr_programs = nr, .nodes = builder.nodes, .nr_nodes = builder.nr,
				    .depth = depth, .outside_is_below = kind == SHUNT_PLAN_DEFAULT,
				    .is_literal = kind == SHUNT_PLAN_KERNEL || kind == SHUNT_PLAN_DEFAULT || kind == SHUNT_PLAN_WEIGHTED };
	return 0;
}

/*
 * The parts from `from` to `to`: a part is a PART node, or with order the tree over its programs. before: as for add_top, or NOT_LOWEST.
 */
static uint32_t add_parts(struct builder *builder, const uint32_t *last, uint32_t from, uint32_t to, const uint32_t *order, uint32_t before)
{
	uint32_t nr = to - from, ways = before == NOT_LOWEST ? WAYS_TO_PARTS : before < OUTSIDE_MAX ? OUTSIDE_MAX - before : 1;
	uint32_t first_way, depth = 0;

	if (nr == 1 && before == NOT_LOWEST) {
		uint32_t first = from ? last[from - 1] + 1 : 0;

		if (order)
			return add_halves(builder, order + first, last[from] + 1 - first, SHUNT_PLAN_LEAF_MAX, IN_LINES);
		add(builder, SHUNT_PLAN_OP_PART, from);
		return 0;
	}
	ways = ways < nr ? ways : nr;
	first_way = add_ways(builder, last + from, nr, ways);
	for (uint32_t group = 0; group < ways; group++) {
		uint32_t first = from + nr * group / ways, end = from + nr * (group + 1) / ways, node, below;

		if (group == 0 && before != NOT_LOWEST)
			add_way_out(builder);
		begin_group(builder, first_way, ways, group);
		node = builder->nr;
		below = add_parts(builder, last, first, end, order, NOT_LOWEST) + (group ? ways - group : ways - (before == NOT_LOWEST));
		place(builder, node, end - first > 1 ? ONE_LINE_FROM : 0, group || before != NOT_LOWEST ? IN_LINES : PACKED);
		depth = below > depth ? below : depth;
	}
	return depth;
}

int shunt_plan_make_part(const uint64_t *programs, uint32_t nr, struct shunt_plan *out)
{
	struct builder builder;
	uint32_t *order;
	uint32_t depth;
	int err = check_programs(programs, nr);

	if (!err)
		err = begin(&builder, nr, &order);
	if (err)
		return err;
	depth = add_halves(&builder, order, nr, SHUNT_PLAN_LEAF_MAX, IN_LINES);
	free(order);
	*out = (struct shunt_plan){ .programs = programs, .nr_programs = nr, .nodes = builder.nodes, .nr_nodes = builder.nr, .depth = depth,
				    .is_literal = true, .outside_is_below = true, .is_part = true };
	return 0;
}

static int make_above_parts(const uint64_t *programs, uint32_t nr_programs, const uint32_t *hot, uint32_t nr_hot, const uint32_t *last,
			    uint32_t nr_parts, bool is_whole, struct shunt_plan *out)
{
	struct builder builder;
	uint32_t *order;
	uint32_t depth;
	int err = check_programs(programs, nr_programs);

	if (!err)
		err = begin(&builder, nr_programs, &order);
	if (err)
		return err;
	add(&builder, SHUNT_PLAN_OP_ANCHOR, 0);
	for (uint32_t i = 0; i < nr_hot; i++)
		add(&builder, SHUNT_PLAN_OP_EQUAL, hot[i]);
	depth = nr_hot + add_parts(&builder, last, 0, nr_parts, is_whole ? order : NULL, nr_hot);
	/* The rules want it, for a head as for any plan. */
	if (!is_whole)
		add(&builder, SHUNT_PLAN_OP_FALLBACK, 0);
	free(order);
	*out = (struct shunt_plan){ .programs = programs, .nr_programs = nr_programs, .nodes = builder.nodes, .nr_nodes = builder.nr,
				    .depth = depth, .is_literal = true, .outside_is_below = true, .nr_parts = nr_parts };
	return 0;
}

int shunt_plan_make_head(const uint64_t *programs, uint32_t nr_programs, const uint32_t *hot, uint32_t nr_hot, const uint32_t *last, uint32_t nr_parts,
			 struct shunt_plan *out)
{
	return make_above_parts(programs, nr_programs, hot, nr_hot, last, nr_parts, false, out);
}

int shunt_plan_make_whole(const uint64_t *programs, uint32_t nr, const uint32_t *hot, uint32_t nr_hot, const uint32_t *last, uint32_t nr_parts,
			  struct shunt_plan *out)
{
	return make_above_parts(programs, nr, hot, nr_hot, last, nr_parts, true, out);
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
	case SHUNT_PLAN_WEIGHTED:
		return "weighted";
	}
	return "unknown";
}
