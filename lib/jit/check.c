/* SPDX-License-Identifier: MIT */
/*
 * Refuses what LLVM 19 answers with report_fatal_error, which nothing can catch (it ends the host), and what it would drop in silence. The
 * lists come from compiling every intrinsic and a set of odd modules, each in a process of its own.
 */
#include "lib/jit/jit_internal.h"

#include <errno.h>
#include <string.h>
#include "runtime/log.h"

static size_t count(const char *text, const char *word)
{
	size_t nr = 0;

	for (; (text = strstr(text, word)); text += strlen(word))
		nr++;
	return nr;
}

/* A function begun inside an open unwind frame crashes the assembler after its own error. */
static int check_assembly(LLVMModuleRef module)
{
	size_t len;
	const char *text = LLVMGetModuleInlineAsm(module, &len);

	if (count(text, ".cfi_startproc") == count(text, ".cfi_endproc"))
		return 0;
	return shunt_fail(EINVAL, "the module's assembly opens and closes different numbers of unwind frames: match .cfi_startproc and .cfi_endproc");
}

static int check_globals(LLVMModuleRef module)
{
	for (LLVMValueRef global = LLVMGetFirstGlobal(module); global; global = LLVMGetNextGlobal(global)) {
		size_t len;
		const char *name = LLVMGetValueName2(global, &len);

		if (LLVMIsThreadLocal(global))
			return shunt_fail(EINVAL, "global '%s' is thread-local, which generated code cannot have: keep it in the host or use a per-CPU "
					  "object", name);
		if (!strcmp(name, "llvm.global_ctors") || !strcmp(name, "llvm.global_dtors"))
			return shunt_fail(EINVAL, "the module has constructors or destructors (%s), which would not run: call them from the host",
					  name);
	}
	if (LLVMGetFirstGlobalIFunc(module)) {
		size_t len;

		return shunt_fail(EINVAL, "'%s' is an ifunc: choose the function in the host and give its address as a symbol",
				  LLVMGetValueName2(LLVMGetFirstGlobalIFunc(module), &len));
	}
	return 0;
}

/* Conventions that the code generator of this CPU has; another ends the process. */
static bool has_convention(unsigned convention)
{
	static const unsigned common[] = { LLVMCCallConv, LLVMFastCallConv, LLVMColdCallConv, LLVMPreserveMostCallConv,
					   LLVMPreserveAllCallConv, LLVMSwiftCallConv, 18 /* tail */, 20 /* swifttail */ };
#if defined(__x86_64__)
	static const unsigned own[] = { LLVMX8664SysVCallConv, LLVMWin64CallConv, LLVMX86RegCallCallConv, LLVMX86VectorCallCallConv,
					LLVMIntelOCLBICallConv };
#else
	static const unsigned own[] = { 97 /* vector_pcs */, 98 /* sve_vector_pcs */, LLVMWin64CallConv };
#endif

	for (size_t i = 0; i < sizeof(common) / sizeof(*common); i++)
		if (common[i] == convention)
			return true;
	for (size_t i = 0; i < sizeof(own) / sizeof(*own); i++)
		if (own[i] == convention)
			return true;
	return false;
}

static int check_convention(unsigned convention, const char *function)
{
	if (has_convention(convention))
		return 0;
	return shunt_fail(EINVAL, "function '%s' uses calling convention %u, which this CPU does not have: use the C convention", function, convention);
}

static bool has_feature(const struct shunt_jit *jit, const char *name)
{
	const size_t len = strlen(name);

	for (const char *at = jit->features; (at = strstr(at, name)); at += len)
		if (at > jit->features && at[-1] == '+' && (!at[len] || at[len] == ','))
			return true;
	return false;
}

/* Instruction selection has no way to expand an intrinsic whose instruction the CPU lacks. */
static int check_intrinsic_feature(const struct shunt_jit *jit, const char *name)
{
	static const struct {
		const char *prefix, *feature;
	} needs[] = {
		{ "llvm.x86.sse3.", "sse3" },       { "llvm.x86.ssse3.", "ssse3" },     { "llvm.x86.sse41.", "sse4.1" },
		{ "llvm.x86.sse42.", "sse4.2" },    { "llvm.x86.sse4a.", "sse4a" },     { "llvm.x86.avx.", "avx" },
		{ "llvm.x86.avx2.", "avx2" },       { "llvm.x86.avx512.", "avx512f" },  { "llvm.x86.avx512bf16.", "avx512bf16" },
		{ "llvm.x86.avx512fp16.", "avx512fp16" }, { "llvm.x86.fma4.", "fma4" }, { "llvm.x86.xop.", "xop" },
		{ "llvm.x86.aesni.", "aes" },       { "llvm.x86.pclmulqdq", "pclmul" }, { "llvm.x86.sha", "sha" },
		{ "llvm.x86.bmi.bextr", "bmi" },    { "llvm.x86.bmi.p", "bmi2" },       { "llvm.x86.bmi.bzhi", "bmi2" },
		{ "llvm.x86.tbm.", "tbm" },         { "llvm.x86.rdrand.", "rdrnd" },    { "llvm.aarch64.crypto.sha512", "sha3" },
		{ "llvm.x86.rdseed.", "rdseed" },   { "llvm.x86.xsave", "xsave" },      { "llvm.x86.xrstor", "xsave" },
		{ "llvm.x86.xbegin", "rtm" },       { "llvm.x86.xend", "rtm" },         { "llvm.x86.xabort", "rtm" },
		{ "llvm.x86.vcvtps2ph", "f16c" },   { "llvm.x86.vgf2p8", "gfni" },      { "llvm.x86.tile", "amx-tile" },
		{ "llvm.x86.tdp", "amx-tile" },     { "llvm.x86.umwait", "waitpkg" },   { "llvm.x86.tpause", "waitpkg" },
		{ "llvm.aarch64.sve.", "sve" },     { "llvm.aarch64.sme.", "sme" },     { "llvm.aarch64.mops.", "mops" },
		{ "llvm.aarch64.crc32", "crc" },    { "llvm.aarch64.crypto.aes", "aes" }, { "llvm.aarch64.crypto.sha", "sha2" },
	};

	for (size_t i = 0; i < sizeof(needs) / sizeof(*needs); i++)
		if (!strncmp(name, needs[i].prefix, strlen(needs[i].prefix)) && !has_feature(jit, needs[i].feature))
			return shunt_fail(EINVAL, "the module uses intrinsic '%s', which needs CPU feature '%s' that this machine lacks", name,
					  needs[i].feature);
	return 0;
}

/* Intrinsics that nothing lowers here: those of other CPUs, and those that a pass must have removed before code generation. */
static int check_intrinsic(const struct shunt_jit *jit, const char *name)
{
	static const char *const refused[] = {
		"llvm.amdgcn.", "llvm.r600.", "llvm.nvvm.", "llvm.arm.", "llvm.bpf.", "llvm.dx.", "llvm.hexagon.", "llvm.loongarch.", "llvm.mips.",
		"llvm.ppc.", "llvm.riscv.", "llvm.s390.", "llvm.spv.", "llvm.ve.", "llvm.wasm.", "llvm.xcore.",
#if defined(__x86_64__)
		"llvm.aarch64.",
#else
		"llvm.x86.",
#endif
		"llvm.call.preallocated.", "llvm.eh.recoverfp", "llvm.eh.sjlj.setup.dispatch", "llvm.experimental.deoptimize",
		"llvm.experimental.gc.", "llvm.experimental.guard", "llvm.experimental.widenable.", "llvm.hwasan.", "llvm.icall.", "llvm.instrprof.",
		"llvm.matrix.", "llvm.objc.", "llvm.pcmarker", "llvm.preserve.", "llvm.ptrauth.", "llvm.public.type.", "llvm.stackguard", "llvm.type.",
		"llvm.xray.",
	};

	for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++)
		if (!strncmp(name, refused[i], strlen(refused[i])))
			return shunt_fail(EINVAL, "the module uses intrinsic '%s', which cannot be compiled here: lower it first", name);
	if (!jit->opt_level && !strncmp(name, "llvm.coro.", strlen("llvm.coro.")))
		return shunt_fail(EINVAL, "the module uses intrinsic '%s', which optimisation lowers: use opt_level 1 or more", name);
	return check_intrinsic_feature(jit, name);
}

static bool can_hold(const struct shunt_jit *jit, LLVMTypeRef type)
{
	switch (LLVMGetTypeKind(type)) {
	case LLVMScalableVectorTypeKind:
		return has_feature(jit, "sve");
	case LLVMPPC_FP128TypeKind:
	case LLVMTargetExtTypeKind:
		return false;
	case LLVMX86_FP80TypeKind:
		return !strncmp(jit->triple, "x86_64", strlen("x86_64"));
	case LLVMX86_AMXTypeKind:
		return has_feature(jit, "amx-tile");
	default:
		return true;
	}
}

/* Reads and writes of registers by name: all but the stack pointer need a register that was reserved for it. */
static int check_named_register(LLVMValueRef call, const char *function)
{
#if defined(__x86_64__)
	static const char stack_pointer[] = "rsp";
#else
	static const char stack_pointer[] = "sp";
#endif
	LLVMValueRef callee = LLVMGetCalledValue(call), name = NULL, node;
	const char *intrinsic, *text = "";
	unsigned len = 0;
	size_t name_len;

	if (!callee || !LLVMIsAFunction(callee) || !LLVMGetIntrinsicID(callee))
		return 0;
	intrinsic = LLVMGetValueName2(callee, &name_len);
	if (strncmp(intrinsic, "llvm.read_register.", strlen("llvm.read_register.")) &&
	    strncmp(intrinsic, "llvm.read_volatile_register.", strlen("llvm.read_volatile_register.")) &&
	    strncmp(intrinsic, "llvm.write_register.", strlen("llvm.write_register.")))
		return 0;
	node = LLVMGetOperand(call, 0);
	if (LLVMGetMDNodeNumOperands(node) == 1)
		LLVMGetMDNodeOperands(node, &name);
	if (name)
		text = LLVMGetMDString(name, &len);
	if (text && len == strlen(stack_pointer) && !memcmp(text, stack_pointer, len))
		return 0;
	return shunt_fail(EINVAL, "function '%s' accesses register '%.*s' by name: only '%s' can be", function, (int)len, text ? text : "",
			  stack_pointer);
}

static int check_instruction(const struct shunt_jit *jit, LLVMValueRef instruction, const char *function)
{
	bool holds = can_hold(jit, LLVMTypeOf(instruction));
	int nr = LLVMGetNumOperands(instruction), err;

	for (int i = 0; i < nr && holds; i++) {
		LLVMValueRef operand = LLVMGetOperand(instruction, i);

		holds = !operand || can_hold(jit, LLVMTypeOf(operand));
	}
	if (!holds)
		return shunt_fail(EINVAL, "function '%s' has a value of a type that this CPU cannot hold (scalable or foreign): use another type",
				  function);
	switch (LLVMGetInstructionOpcode(instruction)) {
	case LLVMCall:
	case LLVMInvoke:
		err = check_convention(LLVMGetInstructionCallConv(instruction), function);
		return err ? err : check_named_register(instruction, function);
	default:
		return 0;
	}
}

static int check_function(const struct shunt_jit *jit, LLVMValueRef function)
{
	size_t len;
	const char *name = LLVMGetValueName2(function, &len);
	int err;

	if (LLVMGetIntrinsicID(function))
		return LLVMGetFirstUse(function) ? check_intrinsic(jit, name) : 0;
	if (LLVMIsDeclaration(function))
		return 0;
	if (LLVMGetGC(function))
		return shunt_fail(EINVAL, "function '%s' names garbage collector '%s', whose tables nobody would read: remove it", name,
				  LLVMGetGC(function));
	err = check_convention(LLVMGetFunctionCallConv(function), name);
	for (LLVMBasicBlockRef block = LLVMGetFirstBasicBlock(function); block && !err; block = LLVMGetNextBasicBlock(block))
		for (LLVMValueRef i = LLVMGetFirstInstruction(block); i && !err; i = LLVMGetNextInstruction(i))
			err = check_instruction(jit, i, name);
	return err;
}

int jit_check(const struct shunt_jit *jit, LLVMModuleRef module)
{
	int err = check_assembly(module);

	if (!err)
		err = check_globals(module);
	for (LLVMValueRef function = LLVMGetFirstFunction(module); function && !err; function = LLVMGetNextFunction(function))
		err = check_function(jit, function);
	return err;
}
