/* SPDX-License-Identifier: MIT */
/*
 * Whether what was loaded is still there when it is stored back, but for other threads: then load, operation and store may become one
 * operation at the place of the store. Everything that may run between the two is looked at, backwards from the store; what may write
 * the loaded bytes, or cannot be told, speaks against it.
 */
#include <stdlib.h>
#include <string.h>
#include "passes/rmw.h"

enum { MAX_BLOCKS = 128 };

/* Functions of abi.h that write no value that a program holds. */
static const char *const silent[] = { "shunt_cpu_id",	    "shunt_percpu_this",    "shunt_percpu_of", "shunt_nr_cpus",
				      "shunt_map_lookup",   "shunt_map_lookup_of",  "shunt_map_find_" };
/* Helpers likewise: clocks, random numbers, the frame's bounds, redirection, checksums. */
static const char *const silent_helpers[] = { "0005", "0007", "0008", "0023", "0028", "0044", "0051", "0054", "0065", "0125" };

static bool is_silent_function(LLVMValueRef callee)
{
	for (size_t i = 0; i < sizeof(silent) / sizeof(silent[0]); i++)
		if (shunt_ir_has_prefix(callee, silent[i]))
			return true;
	if (shunt_ir_has_prefix(callee, SHUNT_HELPER_PREFIX)) {
		const char *number = LLVMGetValueName2(callee, &(size_t){ 0 }) + strlen(SHUNT_HELPER_PREFIX);

		for (size_t i = 0; i < sizeof(silent_helpers) / sizeof(silent_helpers[0]); i++)
			if (!strcmp(number, silent_helpers[i]))
				return true;
	}
	return false;
}

static bool is_argument_memory(struct shunt_pass *pass, LLVMValueRef base)
{
	/* A pointer out of what the caller gave: a frame, say. Map values are not found there. */
	return LLVMIsALoadInst(base) && LLVMIsAArgument(shunt_rmw_place_of(pass, LLVMGetOperand(base, 0)).base);
}

/* Whether len bytes (0: not known) written at pointer may be those that load reads. */
static bool may_be_same(struct shunt_pass *pass, LLVMValueRef pointer, uint64_t len, LLVMValueRef load)
{
	struct shunt_rmw_place to = shunt_rmw_place_of(pass, pointer), from = shunt_rmw_place_of(pass, LLVMGetOperand(load, 0));
	const struct shunt_rmw_lookup *to_lookup, *from_lookup;
	int64_t load_len = (int64_t)LLVMStoreSizeOfType(pass->layout, LLVMTypeOf(load));

	if (to.base == from.base)
		return !len || len > INT32_MAX || (to.offset < from.offset + load_len && from.offset < to.offset + (int64_t)len);
	if (LLVMIsAAllocaInst(to.base) || LLVMIsAGlobalVariable(to.base) || is_argument_memory(pass, to.base))
		return false;
	to_lookup = shunt_rmw_find(pass, to.base);
	from_lookup = shunt_rmw_find(pass, from.base);
	return !to_lookup || !from_lookup || !to_lookup->map || !from_lookup->map || to_lookup->map == from_lookup->map;
}

static bool call_may_write(struct shunt_pass *pass, LLVMValueRef call, LLVMValueRef load)
{
	LLVMValueRef callee = LLVMGetCalledValue(call);

	if (!LLVMIsAFunction(callee))
		return true;
	if (is_silent_function(callee))
		return false;
	if (!LLVMGetIntrinsicID(callee))
		return true;
	if (shunt_ir_has_prefix(callee, "llvm.mem")) {
		LLVMValueRef len = LLVMGetOperand(call, 2);

		return may_be_same(pass, LLVMGetOperand(call, 0), LLVMIsAConstantInt(len) ? LLVMConstIntGetZExtValue(len) : 0, load);
	}
	/* Intrinsics without a pointer among their arguments write no memory of ours; markers of lifetimes and debug information none. */
	if (shunt_ir_has_prefix(callee, "llvm.lifetime.") || shunt_ir_has_prefix(callee, "llvm.dbg."))
		return false;
	for (unsigned i = 0, nr = LLVMGetNumArgOperands(call); i < nr; i++)
		if (LLVMGetTypeKind(LLVMTypeOf(LLVMGetOperand(call, i))) == LLVMPointerTypeKind)
			return true;
	return false;
}

static bool may_write(struct shunt_pass *pass, LLVMValueRef instruction, LLVMValueRef load)
{
	switch (LLVMGetInstructionOpcode(instruction)) {
	case LLVMStore:
		return may_be_same(pass, LLVMGetOperand(instruction, 1),
				   LLVMStoreSizeOfType(pass->layout, LLVMTypeOf(LLVMGetOperand(instruction, 0))), load);
	case LLVMAtomicRMW:
		return may_be_same(pass, LLVMGetOperand(instruction, 0), 8, load);
	case LLVMAtomicCmpXchg:
		return may_be_same(pass, LLVMGetOperand(instruction, 0), 16, load);
	case LLVMCall:
		return call_may_write(pass, instruction, load);
	case LLVMInvoke:
	case LLVMCallBr:
		return true;
	default:
		return false;
	}
}

struct way {
	struct shunt_pass *pass;
	const struct shunt_rmw_match *match;
};

static bool is_one_of_the_loads(const struct way *way, LLVMValueRef instruction)
{
	for (unsigned i = 0; i < way->match->nr_loads; i++)
		if (way->match->loads[i] == instruction)
			return true;
	return false;
}

/* From last backwards to the beginning of its block, or to one of the loads. */
static bool is_quiet(const struct way *way, LLVMValueRef last, bool *found)
{
	for (LLVMValueRef i = last; i && !*found; i = LLVMGetPreviousInstruction(i)) {
		*found = is_one_of_the_loads(way, i);
		for (unsigned n = 0; !*found && n < way->match->nr_loads; n++)
			if (may_write(way->pass, i, way->match->loads[n]))
				return false;
	}
	return true;
}

bool shunt_rmw_is_undisturbed(struct shunt_pass *pass, const struct shunt_rmw_match *match, LLVMValueRef store)
{
	struct way way = { pass, match };
	LLVMBasicBlockRef seen[MAX_BLOCKS];
	size_t nr_seen = 0, next = 0;
	LLVMBasicBlockRef block = LLVMGetInstructionParent(store);
	bool found = false;

	if (!is_quiet(&way, LLVMGetPreviousInstruction(store), &found))
		return false;
	while (!found) {
		LLVMValueRef label = LLVMBasicBlockAsValue(block);

		/* Every way to the store comes by one of the loads; a block is gone through once, from its end. */
		for (LLVMUseRef use = LLVMGetFirstUse(label); use; use = LLVMGetNextUse(use)) {
			LLVMValueRef user = LLVMGetUser(use);
			LLVMBasicBlockRef from;
			bool is_new = true;

			if (!LLVMIsATerminatorInst(user))
				continue;
			from = LLVMGetInstructionParent(user);
			for (size_t i = 0; i < nr_seen && is_new; i++)
				is_new = seen[i] != from;
			if (!is_new)
				continue;
			if (nr_seen == MAX_BLOCKS)
				return false;
			seen[nr_seen++] = from;
		}
		for (found = true; found && next < nr_seen;) {
			block = seen[next++];
			found = false;
			if (!is_quiet(&way, LLVMGetBasicBlockTerminator(block), &found))
				return false;
		}
	}
	return true;
}
