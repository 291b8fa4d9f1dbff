/* SPDX-License-Identifier: MIT */
/* See plans.h. */
#include "plans.h"

#include <criterion/criterion.h>

#include "runtime/dispatch/plan.h"
#include "shapes.h"

/* Small sets often, since most special cases are there; large ones now and then. */
static uint32_t random_count(uint64_t *state)
{
	uint64_t bits = shape_random(state);

	switch (bits % 8) {
	case 0:
		return (uint32_t)(bits >> 8) % 6;
	case 1:
		return (uint32_t)(bits >> 8) % (PLANS_MAX + 1);
	case 2:
		return (uint32_t)(bits >> 8) % 512;
	default:
		return (uint32_t)(bits >> 8) % 72;
	}
}

static void random_weights(uint64_t *state, uint32_t *weights, uint32_t nr)
{
	uint64_t kind = shape_random(state) % 4;

	for (uint32_t i = 0; i < nr; i++) {
		uint64_t bits = shape_random(state);

		/* Alike, a few heavy ones, all different, and each twice the next. */
		weights[i] = kind == 0 ? 1 : kind == 1 ? (bits % 16 ? 1 : 1000) : kind == 2 ? (uint32_t)bits : (uint32_t)1 << i % 32;
	}
}

void plans_for_each(uint64_t seed, unsigned nr_rounds, uint64_t base, uint64_t span, uint64_t align, plans_check *check, void *context)
{
	static uint64_t programs[PLANS_MAX];
	static uint32_t weights[PLANS_MAX];

	for (unsigned round = 0; round < nr_rounds; round++) {
		/* The two ends in any case. */
		uint32_t nr = round == 0 ? 0 : round == 1 ? PLANS_MAX : random_count(&seed);

		if (nr > span / align / 2)
			nr = (uint32_t)(span / align / 2);
		shape_programs(&seed, base, span, align, programs, nr);
		random_weights(&seed, weights, nr);
		for (int kind = SHUNT_PLAN_DEFAULT; kind <= SHUNT_PLAN_WEIGHTED; kind++) {
			struct shunt_plan plan;

			/* A chain's cost is the square of its length. */
			if (kind == SHUNT_PLAN_LINEAR && nr > 300)
				continue;
			cr_assert_eq(shunt_plan_make((enum shunt_plan_kind)kind, programs, round % 5 ? weights : NULL, nr, &plan), 0);
			check(context, &plan, &seed);
			shunt_plan_fini(&plan);
		}
	}
}
