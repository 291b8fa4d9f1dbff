/* SPDX-License-Identifier: MIT */
/*
 * Code for lists of programs. See dispatcher_tree.h.
 *
 * The tree is generated for the address where it runs and written at the other view's: displacements computed for the wrong
 * view only show when the two lie far apart.
 */
#include "runtime/dispatch/dispatcher_tree.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/dispatch/hits.h"
#include "runtime/log.h"
#include "runtime/dispatch/plan.h"

/* Programs of a part when all parts are made: half of what fits, so that it takes as many again before one is split. */
#define PART_TARGET (SHUNT_PLAN_PART_MAX / 2)
/* Parts that became so small on average are not worth their head. */
#define PART_MIN 16u

static int fail_tree(const struct shunt_dispatcher *d, int err, const struct shunt_plan *plan)
{
	const struct shunt_target *target = shunt_target_host();
	const uint64_t *programs = plan->programs;
	char which[64];

	if (err == -ERANGE) {
		if (plan->nr_programs == 1)
			snprintf(which, sizeof(which), "program %#llx", (unsigned long long)programs[0]);
		else
			snprintf(which, sizeof(which), "a program between %#llx and %#llx", (unsigned long long)programs[0],
				 (unsigned long long)programs[plan->nr_programs - 1]);
		return shunt_fail(ERANGE, "dispatcher '%s': %s is out of direct reach (%lld MiB) of its arena, place it in "
				  "shunt_dispatcher_arena() or call it unattached", d->name, which, (long long)(target->branch_reach >> 20));
	}
	return shunt_fail(-err, "dispatcher '%s': no tree over %u programs could be made", d->name, plan->nr_programs);
}

/*
 * A plan's code in a block of its own. Laid out first, for a block begins at a multiple of 64, so that it fits to the chunk. words: the
 * programs' counters, where hits are counted.
 */
static int emit(const struct shunt_dispatcher *d, struct shunt_plan *plan, const uint32_t *words, struct shunt_block *block, uint32_t *len)
{
	struct shunt_plan_counts counts;
	struct shunt_tree tree;
	struct shunt_code code;
	int err;

	if (d->hits) {
		counts = shunt_hits_counts(d->hits, words);
		plan->counts = &counts;
	}
	err = shunt_target_host()->lay_out_tree(&tree, plan, d->fallback, 0);
	if (err)
		return fail_tree(d, err, plan);
	err = shunt_pack_alloc(d->arena, SHUNT_SEGMENT_CODE, tree.len, 0, block);
	if (err) {
		shunt_tree_fini(&tree);
		return err;
	}
	shunt_code_init(&code, block->rw, block->len, (uint64_t)(uintptr_t)block->rx);
	shunt_tree_emit_laid_out(&tree, &code);
	*len = tree.len;
	shunt_tree_fini(&tree);
	plan->counts = NULL;
	err = code.error ? fail_tree(d, code.error, plan) : shunt_pack_finalize(block, 1);
	if (err) {
		shunt_pack_abandon(block);
		block->id = 0;
	}
	return err;
}

static uint32_t weight_of(const struct shunt_dispatcher_entry *entry)
{
	return entry->weight ? entry->weight : entry->count;
}

static bool differ_in_weight(const struct shunt_dispatcher_entry *list, uint32_t nr)
{
	for (uint32_t i = 1; i < nr; i++)
		if (weight_of(&list[i]) != weight_of(&list[0]))
			return true;
	return false;
}

/* *weights is NULL when all weigh the same and are not asked for. */
static uint32_t *list_words(const struct shunt_dispatcher *d, const struct shunt_dispatcher_entry *list, uint32_t nr)
{
	uint32_t *words = malloc(((size_t)nr + 1) * sizeof(*words));

	for (uint32_t i = 0; words && i < nr; i++)
		words[i] = list[i].word;
	if (!words)
		shunt_fail(ENOMEM, "dispatcher '%s': no memory for the plan of %u programs", d->name, nr);
	return words;
}

static int list_programs(const struct shunt_dispatcher *d, const struct shunt_dispatcher_entry *list, uint32_t nr, bool wants_weights,
			 uint64_t **programs, uint32_t **weights)
{
	bool has_weights = wants_weights || differ_in_weight(list, nr);

	*programs = malloc(((size_t)nr + 1) * sizeof(**programs));
	*weights = has_weights ? malloc(((size_t)nr + 1) * sizeof(**weights)) : NULL;
	if (!*programs || (has_weights && !*weights)) {
		free(*programs);
		free(*weights);
		return shunt_fail(ENOMEM, "dispatcher '%s': no memory for the plan of %u programs", d->name, nr);
	}
	for (uint32_t i = 0; i < nr; i++)
		(*programs)[i] = list[i].program;
	for (uint32_t i = 0; has_weights && i < nr; i++)
		(*weights)[i] = weight_of(&list[i]);
	return 0;
}

static int make_one(const struct shunt_dispatcher *d, const struct shunt_dispatcher_entry *list, uint32_t nr, struct shunt_dispatcher_tree *out)
{
	uint32_t *words = d->hits ? list_words(d, list, nr) : NULL;
	uint64_t *programs;
	uint32_t *weights;
	struct shunt_plan plan;
	int err = d->hits && !words ? -ENOMEM : list_programs(d, list, nr, false, &programs, &weights);

	if (err) {
		free(words);
		return err;
	}
	err = shunt_plan_make(d->kind, programs, weights, nr, &plan);
	if (!err) {
		err = emit(d, &plan, words, &out->block, &out->head_len);
		out->len = out->head_len;
		out->depth = plan.depth;
		shunt_plan_fini(&plan);
	}
	free(words);
	free(programs);
	free(weights);
	return err;
}

/* ---- what is rare -------------------------------------------------------------------------------------------------- */

/*
 * The programs that get compares where the host's weights say that few of them, up to SHUNT_PLAN_HOT_MAX, are called in three quarters of all
 * calls, in the order of their addresses; 0: all of them. A call of another one mispredicts that it is none of these, as it would in any
 * tree, and then a tree mispredicts at least once more, which the fallback's jump does not do more often. Not with an lfence, which waits
 * for all before it, and not where hits are counted: what is rare now could never become hot.
 */
static uint32_t find_called(const struct shunt_dispatcher *d, const struct shunt_dispatcher_entry *list, uint32_t nr,
			    struct shunt_dispatcher_entry *called)
{
	uint32_t heaviest[SHUNT_PLAN_HOT_MAX + 1], nr_heaviest = 0, nr_called = 0;
	uint64_t total = 0, sum = 0, least;

	if (d->kind != SHUNT_PLAN_DEFAULT || d->hits || d->fallback == SHUNT_FALLBACK_LFENCE)
		return 0;
	for (uint32_t i = 0; i < nr; i++) {
		uint32_t at = nr_heaviest;

		total += weight_of(&list[i]);
		if (!list[i].weight || (at > SHUNT_PLAN_HOT_MAX && list[i].weight <= list[heaviest[at - 1]].weight))
			continue;
		if (at > SHUNT_PLAN_HOT_MAX)
			at--;
		else
			nr_heaviest++;
		for (; at > 0 && list[heaviest[at - 1]].weight < list[i].weight; at--)
			heaviest[at] = heaviest[at - 1];
		heaviest[at] = i;
	}
	least = total - total / 4;
	while (nr_called < nr_heaviest && nr_called < SHUNT_PLAN_HOT_MAX && sum < least)
		sum += list[heaviest[nr_called++]].weight;
	/* Of two that weigh the same neither is the rare one. */
	if (!nr_called || sum < least || nr_called == nr ||
	    (nr_called < nr_heaviest && list[heaviest[nr_called]].weight == list[heaviest[nr_called - 1]].weight))
		return 0;
	for (uint32_t i = 0; i < nr_called; i++) {
		uint32_t at = i;

		for (; at > 0 && called[at - 1].program > list[heaviest[i]].program; at--)
			called[at] = called[at - 1];
		called[at] = list[heaviest[i]];
	}
	return nr_called;
}

/* ---- parts -------------------------------------------------------------------------------------------------------- */

/* Programs of a part and their counters. */
struct part_programs {
	uint64_t programs[SHUNT_PLAN_PART_MAX + 1];
	uint32_t words[SHUNT_PLAN_PART_MAX + 1];
	uint32_t nr;
};

static void add_program(struct part_programs *part, const struct shunt_dispatcher_entry *entry)
{
	part->programs[part->nr] = entry->program;
	part->words[part->nr++] = entry->word;
}

static int make_part(const struct shunt_dispatcher *d, const struct shunt_dispatcher_tree *tree, const uint64_t *programs, const uint32_t *words,
		     uint32_t nr, struct shunt_dispatcher_part *out)
{
	struct shunt_plan plan;
	int err = shunt_plan_make_part(programs, nr, &plan);

	if (err)
		return err;
	plan.low = tree->low;
	plan.high = tree->high;
	plan.bits = tree->bits;
	*out = (struct shunt_dispatcher_part){ .nr = nr, .last = programs[nr - 1], .depth = plan.depth };
	err = emit(d, &plan, words, &out->block, &out->len);
	shunt_plan_fini(&plan);
	return err;
}

struct hot {
	uint64_t programs[SHUNT_PLAN_HOT_MAX];
	uint32_t words[SHUNT_PLAN_HOT_MAX];
	uint32_t nr;
};

/* The heaviest programs of those that outweigh the lightest, heaviest first; the one at `without` does not count. */
static struct hot find_hot(const struct shunt_dispatcher_entry *list, uint32_t nr, uint32_t without, uint32_t lightest)
{
	uint32_t weights[SHUNT_PLAN_HOT_MAX];
	struct hot hot = { .nr = 0 };

	for (uint32_t i = 0; i < nr; i++)
		if (i != without && weight_of(&list[i]) < lightest)
			lightest = weight_of(&list[i]);
	for (uint32_t i = 0; i < nr; i++) {
		uint32_t weight = weight_of(&list[i]), at = hot.nr;

		if (i == without || weight <= lightest || (hot.nr == SHUNT_PLAN_HOT_MAX && weight <= weights[hot.nr - 1]))
			continue;
		if (hot.nr < SHUNT_PLAN_HOT_MAX)
			hot.nr++;
		else
			at--;
		for (; at > 0 && weights[at - 1] < weight; at--) {
			weights[at] = weights[at - 1];
			hot.programs[at] = hot.programs[at - 1];
			hot.words[at] = hot.words[at - 1];
		}
		weights[at] = weight;
		hot.programs[at] = list[i].program;
		hot.words[at] = list[i].word;
	}
	return hot;
}

/* The parts' last programs and hot ones, ascending. */
struct head {
	uint64_t *programs;
	uint64_t *parts;
	uint32_t *last;
	uint32_t *words; /* 0 for programs that the head does not test */
	uint32_t nr;
};

static uint32_t find_addr(const uint64_t *programs, uint32_t nr, uint64_t program)
{
	uint32_t low = 0;

	while (nr > 0) {
		uint32_t half = nr / 2;

		if (programs[low + half] < program) {
			low += half + 1;
			nr -= half + 1;
		} else {
			nr = half;
		}
	}
	return low;
}

static int list_head(const struct shunt_dispatcher *d, const struct shunt_dispatcher_tree *tree, const struct hot *hot, struct head *head)
{
	size_t room = (size_t)tree->nr_parts + hot->nr;

	head->programs = calloc(room, 2 * sizeof(uint64_t) + 2 * sizeof(uint32_t));
	if (!head->programs)
		return shunt_fail(ENOMEM, "dispatcher '%s': no memory for the head of a tree of %u parts", d->name, tree->nr_parts);
	head->parts = head->programs + room;
	head->last = (uint32_t *)(head->parts + room);
	head->words = head->last + room;
	head->nr = tree->nr_parts;
	for (uint32_t i = 0; i < tree->nr_parts; i++) {
		head->programs[i] = tree->parts[i].last;
		head->parts[i] = (uint64_t)(uintptr_t)tree->parts[i].block.rx;
	}
	for (uint32_t i = 0; i < hot->nr; i++) {
		uint32_t at = find_addr(head->programs, head->nr, hot->programs[i]);

		if (at < head->nr && head->programs[at] == hot->programs[i])
			continue;
		memmove(&head->programs[at + 1], &head->programs[at], (head->nr - at) * sizeof(head->programs[0]));
		head->programs[at] = hot->programs[i];
		head->nr++;
	}
	for (uint32_t i = 0; i < hot->nr; i++)
		head->words[find_addr(head->programs, head->nr, hot->programs[i])] = hot->words[i];
	for (uint32_t i = 0; i < tree->nr_parts; i++)
		head->last[i] = find_addr(head->programs, head->nr, tree->parts[i].last);
	return 0;
}

static int make_head(const struct shunt_dispatcher *d, const struct hot *hot, struct shunt_dispatcher_tree *tree)
{
	uint32_t hot_index[SHUNT_PLAN_HOT_MAX] = { 0 };
	struct shunt_plan plan;
	struct head head = { 0 };
	uint32_t depth = 0;
	int err = list_head(d, tree, hot, &head);

	if (err)
		return err;
	for (uint32_t i = 0; i < hot->nr; i++)
		hot_index[i] = find_addr(head.programs, head.nr, hot->programs[i]);
	err = shunt_plan_make_head(head.programs, head.nr, hot_index, hot->nr, head.last, tree->nr_parts, &plan);
	if (!err) {
		plan.low = tree->low;
		plan.high = tree->high;
		plan.bits = tree->bits;
		plan.parts = head.parts;
		err = emit(d, &plan, head.words, &tree->block, &tree->head_len);
		tree->len = tree->head_len;
		for (uint32_t i = 0; i < tree->nr_parts; i++) {
			tree->len += tree->parts[i].len;
			depth = tree->parts[i].depth > depth ? tree->parts[i].depth : depth;
		}
		tree->depth = plan.depth + depth;
		shunt_plan_fini(&plan);
	}
	free(head.programs);
	return err;
}

/*
 * Bounds: the first and the last program. Where the tree before had them too tight, a quarter of the whole more on that side, for what
 * comes there next; else every change there would make all parts anew.
 */
static void find_bounds(const struct shunt_dispatcher_tree *old, const struct shunt_dispatcher_entry *list, uint32_t nr, bool is_wide,
			struct shunt_dispatcher_tree *tree)
{
	uint64_t slack;

	tree->low = list[0].program;
	tree->high = list[nr - 1].program;
	slack = (tree->high - tree->low) / 4 & ~(uint64_t)(SHUNT_CHUNK_SIZE - 1);
	if (is_wide && old->nr_parts && tree->low < old->low && tree->low > slack)
		tree->low -= slack;
	if (is_wide && old->nr_parts && tree->high > old->high && tree->high + slack > tree->high)
		tree->high += slack;
	tree->bits = 0;
	for (uint32_t i = 0; i < nr; i++)
		tree->bits |= list[i].program;
}

static int make_parts(const struct shunt_dispatcher *d, const struct shunt_dispatcher_entry *list, uint32_t nr, struct shunt_dispatcher_tree *out)
{
	uint32_t nr_parts = (nr + PART_TARGET - 1) / PART_TARGET;
	struct hot hot = { .nr = 0 };
	uint32_t first = 0;
	int err = 0;

	out->parts = calloc(nr_parts, sizeof(*out->parts));
	if (!out->parts)
		return shunt_fail(ENOMEM, "dispatcher '%s': no memory for a tree of %u parts", d->name, nr_parts);
	for (uint32_t part = 0; part < nr_parts && !err; part++) {
		uint32_t end = (uint32_t)((uint64_t)nr * (part + 1) / nr_parts);
		struct part_programs programs = { .nr = 0 };

		while (first < end)
			add_program(&programs, &list[first++]);
		err = make_part(d, out, programs.programs, programs.words, programs.nr, &out->parts[part]);
		if (!err)
			out->nr_parts++;
	}
	if (!err && differ_in_weight(list, nr))
		hot = find_hot(list, nr, UINT32_MAX, UINT32_MAX);
	if (!err)
		err = make_head(d, &hot, out);
	if (err)
		shunt_dispatcher_tree_abandon(out, NULL);
	return err;
}

int shunt_dispatcher_tree_make(const struct shunt_dispatcher *d, const struct shunt_dispatcher_entry *list, uint32_t nr,
			       struct shunt_dispatcher_tree *out)
{
	struct shunt_dispatcher_entry called[SHUNT_PLAN_HOT_MAX];
	uint32_t nr_called = find_called(d, list, nr, called);
	int err;

	*out = (struct shunt_dispatcher_tree){ .leaves_rare = nr_called != 0 };
	if (nr_called)
		return make_one(d, called, nr_called, out);
	if (d->kind != SHUNT_PLAN_DEFAULT || nr < (d->tree.nr_parts ? SHUNT_PARTS_FROM / 2 : SHUNT_PARTS_FROM))
		return make_one(d, list, nr, out);
	find_bounds(&d->tree, list, nr, true, out);
	err = make_parts(d, list, nr, out);
	if (err != -ERANGE)
		return err;
	/* The bound, not a program, may be what is out of reach. */
	find_bounds(&d->tree, list, nr, false, out);
	return make_parts(d, list, nr, out);
}

/* The part that has index `at` or, for one to put in, ends there; *first is its first index. */
static uint32_t find_part(const struct shunt_dispatcher_tree *tree, uint32_t at, bool is_new, uint32_t *first)
{
	uint32_t part = 0;

	*first = 0;
	while (part + 1 < tree->nr_parts && *first + tree->parts[part].nr < at + !is_new)
		*first += tree->parts[part++].nr;
	return part;
}

static bool is_in_bounds(const struct shunt_dispatcher_tree *tree, uint64_t program)
{
	/* A bit that no address had may change the unit of all compares. */
	return program >= tree->low && program <= tree->high && !((program & ~tree->bits) & (SHUNT_CHUNK_SIZE - 1));
}

int shunt_dispatcher_tree_change(const struct shunt_dispatcher *d, uint32_t at, const struct shunt_dispatcher_entry *added,
				 struct shunt_dispatcher_tree *out, struct shunt_part_change *change)
{
	const struct shunt_dispatcher_tree *old = &d->tree;
	struct part_programs programs = { .nr = 0 };
	struct hot hot = { .nr = 0 };
	const struct shunt_dispatcher_part *part;
	uint32_t first, nr, nr_after = d->nr_entries + (added ? 1 : -1u), done = 0;
	int err = 0;

	if (!old->nr_parts || nr_after < SHUNT_PARTS_FROM / 2 || nr_after < old->nr_parts * PART_MIN ||
	    (added && !is_in_bounds(old, added->program)))
		return 0;
	change->part = find_part(old, at, added != NULL, &first);
	part = &old->parts[change->part];
	for (uint32_t i = first; i < first + part->nr; i++) {
		if (added && i == at)
			add_program(&programs, added);
		if (added || i != at)
			add_program(&programs, &d->entries[i]);
	}
	if (added && at == first + part->nr)
		add_program(&programs, added);
	nr = programs.nr;
	change->nr_new = nr == 0 ? 0 : nr <= SHUNT_PLAN_PART_MAX ? 1 : 2;

	*out = (struct shunt_dispatcher_tree){ .low = old->low, .high = old->high, .bits = old->bits,
					       .nr_parts = old->nr_parts - 1 + change->nr_new };
	out->parts = malloc((size_t)out->nr_parts * sizeof(*out->parts));
	if (!out->parts)
		return shunt_fail(ENOMEM, "dispatcher '%s': no memory for a tree of %u parts", d->name, out->nr_parts);
	memcpy(out->parts, old->parts, change->part * sizeof(*out->parts));
	memcpy(out->parts + change->part + change->nr_new, part + 1, (old->nr_parts - change->part - 1) * sizeof(*out->parts));
	for (uint32_t i = 0; i < change->nr_new; i++)
		out->parts[change->part + i].block.id = 0;
	for (uint32_t i = 0; i < change->nr_new && !err; i++) {
		uint32_t end = nr * (i + 1) / change->nr_new;

		err = make_part(d, out, programs.programs + done, programs.words + done, end - done, &out->parts[change->part + i]);
		done = end;
	}
	/* A program that comes weighs 1. */
	if (!err && d->nr_weighted)
		hot = find_hot(d->entries, d->nr_entries, added ? UINT32_MAX : at, added ? 1 : UINT32_MAX);
	if (!err)
		err = make_head(d, &hot, out);
	if (err) {
		shunt_dispatcher_tree_abandon(out, change);
		return err;
	}
	return 1;
}

/* ---- giving back -------------------------------------------------------------------------------------------------- */

static void give_back(struct shunt_dispatcher_tree *tree, uint32_t first, uint32_t nr, int (*give)(const struct shunt_block *block))
{
	if (tree->block.id)
		give(&tree->block);
	for (uint32_t i = first; i < first + nr; i++)
		if (tree->parts[i].block.id)
			give(&tree->parts[i].block);
	free(tree->parts);
	*tree = (struct shunt_dispatcher_tree){ 0 };
}

void shunt_dispatcher_tree_abandon(struct shunt_dispatcher_tree *tree, const struct shunt_part_change *change)
{
	give_back(tree, change ? change->part : 0, change ? change->nr_new : tree->nr_parts, shunt_pack_abandon);
}

void shunt_dispatcher_tree_free(struct shunt_dispatcher_tree *tree, const struct shunt_part_change *change)
{
	give_back(tree, change ? change->part : 0, change ? 1 : tree->nr_parts, shunt_pack_free);
}

/* ---- pictures ----------------------------------------------------------------------------------------------------- */

static int plan_whole(const struct shunt_dispatcher *d, const uint64_t *programs, struct shunt_plan *out)
{
	uint32_t *last = malloc(d->tree.nr_parts * sizeof(*last));
	uint32_t hot_index[SHUNT_PLAN_HOT_MAX] = { 0 };
	uint32_t end = 0;
	struct hot hot;
	int err;

	if (!last)
		return shunt_fail(ENOMEM, "dispatcher '%s': no memory for the plan of %u parts", d->name, d->tree.nr_parts);
	for (uint32_t i = 0; i < d->tree.nr_parts; i++) {
		end += d->tree.parts[i].nr;
		last[i] = end - 1;
	}
	hot = find_hot(d->entries, d->nr_entries, UINT32_MAX, UINT32_MAX);
	for (uint32_t i = 0; i < hot.nr; i++)
		hot_index[i] = find_addr(programs, d->nr_entries, hot.programs[i]);
	err = shunt_plan_make_whole(programs, d->nr_entries, hot_index, hot.nr, last, d->tree.nr_parts, out);
	free(last);
	return err;
}

int shunt_dispatcher_plan(const struct shunt_dispatcher *dispatcher, uint64_t **programs, uint32_t **weights, struct shunt_plan *out)
{
	struct shunt_dispatcher_entry called[SHUNT_PLAN_HOT_MAX];
	uint32_t nr = dispatcher->tree.leaves_rare ? find_called(dispatcher, dispatcher->entries, dispatcher->nr_entries, called) : 0;
	int err = list_programs(dispatcher, nr ? called : dispatcher->entries, nr ? nr : dispatcher->nr_entries, true, programs, weights);

	if (err)
		return err;
	if (dispatcher->tree.nr_parts)
		err = plan_whole(dispatcher, *programs, out);
	else
		err = shunt_plan_make(dispatcher->kind, *programs, *weights, nr ? nr : dispatcher->nr_entries, out);
	if (err) {
		free(*programs);
		free(*weights);
	}
	return err;
}
