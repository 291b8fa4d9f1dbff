/* SPDX-License-Identifier: MIT */
/*
 * The passes, in two tables.
 *
 *	1. CPU time of "shunt", updates made exact, over modules of 10,000 to 1,000,000 instructions in small and in large functions: per
 *	   instruction (it should stay the same), and beside LLVM's default<O2> on the same module.
 *	2. Calls through a pointer with eight targets of falling frequency: as they are, after LLVM's promotion of indirect calls, and after
 *	   shunt-targets, all from the same value profile. How many calls in 1,000 stay indirect, and how long a call takes.
 *
 * usage: bench_passes [rounds]    (default 5; the best round counts)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <llvm-c/Core.h>
#include <llvm-c/Error.h>
#include <llvm-c/IRReader.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <shunt/jit.h>
#include <shunt/log.h>
#include <shunt/reader.h>
#include "passes/profile.h"

enum { NR_TARGETS = 8, NR_CALLS = 1 << 20 };

/* Of this thread: what else the machine does is not in it. */
static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void stop(const char *what, const char *why)
{
	fprintf(stderr, "bench_passes: %s: %s\n", what, why);
	exit(1);
}

static LLVMModuleRef parse(LLVMContextRef context, const char *text, size_t len)
{
	LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(text, len, "bench");
	LLVMModuleRef module;
	char *message = NULL;

	if (LLVMParseIRInContext(context, buffer, &module, &message))
		stop("parse", message);
	return module;
}

static void run_llvm(LLVMModuleRef module, const char *pipeline)
{
	LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
	LLVMErrorRef error = LLVMRunPasses(module, pipeline, NULL, options);

	LLVMDisposePassBuilderOptions(options);
	if (error)
		stop(pipeline, LLVMGetErrorMessage(error));
}

/* ---- time ----------------------------------------------------------------------------------------------------- */

/* About a hundred instructions with a marked call, a static call, two lookups, an update and a helper call: more than real programs have. */
static void write_piece(FILE *out, size_t i)
{
	fprintf(out,
		"b%zu:\n  store i32 %zu, ptr %%key%zu\n  %%v%zu = call ptr @shunt_map_lookup(ptr @map, ptr %%key%zu)\n"
		"  %%hit%zu = icmp ne ptr %%v%zu, null\n  br i1 %%hit%zu, label %%found%zu, label %%next%zu\n"
		"found%zu:\n  %%old%zu = load i64, ptr %%v%zu\n  %%new%zu = add i64 %%old%zu, %%n\n  store i64 %%new%zu, ptr %%v%zu\n"
		"  br label %%next%zu\n",
		i, i % 256, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i);
	fprintf(out,
		"next%zu:\n  %%cpu%zu = call i32 inttoptr (i64 8 to ptr)()\n  %%slot%zu = getelementptr i64, ptr %%ctx, i32 %%cpu%zu\n"
		"  %%an%zu = call ptr @llvm.ptr.annotation.p0.p0(ptr %%slot%zu, ptr @.mark, ptr @.mark, i32 1, ptr null)\n"
		"  %%p%zu = load ptr, ptr %%an%zu\n  %%r%zu = call i64 %%p%zu(i64 %%n)\n  %%q%zu = load ptr, ptr %%ctx\n"
		"  %%s%zu = call i64 %%q%zu(i64 %%r%zu), !shunt.targets !0\n  %%w%zu = call ptr @shunt_map_lookup(ptr @map, ptr %%ctx)\n"
		"  %%wi%zu = ptrtoint ptr %%w%zu to i64\n  %%x%zu.0 = xor i64 %%s%zu, %%wi%zu\n",
		i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i);
	for (int k = 1; k < 75; k++)
		fprintf(out, "  %%x%zu.%d = %s i64 %%x%zu.%d, %s\n", i, k, k % 3 ? k % 2 ? "add" : "xor" : "mul", i, k - 1, k % 5 ? "%n" : "%m");
	fprintf(out, "  store i64 %%x%zu.74, ptr %%ctx\n", i);
}

/* Functions of so many pieces each. */
static char *big_module(size_t nr_instructions, size_t per_function, size_t *len)
{
	size_t nr = nr_instructions / 100;
	char *text;
	FILE *out = open_memstream(&text, len);

	fputs("target triple = \"x86_64-unknown-linux-gnu\"\n@map = external global i8\n"
	      "@.mark = private unnamed_addr constant [19 x i8] c\"shunt.dispatch:xdp\\00\", section \"llvm.metadata\"\n"
	      "declare ptr @llvm.ptr.annotation.p0.p0(ptr, ptr, ptr, i32, ptr)\n"
	      "declare ptr @shunt_map_lookup(ptr, ptr)\ndeclare i64 @a(i64)\ndeclare i64 @b(i64)\n"
	      "!0 = !{ptr @a, ptr @b}\n",
	      out);
	for (size_t first = 0; first < nr; first += per_function) {
		size_t end = first + per_function < nr ? first + per_function : nr;

		fprintf(out, "define void @f%zu(ptr %%ctx, i64 %%n, i64 %%m) {\n", first);
		for (size_t i = first; i < end; i++)
			fprintf(out, "  %%key%zu = alloca i32\n", i);
		fprintf(out, "  br label %%b%zu\n", first);
		for (size_t i = first; i < end; i++) {
			write_piece(out, i);
			fprintf(out, i + 1 < end ? "  br label %%b%zu\n" : "  ret void\n}\n", i + 1);
		}
	}
	fclose(out);
	return text;
}

static double time_passes(LLVMModuleRef module, const char *pipeline, bool ours)
{
	static const struct shunt_pass_map map = {
		.symbol = "map", .type = SHUNT_MAP_PERCPU_ARRAY, .key_size = 4, .value_size = 8, .max_entries = 256,
	};
	const struct shunt_pass_options options = { .maps = &map, .nr_maps = 1, .cpu = SHUNT_PASS_CPU_RSEQ, .cpu_offset = -160,
						      .rmw = SHUNT_PASS_RMW_EXACT };
	LLVMModuleRef copy = LLVMCloneModule(module);
	struct shunt_pass_counts counts = { 0 };
	double before = now(), result;
	char *error = NULL;

	if (!ours)
		run_llvm(copy, pipeline);
	else if (shunt_passes_run(copy, pipeline, &options, &counts, &error))
		stop(pipeline, error);
	result = now() - before;
	if (ours && (!counts.marked || !counts.static_calls || !counts.percpu_array_lookups || !counts.dispatches ||
		     !counts.exact_updates))
		stop(pipeline, "the module has lost its calls");
	LLVMDisposeModule(copy);
	return result;
}

static double best(LLVMModuleRef module, const char *pipeline, bool ours, int rounds)
{
	double least = 1e9;

	for (int i = 0; i < rounds; i++) {
		double time = time_passes(module, pipeline, ours);

		least = time < least ? time : least;
	}
	return least;
}

static void print_time(size_t size, size_t per_function, int rounds)
{
	LLVMContextRef context = LLVMContextCreate();
	size_t len;
	char *text = big_module(size, per_function, &len);
	LLVMModuleRef module = parse(context, text, len);
	double ours = best(module, "shunt", true, rounds);

	printf("%12zu %13zu %10.2f %16.1f", size, per_function * 100, ours * 1e3, ours * 1e9 / (double)size);
	if (size <= 100000) {
		double theirs = best(module, "default<O2>", false, rounds > 2 ? 2 : rounds);

		printf(" %16.1f %9.2f%%", theirs * 1e3, 100 * ours / theirs);
	}
	putchar('\n');
	fflush(stdout);
	LLVMDisposeModule(module);
	LLVMContextDispose(context);
	free(text);
}

static void print_times(int rounds)
{
	static const size_t sizes[] = { 10000, 31600, 100000, 316000, 1000000 };

	puts("instructions  per function   shunt ms   ns/instruction   default<O2> ms   shunt/O2");
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		print_time(sizes[i], 1, rounds);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		print_time(sizes[i], 100, rounds);
}

/* ---- static targets ------------------------------------------------------------------------------------------- */

struct distribution {
	const char *name;
	unsigned per_mille[NR_TARGETS];
};

/* Every target is a few instructions of its own; the loop calls what `order` names. */
static char *target_module(const struct distribution *distribution, size_t *len)
{
	char *text, name[8];
	FILE *out = open_memstream(&text, len);

	for (int i = 0; i < NR_TARGETS; i++)
		fprintf(out, "define i64 @t%d(i64 %%x) {\n  %%a = mul i64 %%x, %d\n  %%b = xor i64 %%a, %d\n  ret i64 %%b\n}\n", i, 2 * i + 3,
			i * 77 + 1);
	fputs("@table = constant [8 x ptr] [ptr @t0, ptr @t1, ptr @t2, ptr @t3, ptr @t4, ptr @t5, ptr @t6, ptr @t7]\n"
	      "define i64 @run(ptr %order, i64 %nr) {\nentry:\n  br label %loop\nloop:\n"
	      "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]\n  %x = phi i64 [ 1, %entry ], [ %y, %loop ]\n"
	      "  %at = getelementptr i8, ptr %order, i64 %i\n  %which = load i8, ptr %at\n  %wide = zext i8 %which to i64\n"
	      "  %slot = getelementptr ptr, ptr @table, i64 %wide\n  %f = load volatile ptr, ptr %slot\n"
	      "  %y = call i64 %f(i64 %x), !shunt.targets !0, !prof !1\n"
	      "  %next = add i64 %i, 1\n  %more = icmp ult i64 %next, %nr\n  br i1 %more, label %loop, label %done\ndone:\n  ret i64 %y\n}\n"
	      "!0 = !{ptr @t0, ptr @t1, ptr @t2, ptr @t3, ptr @t4, ptr @t5, ptr @t6, ptr @t7}\n!1 = !{!\"VP\", i32 0, i64 1000000",
	      out);
	for (int i = 0; i < NR_TARGETS; i++) {
		snprintf(name, sizeof(name), "t%d", i);
		fprintf(out, ", i64 %lld, i64 %u", (long long)shunt_profile_hash(name, strlen(name)), distribution->per_mille[i] * 1000);
	}
	fputs("}\n", out);
	fclose(out);
	return text;
}

/* Of 1,000 calls: those whose target has no direct call in @run. */
static unsigned count_indirect(LLVMModuleRef module, const struct distribution *distribution)
{
	LLVMValueRef run = LLVMGetNamedFunction(module, "run");
	unsigned left = 1000;

	for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(run); b; b = LLVMGetNextBasicBlock(b))
		for (LLVMValueRef i = LLVMGetFirstInstruction(b); i; i = LLVMGetNextInstruction(i)) {
			LLVMValueRef callee = LLVMIsACallInst(i) ? LLVMGetCalledValue(i) : NULL;
			const char *name = callee && LLVMIsAFunction(callee) ? LLVMGetValueName(callee) : "";

			if (name[0] == 't')
				left -= distribution->per_mille[atoi(name + 1)];
		}
	return left;
}

typedef uint64_t run_fn(const uint8_t *order, uint64_t nr);

static void print_way(const struct distribution *distribution, const char *way, const char *llvm, const char *ours, const uint8_t *order,
		      int rounds)
{
	static uint64_t expected;
	struct shunt_jit_module_options options = { .pipeline = "" };
	struct shunt_jit_module *compiled;
	struct shunt_jit *jit;
	size_t len;
	char *text = target_module(distribution, &len), *error = NULL;
	LLVMContextRef context = LLVMContextCreate();
	LLVMModuleRef module = parse(context, text, len);
	double least = 1e9;
	unsigned indirect;
	run_fn *run;

	if (shunt_jit_create(NULL, &jit))
		stop("JIT", shunt_error());
	LLVMSetTarget(module, shunt_jit_triple(jit));
	if (llvm)
		run_llvm(module, llvm);
	if (ours && shunt_passes_run(module, ours, NULL, NULL, &error))
		stop(ours, error);
	indirect = count_indirect(module, distribution);
	if (shunt_jit_add(jit, context, module, &options, &compiled))
		stop(way, shunt_error());
	run = (run_fn *)shunt_jit_lookup(compiled, "run");
	for (int i = 0; i < rounds; i++) {
		double before, time;
		uint64_t result;

		shunt_read_begin();
		before = now();
		result = run(order, NR_CALLS);
		time = (now() - before) / NR_CALLS;
		shunt_read_end();
		least = time < least ? time : least;
		if (!llvm && !ours)
			expected = result;
		else if (result != expected)
			stop(way, "another result");
	}
	printf("%-22s %-24s %12u %10.2f\n", distribution->name, way, indirect, least * 1e9);
	shunt_jit_destroy(jit);
	free(text);
}

static void print_targets(int rounds)
{
	static const struct distribution distributions[] = {
		{ "one hot", { 920, 30, 20, 10, 10, 4, 4, 2 } },
		{ "falling", { 400, 250, 150, 80, 50, 40, 20, 10 } },
		{ "flat", { 125, 125, 125, 125, 125, 125, 125, 125 } },
	};
	uint8_t *order = malloc(NR_CALLS);

	if (!order)
		stop("order", "out of memory");
	puts("\ntargets called         way                      indirect/1000    ns/call");
	for (size_t d = 0; d < sizeof(distributions) / sizeof(distributions[0]); d++) {
		srand(7);
		for (size_t i = 0; i < NR_CALLS; i++) {
			int dice = rand() % 1000;
			uint8_t which = 0;

			while (which < NR_TARGETS - 1 && dice >= (int)distributions[d].per_mille[which])
				dice -= (int)distributions[d].per_mille[which++];
			order[i] = which;
		}
		print_way(&distributions[d], "indirect", NULL, NULL, order, rounds);
		print_way(&distributions[d], "LLVM pgo-icall-prom", "pgo-icall-prom", NULL, order, rounds);
		print_way(&distributions[d], "shunt-targets", NULL, "shunt-targets", order, rounds);
	}
	free(order);
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 5;

	if (rounds < 1) {
		fputs("usage: bench_passes [rounds]\n", stderr);
		return 2;
	}
	print_times(rounds);
	print_targets(rounds);
	return 0;
}
