/* SPDX-License-Identifier: MIT */
#include "lib/bpf/ir_compile.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <llvm-c/Analysis.h>
#include <llvm-c/Core.h>
#include <llvm-c/IRReader.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include "lib/bpf/from_ir.h"

#define DEFAULT_CPU "v3" /* 32-bit and atomic operations, which v1 lacks; every kernel that runs XDP programs today has them */

static bool begins_with(const char *bytes, size_t len, const char *word)
{
	return len >= strlen(word) && !memcmp(bytes, word, strlen(word));
}

static bool is_bitcode(const char *bytes, size_t len)
{
	return begins_with(bytes, len, "BC\xc0\xde") || begins_with(bytes, len, "\xde\xc0\x17\x0b");
}

bool bpf_is_ir(const void *bytes, size_t len, const char *name)
{
	static const char *const beginnings[] = { "; ModuleID", "source_filename", "target triple", "target datalayout" };
	const char *suffix = strrchr(name, '.');

	for (size_t i = 0; i < sizeof(beginnings) / sizeof(*beginnings); i++)
		if (begins_with(bytes, len, beginnings[i]))
			return true;
	return is_bitcode(bytes, len) || (suffix && !strcmp(suffix, ".ll") && !begins_with(bytes, len, "\177ELF"));
}

/* The child's sentence. Not shunt_fail's: the host's log callback has no business here, and a thread of the host's may have held its lock. */
static char reason[BPF_IR_SENTENCE];

static int __attribute__((format(printf, 2, 3))) give_up(int err, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(reason, sizeof(reason), format, args);
	va_end(args);
	return -err;
}

static void take_diagnostic(LLVMDiagnosticInfoRef info, void *user)
{
	char *sentence = user, *text;

	if (LLVMGetDiagInfoSeverity(info) != LLVMDSError || *sentence)
		return;
	text = LLVMGetDiagInfoDescription(info);
	snprintf(sentence, BPF_IR_SENTENCE, "%s", text);
	LLVMDisposeMessage(text);
}

/* Says why, in one line, and takes LLVM's message. */
static int refuse(const char *name, const char *what, char *message)
{
	int err;

	if (message)
		message[strcspn(message, "\n")] = 0;
	err = give_up(EINVAL, "%s: %s: %s", name, what, message ? message : "LLVM gives no reason");

	LLVMDisposeMessage(message);
	return err;
}

static int check_triple(LLVMModuleRef module, const char *name)
{
	const char *triple = LLVMGetTarget(module);

	if (!strncmp(triple, "bpfeb", strlen("bpfeb")))
		return give_up(ENOTSUP, "%s: the module is for big-endian BPF; compile it with -target bpfel", name);
	if (strcmp(triple, "bpf") && strcmp(triple, "bpfel") && strncmp(triple, "bpf-", 4) && strncmp(triple, "bpfel-", 6))
		return give_up(EINVAL, "%s: the module's target triple '%s' is not bpf; compile it with clang -target bpf -emit-llvm", name, triple);
	return 0;
}

/* BPF has one instruction set for a module, clang says which one with each function. */
static void choose_cpu(LLVMModuleRef module, char *cpu, size_t room)
{
	static const char kind[] = "target-cpu";

	snprintf(cpu, room, DEFAULT_CPU);
	for (LLVMValueRef function = LLVMGetFirstFunction(module); function; function = LLVMGetNextFunction(function)) {
		LLVMAttributeRef attribute = LLVMGetStringAttributeAtIndex(function, LLVMAttributeFunctionIndex, kind, strlen(kind));
		unsigned len;
		const char *value = attribute ? LLVMGetStringAttributeValue(attribute, &len) : NULL;

		if (value && len == 2 && value[0] == 'v' && value[1] > DEFAULT_CPU[1] && value[1] <= '4')
			snprintf(cpu, room, "%.2s", value);
	}
}

/* Code that clang left as it is written (-O0) calls helpers through variables and reads CO-RE fields through intrinsics. */
static int optimise(LLVMModuleRef module, LLVMTargetMachineRef machine, const char *name)
{
	const unsigned optnone = LLVMGetEnumAttributeKindForName("optnone", strlen("optnone"));
	LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
	LLVMErrorRef error;

	for (LLVMValueRef function = LLVMGetFirstFunction(module); function; function = LLVMGetNextFunction(function))
		LLVMRemoveEnumAttributeAtIndex(function, LLVMAttributeFunctionIndex, optnone);
	error = LLVMRunPasses(module, "default<O2>", machine, options);
	LLVMDisposePassBuilderOptions(options);
	if (error) {
		char *message = LLVMGetErrorMessage(error);
		int err = give_up(EINVAL, "%s: LLVM cannot optimise the module: %s", name, message);

		LLVMDisposeErrorMessage(message);
		return err;
	}
	return 0;
}

int bpf_ir_compile(const void *bytes, size_t len, const char *name, LLVMMemoryBufferRef *object, const char **why)
{
	static char sentence[BPF_IR_SENTENCE];
	LLVMContextRef context = LLVMContextCreate();
	LLVMModuleRef module;
	LLVMTargetRef target;
	LLVMTargetMachineRef machine;
	LLVMMemoryBufferRef buffer;
	char *message = NULL, cpu[8];
	int err;

	*why = reason;
	LLVMInitializeBPFTargetInfo();
	LLVMInitializeBPFTarget();
	LLVMInitializeBPFTargetMC();
	LLVMInitializeBPFAsmPrinter();
	LLVMInitializeBPFAsmParser();
	LLVMContextSetDiagnosticHandler(context, take_diagnostic, sentence);
	/* LLVM's sentence begins with the name of the buffer, and a line's number where there are lines. */
	buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(bytes, len, is_bitcode(bytes, len) ? "bitcode" : "line");
	if (LLVMParseIRInContext(context, buffer, &module, &message))
		return refuse(name, "cannot be read as LLVM IR", message);
	err = check_triple(module, name);
	if (err)
		return err;
	if (LLVMVerifyModule(module, LLVMReturnStatusAction, &message))
		return refuse(name, "is not valid IR", message);
	if (LLVMGetTargetFromTriple(LLVMGetTarget(module), &target, &message))
		return refuse(name, "cannot be compiled", message);
	choose_cpu(module, cpu, sizeof(cpu));
	machine = LLVMCreateTargetMachine(target, LLVMGetTarget(module), cpu, "", LLVMCodeGenLevelDefault, LLVMRelocDefault, LLVMCodeModelDefault);
	if (!machine)
		return give_up(ENOTSUP, "%s: this LLVM has no code generator for BPF", name);
	err = optimise(module, machine, name);
	if (!err && LLVMTargetMachineEmitToMemoryBuffer(machine, module, LLVMObjectFile, &message, object))
		err = refuse(name, "does not compile", message);
	if (!err && *sentence)
		err = give_up(EINVAL, "%s: does not compile: %s", name, sentence);
	return err;
}
