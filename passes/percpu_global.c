/* SPDX-License-Identifier: MIT */
/*
 * Per-CPU globals: a variable in section ".percpu" (SHUNT_PERCPU in C) is accessed through this CPU's copy, without a call. What the
 * functions of shunt/percpu.h are given is the per-CPU pointer itself.
 *
 * Just-in-time: such a variable is a declaration, and the host names its per-CPU object as the symbol's address. Ahead of time: an
 * image's variables are moved to section "shunt_percpu", whose copy for every CPU shunt_percpu_image makes at start-up; how far that is
 * from the image's own is in one hidden variable an image, which each access adds.
 */
#include <stdlib.h>
#include <string.h>
#include <llvm-c/Comdat.h>
#include "passes/percpu.h"
#include "passes/rmw.h"

#define SECTION ".percpu"
#define IMAGE_SECTION "shunt_percpu"

static bool is_percpu(LLVMValueRef global)
{
	const char *section = LLVMGetSection(global);

	return section && !strcmp(section, SECTION) && !LLVMIsThreadLocal(global);
}

static bool is_ahead_of_time(const struct shunt_pass *pass)
{
	return pass->options->cpu == SHUNT_PASS_CPU_RSEQ_AOT;
}

static LLVMValueRef hidden_variable(struct shunt_pass *pass, const char *name)
{
	LLVMValueRef variable = shunt_ir_declare_variable(pass, name);

	if (variable)
		LLVMSetVisibility(variable, LLVMHiddenVisibility);
	return variable;
}

/* The image's one distance; every module of the image has it, the linker keeps one. */
static LLVMValueRef delta_variable(struct shunt_pass *pass)
{
	LLVMValueRef delta = LLVMGetNamedGlobal(pass->module, "shunt_percpu_delta");
	LLVMComdatRef comdat;

	if (delta)
		return delta;
	delta = LLVMAddGlobal(pass->module, pass->i64, "shunt_percpu_delta");
	LLVMSetInitializer(delta, LLVMConstNull(pass->i64));
	LLVMSetLinkage(delta, LLVMLinkOnceODRLinkage);
	LLVMSetVisibility(delta, LLVMHiddenVisibility);
	LLVMSetAlignment(delta, 8);
	comdat = LLVMGetOrInsertComdat(pass->module, "shunt_percpu_delta");
	LLVMSetComdatSelectionKind(comdat, LLVMAnyComdatSelectionKind);
	LLVMSetComdat(delta, comdat);
	return delta;
}

static LLVMValueRef image_address(struct shunt_pass *pass, LLVMValueRef global)
{
	LLVMValueRef distance;

	if (!is_ahead_of_time(pass))
		return global;
	distance = LLVMBuildLoad2(pass->builder, pass->i64, delta_variable(pass), "percpu.delta");
	return LLVMBuildGEP2(pass->builder, pass->i8, global, &distance, 1, "");
}

/* This CPU's copy, or with is_unit0 the per-CPU pointer, at the builder. */
static LLVMValueRef access_pointer(struct shunt_pass *pass, LLVMValueRef global, bool is_unit0)
{
	LLVMValueRef unit0 = image_address(pass, global), copy, function;
	LLVMTypeRef type = LLVMFunctionType(pass->ptr, &pass->ptr, 1, 0);

	if (is_unit0)
		return unit0;
	if (pass->options->cpu == SHUNT_PASS_CPU_CALL) {
		function = shunt_ir_declare(pass, "shunt_percpu_this", type);
		copy = LLVMBuildCall2(pass->builder, type, function, &unit0, 1, "");
	} else {
		copy = shunt_pass_this_copy(pass, unit0);
	}
	shunt_rmw_record(pass, &(struct shunt_rmw_lookup){ .value = copy, .kind = SHUNT_RMW_THIS_CPU, .unit0 = unit0, .object = global });
	return copy;
}

/* Builds the constant expression `expression` of `global` with pointer in its place; NULL where it has no such form. */
static LLVMValueRef rebuild(struct shunt_pass *pass, LLVMValueRef expression, LLVMValueRef global, LLVMValueRef pointer)
{
	LLVMValueRef indices[16], base;
	int nr;

	if (expression == global)
		return pointer;
	if (!LLVMIsAConstantExpr(expression))
		return NULL;
	nr = LLVMGetNumOperands(expression);
	base = rebuild(pass, LLVMGetOperand(expression, 0), global, pointer);
	if (!base)
		return NULL;
	switch (LLVMGetConstOpcode(expression)) {
	case LLVMGetElementPtr:
		if (nr < 2 || nr > 16)
			return NULL;
		for (int i = 1; i < nr; i++)
			indices[i - 1] = LLVMGetOperand(expression, (unsigned)i);
		return LLVMBuildGEP2(pass->builder, LLVMGetGEPSourceElementType(expression), base, indices, (unsigned)nr - 1, "");
	case LLVMPtrToInt:
		return LLVMBuildPtrToInt(pass->builder, base, LLVMTypeOf(expression), "");
	default:
		return NULL;
	}
}

static bool leads_to(LLVMValueRef value, LLVMValueRef global)
{
	for (int depth = 0; depth < 8 && LLVMIsAConstantExpr(value); depth++)
		value = LLVMGetOperand(value, 0);
	return value == global;
}

static void place_builder(struct shunt_pass *pass, LLVMValueRef user, unsigned operand)
{
	if (LLVMIsAPHINode(user))
		shunt_ir_at(pass, LLVMGetBasicBlockTerminator(LLVMGetIncomingBlock(user, operand)));
	else
		shunt_ir_at(pass, user);
}

/* What a phi has for an earlier edge from the block of edge i: it must be the same. */
static LLVMValueRef same_edge(LLVMValueRef phi, unsigned i)
{
	for (unsigned earlier = 0; earlier < i; earlier++)
		if (LLVMGetIncomingBlock(phi, earlier) == LLVMGetIncomingBlock(phi, i))
			return LLVMGetIncomingValue(phi, earlier);
	return NULL;
}

/* Whether user hands the address to functions of shunt/percpu.h only, itself or as the address of a part: what they take is the per-CPU
 * pointer. */
static bool is_for_functions(LLVMValueRef user, int depth)
{
	if (LLVMIsACallInst(user))
		return shunt_ir_has_prefix(LLVMGetCalledValue(user), "shunt_percpu_");
	if (!LLVMIsAGetElementPtrInst(user) || !depth || !LLVMGetFirstUse(user))
		return false;
	for (LLVMUseRef use = LLVMGetFirstUse(user); use; use = LLVMGetNextUse(use))
		if (!is_for_functions(LLVMGetUser(use), depth - 1))
			return false;
	return true;
}

/* Every operand of user that is global, or a constant made of it. */
static void rewrite_user(struct shunt_pass *pass, LLVMValueRef user, LLVMValueRef global)
{
	bool is_unit0 = is_for_functions(user, 8);

	for (unsigned i = 0, nr = (unsigned)LLVMGetNumOperands(user); i < nr; i++) {
		LLVMValueRef operand = LLVMGetOperand(user, i), made;

		if (!operand || !leads_to(operand, global))
			continue;
		if (LLVMIsAPHINode(user) && (made = same_edge(user, i))) {
			LLVMSetOperand(user, i, made);
			continue;
		}
		place_builder(pass, user, i);
		made = rebuild(pass, operand, global, access_pointer(pass, global, is_unit0));
		if (made)
			LLVMSetOperand(user, i, made);
		else
			shunt_pass_missed(pass, user, "PercpuConstant", LLVMGetValueName2(global, &(size_t){ 0 }),
					  "access left: this constant of a per-CPU variable has no form at run time");
	}
}

static size_t list_users(LLVMValueRef value, LLVMValueRef *list)
{
	size_t nr = 0;

	for (LLVMUseRef use = LLVMGetFirstUse(value); use; use = LLVMGetNextUse(use)) {
		LLVMValueRef user = LLVMGetUser(use);

		if (LLVMIsAConstantExpr(user)) {
			nr += list_users(user, list ? list + nr : NULL);
		} else if (LLVMIsAInstruction(user)) {
			if (list)
				list[nr] = user;
			nr++;
		}
	}
	return nr;
}

/* The list is taken first: what is built uses the variable, too. */
static void rewrite_uses(struct shunt_pass *pass, LLVMValueRef global)
{
	size_t nr = list_users(global, NULL);
	LLVMValueRef *users = calloc(nr + 1, sizeof(*users));

	if (!users) {
		pass->failed = true;
		return;
	}
	list_users(global, users);
	for (size_t i = 0; i < nr; i++) {
		bool is_again = false;

		for (size_t earlier = i; earlier && !is_again; earlier--)
			is_again = users[earlier - 1] == users[i];
		if (!is_again)
			rewrite_user(pass, users[i], global);
	}
	free(users);
	pass->changed = true;
}

/* Adds function to the module's constructors, among the first. */
static void add_constructor(struct shunt_pass *pass, LLVMValueRef function)
{
	static const char name[] = "llvm.global_ctors";
	LLVMTypeRef fields[] = { pass->i32, pass->ptr, pass->ptr };
	LLVMTypeRef type = LLVMStructTypeInContext(pass->context, fields, 3, 0);
	LLVMValueRef values[] = { LLVMConstInt(pass->i32, 0, 0), function, LLVMConstNull(pass->ptr) };
	LLVMValueRef old = LLVMGetNamedGlobal(pass->module, name), initializer = old ? LLVMGetInitializer(old) : NULL, made;
	unsigned nr = initializer ? (unsigned)LLVMGetNumOperands(initializer) : 0;
	LLVMValueRef *entries = calloc(nr + 1, sizeof(*entries));

	if (!entries) {
		pass->failed = true;
		return;
	}
	for (unsigned i = 0; i < nr; i++)
		entries[i] = LLVMGetOperand(initializer, i);
	entries[nr] = LLVMConstNamedStruct(type, values, 3);
	made = LLVMAddGlobal(pass->module, LLVMArrayType2(type, nr + 1), "");
	LLVMSetInitializer(made, LLVMConstArray2(type, entries, nr + 1));
	LLVMSetLinkage(made, LLVMAppendingLinkage);
	if (old)
		LLVMDeleteGlobal(old);
	LLVMSetValueName2(made, name, strlen(name));
	free(entries);
}

/* The call that makes the image's copies, from a constructor of this module: whichever module's runs first does it. */
static void add_setup(struct shunt_pass *pass)
{
	LLVMTypeRef types[] = { pass->ptr, pass->ptr, pass->ptr };
	LLVMTypeRef type = LLVMFunctionType(pass->i32, types, 3, 0), own = LLVMFunctionType(LLVMVoidTypeInContext(pass->context), NULL, 0, 0);
	LLVMValueRef start = hidden_variable(pass, "__start_" IMAGE_SECTION), stop = hidden_variable(pass, "__stop_" IMAGE_SECTION);
	LLVMValueRef image = shunt_ir_declare(pass, "shunt_percpu_image", type), setup;

	if (!start || !stop || !image || LLVMGetNamedFunction(pass->module, "shunt_percpu_setup"))
		return;
	setup = LLVMAddFunction(pass->module, "shunt_percpu_setup", own);
	LLVMSetLinkage(setup, LLVMInternalLinkage);
	LLVMPositionBuilderAtEnd(pass->builder, LLVMAppendBasicBlockInContext(pass->context, setup, ""));
	LLVMSetCurrentDebugLocation2(pass->builder, NULL);
	LLVMBuildCall2(pass->builder, type, image, (LLVMValueRef[]){ start, stop, delta_variable(pass) }, 3, "");
	LLVMBuildRetVoid(pass->builder);
	add_constructor(pass, setup);
}

void shunt_pass_percpu_globals(struct shunt_pass *pass, const LLVMValueRef *calls, size_t nr)
{
	bool any = false;

	(void)calls;
	(void)nr;
	for (LLVMValueRef global = LLVMGetFirstGlobal(pass->module); global; global = LLVMGetNextGlobal(global)) {
		if (!is_percpu(global))
			continue;
		/* A definition needs an image whose section is copied; a declaration just-in-time is the host's object. */
		if (!is_ahead_of_time(pass) && !LLVMIsDeclaration(global))
			continue;
		rewrite_uses(pass, global);
		/* What this section was is done: a second run finds nothing. */
		LLVMSetSection(global, is_ahead_of_time(pass) ? IMAGE_SECTION : "");
		pass->counts->percpu_globals++;
		any = true;
	}
	if (any && is_ahead_of_time(pass))
		add_setup(pass);
}
