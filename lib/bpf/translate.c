/* SPDX-License-Identifier: MIT */
/*
 * Bytecode to LLVM IR: the module and its functions. Registers and the stack are allocas; a short run of LLVM's scalar passes at the end
 * makes values of the registers, so that Shunt's passes see maps and keys as operands of the helper calls.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <llvm-c/Analysis.h>
#include <llvm-c/Error.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include "lib/bpf/helpers.h"
#include "lib/bpf/translate.h"
#include "runtime/log.h"

#define MAX_NAME 400u
#define CLEANUP "function(sroa,early-cse,instcombine<no-verify-fixpoint>,simplifycfg)"

/* ---- the call graph ------------------------------------------------------------------------------------------- */

struct walk {
	struct translation *all;
	uint8_t *depth; /* per function: frames below and with it, 0 not known yet */
	bool *open;     /* on the way from the root */
};

static uint8_t own_traits(const struct bpf_func *func)
{
	uint8_t traits = 0;

	if (func->is_program)
		traits |= func->context == SHUNT_BPF_CONTEXT_XDP ? TRAIT_XDP : TRAIT_PLAIN;
	for (uint32_t i = 0; i < func->nr_insns; i++) {
		const struct bpf_insn *insn = &func->insns[i];

		if (isa_is_load_imm64(insn)) {
			i++;
			continue;
		}
		if (!isa_is_call(insn) || insn->src_reg)
			continue;
		if (insn->imm == HELPER_TAIL_CALL_BPF || !bpf_helper_builtin((uint32_t)insn->imm))
			traits |= TRAIT_CHAIN;
		if (insn->imm == HELPER_REDIRECT || insn->imm == HELPER_REDIRECT_MAP)
			traits |= TRAIT_REDIRECT;
	}
	return traits;
}

/* Depth first, so at most as deep as calls may nest, which is checked on the way down. Adds up what callees do. */
static int visit(struct walk *walk, uint32_t index, unsigned above)
{
	const struct bpf_unit *unit = walk->all->unit;
	const struct bpf_func *func = &unit->funcs[index];
	uint8_t deepest = 0;

	if (walk->open[index])
		return shunt_fail(EINVAL, "program '%s' calls itself, directly or through others; recursion is not allowed", func->name);
	if (above + (walk->depth[index] ? walk->depth[index] : 1) > ISA_CALL_DEPTH)
		return shunt_fail(EINVAL, "program '%s': calls nest deeper than %d functions", func->name, ISA_CALL_DEPTH);
	if (walk->depth[index])
		return 0;
	walk->open[index] = true;
	for (uint32_t i = 0; i < func->nr_refs; i++) {
		uint32_t callee = func->refs[i].index;
		int ret;

		if (func->refs[i].kind != BPF_REF_CALL && func->refs[i].kind != BPF_REF_FUNC)
			continue;
		if (!walk->all->wanted[callee])
			return shunt_fail(EINVAL, "program '%s': refers to '%s', which was not chosen for translation", func->name,
					  unit->funcs[callee].name);
		ret = visit(walk, callee, above + 1);
		if (ret)
			return ret;
		deepest = walk->depth[callee] > deepest ? walk->depth[callee] : deepest;
		walk->all->traits[index] |= walk->all->traits[callee] & (TRAIT_CHAIN | TRAIT_REDIRECT);
	}
	walk->depth[index] = deepest + 1;
	walk->open[index] = false;
	return 0;
}

/* From callers to callees: the contexts that a function may run in. At most ISA_CALL_DEPTH rounds change anything. */
static void spread_contexts(struct translation *all)
{
	bool changed = true;

	while (changed) {
		changed = false;
		for (uint32_t i = 0; i < all->unit->nr_funcs; i++) {
			const struct bpf_func *func = &all->unit->funcs[i];

			for (uint32_t r = 0; all->wanted[i] && r < func->nr_refs; r++) {
				uint8_t *callee = &all->traits[func->refs[r].index], traits = all->traits[i] & (TRAIT_XDP | TRAIT_PLAIN);

				if ((func->refs[r].kind == BPF_REF_CALL || func->refs[r].kind == BPF_REF_FUNC) && (*callee & traits) != traits) {
					*callee |= traits;
					changed = true;
				}
			}
		}
	}
}

static bool makes_tail_calls(const struct bpf_func *func, uint32_t *at)
{
	for (uint32_t i = 0; i < func->nr_insns; i++) {
		const struct bpf_insn *insn = &func->insns[i];

		*at = i;
		if (isa_is_load_imm64(insn))
			i++;
		else if (isa_is_call(insn) && !insn->src_reg && insn->imm == HELPER_TAIL_CALL_BPF)
			return true;
	}
	return false;
}

static int find_traits(struct translation *all)
{
	const struct bpf_unit *unit = all->unit;
	struct walk walk = { .all = all };
	uint32_t at;
	int ret = 0;

	walk.depth = calloc(unit->nr_funcs, sizeof(*walk.depth));
	walk.open = calloc(unit->nr_funcs, sizeof(*walk.open));
	if (!walk.depth || !walk.open)
		ret = shunt_fail(ENOMEM, "'%s': out of memory", unit->name);
	for (uint32_t i = 0; i < unit->nr_funcs && !ret; i++)
		if (all->wanted[i])
			all->traits[i] = own_traits(&unit->funcs[i]);
	for (uint32_t i = 0; i < unit->nr_funcs && !ret; i++)
		if (all->wanted[i])
			ret = visit(&walk, i, 0);
	free(walk.depth);
	free(walk.open);
	if (ret)
		return ret;
	spread_contexts(all);
	for (uint32_t i = 0; i < unit->nr_funcs; i++)
		if (all->wanted[i] && (all->traits[i] & TRAIT_XDP) && (all->traits[i] & TRAIT_PLAIN) && makes_tail_calls(&unit->funcs[i], &at))
			return shunt_fail(EINVAL, "program '%s', instruction %u: a tail call from a function that programs of two contexts share",
					  unit->funcs[i].name, at);
	return 0;
}

/* ---- functions ------------------------------------------------------------------------------------------------ */

static void add_attribute(struct translation *all, LLVMValueRef function, const char *name)
{
	unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));

	LLVMAddAttributeAtIndex(function, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, LLVMCreateEnumAttribute(all->context, kind, 0));
}

LLVMValueRef translate_helper_call(struct translation *all, uint32_t number, LLVMValueRef args[5])
{
	char symbol[64];
	LLVMValueRef function;

	snprintf(symbol, sizeof(symbol), SHUNT_HELPER_PREFIX "%04u", number);
	function = LLVMGetNamedFunction(all->module, symbol);
	if (!function) {
		function = LLVMAddFunction(all->module, symbol, all->registers_type);
		add_attribute(all, function, "nounwind");
	}
	return LLVMBuildCall2(all->builder, all->registers_type, function, args, 5, "");
}

void translate_return(struct translated *t, LLVMValueRef value)
{
	struct translation *all = t->all;
	LLVMValueRef zero = LLVMConstInt(all->i64, 0, false);
	bool is_xdp = t->func->is_program && t->func->context == SHUNT_BPF_CONTEXT_XDP;

	if (t->chain) {
		LLVMValueRef args[5] = { LLVMBuildPtrToInt(all->builder, t->chain, all->i64, ""), zero, zero, zero, zero };

		translate_helper_call(all, HELPER_CHAIN_LEAVE, args);
	}
	if (is_xdp && (all->traits[t->index] & TRAIT_REDIRECT)) {
		LLVMValueRef ctx = LLVMBuildPtrToInt(all->builder, LLVMGetParam(t->function, 0), all->i64, "");
		LLVMValueRef args[5] = { ctx, value, zero, zero, zero };

		translate_helper_call(all, HELPER_REDIRECT_DONE, args);
	}
	LLVMBuildRet(all->builder, is_xdp ? LLVMBuildTrunc(all->builder, value, all->i32, "") : value);
}

static void declare(struct translation *all, uint32_t index)
{
	const struct bpf_func *func = &all->unit->funcs[index];
	LLVMTypeRef plain[2] = { all->ptr, all->i64 }, type = all->registers_type;
	LLVMValueRef function;
	char name[MAX_NAME + 32];

	snprintf(name, sizeof(name), "sub.%u.%s", index, func->name);
	if (func->is_program) {
		snprintf(name, sizeof(name), "%s", func->name);
		type = func->context == SHUNT_BPF_CONTEXT_XDP ? LLVMFunctionType(all->i32, &all->ptr, 1, false) :
								LLVMFunctionType(all->i64, plain, 2, false);
	}
	function = LLVMAddFunction(all->module, name, type);
	if (!func->is_program)
		LLVMSetLinkage(function, LLVMInternalLinkage);
	add_attribute(all, function, "nounwind");
	/* A program that reads address 0 shall fault there, not be turned into something else. */
	add_attribute(all, function, "null_pointer_is_valid");
	all->functions[index] = function;
}

/* Registers, stack, arguments; enters the chain of tail calls where the program needs one. */
static void prologue(struct translated *t)
{
	struct translation *all = t->all;
	LLVMBuilderRef builder = all->builder;
	LLVMValueRef zero = LLVMConstInt(all->i64, 0, false);
	unsigned nr_params = LLVMCountParams(t->function);

	for (unsigned reg = 0; reg < ISA_NR_REGS - 1; reg++) {
		t->regs[reg] = LLVMBuildAlloca(builder, all->i64, "r");
		LLVMBuildStore(builder, zero, t->regs[reg]);
	}
	t->stack = LLVMBuildAlloca(builder, LLVMArrayType2(all->i8, ISA_STACK_SIZE), "stack");
	LLVMSetAlignment(t->stack, 16);
	if (t->func->is_program && (all->traits[t->index] & TRAIT_CHAIN)) {
		t->chain = LLVMBuildAlloca(builder, LLVMArrayType2(all->i8, BPF_CHAIN_SIZE), "chain");
		LLVMSetAlignment(t->chain, 8);
	}
	for (unsigned i = 0; i < nr_params; i++) {
		LLVMValueRef param = LLVMGetParam(t->function, i);

		if (LLVMTypeOf(param) == all->ptr)
			param = LLVMBuildPtrToInt(builder, param, all->i64, "");
		LLVMBuildStore(builder, param, t->regs[i + 1]);
	}
	if (t->chain) {
		LLVMValueRef args[5] = { LLVMBuildPtrToInt(builder, t->chain, all->i64, ""), nr_params == 2 ? LLVMGetParam(t->function, 1) : zero,
					 zero, zero, zero };

		translate_helper_call(all, HELPER_CHAIN_ENTER, args);
	}
}

static int define(struct translation *all, uint32_t index)
{
	const struct bpf_func *func = &all->unit->funcs[index];
	struct translated t = { .all = all, .func = func, .notes = all->flow.notes[index], .block_of = all->flow.blocks[index], .index = index,
				.function = all->functions[index] };
	uint32_t nr_blocks = all->flow.nr_blocks[index];
	LLVMBasicBlockRef entry = LLVMAppendBasicBlockInContext(all->context, t.function, "entry");
	bool is_open = true; /* the builder's block has no terminator yet */

	t.blocks = calloc(nr_blocks, sizeof(LLVMBasicBlockRef));
	if (!t.blocks)
		return shunt_fail(ENOMEM, "program '%s': out of memory", func->name);
	for (uint32_t i = 0; i < nr_blocks; i++)
		t.blocks[i] = LLVMAppendBasicBlockInContext(all->context, t.function, "");
	LLVMPositionBuilderAtEnd(all->builder, entry);
	prologue(&t);
	for (uint32_t i = 0; i < func->nr_insns; i++) {
		if (t.block_of[i] != UINT32_MAX) {
			if (is_open)
				LLVMBuildBr(all->builder, t.blocks[t.block_of[i]]);
			LLVMPositionBuilderAtEnd(all->builder, t.blocks[t.block_of[i]]);
			is_open = true;
		}
		if (is_open && t.notes[i].kind == BPF_NOTE_DEAD) {
			LLVMBuildUnreachable(all->builder);
			is_open = false;
		}
		if (is_open)
			translate_insn(&t, i);
		if (is_open && (isa_is_branch(&func->insns[i]) || isa_is_exit(&func->insns[i])))
			is_open = false;
		if (isa_is_load_imm64(&func->insns[i]))
			i++;
	}
	free(t.blocks);
	return 0;
}

static int check_names(const struct translation *all)
{
	const struct bpf_unit *unit = all->unit;
	const char *what = NULL;

	for (uint32_t i = 0; i < unit->nr_funcs; i++)
		if (strlen(unit->funcs[i].name) > MAX_NAME)
			what = "function";
	for (uint32_t i = 0; i < unit->nr_maps; i++)
		if (strlen(unit->maps[i].name) > MAX_NAME)
			what = "map";
	for (uint32_t i = 0; i < unit->nr_datas; i++)
		if (strlen(unit->datas[i].name) > MAX_NAME)
			what = "section";
	return what ? shunt_fail(EINVAL, "'%s': the name of a %s is longer than %u characters", unit->name, what, MAX_NAME) : 0;
}

static int translate_all(struct translation *all)
{
	const struct bpf_unit *unit = all->unit;
	LLVMErrorRef error;
	LLVMPassBuilderOptionsRef options;
	int ret;

	for (uint32_t i = 0; i < unit->nr_funcs; i++) {
		if (!all->wanted[i])
			continue;
		if (unit->funcs[i].is_program && LLVMGetNamedFunction(all->module, unit->funcs[i].name))
			return shunt_fail(EINVAL, "'%s': two programs are called '%s'; rename one", unit->name, unit->funcs[i].name);
		declare(all, i);
	}
	for (uint32_t i = 0; i < unit->nr_funcs; i++) {
		ret = all->wanted[i] ? define(all, i) : 0;
		if (ret)
			return ret;
	}
	options = LLVMCreatePassBuilderOptions();
	error = LLVMRunPasses(all->module, CLEANUP, NULL, options);
	LLVMDisposePassBuilderOptions(options);
	if (error) {
		char *message = LLVMGetErrorMessage(error);

		ret = shunt_fail(EINVAL, "'%s': LLVM's passes failed on the translated module: %s", unit->name, message);
		LLVMDisposeErrorMessage(message);
		return ret;
	}
	return 0;
}

int bpf_translate(const struct bpf_unit *unit, const bool *wanted, LLVMContextRef context, const char *triple, const char *data_layout,
		  LLVMModuleRef *out)
{
	struct translation all = { .unit = unit, .wanted = wanted, .context = context };
	LLVMTypeRef params[5];
	int ret = check_names(&all);

	*out = NULL;
	if (ret)
		return ret;
	all.traits = calloc(unit->nr_funcs ? unit->nr_funcs : 1, sizeof(*all.traits));
	all.functions = calloc(unit->nr_funcs ? unit->nr_funcs : 1, sizeof(LLVMValueRef));
	if (!all.traits || !all.functions)
		ret = shunt_fail(ENOMEM, "'%s': out of memory", unit->name);
	if (!ret)
		ret = find_traits(&all);
	if (!ret)
		ret = bpf_flow_create(unit, wanted, &all.flow);
	if (!ret) {
		all.i8 = LLVMInt8TypeInContext(context);
		all.i16 = LLVMInt16TypeInContext(context);
		all.i32 = LLVMInt32TypeInContext(context);
		all.i64 = LLVMInt64TypeInContext(context);
		all.ptr = LLVMPointerTypeInContext(context, 0);
		for (unsigned i = 0; i < 5; i++)
			params[i] = all.i64;
		all.registers_type = LLVMFunctionType(all.i64, params, 5, false);
		all.module = LLVMModuleCreateWithNameInContext(unit->name, context);
		LLVMSetTarget(all.module, triple);
		LLVMSetDataLayout(all.module, data_layout);
		all.builder = LLVMCreateBuilderInContext(context);
		ret = translate_all(&all);
		LLVMDisposeBuilder(all.builder);
		if (ret)
			LLVMDisposeModule(all.module);
		else
			*out = all.module;
	}
	bpf_flow_destroy(&all.flow);
	free(all.traits);
	free(all.functions);
	return ret;
}
