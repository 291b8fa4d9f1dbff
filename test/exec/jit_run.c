/* SPDX-License-Identifier: MIT */
/* Modules that run: every kind of section and reference, and what their life leaves behind. */
#include "jit_test.h"

#include <sched.h>
#include <unistd.h>
#include <unwind.h>

typedef int64_t fn0(void);
typedef int64_t fn1(int64_t x);

static struct shunt_jit_module_options with_symbols(const struct shunt_jit_symbol *symbols, size_t nr)
{
	return (struct shunt_jit_module_options){ .pipeline = "", .symbols = symbols, .nr_symbols = nr };
}

static const struct shunt_jit_module_options no_passes = { .pipeline = "" };

Test(jit_run, a_function_reads_its_constants)
{
	struct shunt_jit *jit = jit_test_create();
	struct shunt_jit_module *module = jit_test_must_add(jit,
		"@table = internal constant [5 x i64] [i64 3, i64 1, i64 4, i64 1, i64 5]\n"
		"define i64 @f(i64 %i) {\n"
		"  %p = getelementptr [5 x i64], ptr @table, i64 0, i64 %i\n"
		"  %v = load i64, ptr %p\n"
		"  ret i64 %v\n"
		"}\n", &no_passes);
	fn1 *f = (fn1 *)shunt_jit_lookup(module, "f");

	cr_assert(f);
	cr_expect(f(0) == 3 && f(2) == 4 && f(4) == 5);
	shunt_jit_destroy(jit);
}

Test(jit_run, a_global_variable_keeps_what_was_stored)
{
	struct shunt_jit *jit = jit_test_create();
	struct shunt_jit_module *module = jit_test_must_add(jit,
		"@count = global i64 40\n"
		"@big = global [1000 x i64] zeroinitializer\n"
		"define i64 @bump(i64 %i) {\n"
		"  %v = load i64, ptr @count\n"
		"  %n = add i64 %v, 1\n"
		"  store i64 %n, ptr @count\n"
		"  %p = getelementptr [1000 x i64], ptr @big, i64 0, i64 %i\n"
		"  %b = load i64, ptr %p\n"
		"  store i64 %n, ptr %p\n"
		"  %s = add i64 %n, %b\n"
		"  ret i64 %s\n"
		"}\n", &no_passes);
	fn1 *bump = (fn1 *)shunt_jit_lookup(module, "bump");
	int64_t *count = shunt_jit_lookup(module, "count");

	cr_assert(bump && count);
	cr_expect(bump(999) == 41);
	cr_expect(bump(999) == 42 + 41);
	cr_expect(*count == 42);
	shunt_jit_destroy(jit);
}

static int64_t triple_it(int64_t x)
{
	return 3 * x;
}

static int64_t host_value = 7;

Test(jit_run, host_functions_and_objects_are_reached_by_name)
{
	const struct shunt_jit_symbol symbols[] = { { "host_triple", (void *)triple_it }, { "host_value", &host_value } };
	const struct shunt_jit_module_options options = with_symbols(symbols, 2);
	struct shunt_jit *jit = jit_test_create();
	struct shunt_jit_module *module = jit_test_must_add(jit,
		"declare i64 @host_triple(i64)\n"
		"@host_value = external global i64\n"
		"define i64 @f(i64 %x) {\n"
		"  %t = call i64 @host_triple(i64 %x)\n"
		"  %v = load i64, ptr @host_value\n"
		"  %s = add i64 %t, %v\n"
		"  ret i64 %s\n"
		"}\n", &options);
	fn1 *f = (fn1 *)shunt_jit_lookup(module, "f");

	cr_expect(f(5) == 22);
	host_value = 100;
	cr_expect(f(5) == 115);
	shunt_jit_destroy(jit);
}

Test(jit_run, a_table_of_functions_holds_addresses_that_run)
{
	const struct shunt_jit_symbol symbols[] = { { "host_triple", (void *)triple_it } };
	const struct shunt_jit_module_options options = with_symbols(symbols, 1);
	struct shunt_jit *jit = jit_test_create();
	struct shunt_jit_module *module = jit_test_must_add(jit,
		"declare i64 @host_triple(i64)\n"
		"@ops = constant [3 x ptr] [ptr @inc, ptr @dec, ptr @host_triple]\n"
		"define internal i64 @inc(i64 %x) noinline {\n %r = add i64 %x, 1\n ret i64 %r\n}\n"
		"define internal i64 @dec(i64 %x) noinline {\n %r = sub i64 %x, 1\n ret i64 %r\n}\n"
		"define i64 @apply(i64 %i, i64 %x) {\n"
		"  %p = getelementptr [3 x ptr], ptr @ops, i64 0, i64 %i\n"
		"  %f = load ptr, ptr %p\n"
		"  %r = call i64 %f(i64 %x)\n"
		"  ret i64 %r\n"
		"}\n", &options);
	int64_t (*apply)(int64_t, int64_t) = (int64_t (*)(int64_t, int64_t))shunt_jit_lookup(module, "apply");
	fn1 *const *ops = shunt_jit_lookup(module, "ops");

	cr_expect(apply(0, 10) == 11 && apply(1, 10) == 9 && apply(2, 10) == 30);
	cr_assert(ops);
	cr_expect(ops[1](3) == 2);
	shunt_jit_destroy(jit);
}

Test(jit_run, functions_of_one_module_call_each_other)
{
	struct shunt_jit *jit = jit_test_create();
	struct shunt_jit_module *module = jit_test_must_add(jit,
		"define i64 @even(i64 %n) noinline {\n"
		"  %z = icmp eq i64 %n, 0\n"
		"  br i1 %z, label %yes, label %more\n"
		"yes:\n  ret i64 1\n"
		"more:\n  %m = sub i64 %n, 1\n  %r = call i64 @odd(i64 %m)\n  ret i64 %r\n"
		"}\n"
		"define i64 @odd(i64 %n) noinline {\n"
		"  %z = icmp eq i64 %n, 0\n"
		"  br i1 %z, label %no, label %more\n"
		"no:\n  ret i64 0\n"
		"more:\n  %m = sub i64 %n, 1\n  %r = call i64 @even(i64 %m)\n  ret i64 %r\n"
		"}\n", &no_passes);
	fn1 *even = (fn1 *)shunt_jit_lookup(module, "even");

	cr_expect(even(10) == 1 && even(7) == 0);
	shunt_jit_destroy(jit);
}

Test(jit_run, equal_names_in_two_modules_do_not_clash)
{
	struct shunt_jit *jit = jit_test_create();
	struct shunt_jit_module *one = jit_test_must_add(jit, "define i64 @f() {\n ret i64 1\n}\n", &no_passes);
	struct shunt_jit_module *two = jit_test_must_add(jit, "define i64 @f() {\n ret i64 2\n}\n", &no_passes);

	cr_expect(((fn0 *)shunt_jit_lookup(one, "f"))() == 1);
	cr_expect(((fn0 *)shunt_jit_lookup(two, "f"))() == 2);
	cr_expect(shunt_jit_lookup(one, "g") == NULL);
	shunt_jit_destroy(jit);
}

Test(jit_run, code_generation_gets_the_library_calls_it_makes)
{
	struct shunt_jit *jit = jit_test_create();
	struct shunt_jit_module *module = jit_test_must_add(jit,
		"declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\n"
		"define void @copy(ptr %d, ptr %s, i64 %n) {\n"
		"  call void @llvm.memcpy.p0.p0.i64(ptr %d, ptr %s, i64 %n, i1 false)\n"
		"  ret void\n"
		"}\n"
		"define i64 @quotient(i64 %a, i64 %b) {\n"
		"  %x = sext i64 %a to i128\n"
		"  %w = shl i128 %x, 64\n"
		"  %y = sext i64 %b to i128\n"
		"  %q = sdiv i128 %w, %y\n"
		"  %h = ashr i128 %q, 64\n"
		"  %r = trunc i128 %h to i64\n"
		"  ret i64 %r\n"
		"}\n", &no_passes);
	void (*copy)(void *, const void *, size_t) = (void (*)(void *, const void *, size_t))shunt_jit_lookup(module, "copy");
	int64_t (*quotient)(int64_t, int64_t) = (int64_t (*)(int64_t, int64_t))shunt_jit_lookup(module, "quotient");
	char from[100] = "something to copy", to[100] = "";

	copy(to, from, sizeof(to));
	cr_expect(!memcmp(to, from, sizeof(to)));
	cr_expect(quotient(-84, 2) == -42);
	shunt_jit_destroy(jit);
}

Test(jit_run, a_weak_function_that_nobody_defines_is_null)
{
	struct shunt_jit *jit = jit_test_create();
	struct shunt_jit_module *module = jit_test_must_add(jit,
		"declare extern_weak i64 @maybe()\n"
		"define i64 @f() {\n"
		"  %n = icmp eq ptr @maybe, null\n"
		"  %r = zext i1 %n to i64\n"
		"  ret i64 %r\n"
		"}\n", &no_passes);

	cr_expect(((fn0 *)shunt_jit_lookup(module, "f"))() == 1);
	shunt_jit_destroy(jit);
}

Test(jit_run, a_module_of_nothing_is_a_module)
{
	struct shunt_jit *jit = jit_test_create();
	struct shunt_jit_module *module = jit_test_must_add(jit, "\n", &no_passes);

	cr_expect(shunt_jit_lookup(module, "f") == NULL);
	shunt_jit_remove(module);
	shunt_jit_destroy(jit);
}

Test(jit_run, every_optimisation_level_gives_the_same_result)
{
	for (unsigned level = 0; level <= 3; level++) {
		const struct shunt_jit_options options = { .opt_level = level, .keep_ir = true };
		struct shunt_jit_module *module;
		struct shunt_jit *jit;
		fn1 *sum;

		cr_assert(shunt_jit_create(&options, &jit) == 0);
		module = jit_test_must_add(jit,
			"define i64 @sum(i64 %n) optnone noinline {\n"
			"entry:\n  %a = alloca i64\n  store i64 0, ptr %a\n  br label %loop\n"
			"loop:\n"
			"  %i = phi i64 [ 0, %entry ], [ %j, %loop ]\n"
			"  %s = load i64, ptr %a\n  %t = add i64 %s, %i\n  store i64 %t, ptr %a\n"
			"  %j = add i64 %i, 1\n  %c = icmp ule i64 %j, %n\n  br i1 %c, label %loop, label %out\n"
			"out:\n  %r = load i64, ptr %a\n  ret i64 %r\n"
			"}\n", &no_passes);
		sum = (fn1 *)shunt_jit_lookup(module, "sum");
		cr_expect(sum(100) == 5050);
		/* optnone is gone: with optimisation on, so is the stack slot. */
		cr_expect(!strstr(shunt_jit_module_ir(module), "optnone"));
		cr_expect(!strstr(shunt_jit_module_ir(module), "alloca") == (level > 0));
		shunt_jit_destroy(jit);
	}
}

Test(jit_run, debug_information_does_not_matter)
{
	struct shunt_jit *jit = jit_test_create();
	struct shunt_jit_module *module = jit_test_must_add(jit,
		"define i64 @f(i64 %x) !dbg !4 {\n"
		"  %r = add i64 %x, 1, !dbg !7\n"
		"  ret i64 %r, !dbg !7\n"
		"}\n"
		"!llvm.dbg.cu = !{!0}\n"
		"!llvm.module.flags = !{!2, !3}\n"
		"!0 = distinct !DICompileUnit(language: DW_LANG_C11, file: !1, producer: \"test\", isOptimized: true, emissionKind: FullDebug)\n"
		"!1 = !DIFile(filename: \"f.c\", directory: \"/\")\n"
		"!2 = !{i32 2, !\"Debug Info Version\", i32 3}\n"
		"!3 = !{i32 7, !\"Dwarf Version\", i32 5}\n"
		"!4 = distinct !DISubprogram(name: \"f\", file: !1, line: 1, type: !5, unit: !0, spFlags: DISPFlagDefinition)\n"
		"!5 = !DISubroutineType(types: !6)\n"
		"!6 = !{null}\n"
		"!7 = !DILocation(line: 2, scope: !4)\n", &no_passes);

	cr_expect(((fn1 *)shunt_jit_lookup(module, "f"))(1) == 2);
	shunt_jit_destroy(jit);
}

struct frames {
	uintptr_t ip[64];
	int nr;
};
static struct frames frames;

static _Unwind_Reason_Code take_frame(struct _Unwind_Context *context, void *user)
{
	struct frames *f = user;

	if (f->nr < 64)
		f->ip[f->nr++] = _Unwind_GetIP(context);
	return _URC_NO_REASON;
}

static int64_t capture(int64_t x)
{
	frames.nr = 0;
	_Unwind_Backtrace(take_frame, &frames);
	return x;
}

static __attribute__((noinline)) int64_t call_it(fn1 *f)
{
	int64_t r = f(5);

	__asm__ volatile("");
	return r + 1;
}

Test(jit_run, a_backtrace_goes_through_generated_code)
{
	const struct shunt_jit_symbol symbols[] = { { "capture", (void *)capture } };
	const struct shunt_jit_module_options options = with_symbols(symbols, 1);
	struct shunt_jit *jit = jit_test_create();
	struct shunt_jit_module *module = jit_test_must_add(jit,
		"declare i64 @capture(i64)\n"
		"define i64 @f(i64 %x) uwtable {\n"
		"  %a = alloca [40 x i64]\n"
		"  store volatile i64 %x, ptr %a\n"
		"  %r = call i64 @capture(i64 %x)\n"
		"  %v = load volatile i64, ptr %a\n"
		"  %s = add i64 %r, %v\n"
		"  ret i64 %s\n"
		"}\n", &options);
	fn1 *f = (fn1 *)shunt_jit_lookup(module, "f");
	const void *code;
	size_t len;
	int at = -1;

	cr_assert(shunt_jit_module_code(module, "f", &code, &len) == 0);
	cr_expect(call_it(f) == 11);
	for (int i = 0; i < frames.nr; i++)
		if (frames.ip[i] > (uintptr_t)code && frames.ip[i] <= (uintptr_t)code + len)
			at = i;
	cr_assert(at >= 0, "the generated function is in none of %d frames", frames.nr);
	cr_assert(at + 3 < frames.nr, "the backtrace ends in generated code");
	cr_expect(frames.ip[at + 1] >= (uintptr_t)call_it && frames.ip[at + 1] < (uintptr_t)call_it + 256);
	shunt_jit_destroy(jit);
}

Test(jit_run, functions_have_their_names_for_profilers)
{
	struct shunt_jit *jit = jit_test_create();
	struct shunt_jit_module *module;
	const void *code[2];
	size_t len[2], nr;
	char path[64], expected[128], text[1024];
	FILE *file;

	cr_assert(shunt_names_enable(SHUNT_NAMES_PERF) == 0);
	module = jit_test_must_add(jit,
		"@table = constant [2 x i64] [i64 3, i64 1]\n"
		"define i64 @first(i64 %i) {\n"
		"  ret i64 %i\n"
		"}\n"
		"define i64 @second(i64 %i) {\n"
		"  %p = getelementptr [2 x i64], ptr @table, i64 0, i64 %i\n"
		"  %v = load i64, ptr %p\n"
		"  ret i64 %v\n"
		"}\n", &no_passes);
	cr_assert(shunt_jit_module_code(module, "first", &code[0], &len[0]) == 0);
	cr_assert(shunt_jit_module_code(module, "second", &code[1], &len[1]) == 0);
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", (int)getpid());
	file = fopen(path, "re");
	cr_assert(file);
	nr = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	unlink(path);
	text[nr] = '\0';
	for (int i = 0; i < 2; i++) {
		snprintf(expected, sizeof(expected), "%lx %zx %s\n", (unsigned long)(uintptr_t)code[i], len[i], i ? "second" : "first");
		cr_expect(strstr(text, expected), "%s lacks %s", text, expected);
	}
	cr_expect(!strstr(text, "table"));
	shunt_jit_destroy(jit);
}

struct map_count {
	size_t all, exec, strange;
	struct shunt_pack_stats stats;
};

static void count_map(void *user, uintptr_t start, uintptr_t end, const char *prot)
{
	struct map_count *count = user;

	count->all++;
	count->exec += prot[2] == 'x';
	count->strange += prot[1] == 'w' && prot[2] == 'x';
}

static void count_outside(void *user, uintptr_t start, uintptr_t end, const char *prot)
{
	struct map_count *count = user;
	uintptr_t base = (uintptr_t)count->stats.arena_base;

	count->exec += prot[2] == 'x' && !(start >= base && end <= base + count->stats.arena_size);
	count->strange += prot[1] == 'w' && prot[2] == 'x';
}

#define ONE_OF_EACH \
	"@k = internal constant [4 x i64] [i64 1, i64 2, i64 3, i64 4]\n" \
	"@v = global i64 1\n" \
	"define i64 @f(i64 %i) uwtable {\n" \
	"  %p = getelementptr [4 x i64], ptr @k, i64 0, i64 %i\n" \
	"  %a = load i64, ptr %p\n" \
	"  %b = load i64, ptr @v\n" \
	"  %s = add i64 %a, %b\n" \
	"  ret i64 %s\n" \
	"}\n"

Test(jit_run, nothing_executable_lies_outside_packs)
{
	struct shunt_jit *jit = jit_test_create();
	struct map_count before = { 0 }, after = { 0 };

	shunt_jit_remove(jit_test_must_add(jit, ONE_OF_EACH, &no_passes));
	cr_assert(shunt_pack_get_stats(NULL, &before.stats) == 0);
	after.stats = before.stats;
	jit_test_walk_maps(count_outside, &before);
	for (int i = 0; i < 20; i++)
		jit_test_must_add(jit, ONE_OF_EACH, &no_passes);
	jit_test_walk_maps(count_outside, &after);
	cr_expect(after.exec == before.exec);
	cr_expect(after.strange == 0, "a mapping is writable and executable");
	shunt_jit_destroy(jit);
}

static void expect_same_use(const struct shunt_pack_stats *before)
{
	struct shunt_pack_stats after;

	cr_assert(shunt_pack_get_stats(NULL, &after) == 0);
	for (int s = 0; s < SHUNT_NR_SEGMENTS; s++) {
		cr_expect(after.nr_blocks[s] == before->nr_blocks[s], "segment %d: %lu blocks were %lu", s,
			  (unsigned long)after.nr_blocks[s], (unsigned long)before->nr_blocks[s]);
		cr_expect(after.bytes_used[s] == before->bytes_used[s]);
	}
}

Test(jit_run, five_hundred_modules_leave_nothing_behind)
{
	static struct shunt_jit_module *modules[500];
	struct shunt_jit *jit = jit_test_create();
	struct map_count before = { 0 }, full = { 0 };
	struct shunt_pack_stats start;
	cpu_set_t here;

	/* A NUMA node has packs of its own: this thread stays on one. */
	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	cr_assert(sched_setaffinity(0, sizeof(here), &here) == 0);
	shunt_jit_remove(jit_test_must_add(jit, ONE_OF_EACH, &no_passes));
	shunt_quiesce();
	shunt_quiesce();
	cr_assert(shunt_pack_get_stats(NULL, &start) == 0);
	jit_test_walk_maps(count_map, &before);
	for (int i = 0; i < 500; i++) {
		modules[i] = jit_test_must_add(jit, ONE_OF_EACH, &no_passes);
		cr_assert(((fn1 *)shunt_jit_lookup(modules[i], "f"))(3) == 5);
	}
	jit_test_walk_maps(count_map, &full);
	cr_expect(full.exec == before.exec, "%zu executable mappings were %zu", full.exec, before.exec);
	cr_expect(full.all < before.all + 25, "%zu mappings were %zu", full.all, before.all);
	for (int i = 0; i < 500; i++)
		shunt_jit_remove(modules[i]);
	shunt_quiesce();
	shunt_quiesce();
	expect_same_use(&start);
	shunt_jit_destroy(jit);
}
