/* SPDX-License-Identifier: MIT */
/* A C program whose per-CPU globals the plugin made: initial values in every copy, counts that add up, addresses that functions of
 * shunt/percpu.h know. Threads are pinned, so that plain updates are exact. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <shunt/percpu.h>

enum { NR_THREADS = 2, NR_COUNTS = 1000000 };

struct statistics {
	uint32_t limit;
	uint32_t pad;
	uint64_t by_kind[4];
};

SHUNT_PERCPU uint64_t hits;
static SHUNT_PERCPU struct statistics statistics = {.limit = 77, .by_kind = {1, 2, 3, 4}};

static void *count(void *number)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((unsigned long)number % shunt_nr_cpus(), &set);
	pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
	for (int i = 0; i < NR_COUNTS; i++) {
		hits++;
		statistics.by_kind[i % 4] += 2;
	}
	return statistics.limit == 77 && &hits == shunt_percpu_this(&hits) ? NULL : number;
}

int main(void)
{
	uint64_t nr_units = (uint64_t)shunt_nr_cpus() + 2;
	unsigned long nr = shunt_nr_cpus() < NR_THREADS ? shunt_nr_cpus() : NR_THREADS;
	pthread_t threads[NR_THREADS];

	for (unsigned long i = 0; i < nr; i++)
		pthread_create(&threads[i], NULL, count, (void *)i);
	for (unsigned long i = 0; i < nr; i++)
		pthread_join(threads[i], NULL);
	for (uint32_t cpu = 0; cpu < shunt_nr_cpus(); cpu++) {
		struct statistics *copy = shunt_percpu_of(&statistics, cpu);

		if (copy->limit != 77 || copy->by_kind[3] < 4) {
			printf("CPU %u's copy does not begin with the initial value\n", cpu);
			return 1;
		}
	}
	printf("%llu hits\n", (unsigned long long)shunt_percpu_sum64(&hits));
	if (shunt_percpu_sum64(&hits) != nr * NR_COUNTS)
		return 1;
	for (unsigned int kind = 0; kind < 4; kind++)
		if (shunt_percpu_sum64(&statistics.by_kind[kind]) != nr * NR_COUNTS / 2 + nr_units * (kind + 1))
			return 1;
	return 0;
}
