/* SPDX-License-Identifier: MIT */
/* Builds the receive loop's IR: a load of the program, a marked indirect call, a store of the verdict. */
#include "lib/replay/loop.h"

#include <errno.h>
#include <string.h>
#include <llvm-c/Core.h>
#include "runtime/log.h"

#define LOOP_NAME "shunt_replay_loop"

static void mark_call(LLVMContextRef context, LLVMValueRef call, const char *dispatcher)
{
	LLVMMetadataRef name = LLVMMDStringInContext2(context, dispatcher, strlen(dispatcher));
	LLVMMetadataRef node = LLVMMDNodeInContext2(context, &name, 1);

	LLVMSetMetadata(call, LLVMGetMDKindIDInContext(context, SHUNT_DISPATCH_MD, strlen(SHUNT_DISPATCH_MD)),
			LLVMMetadataAsValue(context, node));
}

static LLVMValueRef element(LLVMBuilderRef builder, LLVMTypeRef type, LLVMValueRef base, LLVMValueRef index)
{
	return LLVMBuildInBoundsGEP2(builder, type, base, &index, 1, "");
}

static void build_body(LLVMContextRef context, LLVMBuilderRef builder, LLVMValueRef function, const char *dispatcher)
{
	LLVMTypeRef ptr = LLVMPointerTypeInContext(context, 0);
	LLVMTypeRef i64 = LLVMInt64TypeInContext(context);
	LLVMTypeRef i32 = LLVMInt32TypeInContext(context);
	LLVMTypeRef program_type = LLVMFunctionType(i32, &ptr, 1, false);
	LLVMBasicBlockRef entry = LLVMAppendBasicBlockInContext(context, function, "entry");
	LLVMBasicBlockRef body = LLVMAppendBasicBlockInContext(context, function, "frame");
	LLVMBasicBlockRef done = LLVMAppendBasicBlockInContext(context, function, "done");
	LLVMValueRef zero = LLVMConstInt(i64, 0, false);
	LLVMValueRef nr = LLVMGetParam(function, 2);
	LLVMValueRef index, next, program, ctx, verdict;

	LLVMPositionBuilderAtEnd(builder, entry);
	LLVMBuildCondBr(builder, LLVMBuildICmp(builder, LLVMIntEQ, nr, zero, ""), done, body);

	LLVMPositionBuilderAtEnd(builder, body);
	index = LLVMBuildPhi(builder, i64, "index");
	program = LLVMBuildLoad2(builder, ptr, LLVMGetParam(function, 0), "program");
	/* Another thread may replace the queue's program between two frames. */
	LLVMSetOrdering(program, LLVMAtomicOrderingMonotonic);
	LLVMSetAlignment(program, 8);
	ctx = LLVMBuildLoad2(builder, ptr, element(builder, ptr, LLVMGetParam(function, 1), index), "ctx");
	verdict = LLVMBuildCall2(builder, program_type, program, &ctx, 1, "verdict");
	mark_call(context, verdict, dispatcher);
	LLVMBuildStore(builder, verdict, element(builder, i32, LLVMGetParam(function, 3), index));
	next = LLVMBuildNUWAdd(builder, index, LLVMConstInt(i64, 1, false), "next");
	LLVMBuildCondBr(builder, LLVMBuildICmp(builder, LLVMIntEQ, next, nr, ""), done, body);
	LLVMAddIncoming(index, (LLVMValueRef[]){ zero, next }, (LLVMBasicBlockRef[]){ entry, body }, 2);

	LLVMPositionBuilderAtEnd(builder, done);
	LLVMBuildRetVoid(builder);
}

int shunt_replay_loop_compile(struct shunt_jit *jit, const char *dispatcher, const char *pipeline, shunt_remark_fn *remark, void *remark_user,
			      struct shunt_jit_module **module, shunt_replay_loop_fn **loop)
{
	struct shunt_pass_options passes = { .remark = remark, .remark_user = remark_user };
	struct shunt_jit_module_options options = { .pipeline = pipeline, .passes = &passes };
	LLVMContextRef context = LLVMContextCreate();
	LLVMModuleRef ir = LLVMModuleCreateWithNameInContext(LOOP_NAME, context);
	LLVMBuilderRef builder = LLVMCreateBuilderInContext(context);
	LLVMTypeRef ptr = LLVMPointerTypeInContext(context, 0);
	LLVMTypeRef params[] = { ptr, ptr, LLVMInt64TypeInContext(context), ptr };
	LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(context), params, 4, false);
	unsigned nounwind = LLVMGetEnumAttributeKindForName("nounwind", strlen("nounwind"));
	LLVMValueRef function;
	int err;

	LLVMSetTarget(ir, shunt_jit_triple(jit));
	LLVMSetDataLayout(ir, shunt_jit_data_layout(jit));
	function = LLVMAddFunction(ir, LOOP_NAME, type);
	LLVMAddAttributeAtIndex(function, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, LLVMCreateEnumAttribute(context, nounwind, 0));
	build_body(context, builder, function, dispatcher);
	LLVMDisposeBuilder(builder);

	err = shunt_jit_add(jit, context, ir, &options, module);
	if (err)
		return err;
	*loop = (shunt_replay_loop_fn *)(uintptr_t)shunt_jit_lookup(*module, LOOP_NAME);
	if (!*loop) {
		shunt_jit_remove(*module);
		return shunt_fail(ENOENT, "the compiled receive loop has no symbol " LOOP_NAME);
	}
	return 0;
}
