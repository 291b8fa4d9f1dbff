/* SPDX-License-Identifier: MIT */
/*
 * A storm: threads allocate, publish, run and free programs that other threads are running at the same time. A freed program still is
 * what it was for every section that could have found it, and traps when its grace period is over.
 *
 * SHUNT_STRESS_SECONDS sets how long (10).
 */
#include "test/unit/pack_check.h"
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <shunt/log.h>
#include <shunt/reader.h>

#include "test/unit/pack_test.h"

#define NR_THREADS 8
#define SLOTS_PER_THREAD 64u
/* What a thread frees before it lets the reclaimer catch up; an arena would be full of what waits otherwise. */
#define FREES_PER_QUIESCE 512

/* A program that all threads may call and only its owner replaces. */
struct slot {
	void *program;            /* atomic */
	struct shunt_block block; /* the owner's */
};

struct thread {
	pthread_t id;
	uint32_t index;
	unsigned seed;
	struct shunt_arena *own; /* nobody else allocates here, so what was freed here is known to be traps or free */
	uint64_t nr_made;
	uint64_t nr_called;
	uint64_t nr_checked;
	const char *wrong;
};

static struct slot slots[NR_THREADS * SLOTS_PER_THREAD];
static struct shunt_arena *shared;
static int stop;

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static double stress_seconds(void)
{
	const char *text = getenv("SHUNT_STRESS_SECONDS");

	return text && atof(text) > 0 ? atof(text) : 10;
}

static uint32_t random_below(struct thread *self, uint32_t limit)
{
	return (uint32_t)rand_r(&self->seed) % limit;
}

/* Programs of all lengths, so that chunks are handed out again in other combinations. False: none was made, or it was given up. */
static bool make_program(struct thread *self, struct shunt_arena *arena, uint32_t number, struct shunt_block *block)
{
	size_t len = TINY_LEN + random_below(self, random_below(self, 64) ? 600 : 60000);

	if (shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, len, random_below(self, 8) ? 0 : 1024, block) != 0) {
		self->wrong = strdup(shunt_error());
		return false;
	}
	if (!is_all_traps(block->rx, block->len))
		self->wrong = "a block was handed out that is not all traps";
	if (random_below(self, 16) == 0) {
		if (shunt_pack_abandon(block) != 0)
			self->wrong = "abandon was refused";
		return false;
	}
	if (shunt_pack_shrink(block, (len + TINY_LEN) / 2) != 0)
		self->wrong = "shrink was refused";
	write_tiny(block->rw, number);
	if (shunt_pack_finalize(block, 1) != 0)
		self->wrong = "finalize was refused";
	self->nr_made++;
	return true;
}

static void call_some(struct thread *self)
{
	shunt_read_begin();
	for (int i = 0; i < 64; i++) {
		uint32_t number = random_below(self, NR_THREADS * SLOTS_PER_THREAD);
		void *program = __atomic_load_n(&slots[number].program, __ATOMIC_ACQUIRE);

		if (!program)
			continue;
		if (i % 16 == 0)
			sched_yield();
		if (call(program) != (int)number)
			self->wrong = "a program was changed under a section that had found it";
		self->nr_called++;
	}
	shunt_read_end();
}

/* Takes a program away from all threads and frees it: unchanged while a section is open, refused a second time. */
static void free_program(struct thread *self, uint32_t number)
{
	struct slot *slot = &slots[number];
	bool in_section = random_below(self, 2);

	__atomic_store_n(&slot->program, NULL, __ATOMIC_RELEASE);
	if (in_section)
		shunt_read_begin();
	if (shunt_pack_free(&slot->block) != 0)
		self->wrong = "free was refused";
	if (in_section) {
		if (call(slot->block.rx) != (int)number)
			self->wrong = "a program was changed before its grace period was over";
		if (shunt_pack_free(&slot->block) == 0)
			self->wrong = "a second free was obeyed";
		shunt_read_end();
	}
}

/* One program of the thread's own arena dies; when its grace period is over all of it is traps. */
static void check_death(struct thread *self, uint32_t number)
{
	struct shunt_block *block = &slots[number].block;

	if (!make_program(self, self->own, number, block))
		return;
	__atomic_store_n(&slots[number].program, block->rx, __ATOMIC_RELEASE);
	call_some(self);
	free_program(self, number);
	if (shunt_quiesce() != 0)
		self->wrong = "quiesce was refused";
	if (!is_all_traps(block->rx, block->len))
		self->wrong = "a program's bytes outlived its grace period";
	self->nr_checked++;
}

static void *storm(void *arg)
{
	struct thread *self = arg;
	unsigned nr_freed = 0;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED) && !self->wrong) {
		uint32_t number = self->index + NR_THREADS * random_below(self, SLOTS_PER_THREAD);
		struct slot *slot = &slots[number];

		call_some(self);
		if (slot->program) {
			free_program(self, number);
			if (++nr_freed % FREES_PER_QUIESCE == 0)
				shunt_quiesce();
		} else if (random_below(self, 32) == 0) {
			check_death(self, number);
		} else if (make_program(self, shared, number, &slot->block)) {
			__atomic_store_n(&slot->program, slot->block.rx, __ATOMIC_RELEASE);
		}
	}
	return NULL;
}

Test(pack_storm, programs_live_as_long_as_their_readers_and_are_traps_right_after, .timeout = 3600)
{
	static struct thread threads[NR_THREADS];
	struct shunt_arena_options options = { .size = 64 << 20 };
	struct shunt_reclaim_stats reclaimed;
	struct shunt_pack_stats stats;
	struct shunt_block anchor;
	uint64_t nr_made = 0;
	uint64_t nr_called = 0;
	uint64_t nr_checked = 0;
	double start = now();

	cr_assert_eq(shunt_arena_create(&options, &shared), 0, "%s", shunt_error());
	options.size = 4 << 20;
	for (uint32_t i = 0; i < NR_THREADS; i++) {
		threads[i].index = i;
		threads[i].seed = i + 1;
		cr_assert_eq(shunt_arena_create(&options, &threads[i].own), 0, "%s", shunt_error());
		/* Keeps the pack mapped. */
		cr_assert_eq(shunt_pack_alloc(threads[i].own, SHUNT_SEGMENT_CODE, 64, 0, &anchor), 0);
	}
	for (uint32_t i = 0; i < NR_THREADS; i++)
		cr_assert_eq(pthread_create(&threads[i].id, NULL, storm, &threads[i]), 0);
	while (now() - start < stress_seconds()) {
		usleep(100000);
		for (int i = 0; i < NR_THREADS; i++)
			if (__atomic_load_n(&threads[i].wrong, __ATOMIC_RELAXED))
				start = 0;
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < NR_THREADS; i++) {
		pthread_join(threads[i].id, NULL);
		nr_made += threads[i].nr_made;
		nr_called += threads[i].nr_called;
		nr_checked += threads[i].nr_checked;
	}
	for (int i = 0; i < NR_THREADS; i++)
		cr_assert_null(threads[i].wrong, "%s", threads[i].wrong);
	for (uint32_t i = 0; i < NR_THREADS * SLOTS_PER_THREAD; i++)
		if (slots[i].program)
			cr_assert_eq(shunt_pack_free(&slots[i].block), 0);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(shunt_pack_get_stats(shared, &stats), 0);
	cr_assert_eq(stats.nr_blocks[SHUNT_SEGMENT_CODE], 0);
	cr_assert_eq(stats.bytes_used[SHUNT_SEGMENT_CODE], 0);
	cr_assert_eq(stats.bytes_pending, 0);
	/* One is kept in reserve, on each node. */
	cr_assert_leq(stats.nr_packs[SHUNT_SEGMENT_CODE], stats.nr_nodes);
	cr_assert_eq(shunt_arena_destroy(shared), 0, "%s", shunt_error());
	shunt_reclaim_get_stats(&reclaimed);
	cr_assert_eq(reclaimed.nr_deferred, reclaimed.nr_reclaimed);
	cr_assert_gt(nr_checked, 10);
	printf("pack storm: %llu programs made, %llu calls, %llu deaths checked, %llu grace periods\n", (unsigned long long)nr_made,
	       (unsigned long long)nr_called, (unsigned long long)nr_checked, (unsigned long long)reclaimed.nr_batches);
}
