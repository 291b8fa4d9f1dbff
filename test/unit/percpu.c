/* SPDX-License-Identifier: MIT */
/* The per-CPU area: allocation, layout, zeroing; and where the CPU number comes from. */
#include "pack_check.h"
#include "test/lacks.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/rseq.h>
#include <unistd.h>

#include "runtime/percpu/cpu.h"
#include <shunt/log.h>
#include <shunt/percpu.h>

#define UNIT ((int64_t)1 << SHUNT_PERCPU_SHIFT)

static bool is_zero(const void *p, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (((const char *)p)[i])
			return false;
	}
	return true;
}

Test(percpu_cpus, lists_of_sysfs_are_read_to_their_highest_number)
{
	uint32_t top = 0;

	cr_assert(shunt_cpu_parse_list("0\n", &top));
	cr_assert_eq(top, 0);
	cr_assert(shunt_cpu_parse_list("0-1\n", &top));
	cr_assert_eq(top, 1);
	cr_assert(shunt_cpu_parse_list("0-3,8-11,5", &top));
	cr_assert_eq(top, 11);
	cr_assert(shunt_cpu_parse_list("2,127", &top));
	cr_assert_eq(top, 127);
}

Test(percpu_cpus, broken_lists_are_refused)
{
	const char *broken[] = {"", "\n", "-1", "0-", "3-1", "0,,2", "0;1", "x", "0-99999999", " 1", "0-1 "};
	uint32_t top = 0;

	for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++)
		cr_expect_not(shunt_cpu_parse_list(broken[i], &top), "'%s' was read", broken[i]);
}

Test(percpu_cpus, every_cpu_that_this_process_may_run_on_has_a_number_below_the_count)
{
	cpu_set_t set;

	cr_assert_geq(shunt_nr_cpus(), 1);
	cr_assert_eq(sched_getaffinity(0, sizeof(set), &set), 0);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (CPU_ISSET(cpu, &set))
			cr_expect_lt((uint32_t)cpu, shunt_nr_cpus());
	}
	cr_assert_geq(shunt_nr_cpus(), (uint32_t)sysconf(_SC_NPROCESSORS_ONLN));
}

Test(percpu_cpus, only_the_kernels_that_break_rseq_are_avoided)
{
	cr_assert(shunt_cpu_rseq_is_broken("aarch64", "6.19.0"));
	cr_assert(shunt_cpu_rseq_is_broken("aarch64", "6.19.12-custom"));
	cr_assert(shunt_cpu_rseq_is_broken("aarch64", "7.0-rc1"));
	cr_assert(shunt_cpu_rseq_is_broken("aarch64", "7.0.13"));
	cr_assert_not(shunt_cpu_rseq_is_broken("aarch64", "7.0.14"));
	cr_assert_not(shunt_cpu_rseq_is_broken("aarch64", "7.1.0"));
	cr_assert_not(shunt_cpu_rseq_is_broken("aarch64", "6.18.44"));
	cr_assert_not(shunt_cpu_rseq_is_broken("x86_64", "6.19.0"));
	cr_assert_not(shunt_cpu_rseq_is_broken("aarch64", "nonsense"));
}

Test(percpu_cpus, the_source_is_rseq_where_glibc_registered_it_and_getcpu_elsewhere)
{
	const char *expected = getenv("SHUNT_TEST_CPU_SOURCE");
	struct shunt_cpu_index index;

	shunt_cpu_index(&index);
	if (!expected)
		expected = __rseq_size ? "rseq" : "getcpu";
	cr_assert_str_eq(shunt_cpu_source_name(index.source), expected);
}

Test(percpu_cpus, the_number_is_that_of_the_cpu_that_the_thread_is_pinned_to)
{
	cpu_set_t may, one;

	cr_assert_eq(sched_getaffinity(0, sizeof(may), &may), 0);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		struct shunt_cpu_index index;

		if (!CPU_ISSET(cpu, &may))
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		cr_assert_eq(sched_setaffinity(0, sizeof(one), &one), 0);
		cr_assert_eq(shunt_cpu_id(), (uint32_t)cpu);
		shunt_cpu_index(&index);
		if (index.source != SHUNT_CPU_GETCPU)
			cr_assert_eq(*(int32_t *)(shunt_cpu_thread_pointer() + index.tp_offset), cpu);
	}
}

static void *numbered_thread(void *number)
{
	struct shunt_cpu_index index;

	cr_assert_eq(shunt_cpu_id(), (uint32_t)-1);
	cr_assert_eq(shunt_percpu_set_thread((uint32_t)(uintptr_t)number), 0);
	shunt_cpu_index(&index);
	cr_assert_eq(*(int32_t *)(shunt_cpu_thread_pointer() + index.tp_offset), (int32_t)(uintptr_t)number);
	cr_assert_eq(shunt_cpu_id(), (uint32_t)(uintptr_t)number);
	return NULL;
}

Test(percpu_cpus, threads_can_number_themselves)
{
	struct shunt_cpu_index index;
	pthread_t thread;

	cr_assert_eq(shunt_percpu_use_threads(), 0);
	shunt_cpu_index(&index);
	cr_assert_eq(index.source, SHUNT_CPU_THREAD);
	cr_assert_eq(shunt_percpu_set_thread(shunt_nr_cpus()), -EINVAL);
	for (uint32_t number = 0; number < shunt_nr_cpus(); number++) {
		cr_assert_eq(pthread_create(&thread, NULL, numbered_thread, (void *)(uintptr_t)number), 0);
		pthread_join(thread, NULL);
	}
}

Test(percpu_cpus, the_source_cannot_change_once_it_was_used)
{
	void *p;

	cr_assert_eq(shunt_percpu_alloc(8, 0, &p), 0);
	cr_assert_eq(shunt_percpu_use_threads(), -EBUSY);
	cr_assert(strstr(shunt_error(), "before the first"));
	shunt_percpu_free(p);
}

Test(percpu, copies_lie_at_the_promised_distance_and_are_zero)
{
	char *p;

	cr_assert_eq(shunt_percpu_alloc(100, 0, (void **)&p), 0, "%s", shunt_error());
	for (uint32_t cpu = 0; cpu < shunt_nr_cpus(); cpu++) {
		cr_assert_eq((char *)shunt_percpu_of(p, cpu), p + cpu * UNIT);
		cr_assert(is_zero(shunt_percpu_of(p, cpu), 100));
	}
	cr_assert_null(shunt_percpu_of(p, shunt_nr_cpus()));
	cr_assert_null(shunt_percpu_of(p, (uint32_t)-1));
	cr_assert_eq((char *)shunt_percpu_unregistered(p), p - UNIT);
	/* Both units of unregistered threads can be written. */
	memset(p - UNIT, 1, 100);
	memset(p - 2 * UNIT, 1, 100);
	shunt_percpu_free(p);
}

Test(percpu, writing_one_copy_leaves_the_others_alone)
{
	uint64_t *p;

	cr_assert_eq(shunt_percpu_alloc(sizeof(*p), 0, (void **)&p), 0);
	for (uint32_t cpu = 0; cpu < shunt_nr_cpus(); cpu++)
		*(uint64_t *)shunt_percpu_of(p, cpu) = 1000 + cpu;
	*(uint64_t *)((char *)p - UNIT) = 50;
	*(uint64_t *)((char *)p - 2 * UNIT) = 7;
	for (uint32_t cpu = 0; cpu < shunt_nr_cpus(); cpu++)
		cr_assert_eq(*(uint64_t *)shunt_percpu_of(p, cpu), 1000 + cpu);
	cr_assert_eq(shunt_percpu_sum64(p), (uint64_t)shunt_nr_cpus() * 1000 + (uint64_t)shunt_nr_cpus() * (shunt_nr_cpus() - 1) / 2 + 57);
	shunt_percpu_free(p);
}

Test(percpu, objects_of_a_cache_line_start_on_one_and_alignment_is_kept)
{
	void *small[7], *p;

	for (int i = 0; i < 7; i++) {
		cr_assert_eq(shunt_percpu_alloc(24, 0, &small[i]), 0);
		cr_assert_eq((uintptr_t)small[i] % 8, 0);
		cr_assert_eq(shunt_percpu_alloc(64, 0, &p), 0);
		cr_assert_eq((uintptr_t)p % 64, 0);
		shunt_percpu_free(p);
	}
	for (size_t align = 1; align <= 4096; align *= 2) {
		cr_assert_eq(shunt_percpu_alloc(3, align, &p), 0);
		cr_assert_eq((uintptr_t)p % align, 0);
		shunt_percpu_free(p);
	}
	for (int i = 0; i < 7; i++)
		shunt_percpu_free(small[i]);
}

Test(percpu, nonsense_is_refused_with_a_reason)
{
	void *p = NULL;

	cr_assert_eq(shunt_percpu_alloc(0, 0, &p), -EINVAL);
	cr_assert_eq(shunt_percpu_alloc(8, 3, &p), -EINVAL);
	cr_assert_eq(shunt_percpu_alloc(8, 8192, &p), -EINVAL);
	cr_assert_eq(shunt_percpu_alloc((size_t)UNIT + 1, 0, &p), -ENOMEM);
	cr_assert_eq(shunt_percpu_alloc(SIZE_MAX, 0, &p), -ENOMEM);
	cr_assert_null(p);
	cr_assert_str_neq(shunt_error(), "");
	shunt_percpu_free(NULL);
}

static int errors_seen;

static void count_error(void *user, enum shunt_log_level level, const char *message)
{
	errors_seen += level == SHUNT_LOG_ERROR;
}

Test(percpu, a_second_free_and_an_inner_address_are_refused)
{
	char *p, *q;

	cr_assert_eq(shunt_percpu_alloc(128, 0, (void **)&p), 0);
	cr_assert_eq(shunt_percpu_alloc(128, 0, (void **)&q), 0);
	shunt_set_log(count_error, NULL, SHUNT_LOG_ERROR);
	shunt_percpu_free(p + 64);
	cr_assert_eq(errors_seen, 1);
	shunt_percpu_free(p);
	cr_assert_eq(errors_seen, 1);
	shunt_percpu_free(p);
	cr_assert_eq(errors_seen, 2);
	shunt_percpu_free(&errors_seen);
	cr_assert_eq(errors_seen, 3);
	shunt_set_log(NULL, NULL, SHUNT_LOG_ERROR);
	/* The neighbour is untouched. */
	memset(q, 1, 128);
	shunt_percpu_free(q);
}

Test(percpu, freed_memory_is_zero_again_in_every_unit)
{
	size_t sizes[] = {8, 72, 4096, 5000, 300000};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		char *p, *q;

		cr_assert_eq(shunt_percpu_alloc(sizes[i], 0, (void **)&p), 0);
		for (int64_t unit = -2; unit < shunt_nr_cpus(); unit++)
			memset(p + unit * UNIT, 0xa5, sizes[i]);
		shunt_percpu_free(p);
		cr_assert_eq(shunt_percpu_alloc(sizes[i], 0, (void **)&q), 0);
		for (int64_t unit = -2; unit < shunt_nr_cpus(); unit++)
			cr_assert(is_zero(q + unit * UNIT, sizes[i]), "size %zu unit %d", sizes[i], (int)unit);
		/* The same room: nothing else was allocated. */
		cr_assert_eq(p, q);
		shunt_percpu_free(q);
	}
}

/* Random allocations against a list of what must not overlap; every object carries its own pattern. */
Test(percpu, random_allocations_never_overlap_and_keep_their_contents)
{
	enum { NR = 200 };
	struct {
		unsigned char *p;
		size_t size;
	} live[NR] = {0};
	unsigned int seed = 7;
	unsigned char *low = NULL, *high = NULL;

	for (int step = 0; step < 20000; step++) {
		int i = (int)(rand_r(&seed) % NR);

		if (live[i].p) {
			for (int64_t unit = -2; unit < shunt_nr_cpus(); unit++) {
				unsigned char *copy = live[i].p + unit * UNIT;

				cr_assert_eq(copy[0], (unsigned char)i);
				cr_assert_eq(copy[live[i].size - 1], (unsigned char)i);
			}
			shunt_percpu_free(live[i].p);
			live[i].p = NULL;
			continue;
		}
		live[i].size = 1 + (size_t)rand_r(&seed) % (rand_r(&seed) % 8 ? 200 : 20000);
		cr_assert_eq(shunt_percpu_alloc(live[i].size, 1u << (rand_r(&seed) % 13), (void **)&live[i].p), 0);
		for (int64_t unit = -2; unit < shunt_nr_cpus(); unit++) {
			unsigned char *copy = live[i].p + unit * UNIT;

			cr_assert_eq(copy[0], 0);
			cr_assert_eq(copy[live[i].size - 1], 0);
			memset(copy, i, live[i].size);
		}
		if (!low || live[i].p < low)
			low = live[i].p;
		if (live[i].p + live[i].size > high)
			high = live[i].p + live[i].size;
	}
	for (int i = 0; i < NR; i++)
		shunt_percpu_free(live[i].p);
	/* 100 objects of at most 20,000 bytes are alive on average, most far smaller: coalescing keeps the range near that. */
	cr_assert_lt(high - low, 4 << 20);
}

Test(percpu, pieces_freed_in_any_order_join_to_one_again)
{
	enum { NR = 64 };
	char *pieces[NR], *whole;

	/* Nothing else was allocated in this process: the pieces lie one behind the other. */
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < NR; i++)
			cr_assert_eq(shunt_percpu_alloc(128, 0, (void **)&pieces[i]), 0);
		cr_assert_eq(pieces[NR - 1] - pieces[0], (NR - 1) * 128);
		for (int i = 0; i < NR; i++) {
			/* Upwards, downwards, and every second before the others. */
			int at = round == 0 ? i : round == 1 ? NR - 1 - i : i < NR / 2 ? 2 * i : 2 * (i - NR / 2) + 1;

			shunt_percpu_free(pieces[at]);
		}
		cr_assert_eq(shunt_percpu_alloc(NR * 128, 0, (void **)&whole), 0);
		cr_assert_eq(whole, pieces[0], "the room was left in pieces");
		shunt_percpu_free(whole);
	}
}

Test(percpu, without_address_space_the_refusal_says_so)
{
	struct rlimit limit = {.rlim_cur = (rlim_t)1 << 30, .rlim_max = (rlim_t)1 << 30};
	void *p = NULL;

	if (lacks_address_limit())
		cr_skip_test(LACKS_ADDRESS_LIMIT);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	cr_skip_test("the sanitizer's shadow needs more address space than the limit of this test");
#endif
	cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
	cr_assert_eq(shunt_percpu_alloc(8, 0, &p), -ENOMEM);
	cr_assert_null(p);
	cr_assert(strstr(shunt_error(), "RLIMIT_AS"), "%s", shunt_error());
}
