/* SPDX-License-Identifier: MIT */
/*
 * shunt-pairs: two exact updates that follow each other in a block become one restartable sequence (rmw_emit_pair.c). For after LLVM's own
 * optimisation: by then dead loads are gone and loops are unrolled. The first update moves down to the second, so nothing between the two
 * may look at what it writes, or wait for it to be written; what only computes, and memory of the function's own, does not.
 */
#include <string.h>
#include "passes/rmw.h"

static unsigned description_kind(const struct shunt_pass *pass)
{
	static const char name[] = "shunt.sequence";

	return LLVMGetMDKindIDInContext(pass->context, name, sizeof(name) - 1);
}

/* !{ operation, bits, where cpu_id is from the thread pointer, or 0 where the code loads that } */
void shunt_rmw_describe(struct shunt_pass *pass, LLVMValueRef call, enum shunt_rmw_op op, unsigned width)
{
	bool is_constant = pass->options->cpu == SHUNT_PASS_CPU_RSEQ;
	LLVMMetadataRef fields[] = {
		LLVMValueAsMetadata(LLVMConstInt(pass->i32, (unsigned)op, 0)),
		LLVMValueAsMetadata(LLVMConstInt(pass->i32, width, 0)),
		LLVMValueAsMetadata(LLVMConstInt(pass->i64, is_constant ? (unsigned long long)pass->options->cpu_offset : 0, 1)),
	};

	LLVMSetMetadata(call, description_kind(pass),
			LLVMMetadataAsValue(pass->context, LLVMMDNodeInContext2(pass->context, fields, 3)));
}

bool shunt_rmw_is_described(const struct shunt_pass *pass, LLVMValueRef call)
{
	return LLVMGetMetadata(call, description_kind(pass));
}

struct candidate {
	LLVMValueRef call; /* NULL: none */
	struct shunt_rmw_sequence sequence;
	int64_t cpu_offset; /* 0: loaded */
};

/* Metadata is anybody's to write: whatever it says, the call must be assembly that takes what a sequence takes and gives nobody a value. */
static bool is_sequence(struct shunt_pass *pass, LLVMValueRef call)
{
	return LLVMIsACallInst(call) && LLVMIsAInlineAsm(LLVMGetCalledValue(call)) && !LLVMGetFirstUse(call) && LLVMGetNumArgOperands(call) >= 2 &&
	       LLVMTypeOf(LLVMGetOperand(call, 0)) == pass->ptr;
}

static bool read_description(struct shunt_pass *pass, unsigned kind, LLVMValueRef call, struct candidate *out)
{
	LLVMValueRef description = is_sequence(pass, call) ? LLVMGetMetadata(call, kind) : NULL, fields[3];
	unsigned long long op, width;

	if (!description || LLVMGetMDNodeNumOperands(description) != 3)
		return false;
	LLVMGetMDNodeOperands(description, fields);
	for (int i = 0; i < 3; i++)
		if (!fields[i] || !LLVMIsAConstantInt(fields[i]) || LLVMGetIntTypeWidth(LLVMTypeOf(fields[i])) > 64)
			return false;
	op = LLVMConstIntGetZExtValue(fields[0]);
	width = LLVMConstIntGetZExtValue(fields[1]);
	if (op >= SHUNT_RMW_NONE || (width != 8 && width != 16 && width != 32 && width != 64) ||
	    LLVMTypeOf(LLVMGetOperand(call, 1)) != (width == 64 ? pass->i64 : pass->i32))
		return false;
	*out = (struct candidate){
		.call = call,
		.sequence = { (enum shunt_rmw_op)op, (unsigned)width, LLVMGetOperand(call, 0), LLVMGetOperand(call, 1) },
		.cpu_offset = LLVMConstIntGetSExtValue(fields[2]),
	};
	return out->cpu_offset == (int32_t)out->cpu_offset;
}

/* The function's own memory, or what nobody writes. */
static bool is_private(LLVMValueRef pointer)
{
	/* Bounded: only unreachable code can use itself without a phi. */
	for (int i = 0; i < 64 && LLVMIsAGetElementPtrInst(pointer); i++)
		pointer = LLVMGetOperand(pointer, 0);
	return LLVMIsAAllocaInst(pointer) || (LLVMIsAGlobalVariable(pointer) && LLVMIsGlobalConstant(pointer));
}

/* Whether an update must not move down over it. */
static bool is_in_the_way(LLVMValueRef instruction)
{
	LLVMValueRef callee;

	switch (LLVMGetInstructionOpcode(instruction)) {
	case LLVMLoad:
		if (LLVMGetVolatile(instruction) || LLVMGetOrdering(instruction) != LLVMAtomicOrderingNotAtomic)
			return true;
		/* The thread's own data, by FS; a load whose value nobody uses. */
		if (LLVMGetPointerAddressSpace(LLVMTypeOf(LLVMGetOperand(instruction, 0))) || !LLVMGetFirstUse(instruction))
			return false;
		return !is_private(LLVMGetOperand(instruction, 0));
	case LLVMStore:
		return LLVMGetVolatile(instruction) || LLVMGetOrdering(instruction) != LLVMAtomicOrderingNotAtomic ||
		       !is_private(LLVMGetOperand(instruction, 1));
	case LLVMCall:
		callee = LLVMGetCalledValue(instruction);
		if (!LLVMIsAFunction(callee) || !LLVMGetIntrinsicID(callee))
			return true;
		if (shunt_ir_has_prefix(callee, "llvm.dbg.") || shunt_ir_has_prefix(callee, "llvm.lifetime.") ||
		    shunt_ir_has_prefix(callee, "llvm.thread.pointer"))
			return false;
		for (unsigned i = 0, nr = LLVMGetNumArgOperands(instruction); i < nr; i++)
			if (LLVMGetTypeKind(LLVMTypeOf(LLVMGetOperand(instruction, i))) == LLVMPointerTypeKind)
				return true;
		return false;
	case LLVMInvoke:
	case LLVMCallBr:
	case LLVMFence:
	case LLVMAtomicRMW:
	case LLVMAtomicCmpXchg:
	case LLVMVAArg:
		return true;
	default:
		return false;
	}
}

enum { MAX_DEPTH = 8 };

/* Whether two values are computed by the same steps from the same values. */
static bool is_same(LLVMValueRef a, LLVMValueRef b, int depth)
{
	int nr;

	if (a == b)
		return true;
	if (!depth || !LLVMIsAInstruction(a) || !LLVMIsAInstruction(b) || LLVMGetInstructionOpcode(a) != LLVMGetInstructionOpcode(b) ||
	    LLVMTypeOf(a) != LLVMTypeOf(b) || !(LLVMIsABinaryOperator(a) || LLVMIsAZExtInst(a) || LLVMIsASExtInst(a) || LLVMIsATruncInst(a)))
		return false;
	nr = LLVMGetNumOperands(a);
	for (int i = 0; i < nr; i++)
		if (!is_same(LLVMGetOperand(a, (unsigned)i), LLVMGetOperand(b, (unsigned)i), depth - 1))
			return false;
	return true;
}

/* What a number is but for a constant, which is added to *offset: through additions that do not wrap, and extensions of them. */
static LLVMValueRef strip_constant(LLVMValueRef value, int64_t *offset, LLVMTypeRef *narrow)
{
	LLVMValueRef inner = value, constant;

	*narrow = NULL;
	if (LLVMIsAZExtInst(inner)) {
		inner = LLVMGetOperand(inner, 0);
		*narrow = LLVMTypeOf(inner);
	}
	if (!LLVMIsABinaryOperator(inner))
		return inner;
	constant = LLVMGetOperand(inner, 1);
	if (!LLVMIsAConstantInt(constant) || !((LLVMGetInstructionOpcode(inner) == LLVMOr && LLVMGetIsDisjoint(inner)) ||
					       (LLVMGetInstructionOpcode(inner) == LLVMAdd && LLVMGetNUW(inner))))
		return inner;
	*offset += (int64_t)LLVMConstIntGetZExtValue(constant);
	return LLVMGetOperand(inner, 0);
}

/* A pointer as another one, a number of bytes that is not constant (or NULL), and a constant. */
struct address {
	LLVMValueRef base, index;
	LLVMTypeRef narrow; /* what index is extended from; NULL: it is not */
	int64_t offset;
};

static struct address address_of(struct shunt_pass *pass, LLVMValueRef pointer)
{
	struct address at = { .base = pointer };
	unsigned long long bytes;

	/* Bounded: only unreachable code can use itself without a phi. */
	for (int i = 0; i < 64 && (LLVMIsAGetElementPtrInst(at.base) || (LLVMIsAConstantExpr(at.base) && LLVMGetConstOpcode(at.base) == LLVMGetElementPtr)); i++) {
		bytes = 0;
		if (shunt_ir_constant_offset(pass, at.base, &bytes)) {
			at.offset += (int64_t)bytes;
		} else {
			if (at.index || LLVMGetNumOperands(at.base) != 2 || LLVMGetGEPSourceElementType(at.base) != pass->i8)
				break;
			at.index = strip_constant(LLVMGetOperand(at.base, 1), &at.offset, &at.narrow);
		}
		at.base = LLVMGetOperand(at.base, 0);
	}
	return at;
}

/* Bytes from one pointer to another, where they are known. */
static bool find_distance(struct shunt_pass *pass, LLVMValueRef from, LLVMValueRef to, int64_t *out)
{
	struct address a = address_of(pass, from), b = address_of(pass, to);
	int64_t limit = (int64_t)1 << 29;

	if (a.base != b.base || a.narrow != b.narrow || (a.index != b.index && (!a.index || !b.index || !is_same(a.index, b.index, MAX_DEPTH))))
		return false;
	if (a.offset < -limit || a.offset > limit || b.offset < -limit || b.offset > limit)
		return false;
	*out = b.offset - a.offset;
	return *out > -limit && *out < limit;
}

static void make_pair(struct shunt_pass *pass, const struct candidate *first, const struct candidate *second)
{
	const struct shunt_pass_options *given = pass->options;
	struct shunt_pass_options options = *given;
	int64_t distance;
	bool is_known = find_distance(pass, first->sequence.unit0, second->sequence.unit0, &distance);

	/* The struct rseq that the two know, whatever this run was told. */
	options.cpu = second->cpu_offset ? SHUNT_PASS_CPU_RSEQ : SHUNT_PASS_CPU_RSEQ_AOT;
	options.cpu_offset = second->cpu_offset;
	pass->options = &options;
	shunt_ir_at(pass, second->call);
	shunt_rmw_emit_pair(pass, &first->sequence, &second->sequence, is_known ? &distance : NULL);
	pass->options = given;
	shunt_pass_passed(pass, second->call, "PairedUpdates", "update", "two exact updates became one restartable sequence");
	LLVMInstructionEraseFromParent(first->call);
	LLVMInstructionEraseFromParent(second->call);
}

static void pair_in_block(struct shunt_pass *pass, LLVMBasicBlockRef block, unsigned kind)
{
	struct candidate first = { 0 }, second;
	LLVMValueRef next;

	for (LLVMValueRef i = LLVMGetFirstInstruction(block); i; i = next) {
		next = LLVMGetNextInstruction(i);
		if (read_description(pass, kind, i, &second)) {
			if (first.call && first.cpu_offset == second.cpu_offset) {
				make_pair(pass, &first, &second);
				first.call = NULL;
			} else {
				first = second;
				if (!shunt_rmw_can_be_first(pass, &second.sequence))
					first.call = NULL;
			}
		} else if (first.call && is_in_the_way(i)) {
			first.call = NULL;
		}
	}
}

void shunt_pass_pairs(struct shunt_pass *pass, const LLVMValueRef *calls, size_t nr)
{
	unsigned kind = description_kind(pass);
	bool any = false;

	for (size_t i = 0; i < nr && !any; i++)
		any = LLVMGetMetadata(calls[i], kind);
	if (!any)
		return;
	for (LLVMValueRef f = LLVMGetFirstFunction(pass->module); f; f = LLVMGetNextFunction(f))
		for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(f); b; b = LLVMGetNextBasicBlock(b))
			pair_in_block(pass, b, kind);
}
