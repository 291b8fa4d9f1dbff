/* SPDX-License-Identifier: MIT */
/* Building: coercions, declarations, calls that keep what the old call said, and putting a value in a call's place. */
#include <stdlib.h>
#include <string.h>
#include <llvm-c/DebugInfo.h>
#include "passes/ir.h"

void shunt_ir_at(struct shunt_pass *pass, LLVMValueRef call)
{
	LLVMPositionBuilderBefore(pass->builder, call);
	LLVMSetCurrentDebugLocation2(pass->builder, LLVMInstructionGetDebugLoc(call));
}

static bool is_register(LLVMTypeRef type)
{
	switch (LLVMGetTypeKind(type)) {
	case LLVMIntegerTypeKind:
		return LLVMGetIntTypeWidth(type) <= 64;
	case LLVMPointerTypeKind:
		return LLVMGetPointerAddressSpace(type) == 0;
	default:
		return false;
	}
}

bool shunt_ir_can_coerce(LLVMTypeRef from, LLVMTypeRef to)
{
	return is_register(from) && is_register(to);
}

LLVMValueRef shunt_ir_coerce(struct shunt_pass *pass, LLVMValueRef value, LLVMTypeRef to, bool is_signed)
{
	LLVMTypeRef from = LLVMTypeOf(value);

	if (from == to)
		return value;
	/* A pointer meets a narrow integer by way of 64 bits: ptrtoint and inttoptr alone would zero-extend. */
	if (LLVMGetTypeKind(from) == LLVMPointerTypeKind)
		return shunt_ir_coerce(pass, LLVMBuildPtrToInt(pass->builder, value, pass->i64, ""), to, is_signed);
	if (LLVMGetTypeKind(to) == LLVMPointerTypeKind)
		return LLVMBuildIntToPtr(pass->builder, shunt_ir_coerce(pass, value, pass->i64, is_signed), to, "");
	return LLVMBuildIntCast2(pass->builder, value, to, is_signed, "");
}

bool shunt_ir_can_return(LLVMValueRef call, LLVMTypeRef from)
{
	LLVMTypeRef to = LLVMTypeOf(call);

	return LLVMGetTypeKind(to) == LLVMVoidTypeKind || shunt_ir_can_coerce(from, to);
}

void shunt_ir_replace(struct shunt_pass *pass, LLVMValueRef call, LLVMValueRef value, bool is_signed)
{
	if (value && LLVMGetTypeKind(LLVMTypeOf(call)) != LLVMVoidTypeKind) {
		size_t len = 0;
		const char *old = LLVMGetValueName2(call, &len);
		char *name = len ? strndup(old, len) : NULL;

		value = shunt_ir_coerce(pass, value, LLVMTypeOf(call), is_signed);
		LLVMReplaceAllUsesWith(call, value);
		LLVMInstructionEraseFromParent(call);
		if (name && LLVMIsAInstruction(value))
			LLVMSetValueName2(value, name, len);
		free(name);
	} else {
		LLVMInstructionEraseFromParent(call);
	}
	pass->changed = true;
}

void shunt_ir_add_attribute(struct shunt_pass *pass, LLVMValueRef function, LLVMAttributeIndex index, const char *name)
{
	unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));

	LLVMAddAttributeAtIndex(function, index, LLVMCreateEnumAttribute(pass->context, kind, 0));
}

static bool is_named(LLVMValueRef value, const char *name)
{
	size_t len = 0;
	const char *got = LLVMGetValueName2(value, &len);

	return len == strlen(name) && !memcmp(got, name, len);
}

/* LLVM renames what it adds when the name is taken by another kind of global. */
LLVMValueRef shunt_ir_declare_symbol(struct shunt_pass *pass, const char *name, LLVMTypeRef type)
{
	LLVMValueRef function = LLVMGetNamedFunction(pass->module, name);

	if (function)
		return function;
	function = LLVMAddFunction(pass->module, name, type);
	if (is_named(function, name))
		return function;
	LLVMDeleteFunction(function);
	return NULL;
}

LLVMValueRef shunt_ir_declare(struct shunt_pass *pass, const char *name, LLVMTypeRef type)
{
	bool is_new = !LLVMGetNamedFunction(pass->module, name);
	LLVMValueRef function = shunt_ir_declare_symbol(pass, name, type);

	if (function && is_new) {
		shunt_ir_add_attribute(pass, function, LLVMAttributeFunctionIndex, "nounwind");
		shunt_ir_add_attribute(pass, function, LLVMAttributeFunctionIndex, "willreturn");
	}
	return function;
}

LLVMValueRef shunt_ir_declare_variable(struct shunt_pass *pass, const char *name)
{
	LLVMValueRef variable = LLVMGetNamedGlobal(pass->module, name);

	if (variable)
		return variable;
	variable = LLVMAddGlobal(pass->module, pass->i8, name);
	if (is_named(variable, name))
		return variable;
	LLVMDeleteGlobal(variable);
	return NULL;
}

bool shunt_ir_can_copy(LLVMValueRef call)
{
	unsigned nr_args = LLVMGetNumArgOperands(call);

	if (nr_args >= SHUNT_PASS_MAX_ARGS || LLVMGetNumOperandBundles(call) > SHUNT_PASS_MAX_BUNDLES)
		return false;
	if (LLVMGetCallSiteAttributeCount(call, LLVMAttributeFunctionIndex) > SHUNT_PASS_MAX_ATTRIBUTES)
		return false;
	for (unsigned i = 0; i <= nr_args; i++)
		if (LLVMGetCallSiteAttributeCount(call, i) > SHUNT_PASS_MAX_ATTRIBUTES)
			return false;
	return true;
}

void shunt_ir_copy_attributes(struct shunt_pass *pass, LLVMValueRef from, LLVMAttributeIndex from_index, LLVMValueRef to,
			      LLVMAttributeIndex to_index)
{
	LLVMAttributeRef *attributes = pass->scratch->attributes;
	unsigned nr = LLVMGetCallSiteAttributeCount(from, from_index);

	LLVMGetCallSiteAttributes(from, from_index, attributes);
	for (unsigned i = 0; i < nr; i++)
		LLVMAddCallSiteAttribute(to, to_index, attributes[i]);
}

unsigned shunt_ir_bundles(struct shunt_pass *pass, LLVMValueRef call)
{
	unsigned nr = LLVMGetNumOperandBundles(call);

	for (unsigned i = 0; i < nr; i++)
		pass->scratch->bundles[i] = LLVMGetOperandBundleAtIndex(call, i);
	return nr;
}

void shunt_ir_free_bundles(struct shunt_pass *pass, unsigned nr)
{
	for (unsigned i = 0; i < nr; i++)
		LLVMDisposeOperandBundle(pass->scratch->bundles[i]);
}

bool shunt_ir_has_bundle(struct shunt_pass *pass, LLVMValueRef call, const char *const *tags)
{
	unsigned nr = shunt_ir_bundles(pass, call);
	bool found = false;

	for (unsigned i = 0; i < nr; i++) {
		size_t len = 0;
		const char *tag = LLVMGetOperandBundleTag(pass->scratch->bundles[i], &len);

		for (const char *const *wanted = tags; *wanted; wanted++)
			found |= len == strlen(*wanted) && !memcmp(tag, *wanted, len);
	}
	shunt_ir_free_bundles(pass, nr);
	return found;
}

/* What is said of the call, not of the type of its result. */
static void copy_metadata(struct shunt_pass *pass, LLVMValueRef from, LLVMValueRef to)
{
	static const char *const kinds[] = { "prof", "srcloc" };

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		unsigned kind = LLVMGetMDKindIDInContext(pass->context, kinds[i], (unsigned)strlen(kinds[i]));
		LLVMValueRef metadata = LLVMGetMetadata(from, kind);

		if (metadata)
			LLVMSetMetadata(to, kind, metadata);
	}
}

LLVMValueRef shunt_ir_call_like(struct shunt_pass *pass, LLVMValueRef call, LLVMTypeRef type, LLVMValueRef function,
				LLVMValueRef *args, unsigned nr_args)
{
	LLVMTailCallKind kind = LLVMGetTailCallKind(call);
	unsigned nr_bundles = shunt_ir_bundles(pass, call);
	LLVMValueRef made;

	made = LLVMBuildCallWithOperandBundles(pass->builder, type, function, args, nr_args, pass->scratch->bundles, nr_bundles,
					       "");
	shunt_ir_free_bundles(pass, nr_bundles);
	LLVMSetTailCallKind(made, kind == LLVMTailCallKindMustTail ? LLVMTailCallKindNone : kind);
	shunt_ir_copy_attributes(pass, call, LLVMAttributeFunctionIndex, made, LLVMAttributeFunctionIndex);
	copy_metadata(pass, call, made);
	return made;
}
