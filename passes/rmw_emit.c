/* SPDX-License-Identifier: MIT */
/*
 * One exact operation in code. With rseq it is a restartable sequence in one inline assembly:
 *
 *	thread.rseq_cs = &descriptor	last instruction before start
 *	start:	cpu = thread.cpu_id	read inside, so that a migration restarts with the new number
 *		if (cpu < 0) goto atomic
 *		the operation on the copy; its one store is the last instruction
 *	end:
 *
 * What is not executed as a rule lies in a section of its own. An abort goes there to a second sequence, which counts its tries: a
 * debugger that steps through a sequence aborts it every time. When they are used up the update goes where those of threads without
 * rseq go: to unit -1, atomically. All that change that unit do so atomically, and nothing was stored before, so it is exact too; sums
 * include it. The second sequence is what it is so that the first needs no counter.
 *
 * rseq_cs goes on pointing to the descriptor until the function is left: see rmw_disarm.c. Labels are numbers, since LLVM may copy the
 * assembly. Debuggers and binary translators find the sequences of an image by the array of pointers to descriptors, and the ways out of
 * them other than the end by the exit points, pairs of start and target, as librseq lays them out.
 */
#include <stdio.h>
#include <string.h>
#include "passes/percpu.h"
#include "passes/rmw_sequence.h"

/* 71 to 72, 74 on abort: the sequence, with one more way out; 81 to 82, 84: the one that is tried again. */
#define DESCRIPTORS(way_out)                                                                                                               \
	RMW_DESCRIPTORS(RMW_DESCRIPTOR("73", "71", "72", "74") RMW_DESCRIPTOR("83", "81", "82", "84"), "73b, 83b",                         \
			"71f, " way_out "f, 81f, 75f")

static const char *const x86_64_ops[] = { "add", "or", "and", "xor" };
static const char *const arm64_ops[] = { "add", "orr", "and", "eor" };

bool shunt_rmw_has_rseq(const struct shunt_pass *pass)
{
	return pass->options->cpu == SHUNT_PASS_CPU_RSEQ || pass->options->cpu == SHUNT_PASS_CPU_RSEQ_AOT;
}

LLVMValueRef shunt_rmw_call_assembly(struct shunt_pass *pass, LLVMTypeRef type, char *text, const char *constraints, LLVMValueRef *args,
				     unsigned nr)
{
	LLVMValueRef assembly =
		LLVMGetInlineAsm(type, text, strlen(text), constraints, strlen(constraints), 1, 0, LLVMInlineAsmDialectATT, 0);

	return LLVMBuildCall2(pass->builder, type, assembly, args, nr, "");
}

struct rmw_fields shunt_rmw_fields(const struct shunt_pass *pass, const char *offset)
{
	struct rmw_fields fields;

	if (pass->options->cpu == SHUNT_PASS_CPU_RSEQ) {
		snprintf(fields.cpu_id, sizeof(fields.cpu_id), "%%fs:%lld", (long long)pass->options->cpu_offset);
		snprintf(fields.rseq_cs, sizeof(fields.rseq_cs), "%%fs:%lld", (long long)pass->options->cpu_offset + 4);
	} else {
		snprintf(fields.cpu_id, sizeof(fields.cpu_id), "%%fs:4(%s)", offset);
		snprintf(fields.rseq_cs, sizeof(fields.rseq_cs), "%%fs:8(%s)", offset);
	}
	return fields;
}

void shunt_rmw_format_x86_64(char *text, size_t len, enum shunt_rmw_op op, unsigned width, unsigned operand)
{
	static const char suffixes[] = "bwlq", modifiers[] = "bwkq";
	int size = __builtin_ctz(width / 8);

	snprintf(text, len, "%s%c ${%u:%c}", x86_64_ops[op], suffixes[size], operand, modifiers[size]);
}

/* $0 distance of the copy, $1 tries; $2 unit0, $3 operand; the thread's struct rseq is at a constant distance from FS, or at one that $4
 * holds. */
static LLVMValueRef emit_x86_64(struct shunt_pass *pass, enum shunt_rmw_op op, LLVMValueRef unit0, LLVMValueRef operand, unsigned width)
{
	bool is_constant = pass->options->cpu == SHUNT_PASS_CPU_RSEQ;
	struct rmw_fields fields = shunt_rmw_fields(pass, "$4");
	LLVMTypeRef types[] = { pass->ptr, LLVMTypeOf(operand), pass->i64 }, results[] = { pass->i64, pass->i32 };
	LLVMTypeRef result = LLVMStructTypeInContext(pass->context, results, 2, 0);
	LLVMValueRef args[] = { unit0, operand, is_constant ? NULL : shunt_pass_rseq_offset(pass) };
	unsigned nr = is_constant ? 2 : 3;
	char update[32], constraints[96], text[2048];

	shunt_rmw_format_x86_64(update, sizeof(update), op, width, 3);
	snprintf(text, sizeof(text),
		 DESCRIPTORS("75")
		 "leaq 73b(%%rip), $0\n"
		 "movq $0, %s\n"
		 "71:\n"
		 "movslq %s, $0\n"
		 "shlq $$30, $0\n" /* keeps the sign, and tells it */
		 "js 75f\n"
		 "%s, ($2, $0)\n"
		 "72:\n"
		 ".pushsection __rseq_failure, \"ax\"\n"
		 RMW_SIGNATURE_X86_64
		 "74:\n"
		 "movl $$" RMW_TRIES ", ${1:k}\n"
		 "77:\n"
		 "leaq 83b(%%rip), $0\n"
		 "movq $0, %s\n"
		 "81:\n"
		 "movslq %s, $0\n"
		 "shlq $$30, $0\n"
		 "js 75f\n"
		 "%s, ($2, $0)\n"
		 "82:\n"
		 "jmp 72b\n"
		 RMW_SIGNATURE_X86_64
		 "84:\n"
		 "decl ${1:k}\n"
		 "jnz 77b\n"
		 "75:\n"
		 "lock; %s, -0x40000000($2)\n"
		 "jmp 72b\n"
		 ".popsection\n",
		 fields.rseq_cs, fields.cpu_id, update, fields.rseq_cs, fields.cpu_id, update, update);
	snprintf(constraints, sizeof(constraints), "=&r,=&r,r,r%s%s,~{memory},~{dirflag},~{fpsr},~{flags}", width == 64 ? "e" : "i",
		 is_constant ? "" : ",r");
	return shunt_rmw_call_assembly(pass, LLVMFunctionType(result, types, nr, 0), text, constraints, args, nr);
}

LLVMValueRef shunt_rmw_arm64_area(struct shunt_pass *pass)
{
	unsigned id = LLVMLookupIntrinsicID("llvm.thread.pointer", strlen("llvm.thread.pointer"));
	LLVMValueRef intrinsic = LLVMGetIntrinsicDeclaration(pass->module, id, NULL, 0);
	LLVMValueRef thread = LLVMBuildCall2(pass->builder, LLVMGlobalGetValueType(intrinsic), intrinsic, NULL, 0, "thread");
	LLVMValueRef offset = pass->options->cpu == SHUNT_PASS_CPU_RSEQ
				      ? LLVMConstInt(pass->i64, (unsigned long long)pass->options->cpu_offset - 4, 1)
				      : shunt_pass_rseq_offset(pass);

	return LLVMBuildGEP2(pass->builder, pass->i8, thread, &offset, 1, "");
}

static const char *const arm64_suffixes[] = { "b", "h", "", "" };

void shunt_rmw_format_arm64(char *text, size_t len, enum shunt_rmw_op op, unsigned width, unsigned operand, unsigned temporary,
			    const char *load_from, const char *store_to)
{
	const char *suffix = arm64_suffixes[__builtin_ctz(width / 8)];
	char w = width == 64 ? 'x' : 'w';

	snprintf(text, len,
		 "ldr%s ${%u:%c}, %s\n"
		 "%s ${%u:%c}, ${%u:%c}, ${%u:%c}\n"
		 "str%s ${%u:%c}, %s\n",
		 suffix, temporary, w, load_from, arm64_ops[op], temporary, w, temporary, w, operand, w, suffix, temporary, w, store_to);
}

void shunt_rmw_format_arm64_atomic(char *text, size_t len, enum shunt_rmw_op op, unsigned width, unsigned operand, unsigned temporary,
				   unsigned status, const char *label)
{
	const char *suffix = arm64_suffixes[__builtin_ctz(width / 8)];
	char w = width == 64 ? 'x' : 'w';

	snprintf(text, len,
		 "%s:\n"
		 "ldxr%s ${%u:%c}, [$0]\n"
		 "%s ${%u:%c}, ${%u:%c}, ${%u:%c}\n"
		 "stxr%s ${%u:w}, ${%u:%c}, [$0]\n"
		 "cbnz ${%u:w}, %sb\n",
		 label, suffix, temporary, w, arm64_ops[op], temporary, w, temporary, w, operand, w, suffix, status, temporary, w, status, label);
}

/*
 * $0 address, $1 number, $2 tries and success; $3 unit0, $4 operand, $5 struct rseq. The steps out of line begin beside the sequence: a
 * test of one bit reaches no other section.
 */
static LLVMValueRef emit_arm64(struct shunt_pass *pass, enum shunt_rmw_op op, LLVMValueRef unit0, LLVMValueRef operand, unsigned width)
{
	LLVMTypeRef types[] = { pass->ptr, LLVMTypeOf(operand), pass->ptr };
	LLVMTypeRef results[] = { pass->i64, pass->i64, pass->i32 };
	LLVMTypeRef result = LLVMStructTypeInContext(pass->context, results, 3, 0);
	LLVMValueRef args[] = { unit0, operand, shunt_rmw_arm64_area(pass) };
	char update[128], atomic[160], text[2048];

	shunt_rmw_format_arm64(update, sizeof(update), op, width, 4, 1, "[$0]", "[$0]");
	shunt_rmw_format_arm64_atomic(atomic, sizeof(atomic), op, width, 4, 1, 2, "85");
	snprintf(text, sizeof(text),
		 DESCRIPTORS("78")
		 "adrp $0, 73b\n"
		 "add $0, $0, :lo12:73b\n"
		 "str $0, [$5, #8]\n"
		 "71:\n"
		 "ldrsw $0, [$5, #4]\n"
		 "tbnz $0, #63, 78f\n"
		 "add $0, $3, $0, lsl #30\n"
		 "%s"
		 "72:\n"
		 "b 76f\n"
		 "78:\n"
		 "b 75f\n"
		 RMW_SIGNATURE_ARM64
		 "74:\n"
		 "b 79f\n"
		 "76:\n"
		 ".pushsection __rseq_failure, \"ax\"\n"
		 ".balign 4\n"
		 "79:\n"
		 "mov ${2:w}, #" RMW_TRIES "\n"
		 "77:\n"
		 "adrp $0, 83b\n"
		 "add $0, $0, :lo12:83b\n"
		 "str $0, [$5, #8]\n"
		 "81:\n"
		 "ldrsw $0, [$5, #4]\n"
		 "tbnz $0, #63, 75f\n"
		 "add $0, $3, $0, lsl #30\n"
		 "%s"
		 "82:\n"
		 "b 76b\n"
		 RMW_SIGNATURE_ARM64
		 "84:\n"
		 "subs ${2:w}, ${2:w}, #1\n"
		 "b.ne 77b\n"
		 "75:\n"
		 "mov $0, #0x40000000\n"
		 "sub $0, $3, $0\n"
		 "%s"
		 "b 76b\n"
		 ".popsection\n",
		 update, update, atomic);
	/* x16 and x17: whoever links may put a veneer behind a branch to another section (AAPCS64, 6.1.1). */
	return shunt_rmw_call_assembly(pass, LLVMFunctionType(result, types, 3, 0), text, "=&r,=&r,=&r,r,r,r,~{memory},~{cc},~{x16},~{x17}",
				       args, 3);
}

/* Volatile: it stays where it is among the sequences. */
void shunt_rmw_emit_clear(struct shunt_pass *pass)
{
	LLVMValueRef pointer, store, offset = LLVMConstInt(pass->i64, 8, 0); /* of rseq_cs in struct rseq, linux/rseq.h */

	if (pass->arm64) {
		pointer = LLVMBuildGEP2(pass->builder, pass->i8, shunt_rmw_arm64_area(pass), &offset, 1, "");
	} else {
		if (pass->options->cpu == SHUNT_PASS_CPU_RSEQ)
			offset = LLVMConstInt(pass->i64, (unsigned long long)pass->options->cpu_offset + 4, 1);
		else
			offset = LLVMBuildAdd(pass->builder, shunt_pass_rseq_offset(pass), offset, "");
		pointer = LLVMBuildIntToPtr(pass->builder, offset, LLVMPointerTypeInContext(pass->context, 257), "");
	}
	store = LLVMBuildStore(pass->builder, LLVMConstNull(pass->i64), pointer);
	LLVMSetAlignment(store, 8);
	LLVMSetVolatile(store, 1);
}

void shunt_rmw_emit_rseq(struct shunt_pass *pass, enum shunt_rmw_op op, LLVMValueRef unit0, LLVMValueRef operand)
{
	unsigned width = LLVMGetIntTypeWidth(LLVMTypeOf(operand));
	LLVMValueRef sequence;

	/* Registers have 32 bits at least. */
	if (width < 32)
		operand = LLVMBuildZExt(pass->builder, operand, pass->i32, "");
	sequence = pass->arm64 ? emit_arm64(pass, op, unit0, operand, width) : emit_x86_64(pass, op, unit0, operand, width);
	shunt_rmw_mark_armed(pass, sequence);
	shunt_rmw_describe(pass, sequence, op, width);
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
