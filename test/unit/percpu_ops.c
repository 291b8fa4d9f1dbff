/* SPDX-License-Identifier: MIT */
/* Exact operations other than add, per-CPU stacks, and all of them where threads come and go, fork, are stepped through by a debugger, or
 * bring their own numbers. */
#include "pack_check.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/percpu/cpu.h"
#include "runtime/percpu/percpu_rseq.h"
#include <shunt/log.h>
#include <shunt/percpu.h>
#include "test/slowness.h"

#define NR_THREADS 8
#define NR_OPS 100000

static uint64_t *word;

static void alloc_word(void)
{
	cr_assert_eq(shunt_percpu_alloc(8, 0, (void **)&word), 0);
}

static uint64_t unit_value(int64_t unit)
{
	return *(uint64_t *)shunt_cpu_copy(word, unit);
}

static void run_threads(void *(*body)(void *), unsigned int nr)
{
	pthread_t threads[64];
	void *bad;

	for (uintptr_t i = 0; i < nr; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, body, (void *)i), 0);
	for (unsigned int i = 0; i < nr; i++) {
		pthread_join(threads[i], &bad);
		cr_assert_null(bad);
	}
}

static void pin(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(sched_getcpu(), &set);
	cr_assert_eq(sched_setaffinity(0, sizeof(set), &set), 0);
}

Test(percpu_ops, each_operation_returns_what_was_there)
{
	pin();
	alloc_word();
	cr_assert_eq(shunt_percpu_xchg64(word, 5), 0);
	cr_assert_eq(shunt_percpu_cmpxchg64(word, 4, 9), 5);
	cr_assert_eq(shunt_percpu_cmpxchg64(word, 5, 9), 5);
	cr_assert_eq(shunt_percpu_or64(word, 0x8000000000000006), 9);
	cr_assert_eq(shunt_percpu_max64(word, 1), 0x800000000000000f);
	cr_assert_eq(shunt_percpu_max64(word, UINT64_MAX), 0x800000000000000f);
	cr_assert_eq(shunt_percpu_xchg64(word, 0), UINT64_MAX);
	cr_assert_eq(shunt_percpu_sum64(word), 0);
	shunt_percpu_free(word);
}

/* The sequences on an area that is not the kernel's: what they read, write and leave behind. */
Test(percpu_ops, a_sequence_works_on_the_copy_that_the_area_names_and_clears_its_descriptor)
{
	struct {
		uint32_t cpu_id_start;
		int32_t cpu_id;
		uint64_t rseq_cs;
	} fake __attribute__((aligned(32))) = {0};
	int64_t area = (char *)&fake - shunt_cpu_thread_pointer();
	void *nodes[2] = {NULL, NULL}, *node = &fake;
	uint64_t old;

	alloc_word();
	fake.cpu_id = (int32_t)shunt_nr_cpus() - 1;
	old = 0;
	cr_assert(percpu_rseq_exchange64(area, word, &old, 7));
	cr_assert_eq(old, 0);
	cr_assert(percpu_rseq_exchange64(area, word, &old, 8));
	cr_assert_eq(old, 7, "an exchange with another value expected is refused");
	cr_assert_eq(unit_value(fake.cpu_id), 7);
	cr_assert_eq(fake.rseq_cs, 0);
	nodes[0] = &nodes[1];
	*(void **)shunt_cpu_copy(word, fake.cpu_id) = &nodes[0];
	cr_assert(percpu_rseq_pop(area, word, &node));
	cr_assert_eq(node, &nodes[0]);
	cr_assert(percpu_rseq_pop(area, word, &node));
	cr_assert_eq(node, &nodes[1]);
	cr_assert(percpu_rseq_pop(area, word, &node));
	cr_assert_null(node);
	cr_assert_eq(fake.rseq_cs, 0);
	for (fake.cpu_id = -2; fake.cpu_id < 0; fake.cpu_id++) {
		cr_assert_not(percpu_rseq_exchange64(area, word, &old, 1));
		cr_assert_not(percpu_rseq_pop(area, word, &node));
		cr_assert_eq(fake.rseq_cs, 0);
	}
	shunt_percpu_free(word);
}

static void *set_bits(void *number)
{
	for (int i = 0; i < NR_OPS; i++)
		shunt_percpu_or64(word, UINT64_C(1) << ((uintptr_t)number * 8 + (unsigned int)i % 8));
	return NULL;
}

Test(percpu_ops, no_bit_that_was_ored_is_lost)
{
	uint64_t bits = 0;

	alloc_word();
	run_threads(set_bits, NR_THREADS);
	for (int64_t unit = -1; unit < (int64_t)shunt_nr_cpus(); unit++)
		bits |= unit_value(unit);
	cr_assert_eq(bits, UINT64_MAX);
	shunt_percpu_free(word);
}

static uint64_t tokens_out;

/* Every token that goes in comes out once or is still there. */
static void *exchange_tokens(void *number)
{
	uint64_t out = 0;

	for (uint64_t i = 1; i <= NR_OPS; i++)
		out += shunt_percpu_xchg64(word, i * NR_THREADS + (uintptr_t)number);
	__atomic_add_fetch(&tokens_out, out, __ATOMIC_RELAXED);
	return NULL;
}

Test(percpu_ops, no_exchanged_value_is_lost_or_seen_twice)
{
	uint64_t in = 0;

	alloc_word();
	run_threads(exchange_tokens, NR_THREADS);
	for (uint64_t number = 0; number < NR_THREADS; number++)
		for (uint64_t i = 1; i <= NR_OPS; i++)
			in += i * NR_THREADS + number;
	cr_assert_eq(tokens_out + shunt_percpu_sum64(word), in);
	shunt_percpu_free(word);
}

static void *raise_maximum(void *number)
{
	for (uint64_t i = 0; i < NR_OPS; i++)
		shunt_percpu_max64(word, i * NR_THREADS + (uintptr_t)number);
	return NULL;
}

Test(percpu_ops, the_greatest_value_stays)
{
	uint64_t greatest = 0;

	alloc_word();
	run_threads(raise_maximum, NR_THREADS);
	for (int64_t unit = -1; unit < (int64_t)shunt_nr_cpus(); unit++)
		greatest = unit_value(unit) > greatest ? unit_value(unit) : greatest;
	cr_assert_eq(greatest, NR_OPS * NR_THREADS - 1);
	shunt_percpu_free(word);
}

struct node {
	struct node *next;
	uint32_t owner; /* whoever popped it writes here: two owners at once would show */
	uint32_t seen;
};

static void *move_nodes(void *number)
{
	struct node *held[8] = {NULL};
	uint32_t me = (uint32_t)(uintptr_t)number + 1;

	for (int i = 0; i < NR_OPS; i++) {
		struct node **slot = &held[i % 8];

		if (*slot) {
			if ((*slot)->owner != me)
				return (void *)1;
			(*slot)->owner = 0;
			shunt_percpu_push(word, *slot);
			*slot = NULL;
		} else {
			*slot = shunt_percpu_pop(word);
			if (*slot) {
				if ((*slot)->owner)
					return (void *)1;
				(*slot)->owner = me;
			}
		}
	}
	for (int i = 0; i < 8; i++) {
		if (held[i]) {
			held[i]->owner = 0;
			shunt_percpu_push(word, held[i]);
		}
	}
	return NULL;
}

Test(percpu_ops, every_node_of_a_stack_has_one_owner_and_none_is_lost)
{
	enum { NR_NODES = 64 };
	struct node nodes[NR_NODES] = {{0}};

	alloc_word();
	cr_assert_null(shunt_percpu_pop(word));
	for (int i = 0; i < NR_NODES; i++)
		shunt_percpu_push(word, &nodes[i]);
	run_threads(move_nodes, NR_THREADS);
	for (int64_t unit = -2; unit < (int64_t)shunt_nr_cpus(); unit++)
		for (struct node *node = *(struct node **)shunt_cpu_copy(word, unit); node; node = node->next)
			cr_assert_eq(node->seen++, 0, "a node is in two places");
	for (int i = 0; i < NR_NODES; i++)
		cr_assert_eq(nodes[i].seen, 1, "node %d is lost", i);
	shunt_percpu_free(word);
}

static void *add_and_exit(void *number)
{
	for (int i = 0; i < 100; i++)
		shunt_percpu_add64(word, 1);
	pthread_exit(NULL);
}

Test(percpu_ops, ten_thousand_threads_that_come_and_go_lose_nothing)
{
	unsigned nr = (unsigned)(200 / test_slowness()); /* an emulator makes fewer */

	alloc_word();
	for (unsigned i = 0; i < nr; i++)
		run_threads(add_and_exit, 50);
	cr_assert_eq(shunt_percpu_sum64(word), nr * 50 * 100);
	shunt_percpu_free(word);
}

static int stop;
static uint64_t added;

static void *add_until_stopped(void *unused)
{
	uint64_t nr = 0;

	for (; !__atomic_load_n(&stop, __ATOMIC_RELAXED); nr++) {
		struct node *node = shunt_percpu_pop((char *)word + 8);

		if (node)
			shunt_percpu_push((char *)word + 8, node);
		shunt_percpu_add64(word, 1);
	}
	__atomic_add_fetch(&added, nr, __ATOMIC_RELAXED);
	return unused;
}

Test(percpu_ops, a_forked_child_goes_on_counting_while_others_were_in_the_middle)
{
	struct node nodes[4];
	pthread_t threads[4];

	cr_assert_eq(shunt_percpu_alloc(16, 0, (void **)&word), 0);
	for (int i = 0; i < 4; i++) {
		shunt_percpu_push((char *)word + 8, &nodes[i]);
		cr_assert_eq(pthread_create(&threads[i], NULL, add_until_stopped, NULL), 0);
	}
	for (int i = 0; i < 50; i++) {
		pid_t child = fork();
		int status;

		cr_assert_geq(child, 0);
		if (!child) {
			uint64_t before = shunt_percpu_sum64(word);

			alarm(10);
			for (int n = 0; n < 1000; n++)
				shunt_percpu_add64(word, 1);
			shunt_percpu_push((char *)word + 8, shunt_percpu_pop((char *)word + 8) ?: &nodes[0]);
			_exit(shunt_percpu_sum64(word) != before + 1000);
		}
		cr_assert_eq(waitpid(child, &status, 0), child);
		cr_assert(WIFEXITED(status) && !WEXITSTATUS(status), "status %#x", status);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	cr_assert_eq(shunt_percpu_sum64(word), added);
	shunt_percpu_free(word);
}

/* A debugger's steps abort a sequence every time. */
Test(percpu_ops, an_operation_ends_under_a_debugger_that_steps_through_it)
{
	pid_t child;
	int status;
	long nr_steps = 0;

	alloc_word();
	child = fork();
	cr_assert_geq(child, 0);
	if (!child) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			_exit(77); /* and not stop: nobody would wake it (qemu-user) */
		raise(SIGSTOP);
		shunt_percpu_add64(word, 3);
		shunt_percpu_or64(word, 4);
		_exit(shunt_percpu_sum64(word) == 7 ? 0 : 1);
	}
	cr_assert_eq(waitpid(child, &status, 0), child);
	if (!WIFSTOPPED(status)) {
		kill(child, SIGKILL);
		cr_skip_test("this process may not trace its child");
	}
	while (WIFSTOPPED(status) && ++nr_steps < 200000) {
		if (ptrace(PTRACE_SINGLESTEP, child, NULL, NULL))
			break;
		cr_assert_eq(waitpid(child, &status, 0), child);
	}
	if (!WIFEXITED(status))
		kill(child, SIGKILL);
	cr_assert(WIFEXITED(status) && !WEXITSTATUS(status), "status %#x after %ld steps", status, nr_steps);
	shunt_percpu_free(word);
}

static _Thread_local int32_t lcore __attribute__((tls_model("initial-exec"))) = -1;

static void *count_as_lcore(void *number)
{
	lcore = (int32_t)(uintptr_t)number;
	if (shunt_cpu_id() != (uint32_t)lcore || shunt_percpu_this(word) != shunt_percpu_of(word, (uint32_t)lcore))
		return (void *)1;
	for (int i = 0; i < NR_OPS; i++)
		shunt_percpu_add64(word, 1);
	return NULL;
}

Test(percpu_ops, a_hosts_own_thread_local_number_is_the_index)
{
	struct shunt_cpu_index index;
	uint32_t *heap = malloc(4 << 20);

	cr_assert_eq(shunt_percpu_use_variable(&lcore, 0), -EINVAL);
	cr_assert_eq(shunt_percpu_use_variable(heap + (1 << 19), 4), -EINVAL, "%s", shunt_error());
	cr_assert_eq(shunt_percpu_use_variable(&lcore, 40), 0);
	cr_assert_eq(shunt_nr_cpus(), 40);
	alloc_word();
	cr_assert_eq(shunt_percpu_this(word), shunt_percpu_unregistered(word), "a thread without a number has CPU %u", shunt_cpu_id());
	shunt_cpu_index(&index);
	cr_assert_eq(index.source, SHUNT_CPU_HOST);
	cr_assert_eq(shunt_cpu_thread_pointer() + index.tp_offset, (char *)&lcore);
	cr_assert_eq(shunt_percpu_set_thread(1), -EINVAL);
	cr_assert_eq(shunt_percpu_use_variable(&lcore, 40), -EBUSY);
	cr_assert_eq(shunt_percpu_use_threads(), -EBUSY);
	run_threads(count_as_lcore, 40);
	for (int64_t unit = 0; unit < 40; unit++)
		cr_assert_eq(unit_value(unit), NR_OPS);
	cr_assert_eq(unit_value(-1), 0);
	shunt_percpu_free(word);
	free(heap);
}
