/* SPDX-License-Identifier: MIT */
/* Modules from text, for tests of the passes. */
#ifndef TEST_UNIT_PASSES_H
#define TEST_UNIT_PASSES_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <llvm-c/Analysis.h>
#include <llvm-c/Core.h>
#include <llvm-c/IRReader.h>
#include <shunt/passes.h>

#define X86_64 "target triple = \"x86_64-unknown-linux-gnu\"\n"
#define ARM64 "target triple = \"aarch64-unknown-linux-gnu\"\n"

/* Parses text; the test fails if it is not IR that verifies. */
static inline LLVMModuleRef parse_module(LLVMContextRef context, const char *text)
{
	LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(text, strlen(text), "test");
	LLVMModuleRef module = NULL;
	char *message = NULL;

	if (LLVMParseIRInContext(context, buffer, &module, &message))
		cr_assert_fail("%s", message);
	LLVMDisposeMessage(message);
	message = NULL;
	if (LLVMVerifyModule(module, LLVMReturnStatusAction, &message))
		cr_assert_fail("%s", message);
	LLVMDisposeMessage(message);
	return module;
}

/* Nothing the passes do may break a module. */
static inline void check_module(LLVMModuleRef module)
{
	char *message = NULL;

	if (LLVMVerifyModule(module, LLVMReturnStatusAction, &message))
		cr_assert_fail("%s", message);
	LLVMDisposeMessage(message);
}

#endif
