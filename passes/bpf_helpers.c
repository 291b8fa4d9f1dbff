/* SPDX-License-Identifier: MIT */
/*
 * shunt-bpf-helpers: BPF helper calls to the names of shunt/abi.h.
 *
 * Changes calls whose callee is a helper number: inttoptr of a constant, a load of a global or local variable that can only hold
 * one, or a symbol _bpf_helper_ext_NNNN. Numbers that Shunt implements become its functions; every other one becomes the symbol of
 * its number, which the host resolves. Registers are 64 bits wide in BPF, so pointers and integers are converted both ways, and
 * arguments past the helper's own are dropped (some front ends always pass five). Leaves alone calls of a variable helper, with a
 * remark.
 */
#include <stdio.h>
#include <string.h>
#include "passes/maps.h"

enum { MAX_HELPER = 9999, MAX_DEPTH = 8, NR_REGISTERS = 5 };

/* Type letters: p pointer, c 32 bits, l 64 bits. The first letter is the result; m is a map pointer. */
static const struct helper {
	unsigned number;
	const char *name;
	const char *types;
} helpers[] = {
	{ 1, "shunt_map_lookup", "pmp" },       { 2, "shunt_map_update", "cmppl" },
	{ 3, "shunt_map_delete", "cmp" },       { 8, "shunt_cpu_id", "c" },
	{ 153, "shunt_percpu_of", "ppc" },      { 154, "shunt_percpu_this", "pp" },
	{ 195, "shunt_map_lookup_of", "pmpc" },
};

enum { NOT_A_HELPER = -1, VARIABLE_HELPER = -2 };

static int symbol_number(LLVMValueRef function)
{
	static const char prefix[] = SHUNT_HELPER_PREFIX;
	size_t len = 0, at = sizeof(prefix) - 1;
	const char *name = LLVMGetValueName2(function, &len);
	int number = 0;

	if (len != at + 4 || memcmp(name, prefix, at) || !LLVMIsDeclaration(function))
		return NOT_A_HELPER;
	for (; at < len; at++) {
		if (name[at] < '0' || name[at] > '9')
			return NOT_A_HELPER;
		number = number * 10 + name[at] - '0';
	}
	return number;
}

/* The helper that callee certainly is. Larger constants are addresses of host functions: nothing can be mapped at small ones. */
static int helper_number(LLVMValueRef callee, int depth)
{
	if (!depth)
		return NOT_A_HELPER;
	callee = shunt_ir_strip(callee);
	if (LLVMIsAConstantInt(callee)) {
		unsigned long long number = LLVMGetIntTypeWidth(LLVMTypeOf(callee)) <= 64 ? LLVMConstIntGetZExtValue(callee) : 0;

		return number && number <= MAX_HELPER ? (int)number : NOT_A_HELPER;
	}
	if (LLVMIsAFunction(callee))
		return symbol_number(callee);
	if (LLVMIsALoadInst(callee)) {
		LLVMValueRef value = shunt_ir_loaded_value(callee);

		return value ? helper_number(value, depth - 1) : NOT_A_HELPER;
	}
	if (LLVMIsASelectInst(callee)) {
		int a = helper_number(LLVMGetOperand(callee, 1), depth - 1),
		    b = helper_number(LLVMGetOperand(callee, 2), depth - 1);

		return a == NOT_A_HELPER || b == NOT_A_HELPER ? NOT_A_HELPER : a == b ? a : VARIABLE_HELPER;
	}
	if (LLVMIsAPHINode(callee)) {
		int number = NOT_A_HELPER;

		for (unsigned i = 0, nr = LLVMCountIncoming(callee); i < nr; i++) {
			int arm = helper_number(LLVMGetIncomingValue(callee, i), depth - 1);

			if (arm == NOT_A_HELPER)
				return NOT_A_HELPER;
			number = i == 0 || arm == number ? arm : VARIABLE_HELPER;
		}
		return number;
	}
	return NOT_A_HELPER;
}

static const struct helper *find_helper(unsigned number)
{
	for (size_t i = 0; i < sizeof(helpers) / sizeof(helpers[0]); i++)
		if (helpers[i].number == number)
			return &helpers[i];
	return NULL;
}

static LLVMTypeRef letter_type(struct shunt_pass *pass, char letter)
{
	return letter == 'c' ? pass->i32 : letter == 'l' ? pass->i64 : pass->ptr;
}

static LLVMTypeRef helper_type(struct shunt_pass *pass, const struct helper *helper, LLVMTypeRef *types)
{
	unsigned nr = (unsigned)strlen(helper->types) - 1;

	for (unsigned i = 0; i < nr; i++)
		types[i] = letter_type(pass, helper->types[1 + i]);
	return LLVMFunctionType(letter_type(pass, helper->types[0]), types, nr, 0);
}

static bool fits(struct shunt_pass *pass, LLVMValueRef call, unsigned nr_args)
{
	if (LLVMGetNumArgOperands(call) < nr_args || LLVMGetInstructionCallConv(call) != LLVMCCallConv)
		return false;
	for (unsigned i = 0; i < nr_args; i++)
		if (!shunt_ir_can_coerce(LLVMTypeOf(LLVMGetOperand(call, i)), pass->i64))
			return false;
	return shunt_ir_can_return(call, pass->i64) && shunt_ir_can_copy(call);
}

/* Front ends with handles pass a number where the helper wants a map: whatever is not known to be one of them may still be a
 * handle. */
static bool may_be_handle(struct shunt_pass *pass, LLVMValueRef operand)
{
	operand = shunt_ir_strip(operand);
	if (LLVMIsAConstantInt(operand))
		return LLVMConstIntGetZExtValue(operand) < 65536;
	if (LLVMGetTypeKind(LLVMTypeOf(operand)) != LLVMIntegerTypeKind)
		return false;
	for (size_t i = 0; i < pass->options->nr_maps; i++)
		if (pass->options->maps[i].has_handle)
			return true;
	return false;
}

/* The helper as the symbol of its number, all registers passed; registers that the call does not set read 0. */
static void call_symbol(struct shunt_pass *pass, LLVMValueRef call, int number)
{
	LLVMTypeRef types[NR_REGISTERS] = { pass->i64, pass->i64, pass->i64, pass->i64, pass->i64 }, type;
	LLVMValueRef args[NR_REGISTERS], function, made;
	unsigned nr = LLVMGetNumArgOperands(call);
	char name[sizeof(SHUNT_HELPER_PREFIX) + 16], callee[32];
	unsigned is_signed = LLVMGetEnumAttributeKindForName("signext", strlen("signext"));

	snprintf(callee, sizeof(callee), "helper %d", number);
	snprintf(name, sizeof(name), SHUNT_HELPER_PREFIX "%04d", number);
	if (nr > NR_REGISTERS || !fits(pass, call, nr)) {
		shunt_pass_missed(pass, call, "UnexpectedSignature", callee,
				  "call left: a helper takes up to five registers and returns one");
		return;
	}
	type = LLVMFunctionType(pass->i64, types, NR_REGISTERS, 0);
	function = shunt_ir_declare_symbol(pass, name, type);
	if (!function) {
		shunt_pass_missed(pass, call, "NameTaken", callee, "call left: '%s' is not a function in this module", name);
		return;
	}
	for (unsigned i = 0; i < NR_REGISTERS; i++)
		args[i] = i < nr ? shunt_ir_coerce(pass, LLVMGetOperand(call, i), pass->i64,
						   LLVMGetCallSiteEnumAttribute(call, i + 1, is_signed) != NULL)
				 : LLVMConstNull(pass->i64);
	made = shunt_ir_call_like(pass, call, type, function, args, NR_REGISTERS);
	shunt_pass_passed(pass, call, "HelperMadeSymbol", callee, "became a direct call of %s", name);
	shunt_ir_replace(pass, call, made, false);
}

static void call_function(struct shunt_pass *pass, LLVMValueRef call, const struct helper *helper)
{
	unsigned nr = (unsigned)strlen(helper->types) - 1;
	struct shunt_pass_map_operand found = { 0 };
	LLVMTypeRef types[NR_REGISTERS], type = helper_type(pass, helper, types);
	LLVMValueRef args[NR_REGISTERS], function, made;
	char callee[32];

	snprintf(callee, sizeof(callee), "helper %u", helper->number);
	if (!fits(pass, call, nr)) {
		shunt_pass_missed(pass, call, "UnexpectedSignature", callee,
				  "call left: its arguments, result or calling convention are not those of %s", helper->name);
		return;
	}
	if (strchr(helper->types, 'm')) {
		found = shunt_pass_find_map(pass, LLVMGetOperand(call, 0));
		if (!shunt_pass_has_map_pointer(pass, &found) || (!found.map && may_be_handle(pass, LLVMGetOperand(call, 0)))) {
			/* The host's own helper can still make sense of the handle. A symbol stays one. */
			shunt_pass_missed(pass, call, "UnknownHandle", callee, "not made %s: the map operand %s", helper->name,
					  found.why ? found.why : "is a handle of a map whose address is not known");
			if (!LLVMIsAFunction(LLVMGetCalledValue(call)))
				call_symbol(pass, call, (int)helper->number);
			return;
		}
	}
	function = shunt_ir_declare(pass, helper->name, type);
	if (!function) {
		shunt_pass_missed(pass, call, "NameTaken", callee, "call left: '%s' is not a function in this module",
				  helper->name);
		return;
	}
	for (unsigned i = 0; i < nr; i++)
		args[i] = helper->types[1 + i] == 'm' ? shunt_pass_map_pointer(pass, &found, LLVMGetOperand(call, i))
						      : shunt_ir_coerce(pass, LLVMGetOperand(call, i), types[i], false);
	made = shunt_ir_call_like(pass, call, type, function, args, nr);
	shunt_pass_passed(pass, call, "HelperRewritten", callee, "became a call of %s", helper->name);
	pass->counts->helpers++;
	/* 32-bit results are error numbers, but a CPU number. */
	shunt_ir_replace(pass, call, made, helper->number != 8);
}

void shunt_pass_bpf_helpers(struct shunt_pass *pass, LLVMValueRef call)
{
	static const char *const pointer_bundles[] = { "kcfi", "ptrauth", "cfguardtarget", "preallocated", NULL };
	LLVMValueRef callee = LLVMGetCalledValue(call);
	int number = helper_number(callee, MAX_DEPTH);
	const struct helper *helper;

	if (number == NOT_A_HELPER)
		return;
	if (number == VARIABLE_HELPER) {
		shunt_pass_missed(pass, call, "VariableHelper", "helper", "call left: it may be one of several helpers");
		return;
	}
	helper = find_helper((unsigned)number);
	if (!helper && LLVMIsAFunction(callee))
		return; /* already what it would become */
	if (!LLVMIsACallInst(call)) {
		shunt_pass_missed(pass, call, "Invoke", "helper",
				  "call left: helpers never unwind, call helper %d instead of invoking it", number);
		return;
	}
	if (LLVMGetPointerAddressSpace(LLVMTypeOf(callee))) {
		shunt_pass_missed(pass, call, "AddressSpace", "helper", "call left: its pointer is of another address space than functions");
		return;
	}
	/* Too many bundles to look at are refused with the rest of the signature. */
	if (shunt_ir_can_copy(call) && shunt_ir_has_bundle(pass, call, pointer_bundles)) {
		shunt_pass_missed(pass, call, "Bundle", "helper", "call left: an operand bundle (kcfi, ptrauth or the like) is about the pointer "
				  "that it calls");
		return;
	}
	shunt_ir_at(pass, call);
	if (helper)
		call_function(pass, call, helper);
	else
		call_symbol(pass, call, number);
}
