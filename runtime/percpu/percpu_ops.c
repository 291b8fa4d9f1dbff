/* SPDX-License-Identifier: MIT */
/*
 * Exact operations on per-CPU objects, for threads of any kind.
 *
 * Which copy, and how: with rseq, registered threads change their CPU's in a restartable sequence (so only one of them at a time, none in
 * the middle) and the others share unit -1 with atomic operations. With getcpu or threads' own numbers all operations are atomic, so the
 * number may be stale without loss. Lists need two words to agree and take a lock where there is no restartable sequence.
 */
#include <errno.h>
#include <pthread.h>

#include "runtime/percpu/cpu.h"
#include "runtime/percpu/percpu.h"
#include "runtime/percpu/percpu_rseq.h"
#include "runtime/tsan.h"

enum { NR_LIST_LOCKS = 16 };

static pthread_mutex_t list_locks[NR_LIST_LOCKS] = {[0 ... NR_LIST_LOCKS - 1] = PTHREAD_MUTEX_INITIALIZER};

static bool has_rseq(void)
{
	return shunt_cpu_source() == SHUNT_CPU_RSEQ;
}

static void *copy_for_atomics(void *p)
{
	int32_t unit = has_rseq() ? -1 : (int32_t)shunt_cpu_number();

	return shunt_cpu_copy(p, unit < 0 ? -1 : unit);
}

#define DEFINE_ADD(bits)                                                                                                                   \
	void shunt_percpu_add##bits(void *p, uint##bits##_t v)                                                                             \
	{                                                                                                                                  \
		if (has_rseq() && percpu_rseq_add##bits(__rseq_offset, p, v))                                                              \
			return;                                                                                                            \
		__atomic_fetch_add((uint##bits##_t *)copy_for_atomics(p), v, __ATOMIC_RELAXED);                                            \
	}
DEFINE_ADD(64)
DEFINE_ADD(32)
DEFINE_ADD(16)
DEFINE_ADD(8)

uint64_t shunt_percpu_cmpxchg64(void *p, uint64_t expected, uint64_t v)
{
	if (!has_rseq() || !percpu_rseq_exchange64(__rseq_offset, p, &expected, v))
		__atomic_compare_exchange_n((uint64_t *)copy_for_atomics(p), &expected, v, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
	return expected;
}

/* The rest are loops of compare and exchange. Each round looks at the copy of the CPU that it runs on; a migration between looking and
 * exchanging finds another value and goes round again, or an equal one, which is as good. */
static uint64_t look(void *p)
{
	return __atomic_load_n((uint64_t *)(has_rseq() && (int32_t)shunt_cpu_number() >= 0 ? shunt_cpu_this(p) : copy_for_atomics(p)),
			       __ATOMIC_RELAXED);
}

static uint64_t exchange(void *p, uint64_t (*change)(uint64_t old, uint64_t v), uint64_t v)
{
	uint64_t old = look(p);

	for (;;) {
		uint64_t found = shunt_percpu_cmpxchg64(p, old, change(old, v));

		if (found == old)
			return old;
		old = found;
	}
}

static uint64_t change_to(uint64_t old, uint64_t v)
{
	(void)old;
	return v;
}

static uint64_t change_or(uint64_t old, uint64_t v)
{
	return old | v;
}

static uint64_t change_max(uint64_t old, uint64_t v)
{
	return v > old ? v : old;
}

uint64_t shunt_percpu_xchg64(void *p, uint64_t v)
{
	return exchange(p, change_to, v);
}

uint64_t shunt_percpu_or64(void *p, uint64_t v)
{
	return exchange(p, change_or, v);
}

uint64_t shunt_percpu_max64(void *p, uint64_t v)
{
	return exchange(p, change_max, v);
}

static pthread_mutex_t *list_lock(void *head)
{
	return &list_locks[(uintptr_t)head / 8 % NR_LIST_LOCKS];
}

void shunt_percpu_push(void *head, void *node)
{
	void **link = node, **slot;
	uint64_t old;

	while (has_rseq() && (int32_t)shunt_cpu_number() >= 0) {
		old = look(head);
		*link = (void *)(uintptr_t)old;
		uint64_t found = old;

		SHUNT_TSAN_RELEASE(node);
		if (!percpu_rseq_exchange64(__rseq_offset, head, &found, (uintptr_t)node))
			break;
		if (found == old)
			return;
	}
	pthread_mutex_lock(list_lock(head));
	slot = copy_for_atomics(head);
	*link = *slot;
	SHUNT_TSAN_RELEASE(node);
	__atomic_store_n(slot, node, __ATOMIC_RELEASE);
	pthread_mutex_unlock(list_lock(head));
}

void *shunt_percpu_pop(void *head)
{
	void *node, **slot;

	if (has_rseq() && percpu_rseq_pop(__rseq_offset, head, &node)) {
		if (node)
			SHUNT_TSAN_ACQUIRE(node);
		return node;
	}
	pthread_mutex_lock(list_lock(head));
	slot = copy_for_atomics(head);
	node = *slot;
	if (node) {
		SHUNT_TSAN_ACQUIRE(node);
		__atomic_store_n(slot, *(void **)node, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(list_lock(head));
	return node;
}

void shunt_percpu_lock_lists(void)
{
	for (int i = 0; i < NR_LIST_LOCKS; i++)
		pthread_mutex_lock(&list_locks[i]);
}

void shunt_percpu_unlock_lists(void)
{
	for (int i = NR_LIST_LOCKS; i--;)
		pthread_mutex_unlock(&list_locks[i]);
}
