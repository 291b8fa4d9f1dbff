/* SPDX-License-Identifier: MIT */
/*
 * The stress of the kernel series that brought packs to arm64: 20 instances of 8 programs each, 5 of each (100) triggered on every CPU
 * while other work runs; here the work is sorting, since a test machine has no compiler. Programs in a page each, in packs of base pages and
 * in packs of 2 MiB pages take turns. Every call's result is checked, and the table is printed. Exit status 1 when a result was wrong.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/pack_program.h"
#include "bench/peer.h"

#define NR_INSTANCES 20
#define NR_IN_INSTANCE 8
#define NR_TRIGGERED 5 /* of each instance */
#define NR_PROGRAMS (NR_INSTANCES * NR_IN_INSTANCE)
#define NR_THREADS_MAX 8
#define NR_REPEATS 3
#define NR_SORTED 200000

static const struct peer *const peers[] = { &peer_page, &peer_shunt_base, &peer_shunt };
#define NR_PEERS (sizeof(peers) / sizeof(peers[0]))

struct result {
	double seconds;
	double calls;     /* a second */
	uint32_t nr_pages; /* that the programs lie in */
	long nr_maps;     /* added */
	char note[128];
	bool good;
};

struct trigger {
	pthread_t id;
	const struct peer_program *programs;
	uint64_t nr_calls;
	bool wrong;
};

static int stop;

static void *trigger_main(void *arg)
{
	struct trigger *trigger = arg;
	struct timespec pause = { 0, 50000 };

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		for (int round = 0; round < 20; round++)
			for (uint32_t i = 0; i < NR_PROGRAMS; i++) {
				if (i % NR_IN_INSTANCE >= NR_TRIGGERED)
					continue;
				trigger->wrong |= program_call(trigger->programs[i].rx) != i;
				trigger->nr_calls++;
			}
		nanosleep(&pause, NULL);
	}
	return NULL;
}

static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static bool work(void)
{
	uint32_t *numbers = malloc(NR_SORTED * sizeof(*numbers)), state = 2463534242u;
	bool good = numbers != NULL;

	for (size_t i = 0; good && i < NR_SORTED; i++) {
		state ^= state << 13;
		state ^= state >> 17;
		state ^= state << 5;
		numbers[i] = state;
	}
	if (good)
		qsort(numbers, NR_SORTED, sizeof(*numbers), by_value);
	for (size_t i = 1; good && i < NR_SORTED; i++)
		good = numbers[i - 1] <= numbers[i];
	free(numbers);
	return good;
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static long nr_maps(void)
{
	FILE *file = fopen("/proc/self/maps", "r");
	long nr = 0;
	int c;

	while (file && (c = getc(file)) != EOF)
		nr += c == '\n';
	if (file)
		fclose(file);
	return nr;
}

static uint32_t nr_pages(const struct peer_program *programs)
{
	uintptr_t size = (uintptr_t)sysconf(_SC_PAGESIZE);
	uint32_t nr = 0;

	for (uint32_t i = 0; i < NR_PROGRAMS; i++) {
		bool seen = false;

		for (uint32_t j = 0; j < i && !seen; j++)
			seen = (uintptr_t)programs[i].rx / size == (uintptr_t)programs[j].rx / size;
		nr += !seen;
	}
	return nr;
}

static void measure(const struct peer *peer, uint32_t nr_threads, struct result *out)
{
	static struct peer_program programs[NR_PROGRAMS];
	struct trigger triggers[NR_THREADS_MAX];
	uint8_t code[PROGRAM_LEN];
	uint64_t nr_calls = 0;
	double start;

	out->nr_maps = nr_maps();
	out->good = peer->open() == 0;
	for (uint32_t i = 0; i < NR_PROGRAMS && out->good; i++) {
		program_write(code, i);
		out->good = peer->install(code, PROGRAM_LEN, &programs[i]) == 0;
	}
	if (!out->good)
		return;
	out->nr_maps = nr_maps() - out->nr_maps;
	out->nr_pages = nr_pages(programs);
	if (peer->note)
		snprintf(out->note, sizeof(out->note), "%s", peer->note());
	for (uint32_t i = 0; i < nr_threads; i++) {
		triggers[i] = (struct trigger){ .programs = programs };
		if (pthread_create(&triggers[i].id, NULL, trigger_main, &triggers[i]) != 0)
			_exit(1);
	}
	start = now();
	out->good = work();
	out->seconds = now() - start;
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (uint32_t i = 0; i < nr_threads; i++) {
		pthread_join(triggers[i].id, NULL);
		out->good &= !triggers[i].wrong && triggers[i].nr_calls;
		nr_calls += triggers[i].nr_calls;
	}
	out->calls = (double)nr_calls / (now() - start);
}

/* In a process of its own, so that one peer's mappings are not another's surroundings. */
static bool measure_in_child(const struct peer *peer, uint32_t nr_threads, struct result *out)
{
	struct result *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status = -1;
	pid_t pid;

	if (shared == MAP_FAILED)
		return false;
	fflush(NULL);
	pid = fork();
	if (!pid) {
		measure(peer, nr_threads, shared);
		_exit(0);
	}
	if (pid > 0)
		waitpid(pid, &status, 0);
	*out = *shared;
	munmap(shared, sizeof(*shared));
	return status == 0 && out->good;
}

static int by_seconds(const void *a, const void *b)
{
	double x = ((const struct result *)a)->seconds, y = ((const struct result *)b)->seconds;

	return x < y ? -1 : x > y;
}

int main(void)
{
	uint32_t nr_threads = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
	struct result results[NR_PEERS][NR_REPEATS];

	if (nr_threads > NR_THREADS_MAX)
		nr_threads = NR_THREADS_MAX;
	for (int repeat = 0; repeat < NR_REPEATS; repeat++)
		for (size_t i = 0; i < NR_PEERS; i++)
			if (!measure_in_child(peers[i], nr_threads, &results[i][repeat])) {
				printf("%s: a program was wrong or could not be made\n", peers[i]->name);
				return 1;
			}
	printf("%d instances of %d programs, %d of them (%d of each) triggered on %u CPUs while %d numbers are sorted; median of %d\n", NR_INSTANCES,
	       NR_IN_INSTANCE, NR_INSTANCES * NR_TRIGGERED, NR_TRIGGERED, nr_threads, NR_SORTED, NR_REPEATS);
	printf("%-18s %8s %8s %10s %20s %14s\n", "", "pages", "maps", "work, s", "lowest .. highest", "calls a second");
	for (size_t i = 0; i < NR_PEERS; i++) {
		qsort(results[i], NR_REPEATS, sizeof(results[i][0]), by_seconds);
		printf("%-18s %8u %8ld %10.3f %9.3f .. %7.3f %14.0f  %s\n", peers[i]->name, results[i][0].nr_pages, results[i][0].nr_maps,
		       results[i][NR_REPEATS / 2].seconds, results[i][0].seconds, results[i][NR_REPEATS - 1].seconds,
		       results[i][NR_REPEATS / 2].calls, results[i][0].note);
	}
#if defined(__aarch64__)
	{
		uint64_t midr;

		/* QEMU's own CPU says that nobody made it. */
		__asm__("mrs %0, midr_el1" : "=r"(midr));
		if ((midr >> 24 & 0xff) == 0)
			printf("This machine is emulated: it has no caches and no TLBs, so the times say nothing about what packs gain. That all calls were\n"
			       "right, the pages and the mappings are what counts here; times are for a real machine (./dev arm64-hw).\n");
	}
#endif
	return 0;
}
