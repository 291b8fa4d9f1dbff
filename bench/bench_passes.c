/* SPDX-License-Identifier: MIT */
/*
 * The passes, in two tables. Rounds are interleaved: each measures every way once.
 *
 *	1. CPU time of "shunt", updates made exact, over modules of 10,000 to 1,000,000 instructions in small and in large functions: per
 *	   instruction (it should stay the same), and beside LLVM's default<O2> on the same module.
 *	2. passes_targets.c: calls through a pointer with eight targets of falling frequency, as they are, after LLVM's promotion of indirect
 *	   calls, and after shunt-targets.
 *
 * usage: bench_passes [rounds]    (default 5)
 */
#include "bench/bench_passes.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <llvm-c/Core.h>
#include <llvm-c/Error.h>
#include <llvm-c/IRReader.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <shunt/passes.h>
#include "bench/common.h"

double bench_now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

void bench_stop(const char *what, const char *why)
{
	fprintf(stderr, "bench_passes: %s: %s\n", what, why);
	exit(1);
}

LLVMModuleRef bench_parse(LLVMContextRef context, const char *text, size_t len)
{
	LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(text, len, "bench");
	LLVMModuleRef module;
	char *message = NULL;

	if (LLVMParseIRInContext(context, buffer, &module, &message))
		bench_stop("parse", message);
	return module;
}

void bench_run_llvm(LLVMModuleRef module, const char *pipeline)
{
	LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
	LLVMErrorRef error = LLVMRunPasses(module, pipeline, NULL, options);

	LLVMDisposePassBuilderOptions(options);
	if (error)
		bench_stop(pipeline, LLVMGetErrorMessage(error));
}

enum { MOST_OPTIMISED = 100000 }; /* instructions: default<O2> takes seconds from there on */

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
	double before = bench_now(), result;
	char *error = NULL;

	if (!ours)
		bench_run_llvm(copy, pipeline);
	else if (shunt_passes_run(copy, pipeline, &options, &counts, &error))
		bench_stop(pipeline, error);
	result = bench_now() - before;
	if (ours && (!counts.marked || !counts.static_calls || !counts.percpu_array_lookups || !counts.dispatches ||
		     !counts.exact_updates))
		bench_stop(pipeline, "the module has lost its calls");
	LLVMDisposeModule(copy);
	return result;
}

static void print_time(size_t size, size_t per_function, size_t rounds)
{
	LLVMContextRef context = LLVMContextCreate();
	double ours[BENCH_MAX_ROUNDS], theirs[BENCH_MAX_ROUNDS];
	size_t len;
	char *text = big_module(size, per_function, &len);
	LLVMModuleRef module = bench_parse(context, text, len);
	struct bench_spread spread;

	for (size_t i = 0; i < rounds; i++) {
		ours[i] = time_passes(module, "shunt", true);
		if (size <= MOST_OPTIMISED)
			theirs[i] = time_passes(module, "default<O2>", false);
	}
	spread = bench_spread_of(ours, rounds);
	printf("%12zu %13zu %9.2f %7.0f (%.0f - %.0f)", size, per_function * 100, spread.median * 1e3, spread.median * 1e9 / (double)size,
	       spread.low * 1e9 / (double)size, spread.high * 1e9 / (double)size);
	if (size <= MOST_OPTIMISED) {
		printf(" %13.1f", bench_spread_of(theirs, rounds).median * 1e3);
		spread = bench_ratio_of(ours, theirs, rounds);
		printf("   %.2f %% (%.2f - %.2f)", 100 * spread.median, 100 * spread.low, 100 * spread.high);
		if (size == MOST_OPTIMISED)
			printf("   wanted < 3 %%: %s", spread.median < 0.03 ? "yes" : "NO");
	}
	putchar('\n');
	fflush(stdout);
	LLVMDisposeModule(module);
	LLVMContextDispose(context);
	free(text);
}

static void print_times(size_t rounds)
{
	static const size_t sizes[] = { 10000, 31600, 100000, 316000, 1000000 };

	puts("\ninstructions  per function  shunt ms  ns/instruction   default<O2> ms   shunt / O2, median (quartiles)");
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		print_time(sizes[i], 1, rounds);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		print_time(sizes[i], 100, rounds);
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 5;

	if (rounds < 1 || rounds > BENCH_MAX_ROUNDS) {
		fprintf(stderr, "usage: bench_passes [rounds, up to %d]\n", BENCH_MAX_ROUNDS);
		return 2;
	}
	bench_print_machine();
	print_times((size_t)rounds);
	bench_targets((size_t)rounds);
	return 0;
}
