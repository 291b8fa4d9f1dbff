/* SPDX-License-Identifier: MIT */
/* The runtime's own plans for the tests of tree emitters: every kind, random programs, random weights, 0 to 4,096 programs. */
#ifndef TEST_ENCODE_PLANS_H
#define TEST_ENCODE_PLANS_H

#include "targets/plan.h"
#include "targets/target.h"

#define PLANS_MAX 4096u

typedef void plans_check(void *context, const struct shunt_plan *plan, uint64_t *state);

/* Calls check for nr_rounds random sets of programs in every kind of plan, programs being multiples of align in [base, base + span). */
void plans_for_each(uint64_t seed, unsigned nr_rounds, uint64_t base, uint64_t span, uint64_t align, plans_check *check, void *context);

/*
 * Emits the default plan over nr programs in random parts, each at a multiple of 64, and returns the address of the head. Bounds are tight or
 * wider. whole is what head and parts are together; its nodes go to shunt_plan_fini().
 */
uint64_t plans_emit_in_parts(const struct shunt_target *target, const uint64_t *programs, uint32_t nr, enum shunt_fallback fallback, uint64_t *state,
			     struct shunt_code *code, struct shunt_plan *whole);

#endif
