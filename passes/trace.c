/* SPDX-License-Identifier: MIT */
/* Looking: which value stands behind a load or a cast, without running LLVM's own passes over functions that are not ours to
 * change. */
#include <string.h>
#include "passes/ir.h"

bool shunt_ir_is_local(LLVMValueRef global)
{
	LLVMLinkage linkage = LLVMGetLinkage(global);

	return linkage == LLVMInternalLinkage || linkage == LLVMPrivateLinkage;
}

bool shunt_ir_has_prefix(LLVMValueRef value, const char *prefix)
{
	size_t len = 0;
	const char *name;

	if (!value || !LLVMIsAFunction(value))
		return false;
	name = LLVMGetValueName2(value, &len);
	return len >= strlen(prefix) && !memcmp(name, prefix, strlen(prefix));
}

static bool is_plain_load(LLVMValueRef user, LLVMValueRef memory, LLVMTypeRef type)
{
	return LLVMIsALoadInst(user) && !LLVMGetVolatile(user) && LLVMGetOperand(user, 0) == memory && LLVMTypeOf(user) == type;
}

static LLVMValueRef global_value(LLVMValueRef global, LLVMTypeRef type)
{
	LLVMValueRef value = LLVMGetInitializer(global);

	if (!value || LLVMTypeOf(value) != type || LLVMIsExternallyInitialized(global))
		return NULL;
	if (LLVMIsGlobalConstant(global))
		return shunt_ir_is_local(global) || LLVMGetLinkage(global) == LLVMExternalLinkage ? value : NULL;
	if (!shunt_ir_is_local(global))
		return NULL;
	for (LLVMUseRef use = LLVMGetFirstUse(global); use; use = LLVMGetNextUse(use))
		if (!is_plain_load(LLVMGetUser(use), global, type))
			return NULL;
	return value;
}

static LLVMValueRef alloca_value(LLVMValueRef memory, LLVMTypeRef type)
{
	LLVMValueRef value = NULL;

	for (LLVMUseRef use = LLVMGetFirstUse(memory); use; use = LLVMGetNextUse(use)) {
		LLVMValueRef user = LLVMGetUser(use);

		if (is_plain_load(user, memory, type))
			continue;
		if (LLVMIsACallInst(user) && shunt_ir_has_prefix(LLVMGetCalledValue(user), "llvm.lifetime."))
			continue;
		if (!LLVMIsAStoreInst(user) || LLVMGetVolatile(user) || LLVMGetOperand(user, 0) == memory || value)
			return NULL;
		value = LLVMGetOperand(user, 0);
		if (LLVMTypeOf(value) != type)
			return NULL;
	}
	return value;
}

LLVMValueRef shunt_ir_loaded_value(LLVMValueRef load)
{
	LLVMValueRef memory;

	if (!LLVMIsALoadInst(load) || LLVMGetVolatile(load))
		return NULL;
	memory = LLVMGetOperand(load, 0);
	if (LLVMIsAGlobalVariable(memory))
		return global_value(memory, LLVMTypeOf(load));
	if (LLVMIsAAllocaInst(memory))
		return alloca_value(memory, LLVMTypeOf(load));
	return NULL;
}

static bool is_word(LLVMTypeRef type)
{
	switch (LLVMGetTypeKind(type)) {
	case LLVMPointerTypeKind:
		return true;
	case LLVMIntegerTypeKind:
		return LLVMGetIntTypeWidth(type) == 64;
	default:
		return false;
	}
}

static bool is_zero_gep(LLVMValueRef value)
{
	for (int i = 1, nr = LLVMGetNumOperands(value); i < nr; i++) {
		LLVMValueRef index = LLVMGetOperand(value, i);

		if (!LLVMIsAConstantInt(index) || LLVMConstIntGetZExtValue(index))
			return false;
	}
	return true;
}

/* The operand that value is the same word as, or NULL. */
static LLVMValueRef same_word(LLVMValueRef value)
{
	LLVMOpcode opcode;

	if (LLVMIsACallInst(value))
		return shunt_ir_has_prefix(LLVMGetCalledValue(value), "llvm.bpf.passthrough") ? LLVMGetOperand(value, 1) : NULL;
	if (LLVMIsAInstruction(value))
		opcode = LLVMGetInstructionOpcode(value);
	else if (LLVMIsAConstantExpr(value))
		opcode = LLVMGetConstOpcode(value);
	else
		return NULL;
	switch (opcode) {
	case LLVMBitCast:
	case LLVMAddrSpaceCast:
	case LLVMPtrToInt:
	case LLVMIntToPtr:
	case LLVMFreeze:
		return LLVMGetOperand(value, 0);
	case LLVMGetElementPtr:
		return is_zero_gep(value) ? LLVMGetOperand(value, 0) : NULL;
	default:
		return NULL;
	}
}

LLVMValueRef shunt_ir_strip(LLVMValueRef value)
{
	LLVMValueRef next;

	/* Ends without a count: an instruction in a cycle of casts alone would use itself, which only unreachable code can; bounded
	 * for that. */
	for (int i = 0; i < 64 && (next = same_word(value)) && is_word(LLVMTypeOf(value)) && is_word(LLVMTypeOf(next)); i++)
		value = next;
	return value;
}

/* Whether LLVM can say how many bytes a value of type takes; it warns on standard error where it cannot. */
static bool has_fixed_size(LLVMTypeRef type)
{
	switch (LLVMGetTypeKind(type)) {
	case LLVMArrayTypeKind:
		return has_fixed_size(LLVMGetElementType(type));
	case LLVMStructTypeKind:
		for (unsigned i = 0, nr = LLVMCountStructElementTypes(type); i < nr; i++)
			if (!has_fixed_size(LLVMStructGetTypeAtIndex(type, i)))
				return false;
		return LLVMTypeIsSized(type);
	case LLVMScalableVectorTypeKind:
	case LLVMTargetExtTypeKind:
		return false;
	default:
		return LLVMTypeIsSized(type);
	}
}

bool shunt_ir_constant_offset(struct shunt_pass *pass, LLVMValueRef gep, unsigned long long *offset)
{
	LLVMTypeRef type = LLVMGetGEPSourceElementType(gep);

	if (!has_fixed_size(type))
		return false;
	for (int i = 1, nr = LLVMGetNumOperands(gep); i < nr; i++) {
		LLVMValueRef index = LLVMGetOperand(gep, i);
		unsigned long long number;

		if (!LLVMIsAConstantInt(index))
			return false;
		number = (unsigned long long)LLVMConstIntGetSExtValue(index);
		if (i > 1) {
			switch (LLVMGetTypeKind(type)) {
			case LLVMStructTypeKind:
				*offset += LLVMOffsetOfElement(pass->layout, type, (unsigned)number);
				type = LLVMStructGetTypeAtIndex(type, (unsigned)number);
				continue;
			case LLVMArrayTypeKind:
				type = LLVMGetElementType(type);
				break;
			default:
				return false;
			}
		}
		*offset += number * LLVMABISizeOfType(pass->layout, type);
	}
	return true;
}

unsigned shunt_ir_alignment(struct shunt_pass *pass, LLVMValueRef pointer)
{
	unsigned long long offset = 0, align = 1;

	for (int i = 0; i < 64; i++) {
		bool is_gep = LLVMIsAGetElementPtrInst(pointer) ||
			      (LLVMIsAConstantExpr(pointer) && LLVMGetConstOpcode(pointer) == LLVMGetElementPtr);

		if (!is_gep)
			break;
		if (LLVMGetTypeKind(LLVMTypeOf(pointer)) != LLVMPointerTypeKind || !shunt_ir_constant_offset(pass, pointer, &offset))
			return 1;
		pointer = LLVMGetOperand(pointer, 0);
	}
	if (LLVMIsAAllocaInst(pointer) || LLVMIsAGlobalVariable(pointer))
		align = LLVMGetAlignment(pointer);
	while (align > 4 || (align > 1 && offset % align))
		align /= 2;
	return align ? (unsigned)align : 1;
}
