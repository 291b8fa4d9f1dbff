/* SPDX-License-Identifier: MIT */
/* What restartable sequences in inline assembly are made of, for rmw_emit.c (one update) and rmw_emit_pair.c (two). */
#ifndef PASSES_RMW_SEQUENCE_H
#define PASSES_RMW_SEQUENCE_H

#include "passes/rmw.h"

/* How often the second sequence is tried. */
#define RMW_TRIES "100"

/* The four bytes before a way on from an abort: ud1 and brk, which keep disassembly in step with the signature. */
#define RMW_SIGNATURE_X86_64 ".byte 0x0f, 0xb9, 0x3d\n.long 0x53053053\n"
#define RMW_SIGNATURE_ARM64 ".inst 0xd428bc00\n"

/* struct rseq_cs of linux/rseq.h: version, flags, start, length, abort. */
#define RMW_DESCRIPTOR(label, start, end, abort)                                                                                           \
	".balign 32\n" label ":\n"                                                                                                         \
	".long 0, 0\n"                                                                                                                     \
	".quad " start "f, " end "f - " start "f, " abort "f\n"

/* Sections of descriptors, of pointers to them, and of ways out, each a start and where the way leads. */
#define RMW_DESCRIPTORS(descriptors, pointers, ways_out)                                                                                   \
	".pushsection __rseq_cs, \"aw\"\n" descriptors ".popsection\n"                                                                    \
	".pushsection __rseq_cs_ptr_array, \"aw\"\n"                                                                                      \
	".quad " pointers "\n"                                                                                                             \
	".popsection\n"                                                                                                                    \
	".pushsection __rseq_exit_point_array, \"aw\"\n"                                                                                  \
	".quad " ways_out "\n"                                                                                                             \
	".popsection\n"

_Static_assert(SHUNT_PERCPU_SHIFT == 30, "the assembly has the unit size in its shifts and displacements");

/* The thread's cpu_id and rseq_cs as operands of x86-64 instructions; offset names the operand that holds where its struct rseq is, unless
 * that is a constant. */
struct rmw_fields {
	char cpu_id[40], rseq_cs[40];
};
struct rmw_fields shunt_rmw_fields(const struct shunt_pass *pass, const char *offset);

/* An x86-64 instruction to which a comma and a place in memory are to be added: operand is the number of the value's. */
void shunt_rmw_format_x86_64(char *text, size_t len, enum shunt_rmw_op op, unsigned width, unsigned operand);
/* Three arm64 instructions, by way of operand temporary, to a place that is complete ("[$0]", "[$1], #1"). */
void shunt_rmw_format_arm64(char *text, size_t len, enum shunt_rmw_op op, unsigned width, unsigned operand, unsigned temporary,
			    const char *load_from, const char *store_to);
/* Four more, a loop of exclusives at [$0] whose status is operand status and whose label is label. */
void shunt_rmw_format_arm64_atomic(char *text, size_t len, enum shunt_rmw_op op, unsigned width, unsigned operand, unsigned temporary,
				   unsigned status, const char *label);

/* The thread's struct rseq, arm64. */
LLVMValueRef shunt_rmw_arm64_area(struct shunt_pass *pass);

LLVMValueRef shunt_rmw_call_assembly(struct shunt_pass *pass, LLVMTypeRef type, char *text, const char *constraints, LLVMValueRef *args,
				     unsigned nr);

#endif
