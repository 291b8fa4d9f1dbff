/* SPDX-License-Identifier: MIT */
/* What the JIT refuses, each with a sentence that names it, and nothing left behind. Several of these end the process inside plain LLVM. */
#include "jit_test.h"

#include <errno.h>
#include <unistd.h>

static const struct shunt_jit_module_options no_passes = { .pipeline = "" };

/* Adding text must fail with err and a sentence that holds word; afterwards the JIT works and packs hold what they held. */
static void expect_refused(const char *text, int err, const char *word)
{
	struct shunt_jit *jit = jit_test_create();
	struct shunt_jit_module *module = jit_test_must_add(jit, "define i64 @f() {\n ret i64 1\n}\n", &no_passes);
	struct shunt_pack_stats before, after;
	int result;

	cr_assert(shunt_pack_get_stats(NULL, &before) == 0);
	result = jit_test_add(jit, text, &no_passes, &module);
	cr_expect(result == err, "%d instead of %d: %s", result, err, result ? shunt_error() : "");
	if (result)
		cr_expect(strstr(shunt_error(), word), "'%s' is not in: %s", word, shunt_error());
	cr_assert(shunt_pack_get_stats(NULL, &after) == 0);
	for (int s = 0; s < SHUNT_NR_SEGMENTS; s++)
		cr_expect(after.nr_blocks[s] == before.nr_blocks[s]);
	module = jit_test_must_add(jit, "define i64 @f() {\n ret i64 2\n}\n", &no_passes);
	cr_expect(((int64_t (*)(void))shunt_jit_lookup(module, "f"))() == 2);
	shunt_jit_destroy(jit);
}

Test(jit_errors, an_undefined_symbol_is_named)
{
	expect_refused("declare i64 @nobody_has_this()\ndefine i64 @f() {\n %r = call i64 @nobody_has_this()\n ret i64 %r\n}\n",
		       -ENOENT, "nobody_has_this");
}

Test(jit_errors, what_the_process_happens_to_export_is_not_given)
{
	expect_refused("declare i32 @system(ptr)\ndefine i32 @f(ptr %c) {\n %r = call i32 @system(ptr %c)\n ret i32 %r\n}\n", -ENOENT,
		       "system");
}

Test(jit_errors, a_missing_dispatcher_is_named)
{
	expect_refused("declare i64 @shunt_stub.not_made()\ndefine i64 @f() {\n %r = call i64 @shunt_stub.not_made()\n ret i64 %r\n}\n",
		       -ENOENT, "dispatcher 'not_made'");
}

Test(jit_errors, a_module_for_another_machine_is_refused)
{
	expect_refused("target triple = \"riscv64-unknown-linux-gnu\"\ndefine i64 @f() {\n ret i64 1\n}\n", -EINVAL, "riscv64");
}

Test(jit_errors, a_foreign_data_layout_is_refused)
{
	expect_refused("target datalayout = \"E-p:32:32\"\ndefine i64 @f() {\n ret i64 1\n}\n", -EINVAL, "data layout");
}

Test(jit_errors, a_thread_local_global_is_refused)
{
	expect_refused("@t = thread_local global i64 1\ndefine i64 @f() {\n %r = load i64, ptr @t\n ret i64 %r\n}\n", -EINVAL, "'t'");
}

Test(jit_errors, constructors_are_refused)
{
	expect_refused("@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 1, ptr @c, ptr null }]\n"
		       "define void @c() {\n ret void\n}\n", -EINVAL, "llvm.global_ctors");
}

Test(jit_errors, bad_inline_assembly_is_an_error_and_not_an_exit)
{
	expect_refused("define void @f() {\n call void asm sideeffect \"no such instruction\", \"\"()\n ret void\n}\n", -EINVAL, "instruction");
}

Test(jit_errors, bad_module_assembly_is_an_error_and_not_an_exit)
{
	expect_refused("module asm \"no such instruction\"\ndefine void @f() {\n ret void\n}\n", -EINVAL, "instruction");
}

Test(jit_errors, an_unwind_frame_left_open_by_module_assembly_is_refused)
{
	const struct shunt_jit_options options = { .opt_level = 0 };
	struct shunt_jit_module *module;
	struct shunt_jit *jit;
	int err;

	cr_assert(shunt_jit_create(&options, &jit) == 0);
	err = jit_test_add(jit,
			   "module asm \".section foo\"\nmodule asm \".cfi_startproc\"\nmodule asm \".cfi_startproc\"\nmodule asm \".if 1\"\n"
			   "define void @f() {\n ret void\n}\n", &no_passes, &module);
	cr_expect(err == -EINVAL);
	cr_expect(strstr(shunt_error(), ".cfi_startproc"), "%s", shunt_error());
	shunt_jit_destroy(jit);
}

Test(jit_errors, an_impossible_register_constraint_is_an_error)
{
	expect_refused("define void @f() {\n call void asm sideeffect \"\", \"{nosuchregister}\"(i64 1)\n ret void\n}\n", -EINVAL,
		       "constraint");
}

Test(jit_errors, an_intrinsic_of_another_cpu_is_refused)
{
	expect_refused("declare i32 @llvm.amdgcn.workitem.id.x()\n"
		       "define i32 @f() {\n %r = call i32 @llvm.amdgcn.workitem.id.x()\n ret i32 %r\n}\n", -EINVAL, "llvm.amdgcn");
}

Test(jit_errors, an_intrinsic_that_nothing_lowers_is_refused)
{
	expect_refused("declare void @llvm.pcmarker(i32)\ndefine void @f() {\n call void @llvm.pcmarker(i32 1)\n ret void\n}\n", -EINVAL,
		       "llvm.pcmarker");
}

Test(jit_errors, a_register_read_by_name_is_refused)
{
	expect_refused("declare i64 @llvm.read_register.i64(metadata)\n"
		       "define i64 @f() {\n %r = call i64 @llvm.read_register.i64(metadata !0)\n ret i64 %r\n}\n!0 = !{!\"rbx\"}\n", -EINVAL, "rbx");
}

Test(jit_errors, the_stack_pointer_may_be_read_by_name)
{
#if defined(__x86_64__)
	const char *name = "!0 = !{!\"rsp\"}\n";
#else
	const char *name = "!0 = !{!\"sp\"}\n";
#endif
	struct shunt_jit *jit = jit_test_create();
	struct shunt_jit_module *module;
	char text[256];
	uint64_t here = 0;

	snprintf(text, sizeof(text),
		 "declare i64 @llvm.read_register.i64(metadata)\n"
		 "define i64 @f() {\n %%r = call i64 @llvm.read_register.i64(metadata !0)\n ret i64 %%r\n}\n%s", name);
	module = jit_test_must_add(jit, text, &no_passes);
	here = ((uint64_t (*)(void))shunt_jit_lookup(module, "f"))();
	cr_expect(here < (uintptr_t)&here + 65536 && here > (uintptr_t)&here - 65536);
	shunt_jit_destroy(jit);
}

Test(jit_errors, a_calling_convention_of_another_cpu_is_refused)
{
	expect_refused("define amdgpu_kernel void @f() {\n ret void\n}\n", -EINVAL, "calling convention");
}

Test(jit_errors, a_scalable_vector_is_refused_where_there_is_none)
{
#if defined(__x86_64__)
	expect_refused("define void @f(ptr %p) {\n %v = load <vscale x 4 x i32>, ptr %p\n store <vscale x 4 x i32> %v, ptr %p\n ret void\n}\n",
		       -EINVAL, "'f'");
#else
	cr_skip_test("this CPU may have scalable vectors");
#endif
}

Test(jit_errors, a_garbage_collector_is_refused)
{
	expect_refused("define void @f() gc \"nobody\" {\n ret void\n}\n", -EINVAL, "nobody");
}

Test(jit_errors, writable_code_is_refused)
{
	expect_refused("module asm \".section .mixed,\\22awx\\22\"\nmodule asm \".globl both\"\nmodule asm \"both: .quad 0\"\ndefine void @f() {\n ret void\n}\n", -EINVAL,
		       "writable and executable");
}

Test(jit_errors, an_alignment_above_a_page_is_refused)
{
	expect_refused("@a = global i64 1, align 65536\ndefine ptr @f() {\n ret ptr @a\n}\n", -EINVAL, "align");
}

Test(jit_errors, invalid_ir_is_refused)
{
	struct shunt_jit *jit = jit_test_create();
	LLVMContextRef context = LLVMContextCreate();
	LLVMModuleRef module = jit_test_parse(context, "define i64 @f() {\n ret i64 1\n}\n");
	LLVMTypeRef type = LLVMFunctionType(LLVMInt64TypeInContext(context), NULL, 0, 0);
	struct shunt_jit_module *out;

	/* A block without a terminator. */
	LLVMAppendBasicBlockInContext(context, LLVMAddFunction(module, "broken", type), "entry");
	cr_expect(shunt_jit_add(jit, context, module, &no_passes, &out) == -EINVAL);
	cr_expect(strstr(shunt_error(), "broken"), "%s", shunt_error());
	shunt_jit_destroy(jit);
}

Test(jit_errors, a_context_that_is_not_the_modules_is_refused)
{
	struct shunt_jit *jit = jit_test_create();
	LLVMContextRef context = LLVMContextCreate();
	struct shunt_jit_module *out;

	cr_expect(shunt_jit_add(jit, context, NULL, &no_passes, &out) == -EINVAL);
	shunt_jit_destroy(jit);
}

Test(jit_errors, optimisation_level_four_does_not_exist)
{
	const struct shunt_jit_options options = { .opt_level = 4 };
	struct shunt_jit *jit = NULL;

	cr_expect(shunt_jit_create(&options, &jit) == -EINVAL);
	cr_expect(jit == NULL);
}

Test(jit_errors, an_object_out_of_reach_is_a_range_error)
{
	/* dso_local: the front end promises that the object is near, and it is not. */
	const struct shunt_jit_symbol symbols[] = { { "far", (void *)0x10 } };
	const struct shunt_jit_module_options options = { .pipeline = "", .symbols = symbols, .nr_symbols = 1 };
	struct shunt_jit *jit = jit_test_create();
	struct shunt_jit_module *out;
	struct shunt_pack_stats stats;
	int err = jit_test_add(jit, "@far = external dso_local global i64\ndefine i64 @f() {\n %r = load i64, ptr @far\n ret i64 %r\n}\n",
			       &options, &out);

	cr_expect(err == -ERANGE, "%d: %s", err, shunt_error());
	cr_expect(strstr(shunt_error(), "far"), "%s", shunt_error());
	cr_assert(shunt_pack_get_stats(NULL, &stats) == 0);
	cr_expect(stats.nr_blocks[SHUNT_SEGMENT_CODE] == 0);
	shunt_jit_destroy(jit);
}

/* What LLVM would print goes to standard error: watch it. */
Test(jit_errors, features_of_another_cpu_are_dropped_without_a_word)
{
	FILE *capture = tmpfile();
	struct shunt_jit *jit = jit_test_create();
	int saved = dup(STDERR_FILENO);
	struct shunt_jit_module *module = NULL;
	int err;

	cr_assert(capture && saved >= 0);
	fflush(stderr);
	dup2(fileno(capture), STDERR_FILENO);
	err = jit_test_add(jit, "define i64 @f() \"target-cpu\"=\"v3\" \"target-features\"=\"+alu32,-sse4.2,+dwarfris\" {\n ret i64 1\n}\n",
			   &no_passes, &module);
	dup2(saved, STDERR_FILENO);
	close(saved);
	cr_expect(err == 0);
	fseek(capture, 0, SEEK_END);
	cr_expect(ftell(capture) == 0, "LLVM printed %ld bytes", ftell(capture));
	fclose(capture);
	shunt_jit_destroy(jit);
}

Test(jit_errors, an_intrinsic_whose_feature_the_machine_lacks_is_refused)
{
#if defined(__x86_64__)
	/* XOP was AMD only and is gone, AMX is Intel only: no processor has both. */
	struct shunt_jit *jit = jit_test_create();
	const char *xop = "declare <4 x i32> @llvm.x86.xop.vphadduwd(<8 x i16>)\n"
			  "define <4 x i32> @f(<8 x i16> %x) {\n"
			  "  %r = call <4 x i32> @llvm.x86.xop.vphadduwd(<8 x i16> %x)\n  ret <4 x i32> %r\n}\n";
	const char *amx = "declare void @llvm.x86.tilezero(i8 immarg)\n"
			  "define void @f() {\n  call void @llvm.x86.tilezero(i8 1)\n  ret void\n}\n";
	struct shunt_jit_module *module;
	int refused = 0;

	refused += jit_test_add(jit, xop, &no_passes, &module) == -EINVAL && strstr(shunt_error(), "xop");
	refused += jit_test_add(jit, amx, &no_passes, &module) == -EINVAL && strstr(shunt_error(), "amx-tile");
	cr_expect(refused >= 1, "%s", shunt_error());
	shunt_jit_destroy(jit);
#else
	expect_refused("declare i32 @llvm.x86.rdpid()\ndefine i32 @f() {\n %r = call i32 @llvm.x86.rdpid()\n ret i32 %r\n}\n", -EINVAL, "rdpid");
#endif
}

Test(jit_errors, a_full_arena_is_out_of_memory_and_gives_back_what_it_took)
{
	/* One pack: the code takes it, and the constants find none. */
	const struct shunt_arena_options small = { .size = SHUNT_PACK_SIZE };
	struct shunt_jit_options options = { .opt_level = 2 };
	struct shunt_pack_stats stats;
	struct shunt_jit_module *module;
	struct shunt_jit *jit;
	int err;

	cr_assert(shunt_arena_create(&small, &options.arena) == 0, "%s", shunt_error());
	cr_assert(shunt_jit_create(&options, &jit) == 0);
	err = jit_test_add(jit,
			   "@k = internal constant [4 x i64] [i64 1, i64 2, i64 3, i64 4]\n"
			   "define i64 @f(i64 %i) {\n"
			   "  %p = getelementptr [4 x i64], ptr @k, i64 0, i64 %i\n  %a = load i64, ptr %p\n  ret i64 %a\n}\n", &no_passes,
			   &module);
	cr_expect(err == -ENOMEM, "%d: %s", err, shunt_error());
	cr_assert(shunt_pack_get_stats(options.arena, &stats) == 0);
	for (int s = 0; s < SHUNT_NR_SEGMENTS; s++)
		cr_expect(stats.nr_blocks[s] == 0);
	shunt_jit_destroy(jit);
	cr_expect(shunt_arena_destroy(options.arena) == 0, "%s", shunt_error());
}
