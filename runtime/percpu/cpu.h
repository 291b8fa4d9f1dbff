/* SPDX-License-Identifier: MIT */
/*
 * Which CPU this thread runs on, and how many there can be. One owner of the choice of the source (shunt/percpu.h): taken once by
 * the first caller, without locks, so that shunt_cpu_id() may run in a signal handler.
 */
#ifndef RUNTIME_CPU_H
#define RUNTIME_CPU_H

#include <stdbool.h>
#include <sys/rseq.h>
#include <shunt/percpu.h>

/* Offset of a field in struct rseq (linux/rseq.h); fixed by the kernel's ABI. */
#define CPU_RSEQ_CPU_ID 4
#define CPU_RSEQ_RSEQ_CS 8

/* The source in use, or -1 before the first use. Written once, by cpu.c; all that follows from it is constant, so relaxed order is enough. */
extern int shunt_cpu_chosen;
enum shunt_cpu_source shunt_cpu_choose(void);

/* Takes the decision when nobody has. */
static inline enum shunt_cpu_source shunt_cpu_source(void)
{
	int source = __atomic_load_n(&shunt_cpu_chosen, __ATOMIC_RELAXED);

	return __builtin_expect(source >= 0, 1) ? (enum shunt_cpu_source)source : shunt_cpu_choose();
}

/* Highest number in a list such as "0-3,8" of sysfs; false when text is none. */
bool shunt_cpu_parse_list(const char *text, uint32_t *highest);

/* Whether a kernel of this machine ("aarch64") and release ("6.19.3-foo") delivers wrong rseq data. */
bool shunt_cpu_rseq_is_broken(const char *machine, const char *release);

static inline char *shunt_cpu_thread_pointer(void)
{
#if defined(__x86_64__)
	/* gcc has had the builtin on x86 only since 11; the ABI keeps the thread pointer in its own first word. */
	char *tp;

	__asm__("movq %%fs:0, %0" : "=r"(tp));
	return tp;
#elif defined(__aarch64__)
	return (char *)__builtin_thread_pointer();
#else
#error "no thread pointer for this CPU"
#endif
}

/* The number where it does not come from rseq. */
uint32_t shunt_cpu_other_number(enum shunt_cpu_source source);

/* shunt_cpu_id without a call in the common case. */
static inline uint32_t shunt_cpu_number(void)
{
	enum shunt_cpu_source source = shunt_cpu_source();

	if (__builtin_expect(source == SHUNT_CPU_RSEQ, 1))
		return __atomic_load_n((uint32_t *)(shunt_cpu_thread_pointer() + __rseq_offset + CPU_RSEQ_CPU_ID), __ATOMIC_RELAXED);
	return shunt_cpu_other_number(source);
}

static inline void *shunt_cpu_copy(void *p, int64_t unit)
{
	return (char *)p + unit * ((int64_t)1 << SHUNT_PERCPU_SHIFT);
}

/* shunt_percpu_this without a call in the common case. */
static inline void *shunt_cpu_this(void *p)
{
	return shunt_cpu_copy(p, (int32_t)shunt_cpu_number());
}

#endif
