/* SPDX-License-Identifier: MIT */
/*
 * LLVM as a front end in C gets it: LLJIT with the linking layer that homes each object in a SectionMemoryManager of its own, both from the C
 * API. The object is assembled once, and only its number and its symbol change, so what is counted of an install is: adding the
 * object, parsing and linking it, its memory, the lookup of its symbol. No compilation. A release removes the program's resource tracker,
 * which takes longer the more there are.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <llvm-c/Core.h>
#include <llvm-c/Error.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/OrcEE.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>

#include "bench/pack_program.h"
#include "bench/peer.h"

#define NAME "program_00000000"
#define NUMBER_AT 0x5a5a5a5au /* of the program in the assembled object */

static LLVMOrcLLJITRef jit;
static char *object;
static size_t object_len, name_at, code_at;

/* Why is not of interest: the table says how many programs there were. */
static bool failed(LLVMErrorRef error)
{
	LLVMConsumeError(error);
	return error != NULL;
}

static void ignore_report(void *user, LLVMErrorRef error)
{
	LLVMConsumeError(error);
}

/* An object with the program and its unwind table, as a compiler makes it. */
static int assemble(void)
{
	LLVMContextRef context = LLVMContextCreate();
	LLVMModuleRef module = LLVMModuleCreateWithNameInContext("program", context);
	char *triple = LLVMGetDefaultTargetTriple(), *message = NULL;
	char text[PROGRAM_LEN * 6 + 256];
	uint8_t code[PROGRAM_LEN];
	LLVMTargetRef target;
	LLVMTargetMachineRef machine;
	LLVMMemoryBufferRef buffer = NULL;
	size_t len = (size_t)snprintf(text, sizeof(text), ".text\n.p2align 6\n.globl " NAME "\n.type " NAME ",@function\n" NAME ":\n.cfi_startproc\n");

	program_write(code, NUMBER_AT);
	for (size_t i = 0; i < PROGRAM_LEN; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%u", i % 20 ? "," : i ? "\n.byte " : ".byte ", code[i]);
	snprintf(text + len, sizeof(text) - len, "\n.cfi_endproc\n.size " NAME ", %d\n", PROGRAM_LEN);
	LLVMSetModuleInlineAsm2(module, text, strlen(text));
	LLVMSetTarget(module, triple);
	if (LLVMGetTargetFromTriple(triple, &target, &message) == 0) {
		machine = LLVMCreateTargetMachine(target, triple, "", "", LLVMCodeGenLevelNone, LLVMRelocPIC, LLVMCodeModelSmall);
		LLVMTargetMachineEmitToMemoryBuffer(machine, module, LLVMObjectFile, &message, &buffer);
		LLVMDisposeTargetMachine(machine);
	}
	if (buffer) {
		const char *start = LLVMGetBufferStart(buffer), *found;

		object_len = LLVMGetBufferSize(buffer);
		object = malloc(object_len);
		memcpy(object, start, object_len);
		found = memmem(object, object_len, code, sizeof(code));
		code_at = found ? (size_t)(found - object) : 0;
		found = memmem(object, object_len, NAME, sizeof(NAME));
		name_at = found ? (size_t)(found - object) : 0;
		LLVMDisposeMemoryBuffer(buffer);
	}
	LLVMDisposeMessage(message);
	LLVMDisposeMessage(triple);
	LLVMDisposeModule(module);
	LLVMContextDispose(context);
	return code_at && name_at ? 0 : -1;
}

static LLVMOrcObjectLayerRef create_layer(void *user, LLVMOrcExecutionSessionRef session, const char *triple)
{
	return LLVMOrcCreateRTDyldObjectLinkingLayerWithSectionMemoryManager(session);
}

static int open_peer(void)
{
	LLVMOrcLLJITBuilderRef builder;

	LLVMInitializeNativeTarget();
	LLVMInitializeNativeAsmPrinter();
	LLVMInitializeNativeAsmParser();
	builder = LLVMOrcCreateLLJITBuilder();
	LLVMOrcLLJITBuilderSetObjectLinkingLayerCreator(builder, create_layer, NULL);
	if (failed(LLVMOrcCreateLLJIT(&jit, builder)) || assemble() != 0) {
		fprintf(stderr, "LLVM: the JIT, or the object for it, could not be made\n");
		return -1;
	}
	LLVMOrcExecutionSessionSetErrorReporter(LLVMOrcLLJITGetExecutionSession(jit), ignore_report, NULL);
	return 0;
}

static int install(const void *code, size_t len, struct peer_program *out)
{
	static unsigned next;
	char name[sizeof(NAME)];
	LLVMOrcResourceTrackerRef tracker;
	LLVMMemoryBufferRef buffer;
	LLVMOrcExecutorAddress address = 0;

	snprintf(name, sizeof(name), "program_%08x", next++);
	memcpy(object + code_at, code, len);
	memcpy(object + name_at, name, sizeof(name));
	buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(object, object_len, name);
	tracker = LLVMOrcJITDylibCreateResourceTracker(LLVMOrcLLJITGetMainJITDylib(jit));
	if (failed(LLVMOrcLLJITAddObjectFileWithRT(jit, tracker, buffer)) || failed(LLVMOrcLLJITLookup(jit, &address, name)))
		return -1;
	out->handle = tracker;
	out->rx = (void *)(uintptr_t)address;
	return 0;
}

static int release(struct peer_program *program)
{
	LLVMOrcResourceTrackerRef tracker = program->handle;
	bool bad = failed(LLVMOrcResourceTrackerRemove(tracker));

	LLVMOrcReleaseResourceTracker(tracker);
	return bad ? -1 : 0;
}

const struct peer peer_llvm_orc = {
	.name = "LLVM, C API",
	.open = open_peer,
	.install = install,
	.release = release,
	.nr_released = 500,
};
