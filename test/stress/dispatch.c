/* SPDX-License-Identifier: MIT */
/*
 * Calling while everything changes: SHUNT_STRESS_CALLERS threads (default 3) call programs through 8 dispatchers in read
 * sections, one thread attaches, replaces, detaches and frees programs at full speed, whose memory is reused at once. Every
 * call must land in the program that its pointer named. One of the dispatchers is the image's own. SHUNT_STRESS_SECONDS sets
 * the length (default 60). Memory must stay flat: what is mapped after a quarter of the time is enough for the rest.
 *
 * Who synchronises: the mutator alone writes slots (release), callers load them (acquire) inside a section and use what they
 * loaded only until its end. Everything else is Shunt's.
 */
#include <pthread.h>
#include <sched.h>
#include <shunt/dispatcher.h>
#include <shunt/log.h>
#include <shunt/reader.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "test/exec/dispatch_programs.h"
#include "test/lacks.h"

#define NR_DISPATCHERS 8
#define NR_SLOTS 24
#define NR_SLOTS_MANY 160 /* of every fifth, so that its tree is in parts */
#define NR_CALLERS_MAX 64
#define BATCH 32

/* Sanitizers keep what is freed for a while; an emulator of the user instruction set has its translations in the same process. */
static int other_memory_is_here(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return 1;
#else
	return lacks_advice();
#endif
}

SHUNT_DISPATCHER_DEFINE(stress_image, uint64_t, (uint64_t arg));

static struct hook {
	struct shunt_dispatcher *d;
	const void *stub;
	const void *programs[NR_SLOTS_MANY];     /* what callers may call; NULL: nothing now */
	struct shunt_block blocks[NR_SLOTS_MANY]; /* the mutator's */
	int is_attached[NR_SLOTS_MANY];
	int counts_hits;
} hooks[NR_DISPATCHERS];

static uint32_t nr_slots(const struct hook *hook)
{
	return (hook - hooks) % 5 ? NR_SLOTS : NR_SLOTS_MANY;
}

static int stop;
static uint64_t nr_calls[NR_CALLERS_MAX], nr_wrong[NR_CALLERS_MAX];

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static void *caller(void *arg)
{
	size_t self = (size_t)(uintptr_t)arg;
	uint64_t random = 0x9e3779b97f4a7c15u * (self + 1);
	uint64_t calls = 0, wrong = 0;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		shunt_read_begin();
		for (int i = 0; i < BATCH; i++) {
			uint64_t pick = next_random(&random);
			struct hook *hook = &hooks[pick % NR_DISPATCHERS];
			const void *program = __atomic_load_n(&hook->programs[(pick >> 8) % nr_slots(hook)], __ATOMIC_ACQUIRE);
			uint64_t result;

			if (!program)
				continue;
			/* Now and then give the CPU away with the pointer in hand: that is where a missing grace period hurts. */
			if (pick >> 56 == 0)
				sched_yield();
			result = hook == &hooks[0] ? stress_image(pick, program) : call_stub(hook->stub, pick, program);
			wrong += result != pick + program_id(program);
			calls++;
		}
		shunt_read_end();
	}
	nr_calls[self] = calls;
	nr_wrong[self] = wrong;
	return NULL;
}

static int fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, shunt_error());
	return 1;
}

static int retire(struct hook *hook, uint32_t slot)
{
	struct shunt_block old = hook->blocks[slot];

	if (!old.id)
		return 0;
	__atomic_store_n(&hook->programs[slot], NULL, __ATOMIC_RELEASE);
	if (hook->is_attached[slot] && shunt_dispatcher_detach(hook->d, old.rx))
		return fail("detach");
	hook->blocks[slot].id = 0;
	return shunt_pack_free(&old) ? fail("free") : 0;
}

/* One change: a slot gets a new program, attached in five cases of six, in one of them by replace. */
static int change(struct hook *hook, uint32_t slot, uint64_t pick, uint32_t id)
{
	struct shunt_block block, old = hook->blocks[slot];
	struct shunt_arena *arena = hook == &hooks[0] ? shunt_dispatcher_arena(hook->d) : NULL;

	if (make_program(arena, id, &block))
		return fail("program");
	if (pick % 6 == 0 && old.id && hook->is_attached[slot]) {
		if (shunt_dispatcher_replace(hook->d, old.rx, block.rx))
			return fail("replace");
		__atomic_store_n(&hook->programs[slot], block.rx, __ATOMIC_RELEASE);
		hook->blocks[slot] = block;
		return shunt_pack_free(&old) ? fail("free") : 0;
	}
	if (retire(hook, slot))
		return 1;
	hook->is_attached[slot] = pick % 6 != 1;
	if (hook->is_attached[slot] && shunt_dispatcher_attach(hook->d, block.rx))
		return fail("attach");
	hook->blocks[slot] = block;
	__atomic_store_n(&hook->programs[slot], block.rx, __ATOMIC_RELEASE);
	return 0;
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Bytes that the process has in memory, and what is mapped for code. */
static uint64_t resident(uint64_t *code)
{
	struct shunt_pack_stats stats;
	unsigned long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");

	if (file && fscanf(file, "%*u %lu", &pages) != 1)
		pages = 0;
	if (file)
		fclose(file);
	shunt_pack_get_stats(NULL, &stats);
	*code = stats.bytes_mapped[SHUNT_SEGMENT_CODE];
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t quarter_resident, quarter_code;

static int mutate(double seconds, uint64_t *nr_changes)
{
	double quarter = now() + seconds / 4, end = now() + seconds;
	uint64_t random = 88172645463325252u;

	for (*nr_changes = 0; *nr_changes % 256 || now() < end; ++*nr_changes) {
		uint64_t pick = next_random(&random);
		struct hook *hook;

		if (!quarter_resident && *nr_changes % 256 == 0 && now() > quarter)
			quarter_resident = resident(&quarter_code);
		hook = &hooks[pick % NR_DISPATCHERS];
		if (change(hook, (uint32_t)(pick >> 8) % nr_slots(hook), pick >> 32, (uint32_t)*nr_changes))
			return 1;
		/* Some of the time a dispatcher is empty. */
		if (pick >> 52 == 0) {
			for (uint32_t slot = 0; slot < nr_slots(hook); slot++)
				if (retire(hook, slot))
					return 1;
		}
		/* And some of the time it counts. */
		if (pick >> 54 == 1) {
			hook->counts_hits = !hook->counts_hits;
			if (shunt_dispatcher_count_hits(hook->d, hook->counts_hits))
				return fail("counting hits");
		}
	}
	return 0;
}

static int make_hooks(void)
{
	hooks[0].d = shunt_dispatcher_stress_image();
	for (int i = 1; i < NR_DISPATCHERS; i++) {
		struct shunt_dispatcher_options options = { .plan = (enum shunt_plan_kind)(i % 5) };
		char name[16];

		snprintf(name, sizeof(name), "stress%d", i);
		if (shunt_dispatcher_create(name, &options, &hooks[i].d))
			return fail(name);
	}
	for (int i = 0; i < NR_DISPATCHERS; i++)
		hooks[i].stub = shunt_dispatcher_stub(hooks[i].d);
	return 0;
}

static long setting(const char *name, long otherwise)
{
	const char *value = getenv(name);

	return value && atol(value) > 0 ? atol(value) : otherwise;
}

int main(void)
{
	long nr_callers = setting("SHUNT_STRESS_CALLERS", 3);
	long seconds = setting("SHUNT_STRESS_SECONDS", 60);
	pthread_t threads[NR_CALLERS_MAX];
	uint64_t calls = 0, wrong = 0, nr_changes = 0, nr_patches = 0, end_resident, end_code;
	struct shunt_reclaim_stats reclaim;
	int err;

	if (nr_callers > NR_CALLERS_MAX)
		nr_callers = NR_CALLERS_MAX;
	if (make_hooks())
		return 1;
	for (long i = 0; i < nr_callers; i++)
		if (pthread_create(&threads[i], NULL, caller, (void *)(uintptr_t)i))
			return 1;
	err = mutate((double)seconds, &nr_changes);
	end_resident = resident(&end_code);
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (long i = 0; i < nr_callers; i++) {
		pthread_join(threads[i], NULL);
		calls += nr_calls[i];
		wrong += nr_wrong[i];
	}
	for (int i = 0; i < NR_DISPATCHERS; i++) {
		struct shunt_dispatcher_stats stats;

		shunt_dispatcher_get_stats(hooks[i].d, &stats);
		nr_patches += stats.nr_patches;
		for (uint32_t slot = 0; slot < nr_slots(&hooks[i]); slot++)
			err |= retire(&hooks[i], slot);
		if (i && shunt_dispatcher_destroy(hooks[i].d))
			err = fail("destroy");
	}
	if (shunt_quiesce())
		err = fail("quiesce");
	shunt_reclaim_get_stats(&reclaim);
	printf("%llu calls, %llu changes, %llu patches, %llu grace periods, %llu wrong\n", (unsigned long long)calls,
	       (unsigned long long)nr_changes, (unsigned long long)nr_patches, (unsigned long long)reclaim.nr_batches,
	       (unsigned long long)wrong);
	printf("resident %.1f -> %.1f MiB, code %.1f -> %.1f MiB, longest grace period %.1f ms\n", (double)quarter_resident / 0x1p20,
	       (double)end_resident / 0x1p20, (double)quarter_code / 0x1p20, (double)end_code / 0x1p20, (double)reclaim.longest_wait_ns / 1e6);
	/* How far reclamation is behind depends on what else the machine does, so a few packs come and go. */
	if (quarter_code && end_code > quarter_code + quarter_code / 2 + ((uint64_t)16 << 20)) {
		fprintf(stderr, "code grew\n");
		err = 1;
	}
	if (!other_memory_is_here() && quarter_resident && end_resident > quarter_resident + quarter_resident / 2 + ((uint64_t)16 << 20)) {
		fprintf(stderr, "memory grew\n");
		err = 1;
	}
	return err || wrong || !calls ? 1 : 0;
}
