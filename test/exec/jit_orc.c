/* SPDX-License-Identifier: MIT */
/* Packs under a host's own LLJIT, by LLVM's C API alone, and objects that the host compiled itself. */
#include <errno.h>
#include <stdlib.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <shunt/orc.h>
#include "test/exec/jit_test.h"

static LLVMTargetMachineRef target_machine(void)
{
	char *triple = LLVMGetDefaultTargetTriple(), *error = NULL;
	LLVMTargetMachineRef machine;
	LLVMTargetRef target;

	LLVMInitializeNativeTarget();
	LLVMInitializeNativeAsmPrinter();
	cr_assert_eq(LLVMGetTargetFromTriple(triple, &target, &error), 0, "%s", error);
	machine = LLVMCreateTargetMachine(target, triple, "", "", LLVMCodeGenLevelDefault, LLVMRelocPIC, LLVMCodeModelSmall);
	LLVMDisposeMessage(triple);
	return machine;
}

static bool is_in_pack(const void *address)
{
	struct shunt_block block;

	return !shunt_pack_find(address, &block, NULL);
}

/* On arm64 packs are guarded: who calls by address must land on a landing pad, which the host's own code generation is told to make. */
static const char text[] = "@numbers = internal constant [3 x i64] [i64 5, i64 6, i64 7]\n"
			   "@hits = global i64 0\n"
			   "declare i64 @helper(i64)\n"
			   "define i64 @entry(i64 %i) \"branch-target-enforcement\"=\"true\" {\n"
			   "  %p = getelementptr [3 x i64], ptr @numbers, i64 0, i64 %i\n  %v = load i64, ptr %p\n"
			   "  %n = load i64, ptr @hits\n  %m = add i64 %n, 1\n  store i64 %m, ptr @hits\n"
			   "  %r = call i64 @helper(i64 %v)\n  ret i64 %r\n}\n";

static int64_t helper(int64_t value)
{
	return value * 10;
}

Test(jit_orc, a_host_s_own_lljit_places_its_code_in_packs, .timeout = 60)
{
	LLVMOrcLLJITBuilderRef builder = LLVMOrcCreateLLJITBuilder();
	LLVMOrcThreadSafeContextRef context = LLVMOrcCreateNewThreadSafeContext();
	LLVMOrcCSymbolMapPair pair = { .Sym = { (uintptr_t)helper, { LLVMJITSymbolGenericFlagsExported, 0 } } };
	LLVMOrcExecutorAddress address = 0, data = 0;
	LLVMOrcLLJITRef lljit;
	LLVMModuleRef module;

	LLVMOrcLLJITBuilderSetJITTargetMachineBuilder(builder, LLVMOrcJITTargetMachineBuilderCreateFromTargetMachine(target_machine()));
	LLVMOrcLLJITBuilderSetObjectLinkingLayerCreator(builder, shunt_orc_object_layer, NULL);
	cr_assert_null(LLVMOrcCreateLLJIT(&lljit, builder));
	module = jit_test_parse(LLVMOrcThreadSafeContextGetContext(context), text);
	pair.Name = LLVMOrcLLJITMangleAndIntern(lljit, "helper");
	cr_assert_null(LLVMOrcJITDylibDefine(LLVMOrcLLJITGetMainJITDylib(lljit), LLVMOrcAbsoluteSymbols(&pair, 1)));
	cr_assert_null(LLVMOrcLLJITAddLLVMIRModule(lljit, LLVMOrcLLJITGetMainJITDylib(lljit), LLVMOrcCreateNewThreadSafeModule(module, context)));
	LLVMOrcDisposeThreadSafeContext(context);
	cr_assert_null(LLVMOrcLLJITLookup(lljit, &address, "entry"));
	cr_assert_null(LLVMOrcLLJITLookup(lljit, &data, "hits"));
	cr_expect(is_in_pack((void *)(uintptr_t)address));
	cr_expect_eq(((int64_t (*)(int64_t))(uintptr_t)address)(2), 70);
	cr_expect_eq(*(int64_t *)(uintptr_t)data, 1);
	cr_assert_null(LLVMOrcDisposeLLJIT(lljit));
	cr_expect_eq(shunt_quiesce(), 0);
	cr_expect(!is_in_pack((void *)(uintptr_t)address), "what the session held goes with it");
}

/* The object of the text above, to be disposed of. */
static LLVMMemoryBufferRef compile(void)
{
	LLVMTargetMachineRef machine = target_machine();
	LLVMContextRef context = LLVMContextCreate();
	LLVMModuleRef module = jit_test_parse(context, text);
	LLVMMemoryBufferRef object;
	char *error = NULL;

	cr_assert_eq(LLVMTargetMachineEmitToMemoryBuffer(machine, module, LLVMObjectFile, &error, &object), 0, "%s", error);
	LLVMDisposeModule(module);
	LLVMContextDispose(context);
	LLVMDisposeTargetMachine(machine);
	return object;
}

static const void *resolve(void *user, const char *name)
{
	++*(int *)user;
	return strcmp(name, "helper") ? NULL : (const void *)helper;
}

Test(jit_orc, a_finished_object_is_loaded_run_and_unloaded, .timeout = 60)
{
	LLVMMemoryBufferRef bytes = compile();
	struct shunt_object *object = NULL;
	int64_t (*entry)(int64_t);
	int nr_asked = 0;

	cr_assert_eq(shunt_load_object(NULL, LLVMGetBufferStart(bytes), LLVMGetBufferSize(bytes), resolve, &nr_asked, &object), 0, "%s",
		     shunt_error());
	LLVMDisposeMemoryBuffer(bytes);
	cr_expect_eq(nr_asked, 1);
	cr_expect_null(shunt_object_lookup(object, "nothing"));
	entry = (int64_t (*)(int64_t))shunt_object_lookup(object, "entry");
	cr_assert_not_null(entry);
	cr_expect(is_in_pack((const void *)entry));
	cr_expect_eq(entry(0), 50);
	cr_expect_eq(*(int64_t *)shunt_object_lookup(object, "hits"), 1);
	shunt_object_unload(object);
	shunt_object_unload(NULL);
	shunt_quiesce();
	shunt_quiesce();
	cr_expect(!is_in_pack((const void *)entry));
}

Test(jit_orc, an_undefined_symbol_is_named, .timeout = 60)
{
	LLVMMemoryBufferRef bytes = compile();
	struct shunt_object *object = NULL;

	cr_expect_eq(shunt_load_object(NULL, LLVMGetBufferStart(bytes), LLVMGetBufferSize(bytes), NULL, NULL, &object), -ENOENT);
	cr_expect_not_null(strstr(shunt_error(), "'helper'"));
	cr_expect_null(object);
	LLVMDisposeMemoryBuffer(bytes);
}

/* Every byte of the headers and the symbol table wrong, and every length: an error or a load, never a crash. */
Test(jit_orc, a_broken_object_is_refused, .timeout = 120)
{
	LLVMMemoryBufferRef whole = compile();
	size_t len = LLVMGetBufferSize(whole);
	char *bytes = malloc(len);
	int nr_asked = 0;

	memcpy(bytes, LLVMGetBufferStart(whole), len);
	for (size_t cut = 0; cut < len; cut += 1 + len / 97) {
		struct shunt_object *object = NULL;

		if (!shunt_load_object(NULL, bytes, cut, resolve, &nr_asked, &object))
			shunt_object_unload(object);
		else
			cr_expect_neq(*shunt_error(), '\0');
	}
	for (size_t at = 0; at < 64; at++) {
		struct shunt_object *object = NULL;

		bytes[at] = (char)~bytes[at];
		if (!shunt_load_object(NULL, bytes, len, resolve, &nr_asked, &object))
			shunt_object_unload(object);
		bytes[at] = (char)~bytes[at];
	}
	free(bytes);
	LLVMDisposeMemoryBuffer(whole);
}
