/* SPDX-License-Identifier: MIT */
/*
 * One BPF instruction to LLVM IR. The IR has no undefined behaviour of its own: counts of shifts are masked, divisors replaced where the
 * machine would trap, memory is accessed at alignment 1, and what the stack holds before it is written is frozen.
 */
#include <stddef.h>
#include <stdio.h>
#include <llvm-c/Core.h>
#include <shunt/xdp.h>
#include "lib/bpf/helpers.h"
#include "lib/bpf/translate.h"

#define NAME ""

static LLVMValueRef imm64(struct translated *t, int64_t value)
{
	return LLVMConstInt(t->all->i64, (uint64_t)value, true);
}

static LLVMTypeRef int_of(struct translated *t, unsigned size)
{
	return size == 1 ? t->all->i8 : size == 2 ? t->all->i16 : size == 4 ? t->all->i32 : t->all->i64;
}

/* r10 + off as a pointer that alias analysis sees through. */
static LLVMValueRef stack_pointer(struct translated *t, int off)
{
	LLVMValueRef index = imm64(t, ISA_STACK_SIZE + off);

	return LLVMBuildGEP2(t->all->builder, t->all->i8, t->stack, &index, 1, NAME);
}

static LLVMValueRef get(struct translated *t, unsigned reg)
{
	if (reg == 10)
		return LLVMBuildPtrToInt(t->all->builder, stack_pointer(t, 0), t->all->i64, NAME);
	return LLVMBuildLoad2(t->all->builder, t->all->i64, t->regs[reg], NAME);
}

static void set(struct translated *t, unsigned reg, LLVMValueRef value)
{
	LLVMBuildStore(t->all->builder, value, t->regs[reg]);
}

static LLVMValueRef low32(struct translated *t, LLVMValueRef value)
{
	return LLVMBuildTrunc(t->all->builder, value, t->all->i32, NAME);
}

static LLVMValueRef widen(struct translated *t, LLVMValueRef value)
{
	return LLVMBuildZExt(t->all->builder, value, t->all->i64, NAME);
}

/* ---- arithmetic ----------------------------------------------------------------------------------------------- */

static LLVMValueRef divide(struct translated *t, unsigned op, bool is_signed, LLVMValueRef a, LLVMValueRef b)
{
	LLVMBuilderRef builder = t->all->builder;
	LLVMTypeRef type = LLVMTypeOf(a);
	LLVMValueRef zero = LLVMConstInt(type, 0, false), one = LLVMConstInt(type, 1, false), minus_one = LLVMConstAllOnes(type);
	LLVMValueRef by_zero = LLVMBuildICmp(builder, LLVMIntEQ, b, zero, NAME);
	LLVMValueRef safe = LLVMBuildSelect(builder, by_zero, one, b, NAME);
	LLVMValueRef by_minus_one, result;

	if (!is_signed) {
		result = op == BPF_DIV ? LLVMBuildUDiv(builder, a, safe, NAME) : LLVMBuildURem(builder, a, safe, NAME);
	} else {
		/* INT_MIN / -1 traps on x86-64 and is undefined in IR; -1 is treated apart for every dividend. */
		by_minus_one = LLVMBuildICmp(builder, LLVMIntEQ, b, minus_one, NAME);
		safe = LLVMBuildSelect(builder, by_minus_one, one, safe, NAME);
		result = op == BPF_DIV ? LLVMBuildSDiv(builder, a, safe, NAME) : LLVMBuildSRem(builder, a, safe, NAME);
		result = LLVMBuildSelect(builder, by_minus_one, op == BPF_DIV ? LLVMBuildNeg(builder, a, NAME) : zero, result, NAME);
	}
	return LLVMBuildSelect(builder, by_zero, op == BPF_DIV ? zero : a, result, NAME);
}

static LLVMValueRef shift(struct translated *t, unsigned op, LLVMValueRef a, LLVMValueRef b)
{
	LLVMBuilderRef builder = t->all->builder;
	LLVMTypeRef type = LLVMTypeOf(a);
	LLVMValueRef count = LLVMBuildAnd(builder, b, LLVMConstInt(type, LLVMGetIntTypeWidth(type) - 1, false), NAME);

	switch (op) {
	case BPF_LSH:
		return LLVMBuildShl(builder, a, count, NAME);
	case BPF_RSH:
		return LLVMBuildLShr(builder, a, count, NAME);
	default:
		return LLVMBuildAShr(builder, a, count, NAME);
	}
}

static LLVMValueRef move(struct translated *t, const struct bpf_insn *insn, LLVMValueRef b)
{
	LLVMTypeRef narrow;

	if (!(insn->code & BPF_X) || !insn->off)
		return b;
	narrow = insn->off == 8 ? t->all->i8 : insn->off == 16 ? t->all->i16 : t->all->i32;
	return LLVMBuildSExt(t->all->builder, LLVMBuildTrunc(t->all->builder, b, narrow, NAME), LLVMTypeOf(b), NAME);
}

static LLVMValueRef arithmetic(struct translated *t, const struct bpf_insn *insn, LLVMValueRef a, LLVMValueRef b)
{
	LLVMBuilderRef builder = t->all->builder;

	switch (insn->code & 0xf0) {
	case BPF_ADD:
		return LLVMBuildAdd(builder, a, b, NAME);
	case BPF_SUB:
		return LLVMBuildSub(builder, a, b, NAME);
	case BPF_MUL:
		return LLVMBuildMul(builder, a, b, NAME);
	case BPF_OR:
		return LLVMBuildOr(builder, a, b, NAME);
	case BPF_AND:
		return LLVMBuildAnd(builder, a, b, NAME);
	case BPF_XOR:
		return LLVMBuildXor(builder, a, b, NAME);
	case BPF_DIV: case BPF_MOD:
		return divide(t, insn->code & 0xf0, insn->off == 1, a, b);
	case BPF_LSH: case BPF_RSH: case BPF_ARSH:
		return shift(t, insn->code & 0xf0, a, b);
	case BPF_NEG:
		return LLVMBuildNeg(builder, a, NAME);
	default:
		return move(t, insn, b);
	}
}

/* le16..be64 of the ALU class, bswap16..64 of ALU64. Both machines are little-endian: "to little" only cuts. */
static void byte_order(struct translated *t, const struct bpf_insn *insn)
{
	struct translation *all = t->all;
	LLVMTypeRef type = int_of(t, (unsigned)insn->imm / 8);
	LLVMValueRef value = LLVMBuildTrunc(all->builder, get(t, insn->dst_reg), type, NAME);
	bool swaps = isa_class(insn) == BPF_ALU64 || (insn->code & BPF_X);

	if (swaps) {
		unsigned id = LLVMLookupIntrinsicID("llvm.bswap", 10);
		LLVMValueRef bswap = LLVMGetIntrinsicDeclaration(all->module, id, &type, 1);

		value = LLVMBuildCall2(all->builder, LLVMIntrinsicGetType(all->context, id, &type, 1), bswap, &value, 1, NAME);
	}
	set(t, insn->dst_reg, widen(t, value));
}

static void alu(struct translated *t, const struct bpf_insn *insn, const struct bpf_note *note)
{
	unsigned op = insn->code & 0xf0;
	LLVMValueRef a, b;

	if (op == BPF_END) {
		byte_order(t, insn);
		return;
	}
	if (note->kind == BPF_NOTE_STACK && note->off >= -ISA_STACK_SIZE && note->off <= 0) {
		set(t, insn->dst_reg, LLVMBuildPtrToInt(t->all->builder, stack_pointer(t, note->off), t->all->i64, NAME));
		return;
	}
	a = op == BPF_MOV ? imm64(t, 0) : get(t, insn->dst_reg);
	b = insn->code & BPF_X ? get(t, insn->src_reg) : imm64(t, insn->imm);
	if (isa_class(insn) == BPF_ALU64)
		set(t, insn->dst_reg, arithmetic(t, insn, a, b));
	else
		set(t, insn->dst_reg, widen(t, arithmetic(t, insn, low32(t, a), low32(t, b))));
}

/* ---- memory --------------------------------------------------------------------------------------------------- */

static LLVMValueRef pointer(struct translated *t, const struct bpf_insn *insn, unsigned base, const struct bpf_note *note)
{
	LLVMBuilderRef builder = t->all->builder;

	if (note->kind == BPF_NOTE_STACK && note->off >= -ISA_STACK_SIZE && note->off + (int)isa_size(insn) <= 0)
		return stack_pointer(t, note->off);
	return LLVMBuildIntToPtr(builder, LLVMBuildAdd(builder, get(t, base), imm64(t, insn->off), NAME), t->all->ptr, NAME);
}

/* A load of struct xdp_md becomes one of struct shunt_xdp_ctx; its address is the register's, less what was added to the context. */
static void load_context(struct translated *t, const struct bpf_insn *insn, int field)
{
	static const struct { uint8_t offset; bool is_pointer; } fields[] = {
		{ offsetof(struct shunt_xdp_ctx, data), true },
		{ offsetof(struct shunt_xdp_ctx, data_end), true },
		{ offsetof(struct shunt_xdp_ctx, data_meta), true },
		{ offsetof(struct shunt_xdp_ctx, ingress_ifindex), false },
		{ offsetof(struct shunt_xdp_ctx, rx_queue_index), false },
		{ offsetof(struct shunt_xdp_ctx, egress_ifindex), false },
	};
	struct translation *all = t->all;
	LLVMValueRef index = imm64(t, fields[field / 4].offset - (field - insn->off)), base, address, value;

	base = LLVMBuildIntToPtr(all->builder, get(t, insn->src_reg), all->ptr, NAME);
	address = LLVMBuildGEP2(all->builder, all->i8, base, &index, 1, NAME);
	value = LLVMBuildLoad2(all->builder, fields[field / 4].is_pointer ? all->i64 : all->i32, address, NAME);
	set(t, insn->dst_reg, fields[field / 4].is_pointer ? value : widen(t, value));
}

static void load(struct translated *t, const struct bpf_insn *insn, const struct bpf_note *note)
{
	struct translation *all = t->all;
	LLVMValueRef value;

	if (note->kind == BPF_NOTE_CTX) {
		load_context(t, insn, note->off);
		return;
	}
	value = LLVMBuildLoad2(all->builder, int_of(t, isa_size(insn)), pointer(t, insn, insn->src_reg, note), NAME);
	LLVMSetAlignment(value, 1);
	if (note->kind == BPF_NOTE_STACK)
		value = LLVMBuildFreeze(all->builder, value, NAME);
	if ((insn->code & 0xe0) == ISA_MODE_MEMSX)
		value = LLVMBuildSExt(all->builder, value, all->i64, NAME);
	else if (isa_size(insn) != 8)
		value = widen(t, value);
	set(t, insn->dst_reg, value);
}

static LLVMValueRef narrowed(struct translated *t, LLVMValueRef value, unsigned size)
{
	return size == 8 ? value : LLVMBuildTrunc(t->all->builder, value, int_of(t, size), NAME);
}

static void store(struct translated *t, const struct bpf_insn *insn, const struct bpf_note *note)
{
	LLVMValueRef value = isa_class(insn) == BPF_ST ? imm64(t, insn->imm) : get(t, insn->src_reg);
	LLVMValueRef inst = LLVMBuildStore(t->all->builder, narrowed(t, value, isa_size(insn)), pointer(t, insn, insn->dst_reg, note));

	LLVMSetAlignment(inst, 1);
}

static LLVMAtomicRMWBinOp rmw_of(int op)
{
	switch (op & ~BPF_FETCH) {
	case BPF_ADD:
		return LLVMAtomicRMWBinOpAdd;
	case BPF_AND:
		return LLVMAtomicRMWBinOpAnd;
	case BPF_OR:
		return LLVMAtomicRMWBinOpOr;
	case BPF_XOR:
		return LLVMAtomicRMWBinOpXor;
	default:
		return LLVMAtomicRMWBinOpXchg;
	}
}

static LLVMValueRef widened(struct translated *t, LLVMValueRef value, unsigned size)
{
	return size == 8 ? value : widen(t, value);
}

static void acquire_or_release(struct translated *t, const struct bpf_insn *insn, const struct bpf_note *note)
{
	LLVMBuilderRef builder = t->all->builder;
	unsigned size = isa_size(insn);
	LLVMValueRef inst;

	if (insn->imm == ISA_LOAD_ACQUIRE) {
		inst = LLVMBuildLoad2(builder, int_of(t, size), pointer(t, insn, insn->src_reg, note), NAME);
		LLVMSetOrdering(inst, LLVMAtomicOrderingAcquire);
		LLVMSetAlignment(inst, size);
		set(t, insn->dst_reg, widened(t, LLVMBuildFreeze(builder, inst, NAME), size));
	} else {
		inst = LLVMBuildStore(builder, narrowed(t, get(t, insn->src_reg), size), pointer(t, insn, insn->dst_reg, note));
		LLVMSetOrdering(inst, LLVMAtomicOrderingRelease);
		LLVMSetAlignment(inst, size);
	}
}

/* Fetching operations are fully ordered, the others are not ordered at all, as in the kernel. */
static void atomic(struct translated *t, const struct bpf_insn *insn, const struct bpf_note *note)
{
	LLVMBuilderRef builder = t->all->builder;
	unsigned size = isa_size(insn);
	LLVMValueRef address, value, old;

	if (insn->imm == ISA_LOAD_ACQUIRE || insn->imm == ISA_STORE_RELEASE) {
		acquire_or_release(t, insn, note);
		return;
	}
	address = pointer(t, insn, insn->dst_reg, note);
	value = narrowed(t, get(t, insn->src_reg), size);
	if (insn->imm == BPF_CMPXCHG) {
		old = LLVMBuildAtomicCmpXchg(builder, address, narrowed(t, get(t, 0), size), value,
					     LLVMAtomicOrderingSequentiallyConsistent, LLVMAtomicOrderingSequentiallyConsistent, false);
		old = LLVMBuildExtractValue(builder, old, 0, NAME);
		set(t, 0, widened(t, LLVMBuildFreeze(builder, old, NAME), size));
		return;
	}
	old = LLVMBuildAtomicRMW(builder, rmw_of(insn->imm), address, value,
				 insn->imm & BPF_FETCH ? LLVMAtomicOrderingSequentiallyConsistent : LLVMAtomicOrderingMonotonic, false);
	if (insn->imm & BPF_FETCH)
		set(t, insn->src_reg, widened(t, LLVMBuildFreeze(builder, old, NAME), size));
}

/* ---- constants ------------------------------------------------------------------------------------------------ */

static LLVMValueRef external(struct translated *t, const char *prefix, const char *name)
{
	LLVMValueRef global;
	char symbol[512];

	snprintf(symbol, sizeof(symbol), "%s%s", prefix, name);
	global = LLVMGetNamedGlobal(t->all->module, symbol);
	if (!global)
		global = LLVMAddGlobal(t->all->module, t->all->i8, symbol);
	return global;
}

static LLVMValueRef address_of(struct translated *t, const struct bpf_ref *ref)
{
	const struct bpf_unit *unit = t->all->unit;
	LLVMValueRef base, addend = imm64(t, ref->addend);

	switch (ref->kind) {
	case BPF_REF_MAP:
		return LLVMConstPtrToInt(external(t, "map.", unit->maps[ref->index].name), t->all->i64);
	case BPF_REF_MAP_VALUE:
		return imm64(t, (int64_t)(uintptr_t)shunt_map_abi(unit->maps[ref->index].map)->values + ref->addend);
	case BPF_REF_DATA:
		base = external(t, "data", unit->datas[ref->index].name);
		return LLVMConstPtrToInt(LLVMConstGEP2(t->all->i8, base, &addend, 1), t->all->i64);
	default:
		return LLVMConstPtrToInt(t->all->functions[ref->index], t->all->i64);
	}
}

static void load_imm64(struct translated *t, const struct bpf_insn *insn, uint32_t at)
{
	const struct bpf_ref *ref = isa_find_ref(t->func, at);
	uint64_t value = (uint32_t)insn[0].imm | (uint64_t)(uint32_t)insn[1].imm << 32;

	set(t, insn->dst_reg, ref ? address_of(t, ref) : imm64(t, (int64_t)value));
}

/* ---- control -------------------------------------------------------------------------------------------------- */

static void clobber(struct translated *t, LLVMValueRef result)
{
	set(t, 0, result);
	for (unsigned reg = 1; reg <= 5; reg++)
		set(t, reg, imm64(t, 0));
}

/* bpf_tail_call(ctx, map, index): the helper runs the program; then this function returns what it said, else goes on. */
static void tail_call(struct translated *t)
{
	struct translation *all = t->all;
	LLVMBuilderRef builder = all->builder;
	LLVMBasicBlockRef entry = LLVMGetEntryBasicBlock(t->function);
	LLVMBasicBlockRef done = LLVMAppendBasicBlockInContext(all->context, t->function, "tail.done");
	LLVMBasicBlockRef failed = LLVMAppendBasicBlockInContext(all->context, t->function, "tail.failed");
	LLVMBasicBlockRef here = LLVMGetInsertBlock(builder);
	LLVMValueRef args[5] = { get(t, 1), get(t, 2), get(t, 3) }, verdict, ran;

	LLVMPositionBuilderBefore(builder, LLVMGetFirstInstruction(entry));
	verdict = LLVMBuildAlloca(builder, all->i64, "verdict");
	LLVMPositionBuilderAtEnd(builder, here);
	args[3] = LLVMBuildPtrToInt(builder, verdict, all->i64, NAME);
	args[4] = imm64(t, !!(all->traits[t->index] & TRAIT_XDP));
	ran = translate_helper_call(all, HELPER_TAIL_CALL, args);
	LLVMBuildCondBr(builder, LLVMBuildICmp(builder, LLVMIntNE, ran, imm64(t, 0), NAME), done, failed);
	LLVMPositionBuilderAtEnd(builder, done);
	translate_return(t, LLVMBuildLoad2(builder, all->i64, verdict, NAME));
	LLVMPositionBuilderAtEnd(builder, failed);
	clobber(t, imm64(t, -2));
}

static void call(struct translated *t, const struct bpf_insn *insn, uint32_t at)
{
	const struct bpf_ref *ref = isa_find_ref(t->func, at);
	struct translation *all = t->all;
	LLVMValueRef args[5];
	unsigned nr_args;

	if (!ref && insn->imm == HELPER_TAIL_CALL_BPF) {
		tail_call(t);
		return;
	}
	nr_args = ref ? 5 : bpf_helper_nr_args((uint32_t)insn->imm);
	for (unsigned i = 0; i < 5; i++)
		args[i] = i < nr_args ? get(t, i + 1) : imm64(t, 0);
	if (ref)
		clobber(t, LLVMBuildCall2(all->builder, all->registers_type, all->functions[ref->index], args, 5, NAME));
	else
		clobber(t, translate_helper_call(all, (uint32_t)insn->imm, args));
}

static void branch(struct translated *t, const struct bpf_insn *insn, uint32_t at)
{
	static const LLVMIntPredicate predicates[] = {
		[BPF_JEQ >> 4] = LLVMIntEQ,   [BPF_JGT >> 4] = LLVMIntUGT,  [BPF_JGE >> 4] = LLVMIntUGE,  [BPF_JSET >> 4] = LLVMIntNE,
		[BPF_JNE >> 4] = LLVMIntNE,   [BPF_JSGT >> 4] = LLVMIntSGT, [BPF_JSGE >> 4] = LLVMIntSGE, [BPF_JLT >> 4] = LLVMIntULT,
		[BPF_JLE >> 4] = LLVMIntULE,  [BPF_JSLT >> 4] = LLVMIntSLT, [BPF_JSLE >> 4] = LLVMIntSLE,
	};
	LLVMBuilderRef builder = t->all->builder;
	LLVMBasicBlockRef taken = t->blocks[t->block_of[isa_target(insn, at)]];
	LLVMValueRef a, b;

	if (isa_is_goto(insn)) {
		LLVMBuildBr(builder, taken);
		return;
	}
	a = get(t, insn->dst_reg);
	b = insn->code & BPF_X ? get(t, insn->src_reg) : imm64(t, insn->imm);
	if (isa_class(insn) == BPF_JMP32) {
		a = low32(t, a);
		b = low32(t, b);
	}
	if ((insn->code & 0xf0) == BPF_JSET) {
		a = LLVMBuildAnd(builder, a, b, NAME);
		b = LLVMConstInt(LLVMTypeOf(a), 0, false);
	}
	LLVMBuildCondBr(builder, LLVMBuildICmp(builder, predicates[insn->code >> 4], a, b, NAME), taken, t->blocks[t->block_of[at + 1]]);
}

void translate_insn(struct translated *t, uint32_t at)
{
	const struct bpf_insn *insn = &t->func->insns[at];
	const struct bpf_note *note = &t->notes[at];

	switch (isa_class(insn)) {
	case BPF_ALU: case BPF_ALU64:
		alu(t, insn, note);
		break;
	case BPF_LD:
		load_imm64(t, insn, at);
		break;
	case BPF_LDX:
		load(t, insn, note);
		break;
	case BPF_ST:
		store(t, insn, note);
		break;
	case BPF_STX:
		if ((insn->code & 0xe0) == BPF_ATOMIC)
			atomic(t, insn, note);
		else
			store(t, insn, note);
		break;
	default:
		if (isa_is_exit(insn))
			translate_return(t, get(t, 0));
		else if (isa_is_call(insn))
			call(t, insn, at);
		else
			branch(t, insn, at);
		break;
	}
}
