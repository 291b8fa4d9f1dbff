/* SPDX-License-Identifier: MIT */
/*
 * shunt-mark: clang's annotations of shunt/mark.h to metadata on the calls.
 *
 * clang annotates places (a field's address at each access, a local's or a parameter's slot, a global), while the other passes look
 * at calls. The mark flows from the place: to what is loaded from it, through casts, phi, select and array GEPs, into the locals
 * that it is stored to, and out of them again. Flow-insensitive and within functions, so that a function as clang emits it and the
 * same function optimised give the same marks. What a mark reaches by mistake is still correct: any call may go through any stub.
 *
 * Changes nothing but metadata of indirect calls, and drops the annotations of locals and parameters, whose work is then done and
 * which would keep the slots in memory. Those of fields stay for the functions that are inlined here later; shunt-dispatch drops
 * them.
 */
#include <stdlib.h>
#include <string.h>
#include <shunt/mark.h>
#include "passes/ir.h"

enum {
	NONE = 0,
	SEVERAL = UINT32_MAX, /* marks that contradict each other */
	MAX_DEPTH = 3,
};

/* What a mark says; two annotations that say the same are one. */
struct mark {
	bool is_dispatch; /* else targets */
	const char *name; /* of the dispatcher */
	size_t len;
	LLVMValueRef targets; /* a constant aggregate of them */
};

/* That value is a marked function pointer (depth 0), or the address of one (1), or the address of that (2)... */
struct fact {
	LLVMValueRef value;
	uint32_t depth;
	uint32_t dispatch, targets; /* NONE, SEVERAL, or the number of a mark */
	bool queued;
};

struct trace {
	struct shunt_pass *pass;
	struct mark *marks; /* numbered from 1 */
	uint32_t nr_marks, max_marks;
	struct fact *facts; /* in the order found */
	size_t nr_facts, max_facts;
	uint32_t *table; /* of fact numbers plus one; a power of two, at most half full */
	size_t table_len;
	size_t *queue;
	size_t nr_queued, max_queued;
	bool failed; /* out of memory */
};

static size_t hash(LLVMValueRef value, uint32_t depth)
{
	uint64_t h = ((uintptr_t)value >> 4) + depth;

	return (size_t)((h * UINT64_C(0x9e3779b97f4a7c15)) >> 20);
}

/* Makes room in *array of items of size for one more than nr. */
static bool grow(struct trace *trace, void **array, size_t *max, size_t nr, size_t size)
{
	size_t wanted = *max ? *max * 2 : 64;
	void *larger;

	if (nr < *max)
		return true;
	larger = realloc(*array, wanted * size);
	if (!larger) {
		trace->failed = true;
		return false;
	}
	*array = larger;
	*max = wanted;
	return true;
}

static uint32_t *find_slot(struct trace *trace, LLVMValueRef value, uint32_t depth)
{
	size_t at = hash(value, depth) & (trace->table_len - 1);

	for (;; at = (at + 1) & (trace->table_len - 1)) {
		uint32_t number = trace->table[at];

		if (!number || (trace->facts[number - 1].value == value && trace->facts[number - 1].depth == depth))
			return &trace->table[at];
	}
}

static bool grow_table(struct trace *trace)
{
	size_t wanted = trace->table_len ? trace->table_len * 2 : 256;
	uint32_t *table;

	if (trace->nr_facts * 2 < trace->table_len)
		return true;
	table = calloc(wanted, sizeof(*table));
	if (!table) {
		trace->failed = true;
		return false;
	}
	free(trace->table);
	trace->table = table;
	trace->table_len = wanted;
	for (size_t i = 0; i < trace->nr_facts; i++)
		*find_slot(trace, trace->facts[i].value, trace->facts[i].depth) = (uint32_t)i + 1;
	return true;
}

static uint32_t join(uint32_t a, uint32_t b)
{
	return a == b || b == NONE ? a : a == NONE ? b : SEVERAL;
}

/* Learns that these marks reach value. */
static void learn(struct trace *trace, LLVMValueRef value, uint32_t depth, uint32_t dispatch, uint32_t targets)
{
	uint32_t *slot, old_dispatch, old_targets;
	struct fact *fact;

	if (depth > MAX_DEPTH || trace->failed || !grow_table(trace))
		return;
	slot = find_slot(trace, value, depth);
	if (!*slot) {
		if (!grow(trace, (void **)&trace->facts, &trace->max_facts, trace->nr_facts, sizeof(*trace->facts)))
			return;
		trace->facts[trace->nr_facts++] = (struct fact){ .value = value, .depth = depth };
		*slot = (uint32_t)trace->nr_facts;
	}
	fact = &trace->facts[*slot - 1];
	old_dispatch = fact->dispatch;
	old_targets = fact->targets;
	fact->dispatch = join(old_dispatch, dispatch);
	fact->targets = join(old_targets, targets);
	if (fact->queued || (fact->dispatch == old_dispatch && fact->targets == old_targets))
		return;
	if (!grow(trace, (void **)&trace->queue, &trace->max_queued, trace->nr_queued, sizeof(*trace->queue)))
		return;
	fact->queued = true;
	trace->queue[trace->nr_queued++] = *slot - 1;
}

/* The local slot that pointer points into, or NULL. In a local struct each field would have to be a slot of its own: marked ones are
 * annotated where they are used. */
static LLVMValueRef find_slot_alloca(LLVMValueRef pointer)
{
	LLVMTypeRef type;

	for (int i = 0; i < 16; i++) {
		if (LLVMIsAGetElementPtrInst(pointer) || LLVMIsABitCastInst(pointer) || LLVMIsAAddrSpaceCastInst(pointer))
			pointer = LLVMGetOperand(pointer, 0);
		else
			break;
	}
	if (!LLVMIsAAllocaInst(pointer))
		return NULL;
	type = LLVMGetAllocatedType(pointer);
	while (LLVMGetTypeKind(type) == LLVMArrayTypeKind)
		type = LLVMGetElementType(type);
	return LLVMGetTypeKind(type) == LLVMStructTypeKind ? NULL : pointer;
}

static void flow_into_memory(struct trace *trace, const struct fact *fact, LLVMValueRef pointer, uint32_t depth)
{
	LLVMValueRef slot = find_slot_alloca(pointer);

	if (slot)
		learn(trace, slot, depth, fact->dispatch, fact->targets);
}

static void flow_into_call(struct trace *trace, const struct fact *fact, LLVMValueRef call)
{
	LLVMValueRef callee = LLVMGetCalledValue(call);

	if (shunt_ir_has_prefix(callee, "llvm.ptr.annotation.") && LLVMGetOperand(call, 0) == fact->value)
		learn(trace, call, fact->depth, fact->dispatch, fact->targets);
	else if (fact->depth && (shunt_ir_has_prefix(callee, "llvm.memcpy.") || shunt_ir_has_prefix(callee, "llvm.memmove.")) &&
		 LLVMGetOperand(call, 1) == fact->value)
		flow_into_memory(trace, fact, LLVMGetOperand(call, 0), fact->depth);
}

static void flow_into(struct trace *trace, const struct fact *fact, LLVMValueRef user)
{
	LLVMOpcode opcode;

	if (LLVMIsAInstruction(user))
		opcode = LLVMGetInstructionOpcode(user);
	else if (LLVMIsAConstantExpr(user))
		opcode = LLVMGetConstOpcode(user);
	else
		return;
	switch (opcode) {
	case LLVMLoad:
		if (fact->depth)
			learn(trace, user, fact->depth - 1, fact->dispatch, fact->targets);
		return;
	case LLVMAtomicRMW:
		if (fact->depth && LLVMGetOperand(user, 0) == fact->value)
			learn(trace, user, fact->depth - 1, fact->dispatch, fact->targets);
		return;
	case LLVMStore:
		if (LLVMGetOperand(user, 0) == fact->value)
			flow_into_memory(trace, fact, LLVMGetOperand(user, 1), fact->depth + 1);
		return;
	case LLVMGetElementPtr:
		if (fact->depth)
			learn(trace, user, fact->depth, fact->dispatch, fact->targets);
		return;
	case LLVMBitCast:
	case LLVMAddrSpaceCast:
	case LLVMPtrToInt:
	case LLVMIntToPtr:
	case LLVMFreeze:
	case LLVMPHI:
	case LLVMSelect:
		learn(trace, user, fact->depth, fact->dispatch, fact->targets);
		return;
	case LLVMCall:
		flow_into_call(trace, fact, user);
		return;
	default:
		return;
	}
}

static void flow(struct trace *trace)
{
	while (trace->nr_queued && !trace->failed) {
		size_t number = trace->queue[--trace->nr_queued];
		struct fact fact = trace->facts[number];

		trace->facts[number].queued = false;
		for (LLVMUseRef use = LLVMGetFirstUse(fact.value); use; use = LLVMGetNextUse(use))
			flow_into(trace, &fact, LLVMGetUser(use));
	}
}

/* The bytes of an annotation's string, without the final 0; NULL when it is none of ours. */
static const char *annotation_text(LLVMValueRef string, size_t *len)
{
	LLVMValueRef value;
	const char *text;

	string = shunt_ir_strip(string);
	if (!LLVMIsAGlobalVariable(string) || !(value = LLVMGetInitializer(string)) || !LLVMIsConstantString(value))
		return NULL;
	text = LLVMGetAsString(value, len);
	if (*len && !text[*len - 1])
		--*len;
	return *len >= strlen("shunt.") && !memcmp(text, "shunt.", strlen("shunt.")) ? text : NULL;
}

static bool same_mark(const struct mark *a, const struct mark *b)
{
	return a->is_dispatch == b->is_dispatch && a->len == b->len && !memcmp(a->name, b->name, a->len) && a->targets == b->targets;
}

/* The number of the mark that an annotation makes, NONE when it is not one of shunt/mark.h. */
static uint32_t find_mark(struct trace *trace, LLVMValueRef string, LLVMValueRef args)
{
	struct mark mark = { .name = "" };
	size_t len = 0, max = trace->max_marks;
	const char *text = annotation_text(string, &len);

	if (!text)
		return NONE;
	if (len > strlen(SHUNT_DISPATCHED_MARK) && !memcmp(text, SHUNT_DISPATCHED_MARK, strlen(SHUNT_DISPATCHED_MARK))) {
		mark.is_dispatch = true;
		mark.name = text + strlen(SHUNT_DISPATCHED_MARK);
		mark.len = len - strlen(SHUNT_DISPATCHED_MARK);
	} else if (len == strlen(SHUNT_TARGETS_MARK) && !memcmp(text, SHUNT_TARGETS_MARK, len)) {
		args = shunt_ir_strip(args);
		mark.targets = LLVMIsAGlobalVariable(args) ? LLVMGetInitializer(args) : NULL;
		if (!mark.targets)
			return NONE;
	} else {
		return NONE;
	}
	for (uint32_t i = 0; i < trace->nr_marks; i++)
		if (same_mark(&trace->marks[i], &mark))
			return i + 1;
	if (!grow(trace, (void **)&trace->marks, &max, trace->nr_marks, sizeof(*trace->marks)))
		return NONE;
	trace->max_marks = (uint32_t)max;
	trace->marks[trace->nr_marks] = mark;
	return ++trace->nr_marks;
}

static void learn_annotation(struct trace *trace, LLVMValueRef place, LLVMValueRef string, LLVMValueRef args)
{
	uint32_t mark = find_mark(trace, string, args);

	if (mark != NONE && trace->marks[mark - 1].is_dispatch)
		learn(trace, place, 1, mark, NONE);
	else if (mark != NONE)
		learn(trace, place, 1, NONE, mark);
}

/* Both intrinsics are (place, string, file, line, arguments); one gives the place back. */
static void learn_intrinsics(struct trace *trace, const char *prefix, bool gives_place)
{
	for (LLVMValueRef f = LLVMGetFirstFunction(trace->pass->module); f; f = LLVMGetNextFunction(f)) {
		if (!shunt_ir_has_prefix(f, prefix))
			continue;
		for (LLVMUseRef use = LLVMGetFirstUse(f); use; use = LLVMGetNextUse(use)) {
			LLVMValueRef call = LLVMGetUser(use);

			if (LLVMIsACallInst(call) && LLVMGetNumArgOperands(call) >= 5)
				learn_annotation(trace, gives_place ? call : shunt_ir_strip(LLVMGetOperand(call, 0)),
						 LLVMGetOperand(call, 1), LLVMGetOperand(call, 4));
		}
	}
}

static void learn_globals(struct trace *trace)
{
	LLVMValueRef list = LLVMGetNamedGlobal(trace->pass->module, "llvm.global.annotations"), array;

	array = list ? LLVMGetInitializer(list) : NULL;
	for (int i = 0, nr = array ? LLVMGetNumOperands(array) : 0; i < nr; i++) {
		LLVMValueRef entry = LLVMGetOperand(array, (unsigned)i), place;

		if (LLVMGetNumOperands(entry) < 5)
			continue;
		place = shunt_ir_strip(LLVMGetOperand(entry, 0));
		if (LLVMIsAGlobalVariable(place))
			learn_annotation(trace, place, LLVMGetOperand(entry, 1), LLVMGetOperand(entry, 4));
	}
}

/* Erases our annotations that prefix names. */
static void drop_annotations(struct shunt_pass *pass, const char *prefix)
{
	LLVMValueRef next_function;

	for (LLVMValueRef f = LLVMGetFirstFunction(pass->module); f; f = next_function) {
		LLVMUseRef use, next_use;

		next_function = LLVMGetNextFunction(f);
		if (!shunt_ir_has_prefix(f, prefix))
			continue;
		for (use = LLVMGetFirstUse(f); use; use = next_use) {
			LLVMValueRef call = LLVMGetUser(use);
			size_t len;

			next_use = LLVMGetNextUse(use);
			if (!LLVMIsACallInst(call) || LLVMGetNumArgOperands(call) < 5 || !annotation_text(LLVMGetOperand(call, 1), &len))
				continue;
			if (LLVMTypeOf(call) == LLVMTypeOf(LLVMGetOperand(call, 0)))
				LLVMReplaceAllUsesWith(call, LLVMGetOperand(call, 0));
			LLVMInstructionEraseFromParent(call);
			pass->changed = true;
		}
		if (!LLVMGetFirstUse(f) && pass->changed)
			LLVMDeleteFunction(f);
	}
}

void shunt_pass_drop_annotations(struct shunt_pass *pass)
{
	drop_annotations(pass, "llvm.ptr.annotation.");
	drop_annotations(pass, "llvm.var.annotation.");
}

static LLVMMetadataRef mark_to_metadata(struct shunt_pass *pass, const struct mark *mark)
{
	LLVMMetadataRef *operands = (LLVMMetadataRef *)pass->scratch->args;
	unsigned nr = 0;

	if (mark->is_dispatch)
		operands[nr++] = LLVMMDStringInContext2(pass->context, mark->name, mark->len);
	else
		for (int i = 0, nr_operands = LLVMGetNumOperands(mark->targets); i < nr_operands && nr < SHUNT_PASS_MAX_ARGS; i++)
			operands[nr++] = LLVMValueAsMetadata(LLVMGetOperand(mark->targets, (unsigned)i));
	return LLVMMDNodeInContext2(pass->context, operands, nr);
}

static void put_mark(struct trace *trace, LLVMValueRef call, const char *kind_name, uint32_t number)
{
	struct shunt_pass *pass = trace->pass;
	unsigned kind = LLVMGetMDKindIDInContext(pass->context, kind_name, (unsigned)strlen(kind_name));

	if (number == NONE || LLVMGetMetadata(call, kind))
		return;
	if (number == SEVERAL) {
		shunt_pass_missed(pass, call, "SeveralMarks", kind_name, "call left: marks that say different things reach it");
		return;
	}
	LLVMSetMetadata(call, kind, LLVMMetadataAsValue(pass->context, mark_to_metadata(pass, &trace->marks[number - 1])));
	pass->counts->marked++;
	pass->changed = true;
}

void shunt_pass_mark(struct shunt_pass *pass, const LLVMValueRef *calls, size_t nr)
{
	struct trace trace = { .pass = pass };

	learn_globals(&trace);
	learn_intrinsics(&trace, "llvm.ptr.annotation.", true);
	learn_intrinsics(&trace, "llvm.var.annotation.", false);
	flow(&trace);
	for (size_t i = 0; i < nr && trace.nr_facts && !trace.failed; i++) {
		LLVMValueRef callee = LLVMGetCalledValue(calls[i]);
		uint32_t number;

		if (LLVMIsAFunction(callee) || LLVMIsAInlineAsm(callee))
			continue;
		number = *find_slot(&trace, callee, 0);
		if (!number)
			continue;
		put_mark(&trace, calls[i], SHUNT_DISPATCH_MD, trace.facts[number - 1].dispatch);
		put_mark(&trace, calls[i], SHUNT_TARGETS_MD, trace.facts[number - 1].targets);
	}
	pass->failed |= trace.failed;
	if (!trace.failed)
		drop_annotations(pass, "llvm.var.annotation.");
	free(trace.marks);
	free(trace.facts);
	free(trace.table);
	free(trace.queue);
}
