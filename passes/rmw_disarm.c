/* SPDX-License-Identifier: MIT */
/*
 * A restartable sequence leaves its descriptor in the thread's rseq_cs, where it may stay as long as it can be read: the kernel looks where
 * the thread is, finds it outside and forgets it. It may be freed once the thread has left the code that it belongs to. So 0 is stored
 * once on the ways out of a function instead of behind each sequence: before it returns or unwinds, and before calls that may never come
 * back (longjmp, the end of the thread) or that suspend it. Between two sequences, and in a loop of them, nothing is stored.
 */
#include <stdlib.h>
#include <string.h>
#include "passes/rmw.h"

static unsigned mark_kind(const struct shunt_pass *pass)
{
	static const char name[] = "shunt.armed";

	return LLVMGetMDKindIDInContext(pass->context, name, sizeof(name) - 1);
}

void shunt_rmw_mark_armed(struct shunt_pass *pass, LLVMValueRef sequence)
{
	LLVMSetMetadata(sequence, mark_kind(pass), LLVMMetadataAsValue(pass->context, LLVMMDNodeInContext2(pass->context, NULL, 0)));
	pass->has_armed = true;
}

static bool has_attribute(LLVMValueRef call, LLVMValueRef callee, const char *name)
{
	unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));

	return LLVMGetCallSiteEnumAttribute(call, LLVMAttributeFunctionIndex, kind) ||
	       (callee && LLVMGetEnumAttributeAtIndex(callee, LLVMAttributeFunctionIndex, kind));
}

/* Whether a call comes back to where it was made, and nowhere else. */
static bool comes_back(LLVMValueRef call)
{
	LLVMValueRef callee = LLVMGetCalledValue(call);

	if (!LLVMIsACallInst(call) || LLVMGetTailCallKind(call) == LLVMTailCallKindMustTail)
		return false;
	if (LLVMIsAInlineAsm(callee))
		return true;
	callee = LLVMIsAFunction(callee) ? callee : NULL;
	/* Of libshunt: these neither call what others wrote nor wait. */
	if (callee && !shunt_ir_is_local(callee) &&
	    (shunt_ir_has_prefix(callee, "shunt_map_") || shunt_ir_has_prefix(callee, "shunt_percpu_") ||
	     shunt_ir_has_prefix(callee, "shunt_cpu_id") || shunt_ir_has_prefix(callee, "shunt_nr_cpus")))
		return true;
	return has_attribute(call, callee, "willreturn") && has_attribute(call, callee, "nounwind");
}

static bool is_way_out(LLVMValueRef instruction)
{
	switch (LLVMGetInstructionOpcode(instruction)) {
	case LLVMRet:
	case LLVMResume:
	case LLVMCleanupRet:
	case LLVMCatchRet:
	case LLVMCatchSwitch:
		return true;
	case LLVMCall:
	case LLVMInvoke:
	case LLVMCallBr:
		return !comes_back(instruction);
	default:
		return false;
	}
}

struct block {
	LLVMBasicBlockRef block;
	bool armed_before, armed_after;
};

/* Goes through a block; with is_last, stores where it must be and takes the marks away. */
static bool walk(struct shunt_pass *pass, const struct block *at, bool is_last)
{
	unsigned kind = mark_kind(pass);
	bool armed = at->armed_before;
	LLVMValueRef next;

	for (LLVMValueRef i = LLVMGetFirstInstruction(at->block); i; i = next) {
		next = LLVMGetNextInstruction(i);
		if (LLVMIsACallInst(i) && LLVMGetMetadata(i, kind)) {
			armed = true;
			if (is_last)
				LLVMSetMetadata(i, kind, NULL);
		} else if (armed && is_way_out(i)) {
			armed = false;
			if (!is_last)
				continue;
			shunt_ir_at(pass, i);
			shunt_rmw_emit_clear(pass);
		}
	}
	return armed;
}

static int compare_blocks(const void *left, const void *right)
{
	LLVMBasicBlockRef a = ((const struct block *)left)->block, b = ((const struct block *)right)->block;

	return a < b ? -1 : a > b;
}

/* Whether something new was found. */
static bool arm_successors(const struct block *from, struct block *blocks, unsigned nr)
{
	LLVMValueRef terminator = LLVMGetBasicBlockTerminator(from->block);
	bool changed = false;

	for (unsigned i = 0; terminator && i < LLVMGetNumSuccessors(terminator); i++) {
		struct block key = { .block = LLVMGetSuccessor(terminator, i) };
		struct block *to = bsearch(&key, blocks, nr, sizeof(*blocks), compare_blocks);

		changed |= !to->armed_before;
		to->armed_before = true;
	}
	return changed;
}

static void disarm_function(struct shunt_pass *pass, LLVMValueRef function)
{
	unsigned nr = LLVMCountBasicBlocks(function), n = 0;
	struct block *blocks = calloc(nr ? nr : 1, sizeof(*blocks));
	bool changed = true;

	if (!blocks) {
		pass->failed = true;
		return;
	}
	for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(function); b; b = LLVMGetNextBasicBlock(b))
		blocks[n++].block = b;
	qsort(blocks, nr, sizeof(*blocks), compare_blocks);
	/* A block becomes armed once: at most nr rounds, and few in practice. */
	while (changed) {
		changed = false;
		for (unsigned i = 0; i < nr; i++) {
			if (blocks[i].armed_after || !walk(pass, &blocks[i], false))
				continue;
			blocks[i].armed_after = true;
			changed |= arm_successors(&blocks[i], blocks, nr);
		}
	}
	for (unsigned i = 0; i < nr; i++)
		walk(pass, &blocks[i], true);
	free(blocks);
}

void shunt_rmw_disarm(struct shunt_pass *pass)
{
	if (!pass->has_armed)
		return;
	for (LLVMValueRef f = LLVMGetFirstFunction(pass->module); f; f = LLVMGetNextFunction(f))
		if (LLVMGetFirstBasicBlock(f))
			disarm_function(pass, f);
	pass->has_armed = false;
}
