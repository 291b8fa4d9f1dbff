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

/* Emits a plan at the next multiple of 64; returns where. */
static uint64_t emit_at_chunk(const struct shunt_target *target, const struct shunt_plan *plan, enum shunt_fallback fallback, struct shunt_code *code)
{
	uint64_t addr;

	while (shunt_code_here(code) % 64)
		shunt_code_emit8(code, 0xcc);
	addr = shunt_code_here(code);
	target->emit_tree(code, plan, fallback);
	cr_assert_eq(code->error, 0, "%d", code->error);
	return addr;
}

uint64_t plans_emit_in_parts(const struct shunt_target *target, const uint64_t *programs, uint32_t nr, enum shunt_fallback fallback, uint64_t *state,
			     struct shunt_code *code, struct shunt_plan *whole)
{
	static uint32_t last[PLANS_MAX], last_of_head[PLANS_MAX], hot[SHUNT_PLAN_HOT_MAX], hot_of_head[SHUNT_PLAN_HOT_MAX];
	static uint64_t addrs[PLANS_MAX], of_head[PLANS_MAX + SHUNT_PLAN_HOT_MAX];
	uint64_t low = programs[0] - 64 * (shape_random(state) % 3), high = programs[nr - 1] + 64 * (shape_random(state) % 3);
	uint64_t bits = 0, addr;
	uint32_t nr_parts = 0, nr_hot = (uint32_t)(shape_random(state) % (SHUNT_PLAN_HOT_MAX + 1)), nr_of_head = 0;
	struct shunt_plan plan;

	for (uint32_t i = 0; i < nr; i++)
		bits |= programs[i];
	for (uint32_t first = 0; first < nr; first = last[nr_parts++] + 1) {
		uint32_t more = (uint32_t)(shape_random(state) % SHUNT_PLAN_PART_MAX);

		last[nr_parts] = first + more < nr ? first + more : nr - 1;
		cr_assert_eq(shunt_plan_make_part(programs + first, last[nr_parts] + 1 - first, &plan), 0);
		plan.low = low;
		plan.high = high;
		plan.bits = bits;
		addrs[nr_parts] = emit_at_chunk(target, &plan, fallback, code);
		shunt_plan_fini(&plan);
	}
	for (uint32_t i = 0; i < nr_hot; i++)
		hot[i] = (uint32_t)(shape_random(state) % nr);
	for (uint32_t i = 0, part = 0; i < nr; i++) {
		bool is_in_head = i == last[part];

		for (uint32_t k = 0; k < nr_hot; k++)
			is_in_head |= hot[k] == i;
		if (!is_in_head)
			continue;
		for (uint32_t k = 0; k < nr_hot; k++)
			hot_of_head[k] = hot[k] == i ? nr_of_head : hot_of_head[k];
		if (i == last[part])
			last_of_head[part++] = nr_of_head;
		of_head[nr_of_head++] = programs[i];
	}
	cr_assert_eq(shunt_plan_make_whole(programs, nr, hot, nr_hot, last, nr_parts, whole), 0);
	cr_assert_eq(shunt_plan_make_head(of_head, nr_of_head, hot_of_head, nr_hot, last_of_head, nr_parts, &plan), 0);
	plan.low = low;
	plan.high = high;
	plan.bits = bits;
	plan.parts = addrs;
	addr = emit_at_chunk(target, &plan, fallback, code);
	shunt_plan_fini(&plan);
	return addr;
}
