/* SPDX-License-Identifier: MIT */
/*
 * shunt-targets: a call whose likely callees are known becomes compares, direct calls that LLVM can inline, and the indirect call
 * for any other.
 *
 *	call %f(...), !shunt.targets !{ptr @a, ptr @b}     an i64 after a target is how often it is called
 *
 * The order is by value profile (!prof VP), by the counts in the mark where there is none, else as listed. Each target has its own
 * compare and branch: addresses of functions have no order that a compiler knows, so there is nothing to bisect. The copies keep
 * everything of the call: attributes, convention, tail-call kind, bundles, metadata, debug location, unwind edge. A musttail call gets
 * a return behind each copy. Left alone with a remark is what must not be copied; a target of another type is left to the indirect
 * call.
 *
 * The block is cut before the call without LLVM's C++ helpers: its upper half moves into a new block that takes its place for the
 * predecessors, so that the successors' phis go on naming the lower half.
 */
#include <stdlib.h>
#include <string.h>
#include <llvm-c/DebugInfo.h>
#include "passes/ir.h"
#include "passes/profile.h"

enum { MAX_TARGETS = 64 };

struct target {
	LLVMValueRef function;
	uint64_t count;
};

struct tree {
	struct target targets[MAX_TARGETS];
	unsigned nr;
	uint64_t others; /* calls of the profile that went elsewhere */
	bool is_profiled, has_vp;
	struct shunt_profile rest;
};

static unsigned md_kind(struct shunt_pass *pass, const char *name)
{
	return LLVMGetMDKindIDInContext(pass->context, name, (unsigned)strlen(name));
}

static bool has_site_attribute(LLVMValueRef call, const char *name)
{
	unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));

	return LLVMGetCallSiteEnumAttribute(call, LLVMAttributeFunctionIndex, kind) != NULL;
}

static bool has_blocking_bundle(struct shunt_pass *pass, LLVMValueRef call)
{
	static const char *const tags[] = { "kcfi", "ptrauth", "cfguardtarget", "preallocated", "funclet", "convergencectrl", NULL };

	return shunt_ir_has_bundle(pass, call, tags);
}

static bool takes_inalloca(LLVMValueRef call)
{
	unsigned kind = LLVMGetEnumAttributeKindForName("inalloca", strlen("inalloca"));

	for (unsigned i = 1, nr = LLVMGetNumArgOperands(call); i <= nr; i++)
		if (LLVMGetCallSiteEnumAttribute(call, i, kind))
			return true;
	return false;
}

/* Why the call must not be copied, or NULL. */
static const char *find_blocker(struct shunt_pass *pass, LLVMValueRef call, const char **why)
{
	if (LLVMIsACallBrInst(call))
		return *why = "a callbr has more exits than a call", "CallBr";
	if (LLVMIsAInlineAsm(LLVMGetCalledValue(call)))
		return *why = "inline assembly is no function", "InlineAsm";
	if (has_site_attribute(call, "noduplicate") || has_site_attribute(call, "convergent") || has_site_attribute(call, "returns_twice"))
		return *why = "it is noduplicate, convergent or returns_twice", "NotDuplicable";
	if (takes_inalloca(call))
		return *why = "its arguments lie in memory that belongs to one call", "InAlloca";
	if (LLVMGetNumOperandBundles(call) > SHUNT_PASS_MAX_BUNDLES)
		return *why = "it has too many bundles", "TooLarge";
	if (has_blocking_bundle(pass, call))
		return *why = "an operand bundle (kcfi, ptrauth, funclet or the like) belongs to the one indirect call", "Bundle";
	return NULL;
}

static void add_target(struct tree *tree, LLVMValueRef function)
{
	for (unsigned i = 0; i < tree->nr; i++)
		if (tree->targets[i].function == function)
			return;
	tree->targets[tree->nr++] = (struct target){ .function = function };
}

/* Whether a direct call of target, made like call, is well defined. */
static bool fits(LLVMValueRef call, LLVMValueRef target)
{
	LLVMValueRef function = LLVMIsAGlobalAlias(target) ? LLVMAliasGetAliasee(target) : target;

	if (LLVMTypeOf(target) != LLVMTypeOf(LLVMGetCalledValue(call)) ||
	    LLVMGlobalGetValueType(target) != LLVMGetCalledFunctionType(call))
		return false;
	return !LLVMIsAFunction(function) || LLVMGetFunctionCallConv(function) == LLVMGetInstructionCallConv(call);
}

/* Reads the mark; false when it is not one. Targets that are gone (null) or do not fit are left out, with a remark for the latter. */
static bool read_mark(struct shunt_pass *pass, LLVMValueRef call, LLVMValueRef mark, struct tree *tree)
{
	LLVMValueRef *operands = pass->scratch->args;
	int nr = LLVMGetMDNodeNumOperands(mark);

	tree->nr = 0;
	if (nr > SHUNT_PASS_MAX_ARGS)
		return false;
	LLVMGetMDNodeOperands(mark, operands);
	for (int i = 0; i < nr; i++) {
		LLVMValueRef operand = operands[i];
		bool has_count = i + 1 < nr && operands[i + 1] && LLVMIsAConstantInt(operands[i + 1]);
		unsigned before = tree->nr;

		if (operand && !LLVMIsAConstant(operand))
			return false;
		if (operand && LLVMIsAFunction(operand) == NULL && LLVMIsAGlobalAlias(operand) == NULL) {
			if (!LLVMIsAConstantPointerNull(operand) && !LLVMIsAUndefValue(operand))
				return false;
		} else if (operand && !fits(call, operand)) {
			shunt_pass_missed(pass, call, "TargetMismatch", LLVMGetValueName(operand),
					  "target left to the indirect call: its type or calling convention is not the call's");
		} else if (operand && tree->nr < MAX_TARGETS) {
			add_target(tree, operand);
		}
		if (has_count) {
			if (LLVMGetIntTypeWidth(LLVMTypeOf(operands[i + 1])) > 64)
				return false;
			if (tree->nr > before) {
				tree->targets[before].count = LLVMConstIntGetZExtValue(operands[i + 1]);
				tree->is_profiled = true;
			}
			i++;
		}
	}
	return true;
}

/* Puts the hot ones first; equals stay in the order of the mark. */
static void sort_targets(struct shunt_pass *pass, LLVMValueRef call, struct tree *tree)
{
	tree->has_vp = shunt_profile_read(pass, call, &tree->rest);
	if (tree->has_vp) {
		for (unsigned i = 0; i < tree->nr; i++)
			tree->targets[i].count = shunt_profile_take(pass, &tree->rest, tree->targets[i].function);
		tree->others = tree->rest.total;
		tree->is_profiled = true;
	}
	for (unsigned i = 1; i < tree->nr; i++) {
		struct target target = tree->targets[i];
		unsigned j = i;

		for (; j && tree->targets[j - 1].count < target.count; j--)
			tree->targets[j] = tree->targets[j - 1];
		tree->targets[j] = target;
	}
}

/* ---- cutting the block ---------------------------------------------------------------------------------------- */

/* Puts a detached instruction where the builder stands. Inserting would rename it; the builder has no location to give it. */
static void insert_here(struct shunt_pass *pass, LLVMValueRef instruction)
{
	size_t len = 0;
	const char *old = LLVMGetValueName2(instruction, &len);
	char *name = len ? strndup(old, len) : NULL;

	LLVMInsertIntoBuilderWithName(pass->builder, instruction, name ? name : "");
	free(name);
}

static void move_here(struct shunt_pass *pass, LLVMValueRef instruction)
{
	LLVMInstructionRemoveFromParent(instruction);
	insert_here(pass, instruction);
}

static LLVMBasicBlockRef new_block(struct shunt_pass *pass, LLVMBasicBlockRef before)
{
	return LLVMInsertBasicBlockInContext(pass->context, before, "");
}

/* What stands before call moves to a new block that is where block was; block begins with call. Returns the new block, unterminated. */
static LLVMBasicBlockRef cut_before(struct shunt_pass *pass, LLVMBasicBlockRef block, LLVMValueRef call)
{
	LLVMValueRef terminator = LLVMGetBasicBlockTerminator(block), next;
	bool is_entry = block == LLVMGetEntryBasicBlock(LLVMGetBasicBlockParent(block));
	LLVMBasicBlockRef head = new_block(pass, block);
	size_t len = 0;
	const char *old = LLVMGetValueName2(LLVMBasicBlockAsValue(block), &len);
	char *name = len ? strndup(old, len) : NULL;

	if (name) {
		LLVMSetValueName2(LLVMBasicBlockAsValue(block), "", 0);
		LLVMSetValueName2(LLVMBasicBlockAsValue(head), name, len);
		free(name);
	}
	/* Without a terminator block has no successors, whose phis would be renamed along with its uses. */
	LLVMInstructionRemoveFromParent(terminator);
	LLVMReplaceAllUsesWith(LLVMBasicBlockAsValue(block), LLVMBasicBlockAsValue(head));
	LLVMPositionBuilderAtEnd(pass->builder, block);
	insert_here(pass, terminator);

	LLVMPositionBuilderAtEnd(pass->builder, head);
	for (LLVMValueRef i = LLVMGetFirstInstruction(block); i != call; i = next) {
		next = LLVMGetNextInstruction(i);
		move_here(pass, i);
	}
	/* An alloca outside the entry block would take new memory each time. */
	for (LLVMValueRef i = is_entry ? call : NULL; i; i = next) {
		next = LLVMGetNextInstruction(i);
		if (LLVMIsAAllocaInst(i) && LLVMIsAConstant(LLVMGetOperand(i, 0)))
			move_here(pass, i);
	}
	return head;
}

/* Puts a block between block, which holds nothing but invoke, and its normal destination, whose phis then name the new one. */
static LLVMBasicBlockRef cut_normal_edge(struct shunt_pass *pass, LLVMBasicBlockRef block, LLVMValueRef invoke)
{
	LLVMBasicBlockRef normal = LLVMGetNormalDest(invoke), after = LLVMGetNextBasicBlock(block), join;
	LLVMValueRef branch;

	join = after ? new_block(pass, after)
		     : LLVMAppendBasicBlockInContext(pass->context, LLVMGetBasicBlockParent(block), "");
	LLVMInstructionRemoveFromParent(invoke);
	LLVMPositionBuilderAtEnd(pass->builder, block);
	branch = LLVMBuildBr(pass->builder, normal);
	LLVMReplaceAllUsesWith(LLVMBasicBlockAsValue(block), LLVMBasicBlockAsValue(join));
	LLVMInstructionEraseFromParent(branch);
	LLVMPositionBuilderAtEnd(pass->builder, block);
	insert_here(pass, invoke);
	LLVMSetNormalDest(invoke, join);
	LLVMPositionBuilderAtEnd(pass->builder, join);
	LLVMBuildBr(pass->builder, normal);
	return join;
}

/* The phis of invoke's unwind destination get for arm what they have for block. */
static void add_unwind_edge(LLVMValueRef invoke, LLVMBasicBlockRef block, LLVMBasicBlockRef arm)
{
	for (LLVMValueRef phi = LLVMGetFirstInstruction(LLVMGetUnwindDest(invoke)); phi && LLVMIsAPHINode(phi);
	     phi = LLVMGetNextInstruction(phi))
		for (unsigned i = 0, nr = LLVMCountIncoming(phi); i < nr; i++)
			if (LLVMGetIncomingBlock(phi, i) == block) {
				LLVMValueRef value = LLVMGetIncomingValue(phi, i);

				LLVMAddIncoming(phi, &value, &arm, 1);
				break;
			}
}

/* ---- the tree ------------------------------------------------------------------------------------------------- */

static bool is_musttail(LLVMValueRef call)
{
	return LLVMIsACallInst(call) && LLVMGetTailCallKind(call) == LLVMTailCallKindMustTail;
}

static bool has_result(LLVMValueRef call)
{
	return LLVMGetTypeKind(LLVMTypeOf(call)) != LLVMVoidTypeKind;
}

/* A copy of call that calls target, at the builder; count 0: not known. */
static LLVMValueRef build_direct(struct shunt_pass *pass, LLVMValueRef call, const struct target *target)
{
	static const char *const about_pointer[] = { SHUNT_TARGETS_MD, SHUNT_DISPATCH_MD, "callees", "prof" };
	LLVMValueRef direct = LLVMInstructionClone(call);

	LLVMSetOperand(direct, (unsigned)LLVMGetNumOperands(direct) - 1, target->function);
	for (size_t i = 0; i < sizeof(about_pointer) / sizeof(about_pointer[0]); i++)
		LLVMSetMetadata(direct, md_kind(pass, about_pointer[i]), NULL);
	if (target->count)
		shunt_profile_weigh(pass, direct, &target->count, 1);
	insert_here(pass, direct);
	return direct;
}

/* Makes the phi of the results, which has call's name and uses, at the beginning of join. */
static LLVMValueRef take_result(struct shunt_pass *pass, LLVMValueRef call, LLVMBasicBlockRef join)
{
	LLVMValueRef phi;
	size_t len = 0;
	char *name;

	if (!has_result(call) || !LLVMGetFirstUse(call))
		return NULL;
	LLVMPositionBuilderBefore(pass->builder, LLVMGetFirstInstruction(join));
	phi = LLVMBuildPhi(pass->builder, LLVMTypeOf(call), "");
	LLVMReplaceAllUsesWith(call, phi);
	name = (char *)LLVMGetValueName2(call, &len);
	name = len ? strndup(name, len) : NULL;
	LLVMSetValueName2(call, "", 0);
	if (name)
		LLVMSetValueName2(phi, name, strlen(name));
	free(name);
	return phi;
}

/* Ends arm, where direct is, as the call's own block goes on. */
static void end_arm(struct shunt_pass *pass, LLVMValueRef call, LLVMValueRef direct, LLVMBasicBlockRef join)
{
	if (LLVMIsAInvokeInst(call))
		return;
	if (!is_musttail(call))
		LLVMBuildBr(pass->builder, join);
	else if (has_result(call))
		LLVMBuildRet(pass->builder, direct);
	else
		LLVMBuildRetVoid(pass->builder);
}

static void lower(struct shunt_pass *pass, LLVMValueRef call, struct tree *tree)
{
	LLVMBasicBlockRef block = LLVMGetInstructionParent(call), head, join = block, miss = block;
	LLVMMetadataRef location = LLVMInstructionGetDebugLoc(call);
	LLVMValueRef callee = LLVMGetCalledValue(call), phi = NULL;
	uint64_t left = tree->others;

	for (unsigned i = 0; i < tree->nr; i++)
		left += tree->targets[i].count;
	LLVMSetCurrentDebugLocation2(pass->builder, NULL);
	head = cut_before(pass, block, call);
	if (LLVMIsAInvokeInst(call)) {
		join = cut_normal_edge(pass, block, call);
	} else if (!is_musttail(call)) {
		miss = new_block(pass, block);
		LLVMPositionBuilderAtEnd(pass->builder, miss);
		move_here(pass, call);
		LLVMBuildBr(pass->builder, block);
	}
	if (!is_musttail(call))
		phi = take_result(pass, call, join);
	if (phi)
		LLVMAddIncoming(phi, &call, &miss, 1);
	LLVMPositionBuilderAtEnd(pass->builder, head);
	for (unsigned i = 0; i < tree->nr; i++) {
		const struct target *target = &tree->targets[i];
		bool is_last = i + 1 == tree->nr;
		LLVMBasicBlockRef arm = new_block(pass, miss), next = is_last ? miss : new_block(pass, miss);
		LLVMValueRef is_target, branch, direct;

		LLVMSetCurrentDebugLocation2(pass->builder, location);
		is_target = LLVMBuildICmp(pass->builder, LLVMIntEQ, callee, target->function, "");
		branch = LLVMBuildCondBr(pass->builder, is_target, arm, next);
		left -= target->count;
		if (tree->is_profiled && target->count + left)
			shunt_profile_weigh(pass, branch, (const uint64_t[]){ target->count, left }, 2);
		LLVMSetCurrentDebugLocation2(pass->builder, NULL);
		LLVMPositionBuilderAtEnd(pass->builder, arm);
		direct = build_direct(pass, call, target);
		if (LLVMIsAInvokeInst(call))
			add_unwind_edge(call, block, arm);
		end_arm(pass, call, direct, join);
		if (phi)
			LLVMAddIncoming(phi, &direct, &arm, 1);
		LLVMPositionBuilderAtEnd(pass->builder, next);
	}
}

static void lower_call(struct shunt_pass *pass, LLVMValueRef call, LLVMValueRef mark)
{
	unsigned kind = md_kind(pass, SHUNT_TARGETS_MD);
	LLVMValueRef callee = LLVMGetCalledValue(call);
	struct tree tree = { .nr = 0 };
	const char *name, *why = "";

	if (LLVMIsAFunction(callee) || LLVMIsAGlobalAlias(callee)) {
		LLVMSetMetadata(call, kind, NULL); /* LLVM knows the one target */
		pass->changed = true;
		return;
	}
	name = find_blocker(pass, call, &why);
	if (name) {
		shunt_pass_missed(pass, call, name, SHUNT_TARGETS_MD, "call left: %s", why);
		return;
	}
	if (!read_mark(pass, call, mark, &tree)) {
		shunt_pass_missed(pass, call, "BadMark", SHUNT_TARGETS_MD,
				  "call left: !" SHUNT_TARGETS_MD " wants functions, each with an optional i64 count behind it");
		return;
	}
	LLVMSetMetadata(call, kind, NULL);
	pass->changed = true;
	if (!tree.nr)
		return;
	sort_targets(pass, call, &tree);
	shunt_pass_passed(pass, call, "StaticTargets", SHUNT_TARGETS_MD,
			  "indirect call became %u direct calls behind compares, and an indirect call for the rest", tree.nr);
	pass->counts->static_calls++;
	if (tree.has_vp)
		shunt_profile_write(pass, call, &tree.rest);
	lower(pass, call, &tree);
}

/* Verified IR describes variables only where it lists the unit that they are of. */
static bool has_debug_info(const struct shunt_pass *pass)
{
	return LLVMGetNamedMetadataNumOperands(pass->module, "llvm.dbg.cu");
}

/* Back to debug records; the intrinsics that stood for them leave declarations behind. */
static void restore_records(struct shunt_pass *pass)
{
	LLVMValueRef next;

	LLVMSetIsNewDbgInfoFormat(pass->module, 1);
	for (LLVMValueRef f = LLVMGetFirstFunction(pass->module); f; f = next) {
		next = LLVMGetNextFunction(f);
		if (shunt_ir_has_prefix(f, "llvm.dbg.") && !LLVMGetFirstUse(f))
			LLVMDeleteFunction(f);
	}
}

void shunt_pass_targets(struct shunt_pass *pass, const LLVMValueRef *calls, size_t nr)
{
	unsigned kind = md_kind(pass, SHUNT_TARGETS_MD);
	bool has_records = LLVMIsNewDbgInfoFormat(pass->module) && has_debug_info(pass), is_converted = false;

	for (size_t i = 0; i < nr; i++) {
		LLVMValueRef mark = LLVMGetMetadata(calls[i], kind);

		if (!mark)
			continue;
		/* Debug records hang on the instruction behind them and would not move along. */
		if (has_records && !is_converted) {
			LLVMSetIsNewDbgInfoFormat(pass->module, 0);
			is_converted = true;
		}
		lower_call(pass, calls[i], mark);
	}
	if (is_converted)
		restore_records(pass);
}
