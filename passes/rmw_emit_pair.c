/* SPDX-License-Identifier: MIT */
/*
 * Two exact updates in one restartable sequence, of which the first is an addition: one store of the descriptor for both. What an
 * abort must know, and the kernel does not tell, is whether the first was done; so its last instruction leaves a trace in a register, in the
 * same instruction as its store.
 *
 * arm64: the store advances its address by one, which is even until then (0, or that of 16 bits or more). The rest is as with one update.
 *
 * x86-64: the addition sets the flags. From the comparison before the start to the addition, ZF is set and CF is not; afterwards never both
 * are so, since a sum that is 0 has carried, unless 0 was added, and that may be done twice. What comes before the start may be interrupted
 * without an abort. The kernel then takes the descriptor out of rseq_cs, and the comparison, which is of the two, finds that; so the
 * number that was read is still that of this CPU where they are equal.
 *
 *	thread.rseq_cs = &descriptor
 *	cpu = thread.cpu_id; if (cpu < 0) goto one
 *	compare thread.rseq_cs with &descriptor
 *	start:	if (not equal) goto one
 *		add to the first copy
 *		the operation on the second; its store is the last instruction
 *	end:
 *	abort:	if (!(ZF && !CF)) goto two
 *	one:	the first update alone, then
 *	two:	the second alone, both as rmw_emit.c does it that was aborted
 */
#include <stdio.h>
#include <string.h>
#include "passes/percpu.h"
#include "passes/rmw_sequence.h"

/* 71 to 72, 74 on abort: the pair; 81 to 82, 84 and 91 to 92, 94: the first and the second alone. */
#define DESCRIPTORS(way_out)                                                                                                               \
	RMW_DESCRIPTORS(RMW_DESCRIPTOR("73", "71", "72", "74") RMW_DESCRIPTOR("83", "81", "82", "84") RMW_DESCRIPTOR("93", "91", "92", "94"), \
			"73b, 83b, 93b", "71f, " way_out "f, 81f, 85f, 91f, 95f")

/* $0 distance of the copies, $1 descriptor and tries; $2, $3 unit0 and operand of the first; then unit0 of the second, unless it is a constant
 * from the first's, its operand, and what rmw_emit.c has as $4. */
static void emit_x86_64(struct shunt_pass *pass, const struct shunt_rmw_sequence *first, const struct shunt_rmw_sequence *second,
			const int64_t *distance)
{
	bool is_constant = pass->options->cpu == SHUNT_PASS_CPU_RSEQ;
	unsigned base = distance ? 2 : 4, nr = 0;
	LLVMTypeRef results[] = { pass->i64, pass->i64 }, result = LLVMStructTypeInContext(pass->context, results, 2, 0), types[5];
	char op2[32], update1[32], update2[80], atomic2[80], offset[8], constraints[96], text[3072];
	long long at = distance ? *distance : 0;
	struct rmw_fields fields;
	LLVMValueRef args[5];

	args[nr++] = first->unit0;
	args[nr++] = first->operand;
	if (!distance)
		args[nr++] = second->unit0;
	args[nr++] = second->operand;
	shunt_rmw_format_x86_64(update1, sizeof(update1), first->op, first->width, 3);
	shunt_rmw_format_x86_64(op2, sizeof(op2), second->op, second->width, nr + 1);
	snprintf(update2, sizeof(update2), "%s, %lld($%u, $0)", op2, at, base);
	snprintf(atomic2, sizeof(atomic2), "%s, %lld($%u)", op2, at - ((int64_t)1 << SHUNT_PERCPU_SHIFT), base);
	snprintf(offset, sizeof(offset), "$%u", nr + 2);
	fields = shunt_rmw_fields(pass, offset);
	if (!is_constant)
		args[nr++] = shunt_pass_rseq_offset(pass);
	for (unsigned i = 0; i < nr; i++)
		types[i] = LLVMTypeOf(args[i]);
	snprintf(text, sizeof(text),
		 DESCRIPTORS("77")
		 "leaq 73b(%%rip), $1\n"
		 "movq $1, %s\n"
		 "movslq %s, $0\n"
		 "shlq $$30, $0\n"
		 "js 77f\n"
		 "cmpq $1, %s\n"
		 "71:\n"
		 "jne 77f\n"
		 "%s, ($2, $0)\n"
		 "%s\n"
		 "72:\n"
		 ".pushsection __rseq_failure, \"ax\"\n"
		 RMW_SIGNATURE_X86_64
		 "74:\n"
		 "jne 96f\n"
		 "jc 96f\n"
		 "77:\n"
		 "movl $$" RMW_TRIES ", ${1:k}\n"
		 "86:\n"
		 "leaq 83b(%%rip), $0\n"
		 "movq $0, %s\n"
		 "81:\n"
		 "movslq %s, $0\n"
		 "shlq $$30, $0\n"
		 "js 85f\n"
		 "%s, ($2, $0)\n"
		 "82:\n"
		 "jmp 96f\n"
		 RMW_SIGNATURE_X86_64
		 "84:\n"
		 "decl ${1:k}\n"
		 "jnz 86b\n"
		 "85:\n"
		 "lock; %s, -0x40000000($2)\n"
		 "96:\n"
		 "movl $$" RMW_TRIES ", ${1:k}\n"
		 "97:\n"
		 "leaq 93b(%%rip), $0\n"
		 "movq $0, %s\n"
		 "91:\n"
		 "movslq %s, $0\n"
		 "shlq $$30, $0\n"
		 "js 95f\n"
		 "%s\n"
		 "92:\n"
		 "jmp 72b\n"
		 RMW_SIGNATURE_X86_64
		 "94:\n"
		 "decl ${1:k}\n"
		 "jnz 97b\n"
		 "95:\n"
		 "lock; %s\n"
		 "jmp 72b\n"
		 ".popsection\n",
		 fields.rseq_cs, fields.cpu_id, fields.rseq_cs, update1, update2, fields.rseq_cs, fields.cpu_id, update1, update1, fields.rseq_cs,
		 fields.cpu_id, update2, atomic2);
	snprintf(constraints, sizeof(constraints), "=&r,=&r,r,r%s%s,r%s%s,~{memory},~{dirflag},~{fpsr},~{flags}", first->width == 64 ? "e" : "i",
		 distance ? "" : ",r", second->width == 64 ? "e" : "i", is_constant ? "" : ",r");
	shunt_rmw_call_assembly(pass, LLVMFunctionType(result, types, nr, 0), text, constraints, args, nr);
}

/* $0 address of the second, $1 address of the first, $2 CPU and number, $3 tries and success; $4, $5 unit0 and operand of the first, $6, $7 of
 * the second, $8 struct rseq. */
static void emit_arm64(struct shunt_pass *pass, const struct shunt_rmw_sequence *first, const struct shunt_rmw_sequence *second)
{
	LLVMTypeRef types[] = { pass->ptr, LLVMTypeOf(first->operand), pass->ptr, LLVMTypeOf(second->operand), pass->ptr };
	LLVMTypeRef results[] = { pass->i64, pass->i64, pass->i64, pass->i32 };
	LLVMTypeRef result = LLVMStructTypeInContext(pass->context, results, 4, 0);
	LLVMValueRef args[] = { first->unit0, first->operand, second->unit0, second->operand, shunt_rmw_arm64_area(pass) };
	char advancing[128], update1[128], update2[128], atomic1[160], atomic2[160], text[4096];

	shunt_rmw_format_arm64(advancing, sizeof(advancing), first->op, first->width, 5, 2, "[$1]", "[$1], #1");
	shunt_rmw_format_arm64(update1, sizeof(update1), first->op, first->width, 5, 2, "[$0]", "[$0]");
	shunt_rmw_format_arm64(update2, sizeof(update2), second->op, second->width, 7, 2, "[$0]", "[$0]");
	shunt_rmw_format_arm64_atomic(atomic1, sizeof(atomic1), first->op, first->width, 5, 2, 3, "87");
	shunt_rmw_format_arm64_atomic(atomic2, sizeof(atomic2), second->op, second->width, 7, 2, 3, "98");
	snprintf(text, sizeof(text),
		 DESCRIPTORS("78")
		 "adrp $0, 73b\n"
		 "add $0, $0, :lo12:73b\n"
		 "mov $1, #0\n"
		 "str $0, [$8, #8]\n"
		 "71:\n"
		 "ldrsw $2, [$8, #4]\n"
		 "tbnz $2, #63, 78f\n"
		 "add $1, $4, $2, lsl #30\n"
		 "add $0, $6, $2, lsl #30\n"
		 "%s"
		 "%s"
		 "72:\n"
		 "b 76f\n"
		 RMW_SIGNATURE_ARM64
		 "74:\n"
		 "tbnz $1, #0, 79f\n"
		 "78:\n"
		 "b 77f\n"
		 "79:\n"
		 "b 96f\n"
		 "76:\n"
		 ".pushsection __rseq_failure, \"ax\"\n"
		 ".balign 4\n"
		 "77:\n"
		 "mov ${3:w}, #" RMW_TRIES "\n"
		 "86:\n"
		 "adrp $0, 83b\n"
		 "add $0, $0, :lo12:83b\n"
		 "str $0, [$8, #8]\n"
		 "81:\n"
		 "ldrsw $0, [$8, #4]\n"
		 "tbnz $0, #63, 85f\n"
		 "add $0, $4, $0, lsl #30\n"
		 "%s"
		 "82:\n"
		 "b 96f\n"
		 RMW_SIGNATURE_ARM64
		 "84:\n"
		 "subs ${3:w}, ${3:w}, #1\n"
		 "b.ne 86b\n"
		 "85:\n"
		 "mov $0, #0x40000000\n"
		 "sub $0, $4, $0\n"
		 "%s"
		 "96:\n"
		 "mov ${3:w}, #" RMW_TRIES "\n"
		 "97:\n"
		 "adrp $0, 93b\n"
		 "add $0, $0, :lo12:93b\n"
		 "str $0, [$8, #8]\n"
		 "91:\n"
		 "ldrsw $0, [$8, #4]\n"
		 "tbnz $0, #63, 95f\n"
		 "add $0, $6, $0, lsl #30\n"
		 "%s"
		 "92:\n"
		 "b 76b\n"
		 RMW_SIGNATURE_ARM64
		 "94:\n"
		 "subs ${3:w}, ${3:w}, #1\n"
		 "b.ne 97b\n"
		 "95:\n"
		 "mov $0, #0x40000000\n"
		 "sub $0, $6, $0\n"
		 "%s"
		 "b 76b\n"
		 ".popsection\n",
		 advancing, update2, update1, atomic1, update2, atomic2);
	shunt_rmw_call_assembly(pass, LLVMFunctionType(result, types, 5, 0), text,
				"=&r,=&r,=&r,=&r,r,r,r,r,r,~{memory},~{cc},~{x16},~{x17}", args, 5);
}

bool shunt_rmw_can_be_first(const struct shunt_pass *pass, const struct shunt_rmw_sequence *sequence)
{
	return sequence->op == SHUNT_RMW_ADD && (!pass->arm64 || sequence->width > 8);
}

void shunt_rmw_emit_pair(struct shunt_pass *pass, const struct shunt_rmw_sequence *first, const struct shunt_rmw_sequence *second,
			 const int64_t *distance)
{
	if (pass->arm64)
		emit_arm64(pass, first, second);
	else
		emit_x86_64(pass, first, second, distance);
}
