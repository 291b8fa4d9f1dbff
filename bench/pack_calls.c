/* SPDX-License-Identifier: MIT */
/*
 * Does it pay to keep programs together? The question of the kernel's pack series, twice: N programs called in shuffled order, from a page
 * each, from packs of base pages and from packs of 2 MiB pages; and 20 instances of 8 programs, 5 of each triggered in a loop, while a
 * compiler runs beside it.
 */
#include "bench/pack_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/pack_program.h"
#include "bench/peer.h"

#define NR_PEERS 3
#define NR_REPEATS 5
#define NR_STRESS_REPEATS 3

extern char **environ;

static const struct peer *const peers[NR_PEERS] = { &peer_page, &peer_shunt_base, &peer_shunt };

/* ---- iTLB misses, where the machine counts them ---------------------------------------------------------------- */

static int counter_open(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_HW_CACHE,
		.size = sizeof(attr),
		.config = PERF_COUNT_HW_CACHE_ITLB | PERF_COUNT_HW_CACHE_OP_READ << 8 | PERF_COUNT_HW_CACHE_RESULT_MISS << 16,
		.disabled = 1,
		.exclude_kernel = 1,
	};

	return (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

static double counter_stop(int fd)
{
	uint64_t value = 0;

	ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
	return read(fd, &value, sizeof(value)) == sizeof(value) ? (double)value : -1;
}

/* ---- N programs in shuffled order ------------------------------------------------------------------------------ */

struct calls {
	double ns;     /* a call, or the compiler's time */
	double misses; /* a call; negative: not counted */
	double rate;   /* calls a second */
	bool good;
};

static bool install_all(const struct peer *peer, struct peer_program *programs, uint32_t nr)
{
	uint8_t code[PROGRAM_LEN];

	if (peer->open() != 0)
		return false;
	for (uint32_t i = 0; i < nr; i++) {
		program_write(code, i);
		if (peer->install(code, PROGRAM_LEN, &programs[i]) != 0)
			return false;
	}
	return true;
}

static void measure_calls(const struct peer *peer, uint32_t nr, struct calls *out)
{
	uint32_t nr_rounds = 4000000 / nr;
	struct peer_program *programs = aligned_alloc(64, nr * sizeof(*programs));
	uint32_t *order = malloc(nr * sizeof(*order));
	const void **sequence = malloc(nr * sizeof(*sequence));
	uint64_t sum = 0, expected = (uint64_t)nr * (nr - 1) / 2;
	double start;
	int counter;

	if (!programs || !order || !sequence || !install_all(peer, programs, nr))
		return;
	pack_shuffle(order, nr);
	for (uint32_t i = 0; i < nr; i++)
		sequence[i] = programs[order[i]].rx;
	for (uint32_t i = 0; i < nr; i++)
		sum += program_call(sequence[i]);
	out->good = sum == expected;
	counter = counter_open();
	sum = 0;
	if (counter >= 0)
		ioctl(counter, PERF_EVENT_IOC_ENABLE, 0);
	start = pack_cpu_ns();
	for (uint32_t round = 0; round < nr_rounds; round++)
		for (uint32_t i = 0; i < nr; i++)
			sum += program_call(sequence[i]);
	out->ns = (pack_cpu_ns() - start) / ((double)nr * nr_rounds);
	out->misses = counter >= 0 ? counter_stop(counter) / ((double)nr * nr_rounds) : -1;
	out->good &= sum == expected * nr_rounds;
	if (counter >= 0)
		close(counter);
	free(programs);
	free(order);
	free(sequence);
}

static bool in_child(void (*run)(const struct peer *peer, uint32_t arg, struct calls *out), const struct peer *peer, uint32_t arg,
		     struct calls *out)
{
	struct calls *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status = -1;
	pid_t pid;

	if (shared == MAP_FAILED)
		return false;
	fflush(NULL);
	pid = fork();
	if (!pid) {
		run(peer, arg, shared);
		_exit(0);
	}
	if (pid > 0)
		waitpid(pid, &status, 0);
	*out = *shared;
	munmap(shared, sizeof(*shared));
	return status == 0 && out->good;
}

static void measure_calls_pinned(const struct peer *peer, uint32_t nr, struct calls *out)
{
	pack_pin((int)sysconf(_SC_NPROCESSORS_ONLN) - 1);
	measure_calls(peer, nr, out);
}

bool pack_table_calls(void)
{
	static const uint32_t counts[] = { 160, 512, 2048, 8192 };
	bool counted = true;

	printf("\nN programs called in shuffled order, ns of processor time a call (iTLB misses a call), median of %d\n", NR_REPEATS);
	printf("%-8s %20s %20s %20s   %10s %10s\n", "N", "page per program", "4 KiB packs", "2 MiB packs", "pack/page", "2 MiB/4 KiB");
	for (size_t n = 0; n < sizeof(counts) / sizeof(counts[0]); n++) {
		double ns[NR_PEERS][NR_REPEATS], misses[NR_PEERS][NR_REPEATS], median[NR_PEERS];

		for (int repeat = 0; repeat < NR_REPEATS; repeat++)
			for (int i = 0; i < NR_PEERS; i++) {
				struct calls calls;

				if (!in_child(measure_calls_pinned, peers[i], counts[n], &calls)) {
					fprintf(stderr, "%s: a program was wrong or could not be made\n", peers[i]->name);
					return false;
				}
				ns[i][repeat] = calls.ns;
				misses[i][repeat] = calls.misses;
			}
		printf("%-8u", counts[n]);
		for (int i = 0; i < NR_PEERS; i++) {
			double miss = pack_median(misses[i], NR_REPEATS);
			char text[32];

			median[i] = pack_median(ns[i], NR_REPEATS);
			if (miss < 0)
				snprintf(text, sizeof(text), "%.2f", median[i]);
			else
				snprintf(text, sizeof(text), "%.2f (%.3f)", median[i], miss);
			counted &= miss >= 0;
			printf(" %20s", text);
		}
		printf("   %10.2f %10.2f\n", median[1] / median[0], median[2] / median[1]);
		fflush(stdout);
	}
	if (!counted)
		printf("iTLB misses: not available (this machine's performance counters cannot be opened for them)\n");
	return true;
}

/* ---- programs beside a compiler -------------------------------------------------------------------------------- */

#define NR_INSTANCES 20
#define NR_IN_INSTANCE 8
#define NR_TRIGGERED 5
#define NR_STRESS (NR_INSTANCES * NR_IN_INSTANCE)

struct trigger {
	pthread_t id;
	const struct peer_program *programs;
	uint64_t nr_calls;
	bool wrong;
};

static int stop;

/* What a traced kernel does at its hooks: a burst of programs, then the rest of the work (here: the others' turn on the CPU). */
static void *trigger_main(void *arg)
{
	struct trigger *trigger = arg;
	struct timespec pause = { 0, 50000 };

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		for (int round = 0; round < 20; round++)
			for (uint32_t i = 0; i < NR_STRESS; i++) {
				if (i % NR_IN_INSTANCE >= NR_TRIGGERED)
					continue;
				trigger->wrong |= program_call(trigger->programs[i].rx) != i;
				trigger->nr_calls++;
			}
		nanosleep(&pause, NULL);
	}
	return NULL;
}

static bool compile_once(const char *source)
{
	char *const arguments[] = { (char *)BENCH_PACK_CC, (char *)"-O2", (char *)"-std=gnu11", (char *)"-D_GNU_SOURCE", (char *)"-I" BENCH_PACK_SOURCE_DIR,
				    (char *)"-I" BENCH_PACK_SOURCE_DIR "/include", (char *)"-c", (char *)source, (char *)"-o",
				    (char *)"/dev/null", NULL };
	int status = -1;
	pid_t pid;

	if (posix_spawn(&pid, BENCH_PACK_CC, NULL, NULL, arguments, environ) != 0)
		return false;
	waitpid(pid, &status, 0);
	return status == 0;
}

static void measure_stress(const struct peer *peer, uint32_t nr_triggers, struct calls *out)
{
	static const char *const sources[] = {
		BENCH_PACK_SOURCE_DIR "/runtime/grace.c",
		BENCH_PACK_SOURCE_DIR "/runtime/pack/arena.c",
		BENCH_PACK_SOURCE_DIR "/runtime/pack/backing.c",
		BENCH_PACK_SOURCE_DIR "/runtime/pack/pack_fork.c",
	};
	struct peer_program programs[NR_STRESS];
	struct trigger triggers[8];
	uint64_t nr_calls = 0;
	double start;

	out->good = install_all(peer, programs, NR_STRESS);
	if (!out->good)
		return;
	for (uint32_t i = 0; i < nr_triggers; i++) {
		triggers[i] = (struct trigger){ .programs = programs };
		if (pthread_create(&triggers[i].id, NULL, trigger_main, &triggers[i]) != 0)
			_exit(1);
	}
	start = pack_now_ns();
	for (int round = 0; round < 2; round++)
		for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++)
			out->good &= compile_once(sources[i]);
	out->ns = pack_now_ns() - start;
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (uint32_t i = 0; i < nr_triggers; i++) {
		pthread_join(triggers[i].id, NULL);
		out->good &= !triggers[i].wrong;
		nr_calls += triggers[i].nr_calls;
	}
	out->rate = (double)nr_calls / (out->ns / 1e9);
}

static double larger(double a, double b)
{
	return a > b ? a : b;
}

bool pack_table_stress(void)
{
	static const char *const names[NR_PEERS] = { "page per program", "4 KiB packs", "2 MiB packs" };
	uint32_t nr_triggers = sysconf(_SC_NPROCESSORS_ONLN) < 8 ? (uint32_t)sysconf(_SC_NPROCESSORS_ONLN) : 8;
	double seconds[NR_PEERS][NR_STRESS_REPEATS], rates[NR_PEERS][NR_STRESS_REPEATS];
	double first = 0, first_spread = 0;

	printf("\n%d instances of %d programs, %d of each triggered on every CPU while %s compiles 8 files; %d repeats, taking turns\n", NR_INSTANCES,
	       NR_IN_INSTANCE, NR_TRIGGERED, BENCH_PACK_CC, NR_STRESS_REPEATS);
	/* What else the machine does in between meets all of them. */
	for (int repeat = 0; repeat < NR_STRESS_REPEATS; repeat++)
		for (int i = 0; i < NR_PEERS; i++) {
			struct calls calls;

			if (!in_child(measure_stress, peers[i], nr_triggers, &calls)) {
				fprintf(stderr, "%s: the compiler failed, or a program was wrong\n", peers[i]->name);
				return false;
			}
			seconds[i][repeat] = calls.ns / 1e9;
			rates[i][repeat] = calls.rate;
		}
	printf("%-18s %16s %24s %20s   %s\n", "", "wall s, median", "lowest .. highest", "calls a second", "median against a page per program");
	for (int i = 0; i < NR_PEERS; i++) {
		double median = pack_median(seconds[i], NR_STRESS_REPEATS); /* sorts */
		double spread = seconds[i][NR_STRESS_REPEATS - 1] - seconds[i][0];
		double difference = median > first ? median - first : first - median;

		printf("%-18s %16.3f %13.3f .. %7.3f %20.0f", names[i], median, seconds[i][0], seconds[i][NR_STRESS_REPEATS - 1],
		       pack_median(rates[i], NR_STRESS_REPEATS));
		if (!i) {
			first = median;
			first_spread = spread;
		} else {
			printf("   %+.1f %%%s", (median / first - 1) * 100,
			       larger(spread, first_spread) >= difference ? ", less than the spread: noise" : "");
		}
		printf("\n");
	}
	return true;
}
