/* SPDX-License-Identifier: MIT */
/* Remarks as the host's callback gets them, and as YAML. */
#include "test/unit/passes.h"
#include "passes/remark_yaml.h"

struct seen {
	unsigned nr;
	struct shunt_remark last;
	char function[64], callee[64], message[256], file[256];
	const char *pass, *name;
};

static void note(void *user, const struct shunt_remark *remark)
{
	struct seen *seen = user;

	seen->nr++;
	seen->last = *remark;
	snprintf(seen->function, sizeof(seen->function), "%s", remark->function);
	snprintf(seen->callee, sizeof(seen->callee), "%s", remark->callee);
	snprintf(seen->message, sizeof(seen->message), "%s", remark->message);
	snprintf(seen->file, sizeof(seen->file), "%s", remark->file ? remark->file : "none");
}

static void run(const char *text, struct seen *seen)
{
	LLVMContextRef context = LLVMContextCreate();
	LLVMModuleRef module = parse_module(context, text);
	struct shunt_pass_options options = { .cpu = SHUNT_PASS_CPU_TP, .remark = note, .remark_user = seen };

	cr_assert_eq(shunt_passes_run(module, "shunt", &options, NULL, NULL), 0);
	check_module(module);
	LLVMDisposeModule(module);
	LLVMContextDispose(context);
}

Test(remarks, one_remark_a_call_with_pass_name_function_and_callee)
{
	struct seen seen = { 0 };

	run(ARM64 "declare i32 @shunt_cpu_id()\n"
		  "define i32 @where() {\n"
		  "  %c = call i32 @shunt_cpu_id()\n"
		  "  ret i32 %c\n"
		  "}\n",
	    &seen);
	cr_assert_eq(seen.nr, 1u);
	cr_expect_eq(seen.last.kind, SHUNT_REMARK_PASSED);
	cr_expect_str_eq(seen.last.pass, "shunt-percpu");
	cr_expect_str_eq(seen.last.name, "InlinedCpuId");
	cr_expect_str_eq(seen.function, "where");
	cr_expect_str_eq(seen.callee, "shunt_cpu_id");
	cr_expect_str_eq(seen.file, "none");
	cr_expect_eq(seen.last.line, 0u);
}

Test(remarks, a_missed_remark_says_why)
{
	struct seen seen = { 0 };

	run(X86_64 "declare ptr @shunt_map_lookup(ptr, ptr)\n"
		   "define ptr @f(ptr %m, ptr %k) {\n"
		   "  %v = call ptr @shunt_map_lookup(ptr %m, ptr %k)\n"
		   "  ret ptr %v\n"
		   "}\n",
	    &seen);
	cr_assert_eq(seen.nr, 1u);
	cr_expect_eq(seen.last.kind, SHUNT_REMARK_MISSED);
	cr_expect_str_eq(seen.last.name, "UnknownMap");
	cr_expect_str_eq(seen.message, "call left: the map operand is an argument of a function that others may call");
}

Test(remarks, a_debug_location_is_file_line_and_column)
{
	struct seen seen = { 0 };

	run(X86_64 "define i32 @f(ptr %c, ptr %p) !dbg !5 {\n"
		   "  %r = call i32 %p(ptr %c), !dbg !6, !shunt.dispatch !7\n"
		   "  ret i32 %r\n"
		   "}\n"
		   "!llvm.dbg.cu = !{!0}\n"
		   "!llvm.module.flags = !{!2}\n"
		   "!0 = distinct !DICompileUnit(language: DW_LANG_C11, file: !1, emissionKind: FullDebug)\n"
		   "!1 = !DIFile(filename: \"prog.c\", directory: \"/src\")\n"
		   "!2 = !{i32 2, !\"Debug Info Version\", i32 3}\n"
		   "!3 = !DISubroutineType(types: !4)\n"
		   "!4 = !{}\n"
		   "!5 = distinct !DISubprogram(name: \"f\", file: !1, line: 6, type: !3, unit: !0, spFlags: DISPFlagDefinition)\n"
		   "!6 = !DILocation(line: 7, column: 9, scope: !5)\n"
		   "!7 = !{!\"xdp\"}\n",
	    &seen);
	cr_assert_eq(seen.nr, 1u);
	cr_expect_str_eq(seen.callee, "xdp");
	cr_expect_str_eq(seen.file, "/src/prog.c");
	cr_expect_eq(seen.last.line, 7u);
	cr_expect_eq(seen.last.column, 9u);
}

Test(remarks, names_longer_than_any_buffer_are_cut_not_overrun)
{
	char *text = malloc(20000), *name = malloc(5001);
	struct seen seen = { 0 };

	memset(name, 'n', 5000);
	name[5000] = '\0';
	snprintf(text, 20000,
		 X86_64 "declare i32 @shunt_cpu_id()\ndefine i32 @%s() {\n  %%c = call i32 @shunt_cpu_id()\n  ret i32 %%c\n}\n",
		 name);
	run(text, &seen);
	cr_expect_eq(seen.nr, 1u);
	cr_expect_eq(strlen(seen.function), sizeof(seen.function) - 1);
	free(text);
	free(name);
}

Test(remarks, yaml_quotes_what_yaml_would_read_as_syntax)
{
	const struct shunt_remark remark = {
		.kind = SHUNT_REMARK_MISSED,
		.pass = "shunt-percpu",
		.name = "UnknownMap",
		.function = "it's: [a] #",
		.callee = "tab\there",
		.message = "plain",
		.file = "C:\\x",
		.line = 4294967295u,
		.column = 1,
	};
	char *text = shunt_remark_to_yaml(&remark);

	cr_assert_not_null(text);
	cr_expect_str_eq(text, "--- !Missed\n"
			       "Pass:            shunt-percpu\n"
			       "Name:            UnknownMap\n"
			       "DebugLoc:        { File: 'C:\\x', Line: 4294967295, Column: 1 }\n"
			       "Function:        'it''s: [a] #'\n"
			       "Args:\n"
			       "  - Callee:          \"tab\\x09here\"\n"
			       "  - String:          ': '\n"
			       "  - Reason:          'plain'\n"
			       "...\n");
	free(text);
}

Test(remarks, yaml_without_a_place_has_no_debugloc)
{
	const struct shunt_remark remark = {
		.kind = SHUNT_REMARK_PASSED, .pass = "shunt-dispatch", .name = "Dispatched", .function = "f", .callee = "xdp"
	};
	char *text = shunt_remark_to_yaml(&remark);

	cr_assert_not_null(text);
	cr_expect_null(strstr(text, "DebugLoc"));
	cr_expect_eq(strncmp(text, "--- !Passed\n", 12), 0);
	free(text);
}
