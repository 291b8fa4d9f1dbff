/* SPDX-License-Identifier: MIT */
/* The runtime's own plans for the tests of tree emitters: every kind, random programs, random weights, 0 to 4,096 programs. */
#ifndef TEST_ENCODE_PLANS_H
#define TEST_ENCODE_PLANS_H

#include "targets/plan.h"

#define PLANS_MAX 4096u

typedef void plans_check(void *context, const struct shunt_plan *plan, uint64_t *state);

/* Calls check for nr_rounds random sets of programs in every kind of plan, programs being multiples of align in [base, base + span). */
void plans_for_each(uint64_t seed, unsigned nr_rounds, uint64_t base, uint64_t span, uint64_t align, plans_check *check, void *context);

#endif
