/* SPDX-License-Identifier: MIT */
/*
 * The registry of dispatchers and the life of each. Expected load: a handful to a few hundred dispatchers, looked up at
 * start-up and by front ends at link time, so a list does.
 */
#include "runtime/dispatch/dispatcher.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/dispatch/adopt.h"
#include "runtime/dispatch/dispatcher_tree.h"
#include "runtime/dispatch/hits.h"
#include "runtime/dispatch/hook.h"
#include "runtime/log.h"
#include "runtime/dispatch/miss.h"
#include "runtime/pack/pack.h"
#include "runtime/dispatch/plan.h"
#include "runtime/dispatch/token.h"

_Static_assert((int)SHUNT_MISS_JUMP == (int)SHUNT_FALLBACK_JUMP && (int)SHUNT_MISS_RETPOLINE == (int)SHUNT_FALLBACK_RETPOLINE &&
		       (int)SHUNT_MISS_LFENCE == (int)SHUNT_FALLBACK_LFENCE,
	       "public and internal fallback kinds are the same numbers");

static pthread_mutex_t registry_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct shunt_dispatcher *registry;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void lock_all(void)
{
	pthread_mutex_lock(&registry_mutex);
	for (struct shunt_dispatcher *d = registry; d; d = d->next)
		pthread_mutex_lock(&d->mutex);
	shunt_adopt_lock();
	shunt_token_lock();
}

static void unlock_all(void)
{
	shunt_token_unlock();
	shunt_adopt_unlock();
	for (struct shunt_dispatcher *d = registry; d; d = d->next)
		pthread_mutex_unlock(&d->mutex);
	pthread_mutex_unlock(&registry_mutex);
}

/* A fork's child must not find a lock held by a thread that it does not have, nor half a tree in memory that it copies. */
static struct shunt_fork_hooks fork_hooks = { .prepare = lock_all, .parent = unlock_all, .child = unlock_all };

static void handle_forks(void)
{
	shunt_fork_register(&fork_hooks);
}

static int is_name_char(char c, int is_first)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' || (!is_first && c >= '0' && c <= '9');
}

static int check_name(const char *name)
{
	size_t len;

	if (!name || !name[0])
		return shunt_fail(EINVAL, "a dispatcher needs a name");
	len = strnlen(name, SHUNT_DISPATCHER_NAME_MAX + 1);
	if (len > SHUNT_DISPATCHER_NAME_MAX)
		return shunt_fail(EINVAL, "dispatcher name '%.20s...' is longer than %u bytes", name, SHUNT_DISPATCHER_NAME_MAX);
	for (size_t i = 0; i < len; i++) {
		if (!is_name_char(name[i], i == 0))
			return shunt_fail(EINVAL, "dispatcher name '%s' is not a C identifier: look at byte %zu", name, i);
	}
	return 0;
}

static struct shunt_dispatcher *find_locked(const char *name)
{
	struct shunt_dispatcher *d = registry;

	while (d && strcmp(d->name, name) != 0)
		d = d->next;
	return d;
}

struct shunt_dispatcher *shunt_dispatcher_find_any(const char *name)
{
	struct shunt_dispatcher *d = NULL;

	if (!name)
		return NULL;
	pthread_mutex_lock(&registry_mutex);
	d = find_locked(name);
	pthread_mutex_unlock(&registry_mutex);
	return d;
}

struct shunt_dispatcher *shunt_dispatcher_find(const char *name)
{
	struct shunt_dispatcher *d = shunt_dispatcher_find_any(name);

	return d && !d->is_hook ? d : NULL;
}

int shunt_dispatcher_enter(struct shunt_dispatcher *dispatcher, const char *name)
{
	int err = check_name(name);

	if (err)
		return err;
	strcpy(dispatcher->name, name);
	pthread_mutex_lock(&registry_mutex);
	if (find_locked(name)) {
		err = shunt_fail(EEXIST, "a dispatcher or hook named '%s' exists already, shunt_dispatcher_find() or shunt_hook_find() returns it", name);
	} else {
		dispatcher->next = registry;
		registry = dispatcher;
		if (dispatcher->record)
			__atomic_store_n(&dispatcher->record->dispatcher, dispatcher, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&registry_mutex);
	return err;
}

void shunt_dispatcher_leave(struct shunt_dispatcher *dispatcher)
{
	pthread_mutex_lock(&registry_mutex);
	for (struct shunt_dispatcher **link = &registry; *link; link = &(*link)->next) {
		if (*link == dispatcher) {
			*link = dispatcher->next;
			break;
		}
	}
	if (dispatcher->record)
		__atomic_store_n(&dispatcher->record->dispatcher, NULL, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&registry_mutex);
}

void shunt_dispatcher_init(struct shunt_dispatcher *dispatcher, const struct shunt_dispatcher_options *options)
{
	pthread_once(&fork_once, handle_forks);
	if (options) {
		dispatcher->kind = options->plan;
		dispatcher->fallback = shunt_miss_resolve(options->miss);
		dispatcher->idle_fallback = dispatcher->fallback;
		dispatcher->arena = options->arena;
	}
	pthread_mutex_init(&dispatcher->mutex, NULL);
}

struct shunt_dispatcher *shunt_dispatcher_new(const struct shunt_dispatcher_options *options)
{
	struct shunt_dispatcher *d = calloc(1, sizeof(*d));

	if (d)
		shunt_dispatcher_init(d, options);
	return d;
}

void shunt_dispatcher_delete(struct shunt_dispatcher *dispatcher)
{
	if (dispatcher->hits)
		shunt_hits_retire(dispatcher->hits);
	pthread_mutex_destroy(&dispatcher->mutex);
	free(dispatcher->entries);
	free(dispatcher);
}

int shunt_dispatcher_make_word(struct shunt_dispatcher *dispatcher)
{
	uint64_t idle = dispatcher->slot + SHUNT_DISPATCHER_IDLE_OFFSET;
	int err;

	if (dispatcher->stub.rw != dispatcher->stub.rx)
		return 0;
	err = shunt_pack_alloc(dispatcher->arena, SHUNT_SEGMENT_DATA, sizeof(idle), 0, &dispatcher->word);
	if (!err)
		memcpy(dispatcher->word.rw, &idle, sizeof(idle));
	return err;
}

int shunt_dispatcher_emit_stub(const struct shunt_dispatcher *dispatcher, void *bytes, size_t capacity, uint64_t slot, int nr_args,
			       uint32_t *idle_len)
{
	static const struct shunt_plan_node fallback = { .op = SHUNT_PLAN_OP_FALLBACK };
	static const struct shunt_plan idle = { .nodes = &fallback, .nr_nodes = 1 };
	const struct shunt_target *target = shunt_target_host();
	bool by_word = dispatcher->word.id != 0;
	struct shunt_code code;

	if (by_word) {
		capacity = SHUNT_DISPATCHER_JUMP_OFFSET;
		shunt_code_init(&code, (char *)bytes + capacity, SHUNT_STUB_LEN, slot + capacity);
		target->emit_word_jump(&code, (uint64_t)(uintptr_t)dispatcher->word.rx);
		if (code.error)
			return shunt_fail(-code.error, "dispatcher '%s': the word that its stub jumps through is out of reach", dispatcher->name);
	}
	shunt_code_init(&code, bytes, capacity, slot);
	target->emit_stub(&code, slot + (by_word ? SHUNT_DISPATCHER_JUMP_OFFSET : SHUNT_DISPATCHER_IDLE_OFFSET));
	/* A hook is called at the slot itself; the room of the C entry keeps its traps. */
	if (nr_args >= 0 && !dispatcher->is_hook)
		target->emit_c_entry(&code, (unsigned int)nr_args, slot);
	if (code.error || code.len > SHUNT_DISPATCHER_IDLE_OFFSET || capacity < SHUNT_DISPATCHER_IDLE_OFFSET)
		return shunt_fail(EINVAL, "dispatcher '%s': a stub for %d arguments cannot be made", dispatcher->name, nr_args);
	shunt_code_init(&code, (char *)bytes + SHUNT_DISPATCHER_IDLE_OFFSET, capacity - SHUNT_DISPATCHER_IDLE_OFFSET,
			slot + SHUNT_DISPATCHER_IDLE_OFFSET);
	if (dispatcher->is_hook)
		target->emit_return(&code, 0);
	else
		target->emit_tree(&code, &idle, dispatcher->idle_fallback);
	if (code.error)
		return shunt_fail(-code.error, "dispatcher '%s': its fallback does not fit %zu bytes", dispatcher->name, capacity);
	*idle_len = (uint32_t)code.len;
	return 0;
}

int shunt_dispatcher_set_ready(struct shunt_dispatcher *dispatcher, uint32_t idle_len)
{
	dispatcher->site.slot = dispatcher->slot;
	dispatcher->site.by_data = dispatcher->word.id != 0;
	dispatcher->site.rw = dispatcher->site.by_data ? dispatcher->word.rw : dispatcher->stub.rw;
	dispatcher->idle = dispatcher->slot + SHUNT_DISPATCHER_IDLE_OFFSET;
	dispatcher->idle_len = idle_len;
	dispatcher->site.word = dispatcher->idle;
	if (!dispatcher->site.by_data && shunt_target_host()->encode_stub_word(dispatcher->slot, dispatcher->idle, &dispatcher->site.word) < 0)
		return shunt_fail(ERANGE, "dispatcher '%s': its idle tree is out of reach of its stub", dispatcher->name);
	dispatcher->is_ready = true;
	return 0;
}

static void abandon_stub(struct shunt_dispatcher *d)
{
	if (d->word.id)
		shunt_pack_abandon(&d->word);
	shunt_pack_abandon(&d->stub);
}

/* The stub of a dispatcher that no host image defines: one block of its arena. */
static int make_stub(struct shunt_dispatcher *d)
{
	uint32_t idle_len;
	int err = shunt_pack_alloc(d->arena, SHUNT_SEGMENT_CODE, 2 * SHUNT_CHUNK_SIZE, 0, &d->stub);

	if (err)
		return err;
	d->slot = (uint64_t)(uintptr_t)d->stub.rx;
	err = shunt_dispatcher_make_word(d);
	if (!err)
		err = shunt_dispatcher_emit_stub(d, d->stub.rw, d->stub.len, d->slot, -1, &idle_len);
	if (!err)
		/* Most fallbacks are a jump; only a long one needs the second chunk. */
		err = shunt_pack_shrink(&d->stub, d->word.id ? d->stub.len : SHUNT_DISPATCHER_IDLE_OFFSET + idle_len);
	if (!err)
		err = shunt_pack_finalize(&d->stub, 1);
	if (!err)
		err = shunt_dispatcher_set_ready(d, idle_len);
	if (err)
		abandon_stub(d);
	return err;
}

int shunt_dispatcher_create(const char *name, const struct shunt_dispatcher_options *options, struct shunt_dispatcher **out)
{
	struct shunt_dispatcher *d;
	int err = check_name(name);

	if (err)
		return err;
	if (!out)
		return shunt_fail(EINVAL, "dispatcher '%s': there is no pointer to return it by", name);
	if (options && ((unsigned int)options->plan > SHUNT_PLAN_WEIGHTED || (unsigned int)options->miss > SHUNT_MISS_AUTO))
		return shunt_fail(EINVAL, "dispatcher '%s': plan %u or miss %u does not exist", name, (unsigned int)options->plan,
				  (unsigned int)options->miss);
	d = shunt_dispatcher_new(options);
	if (!d)
		return shunt_fail(ENOMEM, "no memory for dispatcher '%s'", name);
	err = shunt_dispatcher_start(d, name);
	if (err) {
		shunt_dispatcher_delete(d);
		return err;
	}
	*out = d;
	return 0;
}

int shunt_dispatcher_start(struct shunt_dispatcher *dispatcher, const char *name)
{
	int err = check_name(name);

	if (err)
		return err;
	strcpy(dispatcher->name, name);
	err = make_stub(dispatcher);
	if (err)
		return err;
	/* Visible to others from here on, so complete. */
	err = shunt_dispatcher_enter(dispatcher, name);
	if (err)
		abandon_stub(dispatcher);
	return err;
}

int shunt_dispatcher_destroy(struct shunt_dispatcher *dispatcher)
{
	if (!dispatcher)
		return shunt_fail(EINVAL, "there is no dispatcher to destroy");
	return shunt_dispatcher_end(dispatcher);
}

int shunt_dispatcher_end(struct shunt_dispatcher *dispatcher)
{
	const char *what = dispatcher->is_hook ? "hook" : "dispatcher";
	uint32_t nr_programs;

	if (dispatcher->record)
		return shunt_fail(EPERM, "%s '%s' is part of a program or library and goes with it", what, dispatcher->name);
	pthread_mutex_lock(&dispatcher->mutex);
	nr_programs = dispatcher->is_hook ? shunt_hook_nr_programs(dispatcher) : dispatcher->nr_entries;
	pthread_mutex_unlock(&dispatcher->mutex);
	if (nr_programs)
		return shunt_fail(EBUSY, "%s '%s' has %u programs attached, detach them first", what, dispatcher->name, nr_programs);
	shunt_dispatcher_leave(dispatcher);
	/* By the caller's word nobody is in it; the grace period costs nothing here. */
	shunt_dispatcher_tree_free(&dispatcher->tree, NULL);
	shunt_pack_free(&dispatcher->stub);
	if (dispatcher->word.id)
		shunt_pack_free(&dispatcher->word);
	shunt_dispatcher_delete(dispatcher);
	return 0;
}

const void *shunt_dispatcher_stub(const struct shunt_dispatcher *dispatcher)
{
	return dispatcher ? (const void *)(uintptr_t)dispatcher->slot : NULL;
}

struct shunt_arena *shunt_dispatcher_arena(struct shunt_dispatcher *dispatcher)
{
	struct shunt_arena *arena = NULL;

	if (!dispatcher) {
		shunt_fail(EINVAL, "there is no dispatcher to ask for its arena");
		return NULL;
	}
	pthread_mutex_lock(&dispatcher->mutex);
	if (shunt_dispatcher_adopt(dispatcher) == 0) {
		arena = dispatcher->arena;
		if (!arena)
			shunt_arena_default(&arena);
	}
	pthread_mutex_unlock(&dispatcher->mutex);
	return arena;
}

void shunt_dispatcher_get_stats(const struct shunt_dispatcher *dispatcher, struct shunt_dispatcher_stats *out)
{
	/* The mutex is the one part of a const dispatcher that a reader changes. */
	struct shunt_dispatcher *d = (struct shunt_dispatcher *)dispatcher;

	memset(out, 0, sizeof(*out));
	if (!d)
		return;
	pthread_mutex_lock(&d->mutex);
	out->nr_programs = d->nr_entries;
	out->nr_attaches = d->nr_attaches;
	out->nr_detaches = d->nr_detaches;
	out->nr_patches = d->nr_patches;
	out->stub = (const void *)(uintptr_t)d->slot;
	out->plan = d->kind;
	out->miss = (enum shunt_miss_kind)d->fallback;
	out->counts_hits = d->hits != NULL;
	out->leaves_rare = d->tree.leaves_rare;
	if (d->tree.block.id) {
		out->tree = d->tree.block.rx;
		out->tree_len = d->tree.len;
		out->head_len = d->tree.head_len;
		out->nr_parts = d->tree.nr_parts;
		out->tree_depth = d->tree.depth;
	} else {
		out->tree = (const void *)(uintptr_t)(d->slot + SHUNT_DISPATCHER_IDLE_OFFSET);
		out->tree_len = d->idle_len;
		out->head_len = d->idle_len;
	}
	pthread_mutex_unlock(&d->mutex);
}

int shunt_dispatcher_each_code(struct shunt_dispatcher *dispatcher, shunt_code_fn *fn, void *user)
{
	const struct shunt_dispatcher_tree *tree;
	int result;

	if (!dispatcher || !fn)
		return shunt_fail(EINVAL, "code is shown of a dispatcher, to a function");
	pthread_mutex_lock(&dispatcher->mutex);
	tree = &dispatcher->tree;
	if (tree->block.id)
		result = fn(user, tree->block.rx, tree->head_len);
	else
		result = fn(user, (const void *)(uintptr_t)(dispatcher->slot + SHUNT_DISPATCHER_IDLE_OFFSET), dispatcher->idle_len);
	for (uint32_t i = 0; i < tree->nr_parts && !result; i++)
		result = fn(user, tree->parts[i].block.rx, tree->parts[i].len);
	pthread_mutex_unlock(&dispatcher->mutex);
	return result;
}

size_t shunt_dispatcher_get_programs(struct shunt_dispatcher *dispatcher, struct shunt_dispatcher_program *out, size_t nr)
{
	size_t nr_programs;

	if (!dispatcher)
		return 0;
	pthread_mutex_lock(&dispatcher->mutex);
	nr_programs = dispatcher->nr_entries;
	for (size_t i = 0; i < nr_programs && i < nr; i++) {
		const struct shunt_dispatcher_entry *entry = &dispatcher->entries[i];

		out[i] = (struct shunt_dispatcher_program){ .program = (const void *)(uintptr_t)entry->program, .nr_attached = entry->count,
							    .weight = entry->weight };
		if (dispatcher->hits)
			out[i].nr_hits = shunt_hits_of(dispatcher->hits, entry->word);
	}
	pthread_mutex_unlock(&dispatcher->mutex);
	return nr_programs;
}
