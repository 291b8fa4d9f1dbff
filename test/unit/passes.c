/* SPDX-License-Identifier: MIT */
/* shunt_passes_run as a host sees it: arguments, errors, counts, and that runs do not disturb each other. */
#include <errno.h>
#include "test/unit/passes.h"

static const char everything[] = X86_64
	"@array = external global i8\n"
	"@counts = external global i8\n"
	"@hash = external global i8\n"
	"@percpu_hash = external global i8\n"
	"declare i32 @shunt_cpu_id()\n"
	"declare ptr @shunt_percpu_this(ptr)\n"
	"declare ptr @shunt_percpu_of(ptr, i32)\n"
	"declare ptr @shunt_map_lookup(ptr, ptr)\n"
	"define void @f(ptr %k, ptr %p, i32 %n) {\n"
	"  call i32 @shunt_cpu_id()\n"
	"  call i32 inttoptr (i64 8 to ptr)()\n"
	"  call ptr @shunt_percpu_this(ptr %p)\n"
	"  call ptr @shunt_percpu_of(ptr %p, i32 %n)\n"
	"  call ptr @shunt_map_lookup(ptr @array, ptr %k)\n"
	"  call ptr @shunt_map_lookup(ptr @counts, ptr %k)\n"
	"  call ptr @shunt_map_lookup(ptr @counts, ptr %k)\n"
	"  call ptr @shunt_map_lookup(ptr @hash, ptr %k)\n"
	"  call ptr @shunt_map_lookup(ptr @percpu_hash, ptr %k)\n"
	"  call ptr @shunt_map_lookup(ptr %p, ptr %k)\n"
	"  call i32 %p(ptr %k), !shunt.dispatch !0\n"
	"  call i32 @shunt_cpu_id(), !shunt.dispatch !0\n"
	"  ret void\n"
	"}\n"
	"!0 = !{!\"xdp\"}\n";

static const struct shunt_pass_map maps[] = {
	{ .symbol = "array", .type = SHUNT_MAP_ARRAY, .key_size = 4, .value_size = 8, .max_entries = 3 },
	{ .symbol = "counts", .type = SHUNT_MAP_PERCPU_ARRAY, .key_size = 4, .value_size = 8, .max_entries = 3 },
	{ .symbol = "hash", .type = SHUNT_MAP_HASH, .key_size = 4, .value_size = 8, .max_entries = 3 },
	{ .symbol = "percpu_hash", .type = SHUNT_MAP_PERCPU_HASH, .key_size = 4, .value_size = 8, .max_entries = 3 },
};
static const struct shunt_pass_options options = {
	.maps = maps, .nr_maps = sizeof(maps) / sizeof(maps[0]), .cpu = SHUNT_PASS_CPU_TP, .cpu_offset = -160, .nr_cpus = 4,
};

static LLVMContextRef context;

static void setup(void)
{
	context = LLVMContextCreate();
}

static void teardown(void)
{
	LLVMContextDispose(context);
}

TestSuite(passes, .init = setup, .fini = teardown, .timeout = 60);

Test(passes, counts_say_what_became_of_every_call)
{
	LLVMModuleRef module = parse_module(context, everything);
	struct shunt_pass_counts counts = { 0 };

	cr_assert_eq(shunt_passes_run(module, "shunt", &options, &counts, NULL), 0);
	check_module(module);
	cr_expect_eq(counts.helpers, 1u);
	cr_expect_eq(counts.cpu_ids, 3u);
	cr_expect_eq(counts.percpu_this, 1u);
	cr_expect_eq(counts.percpu_of, 1u);
	cr_expect_eq(counts.array_lookups, 1u);
	cr_expect_eq(counts.percpu_array_lookups, 2u);
	cr_expect_eq(counts.hash_lookups, 1u);
	cr_expect_eq(counts.percpu_hash_lookups, 1u);
	cr_expect_eq(counts.dispatches, 1u);
	/* the lookup in an unknown map; the mark of the direct call went with that call when it was inlined */
	cr_expect_eq(counts.missed, 1u);
	LLVMDisposeModule(module);
}

Test(passes, counts_add_up_over_modules)
{
	struct shunt_pass_counts counts = { 0 };

	for (int i = 0; i < 3; i++) {
		LLVMModuleRef module = parse_module(context, everything);

		cr_assert_eq(shunt_passes_run(module, "shunt", &options, &counts, NULL), 0);
		LLVMDisposeModule(module);
	}
	cr_expect_eq(counts.percpu_array_lookups, 6u);
	cr_expect_eq(counts.missed, 3u);
}

Test(passes, options_and_counts_may_be_left_out)
{
	LLVMModuleRef module = parse_module(context, everything);

	cr_assert_eq(shunt_passes_run(module, "shunt", NULL, NULL, NULL), 0);
	check_module(module);
	LLVMDisposeModule(module);
}

Test(passes, a_second_run_changes_nothing)
{
	LLVMModuleRef module = parse_module(context, everything);
	struct shunt_pass_counts counts = { 0 };
	char *once, *twice;

	cr_assert_eq(shunt_passes_run(module, "shunt", &options, NULL, NULL), 0);
	once = LLVMPrintModuleToString(module);
	cr_assert_eq(shunt_passes_run(module, "shunt", &options, &counts, NULL), 0);
	twice = LLVMPrintModuleToString(module);
	cr_expect_str_eq(once, twice);
	cr_expect_eq(counts.cpu_ids + counts.dispatches + counts.helpers + counts.percpu_array_lookups, 0u);
	LLVMDisposeMessage(once);
	LLVMDisposeMessage(twice);
	LLVMDisposeModule(module);
}

Test(passes, equal_modules_become_equal_modules)
{
	LLVMModuleRef a = parse_module(context, everything), b = parse_module(context, everything);
	char *text_a, *text_b;

	cr_assert_eq(shunt_passes_run(a, "shunt", &options, NULL, NULL), 0);
	cr_assert_eq(shunt_passes_run(b, "shunt", &options, NULL, NULL), 0);
	text_a = LLVMPrintModuleToString(a);
	text_b = LLVMPrintModuleToString(b);
	cr_expect_str_eq(text_a, text_b);
	LLVMDisposeMessage(text_a);
	LLVMDisposeMessage(text_b);
	LLVMDisposeModule(a);
	LLVMDisposeModule(b);
}

Test(passes, only_the_named_passes_run)
{
	LLVMModuleRef module = parse_module(context, everything);
	struct shunt_pass_counts counts = { 0 };

	cr_assert_eq(shunt_passes_run(module, "shunt-dispatch", &options, &counts, NULL), 0);
	cr_expect_eq(counts.dispatches, 1u);
	cr_expect_eq(counts.missed, 1u, "the marked direct call");
	cr_expect_eq(counts.cpu_ids, 0u);
	cr_assert_eq(shunt_passes_run(module, "shunt-bpf-helpers,shunt-percpu", &options, &counts, NULL), 0);
	cr_expect_eq(counts.helpers, 1u);
	cr_expect_eq(counts.cpu_ids, 3u);
	cr_assert_eq(shunt_passes_run(module, "", &options, &counts, NULL), 0);
	LLVMDisposeModule(module);
}

Test(passes, an_unknown_pass_is_refused_by_name_and_nothing_runs)
{
	static const char *const bad[] = {
		"shunt-percpus", "mem2reg", "shunt,", "shunt-dispatch,,shunt-percpu", "Shunt", " shunt", "shunt-percpu,x",
	};
	static const bool is_bad[] = { true, true, false, true, true, true, true };

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		LLVMModuleRef module = parse_module(context, everything);
		struct shunt_pass_counts counts = { 0 };
		char *error = NULL;
		int ret = shunt_passes_run(module, bad[i], &options, &counts, &error);

		cr_expect_eq(ret, is_bad[i] ? -EINVAL : 0, "%s", bad[i]);
		cr_expect_eq(error != NULL, is_bad[i], "%s", bad[i]);
		if (is_bad[i])
			cr_expect_eq(counts.cpu_ids, 0u);
		free(error);
		LLVMDisposeModule(module);
	}
}

Test(passes, the_sentence_of_an_error_names_pass_and_choices)
{
	LLVMModuleRef module = parse_module(context, everything);
	char *error = NULL;

	cr_assert_eq(shunt_passes_run(module, "shunt-percpu,sroa", NULL, NULL, &error), -EINVAL);
	cr_assert_not_null(error);
	cr_expect_not_null(strstr(error, "'sroa'"));
	cr_expect_not_null(strstr(error, "shunt-dispatch"));
	free(error);
	cr_assert_eq(shunt_passes_run(module, NULL, NULL, NULL, &error), -EINVAL);
	cr_expect_not_null(error);
	free(error);
	cr_assert_eq(shunt_passes_run(NULL, "shunt", NULL, NULL, &error), -EINVAL);
	cr_expect_not_null(error);
	free(error);
	LLVMDisposeModule(module);
}

Test(passes, only_the_two_machines_are_served)
{
	static const struct {
		const char *triple;
		int ret;
	} cases[] = {
		{ "x86_64-unknown-linux-gnu", 0 },   { "x86_64-pc-linux-musl", 0 },	    { "x86_64", 0 },
		{ "amd64-unknown-linux", 0 },	     { "aarch64-unknown-linux-gnu", 0 },    { "arm64-linux", 0 },
		{ "", -EINVAL },		     { "bpf", -EINVAL },		    { "i686-unknown-linux-gnu", -EINVAL },
		{ "armv7-linux-gnueabi", -EINVAL },  { "aarch64_be-linux-gnu", -EINVAL },   { "arm64_32-apple-watchos", -EINVAL },
		{ "riscv64-linux-gnu", -EINVAL },    { "x86_64-linux-gnux32", -EINVAL },    { "aarch64-linux-gnu_ilp32", -EINVAL },
		{ "x86_64h-apple-macosx", -EINVAL },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		LLVMModuleRef module = parse_module(context, everything);
		char *error = NULL;

		LLVMSetTarget(module, cases[i].triple);
		cr_expect_eq(shunt_passes_run(module, "shunt", &options, NULL, &error), cases[i].ret, "%s", cases[i].triple);
		cr_expect_eq(error != NULL, cases[i].ret != 0);
		free(error);
		LLVMDisposeModule(module);
	}
}

Test(passes, a_name_that_a_variable_has_is_not_taken_for_a_function)
{
	LLVMModuleRef module = parse_module(context, X86_64
					    "@shunt_nr_cpus = global i32 4\n"
					    "@shunt_map_lookup = global i32 4\n"
					    "@_bpf_helper_ext_0005 = global i32 4\n"
					    "declare ptr @shunt_percpu_of(ptr, i32)\n"
					    "define void @f(ptr %k, i32 %n) {\n"
					    "  call ptr @shunt_percpu_of(ptr %k, i32 %n)\n"
					    "  call ptr inttoptr (i64 1 to ptr)(ptr %k, ptr %k)\n"
					    "  call i64 inttoptr (i64 5 to ptr)()\n"
					    "  ret void\n"
					    "}\n");
	struct shunt_pass_counts counts = { 0 };
	char *before = LLVMPrintModuleToString(module), *after;

	cr_assert_eq(shunt_passes_run(module, "shunt", NULL, &counts, NULL), 0);
	after = LLVMPrintModuleToString(module);
	cr_expect_eq(counts.missed, 3u);
	cr_expect_str_eq(before, after, "a call left alone leaves nothing behind");
	LLVMDisposeMessage(before);
	LLVMDisposeMessage(after);
	LLVMDisposeModule(module);
}

Test(passes, unreachable_code_that_uses_itself_is_walked_to_an_end)
{
	LLVMModuleRef module = parse_module(context, X86_64
					    "@array = external global i8\n"
					    "declare ptr @shunt_map_lookup(ptr, ptr)\n"
					    "define internal void @self(ptr %m, ptr %k) {\n"
					    "  call ptr @shunt_map_lookup(ptr %m, ptr %k)\n"
					    "  call void @self(ptr %m, ptr %k)\n"
					    "  ret void\n"
					    "}\n"
					    "define void @f(ptr %k) {\n"
					    "  ret void\n"
					    "dead:\n"
					    "  %p = phi ptr [ %p, %dead ]\n"
					    "  %a = getelementptr i8, ptr %b, i64 0\n"
					    "  %b = getelementptr i8, ptr %a, i64 0\n"
					    "  call ptr @shunt_map_lookup(ptr %a, ptr %b)\n"
					    "  call ptr @shunt_map_lookup(ptr @array, ptr %b)\n"
					    "  call ptr @shunt_map_lookup(ptr %p, ptr %b)\n"
					    "  call i32 %a()\n"
					    "  call i32 %p()\n"
					    "  br label %dead\n"
					    "}\n");
	struct shunt_pass_counts counts = { 0 };

	cr_assert_eq(shunt_passes_run(module, "shunt", &options, &counts, NULL), 0);
	check_module(module);
	cr_expect_eq(counts.missed, 3u);
	cr_expect_eq(counts.array_lookups, 1u);
	LLVMDisposeModule(module);
}

Test(passes, a_call_larger_than_the_scratch_stays)
{
	enum { NR = 1500 };
	LLVMModuleRef module = parse_module(context, X86_64);
	LLVMTypeRef types[NR + 1], pointer = LLVMPointerTypeInContext(context, 0), type;
	LLVMValueRef args[NR], function, call, string, mark;
	LLVMBuilderRef builder = LLVMCreateBuilderInContext(context);
	struct shunt_pass_counts counts = { 0 };

	types[0] = pointer;
	function = LLVMAddFunction(module, "f", LLVMFunctionType(LLVMVoidTypeInContext(context), types, 1, 0));
	LLVMPositionBuilderAtEnd(builder, LLVMAppendBasicBlockInContext(context, function, ""));
	for (unsigned i = 0; i < NR; i++) {
		types[i] = LLVMInt64TypeInContext(context);
		args[i] = LLVMConstInt(types[i], i, 0);
	}
	type = LLVMFunctionType(LLVMVoidTypeInContext(context), types, NR, 0);
	call = LLVMBuildCall2(builder, type, LLVMGetParam(function, 0), args, NR, "");
	LLVMBuildRetVoid(builder);
	string = LLVMMetadataAsValue(context, LLVMMDStringInContext2(context, "xdp", 3));
	mark = LLVMMDNodeInContext(context, &string, 1);
	LLVMSetMetadata(call, LLVMGetMDKindIDInContext(context, "shunt.dispatch", 14), mark);
	check_module(module);
	cr_assert_eq(shunt_passes_run(module, "shunt", NULL, &counts, NULL), 0);
	cr_expect_eq(counts.dispatches, 0u);
	cr_expect_eq(counts.missed, 1u);
	LLVMDisposeBuilder(builder);
	LLVMDisposeModule(module);
}
