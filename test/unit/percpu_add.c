/* SPDX-License-Identifier: MIT */
/* The exact add: nothing is lost, whatever migrates, is preempted, interrupted by signals or not registered for rseq. */
#include "pack_check.h"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/rseq.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "runtime/percpu/cpu.h"
#include "runtime/percpu/percpu_rseq.h"
#include <shunt/percpu.h>

#define NR_THREADS 8
#define NR_ADDS 1250000

static uint64_t *counter64;
static uint32_t *counter32;

static void *add_many(void *arg)
{
	for (int i = 0; i < NR_ADDS; i++)
		shunt_percpu_add64(counter64, 1);
	return NULL;
}

static void *add_many_32(void *arg)
{
	for (int i = 0; i < NR_ADDS; i++)
		shunt_percpu_add32(counter32, 1);
	return NULL;
}

static void run_threads(void *(*body)(void *))
{
	pthread_t threads[NR_THREADS];

	for (int i = 0; i < NR_THREADS; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, body, NULL), 0);
	for (int i = 0; i < NR_THREADS; i++)
		pthread_join(threads[i], NULL);
}

static uint64_t rseq_cs_of_this_thread(void)
{
	return *(uint64_t *)(shunt_cpu_thread_pointer() + __rseq_offset + CPU_RSEQ_RSEQ_CS);
}

/* False where glibc did not register this thread, or the kernel refuses. */
static bool unregister_this_thread(void)
{
	char *area = shunt_cpu_thread_pointer() + __rseq_offset;

	/* glibc registers 32 bytes whatever __rseq_size says. */
	return __rseq_size && !syscall(SYS_rseq, area, 32, RSEQ_FLAG_UNREGISTER, RSEQ_SIG);
}

Test(percpu_add, eight_threads_lose_no_increment)
{
	cr_assert_eq(shunt_percpu_alloc(8, 0, (void **)&counter64), 0);
	run_threads(add_many);
	cr_assert_eq(shunt_percpu_sum64(counter64), (uint64_t)NR_THREADS * NR_ADDS);
	/* Nobody here is unregistered. */
	cr_assert_eq(*(uint64_t *)shunt_percpu_unregistered(counter64), 0);
	shunt_percpu_free(counter64);
}

Test(percpu_add, eight_threads_lose_no_32_bit_increment_and_touch_no_neighbour)
{
	uint64_t sum = 0;

	cr_assert_eq(shunt_percpu_alloc(8, 0, (void **)&counter32), 0);
	run_threads(add_many_32);
	for (uint32_t cpu = 0; cpu < shunt_nr_cpus(); cpu++) {
		uint32_t *copy = shunt_percpu_of(counter32, cpu);

		sum += copy[0];
		cr_assert_eq(copy[1], 0);
	}
	cr_assert_eq(sum, (uint64_t)NR_THREADS * NR_ADDS);
	shunt_percpu_free(counter32);
}

Test(percpu_add, values_wrap_and_subtract)
{
	uint32_t sum = 0;
	uint16_t half = 0;
	uint8_t byte = 0, low = 0;

	cr_assert_eq(shunt_percpu_alloc(8, 0, (void **)&counter64), 0);
	shunt_percpu_add64(counter64, 0x123456789abcdef0);
	shunt_percpu_add64(counter64, (uint64_t)-0x10);
	cr_assert_eq(shunt_percpu_sum64(counter64), 0x123456789abcdee0);
	cr_assert_eq(shunt_percpu_alloc(4, 0, (void **)&counter32), 0);
	shunt_percpu_add32(counter32, 0x80000001);
	shunt_percpu_add32(counter32, 0x80000002);
	for (uint32_t cpu = 0; cpu < shunt_nr_cpus(); cpu++)
		sum += *(uint32_t *)shunt_percpu_of(counter32, cpu);
	cr_assert_eq(sum, 3);
	for (int i = 0; i < 4; i++) {
		shunt_percpu_add16((char *)counter32 + 2, 0x4001);
		shunt_percpu_add8((char *)counter32 + 1, 0x41);
	}
	for (uint32_t cpu = 0; cpu < shunt_nr_cpus(); cpu++) {
		unsigned char *copy = shunt_percpu_of(counter32, cpu);

		low += copy[0];
		byte += copy[1];
		half += *(uint16_t *)(copy + 2);
	}
	cr_assert_eq(half, 4);
	cr_assert_eq(byte, 4);
	cr_assert_eq(low, 3, "a carry, or an update of the neighbour");
	shunt_percpu_free(counter32);
	shunt_percpu_free(counter64);
}

/* The sequences on an area that is not the kernel's: what they read, write and leave behind. */
Test(percpu_add, the_sequence_adds_to_the_copy_that_the_area_names_and_clears_its_descriptor)
{
	struct {
		uint32_t cpu_id_start;
		int32_t cpu_id;
		uint64_t rseq_cs;
	} fake __attribute__((aligned(32))) = {0};
	int64_t area = (char *)&fake - shunt_cpu_thread_pointer();

	cr_assert_eq(shunt_percpu_alloc(8, 0, (void **)&counter64), 0);
	for (int32_t cpu = 0; cpu < (int32_t)shunt_nr_cpus(); cpu++) {
		uint64_t *copy = shunt_percpu_of(counter64, (uint32_t)cpu);

		fake.cpu_id = cpu;
		cr_assert(percpu_rseq_add64(area, counter64, 0x100000002));
		cr_assert_eq(*copy, 0x100000002);
		cr_assert_eq(fake.rseq_cs, 0);
		/* 32 bits: no carry into what lies behind. */
		cr_assert(percpu_rseq_add32(area, counter64, 0xffffffff));
		cr_assert_eq(*copy, 0x100000001);
		cr_assert_eq(fake.rseq_cs, 0);
		cr_assert(percpu_rseq_add16(area, (char *)counter64 + 4, 0xffff));
		cr_assert_eq(*copy, 1);
		cr_assert(percpu_rseq_add8(area, counter64, 0xff));
		cr_assert_eq(*copy, 0);
		cr_assert(percpu_rseq_add8(area, (char *)counter64 + 7, 5));
		cr_assert_eq(*copy, UINT64_C(5) << 56);
		cr_assert_eq(fake.rseq_cs, 0);
	}
	for (fake.cpu_id = -2; fake.cpu_id < 0; fake.cpu_id++) {
		cr_assert_not(percpu_rseq_add64(area, counter64, 1));
		cr_assert_not(percpu_rseq_add32(area, counter64, 1));
		cr_assert_not(percpu_rseq_add16(area, counter64, 1));
		cr_assert_not(percpu_rseq_add8(area, counter64, 1));
		cr_assert_eq(fake.rseq_cs, 0);
	}
	cr_assert_eq(shunt_percpu_sum64(counter64), (uint64_t)shunt_nr_cpus() * (UINT64_C(5) << 56), "something was written without a CPU");
	shunt_percpu_free(counter64);
}

static void *check_descriptor(void *arg)
{
	for (int i = 0; i < 1000; i++) {
		shunt_percpu_add64(counter64, 1);
		if (rseq_cs_of_this_thread())
			return (void *)1;
	}
	return NULL;
}

Test(percpu_add, no_descriptor_stays_behind)
{
	pthread_t thread;
	void *stale;

	if (!__rseq_size)
		cr_skip_test("glibc did not register rseq here");
	cr_assert_eq(shunt_percpu_alloc(8, 0, (void **)&counter64), 0);
	cr_assert_eq(pthread_create(&thread, NULL, check_descriptor, NULL), 0);
	pthread_join(thread, &stale);
	cr_assert_null(stale, "rseq_cs still points to the descriptor after an add");
	shunt_percpu_free(counter64);
}

static int nr_unregistered;

static void *add_unregistered(void *arg)
{
	if (unregister_this_thread()) {
		__atomic_add_fetch(&nr_unregistered, 1, __ATOMIC_RELAXED);
		if (shunt_cpu_id() != (uint32_t)-1)
			return (void *)1;
	}
	return add_many(NULL);
}

Test(percpu_add, unregistered_threads_share_a_copy_of_their_own_without_loss)
{
	pthread_t threads[NR_THREADS];
	void *bad;

	cr_assert_eq(shunt_percpu_alloc(8, 0, (void **)&counter64), 0);
	for (int i = 0; i < NR_THREADS; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, i % 2 ? add_unregistered : add_many, NULL), 0);
	for (int i = 0; i < NR_THREADS; i++) {
		pthread_join(threads[i], &bad);
		cr_assert_null(bad, "an unregistered thread reads a CPU number");
	}
	cr_assert_eq(shunt_percpu_sum64(counter64), (uint64_t)NR_THREADS * NR_ADDS);
	if (__rseq_size)
		cr_assert_eq(nr_unregistered, NR_THREADS / 2, "the kernel did not let threads unregister");
	cr_assert_eq(*(uint64_t *)shunt_percpu_unregistered(counter64), (uint64_t)nr_unregistered * NR_ADDS);
	shunt_percpu_free(counter64);
}

static volatile uint64_t signal_adds;

static void add_in_signal(int sig)
{
	shunt_percpu_add64(counter64, 1);
	signal_adds++;
}

Test(percpu_add, signal_handlers_that_add_interrupt_adds_without_loss)
{
	struct itimerval every = {.it_interval = {.tv_usec = 100}, .it_value = {.tv_usec = 100}}, never = {0};
	uint64_t adds = 0;

	cr_assert_eq(shunt_percpu_alloc(8, 0, (void **)&counter64), 0);
	signal(SIGALRM, add_in_signal);
	cr_assert_eq(setitimer(ITIMER_REAL, &every, NULL), 0);
	while (signal_adds < 2000) {
		shunt_percpu_add64(counter64, 1);
		adds++;
	}
	cr_assert_eq(setitimer(ITIMER_REAL, &never, NULL), 0);
	cr_assert_eq(shunt_percpu_sum64(counter64), adds + signal_adds);
	shunt_percpu_free(counter64);
}

static void *add_with_number(void *number)
{
	/* Two threads in each number: the atomics must hold even against the rule that no two threads share one. */
	if (shunt_percpu_set_thread((uint32_t)(uintptr_t)number))
		return (void *)1;
	return add_many(NULL);
}

Test(percpu_add, numbered_threads_lose_nothing)
{
	pthread_t threads[NR_THREADS];
	void *bad;

	cr_assert_eq(shunt_percpu_use_threads(), 0);
	cr_assert_eq(shunt_percpu_alloc(8, 0, (void **)&counter64), 0);
	for (int i = 0; i < NR_THREADS; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, add_with_number, (void *)(uintptr_t)(i % (int)shunt_nr_cpus())), 0);
	for (int i = 0; i < NR_THREADS; i++) {
		pthread_join(threads[i], &bad);
		cr_assert_null(bad);
	}
	cr_assert_eq(shunt_percpu_sum64(counter64), (uint64_t)NR_THREADS * NR_ADDS);
	shunt_percpu_free(counter64);
}
