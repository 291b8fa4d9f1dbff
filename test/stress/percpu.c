/* SPDX-License-Identifier: MIT */
/*
 * The exact add under everything at once: threads that are moved between CPUs all the time, signals, threads that gave up rseq, and
 * objects of others allocated and freed beside the counter. SHUNT_STRESS_SECONDS (10). Without Criterion, whose runner does not start
 * under ThreadSanitizer.
 */
#include <shunt/log.h>
#include <shunt/percpu.h>

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/rseq.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "runtime/percpu/cpu.h"

#define NR_ADDERS 8

#define MUST(condition)                                                                                                                    \
	do {                                                                                                                               \
		if (!(condition)) {                                                                                                        \
			fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #condition, shunt_error());                        \
			exit(1);                                                                                                           \
		}                                                                                                                          \
	} while (0)

static uint64_t *counter;
static int stop;
static uint64_t nr_adds, nr_unregistered_adds, nr_signals;

static bool stopped(void)
{
	return __atomic_load_n(&stop, __ATOMIC_RELAXED);
}

static void on_signal(int sig)
{
	(void)sig;
	shunt_percpu_add64(counter, 1);
	__atomic_add_fetch(&nr_signals, 1, __ATOMIC_RELAXED);
}

static void *adder(void *arg)
{
	uintptr_t number = (uintptr_t)arg;
	bool unregistered = false;
	uint64_t adds = 0;
	sigset_t set;

	if (number % 4 == 3) {
		/* No handler here: its adds are counted as those of registered threads. */
		sigemptyset(&set);
		sigaddset(&set, SIGUSR1);
		pthread_sigmask(SIG_BLOCK, &set, NULL);
		unregistered = __rseq_size && !syscall(SYS_rseq, shunt_cpu_thread_pointer() + __rseq_offset, 32, RSEQ_FLAG_UNREGISTER, RSEQ_SIG);
	}
	while (!stopped()) {
		for (int i = 0; i < 1000; i++)
			shunt_percpu_add64(counter, 1);
		adds += 1000;
	}
	__atomic_add_fetch(&nr_adds, adds, __ATOMIC_RELAXED);
	if (unregistered)
		__atomic_add_fetch(&nr_unregistered_adds, adds, __ATOMIC_RELAXED);
	return NULL;
}

/* Allocates and frees around the counter: scrubbing a neighbour must not touch it. */
static void *neighbour(void *arg)
{
	unsigned int seed = 1;
	(void)arg;
	while (!stopped()) {
		void *objects[20];

		for (int i = 0; i < 20; i++) {
			MUST(shunt_percpu_alloc(8 + (size_t)rand_r(&seed) % 6000, 0, &objects[i]) == 0);
			MUST(*(char *)shunt_percpu_this(objects[i]) == 0);
			*(char *)shunt_percpu_of(objects[i], 0) = 1;
		}
		for (int i = 0; i < 20; i++)
			shunt_percpu_free(objects[i]);
	}
	return NULL;
}

int main(void)
{
	const char *text = getenv("SHUNT_STRESS_SECONDS");
	double seconds = text && atof(text) > 0 ? atof(text) : 10;
	pthread_t adders[NR_ADDERS], other;
	struct timespec pause = {.tv_nsec = 1000000};
	cpu_set_t may, one;
	time_t end;
	int cpu = 0;

	MUST(shunt_percpu_alloc(8, 0, (void **)&counter) == 0);
	signal(SIGUSR1, on_signal);
	MUST(sched_getaffinity(0, sizeof(may), &may) == 0);
	for (uintptr_t i = 0; i < NR_ADDERS; i++)
		MUST(pthread_create(&adders[i], NULL, adder, (void *)i) == 0);
	MUST(pthread_create(&other, NULL, neighbour, NULL) == 0);
	end = time(NULL) + (time_t)(seconds < 1 ? 1 : seconds);
	for (unsigned int round = 0; time(NULL) < end; round++) {
		pthread_t victim = adders[round % NR_ADDERS];

		do
			cpu = (cpu + 1) % CPU_SETSIZE;
		while (!CPU_ISSET(cpu, &may));
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		pthread_setaffinity_np(victim, sizeof(one), round % 3 ? &one : &may);
		pthread_kill(victim, SIGUSR1);
		nanosleep(&pause, NULL);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < NR_ADDERS; i++)
		pthread_join(adders[i], NULL);
	pthread_join(other, NULL);
	printf("%llu adds, %llu of them unregistered, %llu from signals\n", (unsigned long long)nr_adds,
	       (unsigned long long)nr_unregistered_adds, (unsigned long long)nr_signals);
	MUST(shunt_percpu_sum64(counter) == nr_adds + nr_signals);
	MUST(*(uint64_t *)shunt_percpu_unregistered(counter) == nr_unregistered_adds);
	shunt_percpu_free(counter);
	return 0;
}
