/* SPDX-License-Identifier: MIT */
/*
 * Hooks. A hook is a dispatcher's stub without a tree: name, page, adoption, patching and the end of an image's stub are
 * dispatcher.c's and adopt.c's, under the same locks. What differs is where the stub jumps: to the one program, to a chain of calls, or to
 * code that returns at once.
 *
 * A program out of direct reach of the code that jumps to it is reached by a veneer, an absolute jump in a block of the hook's.
 *
 * A chain's code is on the stack of whoever it called, so it lives as its programs do: until the read sections that were open when it was
 * replaced have ended. Its block goes through shunt_pack_free, which waits for them.
 */
#include "runtime/dispatch/hook.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/log.h"
#include "runtime/pack/pack.h"
#include "runtime/dispatch/token.h"
#include "targets/chain.h"

#define VENEER_LEN 32u /* at most, by targets/target.h; a multiple of what its address is one of */

struct hook_program {
	uint64_t program;
	uint64_t continue_on;
	int32_t priority;
};

struct shunt_hook {
	struct shunt_dispatcher base; /* first: the registry's view */
	bool multi;
	uint32_t nr_args;
	uint32_t ret_len;
	uint64_t verdict;
	uint32_t nr_veneers;
	uint32_t nr_programs;
	struct hook_program programs[SHUNT_HOOK_PROGRAMS_MAX]; /* by priority */
};

/* What a change leads to; the hook itself stays as it is until the patch is done. */
struct change {
	struct hook_program programs[SHUNT_HOOK_PROGRAMS_MAX];
	uint32_t nr;
	uint64_t verdict;
};

static struct shunt_hook *hook_of(struct shunt_dispatcher *d)
{
	return d && d->is_hook ? (struct shunt_hook *)d : NULL;
}

static struct shunt_hook *make_hook(bool multi, uint32_t nr_args, uint32_t ret_len, struct shunt_arena *arena)
{
	struct shunt_hook *hook = calloc(1, sizeof(*hook));

	if (!hook)
		return NULL;
	shunt_dispatcher_init(&hook->base, NULL);
	hook->base.is_hook = true;
	hook->base.arena = arena;
	hook->multi = multi;
	hook->nr_args = nr_args;
	hook->ret_len = ret_len;
	return hook;
}

static int check_shape(const char *name, bool multi, uint32_t nr_args, uint32_t ret_len)
{
	unsigned int max = shunt_target_host()->max_c_args + 1;

	if (multi && (nr_args > max || (ret_len != 1 && ret_len != 2 && ret_len != 4 && ret_len != 8)))
		return shunt_fail(EINVAL, "multi-hook '%s': %u arguments and a result of %u bytes cannot be, at most %u arguments and 1, 2, 4 or 8 bytes "
				  "can", name, nr_args, ret_len, max);
	return 0;
}

int shunt_hook_create(const char *name, const struct shunt_hook_options *options, struct shunt_hook **out)
{
	static const struct shunt_hook_options none = { 0 };
	struct shunt_hook *hook;
	int err;

	if (!options)
		options = &none;
	if (!name || !out)
		return shunt_fail(EINVAL, "a hook needs a name and a pointer to return it by");
	err = check_shape(name, options->multi, options->nr_args, options->ret_len);
	if (err)
		return err;
	hook = make_hook(options->multi, options->nr_args, options->ret_len, options->arena);
	if (!hook)
		return shunt_fail(ENOMEM, "no memory for hook '%s'", name);
	err = shunt_dispatcher_start(&hook->base, name);
	if (err) {
		shunt_dispatcher_delete(&hook->base);
		return err;
	}
	*out = hook;
	return 0;
}

int shunt_hook_destroy(struct shunt_hook *hook)
{
	if (!hook)
		return shunt_fail(EINVAL, "there is no hook to destroy");
	return shunt_dispatcher_end(&hook->base);
}

int shunt_hook_register(struct shunt_hook_record *record)
{
	struct shunt_hook *hook;
	int err;

	if (record->base.layout != SHUNT_HOOK_LAYOUT)
		return shunt_fail(EINVAL, "hook '%s': stub layout %u is not known here, build the image with this library's headers",
				  record->base.name, record->base.layout);
	err = check_shape(record->base.name, record->multi, record->base.nr_args, record->ret_len);
	if (err)
		return err;
	if (__atomic_load_n(&record->base.dispatcher, __ATOMIC_ACQUIRE))
		return 0;
	hook = make_hook(record->multi, record->base.nr_args, record->ret_len, NULL);
	if (!hook)
		return shunt_fail(ENOMEM, "no memory for hook '%s'", record->base.name);
	return shunt_dispatcher_enrol(&hook->base, &record->base);
}

struct shunt_hook *shunt_hook_of(struct shunt_hook_record *record)
{
	struct shunt_dispatcher *d = __atomic_load_n(&record->base.dispatcher, __ATOMIC_ACQUIRE);

	if (!d && shunt_hook_register(record) == 0)
		d = __atomic_load_n(&record->base.dispatcher, __ATOMIC_ACQUIRE);
	return hook_of(d);
}

struct shunt_hook *shunt_hook_find(const char *name)
{
	return hook_of(shunt_dispatcher_find_any(name));
}

const void *shunt_hook_entry(const struct shunt_hook *hook)
{
	return hook ? (const void *)(uintptr_t)hook->base.slot : NULL;
}

struct shunt_arena *shunt_hook_arena(struct shunt_hook *hook)
{
	return shunt_dispatcher_arena(hook ? &hook->base : NULL);
}

/* What leads from the entry to the programs. */
struct hook_code {
	struct shunt_block block; /* id 0: nothing, the entry jumps to the program itself */
	uint32_t len;
	uint32_t nr_veneers;
};

/* With room for displacements within the code and for what instructions take themselves; a veneer too many is only slower. */
static bool is_far(const struct shunt_block *block, uint32_t len, uint64_t program)
{
	int64_t reach = shunt_target_host()->branch_reach - SHUNT_CHUNK_SIZE;
	int64_t disp = (int64_t)(program - (uint64_t)(uintptr_t)block->rx);

	return disp < -reach + (int64_t)len || disp >= reach;
}

/* An absolute jump at `offset` of the block; returns its address. */
static uint64_t emit_veneer(const struct shunt_block *block, uint32_t offset, uint64_t program)
{
	uint64_t addr = (uint64_t)(uintptr_t)block->rx + offset;
	struct shunt_code code;

	shunt_code_init(&code, (char *)block->rw + offset, VENEER_LEN, addr);
	shunt_target_host()->emit_veneer(&code, program);
	return addr;
}

/* A veneer for the one program of a hook. */
static int make_veneer(const struct shunt_hook *hook, uint64_t program, struct hook_code *out)
{
	int err = shunt_pack_alloc(hook->base.arena, SHUNT_SEGMENT_CODE, VENEER_LEN, 0, &out->block);

	if (err)
		return err;
	emit_veneer(&out->block, 0, program);
	out->len = VENEER_LEN;
	out->nr_veneers = 1;
	err = shunt_pack_finalize(&out->block, 1);
	if (err)
		shunt_pack_abandon(&out->block);
	return err;
}

/* A block for a chain of len bytes, and for veneers behind it when it turns out to lie too far from a program. */
static int alloc_chain(const struct shunt_hook *hook, const struct change *change, uint32_t len, struct shunt_block *block)
{
	bool any_far = false;
	int err = shunt_pack_alloc(hook->base.arena, SHUNT_SEGMENT_CODE, len, 0, block);

	if (err)
		return err;
	for (uint32_t i = 0; i < change->nr; i++)
		any_far |= is_far(block, len, change->programs[i].program);
	if (!any_far)
		return 0;
	shunt_pack_abandon(block);
	/* For all of them: the next block may lie further away. */
	return shunt_pack_alloc(hook->base.arena, SHUNT_SEGMENT_CODE, len + VENEER_LEN + (size_t)change->nr * VENEER_LEN, 0, block);
}

/* Bytes that call every program in turn. */
static int make_chain(const struct shunt_hook *hook, const struct change *change, struct hook_code *out)
{
	struct shunt_chain_link links[SHUNT_HOOK_PROGRAMS_MAX];
	struct shunt_chain chain = { .links = links, .nr_links = change->nr, .nr_args = hook->nr_args, .ret_len = hook->ret_len,
				     .verdict = change->verdict };
	const struct shunt_target *target = shunt_target_host();
	struct shunt_block *block = &out->block;
	struct shunt_code code;
	int err;

	for (uint32_t i = 0; i < change->nr; i++)
		links[i] = (struct shunt_chain_link){ .program = change->programs[i].program,
						      .continue_on = change->programs[i].continue_on };
	shunt_code_init(&code, NULL, 0, 0);
	target->emit_chain(&code, &chain);
	out->len = (uint32_t)code.len;
	err = alloc_chain(hook, change, out->len, block);
	if (err)
		return err;
	for (uint32_t i = 0; i < change->nr; i++) {
		uint32_t veneers = (uint32_t)(code.len + VENEER_LEN - 1) & ~(VENEER_LEN - 1);

		if (is_far(block, (uint32_t)code.len, links[i].program)) {
			links[i].program = emit_veneer(block, veneers + out->nr_veneers++ * VENEER_LEN, links[i].program);
			out->len = veneers + out->nr_veneers * VENEER_LEN;
		}
	}
	shunt_code_init(&code, block->rw, block->len, (uint64_t)(uintptr_t)block->rx);
	target->emit_chain(&code, &chain);
	err = code.error ? shunt_fail(-code.error, "hook '%s': the code over its programs could not be made", hook->base.name)
			 : shunt_pack_finalize(block, 1);
	if (err)
		shunt_pack_abandon(block);
	return err;
}

/* Code for the programs of a change, where any is needed, and what the entry is to jump to. On failure nothing is left. */
static int make_code(const struct shunt_hook *hook, const struct change *change, struct hook_code *out, uint64_t *dest)
{
	const struct shunt_dispatcher *d = &hook->base;
	uint64_t word;
	int err;

	*out = (struct hook_code){ 0 };
	if (hook->multi && (change->nr > 1 || change->verdict || (change->nr && change->programs[0].continue_on))) {
		err = make_chain(hook, change, out);
	} else {
		/* One program whose result is the hook's: what the whole chain would do. */
		*dest = change->nr ? change->programs[0].program : d->idle;
		if (d->site.by_data || shunt_target_host()->encode_stub_word(d->slot, *dest, &word) == 0)
			return 0;
		err = make_veneer(hook, *dest, out);
	}
	*dest = (uint64_t)(uintptr_t)out->block.rx;
	return err;
}

/* Makes the change: code, one patch, the old code to the grace queue. On failure nothing happened. */
static int commit(struct shunt_hook *hook, const struct change *change)
{
	struct shunt_dispatcher *d = &hook->base;
	struct shunt_block old = d->tree.block;
	struct hook_code code;
	uint64_t dest;
	int err = make_code(hook, change, &code, &dest);

	if (err)
		return err;
	err = shunt_patch_stub(&d->site, dest);
	if (err) {
		if (code.block.id)
			shunt_pack_abandon(&code.block);
		return err;
	}
	d->nr_patches++;
	d->tree.block = code.block;
	d->tree.len = code.len;
	hook->nr_veneers = code.nr_veneers;
	if (old.id)
		shunt_pack_free(&old);
	memcpy(hook->programs, change->programs, sizeof(hook->programs));
	hook->nr_programs = change->nr;
	hook->verdict = change->verdict;
	return 0;
}

static int begin(struct shunt_hook *hook, struct change *change)
{
	int err;

	if (!hook)
		return shunt_fail(EINVAL, "there is no hook: none of that name was made, or its definition was refused");
	pthread_mutex_lock(&hook->base.mutex);
	err = shunt_dispatcher_adopt(&hook->base);
	if (err) {
		pthread_mutex_unlock(&hook->base.mutex);
		return err;
	}
	memcpy(change->programs, hook->programs, sizeof(change->programs));
	change->nr = hook->nr_programs;
	change->verdict = hook->verdict;
	return 0;
}

static uint32_t find_program(const struct change *change, const void *program)
{
	uint32_t i = 0;

	while (i < change->nr && change->programs[i].program != (uint64_t)(uintptr_t)program)
		i++;
	return i;
}

static int check_new(const struct shunt_hook *hook, const struct change *change, const void *program)
{
	if (!program)
		return shunt_fail(EINVAL, "hook '%s': NULL is not a program", hook->base.name);
	if (find_program(change, program) < change->nr)
		return shunt_fail(EEXIST, "hook '%s': program %p is attached already", hook->base.name, program);
	return 0;
}

static int add_program(const struct shunt_hook *hook, struct change *change, const void *program,
		       const struct shunt_hook_attach_options *options)
{
	struct hook_program added = { .program = (uint64_t)(uintptr_t)program, .continue_on = SHUNT_CONTINUE_ALWAYS };
	uint32_t at = change->nr;
	int err = check_new(hook, change, program);

	if (err)
		return err;
	if (options && !hook->multi)
		return shunt_fail(EINVAL, "hook '%s' has one program: priorities and results to continue on are for multi-hooks", hook->base.name);
	if (!hook->multi && change->nr)
		return shunt_fail(EBUSY, "hook '%s' has program %#llx, shunt_hook_replace() puts another one in its place", hook->base.name,
				  (unsigned long long)change->programs[0].program);
	if (change->nr == SHUNT_HOOK_PROGRAMS_MAX)
		return shunt_fail(EBUSY, "hook '%s' has %u programs, which is as many as it can", hook->base.name, change->nr);
	if (options) {
		added.priority = options->priority;
		added.continue_on = options->continue_on;
	}
	for (; at > 0 && change->programs[at - 1].priority > added.priority; at--)
		change->programs[at] = change->programs[at - 1];
	change->programs[at] = added;
	change->nr++;
	return 0;
}

int shunt_hook_attach(struct shunt_hook *hook, const void *program, const struct shunt_hook_attach_options *options)
{
	struct change change;
	int err = begin(hook, &change);

	if (err)
		return err;
	err = add_program(hook, &change, program, options);
	if (!err)
		err = commit(hook, &change);
	if (!err)
		hook->base.nr_attaches++;
	pthread_mutex_unlock(&hook->base.mutex);
	return err;
}

/* As commit, with a token for what the change takes away; its memory is taken first, so that nothing fails after the patch. */
static int commit_with_token(struct shunt_hook *hook, const struct change *change, uint64_t *token)
{
	struct shunt_token_item *item = NULL;
	int err = 0;

	if (token)
		err = shunt_token_prepare(&item);
	if (!err)
		err = commit(hook, change);
	if (err)
		free(item);
	else if (token)
		*token = shunt_token_queue(item);
	return err;
}

int shunt_hook_replace(struct shunt_hook *hook, const void *from, const void *to, uint64_t *token)
{
	struct change change;
	uint32_t at;
	int err = begin(hook, &change);

	if (err)
		return err;
	at = find_program(&change, from);
	if (at == change.nr)
		err = shunt_fail(ENOENT, "hook '%s': program %p is not attached", hook->base.name, from);
	else
		err = check_new(hook, &change, to);
	if (!err) {
		change.programs[at].program = (uint64_t)(uintptr_t)to;
		err = commit_with_token(hook, &change, token);
	}
	if (!err) {
		hook->base.nr_attaches++;
		hook->base.nr_detaches++;
	}
	pthread_mutex_unlock(&hook->base.mutex);
	return err;
}

int shunt_hook_detach(struct shunt_hook *hook, const void *program, uint64_t *token)
{
	struct change change;
	uint32_t at;
	int err = begin(hook, &change);

	if (err)
		return err;
	at = find_program(&change, program);
	if (at == change.nr) {
		err = shunt_fail(ENOENT, "hook '%s': program %p is not attached", hook->base.name, program);
	} else {
		change.nr--;
		memmove(&change.programs[at], &change.programs[at + 1], (change.nr - at) * sizeof(change.programs[0]));
		err = commit_with_token(hook, &change, token);
	}
	if (!err)
		hook->base.nr_detaches++;
	pthread_mutex_unlock(&hook->base.mutex);
	return err;
}

int shunt_hook_set_verdict(struct shunt_hook *hook, uint64_t verdict)
{
	struct change change;
	int err = begin(hook, &change);

	if (err)
		return err;
	if (!hook->multi)
		err = shunt_fail(EINVAL, "hook '%s' has one program, whose result is its own", hook->base.name);
	change.verdict = verdict;
	if (!err && verdict != hook->verdict)
		err = commit(hook, &change);
	pthread_mutex_unlock(&hook->base.mutex);
	return err;
}

uint32_t shunt_hook_nr_programs(const struct shunt_dispatcher *d)
{
	return ((const struct shunt_hook *)d)->nr_programs;
}

void shunt_hook_get_stats(const struct shunt_hook *hook, struct shunt_hook_stats *out)
{
	/* The mutex is the one part of a const hook that a reader changes. */
	struct shunt_dispatcher *d = hook ? (struct shunt_dispatcher *)&hook->base : NULL;
	uint64_t dest;

	memset(out, 0, sizeof(*out));
	if (!d)
		return;
	pthread_mutex_lock(&d->mutex);
	out->nr_programs = hook->nr_programs;
	out->code_len = d->tree.len;
	out->nr_veneers = hook->nr_veneers;
	out->nr_attaches = d->nr_attaches;
	out->nr_detaches = d->nr_detaches;
	out->nr_patches = d->nr_patches;
	out->entry = (const void *)(uintptr_t)d->slot;
	out->target = (const void *)(uintptr_t)(d->slot + SHUNT_DISPATCHER_IDLE_OFFSET);
	if (d->is_ready && d->site.by_data)
		out->target = (const void *)(uintptr_t)d->site.word;
	else if (d->is_ready && shunt_target_host()->decode_stub_word(d->slot, d->site.word, &dest) == 0)
		out->target = (const void *)(uintptr_t)dest;
	pthread_mutex_unlock(&d->mutex);
}
