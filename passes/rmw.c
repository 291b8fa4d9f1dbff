/* SPDX-License-Identifier: MIT */
/*
 * Exact updates, after shunt-percpu inlined the lookups: a store through a pointer to this CPU's copy, of what was loaded there and then
 * added to (or ored, ...), becomes one operation that no migration, preemption or signal can split. All stores are judged before the first
 * is changed. What reads, changes and writes a value and has no exact form is left as written, with a remark.
 */
#include <stdlib.h>
#include "passes/percpu.h"
#include "passes/rmw.h"

enum { MAX_DEPTH = 4 };

struct update {
	LLVMValueRef store;
	struct shunt_rmw_place place;
	enum shunt_rmw_op op;
	bool by_rseq;
};

struct updates {
	struct update *items;
	size_t nr, capacity;
};

bool shunt_rmw_is_exact(const struct shunt_pass *pass)
{
	return pass->options->rmw == SHUNT_PASS_RMW_EXACT || pass->options->rmw == SHUNT_PASS_RMW_EXACT_SHARED;
}

/* One step towards the value that pointer is some constant bytes from; NULL: this is it. */
static LLVMValueRef step(struct shunt_pass *pass, LLVMValueRef pointer, int64_t *offset)
{
	LLVMOpcode opcode;
	LLVMValueRef other;
	unsigned long long bytes = 0;

	if (LLVMIsALoadInst(pointer))
		return shunt_ir_loaded_value(pointer);
	if (LLVMIsAInstruction(pointer))
		opcode = LLVMGetInstructionOpcode(pointer);
	else if (LLVMIsAConstantExpr(pointer))
		opcode = LLVMGetConstOpcode(pointer);
	else
		return NULL;
	switch (opcode) {
	case LLVMBitCast:
	case LLVMPtrToInt:
	case LLVMIntToPtr:
	case LLVMFreeze:
		other = LLVMGetOperand(pointer, 0);
		return shunt_ir_can_coerce(LLVMTypeOf(pointer), pass->ptr) && shunt_ir_can_coerce(LLVMTypeOf(other), pass->ptr) &&
				       LLVMSizeOfTypeInBits(pass->layout, LLVMTypeOf(other)) == 64 &&
				       LLVMSizeOfTypeInBits(pass->layout, LLVMTypeOf(pointer)) == 64
			       ? other
			       : NULL;
	case LLVMGetElementPtr:
		if (!shunt_ir_constant_offset(pass, pointer, &bytes))
			return NULL;
		*offset += (int64_t)bytes;
		return LLVMGetOperand(pointer, 0);
	case LLVMAdd:
	case LLVMSub:
		other = LLVMGetOperand(pointer, 1);
		if (!LLVMIsAConstantInt(other) || LLVMTypeOf(other) != pass->i64)
			return NULL;
		*offset += opcode == LLVMAdd ? LLVMConstIntGetSExtValue(other) : -LLVMConstIntGetSExtValue(other);
		return LLVMGetOperand(pointer, 0);
	default:
		return NULL;
	}
}

static struct shunt_rmw_place raw_place_of(struct shunt_pass *pass, LLVMValueRef pointer)
{
	struct shunt_rmw_place place = { pointer, 0 };

	/* Bounded: only unreachable code can use itself without a phi. */
	for (int i = 0; i < 64 && !shunt_rmw_find(pass, place.base); i++) {
		LLVMValueRef next = step(pass, place.base, &place.offset);

		if (!next)
			break;
		place.base = next;
	}
	return place;
}

/* The first of all pointers to copies of one object stands for them. */
struct shunt_rmw_place shunt_rmw_place_of(struct shunt_pass *pass, LLVMValueRef pointer)
{
	struct shunt_rmw_place place = raw_place_of(pass, pointer);
	const struct shunt_rmw_lookup *lookup = shunt_rmw_find(pass, place.base);

	if (lookup && lookup->object)
		place.base = shunt_rmw_first_of(pass, lookup->object)->value;
	return place;
}

/* ---- what a place is ---- */

enum verdict { NOT_OURS, PARTLY, FROM_CALLER, THIS_CPU, OTHER_CPU, SHARED };

static enum verdict join(enum verdict a, enum verdict b)
{
	return a == b ? a : PARTLY;
}

static enum verdict judge(struct shunt_pass *pass, LLVMValueRef base, int depth);

/* A function of the module's own that some call gives a pointer of ours: CPU 0's copy is not known in it. */
static enum verdict judge_argument(struct shunt_pass *pass, LLVMValueRef argument, int depth)
{
	LLVMValueRef function = LLVMGetParamParent(argument);
	unsigned index = 0;

	if (!shunt_ir_is_local(function))
		return NOT_OURS;
	while (LLVMGetParam(function, index) != argument)
		index++;
	for (LLVMUseRef use = LLVMGetFirstUse(function); use; use = LLVMGetNextUse(use)) {
		LLVMValueRef call = LLVMGetUser(use);
		enum verdict verdict;

		if (!LLVMIsACallInst(call) || LLVMGetCalledValue(call) != function || LLVMGetNumArgOperands(call) <= index)
			continue;
		verdict = judge(pass, shunt_rmw_place_of(pass, LLVMGetOperand(call, index)).base, depth - 1);
		if (verdict != NOT_OURS && verdict != SHARED)
			return FROM_CALLER;
	}
	return NOT_OURS;
}

/* Arms that are all this CPU's copies make one; a mixture is PARTLY. */
static enum verdict judge(struct shunt_pass *pass, LLVMValueRef base, int depth)
{
	const struct shunt_rmw_lookup *lookup = shunt_rmw_find(pass, base);
	enum verdict verdict;

	if (lookup)
		return lookup->kind == SHUNT_RMW_THIS_CPU ? THIS_CPU : lookup->kind == SHUNT_RMW_OTHER_CPU ? OTHER_CPU : SHARED;
	if (!depth)
		return NOT_OURS;
	if (LLVMIsASelectInst(base))
		return join(judge(pass, shunt_rmw_place_of(pass, LLVMGetOperand(base, 1)).base, depth - 1),
			    judge(pass, shunt_rmw_place_of(pass, LLVMGetOperand(base, 2)).base, depth - 1));
	if (LLVMIsAArgument(base))
		return judge_argument(pass, base, depth);
	if (!LLVMIsAPHINode(base))
		return NOT_OURS;
	verdict = judge(pass, shunt_rmw_place_of(pass, LLVMGetIncomingValue(base, 0)).base, depth - 1);
	for (unsigned i = 1, nr = LLVMCountIncoming(base); i < nr; i++)
		verdict = join(verdict, judge(pass, shunt_rmw_place_of(pass, LLVMGetIncomingValue(base, i)).base, depth - 1));
	return verdict;
}

/* CPU 0's copy of a place that is THIS_CPU, built where its base is. */
static LLVMValueRef build_unit0(struct shunt_pass *pass, LLVMValueRef pointer)
{
	struct shunt_rmw_place place = raw_place_of(pass, pointer);
	const struct shunt_rmw_lookup *lookup = shunt_rmw_find(pass, place.base);
	LLVMValueRef unit0, offset = LLVMConstInt(pass->i64, (unsigned long long)place.offset, 1), next;

	if (lookup) {
		unit0 = lookup->unit0;
		next = LLVMIsAInstruction(lookup->value) ? LLVMGetNextInstruction(lookup->value) : NULL;
	} else if (LLVMIsASelectInst(place.base)) {
		LLVMValueRef yes = build_unit0(pass, LLVMGetOperand(place.base, 1)), no = build_unit0(pass, LLVMGetOperand(place.base, 2));

		LLVMPositionBuilderBefore(pass->builder, place.base);
		unit0 = LLVMBuildSelect(pass->builder, LLVMGetOperand(place.base, 0), yes, no, "");
		next = place.base;
	} else {
		LLVMPositionBuilderBefore(pass->builder, place.base);
		unit0 = LLVMBuildPhi(pass->builder, pass->ptr, "");
		for (unsigned i = 0, nr = LLVMCountIncoming(place.base); i < nr; i++) {
			LLVMBasicBlockRef block = LLVMGetIncomingBlock(place.base, i);
			LLVMValueRef arm = build_unit0(pass, LLVMGetIncomingValue(place.base, i));

			LLVMAddIncoming(unit0, &arm, &block, 1);
		}
		for (next = place.base; LLVMIsAPHINode(next);)
			next = LLVMGetNextInstruction(next);
	}
	if (!place.offset)
		return unit0;
	if (next)
		LLVMPositionBuilderBefore(pass->builder, next);
	return LLVMBuildGEP2(pass->builder, pass->i8, unit0, &offset, 1, "");
}

/* ---- judging ---- */

static void missed(struct shunt_pass *pass, LLVMValueRef instruction, const char *why)
{
	shunt_pass_missed(pass, instruction, "InexactUpdate", "update", "update left as written, other threads may undo it: %s", why);
}

static bool is_aligned(const struct shunt_pass *pass, LLVMValueRef instruction, LLVMValueRef value, struct shunt_rmw_place place)
{
	unsigned bytes = LLVMGetIntTypeWidth(LLVMTypeOf(value)) / 8;
	const struct shunt_rmw_lookup *lookup = shunt_rmw_find(pass, place.base);

	/* Values of maps begin at multiples of 8. */
	return LLVMGetAlignment(instruction) >= bytes || ((!lookup || lookup->map) && place.offset % bytes == 0);
}

static bool is_shared_update(const struct shunt_pass *pass, enum verdict verdict)
{
	return verdict == SHARED && pass->options->rmw == SHUNT_PASS_RMW_EXACT_SHARED;
}

static bool judge_store(struct shunt_pass *pass, LLVMValueRef store, struct update *out)
{
	LLVMValueRef value = LLVMGetOperand(store, 0);
	struct shunt_rmw_place place = shunt_rmw_place_of(pass, LLVMGetOperand(store, 1));
	enum verdict verdict = judge(pass, place.base, MAX_DEPTH);
	struct shunt_rmw_match match;

	if (verdict == NOT_OURS || (verdict == SHARED && !is_shared_update(pass, verdict)) || !shunt_rmw_depends(pass, value, place))
		return false;
	if (verdict == PARTLY)
		missed(pass, store, "its pointer may lead to values of several kinds");
	else if (verdict == FROM_CALLER)
		missed(pass, store, "its pointer comes from a caller; inline the function, or look up in it");
	else if (verdict == OTHER_CPU)
		missed(pass, store, "it is of a given CPU's copy; update this CPU's");
	else if (LLVMGetVolatile(store) || LLVMGetOrdering(store) != LLVMAtomicOrderingNotAtomic)
		missed(pass, store, "the store is volatile or atomic");
	else if (!shunt_rmw_match_value(pass, value, place, &match))
		missed(pass, store, match.why ? match.why : "it is not traced to one load");
	else if (!is_aligned(pass, store, value, place))
		missed(pass, store, "it is not naturally aligned");
	else if (match.op != SHUNT_RMW_NONE && !shunt_rmw_is_undisturbed(pass, &match, store))
		missed(pass, store, "something between load and store may write the value");
	else if (match.op != SHUNT_RMW_NONE) {
		*out = (struct update){ store, place, match.op, verdict == THIS_CPU && shunt_rmw_has_rseq(pass) };
		return true;
	}
	return false;
}

/* An atomic operation of the program's own is exact among atomic ones, but not beside restartable ones. */
static bool judge_atomic(struct shunt_pass *pass, LLVMValueRef atomic, struct update *out)
{
	struct shunt_rmw_place place = shunt_rmw_place_of(pass, LLVMGetOperand(atomic, 0));
	enum shunt_rmw_op op;

	if (!shunt_rmw_has_rseq(pass) || judge(pass, place.base, MAX_DEPTH) != THIS_CPU)
		return false;
	switch (LLVMGetAtomicRMWBinOp(atomic)) {
	case LLVMAtomicRMWBinOpAdd:
		op = SHUNT_RMW_ADD;
		break;
	case LLVMAtomicRMWBinOpOr:
		op = SHUNT_RMW_OR;
		break;
	case LLVMAtomicRMWBinOpAnd:
		op = SHUNT_RMW_AND;
		break;
	case LLVMAtomicRMWBinOpXor:
		op = SHUNT_RMW_XOR;
		break;
	default:
		op = SHUNT_RMW_NONE;
		break;
	}
	if (op == SHUNT_RMW_NONE || LLVMGetFirstUse(atomic) || !shunt_rmw_has_width(LLVMTypeOf(atomic))) {
		missed(pass, atomic, "an atomic operation whose result is used, or of this kind, has no restartable form");
		return false;
	}
	*out = (struct update){ atomic, place, op, true };
	return true;
}

static void add_update(struct shunt_pass *pass, struct updates *updates, const struct update *update)
{
	if (updates->nr == updates->capacity) {
		size_t capacity = updates->capacity ? updates->capacity * 2 : 64;
		struct update *items = realloc(updates->items, capacity * sizeof(*items));

		if (!items) {
			pass->failed = true;
			return;
		}
		updates->items = items;
		updates->capacity = capacity;
	}
	updates->items[updates->nr++] = *update;
}

static void judge_function(struct shunt_pass *pass, LLVMValueRef function, struct updates *updates)
{
	for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(function); b; b = LLVMGetNextBasicBlock(b))
		for (LLVMValueRef i = LLVMGetFirstInstruction(b); i; i = LLVMGetNextInstruction(i)) {
			struct update update;
			bool is_update = false;

			if (LLVMIsAStoreInst(i) && LLVMGetTypeKind(LLVMTypeOf(LLVMGetOperand(i, 0))) == LLVMIntegerTypeKind)
				is_update = judge_store(pass, i, &update);
			else if (LLVMIsAAtomicRMWInst(i))
				is_update = judge_atomic(pass, i, &update);
			if (is_update)
				add_update(pass, updates, &update);
		}
}

/* ---- changing ---- */

static void make_exact(struct shunt_pass *pass, const struct update *update)
{
	bool is_store = LLVMIsAStoreInst(update->store);
	LLVMValueRef pointer = LLVMGetOperand(update->store, is_store ? 1 : 0), value = LLVMGetOperand(update->store, is_store ? 0 : 1);
	LLVMValueRef operand = is_store ? shunt_rmw_build_operand(pass, value, update->place, update->op) : value, unit0 = NULL;

	if (update->by_rseq)
		unit0 = build_unit0(pass, pointer);
	shunt_ir_at(pass, update->store);
	if (update->by_rseq)
		shunt_rmw_emit_rseq(pass, update->op, unit0, operand);
	else
		shunt_rmw_emit_atomic(pass, update->op, pointer, operand);
	shunt_pass_passed(pass, update->store, "ExactUpdate", "update", "load, %s and store became one %s operation",
			  shunt_rmw_op_name(update->op), update->by_rseq ? "restartable" : "atomic");
	pass->counts->exact_updates++;
	LLVMInstructionEraseFromParent(update->store);
}

void shunt_pass_rmw(struct shunt_pass *pass)
{
	struct updates updates = { 0 };

	if (pass->lookups) {
		for (LLVMValueRef f = LLVMGetFirstFunction(pass->module); f; f = LLVMGetNextFunction(f))
			judge_function(pass, f, &updates);
		for (size_t i = 0; i < updates.nr; i++)
			make_exact(pass, &updates.items[i]);
	}
	shunt_rmw_unroll(pass);
	shunt_rmw_disarm(pass);
	free(updates.items);
	shunt_rmw_forget(pass);
}
