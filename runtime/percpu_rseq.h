/* SPDX-License-Identifier: MIT */
/*
 * The exact add: one restartable sequence a width. Contract, the same on every CPU:
 *
 *	retry:	thread.rseq_cs = &descriptor		last instruction before start
 *	start:	cpu = thread.cpu_id (signed)		read inside, so that a migration restarts with the new number
 *		if (cpu < 0) goto unregistered
 *		*(p + (cpu << SHUNT_PERCPU_SHIFT)) += v	the store is the commit and the last instruction
 *	end:	thread.rseq_cs = 0			never left to point into code that may be unmapped later
 *		return true
 *	abort:	goto retry				the kernel cleared rseq_cs; 4 bytes of signature lie before abort
 *	unregistered:
 *		thread.rseq_cs = 0; return false
 *
 * Everything is in one asm statement: the compiler must not put anything between the store of rseq_cs and start. Labels are numeric,
 * since the statement may be duplicated. `area` is the offset of the thread's struct rseq from the thread pointer.
 */
#ifndef RUNTIME_PERCPU_RSEQ_H
#define RUNTIME_PERCPU_RSEQ_H

#include <stdbool.h>
#include <stdint.h>

#define RSEQ_TEXT_(x) #x
#define RSEQ_TEXT(x) RSEQ_TEXT_(x)

/* struct rseq_cs of linux/rseq.h: version, flags, start, length, abort. Writable: it holds addresses, which the dynamic linker relocates. */
#define RSEQ_DESCRIPTOR                                                                                                                    \
	".pushsection __rseq_cs, \"aw\"\n\t"                                                                                               \
	".balign 32\n"                                                                                                                     \
	"3:\n\t"                                                                                                                           \
	".long 0, 0\n\t"                                                                                                                   \
	".quad 1f, 2f - 1f, 4f\n\t"                                                                                                        \
	".popsection\n"

#if defined(__x86_64__)

/* The signature is the immediate of a ud1, so that disassembly stays in step. */
#define RSEQ_ADD(add_mnemonic)                                                                                                             \
	__asm__ volatile(RSEQ_DESCRIPTOR                                                                                                   \
			 "0:\n\t"                                                                                                          \
			 "leaq 3b(%%rip), %[cpu]\n\t"                                                                                      \
			 "movq %[cpu], %%fs:8(%[area])\n"                                                                                  \
			 "1:\n\t"                                                                                                          \
			 "movslq %%fs:4(%[area]), %[cpu]\n\t"                                                                              \
			 "testq %[cpu], %[cpu]\n\t"                                                                                        \
			 "js 5f\n\t"                                                                                                       \
			 "shlq $" RSEQ_TEXT(SHUNT_PERCPU_SHIFT) ", %[cpu]\n\t"                                                             \
			 add_mnemonic " %[v], (%[p], %[cpu])\n"                                                                            \
			 "2:\n\t"                                                                                                          \
			 "movq $0, %%fs:8(%[area])\n\t"                                                                                    \
			 "jmp 6f\n\t"                                                                                                      \
			 ".byte 0x0f, 0xb9, 0x3d\n\t"                                                                                      \
			 ".long 0x53053053\n"                                                                                              \
			 "4:\n\t"                                                                                                          \
			 "jmp 0b\n"                                                                                                        \
			 "5:\n\t"                                                                                                          \
			 "movq $0, %%fs:8(%[area])\n"                                                                                      \
			 "6:\n\t"                                                                                                          \
			 : [cpu] "=&r"(cpu)                                                                                                \
			 : [area] "r"(area), [p] "r"(p), [v] "r"(v)                                                                        \
			 : "memory", "cc")

static inline bool percpu_rseq_add64(int64_t area, void *p, uint64_t v)
{
	int64_t cpu;

	RSEQ_ADD("addq");
	return cpu >= 0;
}

static inline bool percpu_rseq_add32(int64_t area, void *p, uint32_t v)
{
	int64_t cpu;

	RSEQ_ADD("addl");
	return cpu >= 0;
}

#elif defined(__aarch64__)

/* Load, add and store are three instructions; an interruption before the store restarts all of them. w is the counter's register width. */
#define RSEQ_ADD(w)                                                                                                                        \
	__asm__ volatile(RSEQ_DESCRIPTOR                                                                                                   \
			 "0:\n\t"                                                                                                          \
			 "adrp %[cpu], 3b\n\t"                                                                                             \
			 "add %[cpu], %[cpu], :lo12:3b\n\t"                                                                                \
			 "str %[cpu], [%[rseq], #8]\n"                                                                                     \
			 "1:\n\t"                                                                                                          \
			 "ldrsw %[cpu], [%[rseq], #4]\n\t"                                                                                 \
			 "tbnz %[cpu], #63, 5f\n\t"                                                                                        \
			 "add %[at], %[p], %[cpu], lsl #" RSEQ_TEXT(SHUNT_PERCPU_SHIFT) "\n\t"                                             \
			 "ldr %" w "[sum], [%[at]]\n\t"                                                                                    \
			 "add %" w "[sum], %" w "[sum], %" w "[v]\n\t"                                                                     \
			 "str %" w "[sum], [%[at]]\n"                                                                                      \
			 "2:\n\t"                                                                                                          \
			 "str xzr, [%[rseq], #8]\n\t"                                                                                      \
			 "b 6f\n\t"                                                                                                        \
			 ".inst 0xd428bc00\n"                                                                                              \
			 "4:\n\t"                                                                                                          \
			 "b 0b\n"                                                                                                          \
			 "5:\n\t"                                                                                                          \
			 "str xzr, [%[rseq], #8]\n"                                                                                        \
			 "6:\n\t"                                                                                                          \
			 : [cpu] "=&r"(cpu), [at] "=&r"(at), [sum] "=&r"(sum)                                                              \
			 : [rseq] "r"((char *)__builtin_thread_pointer() + area), [p] "r"(p), [v] "r"(v)                                   \
			 : "memory", "cc")

static inline bool percpu_rseq_add64(int64_t area, void *p, uint64_t v)
{
	int64_t cpu;
	uint64_t at, sum;

	RSEQ_ADD("x");
	return cpu >= 0;
}

static inline bool percpu_rseq_add32(int64_t area, void *p, uint32_t v)
{
	int64_t cpu;
	uint64_t at, sum;

	RSEQ_ADD("w");
	return cpu >= 0;
}

#else
#error "no restartable sequence for this CPU"
#endif

#endif
