/* SPDX-License-Identifier: MIT */
/*
 * The law of the passes: a module means the same before and after. The same IR is compiled twice, once as it is, with the functions
 * of shunt/abi.h taken from this file, and once after the passes; both are called with the same arguments and must give the same
 * pointers.
 */
#include <llvm-c/ExecutionEngine.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include "test/unit/passes.h"

enum { NR_CPUS = 3, MAX_ENTRIES = 5, VALUE_SIZE = 12, STRIDE = 16 };

static _Thread_local uint32_t cpu_number;
static unsigned nr_calls; /* of the functions below: passes are there to save them */
static char storage[64] __attribute__((aligned(8)));
static char hashed[8];

/* What inlined code may read; the only part of a map that these tests need. */
static struct shunt_map_abi array = {
	.type = SHUNT_MAP_ARRAY,
	.key_size = 4,
	.value_size = VALUE_SIZE,
	.max_entries = MAX_ENTRIES,
	.stride = STRIDE,
	.index_mask = 7,
	.values = storage,
};
static struct shunt_map_abi percpu_array = {
	.type = SHUNT_MAP_PERCPU_ARRAY,
	.key_size = 4,
	.value_size = VALUE_SIZE,
	.max_entries = MAX_ENTRIES,
	.stride = STRIDE,
	.index_mask = 7,
	.values = storage,
};
static struct shunt_map_abi percpu_hash = {
	.type = SHUNT_MAP_PERCPU_HASH, .key_size = 4, .value_size = 8, .max_entries = MAX_ENTRIES
};

static uint32_t my_cpu_id(void)
{
	nr_calls++;
	return cpu_number;
}

static char *copy(void *p, int64_t cpu)
{
	return (char *)((uintptr_t)p + (uintptr_t)cpu * (UINT64_C(1) << SHUNT_PERCPU_SHIFT));
}

static void *my_percpu_this(void *p)
{
	nr_calls++;
	return copy(p, (int32_t)cpu_number);
}

static uint32_t my_nr_cpus(void)
{
	return NR_CPUS;
}

static void *my_percpu_of(void *p, uint32_t cpu)
{
	nr_calls++;
	return cpu < NR_CPUS ? copy(p, cpu) : NULL;
}

/* Even keys are in the hash. */
static void *my_find_percpu(void *map, const void *key)
{
	uint32_t number;

	memcpy(&number, key, sizeof(number));
	return number % 2 ? NULL : hashed;
}

static void *lookup(struct shunt_map_abi *map, const void *key, int64_t cpu)
{
	uint32_t number;
	char *p;

	nr_calls++;
	memcpy(&number, key, sizeof(number));
	if (map->type == SHUNT_MAP_PERCPU_HASH)
		p = my_find_percpu(map, key);
	else
		p = number < map->max_entries ? (char *)map->values + (size_t)number * map->stride : NULL;
	return p && map->type != SHUNT_MAP_ARRAY ? copy(p, cpu) : p;
}

static void *my_lookup(struct shunt_map_abi *map, const void *key)
{
	return lookup(map, key, (int32_t)cpu_number);
}

static void *my_lookup_of(struct shunt_map_abi *map, const void *key, uint32_t cpu)
{
	return cpu < NR_CPUS ? lookup(map, key, cpu) : NULL;
}

static uint64_t my_stub(uint64_t a, uint64_t b)
{
	return a * 31 + b;
}

/* dso_local: the old dynamic linker behind MCJIT loses GOT entries of code in the large model on arm64. */
static const char text[] =
	"@array = external dso_local global i8\n"
	"@percpu_array = external dso_local global i8\n"
	"@percpu_hash = external dso_local global i8\n"
	"declare i32 @shunt_cpu_id()\n"
	"declare ptr @shunt_percpu_this(ptr)\n"
	"declare ptr @shunt_percpu_of(ptr, i32)\n"
	"declare ptr @shunt_map_lookup(ptr, ptr)\n"
	"declare ptr @shunt_map_lookup_of(ptr, ptr, i32)\n"
	"define ptr @look(i32 %which, i32 %key, i32 %cpu, ptr %p) {\n"
	"  %raw = alloca [8 x i8], align 4\n"
	"  %slot = getelementptr i8, ptr %raw, i64 1\n" /* a key that is not aligned */
	"  store i32 %key, ptr %slot, align 1\n"
	"  switch i32 %which, label %none [ i32 0, label %l0  i32 1, label %l1  i32 2, label %l2  i32 3, label %l3\n"
	"                                   i32 4, label %l4  i32 5, label %l5  i32 6, label %l6  i32 7, label %l7  i32 8, label %l8 ]\n"
	"l0:\n  %r0 = call ptr @shunt_map_lookup(ptr @array, ptr %slot)\n  ret ptr %r0\n"
	"l1:\n  %r1 = call ptr @shunt_map_lookup(ptr @percpu_array, ptr %slot)\n  ret ptr %r1\n"
	"l2:\n  %r2 = call ptr @shunt_map_lookup_of(ptr @percpu_array, ptr %slot, i32 %cpu)\n  ret ptr %r2\n"
	"l3:\n  %r3 = call ptr @shunt_map_lookup(ptr @percpu_hash, ptr %slot)\n  ret ptr %r3\n"
	"l4:\n  %r4 = call ptr @shunt_map_lookup_of(ptr @percpu_hash, ptr %slot, i32 %cpu)\n  ret ptr %r4\n"
	"l5:\n  %r5 = call ptr @shunt_percpu_this(ptr %p)\n  ret ptr %r5\n"
	"l6:\n  %r6 = call ptr @shunt_percpu_of(ptr %p, i32 %cpu)\n  ret ptr %r6\n"
	"l7:\n  %r7 = call i32 @shunt_cpu_id()\n  %p7 = inttoptr i32 %r7 to ptr\n  ret ptr %p7\n"
	"l8:\n  %odd = and i32 %key, 1\n  %c = icmp eq i32 %odd, 0\n  %m = select i1 %c, ptr @percpu_array, ptr @percpu_array\n"
	"  %r8 = call ptr @shunt_map_lookup(ptr %m, ptr %slot)\n  ret ptr %r8\n"
	"none:\n  ret ptr null\n"
	"}\n"
	"define i64 @dispatch(ptr %prog, i64 %a, i64 %b) {\n"
	"  %r = call i64 %prog(i64 %a, i64 %b), !shunt.dispatch !0\n"
	"  %s = add i64 %r, 1\n"
	"  ret i64 %s\n"
	"}\n"
	"!0 = !{!\"xdp\"}\n";

typedef void *look_fn(uint32_t which, uint32_t key, uint32_t cpu, void *p);
typedef uint64_t dispatch_fn(void *prog, uint64_t a, uint64_t b);

/* Gives the module's undefined names the addresses above, as far as it uses them. */
static void map_names(LLVMExecutionEngineRef engine, LLVMModuleRef module)
{
	const struct {
		const char *name;
		void *address;
	} names[] = {
		{ "shunt_cpu_id", my_cpu_id },
		{ "shunt_percpu_this", my_percpu_this },
		{ "shunt_percpu_of", my_percpu_of },
		{ "shunt_nr_cpus", my_nr_cpus },
		{ "shunt_map_lookup", my_lookup },
		{ "shunt_map_lookup_of", my_lookup_of },
		{ "shunt_map_find_percpu", my_find_percpu },
		{ "shunt_stub.xdp", my_stub },
		{ "array", &array },
		{ "percpu_array", &percpu_array },
		{ "percpu_hash", &percpu_hash },
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		LLVMValueRef value = LLVMGetNamedFunction(module, names[i].name);

		if (!value)
			value = LLVMGetNamedGlobal(module, names[i].name);
		if (value)
			LLVMAddGlobalMapping(engine, value, names[i].address);
	}
}

/* Compiles the text, after the passes when options is not NULL. The engine owns module and code. */
static LLVMExecutionEngineRef compile(LLVMContextRef context, const struct shunt_pass_options *options)
{
	struct LLVMMCJITCompilerOptions jit;
	LLVMExecutionEngineRef engine;
	struct shunt_pass_counts counts = { 0 };
	char *triple = LLVMGetDefaultTargetTriple(), *error = NULL;
	LLVMModuleRef module = parse_module(context, text);

	LLVMSetTarget(module, triple);
	LLVMDisposeMessage(triple);
	if (options) {
		cr_assert_eq(shunt_passes_run(module, "shunt", options, &counts, NULL), 0);
		cr_assert_eq(counts.missed, 0u);
		check_module(module);
	}
	LLVMInitializeMCJITCompilerOptions(&jit, sizeof(jit));
	jit.CodeModel = LLVMCodeModelLarge; /* the names above may be out of a branch's reach */
	cr_assert_eq(LLVMCreateMCJITCompilerForModule(&engine, module, &jit, sizeof(jit), &error), 0, "%s", error);
	map_names(engine, module);
	return engine;
}

static struct shunt_pass_map describe(const char *symbol, const struct shunt_map_abi *map)
{
	return (struct shunt_pass_map){
		.symbol = symbol,
		.type = map->type,
		.key_size = map->key_size,
		.value_size = map->value_size,
		.max_entries = map->max_entries,
		.stride = map->stride,
		.index_mask = map->index_mask,
	};
}

static void compare_all(bool values_known, bool spectre_v1, uint32_t nr_cpus)
{
	struct shunt_pass_map maps[] = { describe("array", &array), describe("percpu_array", &percpu_array),
					 describe("percpu_hash", &percpu_hash) };
	struct shunt_pass_options options = {
		.maps = maps, .nr_maps = 3, .cpu = SHUNT_PASS_CPU_TP, .spectre_v1 = spectre_v1, .nr_cpus = nr_cpus, .hash_calls = true
	};
	static const uint32_t keys[] = { 0, 1, MAX_ENTRIES - 1, MAX_ENTRIES, 7, 8, 0x7fffffff, 0x80000000, 0xffffffff };
	static const uint32_t numbers[] = {
		0, 1, NR_CPUS - 1, NR_CPUS, 0xffffffff, 0xfffffffe
	}; /* the last two: threads without rseq */
	LLVMContextRef context = LLVMContextCreate();
	LLVMExecutionEngineRef before, after;
	look_fn *look_before, *look_after;

	options.cpu_offset = (char *)&cpu_number - (char *)__builtin_thread_pointer();
	for (int i = 0; values_known && i < 2; i++)
		maps[i].values = (uintptr_t)storage;
	before = compile(context, NULL);
	after = compile(context, &options);
	look_before = (look_fn *)LLVMGetFunctionAddress(before, "look");
	look_after = (look_fn *)LLVMGetFunctionAddress(after, "look");
	for (uint32_t which = 0; which < 9; which++)
		for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++)
			for (size_t t = 0; t < sizeof(numbers) / sizeof(numbers[0]); t++)
				for (size_t c = 0; c < sizeof(numbers) / sizeof(numbers[0]); c++) {
					void *wanted, *got;

					cpu_number = numbers[t];
					wanted = look_before(which, keys[k], numbers[c], storage);
					nr_calls = 0;
					got = look_after(which, keys[k], numbers[c], storage);
					cr_assert_eq(got, wanted, "form %u, key %u, thread's CPU %u, CPU %u: %p for %p", which,
						     keys[k], numbers[t], numbers[c], got, wanted);
					cr_assert_eq(nr_calls, 0u, "form %u still calls", which);
				}
	LLVMDisposeExecutionEngine(before);
	LLVMDisposeExecutionEngine(after);
	LLVMContextDispose(context);
}

static void setup(void)
{
	LLVMLinkInMCJIT();
	LLVMInitializeNativeTarget();
	LLVMInitializeNativeAsmPrinter();
}

TestSuite(meaning, .init = setup, .timeout = 60);

Test(meaning, inlined_code_gives_what_the_calls_give)
{
	compare_all(true, false, NR_CPUS);
}

Test(meaning, so_it_does_when_the_base_is_read_from_the_map)
{
	compare_all(false, false, NR_CPUS);
}

Test(meaning, so_it_does_with_masked_indices)
{
	compare_all(true, true, NR_CPUS);
}

Test(meaning, so_it_does_when_the_number_of_cpus_is_asked_for)
{
	compare_all(true, false, 0);
}

Test(meaning, a_dispatched_call_passes_its_arguments_unchanged)
{
	const struct shunt_pass_options options = { .cpu = SHUNT_PASS_CPU_TP,
						    .nr_cpus = 1,
						    .maps = (struct shunt_pass_map[]){ describe("array", &array),
										       describe("percpu_array", &percpu_array),
										       describe("percpu_hash", &percpu_hash) },
						    .nr_maps = 3,
						    .hash_calls = true };
	LLVMContextRef context = LLVMContextCreate();
	LLVMExecutionEngineRef before = compile(context, NULL), after = compile(context, &options);
	dispatch_fn *direct = (dispatch_fn *)LLVMGetFunctionAddress(after, "dispatch");
	dispatch_fn *indirect = (dispatch_fn *)LLVMGetFunctionAddress(before, "dispatch");

	cr_expect_eq(indirect(my_stub, 5, 7), 5u * 31 + 7 + 1);
	cr_expect_eq(direct(my_stub, 5, 7), 5u * 31 + 7 + 1);
	LLVMDisposeExecutionEngine(before);
	LLVMDisposeExecutionEngine(after);
	LLVMContextDispose(context);
}
