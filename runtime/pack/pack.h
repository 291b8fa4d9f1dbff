/* SPDX-License-Identifier: MIT */
/* Packs, for the rest of the runtime: fast addresses, pages shown a second time, patching and forks. */
#ifndef RUNTIME_PACK_H
#define RUNTIME_PACK_H

#include <shunt/pack.h>

/* The rw address of an rx address of any arena (rx itself in a data pack), or NULL for a foreign one. A constant distance an arena;
 * no lock for those of the default arena. rx lies in a live block or in no arena. MT-safe. */
SHUNT_API void *shunt_pack_rw(const void *rx);

/* Shows the pages of a live, page-aligned code block (its length rounded up to pages) a second time over fixed_addr, page-aligned
 * too, replacing what is mapped there: a host image's stub page then shows the pack's bytes, also in a fork's child. -EINVAL for a
 * block or an address that does not qualify; other errors are mremap's, and then nothing is mapped differently. MT-safe. */
SHUNT_API int shunt_pack_page_dup(const struct shunt_block *page_block, void *fixed_addr);
/* Forgets the page at fixed_addr (its image is being unloaded, which unmaps it). -ENOENT when it is none. MT-safe. */
SHUNT_API int shunt_pack_page_undup(void *fixed_addr);

/* Around every store into a live block: a fork sees all of it or nothing, and it waits for children that still copy. One
 * section at a time in the process, short, and nothing in it waits for readers. The lock comes before any lock of packs. */
SHUNT_API void shunt_pack_patch_begin(void);
SHUNT_API void shunt_pack_patch_end(void);

/*
 * A room's locks around fork. prepare runs after the readers' registry is locked (so nobody may begin a thread's first section under
 * such a lock) and before the patch lock is taken; parent and child run after it is given back. prepare of the newest first, the others
 * order. hooks are static: they are never removed.
 */
struct shunt_fork_hooks {
	void (*prepare)(void);
	void (*parent)(void);
	void (*child)(void);
	struct shunt_fork_hooks *next; /* pack_fork.c's */
};
SHUNT_API void shunt_fork_register(struct shunt_fork_hooks *hooks);

/* pack_fork.c, for packs: handlers are installed; true while a fork's child still copies; waits until none does. */
void shunt_fork_init(void);
bool shunt_fork_is_copying(void);
void shunt_fork_wait(void);

#endif
