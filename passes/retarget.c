/* SPDX-License-Identifier: MIT */
/*
 * shunt_module_retarget: what clang -target bpf made becomes IR for the machine that will run it.
 *
 * The layouts of types agree; what differs is the target's attributes, two intrinsics that keep BPF code in a form its kernel verifier
 * follows, and section names, which mean something to BPF loaders and clash in a host's object. What only a kernel or a BPF
 * loader can give (inline BPF assembly, CO-RE relocations, legacy packet loads) is refused by name, before anything is changed: LLVM's
 * code generation would end the process over it.
 */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "passes/ir.h"

#define INTRINSIC "llvm.bpf."

struct retarget {
	struct shunt_pass pass; /* module, context and builder */
	char *error;
};

static int refuse(struct retarget *retarget, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	if (vasprintf(&retarget->error, format, args) < 0)
		retarget->error = NULL;
	va_end(args);
	return -EINVAL;
}

/* ---- what cannot run here ------------------------------------------------------------------------------------- */

/* Assembly without an instruction only ties the compiler's hands, on any machine. */
static bool is_empty_assembly(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!isspace((unsigned char)text[i]) && text[i] != ';')
			return false;
	return true;
}

static const char *function_name(LLVMValueRef instruction)
{
	return LLVMGetValueName(LLVMGetBasicBlockParent(LLVMGetInstructionParent(instruction)));
}

static int check_assembly(struct retarget *retarget, LLVMValueRef call)
{
	size_t len = 0;
	const char *text = LLVMGetInlineAsmAsmString(LLVMGetCalledValue(call), &len);

	if (is_empty_assembly(text, len))
		return 0;
	return refuse(retarget, "function '%s' has inline BPF assembly ('%.*s'), which no other machine runs: write that part in C",
		      function_name(call), (int)(len > 60 ? 60 : len), text);
}

/* The intrinsics that can be lowered. */
static bool is_lowered(LLVMValueRef intrinsic)
{
	return shunt_ir_has_prefix(intrinsic, INTRINSIC "passthrough") || shunt_ir_has_prefix(intrinsic, INTRINSIC "compare");
}

static int check_compare(struct retarget *retarget, LLVMValueRef call)
{
	LLVMValueRef predicate = LLVMGetOperand(call, 0);

	if (LLVMIsAConstantInt(predicate) && LLVMConstIntGetZExtValue(predicate) >= LLVMIntEQ &&
	    LLVMConstIntGetZExtValue(predicate) <= LLVMIntSLE)
		return 0;
	return refuse(retarget, "function '%s' calls llvm.bpf.compare with a predicate that is no constant comparison of integers",
		      function_name(call));
}

static int check_call(struct retarget *retarget, LLVMValueRef call)
{
	LLVMValueRef callee = LLVMGetCalledValue(call);

	if (LLVMIsAInlineAsm(callee))
		return check_assembly(retarget, call);
	if (shunt_ir_has_prefix(callee, "llvm.preserve."))
		return refuse(retarget,
			      "function '%s' has a CO-RE access (%s) that no BPF pipeline has turned into a relocation yet: compile it with -O1 "
			      "or higher, or without preserve_access_index",
			      function_name(call), LLVMGetValueName(callee));
	if (shunt_ir_has_prefix(callee, INTRINSIC) && !is_lowered(callee))
		return refuse(retarget, "function '%s' uses '%s', which only a BPF loader gives a meaning", function_name(call),
			      LLVMGetValueName(callee));
	return shunt_ir_has_prefix(callee, INTRINSIC "compare") ? check_compare(retarget, call) : 0;
}

static int check_function(struct retarget *retarget, LLVMValueRef function)
{
	int ret = 0;

	for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(function); b && !ret; b = LLVMGetNextBasicBlock(b))
		for (LLVMValueRef i = LLVMGetFirstInstruction(b); i && !ret; i = LLVMGetNextInstruction(i))
			if (LLVMIsACallInst(i) || LLVMIsAInvokeInst(i) || LLVMIsACallBrInst(i))
				ret = check_call(retarget, i);
	return ret;
}

/* CO-RE relocations are variables that nobody defines: "llvm.task_struct:0:16$0:3", "llvm.btf_type_id.0$1". */
static bool is_relocation(LLVMValueRef global)
{
	size_t len = 0;
	const char *name = LLVMGetValueName2(global, &len);

	return LLVMIsDeclaration(global) && len > strlen("llvm.") && !memcmp(name, "llvm.", strlen("llvm.")) && memchr(name, '$', len);
}

static int check_globals(struct retarget *retarget)
{
	size_t len = 0;

	LLVMGetModuleInlineAsm(retarget->pass.module, &len);
	if (len)
		return refuse(retarget, "the module has BPF assembly outside functions, which no other machine runs");
	for (LLVMValueRef global = LLVMGetFirstGlobal(retarget->pass.module); global; global = LLVMGetNextGlobal(global))
		if (is_relocation(global) && LLVMGetFirstUse(global))
			return refuse(retarget,
				      "'%s' is a CO-RE relocation against the running kernel's types: resolve it first, or compile the "
				      "program without preserve_access_index",
				      LLVMGetValueName(global));
	return 0;
}

static int check(struct retarget *retarget)
{
	const char *triple = LLVMGetTarget(retarget->pass.module);
	int ret;

	if (!strncmp(triple, "bpfeb", strlen("bpfeb")))
		return refuse(retarget, "the module is for big-endian BPF: compile it with -target bpfel");
	if (strcmp(triple, "bpf") && strcmp(triple, "bpfel") && strncmp(triple, "bpf-", 4) && strncmp(triple, "bpfel-", 6))
		return refuse(retarget, "the module's target triple '%s' is not bpf: only BPF modules are retargeted", triple);
	ret = check_globals(retarget);
	for (LLVMValueRef f = LLVMGetFirstFunction(retarget->pass.module); f && !ret; f = LLVMGetNextFunction(f))
		ret = check_function(retarget, f);
	return ret;
}

/* ---- the change ----------------------------------------------------------------------------------------------- */

static LLVMValueRef lowered_value(struct retarget *retarget, LLVMValueRef call)
{
	if (shunt_ir_has_prefix(LLVMGetCalledValue(call), INTRINSIC "passthrough"))
		return LLVMGetOperand(call, 1);
	shunt_ir_at(&retarget->pass, call);
	return LLVMBuildICmp(retarget->pass.builder, (LLVMIntPredicate)LLVMConstIntGetZExtValue(LLVMGetOperand(call, 0)),
			     LLVMGetOperand(call, 1), LLVMGetOperand(call, 2), "");
}

static void lower_intrinsic(struct retarget *retarget, LLVMValueRef intrinsic)
{
	LLVMUseRef use, next;

	for (use = LLVMGetFirstUse(intrinsic); use; use = next) {
		LLVMValueRef call = LLVMGetUser(use), value;

		next = LLVMGetNextUse(use);
		if (!LLVMIsACallInst(call) || LLVMGetCalledValue(call) != intrinsic)
			continue;
		value = lowered_value(retarget, call);
		LLVMReplaceAllUsesWith(call, value);
		LLVMInstructionEraseFromParent(call);
	}
	if (!LLVMGetFirstUse(intrinsic))
		LLVMDeleteFunction(intrinsic);
}

/* A function's section says what kind of program it is: kept where it cannot clash. */
static void move_section(struct retarget *retarget, LLVMValueRef function)
{
	const char *section = LLVMGetSection(function);

	if (!section || !*section)
		return;
	LLVMAddAttributeAtIndex(function, LLVMAttributeFunctionIndex,
				LLVMCreateStringAttribute(retarget->pass.context, SHUNT_SECTION_ATTRIBUTE, strlen(SHUNT_SECTION_ATTRIBUTE),
							  section, (unsigned)strlen(section)));
	LLVMSetSection(function, "");
}

static void change_function(struct retarget *retarget, LLVMValueRef function)
{
	static const char *const attributes[] = { "target-cpu", "target-features", "tune-cpu" };

	for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++)
		LLVMRemoveStringAttributeAtIndex(function, LLVMAttributeFunctionIndex, attributes[i], (unsigned)strlen(attributes[i]));
	move_section(retarget, function);
}

/* Sections that a front end reads; in all others (license, version, .rodata.x) globals of different kinds would clash. */
static bool is_read_section(const char *section)
{
	static const char *const kept[] = { ".maps", "maps", ".ksyms", ".kconfig", "llvm.metadata" };

	for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
		if (!strcmp(section, kept[i]))
			return true;
	return false;
}

static void change_globals(struct retarget *retarget)
{
	LLVMValueRef next;

	for (LLVMValueRef global = LLVMGetFirstGlobal(retarget->pass.module); global; global = next) {
		const char *section = LLVMGetSection(global);

		next = LLVMGetNextGlobal(global);
		if (section && *section && !is_read_section(section))
			LLVMSetSection(global, "");
		if (is_relocation(global))
			LLVMDeleteGlobal(global);
	}
}

int shunt_module_retarget(LLVMModuleRef module, const char *triple, const char *data_layout, char **error)
{
	struct retarget retarget = { .pass = { .module = module } };
	LLVMValueRef next;
	int ret;

	if (error)
		*error = NULL;
	if (!module || !triple || !data_layout)
		ret = refuse(&retarget, "retargeting wants a module, a target triple and a data layout");
	else if (!strcmp(LLVMGetTarget(module), triple))
		return 0;
	else
		ret = check(&retarget);
	if (ret) {
		if (error)
			*error = retarget.error;
		else
			free(retarget.error);
		return ret;
	}
	retarget.pass.context = LLVMGetModuleContext(module);
	retarget.pass.builder = LLVMCreateBuilderInContext(retarget.pass.context);
	for (LLVMValueRef f = LLVMGetFirstFunction(module); f; f = next) {
		next = LLVMGetNextFunction(f);
		change_function(&retarget, f);
		if (is_lowered(f))
			lower_intrinsic(&retarget, f);
	}
	change_globals(&retarget);
	LLVMSetTarget(module, triple);
	LLVMSetDataLayout(module, data_layout);
	LLVMDisposeBuilder(retarget.pass.builder);
	return 0;
}
