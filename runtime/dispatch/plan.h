/* SPDX-License-Identifier: MIT */
/* Makes plans (targets/plan.h) from sorted program addresses. Pure: no OS, no target. */
#ifndef RUNTIME_PLAN_H
#define RUNTIME_PLAN_H

#include <shunt/dispatcher.h>
#include "targets/plan.h"

/* Most EQUALs in a row at a leaf of the weighted plan and of parts, and most programs tested ahead of the default plan's tree. */
#define SHUNT_PLAN_LEAF_MAX 2u
#define SHUNT_PLAN_HOT_MAX 4u

/*
 * Plans a tree over nr programs: addresses ascending and distinct, kept by the caller as long as the plan. weights says how
 * often each program is called, or is NULL, which is all alike: the default plan tests programs that outweigh the lightest one first,
 * heaviest first. nr 0 plans a bare fallback. -EINVAL for an unknown kind or unsorted addresses, -ENOMEM. out's nodes are freed by
 * shunt_plan_fini.
 */
int shunt_plan_make(enum shunt_plan_kind kind, const uint64_t *programs, const uint32_t *weights, uint32_t nr,
		    struct shunt_plan *out);
void shunt_plan_fini(struct shunt_plan *plan);

/*
 * The default plan of many programs, in parts (targets/plan.h): a plan for each part, and one for the head above them. Bounds, bits and the
 * parts' addresses are for the caller to fill in. hot: indexes of programs that are tested before all others, and again in their parts.
 * Errors as above.
 */
#define SHUNT_PLAN_PART_MAX 128u
int shunt_plan_make_part(const uint64_t *programs, uint32_t nr, struct shunt_plan *out);
/* programs: the last one of each part, and those that are hot; last: the index of each part's last one among them. */
int shunt_plan_make_head(const uint64_t *programs, uint32_t nr_programs, const uint32_t *hot, uint32_t nr_hot, const uint32_t *last, uint32_t nr_parts,
			 struct shunt_plan *out);
/* Head and parts as one plan, for pictures: programs are all. */
int shunt_plan_make_whole(const uint64_t *programs, uint32_t nr, const uint32_t *hot, uint32_t nr_hot, const uint32_t *last, uint32_t nr_parts,
			  struct shunt_plan *out);

#endif
