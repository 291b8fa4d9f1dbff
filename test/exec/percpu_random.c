/* SPDX-License-Identifier: MIT */
/*
 * Random programs on random maps and keys, compiled as they are and after shunt-percpu: the same results, and the same in the maps, for all
 * CPUs. One thread on one CPU, so that exact updates and those left as written come to the same. SHUNT_RANDOM_SEED=N in the environment
 * tries other programs than those of every day. Without Criterion, whose runner does not start under ThreadSanitizer.
 */
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <llvm-c/Core.h>
#include <llvm-c/IRReader.h>
#include <shunt/jit.h>
#include <shunt/log.h>
#include <shunt/map.h>
#include <shunt/percpu.h>
#include <shunt/reader.h>
#include "test/slowness.h"

enum { NR_MODULES = 40, NR_CASES = 6, NR_STATEMENTS = 6, NR_MAPS = 5, NR_RUNS = 150, MAX_KEYS = 20 };
enum world { AS_WRITTEN, LOWERED, NR_WORLDS };

#define MUST(condition)                                                                                                                    \
	do {                                                                                                                               \
		if (!(condition)) {                                                                                                        \
			fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #condition, shunt_error());                        \
			exit(1);                                                                                                           \
		}                                                                                                                          \
	} while (0)

static uint64_t state;

static uint32_t roll(uint32_t sides)
{
	state = state * 6364136223846793005 + 1442695040888963407;
	return (uint32_t)(state >> 33) % sides;
}

/* ---- maps ------------------------------------------------------------------------------------------------------ */

static struct shunt_map_attr shapes[NR_MAPS];
static struct shunt_map *maps[NR_WORLDS][NR_MAPS];
static void *objects[NR_WORLDS];

static bool is_array(int i)
{
	return shapes[i].type == SHUNT_MAP_ARRAY || shapes[i].type == SHUNT_MAP_PERCPU_ARRAY;
}

static bool is_percpu(int i)
{
	return shunt_map_is_percpu(maps[0][i]);
}

static void make_maps(void)
{
	static const uint32_t types[] = { SHUNT_MAP_ARRAY, SHUNT_MAP_PERCPU_ARRAY, SHUNT_MAP_HASH, SHUNT_MAP_PERCPU_HASH,
					  SHUNT_MAP_LRU_HASH, SHUNT_MAP_LRU_PERCPU_HASH };
	static const uint32_t key_sizes[] = { 4, 8, 16, 5, 12 }, value_sizes[] = { 8, 16, 24, 40, 12 };

	for (int i = 0; i < NR_MAPS; i++) {
		shapes[i] = (struct shunt_map_attr){ .type = types[roll(6)], .max_entries = 1 + roll(12), .name = "random" };
		shapes[i].key_size = is_array(i) ? 4 : key_sizes[roll(5)];
		shapes[i].value_size = value_sizes[roll(5)];
		for (int world = 0; world < NR_WORLDS; world++)
			MUST(shunt_map_create(&shapes[i], &maps[world][i]) == 0);
	}
	for (int world = 0; world < NR_WORLDS; world++)
		MUST(shunt_percpu_alloc(64, 0, &objects[world]) == 0);
}

/* Key number n of every map, as the programs make it. */
static void make_key(unsigned char key[16], uint64_t number)
{
	uint64_t rest = ~number;

	memcpy(key, &number, 8);
	memcpy(key + 8, &rest, 8);
}

static void compare_maps(void)
{
	static uint64_t values[NR_WORLDS][65536];
	unsigned char key[16];

	for (int i = 0; i < NR_MAPS; i++) {
		size_t len = shunt_map_host_value_size(maps[0][i]);

		MUST(len + 64 <= sizeof(values[0]));
		MUST(shunt_map_count(maps[0][i]) == shunt_map_count(maps[1][i]));
		for (uint64_t number = 0; number < MAX_KEYS; number++) {
			int err[NR_WORLDS];

			make_key(key, number);
			for (int world = 0; world < NR_WORLDS; world++) {
				memset(values[world], 0, len + 64);
				err[world] = shunt_map_host_lookup(maps[world][i], key, values[world]);
				if (!err[world] && is_percpu(i))
					MUST(!shunt_map_host_lookup_unregistered(maps[world][i], key, (char *)values[world] + len));
			}
			MUST(err[0] == err[1]);
			MUST(!memcmp(values[0], values[1], len + 64));
		}
	}
	for (int64_t cpu = -2; cpu < (int64_t)shunt_nr_cpus(); cpu++)
		MUST(!memcmp((char *)objects[0] + cpu * (INT64_C(1) << SHUNT_PERCPU_SHIFT),
			     (char *)objects[1] + cpu * (INT64_C(1) << SHUNT_PERCPU_SHIFT), 64));
}

static void end_maps(void)
{
	for (int world = 0; world < NR_WORLDS; world++) {
		for (int i = 0; i < NR_MAPS; i++)
			shunt_map_put(maps[world][i]);
		shunt_percpu_free(objects[world]);
	}
	MUST(shunt_quiesce() == 0);
}

/* ---- programs -------------------------------------------------------------------------------------------------- */

static char text[1 << 18];
static size_t text_len;
static unsigned next_value;
static char sum[16]; /* the value that everything read goes into */

static void emit(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void emit(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	text_len += (size_t)vsnprintf(text + text_len, sizeof(text) - text_len, format, args);
	va_end(args);
	MUST(text_len < sizeof(text));
}

/* sum = sum * 31 + value, an i64. */
static void take(const char *value)
{
	unsigned n = next_value++;

	emit("  %%s%u = mul i64 %s, 31\n  %%t%u = add i64 %%s%u, %s\n", n, sum, n, n, value);
	snprintf(sum, sizeof(sum), "%%t%u", n);
}

/* Stores a key at %kN: mostly one of those that the maps may hold. */
static void emit_key(unsigned n)
{
	static const char *const from[] = { "%a", "%b" };

	emit("  %%kh%u = getelementptr i64, ptr %%k%u, i64 1\n", n, n);
	if (roll(3)) {
		emit("  %%kn%u = urem i64 %s, %u\n", n, roll(4) ? from[roll(2)] : sum, 1 + roll(MAX_KEYS));
		emit("  %%kx%u = xor i64 %%kn%u, -1\n", n, n);
		emit("  store i64 %%kn%u, ptr %%k%u\n  store i64 %%kx%u, ptr %%kh%u\n", n, n, n, n);
	} else {
		uint32_t number = roll(MAX_KEYS);

		emit("  store i64 %u, ptr %%k%u\n  store i64 %lld, ptr %%kh%u\n", number, n, (long long)~(uint64_t)number, n);
	}
}

/* What the found value gives and becomes, at %q; leaves an i64 %r. */
static void emit_update(unsigned n, unsigned width)
{
	static const char *const ops[] = { "add", "sub", "or", "and", "xor", "add", "add", "mul", "shl" };
	const char *op = ops[roll(9)];

	emit("  %%x%u = trunc i64 %s to i%u\n", n, roll(2) ? "%a" : sum, width == 64 ? 63 : width);
	if (width == 64)
		emit("  %%y%u = zext i63 %%x%u to i64\n", n, n);
	else
		emit("  %%y%u = or i%u %%x%u, 0\n", n, width, n);
	if (width >= 32 && !roll(4)) {
		emit("  %%o%u = atomicrmw %s ptr %%q%u, i%u %%y%u seq_cst\n", n, (const char *[]){ "add", "or", "and", "xor" }[roll(4)], n, width,
		     n);
		emit("  %%v%u = load i%u, ptr %%q%u\n", n, width, n);
	} else {
		emit("  %%v%u = load i%u, ptr %%q%u\n", n, width, n);
		if (!strcmp(op, "shl"))
			emit("  %%w%u = shl i%u %%v%u, 1\n", n, width, n);
		else if (!strcmp(op, "sub") || roll(3))
			emit("  %%w%u = %s i%u %%v%u, %%y%u\n", n, op, width, n, n);
		else
			emit("  %%w%u = %s i%u %u, %%v%u\n", n, op, width, roll(120), n);
		switch (roll(4)) {
		case 0: /* only sometimes */
			emit("  %%c%u = icmp ult i64 %%a, %%b\n  %%u%u = select i1 %%c%u, i%u %%w%u, i%u %%v%u\n", n, n, n, width, n, width, n);
			emit("  store i%u %%u%u, ptr %%q%u\n", width, n, n);
			break;
		case 1: /* in another block, which another way leads to, too */
			emit("  %%c%u = icmp ult i64 %%a, %%b\n  br i1 %%c%u, label %%one%u, label %%two%u\none%u:\n  br label %%two%u\ntwo%u:\n", n, n,
			     n, n, n, n, n);
			emit("  %%u%u = phi i%u [ %%w%u, %%found%u ], [ %%v%u, %%one%u ]\n", n, width, n, n, n, n);
			emit("  store i%u %%u%u, ptr %%q%u\n", width, n, n);
			break;
		default:
			emit("  store i%u %%w%u, ptr %%q%u\n", width, n, n);
			break;
		}
	}
	if (width == 64)
		emit("  %%r%u = add i64 %%v%u, 0\n", n, n);
	else
		emit("  %%r%u = zext i%u %%v%u to i64\n", n, width, n);
}

static void emit_lookup(unsigned n, int i)
{
	unsigned width = 8u << roll(4);

	/* A value ends where it ends. */
	if (width == 64 && shapes[i].value_size % 8)
		width = 32;
	if (is_percpu(i) && !roll(6))
		emit("  %%n%u = urem i64 %%b, 5\n  %%m%u = trunc i64 %%n%u to i32\n"
		     "  %%p%u = call ptr @shunt_map_lookup_of(ptr @m%d, ptr %%k%u, i32 %%m%u)\n",
		     n, n, n, n, i, n, n);
	else
		emit("  %%p%u = call ptr @shunt_map_lookup(ptr @m%d, ptr %%k%u)\n", n, i, n);
	emit("  %%z%u = icmp eq ptr %%p%u, null\n  br i1 %%z%u, label %%absent%u, label %%found%u\n", n, n, n, n, n);
	emit("absent%u:\n  br label %%end%u\nfound%u:\n", n, n, n);
	emit("  %%q%u = getelementptr i8, ptr %%p%u, i64 %u\n", n, n, roll(shapes[i].value_size * 8 / width) * width / 8);
	emit_update(n, width);
	emit("  br label %%last%u\nlast%u:\n  br label %%end%u\nend%u:\n  %%f%u = phi i64 [ 7, %%absent%u ], [ %%r%u, %%last%u ]\n", n, n, n, n, n,
	     n, n, n);
}

static void emit_statement(unsigned n)
{
	int i = (int)roll(NR_MAPS);
	char result[16];

	emit_key(n);
	switch (roll(8)) {
	case 0:
		emit("  store i64 %s, ptr %%val\n  %%e%u = call i32 @shunt_map_update(ptr @m%d, ptr %%k%u, ptr %%val, i64 %u)\n", sum, n, i, n,
		     roll(3));
		emit("  %%f%u = sext i32 %%e%u to i64\n", n, n);
		break;
	case 1:
		emit("  %%e%u = call i32 @shunt_map_delete(ptr @m%d, ptr %%k%u)\n  %%f%u = sext i32 %%e%u to i64\n", n, i, n, n, n);
		break;
	case 2: {
		unsigned width = 8u << roll(4);

		emit("  %%g%u = getelementptr i8, ptr @object, i64 %u\n  %%x%u = trunc i64 %%a to i8\n", n, roll(8) * 8, n);
		emit("  %%y%u = %s i8 %%x%u to i%u\n", n, width == 8 ? "bitcast" : "zext", n, width);
		emit("  call void @shunt_percpu_add%u(ptr %%g%u, i%u %%y%u)\n", width, n, width, n);
		emit("  %%h%u = call ptr @shunt_percpu_this(ptr %%g%u)\n  %%f%u = load i64, ptr %%h%u\n", n, n, n, n);
		break;
	}
	default:
		emit_lookup(n, i);
		break;
	}
	snprintf(result, sizeof(result), "%%f%u", n);
	take(result);
}

static void write_module(const struct shunt_jit *jit)
{
	text_len = 0;
	emit("target triple = \"%s\"\ntarget datalayout = \"%s\"\n", shunt_jit_triple(jit), shunt_jit_data_layout(jit));
	for (int i = 0; i < NR_MAPS; i++)
		emit("@m%d = external global i8\n", i);
	emit("@object = external global i8\ndeclare ptr @shunt_map_lookup(ptr, ptr)\ndeclare ptr @shunt_map_lookup_of(ptr, ptr, i32)\n"
	     "declare i32 @shunt_map_update(ptr, ptr, ptr, i64)\ndeclare i32 @shunt_map_delete(ptr, ptr)\ndeclare ptr @shunt_percpu_this(ptr)\n");
	for (unsigned width = 8; width <= 64; width *= 2)
		emit("declare void @shunt_percpu_add%u(ptr, i%u)\n", width, width);
	for (int number = 0; number < NR_CASES; number++) {
		next_value = 0;
		snprintf(sum, sizeof(sum), "%%a");
		emit("define i64 @case_%d(i64 %%a, i64 %%b) {\n  %%val = alloca [8 x i64]\n", number);
		emit("  call void @llvm.memset.p0.i64(ptr %%val, i8 3, i64 64, i1 false)\n");
		for (unsigned n = 0; n < NR_STATEMENTS; n++)
			emit("  %%k%u = alloca [2 x i64]\n", n);
		for (unsigned n = 0; n < NR_STATEMENTS; n++)
			emit_statement(n);
		emit("  ret i64 %s\n}\n", sum);
	}
	emit("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)\n");
}

static struct shunt_jit_module *compile(struct shunt_jit *jit, enum world world, struct shunt_pass_counts *counts)
{
	static const char *const names[NR_MAPS] = { "m0", "m1", "m2", "m3", "m4" };
	struct shunt_jit_symbol symbols[NR_MAPS + 1];
	struct shunt_pass_map described[NR_MAPS] = { 0 };
	struct shunt_pass_options passes = { .maps = described, .nr_maps = NR_MAPS, .rmw = (enum shunt_pass_rmw)(1 + roll(3)) };
	struct shunt_jit_module_options options = {
		.pipeline = world == LOWERED ? "shunt" : "", .passes = &passes, .symbols = symbols, .nr_symbols = NR_MAPS + 1
	};
	LLVMContextRef context = LLVMContextCreate();
	LLVMModuleRef module = NULL;
	struct shunt_jit_module *out = NULL;
	char *message = NULL;

	for (int i = 0; i < NR_MAPS; i++) {
		const struct shunt_map_abi *abi = shunt_map_abi(maps[world][i]);

		symbols[i] = (struct shunt_jit_symbol){ names[i], maps[world][i] };
		described[i] = (struct shunt_pass_map){ .symbol = names[i], .address = (uintptr_t)maps[world][i], .type = abi->type,
							.key_size = abi->key_size, .value_size = abi->value_size, .max_entries = abi->max_entries,
							.stride = abi->stride, .index_mask = abi->index_mask,
							.values = roll(2) ? (uintptr_t)abi->values : 0 };
	}
	symbols[NR_MAPS] = (struct shunt_jit_symbol){ "object", objects[world] };
	passes.spectre_v1 = roll(2);
	passes.hash_calls = !roll(3);
	if (LLVMParseIRInContext(context, LLVMCreateMemoryBufferWithMemoryRangeCopy(text, text_len, "random"), &module, &message)) {
		fprintf(stderr, "the test's own IR does not parse: %s\n%s\n", message, text);
		exit(1);
	}
	MUST(shunt_jit_add(jit, context, module, &options, &out) == 0);
	if (world == LOWERED) {
		const struct shunt_pass_counts *got = shunt_jit_module_counts(out);

		counts->exact_updates += got->exact_updates;
		counts->array_lookups += got->array_lookups;
		counts->percpu_array_lookups += got->percpu_array_lookups;
		counts->hash_lookups += got->hash_lookups;
		counts->percpu_hash_lookups += got->percpu_hash_lookups;
	}
	return out;
}

static void run(struct shunt_jit *jit, struct shunt_pass_counts *counts)
{
	struct shunt_jit_module *modules[NR_WORLDS];
	uint64_t (*cases[NR_WORLDS][NR_CASES])(uint64_t, uint64_t);

	make_maps();
	write_module(jit);
	for (int world = 0; world < NR_WORLDS; world++) {
		modules[world] = compile(jit, world, counts);
		for (int number = 0; number < NR_CASES; number++) {
			char name[16];

			snprintf(name, sizeof(name), "case_%d", number);
			cases[world][number] = (uint64_t(*)(uint64_t, uint64_t))(uintptr_t)shunt_jit_lookup(modules[world], name);
			MUST(cases[world][number]);
		}
	}
	for (int i = 0; i < NR_RUNS; i++) {
		uint32_t number = roll(NR_CASES);
		uint64_t a = roll(3) ? roll(100) : state, b = roll(3) ? roll(100) : state * 3, results[NR_WORLDS];

		shunt_read_begin();
		for (int world = 0; world < NR_WORLDS; world++)
			results[world] = cases[world][number](a, b);
		shunt_read_end();
		if (results[0] != results[1])
			fprintf(stderr, "%s\nrun %d: @case_%u(%llu, %llu)\n", text, i, number, (unsigned long long)a, (unsigned long long)b);
		MUST(results[0] == results[1]);
	}
	compare_maps();
	for (int world = 0; world < NR_WORLDS; world++)
		shunt_jit_remove(modules[world]);
	end_maps();
}

int main(void)
{
	const char *seed = getenv("SHUNT_RANDOM_SEED");
	struct shunt_pass_counts counts = { 0 };
	struct shunt_jit *jits[2];
	/* An emulator gets the first of the modules only: there the machine is tried, not the passes. In a quarter there is one of each kind. */
	unsigned nr = test_slowness() > 1 ? NR_MODULES / 4 : NR_MODULES;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(sched_getcpu(), &set);
	MUST(sched_setaffinity(0, sizeof(set), &set) == 0);
	for (unsigned i = 0; i < 2; i++)
		MUST(shunt_jit_create(&(struct shunt_jit_options){ .opt_level = i * 2 }, &jits[i]) == 0);
	for (unsigned i = 0; i < nr; i++) {
		state = (seed ? strtoull(seed, NULL, 10) : 0) * NR_MODULES + i;
		run(jits[i % 2], &counts);
	}
	for (unsigned i = 0; i < 2; i++)
		shunt_jit_destroy(jits[i]);
	printf("ok: %u modules; inlined: %u arrays, %u per-CPU arrays, %u hashes, %u per-CPU hashes, %u exact updates\n", nr,
	       counts.array_lookups, counts.percpu_array_lookups, counts.hash_lookups, counts.percpu_hash_lookups, counts.exact_updates);
	MUST(counts.array_lookups && counts.percpu_array_lookups && counts.hash_lookups && counts.percpu_hash_lookups && counts.exact_updates);
	return 0;
}
