/* SPDX-License-Identifier: MIT */
/* A front end in one function: builds a program's IR, compiles it into a pack, and calls it through a hook by direct jumps. */
#include <stdio.h>
#include <llvm-c/Core.h>
#include <shunt/dispatcher.h>
#include <shunt/jit.h>
#include <shunt/log.h>
#include <shunt/reader.h>

/* The hook: long on_event(long size, const void *program). */
SHUNT_DISPATCHER_DEFINE(on_event, long, (long size));

int main(void)
{
	struct shunt_jit *jit;
	struct shunt_jit_module *compiled;
	void *program;

	/* long twice(long size) { return size * 2; } */
	LLVMContextRef context = LLVMContextCreate();
	LLVMModuleRef module = LLVMModuleCreateWithNameInContext("twice", context);
	LLVMTypeRef type = LLVMInt64TypeInContext(context);
	LLVMValueRef function = LLVMAddFunction(module, "twice", LLVMFunctionType(type, &type, 1, 0));
	LLVMBuilderRef builder = LLVMCreateBuilderInContext(context);

	LLVMPositionBuilderAtEnd(builder, LLVMAppendBasicBlockInContext(context, function, "entry"));
	LLVMBuildRet(builder, LLVMBuildMul(builder, LLVMGetParam(function, 0), LLVMConstInt(type, 2, 0), ""));
	LLVMDisposeBuilder(builder);

	if (shunt_jit_create(NULL, &jit) || shunt_jit_add(jit, context, module, NULL, &compiled)) {
		fprintf(stderr, "%s\n", shunt_error());
		return 1;
	}
	program = shunt_jit_lookup(compiled, "twice");
	if (shunt_dispatcher_attach(shunt_dispatcher_on_event(), program)) {
		fprintf(stderr, "%s\n", shunt_error());
		return 1;
	}

	shunt_read_begin();
	printf("on_event(21) = %ld\n", on_event(21, program));
	shunt_read_end();

	shunt_dispatcher_detach(shunt_dispatcher_on_event(), program);
	shunt_jit_destroy(jit);
	return 0;
}
