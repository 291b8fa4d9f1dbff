/* SPDX-License-Identifier: MIT */
/*
 * Attach, detach and replace: a new list of programs, a new tree in a new block, one patch of the stub, and the old tree to
 * the grace queue. Nothing of the dispatcher changes before the patch succeeded, and nothing can fail after it, so every call
 * is all or nothing. An old tree's bytes are never written here: they belong to the packs until every reader has left (two
 * updates in a row that land in the same memory is how the kernel's dispatcher crashed, commit 4121d4481b72).
 *
 * The tree is generated for the address where it runs and written at the other view's: displacements computed for the wrong
 * view only show when the two lie far apart.
 */
#include "runtime/dispatch/dispatcher.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/log.h"
#include "runtime/dispatch/miss.h"
#include "runtime/dispatch/plan.h"

struct entries {
	struct shunt_dispatcher_entry *list;
	uint32_t nr;
	bool is_changed; /* a program came or went: the tree is out of date */
	bool is_end;     /* the dispatcher goes: the idle tree will do, whatever its fallback is */
};

/* A copy of d's entries with room for nr_more. */
static int copy_entries(const struct shunt_dispatcher *d, size_t nr_more, struct entries *out)
{
	size_t nr = (size_t)d->nr_entries + nr_more;

	if (nr_more > UINT32_MAX / sizeof(*out->list) || nr > UINT32_MAX)
		return shunt_fail(ENOMEM, "dispatcher '%s': %zu programs at once are too many", d->name, nr_more);
	*out = (struct entries){ .list = malloc((nr + 1) * sizeof(*out->list)), .nr = d->nr_entries };
	if (!out->list)
		return shunt_fail(ENOMEM, "dispatcher '%s': no memory for a list of %zu programs", d->name, nr);
	if (d->nr_entries)
		memcpy(out->list, d->entries, d->nr_entries * sizeof(*out->list));
	return 0;
}

/* Index of program, or of the place where it belongs. */
static uint32_t find_entry(const struct entries *entries, uint64_t program, bool *is_there)
{
	uint32_t low = 0, high = entries->nr;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (entries->list[middle].program < program)
			low = middle + 1;
		else
			high = middle;
	}
	*is_there = low < entries->nr && entries->list[low].program == program;
	return low;
}

static int add_entry(const struct shunt_dispatcher *d, struct entries *entries, const void *program, uint32_t count, uint32_t weight)
{
	uint64_t addr = (uint64_t)(uintptr_t)program;
	bool is_there;
	uint32_t i = find_entry(entries, addr, &is_there);

	if (!program)
		return shunt_fail(EINVAL, "dispatcher '%s': NULL is not a program", d->name);
	if (is_there) {
		if (entries->list[i].count > UINT32_MAX - count)
			return shunt_fail(EINVAL, "dispatcher '%s': program %p is attached too often to count", d->name, program);
		entries->list[i].count += count;
		if (weight)
			entries->list[i].weight = weight;
		return 0;
	}
	memmove(&entries->list[i + 1], &entries->list[i], (entries->nr - i) * sizeof(*entries->list));
	entries->list[i] = (struct shunt_dispatcher_entry){ .program = addr, .count = count, .weight = weight };
	entries->nr++;
	entries->is_changed = true;
	return 0;
}

/* Takes up to count attachments of program back; *taken is what they were. */
static int drop_entry(const struct shunt_dispatcher *d, struct entries *entries, const void *program, uint32_t count,
		      struct shunt_dispatcher_entry *taken)
{
	bool is_there;
	uint32_t i = find_entry(entries, (uint64_t)(uintptr_t)program, &is_there);

	if (!is_there)
		return shunt_fail(ENOENT, "dispatcher '%s': program %p is not attached", d->name, program);
	*taken = entries->list[i];
	if (entries->list[i].count > count) {
		entries->list[i].count -= count;
		taken->count = count;
		return 0;
	}
	entries->nr--;
	memmove(&entries->list[i], &entries->list[i + 1], (entries->nr - i) * sizeof(*entries->list));
	entries->is_changed = true;
	return 0;
}

struct tree {
	struct shunt_block block;
	uint32_t len;
	uint32_t depth;
};

static int fail_tree(const struct shunt_dispatcher *d, int err, const struct shunt_plan *plan)
{
	const struct shunt_target *target = shunt_target_host();

	if (err == -ERANGE)
		return shunt_fail(ERANGE, "dispatcher '%s': a program between %#llx and %#llx is out of direct reach (%lld MiB) of "
				  "its arena, place it in shunt_dispatcher_arena() or call it unattached", d->name,
				  (unsigned long long)plan->programs[0], (unsigned long long)plan->programs[plan->nr_programs - 1],
				  (long long)(target->branch_reach >> 20));
	return shunt_fail(-err, "dispatcher '%s': no tree over %u programs could be made", d->name, plan->nr_programs);
}

/* Length first: it does not depend on where the tree will lie (targets/tree.h), so the block fits to the chunk. */
static int emit_tree(const struct shunt_dispatcher *d, const struct shunt_plan *plan, struct tree *out)
{
	const struct shunt_target *target = shunt_target_host();
	struct shunt_code code;
	int err;

	shunt_code_init(&code, NULL, 0, 0);
	target->emit_tree(&code, plan, d->fallback);
	if (code.error && code.error != -ERANGE)
		return fail_tree(d, code.error, plan);
	err = shunt_pack_alloc(d->arena, SHUNT_SEGMENT_CODE, code.len, 0, &out->block);
	if (err)
		return err;
	shunt_code_init(&code, out->block.rw, out->block.len, (uint64_t)(uintptr_t)out->block.rx);
	target->emit_tree(&code, plan, d->fallback);
	err = code.error ? fail_tree(d, code.error, plan) : shunt_pack_finalize(&out->block, 1);
	if (err) {
		shunt_pack_abandon(&out->block);
		out->block.id = 0;
		return err;
	}
	out->len = (uint32_t)code.len;
	out->depth = plan->depth;
	return 0;
}

static int make_plan(const struct shunt_dispatcher *d, const struct shunt_dispatcher_entry *list, uint32_t nr, uint64_t **programs,
		     uint32_t **weights, struct shunt_plan *plan)
{
	int err;

	*programs = malloc(((size_t)nr + 1) * sizeof(**programs));
	*weights = malloc(((size_t)nr + 1) * sizeof(**weights));
	if (!*programs || !*weights) {
		err = shunt_fail(ENOMEM, "dispatcher '%s': no memory for the plan of %u programs", d->name, nr);
	} else {
		for (uint32_t i = 0; i < nr; i++) {
			(*programs)[i] = list[i].program;
			(*weights)[i] = list[i].weight ? list[i].weight : list[i].count;
		}
		err = shunt_plan_make(d->kind, *programs, *weights, nr, plan);
	}
	if (err) {
		free(*programs);
		free(*weights);
		*programs = NULL;
		*weights = NULL;
	}
	return err;
}

int shunt_dispatcher_plan(const struct shunt_dispatcher *dispatcher, uint64_t **programs, uint32_t **weights, struct shunt_plan *out)
{
	return make_plan(dispatcher, dispatcher->entries, dispatcher->nr_entries, programs, weights, out);
}

static int build_tree(const struct shunt_dispatcher *d, const struct entries *entries, struct tree *out)
{
	uint64_t *programs;
	uint32_t *weights;
	struct shunt_plan plan;
	int err = make_plan(d, entries->list, entries->nr, &programs, &weights, &plan);

	if (err)
		return err;
	err = emit_tree(d, &plan, out);
	shunt_plan_fini(&plan);
	free(programs);
	free(weights);
	return err;
}

/* Makes entries d's: takes the list over when it returns 0, leaves d as it was otherwise. */
static int commit(struct shunt_dispatcher *d, const struct entries *entries)
{
	struct tree tree = { 0 };
	struct shunt_block old = d->tree;
	int err;

	if (entries->is_changed) {
		err = entries->nr || (d->fallback != d->idle_fallback && !entries->is_end) ? build_tree(d, entries, &tree) : 0;
		if (err)
			return err;
		err = shunt_patch_stub(&d->site, tree.block.id ? (uint64_t)(uintptr_t)tree.block.rx : d->idle);
		if (err) {
			if (tree.block.id)
				shunt_pack_abandon(&tree.block);
			return err;
		}
		d->nr_patches++;
		d->tree = tree.block;
		d->tree_len = tree.len;
		d->tree_depth = tree.depth;
		/* After the patch: nobody who begins a read section from here on comes into the old tree. */
		if (old.id)
			shunt_pack_free(&old);
	}
	free(d->entries);
	d->entries = entries->list;
	d->nr_entries = entries->nr;
	return 0;
}

int shunt_dispatcher_clear(struct shunt_dispatcher *dispatcher)
{
	struct entries none = { .is_end = true, .is_changed = dispatcher->tree.id != 0 || dispatcher->is_hook };

	return commit(dispatcher, &none);
}

static int begin(struct shunt_dispatcher *d, const void *const *programs, size_t nr)
{
	int err;

	if (!d)
		return shunt_fail(EINVAL, "there is no dispatcher: none of that name was made, or its definition was refused");
	if (nr && !programs)
		return shunt_fail(EINVAL, "dispatcher '%s': there is no list of %zu programs", d->name, nr);
	pthread_mutex_lock(&d->mutex);
	err = shunt_dispatcher_adopt(d);
	if (err)
		pthread_mutex_unlock(&d->mutex);
	return err;
}

static int finish(struct shunt_dispatcher *d, struct entries *entries, int err)
{
	if (!err)
		err = commit(d, entries);
	if (err)
		free(entries->list);
	return err;
}

int shunt_dispatcher_attach_many(struct shunt_dispatcher *dispatcher, const void *const *programs, size_t nr)
{
	struct entries entries;
	int err = begin(dispatcher, programs, nr);

	if (err)
		return err;
	err = copy_entries(dispatcher, nr, &entries);
	if (!err) {
		for (size_t i = 0; i < nr && !err; i++)
			err = add_entry(dispatcher, &entries, programs[i], 1, 0);
		err = finish(dispatcher, &entries, err);
	}
	if (!err)
		dispatcher->nr_attaches += nr;
	pthread_mutex_unlock(&dispatcher->mutex);
	return err;
}

int shunt_dispatcher_detach_many(struct shunt_dispatcher *dispatcher, const void *const *programs, size_t nr)
{
	struct shunt_dispatcher_entry taken;
	struct entries entries;
	int err = begin(dispatcher, programs, nr);

	if (err)
		return err;
	err = copy_entries(dispatcher, 0, &entries);
	if (!err) {
		for (size_t i = 0; i < nr && !err; i++)
			err = drop_entry(dispatcher, &entries, programs[i], 1, &taken);
		err = finish(dispatcher, &entries, err);
	}
	if (!err)
		dispatcher->nr_detaches += nr;
	pthread_mutex_unlock(&dispatcher->mutex);
	return err;
}

int shunt_dispatcher_attach(struct shunt_dispatcher *dispatcher, const void *program)
{
	return shunt_dispatcher_attach_many(dispatcher, &program, 1);
}

int shunt_dispatcher_detach(struct shunt_dispatcher *dispatcher, const void *program)
{
	return shunt_dispatcher_detach_many(dispatcher, &program, 1);
}

int shunt_dispatcher_replace(struct shunt_dispatcher *dispatcher, const void *from, const void *to)
{
	struct shunt_dispatcher_entry taken = { 0 };
	struct entries entries;
	bool is_there;
	int err = begin(dispatcher, &from, 1);

	if (err)
		return err;
	err = copy_entries(dispatcher, 1, &entries);
	if (!err) {
		if (from == to) {
			find_entry(&entries, (uint64_t)(uintptr_t)from, &is_there);
			if (!is_there)
				err = shunt_fail(ENOENT, "dispatcher '%s': program %p is not attached", dispatcher->name, from);
		} else {
			err = drop_entry(dispatcher, &entries, from, UINT32_MAX, &taken);
			if (!err)
				err = add_entry(dispatcher, &entries, to, taken.count, taken.weight);
		}
		err = finish(dispatcher, &entries, err);
	}
	if (!err && from != to) {
		dispatcher->nr_attaches += taken.count;
		dispatcher->nr_detaches += taken.count;
	}
	pthread_mutex_unlock(&dispatcher->mutex);
	return err;
}

int shunt_dispatcher_set_weights(struct shunt_dispatcher *dispatcher, const void *const *programs, const uint32_t *weights, size_t nr)
{
	struct entries entries;
	int err = begin(dispatcher, programs, nr);

	if (err)
		return err;
	if (nr && !weights)
		err = shunt_fail(EINVAL, "dispatcher '%s': there is no list of %zu weights", dispatcher->name, nr);
	else
		err = copy_entries(dispatcher, 0, &entries);
	if (!err) {
		for (size_t i = 0; i < nr && !err; i++) {
			bool is_there;
			uint32_t at = find_entry(&entries, (uint64_t)(uintptr_t)programs[i], &is_there);

			if (!is_there) {
				err = shunt_fail(ENOENT, "dispatcher '%s': program %p is not attached, it cannot be given a weight",
						 dispatcher->name, programs[i]);
				break;
			}
			entries.is_changed |= entries.list[at].weight != weights[i];
			entries.list[at].weight = weights[i];
		}
		err = finish(dispatcher, &entries, err);
	}
	pthread_mutex_unlock(&dispatcher->mutex);
	return err;
}

int shunt_dispatcher_set_plan(struct shunt_dispatcher *dispatcher, enum shunt_plan_kind plan, enum shunt_miss_kind miss)
{
	struct entries entries;
	enum shunt_plan_kind old_kind;
	enum shunt_fallback old_fallback;
	int err;

	if ((unsigned int)plan > SHUNT_PLAN_WEIGHTED || (unsigned int)miss > SHUNT_MISS_AUTO)
		return shunt_fail(EINVAL, "plan %u or miss %u does not exist", (unsigned int)plan, (unsigned int)miss);
	err = begin(dispatcher, NULL, 0);
	if (err)
		return err;
	old_kind = dispatcher->kind;
	old_fallback = dispatcher->fallback;
	dispatcher->kind = plan;
	dispatcher->fallback = shunt_miss_resolve(miss);
	err = copy_entries(dispatcher, 0, &entries);
	if (!err) {
		entries.is_changed = plan != old_kind || dispatcher->fallback != old_fallback;
		err = finish(dispatcher, &entries, err);
	}
	if (err) {
		dispatcher->kind = old_kind;
		dispatcher->fallback = old_fallback;
	}
	pthread_mutex_unlock(&dispatcher->mutex);
	return err;
}
