/* SPDX-License-Identifier: MIT */
/*
 * Calls through a pointer with eight targets, as they are, after LLVM's promotion of indirect calls, and after shunt-targets, all from the
 * same value profile: how many calls in 1,000 stay indirect, and how long a call takes, with indirect calls as they are and (x86-64) with
 * retpolines, which is what the kernel and hosts that mitigate Spectre v2 in software pay for each call that stays. Promotion stops after
 * three targets, and before one that has under 30 % of what is left.
 */
#include "bench/bench_passes.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <llvm-c/Core.h>
#include <shunt/jit.h>
#include <shunt/log.h>
#include <shunt/passes.h>
#include <shunt/reader.h>
#include "bench/common.h"
#include "passes/profile.h"

#ifdef __x86_64__
#define NR_HARDENINGS 2
#else
#define NR_HARDENINGS 1 /* nothing to compile a call to that the predictor does not see */
#endif
#define NR_WAYS 3

enum { NR_TARGETS = 8, NR_CALLS = 1 << 20 };

enum order {
	RANDOM, /* nothing to predict but the frequencies */
	TURNS,  /* one after the other: a pattern that is learnt */
	PHASES, /* each for a thousand calls */
};

struct distribution {
	const char *name;
	enum order order;
	unsigned int per_mille[NR_TARGETS];
};

typedef uint64_t run_fn(const uint8_t *order, uint64_t nr);

struct way {
	const char *name;
	const char *llvm, *ours; /* pipelines, NULL: none */
};

static const struct way ways[NR_WAYS] = {
	{ "indirect", NULL, NULL },
	{ "LLVM pgo-icall-prom", "pgo-icall-prom", NULL },
	{ "shunt-targets", NULL, "shunt-targets" },
};

/* A way's code, and what it took. */
struct run {
	struct shunt_jit_module *module;
	run_fn *fn;
	unsigned int indirect; /* of 1,000 calls */
	double ns[BENCH_MAX_ROUNDS];
};

/* Every target is a few instructions of its own; the loop calls what `order` names. */
static char *write_module(const struct distribution *distribution, bool retpolines, size_t *len)
{
	const char *features = retpolines ? "\"target-features\"=\"+retpoline-indirect-calls\"" : "";
	char *text, name[8];
	FILE *out = open_memstream(&text, len);

	if (!out)
		bench_stop("module", "out of memory");
	for (int i = 0; i < NR_TARGETS; i++)
		fprintf(out, "define i64 @t%d(i64 %%x) %s {\n  %%a = mul i64 %%x, %d\n  %%b = xor i64 %%a, %d\n  ret i64 %%b\n}\n", i, features,
			2 * i + 3, i * 77 + 1);
	fprintf(out, "define i64 @run(ptr %%order, i64 %%nr) %s {\nentry:\n  br label %%loop\nloop:\n", features);
	fputs("  %i = phi i64 [ 0, %entry ], [ %next, %loop ]\n  %x = phi i64 [ 1, %entry ], [ %y, %loop ]\n"
	      "  %at = getelementptr i8, ptr %order, i64 %i\n  %which = load i8, ptr %at\n  %wide = zext i8 %which to i64\n"
	      "  %slot = getelementptr ptr, ptr @table, i64 %wide\n  %f = load volatile ptr, ptr %slot\n"
	      "  %y = call i64 %f(i64 %x), !shunt.targets !0, !prof !1\n"
	      "  %next = add i64 %i, 1\n  %more = icmp ult i64 %next, %nr\n  br i1 %more, label %loop, label %done\ndone:\n  ret i64 %y\n}\n"
	      "@table = constant [8 x ptr] [ptr @t0, ptr @t1, ptr @t2, ptr @t3, ptr @t4, ptr @t5, ptr @t6, ptr @t7]\n"
	      "!0 = !{ptr @t0, ptr @t1, ptr @t2, ptr @t3, ptr @t4, ptr @t5, ptr @t6, ptr @t7}\n!1 = !{!\"VP\", i32 0, i64 1000000",
	      out);
	for (int i = 0; i < NR_TARGETS; i++) {
		snprintf(name, sizeof(name), "t%d", i);
		fprintf(out, ", i64 %lld, i64 %u", (long long)shunt_profile_hash(name, strlen(name)), distribution->per_mille[i] * 1000);
	}
	fputs("}\n", out);
	if (fclose(out))
		bench_stop("module", "out of memory");
	return text;
}

/* Of 1,000 calls: those whose target has no direct call in @run. */
static unsigned int count_indirect(LLVMModuleRef module, const struct distribution *distribution)
{
	LLVMValueRef run = LLVMGetNamedFunction(module, "run");
	unsigned int left = 1000;

	for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(run); b; b = LLVMGetNextBasicBlock(b))
		for (LLVMValueRef i = LLVMGetFirstInstruction(b); i; i = LLVMGetNextInstruction(i)) {
			LLVMValueRef callee = LLVMIsACallInst(i) ? LLVMGetCalledValue(i) : NULL;
			const char *name = callee && LLVMIsAFunction(callee) ? LLVMGetValueName(callee) : "";

			if (name[0] == 't')
				left -= distribution->per_mille[atoi(name + 1)];
		}
	return left;
}

static void compile(struct shunt_jit *jit, const struct distribution *distribution, const struct way *way, bool retpolines, struct run *run)
{
	const struct shunt_jit_module_options options = { .pipeline = "" };
	LLVMContextRef context = LLVMContextCreate();
	size_t len;
	char *text = write_module(distribution, retpolines, &len), *error = NULL;
	LLVMModuleRef module = bench_parse(context, text, len);

	LLVMSetTarget(module, shunt_jit_triple(jit));
	if (way->llvm)
		bench_run_llvm(module, way->llvm);
	if (way->ours && shunt_passes_run(module, way->ours, NULL, NULL, &error))
		bench_stop(way->ours, error);
	run->indirect = count_indirect(module, distribution);
	if (shunt_jit_add(jit, context, module, &options, &run->module))
		bench_stop(way->name, shunt_error());
	run->fn = (run_fn *)shunt_jit_lookup(run->module, "run");
	if (!run->fn)
		bench_stop(way->name, shunt_error());
	free(text);
}

static uint64_t measure(struct run *run, const uint8_t *order, size_t round)
{
	double before;
	uint64_t result;

	shunt_read_begin();
	before = bench_now();
	result = run->fn(order, NR_CALLS);
	run->ns[round] = (bench_now() - before) / NR_CALLS * 1e9;
	shunt_read_end();
	return result;
}

static void print_way(const struct distribution *distribution, size_t way, struct run runs[NR_HARDENINGS][NR_WAYS], size_t rounds)
{
	printf("%-15s %-20s %8u", distribution->name, ways[way].name, runs[0][way].indirect);
	for (size_t hard = 0; hard < NR_HARDENINGS; hard++) {
		struct bench_spread ns = bench_spread_of(runs[hard][way].ns, rounds);
		struct bench_spread ratio = bench_ratio_of(runs[hard][way].ns, runs[hard][1].ns, rounds);

		printf("   %6.2f (%.2f - %.2f) %5.2f x", ns.median, ns.low, ns.high, ratio.median);
	}
	putchar('\n');
}

static void compare_ways(const struct distribution *distribution, const uint8_t *order, size_t rounds)
{
	static struct run runs[NR_HARDENINGS][NR_WAYS];
	struct shunt_jit *jit;
	uint64_t expected = 0;

	if (shunt_jit_create(NULL, &jit))
		bench_stop("JIT", shunt_error());
	for (size_t hard = 0; hard < NR_HARDENINGS; hard++)
		for (size_t way = 0; way < NR_WAYS; way++)
			compile(jit, distribution, &ways[way], hard, &runs[hard][way]);
	for (size_t round = 0; round < rounds; round++)
		for (size_t hard = 0; hard < NR_HARDENINGS; hard++)
			for (size_t way = 0; way < NR_WAYS; way++) {
				uint64_t result = measure(&runs[hard][way], order, round);

				if (!round && !hard && !way)
					expected = result;
				if (result != expected)
					bench_stop(ways[way].name, "another result");
			}
	for (size_t way = 0; way < NR_WAYS; way++)
		print_way(distribution, way, runs, rounds);
	shunt_jit_destroy(jit);
}

static void fill_order(const struct distribution *distribution, uint8_t *order)
{
	uint64_t seed = 7;

	for (size_t i = 0; i < NR_CALLS; i++) {
		unsigned int dice = (unsigned int)(bench_random(&seed) % 1000);
		uint8_t which = 0;

		while (which < NR_TARGETS - 1 && dice >= distribution->per_mille[which])
			dice -= distribution->per_mille[which++];
		order[i] = distribution->order == RANDOM ? which : (uint8_t)(i / (distribution->order == TURNS ? 1 : 1000) % NR_TARGETS);
	}
}

void bench_targets(size_t rounds)
{
	static const struct distribution distributions[] = {
		{ "one hot, random", RANDOM, { 920, 30, 20, 10, 10, 4, 4, 2 } },
		{ "falling, random", RANDOM, { 400, 250, 150, 80, 50, 40, 20, 10 } },
		{ "flat, random", RANDOM, { 125, 125, 125, 125, 125, 125, 125, 125 } },
		{ "flat, in turn", TURNS, { 125, 125, 125, 125, 125, 125, 125, 125 } },
		{ "flat, in phases", PHASES, { 125, 125, 125, 125, 125, 125, 125, 125 } },
	};
	uint8_t *order = malloc(NR_CALLS);

	if (!order)
		bench_stop("order", "out of memory");
	printf("\neight targets: indirect calls left in 1,000; ns a call, median (quartiles); x: of LLVM's\n"
	       "targets         way                  indirect   as they are%s\n", NR_HARDENINGS > 1 ? "                   with retpolines" : "");
	for (size_t d = 0; d < sizeof(distributions) / sizeof(distributions[0]); d++) {
		fill_order(&distributions[d], order);
		compare_ways(&distributions[d], order, rounds);
	}
	free(order);
}
