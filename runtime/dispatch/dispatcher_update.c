/* SPDX-License-Identifier: MIT */
/*
 * Attach, detach and replace: a new list of programs, a new tree in a new block, one patch of the stub, and the old tree to
 * the grace queue. Nothing of the dispatcher changes before the patch succeeded, and nothing can fail after it, so every call
 * is all or nothing. An old tree's bytes are never written here: they belong to the packs until every reader has left (two
 * updates in a row that land in the same memory is how the kernel's dispatcher crashed, commit 4121d4481b72).
 *
 * One program that comes to a large tree, or goes, changes the dispatcher's own list and a part of the tree instead.
 */
#include "runtime/dispatch/dispatcher.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/log.h"
#include "runtime/dispatch/dispatcher_tree.h"
#include "runtime/dispatch/hits.h"
#include "runtime/dispatch/miss.h"

struct entries {
	struct shunt_dispatcher_entry *list;
	uint32_t nr, room;
	bool is_changed; /* a program came or went: the tree is out of date */
	bool is_end;     /* the dispatcher goes: the idle tree will do, whatever its fallback is */
};

/* A copy of d's entries with room for nr_more. */
static int copy_entries(const struct shunt_dispatcher *d, size_t nr_more, struct entries *out)
{
	size_t nr = (size_t)d->nr_entries + nr_more;

	if (nr_more > UINT32_MAX / sizeof(*out->list) || nr >= UINT32_MAX)
		return shunt_fail(ENOMEM, "dispatcher '%s': %zu programs at once are too many", d->name, nr_more);
	*out = (struct entries){ .list = malloc((nr + 1) * sizeof(*out->list)), .nr = d->nr_entries, .room = (uint32_t)nr + 1 };
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
	entries->list[i] = (struct shunt_dispatcher_entry){ .program = addr, .count = count, .weight = weight, .word = SHUNT_NO_WORD };
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

static uint32_t count_weighted(const struct shunt_dispatcher_entry *list, uint32_t nr)
{
	uint32_t nr_weighted = 0;

	for (uint32_t i = 0; i < nr; i++)
		nr_weighted += (list[i].weight ? list[i].weight : list[i].count) != 1;
	return nr_weighted;
}

/* Makes entries d's: takes the list over when it returns 0, leaves d as it was otherwise. */
static int commit(struct shunt_dispatcher *d, const struct entries *entries)
{
	struct shunt_dispatcher_tree tree = { 0 }, old = d->tree;
	int err = 0;

	if (entries->is_changed) {
		if (d->hits)
			err = shunt_hits_assign(d->hits, d->entries, d->nr_entries, entries->list, entries->nr);
		if (err)
			return err;
		if (entries->nr || (d->fallback != d->idle_fallback && !entries->is_end))
			err = shunt_dispatcher_tree_make(d, entries->list, entries->nr, &tree);
		if (err)
			return err;
		err = shunt_patch_stub(&d->site, tree.block.id ? (uint64_t)(uintptr_t)tree.block.rx : d->idle);
		if (err) {
			shunt_dispatcher_tree_abandon(&tree, NULL);
			return err;
		}
		d->nr_patches++;
		d->tree = tree;
		/* After the patch: nobody who begins a read section from here on comes into the old tree. */
		shunt_dispatcher_tree_free(&old, NULL);
	}
	free(d->entries);
	d->entries = entries->list;
	d->nr_entries = entries->nr;
	d->room = entries->room;
	d->nr_weighted = count_weighted(entries->list, entries->nr);
	return 0;
}

int shunt_dispatcher_clear(struct shunt_dispatcher *dispatcher)
{
	struct entries none = { .is_end = true, .is_changed = dispatcher->tree.block.id != 0 || dispatcher->is_hook };

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

static int reserve_entry(struct shunt_dispatcher *d)
{
	uint32_t room = d->nr_entries + d->nr_entries / 2 + 16;
	struct shunt_dispatcher_entry *list;

	if (d->nr_entries < d->room)
		return 0;
	list = realloc(d->entries, room * sizeof(*list));
	if (!list)
		return shunt_fail(ENOMEM, "dispatcher '%s': no memory for a list of %u programs", d->name, room);
	d->entries = list;
	d->room = room;
	return 0;
}

/* Puts added in at index `at`, or (NULL) leaves the one there out: 1, 0 when the whole tree is to be made instead, or an error. */
static int change_one(struct shunt_dispatcher *d, uint32_t at, struct shunt_dispatcher_entry *added)
{
	struct shunt_dispatcher_tree tree, old = d->tree;
	struct shunt_part_change change;
	int done = added ? reserve_entry(d) : 0;
	int err;

	if (!done && added && d->hits)
		done = shunt_hits_assign(d->hits, d->entries, d->nr_entries, added, 1);
	if (!done)
		done = shunt_dispatcher_tree_change(d, at, added, &tree, &change);
	if (done <= 0)
		return done;
	err = shunt_patch_stub(&d->site, (uint64_t)(uintptr_t)tree.block.rx);
	if (err) {
		shunt_dispatcher_tree_abandon(&tree, &change);
		return err;
	}
	d->nr_patches++;
	d->tree = tree;
	shunt_dispatcher_tree_free(&old, &change);
	if (added) {
		memmove(&d->entries[at + 1], &d->entries[at], (d->nr_entries - at) * sizeof(*d->entries));
		d->entries[at] = *added;
		d->nr_entries++;
	} else {
		d->nr_weighted -= count_weighted(&d->entries[at], 1);
		d->nr_entries--;
		memmove(&d->entries[at], &d->entries[at + 1], (d->nr_entries - at) * sizeof(*d->entries));
	}
	return 1;
}

/* As attach_many of one, in a tree with parts; 0: not to be done like this. */
static int attach_to_part(struct shunt_dispatcher *d, const void *program)
{
	struct entries own = { .list = d->entries, .nr = d->nr_entries };
	struct shunt_dispatcher_entry added = { .program = (uint64_t)(uintptr_t)program, .count = 1, .word = SHUNT_NO_WORD };
	bool is_there;
	uint32_t at = find_entry(&own, added.program, &is_there);

	return is_there || !program ? 0 : change_one(d, at, &added);
}

static int detach_from_part(struct shunt_dispatcher *d, const void *program)
{
	struct entries own = { .list = d->entries, .nr = d->nr_entries };
	bool is_there;
	uint32_t at = find_entry(&own, (uint64_t)(uintptr_t)program, &is_there);

	return !is_there || d->entries[at].count > 1 ? 0 : change_one(d, at, NULL);
}

int shunt_dispatcher_attach_many(struct shunt_dispatcher *dispatcher, const void *const *programs, size_t nr)
{
	struct entries entries;
	int err = begin(dispatcher, programs, nr);
	int done = 0;

	if (err)
		return err;
	if (nr == 1 && dispatcher->tree.nr_parts)
		done = attach_to_part(dispatcher, programs[0]);
	if (done)
		err = done < 0 ? done : 0;
	else
		err = copy_entries(dispatcher, nr, &entries);
	if (!err && !done) {
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
	int done = 0;

	if (err)
		return err;
	if (nr == 1 && dispatcher->tree.nr_parts)
		done = detach_from_part(dispatcher, programs[0]);
	if (done)
		err = done < 0 ? done : 0;
	else
		err = copy_entries(dispatcher, 0, &entries);
	if (!err && !done) {
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

int shunt_dispatcher_count_hits(struct shunt_dispatcher *dispatcher, bool on)
{
	struct entries entries;
	struct shunt_hits *old;
	int err = begin(dispatcher, NULL, 0);

	if (err)
		return err;
	old = dispatcher->hits;
	if (on == (old != NULL))
		goto out;
	err = on ? shunt_hits_create(dispatcher->nr_entries, &dispatcher->hits) : 0;
	if (err)
		goto out;
	if (!on)
		dispatcher->hits = NULL;
	err = copy_entries(dispatcher, 0, &entries);
	if (!err) {
		for (uint32_t i = 0; i < entries.nr; i++)
			entries.list[i].word = SHUNT_NO_WORD;
		entries.is_changed = entries.nr > 0;
		err = finish(dispatcher, &entries, err);
	}
	if (!err && old) {
		shunt_hits_retire(old);
	} else if (err) {
		if (dispatcher->hits)
			shunt_hits_destroy(dispatcher->hits);
		dispatcher->hits = old;
	}
out:
	pthread_mutex_unlock(&dispatcher->mutex);
	return err;
}
