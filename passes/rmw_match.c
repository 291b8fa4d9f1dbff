/* SPDX-License-Identifier: MIT */
/*
 * What a stored value does to what was there: load, then add, sub, or, and, xor of other values, any number of them of one kind; in a wider
 * register and truncated; through selects; and through phis that stand in the block of the pointer's phi and pair up with it, as a
 * compiler leaves it when it merges the ends of several counters. An arm that stores what it loaded adds nothing.
 */
#include "passes/rmw.h"

enum { MAX_DEPTH = 8, MAX_STEPS = 64 };

static unsigned width_of(LLVMValueRef value)
{
	LLVMTypeRef type = LLVMTypeOf(value);

	return LLVMGetTypeKind(type) == LLVMIntegerTypeKind ? LLVMGetIntTypeWidth(type) : 0;
}

bool shunt_rmw_has_width(LLVMTypeRef type)
{
	unsigned width = LLVMGetTypeKind(type) == LLVMIntegerTypeKind ? LLVMGetIntTypeWidth(type) : 0;

	return width == 8 || width == 16 || width == 32 || width == 64;
}

/* Without casts that leave the low `width` bits as they are. */
static LLVMValueRef strip_casts(LLVMValueRef value, unsigned width)
{
	while (LLVMIsAZExtInst(value) || LLVMIsASExtInst(value) || LLVMIsAFreezeInst(value) || LLVMIsATruncInst(value)) {
		LLVMValueRef from = LLVMGetOperand(value, 0);

		if (width_of(value) < width || width_of(from) < width)
			break;
		value = from;
	}
	return value;
}

static LLVMValueRef incoming_from(LLVMValueRef phi, LLVMBasicBlockRef block)
{
	for (unsigned i = 0, nr = LLVMCountIncoming(phi); i < nr; i++)
		if (LLVMGetIncomingBlock(phi, i) == block)
			return LLVMGetIncomingValue(phi, i);
	return NULL;
}

/* The place that goes with arm i of a value's phi: the pointer's own arm where both phis are of one block, else the same in all. */
static struct shunt_rmw_place paired_place(struct shunt_pass *pass, LLVMValueRef phi, unsigned i, struct shunt_rmw_place place)
{
	struct shunt_rmw_place arm;

	if (!LLVMIsAPHINode(place.base) || LLVMGetInstructionParent(place.base) != LLVMGetInstructionParent(phi))
		return place;
	arm = shunt_rmw_place_of(pass, incoming_from(place.base, LLVMGetIncomingBlock(phi, i)));
	arm.offset += place.offset;
	return arm;
}

/* width: of the load; 0: any. */
static bool is_load_at(struct shunt_pass *pass, LLVMValueRef value, struct shunt_rmw_place place, unsigned width,
		       struct shunt_rmw_match *match, int depth)
{
	value = strip_casts(value, width);
	if (LLVMIsALoadInst(value)) {
		struct shunt_rmw_place from = shunt_rmw_place_of(pass, LLVMGetOperand(value, 0));

		if (from.base != place.base || from.offset != place.offset)
			return false;
		if (LLVMGetVolatile(value) || LLVMGetOrdering(value) != LLVMAtomicOrderingNotAtomic)
			return !match;
		if (match) {
			if (width_of(value) != width || match->nr_loads == SHUNT_RMW_MAX_LOADS)
				return false;
			match->loads[match->nr_loads++] = value;
		}
		return true;
	}
	if (!LLVMIsAPHINode(value) || !depth)
		return false;
	/* Several loads that meet with their pointers. */
	for (unsigned i = 0, nr = LLVMCountIncoming(value); i < nr; i++)
		if (!is_load_at(pass, LLVMGetIncomingValue(value, i), paired_place(pass, value, i, place), width, match, depth - 1))
			return false;
	return true;
}

struct walk {
	struct shunt_pass *pass;
	struct {
		LLVMValueRef value;
		struct shunt_rmw_place place;
	} seen[MAX_STEPS]; /* loops end here */
	unsigned nr_seen;
};

static bool depends(struct walk *walk, LLVMValueRef value, struct shunt_rmw_place place)
{
	if (!LLVMIsAInstruction(value))
		return false;
	for (unsigned i = 0; i < walk->nr_seen; i++)
		if (walk->seen[i].value == value && walk->seen[i].place.base == place.base && walk->seen[i].place.offset == place.offset)
			return false;
	if (walk->nr_seen == MAX_STEPS)
		return true; /* not known: as if it did */
	walk->seen[walk->nr_seen].value = value;
	walk->seen[walk->nr_seen++].place = place;
	if (is_load_at(walk->pass, value, place, 0, NULL, 0))
		return true;
	/* Memory and calls end the walk: what they give is no function of the place that could be followed. */
	if (LLVMIsALoadInst(value) || LLVMIsACallInst(value))
		return false;
	if (LLVMIsAPHINode(value)) {
		for (unsigned i = 0, nr = LLVMCountIncoming(value); i < nr; i++)
			if (depends(walk, LLVMGetIncomingValue(value, i), paired_place(walk->pass, value, i, place)))
				return true;
		return false;
	}
	for (int i = 0, nr = LLVMGetNumOperands(value); i < nr; i++)
		if (depends(walk, LLVMGetOperand(value, i), place))
			return true;
	return false;
}

bool shunt_rmw_depends(struct shunt_pass *pass, LLVMValueRef value, struct shunt_rmw_place place)
{
	struct walk walk = { .pass = pass };

	return depends(&walk, value, place);
}

static enum shunt_rmw_op op_of(LLVMOpcode opcode)
{
	switch (opcode) {
	case LLVMAdd:
	case LLVMSub:
		return SHUNT_RMW_ADD;
	case LLVMOr:
		return SHUNT_RMW_OR;
	case LLVMAnd:
		return SHUNT_RMW_AND;
	case LLVMXor:
		return SHUNT_RMW_XOR;
	default:
		return SHUNT_RMW_NONE;
	}
}

/* The operand of a binary instruction that carries the old value, -1: none. */
static int old_operand(struct shunt_pass *pass, LLVMValueRef binary, struct shunt_rmw_place place)
{
	bool left = shunt_rmw_depends(pass, LLVMGetOperand(binary, 0), place);
	bool right = shunt_rmw_depends(pass, LLVMGetOperand(binary, 1), place);

	if (left == right || (right && LLVMGetInstructionOpcode(binary) == LLVMSub))
		return -1;
	return left ? 0 : 1;
}

static bool refuse(struct shunt_rmw_match *match, const char *why)
{
	match->why = why;
	return false;
}

static bool merge_op(struct shunt_rmw_match *match, enum shunt_rmw_op op)
{
	if (match->op != SHUNT_RMW_NONE && match->op != op)
		return refuse(match, "it is more than one kind of operation");
	match->op = op;
	return true;
}

struct visit {
	struct shunt_pass *pass;
	struct shunt_rmw_match *match;
	unsigned width; /* of what is stored */
};

static bool visit(struct visit *v, LLVMValueRef value, struct shunt_rmw_place place, int depth)
{
	value = strip_casts(value, v->width);
	if (is_load_at(v->pass, value, place, v->width, v->match, 2))
		return true;
	if (!depth)
		return refuse(v->match, "its value comes a long way from the load");
	if (LLVMIsASelectInst(value))
		return visit(v, LLVMGetOperand(value, 1), place, depth - 1) && visit(v, LLVMGetOperand(value, 2), place, depth - 1);
	if (LLVMIsAPHINode(value)) {
		for (unsigned i = 0, nr = LLVMCountIncoming(value); i < nr; i++)
			if (!visit(v, LLVMGetIncomingValue(value, i), paired_place(v->pass, value, i, place), depth - 1))
				return false;
		return true;
	}
	if (LLVMIsABinaryOperator(value) && op_of(LLVMGetInstructionOpcode(value)) != SHUNT_RMW_NONE) {
		int old = old_operand(v->pass, value, place);

		if (old < 0)
			return refuse(v->match, "the old value is on both sides of an operation, or on none, or is subtracted");
		return merge_op(v->match, op_of(LLVMGetInstructionOpcode(value))) &&
		       visit(v, LLVMGetOperand(value, (unsigned)old), place, depth - 1);
	}
	return refuse(v->match, "its operation is none of add, or, and, xor");
}

bool shunt_rmw_match_value(struct shunt_pass *pass, LLVMValueRef value, struct shunt_rmw_place place, struct shunt_rmw_match *out)
{
	struct visit v = { pass, out, width_of(value) };

	*out = (struct shunt_rmw_match){ .op = SHUNT_RMW_NONE };
	if (!shunt_rmw_has_width(LLVMTypeOf(value)))
		return refuse(out, "only 8, 16, 32 and 64 bits have an exact form");
	return visit(&v, value, place, MAX_DEPTH);
}

/* What leaves a number as it is. */
static LLVMValueRef identity(LLVMTypeRef type, enum shunt_rmw_op op)
{
	return op == SHUNT_RMW_AND ? LLVMConstAllOnes(type) : LLVMConstNull(type);
}

/* Every node is built beside the one that it stands for, whose operands it takes. */
static LLVMValueRef build(struct shunt_pass *pass, LLVMValueRef value, LLVMTypeRef type, struct shunt_rmw_place place, enum shunt_rmw_op op)
{
	unsigned width = LLVMGetIntTypeWidth(type);
	LLVMValueRef rest, other;
	int old;

	value = strip_casts(value, width);
	if (is_load_at(pass, value, place, width, NULL, 2))
		return identity(type, op);
	if (LLVMIsASelectInst(value)) {
		LLVMValueRef yes = build(pass, LLVMGetOperand(value, 1), type, place, op);
		LLVMValueRef no = build(pass, LLVMGetOperand(value, 2), type, place, op);

		LLVMPositionBuilderBefore(pass->builder, value);
		return LLVMBuildSelect(pass->builder, LLVMGetOperand(value, 0), yes, no, "");
	}
	if (LLVMIsAPHINode(value)) {
		LLVMValueRef phi;

		LLVMPositionBuilderBefore(pass->builder, value);
		phi = LLVMBuildPhi(pass->builder, type, "");
		for (unsigned i = 0, nr = LLVMCountIncoming(value); i < nr; i++) {
			LLVMBasicBlockRef block = LLVMGetIncomingBlock(value, i);
			LLVMValueRef arm = build(pass, LLVMGetIncomingValue(value, i), type, paired_place(pass, value, i, place), op);

			LLVMAddIncoming(phi, &arm, &block, 1);
		}
		return phi;
	}
	/* A binary operation: nothing else was matched. */
	old = old_operand(pass, value, place);
	rest = build(pass, LLVMGetOperand(value, (unsigned)old), type, place, op);
	other = LLVMGetOperand(value, (unsigned)!old);
	LLVMPositionBuilderBefore(pass->builder, value);
	other = LLVMBuildIntCast2(pass->builder, other, type, 0, "");
	if (LLVMGetInstructionOpcode(value) == LLVMSub)
		other = LLVMBuildNeg(pass->builder, other, "");
	if (rest == identity(type, op))
		return other;
	switch (op) {
	case SHUNT_RMW_OR:
		return LLVMBuildOr(pass->builder, rest, other, "");
	case SHUNT_RMW_AND:
		return LLVMBuildAnd(pass->builder, rest, other, "");
	case SHUNT_RMW_XOR:
		return LLVMBuildXor(pass->builder, rest, other, "");
	default:
		return LLVMBuildAdd(pass->builder, rest, other, "");
	}
}

LLVMValueRef shunt_rmw_build_operand(struct shunt_pass *pass, LLVMValueRef value, struct shunt_rmw_place place, enum shunt_rmw_op op)
{
	return build(pass, value, LLVMTypeOf(value), place, op);
}
