/* SPDX-License-Identifier: MIT */
/*
 * From a list of programs to code: one tree, or for many programs a head and parts.
 *
 * A tree made anew for every change costs some 20 ns a program. From SHUNT_PARTS_FROM programs on, the default plan is therefore cut into
 * parts of up to SHUNT_PLAN_PART_MAX programs, each with a block of its own, under a small head; a program that comes or goes costs one part
 * and the head. The head is what the stub jumps to. Parts that did not change belong to the old head and the new one.
 */
#ifndef RUNTIME_DISPATCHER_TREE_H
#define RUNTIME_DISPATCHER_TREE_H

#include "runtime/dispatch/dispatcher.h"

#define SHUNT_PARTS_FROM 65u /* and back to one tree below half of that */

/* The code for a whole list, by the dispatcher's plan and fallback. On failure nothing is left. */
int shunt_dispatcher_tree_make(const struct shunt_dispatcher *dispatcher, const struct shunt_dispatcher_entry *list, uint32_t nr,
			       struct shunt_dispatcher_tree *out);

/*
 * The code for the dispatcher's own entries with one change: added put in at index `at`, or (NULL) the one at `at` left out. 1: done;
 * out shares all parts but *gone (and what it was split into, out->parts[part] and the next) with the dispatcher's tree. 0: this change needs
 * shunt_dispatcher_tree_make. Negative: nothing is left.
 */
struct shunt_part_change {
	uint32_t part;   /* the one that is made anew */
	uint32_t nr_new; /* what it becomes: 0, 1 or 2 parts */
};
int shunt_dispatcher_tree_change(const struct shunt_dispatcher *dispatcher, uint32_t at, const struct shunt_dispatcher_entry *added,
				 struct shunt_dispatcher_tree *out,
				 struct shunt_part_change *change);

/* Gives code back that was never reachable; all of it, or only what change made. */
void shunt_dispatcher_tree_abandon(struct shunt_dispatcher_tree *tree, const struct shunt_part_change *change);
/* Gives code back that readers may be in: the tree and all parts, or (change) all but the parts that the tree after the change has too. */
void shunt_dispatcher_tree_free(struct shunt_dispatcher_tree *tree, const struct shunt_part_change *change);

/* The plan of what is attached, for pictures; programs, weights and the plan are the caller's to free. Caller holds the mutex. */
int shunt_dispatcher_plan(const struct shunt_dispatcher *dispatcher, uint64_t **programs, uint32_t **weights, struct shunt_plan *out);

#endif
