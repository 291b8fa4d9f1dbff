/* SPDX-License-Identifier: MIT */
/*
 * A dispatcher under any order of everything that its header offers, beside a model of some lines: results, counts, weights, hits, and where
 * each call lands. Programs are freed and made anew in between.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include <shunt/dispatcher.h>
#include <shunt/log.h>
#include <shunt/reader.h>

#include "test/exec/dispatch_programs.h"

#define NR 300
#define MANY 20
#define NR_STEPS 2400

static struct shunt_block blocks[NR];
static struct model {
	uint32_t count, weight;
	uint64_t hits;
} model[NR];
static bool counts_hits;
static uint64_t random_state = 88172645463325252u;

static uint32_t below(uint32_t limit)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)(random_state >> 11) % limit;
}

static void take(uint32_t i, uint32_t count)
{
	if (!model[i].count)
		model[i].hits = 0;
	model[i].count += count;
}

static void give(uint32_t i)
{
	if (!--model[i].count)
		model[i].weight = 0;
}

static void attach_many(struct shunt_dispatcher *d, uint32_t limit)
{
	static const void *list[MANY];
	uint32_t picked[MANY], nr = below(MANY);
	bool is_bad = nr && below(5) == 0;

	for (uint32_t k = 0; k < nr; k++)
		list[k] = blocks[picked[k] = below(limit)].rx;
	if (is_bad)
		list[below(nr)] = NULL;
	cr_assert_eq(shunt_dispatcher_attach_many(d, list, nr), is_bad ? -EINVAL : 0);
	for (uint32_t k = 0; k < nr && !is_bad; k++)
		take(picked[k], 1);
}

static void detach_many(struct shunt_dispatcher *d, uint32_t limit)
{
	static struct model before[NR];
	static const void *list[MANY];
	uint32_t nr = below(MANY);
	bool is_bad = false;

	memcpy(before, model, sizeof(model));
	for (uint32_t k = 0; k < nr; k++) {
		uint32_t i = below(limit);

		list[k] = blocks[i].rx;
		is_bad |= !model[i].count;
		if (!is_bad)
			give(i);
	}
	cr_assert_eq(shunt_dispatcher_detach_many(d, list, nr), is_bad ? -ENOENT : 0);
	if (is_bad)
		memcpy(model, before, sizeof(model));
}

static void replace(struct shunt_dispatcher *d, uint32_t from, uint32_t to)
{
	cr_assert_eq(shunt_dispatcher_replace(d, blocks[from].rx, blocks[to].rx), model[from].count ? 0 : -ENOENT);
	if (!model[from].count || from == to)
		return;
	take(to, model[from].count);
	model[to].weight = model[from].weight ? model[from].weight : model[to].weight;
	model[from] = (struct model){ .count = 0 };
}

static void weigh(struct shunt_dispatcher *d, uint32_t i)
{
	uint32_t weight = below(4) ? below(1000) : below(4) << 28;
	const void *program = blocks[i].rx;

	cr_assert_eq(shunt_dispatcher_set_weights(d, &program, &weight, 1), model[i].count ? 0 : -ENOENT);
	if (model[i].count)
		model[i].weight = weight;
}

static void count(struct shunt_dispatcher *d, bool on)
{
	cr_assert_eq(shunt_dispatcher_count_hits(d, on), 0);
	for (uint32_t i = 0; i < NR && on != counts_hits; i++)
		model[i].hits = 0;
	counts_hits = on;
}

static void change(struct shunt_dispatcher *d, uint32_t limit)
{
	uint32_t i = below(limit);

	switch (below(12)) {
	case 0: case 1: case 2:
		cr_assert_eq(shunt_dispatcher_attach(d, blocks[i].rx), 0, "%s", shunt_error());
		take(i, 1);
		break;
	case 3: case 4: case 5:
		cr_assert_eq(shunt_dispatcher_detach(d, blocks[i].rx), model[i].count ? 0 : -ENOENT);
		if (model[i].count)
			give(i);
		break;
	case 6: replace(d, i, below(limit)); break;
	case 7: attach_many(d, limit); break;
	case 8: detach_many(d, limit); break;
	case 9: weigh(d, i); break;
	case 10: cr_assert_eq(shunt_dispatcher_set_plan(d, (enum shunt_plan_kind)below(5), (enum shunt_miss_kind)below(4)), 0); break;
	case 11: count(d, below(2)); break;
	}
	/* What is not attached may go at once: nothing calls it. */
	i = below(NR);
	if (!model[i].count && below(20) == 0) {
		cr_assert_eq(shunt_pack_free(&blocks[i]), 0);
		cr_assert_eq(make_program(NULL, i, &blocks[i]), 0);
	}
}

static void call_some(struct shunt_dispatcher *d)
{
	shunt_read_begin();
	for (int k = 0; k < 60; k++) {
		uint32_t i = below(NR);

		cr_assert_eq(call_stub(shunt_dispatcher_stub(d), 5, blocks[i].rx), 5u + i);
		model[i].hits += counts_hits && model[i].count;
	}
	shunt_read_end();
}

static void compare(struct shunt_dispatcher *d)
{
	struct shunt_dispatcher_program there[NR];
	size_t nr = shunt_dispatcher_get_programs(d, there, NR), nr_wanted = 0;

	for (uint32_t i = 0; i < NR; i++)
		nr_wanted += model[i].count > 0;
	cr_assert_eq(nr, nr_wanted);
	for (size_t k = 0; k < nr; k++) {
		const struct model *wanted = &model[program_id(there[k].program)];

		cr_assert_eq(there[k].nr_attached, wanted->count);
		cr_assert_eq(there[k].weight, wanted->weight);
		cr_assert(!counts_hits || there[k].nr_hits == wanted->hits, "%llu for %llu", (unsigned long long)there[k].nr_hits,
			  (unsigned long long)wanted->hits);
	}
}

Test(dispatch_model, any_order_of_changes_does_what_its_words_say)
{
	struct shunt_dispatcher *d;

	for (uint32_t i = 0; i < NR; i++)
		cr_assert_eq(make_program(NULL, i, &blocks[i]), 0, "%s", shunt_error());
	cr_assert_eq(shunt_dispatcher_create("model", NULL, &d), 0);
	for (int step = 0; step < NR_STEPS; step++) {
		static const uint32_t limits[] = { 20, NR, 90 };

		change(d, limits[step / 300 % 3]);
		call_some(d);
		if (step % 16 == 0)
			compare(d);
	}
	for (uint32_t i = 0; i < NR; i++)
		while (model[i].count) {
			cr_assert_eq(shunt_dispatcher_detach(d, blocks[i].rx), 0);
			give(i);
		}
	compare(d);
	cr_assert_eq(shunt_dispatcher_destroy(d), 0);
}
