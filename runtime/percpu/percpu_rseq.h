/* SPDX-License-Identifier: MIT */
/*
 * Exact operations on this CPU's copy of a per-CPU object: one restartable sequence each. Contract, the same on every CPU:
 *
 *	tries = RSEQ_TRIES
 *	retry:	thread.rseq_cs = &descriptor		last instruction before start
 *	start:	cpu = thread.cpu_id (signed)		read inside, so that a migration restarts with the new number
 *		if (cpu < 0) goto give_up
 *		the operation at p + (cpu << SHUNT_PERCPU_SHIFT); its one store is the commit and the last instruction
 *	end:	thread.rseq_cs = 0			never left to point into code that may be unmapped later
 *		return tries != 0
 *	abort:	if (--tries) goto retry			the kernel cleared rseq_cs; 4 bytes of signature lie before abort
 *	give_up:
 *		thread.rseq_cs = 0; tries = 0; goto end
 *
 * Tries are bounded for debuggers: stepping through a sequence aborts it every time. The caller then does what it does for threads
 * without rseq. Everything is in one asm statement: the compiler must not put anything between the store of rseq_cs and start. Labels are
 * numeric, since the statement may be duplicated. `area` is the offset of the thread's struct rseq from the thread pointer.
 */
#ifndef RUNTIME_PERCPU_RSEQ_H
#define RUNTIME_PERCPU_RSEQ_H

#include <stdbool.h>
#include <stdint.h>

#define RSEQ_TRIES 100

#define RSEQ_TEXT_(x) #x
#define RSEQ_TEXT(x) RSEQ_TEXT_(x)

/* struct rseq_cs of linux/rseq.h: version, flags, start, length, abort. Writable: it holds addresses, which the dynamic linker relocates.
 * The array of pointers to descriptors is how debuggers and binary translators find the sequences of an image; exit points, pairs of
 * start and target, are the ways out of them other than the end, where a debugger that steps over a sequence waits too. */
#define RSEQ_DESCRIPTOR                                                                                                                    \
	".pushsection __rseq_cs, \"aw\"\n\t"                                                                                               \
	".balign 32\n"                                                                                                                     \
	"3:\n\t"                                                                                                                           \
	".long 0, 0\n\t"                                                                                                                   \
	".quad 1f, 2f - 1f, 4f\n\t"                                                                                                        \
	".popsection\n\t"                                                                                                                  \
	".pushsection __rseq_cs_ptr_array, \"aw\"\n\t"                                                                                     \
	".quad 3b\n\t"                                                                                                                     \
	".popsection\n\t"                                                                                                                  \
	".pushsection __rseq_exit_point_array, \"aw\"\n\t"                                                                                 \
	".quad 1f, 5f\n\t"                                                                                                                 \
	".popsection\n"

#if defined(__x86_64__)

#define RSEQ_AREA(area) (area)

/* The shift keeps the sign, and tells it. The signature is the immediate of a ud1, so that disassembly stays in step. */
#define RSEQ_OPERATION(body, outputs, ...)                                                                                                 \
	__asm__ volatile(RSEQ_DESCRIPTOR                                                                                                   \
			 "0:\n\t"                                                                                                          \
			 "leaq 3b(%%rip), %[at]\n\t"                                                                                       \
			 "movq %[at], %%fs:8(%[area])\n"                                                                                   \
			 "1:\n\t"                                                                                                          \
			 "movslq %%fs:4(%[area]), %[at]\n\t"                                                                               \
			 "shlq $" RSEQ_TEXT(SHUNT_PERCPU_SHIFT) ", %[at]\n\t"                                                              \
			 "js 5f\n\t" body "2:\n\t"                                                                                         \
			 "movq $0, %%fs:8(%[area])\n\t"                                                                                    \
			 "jmp 6f\n\t"                                                                                                      \
			 ".byte 0x0f, 0xb9, 0x3d\n\t"                                                                                      \
			 ".long 0x53053053\n"                                                                                              \
			 "4:\n\t"                                                                                                          \
			 "decl %[tries]\n\t"                                                                                               \
			 "jnz 0b\n"                                                                                                        \
			 "5:\n\t"                                                                                                          \
			 "movq $0, %%fs:8(%[area])\n\t"                                                                                    \
			 "xorl %[tries], %[tries]\n"                                                                                       \
			 "6:\n\t"                                                                                                          \
			 : [at] "=&r"(at), [tries] "+&r"(tries)outputs                                                                     \
			 : [area] "r"(area), [p] "r"(p), __VA_ARGS__                                                                       \
			 : "memory", "cc")

#define RSEQ_HERE "(%[p], %[at])"
#define RSEQ_ADD64 "addq %[v], " RSEQ_HERE "\n"
#define RSEQ_ADD32 "addl %[v], " RSEQ_HERE "\n"
#define RSEQ_ADD16 "addw %[v], " RSEQ_HERE "\n"
#define RSEQ_ADD8 "addb %[v], " RSEQ_HERE "\n"
#define RSEQ_SUM
#define RSEQ_EXCHANGE                                                                                                                      \
	"movq " RSEQ_HERE ", %[old]\n\t"                                                                                                   \
	"cmpq %[expected], %[old]\n\t"                                                                                                     \
	"jne 2f\n\t"                                                                                                                       \
	"movq %[v], " RSEQ_HERE "\n"
#define RSEQ_POP                                                                                                                           \
	"movq " RSEQ_HERE ", %[old]\n\t"                                                                                                   \
	"testq %[old], %[old]\n\t"                                                                                                         \
	"jz 2f\n\t"                                                                                                                        \
	"movq (%[old]), %[next]\n\t"                                                                                                       \
	"movq %[next], " RSEQ_HERE "\n"

#elif defined(__aarch64__)

#define RSEQ_AREA(area) ((char *)__builtin_thread_pointer() + (area))

#define RSEQ_OPERATION(body, outputs, ...)                                                                                                 \
	__asm__ volatile(RSEQ_DESCRIPTOR                                                                                                   \
			 "0:\n\t"                                                                                                          \
			 "adrp %[at], 3b\n\t"                                                                                              \
			 "add %[at], %[at], :lo12:3b\n\t"                                                                                  \
			 "str %[at], [%[area], #8]\n"                                                                                      \
			 "1:\n\t"                                                                                                          \
			 "ldrsw %[at], [%[area], #4]\n\t"                                                                                  \
			 "tbnz %[at], #63, 5f\n\t"                                                                                         \
			 "add %[at], %[p], %[at], lsl #" RSEQ_TEXT(SHUNT_PERCPU_SHIFT) "\n\t" body "2:\n\t"                                \
			 "str xzr, [%[area], #8]\n\t"                                                                                      \
			 "b 6f\n\t"                                                                                                        \
			 ".inst 0xd428bc00\n"                                                                                              \
			 "4:\n\t"                                                                                                          \
			 "subs %w[tries], %w[tries], #1\n\t"                                                                               \
			 "b.ne 0b\n"                                                                                                       \
			 "5:\n\t"                                                                                                          \
			 "str xzr, [%[area], #8]\n\t"                                                                                      \
			 "mov %w[tries], #0\n"                                                                                             \
			 "6:\n\t"                                                                                                          \
			 : [at] "=&r"(at), [tries] "+&r"(tries)outputs                                                                     \
			 : [area] "r"(RSEQ_AREA(area)), [p] "r"(p), __VA_ARGS__                                                            \
			 : "memory", "cc")

/* Load, operation and store are three instructions; an interruption before the store restarts all of them. */
#define RSEQ_ADD(suffix, register)                                                                                                         \
	"ldr" suffix " %" register "[sum], [%[at]]\n\t"                                                                                    \
	"add %" register "[sum], %" register "[sum], %" register "[v]\n\t"                                                                \
	"str" suffix " %" register "[sum], [%[at]]\n"
#define RSEQ_ADD64 RSEQ_ADD("", "x")
#define RSEQ_ADD32 RSEQ_ADD("", "w")
#define RSEQ_ADD16 RSEQ_ADD("h", "w")
#define RSEQ_ADD8 RSEQ_ADD("b", "w")
#define RSEQ_SUM , [sum] "=&r"((uint64_t){0})
#define RSEQ_EXCHANGE                                                                                                                      \
	"ldr %[old], [%[at]]\n\t"                                                                                                          \
	"cmp %[old], %[expected]\n\t"                                                                                                      \
	"b.ne 2f\n\t"                                                                                                                      \
	"str %[v], [%[at]]\n"
#define RSEQ_POP                                                                                                                           \
	"ldr %[old], [%[at]]\n\t"                                                                                                          \
	"cbz %[old], 2f\n\t"                                                                                                               \
	"ldr %[next], [%[old]]\n\t"                                                                                                        \
	"str %[next], [%[at]]\n"

#else
#error "no restartable sequence for this CPU"
#endif

#define RSEQ_COMMA ,

/* All return false, and nothing was done, for a thread without rseq or after RSEQ_TRIES aborts. */
#define RSEQ_DEFINE_ADD(bits)                                                                                                              \
	static inline bool percpu_rseq_add##bits(int64_t area, void *p, uint##bits##_t v)                                                  \
	{                                                                                                                                  \
		uint32_t tries = RSEQ_TRIES;                                                                                               \
		int64_t at;                                                                                                                \
                                                                                                                                           \
		RSEQ_OPERATION(RSEQ_ADD##bits, RSEQ_SUM, [v] "r"(v));                                                                      \
		return tries;                                                                                                              \
	}
RSEQ_DEFINE_ADD(64)
RSEQ_DEFINE_ADD(32)
RSEQ_DEFINE_ADD(16)
RSEQ_DEFINE_ADD(8)

/* Stores v where *old is found; *old becomes what was found. */
static inline bool percpu_rseq_exchange64(int64_t area, void *p, uint64_t *old, uint64_t v)
{
	uint64_t expected = *old, found;
	uint32_t tries = RSEQ_TRIES;
	int64_t at;

	RSEQ_OPERATION(RSEQ_EXCHANGE, RSEQ_COMMA [old] "=&r"(found), [v] "r"(v), [expected] "r"(expected));
	if (tries)
		*old = found;
	return tries;
}

/* Takes the first node off the list whose head is p; *node is NULL when it is empty. The node's first word leads to the next: read inside,
 * so that it is that of a node which is still first. */
static inline bool percpu_rseq_pop(int64_t area, void *p, void **node)
{
	uint32_t tries = RSEQ_TRIES;
	void *first, *next;
	int64_t at;

	RSEQ_OPERATION(RSEQ_POP, RSEQ_COMMA [old] "=&r"(first) RSEQ_COMMA [next] "=&r"(next), "r"(0));
	(void)next;
	if (tries)
		*node = first;
	return tries;
}

#endif
