/* SPDX-License-Identifier: MIT */
/* Makes plans (targets/plan.h) from sorted program addresses. Pure: no OS, no target. */
#ifndef RUNTIME_PLAN_H
#define RUNTIME_PLAN_H

#include <shunt/dispatcher.h>
#include "targets/plan.h"

/* Most EQUALs in a row at a leaf of the default plan, and most programs tested ahead of its tree. */
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

#endif
