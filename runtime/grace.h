/* SPDX-License-Identifier: MIT */
/*
 * The one queue for everything that readers may still be using: old trees, freed code, map values, whole maps.
 *
 * An item is unreachable for new readers when it is queued. A batch then goes: collect of each, data before code (what is freed after the
 * code that uses it is never released in an earlier batch than that) -> SYNC_CORE (no CPU still fetches an old jump) -> grace
 * period (every reader that could have seen an item has left) -> retire of each (code: fill with traps) -> SYNC_CORE when any item holds
 * code (no CPU keeps the old bytes) -> release of each (reuse, free). Both callbacks run on the reclaimer, without Shunt locks held,
 * may queue further items, must not begin read sections.
 */
#ifndef RUNTIME_GRACE_H
#define RUNTIME_GRACE_H

#include <stdbool.h>
#include <shunt/reader.h>

struct shunt_grace_item {
	struct shunt_grace_item *next; /* the queue's */
	void (*collect)(struct shunt_grace_item *item); /* NULL, or: the batch begins; what the item stands for until here is in it */
	void (*retire)(struct shunt_grace_item *item);  /* NULL: nothing to do between the two syncs */
	void (*release)(struct shunt_grace_item *item);
	bool code;        /* the item holds instructions */
	bool restartable; /* release is all or nothing around a fork: run again in a child that found it begun */
};

/*
 * Fork: a child inherits the queue without the worker; items of an unfinished batch go through all of it again there, so collect and
 * retire must stand being called twice. A release that another thread was just executing is not repeated unless restartable: such a
 * one is all or nothing under a lock that fork takes, and calls shunt_grace_settle as the last thing under that lock; its item may
 * be freed memory from then on.
 */
SHUNT_API void shunt_grace_settle(void);

/* Queues item (caller's memory, back when release runs). Never fails, never waits; starts the worker in worker mode. MT-safe. */
SHUNT_API void shunt_grace_defer(struct shunt_grace_item *item);

/* Many more things are in items that are queued (each is in there with others): the batch is worth growing a little longer. MT-safe. */
SHUNT_API void shunt_grace_grows(void);

/* One SYNC_CORE on every thread of the process: each has executed a context-synchronising instruction since. No-op where
 * membarrier lacks it and the machine does not need it for finalize; registration is done on first use. */
SHUNT_API int shunt_sync_core(void);

/* For pack_fork.c, in this order around a fork: let the forking thread's section not be in the way of a grace period, and lock the
 * readers' registry; lock the queue; then the opposite in the parent or child. */
void shunt_grace_fork_readers_prepare(void);
void shunt_grace_fork_prepare(void);
void shunt_grace_fork_parent(void);
void shunt_grace_fork_child(void);
void shunt_grace_fork_readers_parent(void);
void shunt_grace_fork_readers_child(void);

#endif
