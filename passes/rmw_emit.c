/* SPDX-License-Identifier: MIT */
/*
 * One exact operation in code. With rseq it is a restartable sequence in one inline assembly, the contract of which is that of
 * runtime/percpu/percpu_rseq.h: descriptor stored last before the section, CPU number read inside, the write to memory the last instruction, then
 * 0 stored, so that nothing points into code that may be freed. A thread without rseq uses unit -1 with an atomic operation. Labels are
 * numbers, since LLVM may copy the assembly; what is not executed as a rule lies in a section of its own on x86-64.
 */
#include <stdio.h>
#include <string.h>
#include "passes/percpu.h"
#include "passes/rmw.h"

#define DESCRIPTOR                                                                                                                         \
	".pushsection __rseq_cs, \"aw\"\n"                                                                                                 \
	".balign 32\n"                                                                                                                     \
	"73:\n"                                                                                                                            \
	".long 0, 0\n"                                                                                                                     \
	".quad 71f, 72f - 71f, 74f\n"                                                                                                      \
	".popsection\n"

_Static_assert(SHUNT_PERCPU_SHIFT == 30, "the assembly has the unit size in its shifts and displacements");

static const char *const x86_64_ops[] = { "add", "or", "and", "xor" };
static const char *const arm64_ops[] = { "add", "orr", "and", "eor" };

bool shunt_rmw_has_rseq(const struct shunt_pass *pass)
{
	return pass->options->cpu == SHUNT_PASS_CPU_RSEQ || pass->options->cpu == SHUNT_PASS_CPU_RSEQ_AOT;
}

static void call_assembly(struct shunt_pass *pass, LLVMTypeRef type, char *text, const char *constraints, LLVMValueRef *args, unsigned nr)
{
	LLVMValueRef assembly =
		LLVMGetInlineAsm(type, text, strlen(text), constraints, strlen(constraints), 1, 0, LLVMInlineAsmDialectATT, 0);

	LLVMBuildCall2(pass->builder, type, assembly, args, nr, "");
}

/* The thread's struct rseq is at a constant distance from FS, or at one that register $3 holds. */
static void emit_x86_64(struct shunt_pass *pass, enum shunt_rmw_op op, LLVMValueRef unit0, LLVMValueRef operand)
{
	bool is_64 = LLVMTypeOf(operand) == pass->i64, is_constant = pass->options->cpu == SHUNT_PASS_CPU_RSEQ;
	LLVMTypeRef types[] = { pass->ptr, LLVMTypeOf(operand), pass->i64 };
	LLVMValueRef args[] = { unit0, operand, is_constant ? NULL : shunt_pass_rseq_offset(pass) };
	unsigned nr = is_constant ? 2 : 3;
	char cpu_id[40], rseq_cs[40], update[32], text[1024];

	if (is_constant) {
		snprintf(cpu_id, sizeof(cpu_id), "%%fs:%lld", (long long)pass->options->cpu_offset);
		snprintf(rseq_cs, sizeof(rseq_cs), "%%fs:%lld", (long long)pass->options->cpu_offset + 4);
	} else {
		snprintf(cpu_id, sizeof(cpu_id), "%%fs:4($3)");
		snprintf(rseq_cs, sizeof(rseq_cs), "%%fs:8($3)");
	}
	snprintf(update, sizeof(update), "%s%s ${2:%s}", x86_64_ops[op], is_64 ? "q" : "l", is_64 ? "q" : "k");
	snprintf(text, sizeof(text),
		 DESCRIPTOR
		 "70:\n"
		 "leaq 73b(%%rip), $0\n"
		 "movq $0, %s\n"
		 "71:\n"
		 "movslq %s, $0\n"
		 "shlq $$30, $0\n" /* keeps the sign, and tells it */
		 "js 75f\n"
		 "%s, ($1, $0)\n"
		 "72:\n"
		 "movq $$0, %s\n"
		 "76:\n"
		 ".pushsection __rseq_failure, \"ax\"\n"
		 ".byte 0x0f, 0xb9, 0x3d\n" /* ud1, which keeps disassembly in step with the signature */
		 ".long 0x53053053\n"
		 "74:\n"
		 "jmp 70b\n"
		 "75:\n"
		 "movq $$0, %s\n"
		 "lock; %s, -0x40000000($1)\n"
		 "jmp 76b\n"
		 ".popsection\n",
		 rseq_cs, cpu_id, update, rseq_cs, rseq_cs, update);
	call_assembly(pass, LLVMFunctionType(pass->i64, types, nr, 0), text,
		      is_constant ? "=&r,r,r,~{memory},~{dirflag},~{fpsr},~{flags}" : "=&r,r,r,r,~{memory},~{dirflag},~{fpsr},~{flags}", args,
		      nr);
}

static LLVMValueRef arm64_area(struct shunt_pass *pass)
{
	unsigned id = LLVMLookupIntrinsicID("llvm.thread.pointer", strlen("llvm.thread.pointer"));
	LLVMValueRef intrinsic = LLVMGetIntrinsicDeclaration(pass->module, id, NULL, 0);
	LLVMValueRef thread = LLVMBuildCall2(pass->builder, LLVMGlobalGetValueType(intrinsic), intrinsic, NULL, 0, "thread");
	LLVMValueRef offset = pass->options->cpu == SHUNT_PASS_CPU_RSEQ
				      ? LLVMConstInt(pass->i64, (unsigned long long)pass->options->cpu_offset - 4, 1)
				      : shunt_pass_rseq_offset(pass);

	return LLVMBuildGEP2(pass->builder, pass->i8, thread, &offset, 1, "");
}

/* $0 address, $1 number, $2 success; $3 unit0, $4 operand, $5 struct rseq. */
static void emit_arm64(struct shunt_pass *pass, enum shunt_rmw_op op, LLVMValueRef unit0, LLVMValueRef operand)
{
	const char *w = LLVMTypeOf(operand) == pass->i64 ? "x" : "w", *name = arm64_ops[op];
	LLVMTypeRef types[] = { pass->ptr, LLVMTypeOf(operand), pass->ptr };
	LLVMTypeRef results[] = { pass->i64, pass->i64, pass->i32 };
	LLVMTypeRef result = LLVMStructTypeInContext(pass->context, results, 3, 0);
	LLVMValueRef args[] = { unit0, operand, arm64_area(pass) };
	char text[1024];

	snprintf(text, sizeof(text),
		 DESCRIPTOR
		 "70:\n"
		 "adrp $0, 73b\n"
		 "add $0, $0, :lo12:73b\n"
		 "str $0, [$5, #8]\n"
		 "71:\n"
		 "ldrsw $0, [$5, #4]\n"
		 "tbnz $0, #63, 75f\n"
		 "add $0, $3, $0, lsl #30\n"
		 "ldr ${1:%s}, [$0]\n"
		 "%s ${1:%s}, ${1:%s}, ${4:%s}\n"
		 "str ${1:%s}, [$0]\n"
		 "72:\n"
		 "str xzr, [$5, #8]\n"
		 "b 76f\n"
		 ".inst 0xd428bc00\n"
		 "74:\n"
		 "b 70b\n"
		 "75:\n"
		 "str xzr, [$5, #8]\n"
		 "mov $0, #0x40000000\n"
		 "sub $0, $3, $0\n"
		 "77:\n"
		 "ldxr ${1:%s}, [$0]\n"
		 "%s ${1:%s}, ${1:%s}, ${4:%s}\n"
		 "stxr ${2:w}, ${1:%s}, [$0]\n"
		 "cbnz ${2:w}, 77b\n"
		 "76:\n",
		 w, name, w, w, w, w, w, name, w, w, w, w);
	call_assembly(pass, LLVMFunctionType(result, types, 3, 0), text, "=&r,=&r,=&r,r,r,r,~{memory},~{cc}", args, 3);
}

void shunt_rmw_emit_rseq(struct shunt_pass *pass, enum shunt_rmw_op op, LLVMValueRef unit0, LLVMValueRef operand)
{
	if (pass->arm64)
		emit_arm64(pass, op, unit0, operand);
	else
		emit_x86_64(pass, op, unit0, operand);
}

void shunt_rmw_emit_atomic(struct shunt_pass *pass, enum shunt_rmw_op op, LLVMValueRef pointer, LLVMValueRef operand)
{
	static const LLVMAtomicRMWBinOp ops[] = { LLVMAtomicRMWBinOpAdd, LLVMAtomicRMWBinOpOr, LLVMAtomicRMWBinOpAnd,
						  LLVMAtomicRMWBinOpXor };

	LLVMBuildAtomicRMW(pass->builder, ops[op], pointer, operand, LLVMAtomicOrderingMonotonic, 0);
}

const char *shunt_rmw_op_name(enum shunt_rmw_op op)
{
	static const char *const names[] = { "add", "or", "and", "xor", "store" };

	return names[op];
}
