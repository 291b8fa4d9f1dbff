/* SPDX-License-Identifier: MIT */
/*
 * What the files of the dispatcher module share: dispatcher.c (registry), dispatcher_update.c (programs), dispatcher_tree.c (code),
 * adopt.c (stubs in host images), hook.c (stubs without trees).
 *
 * Who synchronises with whom: name, is_hook, idle_fallback, slot and record are constant once a dispatcher is in the registry;
 * everything else is under its mutex. Lock order: registry_mutex, a dispatcher's mutex, adopt.c's, the packs' locks. Threads
 * in stubs and trees take none: see runtime/patch.c for what they see, runtime/grace.h for how long old trees live.
 */
#ifndef RUNTIME_DISPATCHER_H
#define RUNTIME_DISPATCHER_H

#include <pthread.h>
#include <shunt/dispatcher.h>
#include <shunt/pack.h>

#include "runtime/dispatch/patch.h"
#include "targets/plan.h"
#include "targets/target.h"

#define SHUNT_DISPATCHER_NAME_MAX 63u

/* A stub's block and an image's page both begin with slot, C entry, idle tree (shunt/dispatcher_define.h). */
#define SHUNT_DISPATCHER_IDLE_OFFSET 32u
/* And where code has one view, the jump that the slot jumps to; in the image's own page there are traps, which nobody runs into. */
#define SHUNT_DISPATCHER_JUMP_OFFSET 128u

struct shunt_dispatcher_entry {
	uint64_t program;
	uint32_t count;  /* attachments, at least 1 */
	uint32_t weight; /* what the host said, or 0 */
	uint32_t word;   /* its counter (hits.h), or SHUNT_NO_WORD */
};

#define SHUNT_NO_WORD UINT32_MAX

struct shunt_hits;

/* dispatcher_tree.h */
struct shunt_dispatcher_part {
	struct shunt_block block;
	uint64_t last; /* its last program */
	uint32_t nr;   /* its programs */
	uint32_t len, depth;
};

struct shunt_dispatcher_tree {
	struct shunt_block block; /* the tree, or the head; id 0: none */
	uint32_t head_len;        /* bytes of that */
	uint32_t len;             /* with the parts */
	uint32_t depth;
	struct shunt_dispatcher_part *parts; /* in the order of programs */
	uint32_t nr_parts;
	bool leaves_rare;         /* tests only what is called often: find_called in dispatcher_tree.c */
	uint64_t low, high, bits; /* of a tree with parts: targets/plan.h */
};

struct shunt_dispatcher {
	struct shunt_dispatcher *next; /* the registry's, under its mutex */
	pthread_mutex_t mutex;
	char name[SHUNT_DISPATCHER_NAME_MAX + 1];
	bool is_hook;              /* part of a struct shunt_hook: `tree` is its chain, or nothing; no kind, fallback, entries */
	enum shunt_plan_kind kind;
	enum shunt_fallback fallback;
	enum shunt_fallback idle_fallback; /* of the idle tree, constant */
	struct shunt_arena *arena; /* where trees live; NULL: the default */
	uint64_t slot;             /* the stub, where it runs */
	struct shunt_dispatcher_record *record; /* of a stub in a host image, else NULL */

	bool is_ready;            /* the stub can be patched; false: an image page that is not adopted yet */
	struct shunt_block stub;  /* holds slot, C entry and idle tree; id 0 until ready */
	struct shunt_block word;  /* of data, that the stub jumps through where code has one view; id 0: it jumps by itself */
	struct shunt_patch_site site;
	uint64_t idle;            /* the idle tree: a bare fallback, part of the stub's block, so that going idle needs no memory */
	uint32_t idle_len;
	struct shunt_dispatcher_tree tree;
	struct shunt_dispatcher_entry *entries; /* ascending programs */
	uint32_t nr_entries;
	uint32_t room;            /* entries that fit */
	struct shunt_hits *hits;  /* NULL: not counted */
	uint32_t nr_weighted;     /* entries whose weight is not 1 */
	uint64_t nr_attaches;
	uint64_t nr_detaches;
	uint64_t nr_patches;
};

/* Makes the word that the stub, whose block was allocated, will need where code has one view; 0 and nothing done where it has two. */
int shunt_dispatcher_make_word(struct shunt_dispatcher *dispatcher);
/* Writes slot, C entry (unless nr_args is -1) and idle tree for the address `slot` at bytes. Fills *idle_len. 0 or a negative
 * errno. */
int shunt_dispatcher_emit_stub(const struct shunt_dispatcher *dispatcher, void *bytes, size_t capacity, uint64_t slot, int nr_args,
			       uint32_t *idle_len);
/* Marks the stub, just emitted and reachable through dispatcher->stub, as ready to be patched. Caller holds the mutex. */
int shunt_dispatcher_set_ready(struct shunt_dispatcher *dispatcher, uint32_t idle_len);

/* Puts a new dispatcher under its name into the registry: 0, -EEXIST, -EINVAL. Sets and, in leave, clears the pointer in its
 * record. */
int shunt_dispatcher_enter(struct shunt_dispatcher *dispatcher, const char *name);
void shunt_dispatcher_leave(struct shunt_dispatcher *dispatcher);
/* Of zeroed memory. */
void shunt_dispatcher_init(struct shunt_dispatcher *dispatcher, const struct shunt_dispatcher_options *options);
/* Makes the stub and enters the registry: 0, or a negative errno and the dispatcher is to be deleted. */
int shunt_dispatcher_start(struct shunt_dispatcher *dispatcher, const char *name);
/* Leaves the registry, frees stub and dispatcher; -EPERM, -EBUSY. */
int shunt_dispatcher_end(struct shunt_dispatcher *dispatcher);
/* Enters one whose stub is the page of record, or deletes it when it cannot; 0 also when another thread was faster. */
int shunt_dispatcher_enrol(struct shunt_dispatcher *dispatcher, struct shunt_dispatcher_record *record);
/* Dispatcher or hook of that name. */
struct shunt_dispatcher *shunt_dispatcher_find_any(const char *name);
/* A dispatcher's memory, without a stub. NULL: no memory. */
struct shunt_dispatcher *shunt_dispatcher_new(const struct shunt_dispatcher_options *options);
/* Points the stub at the idle tree, lets go of tree and entries, whatever is attached. Caller holds the mutex or is alone. */
int shunt_dispatcher_clear(struct shunt_dispatcher *dispatcher);
void shunt_dispatcher_delete(struct shunt_dispatcher *dispatcher);

/* Makes the stub of an image page patchable, once; caller holds the mutex. 0 at once for a ready dispatcher. */
int shunt_dispatcher_adopt(struct shunt_dispatcher *dispatcher);

#endif
