/* SPDX-License-Identifier: MIT */
/* Hit counts of programs: from when they are asked for, through changes, and of several threads. */
#include "test/unit/dispatcher_test.h"

#include <pthread.h>
#include <shunt/percpu.h>
#include <stdlib.h>

static uint64_t hits_of(struct shunt_dispatcher *d, const void *rx)
{
	static struct shunt_dispatcher_program list[1024];
	size_t nr = shunt_dispatcher_get_programs(d, list, 1024);

	for (size_t i = 0; i < nr; i++)
		if (list[i].program == rx)
			return list[i].nr_hits;
	return UINT64_MAX;
}

Test(dispatch_hits, hits_are_counted_for_each_program_from_when_it_is_asked_for)
{
	enum { NR = 300 };
	static const uint32_t counts[] = { 1, 3, 20, NR };
	struct shunt_block p[NR], stranger = program(999);
	const void *list[NR];
	uint32_t heavy = 50;

	for (uint32_t i = 0; i < NR; i++) {
		p[i] = program(i);
		list[i] = p[i].rx;
	}
	for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
		struct shunt_dispatcher *d = make_dispatcher("hook");
		uint32_t nr = counts[c];

		cr_assert_eq(shunt_dispatcher_attach_many(d, list, nr), 0);
		cr_assert_not(stats_of(d).counts_hits);
		cr_assert_eq(hits_of(d, list[0]), 0);
		cr_assert_eq(shunt_dispatcher_count_hits(d, true), 0, "%s", shunt_error());
		cr_assert(stats_of(d).counts_hits);
		cr_assert_eq(shunt_dispatcher_count_hits(d, true), 0, "the same again");
		for (uint32_t i = 0; i < nr; i++)
			for (uint32_t k = 0; k <= i % 7; k++)
				cr_assert_eq(call(d, 1, list[i]), 1 + i);
		cr_assert_eq(call(d, 1, stranger.rx), 1000);
		for (uint32_t i = 0; i < nr; i++)
			cr_assert_eq(hits_of(d, list[i]), i % 7 + 1, "program %u of %u: %llu", i, nr, (unsigned long long)hits_of(d, list[i]));

		/* A change keeps the others' counts, one that comes begins at 0, and one that was hot is counted in the head. */
		cr_assert_eq(shunt_dispatcher_set_weights(d, list, &heavy, 1), 0);
		cr_assert_eq(call(d, 1, list[0]), 1);
		cr_assert_eq(hits_of(d, list[0]), 2);
		cr_assert_eq(shunt_dispatcher_attach(d, stranger.rx), 0);
		cr_assert_eq(hits_of(d, stranger.rx), 0);
		cr_assert_eq(call(d, 1, stranger.rx), 1000);
		cr_assert_eq(hits_of(d, stranger.rx), 1);
		cr_assert_eq(shunt_dispatcher_detach(d, list[nr - 1]), 0);
		cr_assert_eq(hits_of(d, list[nr - 1]), UINT64_MAX);
		cr_assert_eq(shunt_dispatcher_attach(d, list[nr - 1]), 0);
		cr_assert_eq(hits_of(d, list[nr - 1]), 0, "a count outlived the last detach");
		cr_assert_eq(call(d, 1, list[nr - 1]), nr);
		cr_assert_eq(hits_of(d, list[nr - 1]), 1);

		cr_assert_eq(shunt_dispatcher_count_hits(d, false), 0);
		cr_assert_eq(call(d, 1, list[0]), 1);
		cr_assert_eq(hits_of(d, list[0]), 0);
		cr_assert_eq(shunt_dispatcher_detach_many(d, list, nr), 0);
		cr_assert_eq(shunt_dispatcher_detach(d, stranger.rx), 0);
		cr_assert_eq(shunt_dispatcher_destroy(d), 0);
	}
	cr_assert_eq(shunt_quiesce(), 0);
}

struct hitter {
	const struct shunt_dispatcher *d;
	const void *program;
	int nr_calls;
};

static void *hit(void *arg)
{
	struct hitter *hitter = arg;

	for (int i = 0; i < hitter->nr_calls; i++)
		cr_assert_eq(call(hitter->d, 1, hitter->program), 8);
	return NULL;
}

Test(dispatch_hits, threads_that_hit_the_same_program_lose_next_to_no_count)
{
	struct shunt_dispatcher *d = make_dispatcher("hook");
	struct shunt_block p = program(7);
	struct hitter hitter = { d, p.rx, 100000 };
	struct shunt_cpu_index index;
	pthread_t threads[4];
	uint64_t hits;

	shunt_cpu_index(&index);
	if (index.source != SHUNT_CPU_RSEQ)
		cr_skip_test("without rseq threads share one counter here");
	cr_assert_eq(shunt_dispatcher_attach(d, p.rx), 0);
	cr_assert_eq(shunt_dispatcher_count_hits(d, true), 0);
	for (int i = 0; i < 4; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, hit, &hitter), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	hits = hits_of(d, p.rx);
	cr_assert(hits <= 400000 && hits >= 400000 - 400, "%llu", (unsigned long long)hits);
}

Test(dispatch_hits, counters_grow_with_the_programs_and_keep_their_counts)
{
	enum { NR = 400 };
	struct shunt_dispatcher *d = make_dispatcher("hook");
	struct shunt_block p[NR];

	cr_assert_eq(shunt_dispatcher_count_hits(d, true), 0, "%s", shunt_error());
	for (uint32_t i = 0; i < NR; i++) {
		p[i] = program(i);
		cr_assert_eq(shunt_dispatcher_attach(d, p[i].rx), 0, "%s", shunt_error());
		for (uint32_t k = 0; k <= i; k += 1 + i / 8)
			cr_assert_eq(call(d, 1, p[k].rx), 1 + k);
	}
	for (uint32_t i = 0, wanted; i < NR; i++) {
		wanted = 0;
		for (uint32_t k = i; k < NR; k++)
			wanted += i % (1 + k / 8) == 0;
		cr_assert_eq(hits_of(d, p[i].rx), wanted, "program %u: %llu, not %u", i, (unsigned long long)hits_of(d, p[i].rx), wanted);
	}
}
