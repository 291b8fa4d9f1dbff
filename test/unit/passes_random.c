/* SPDX-License-Identifier: MIT */
/*
 * The law of the passes over random modules: compiled as they are and after the passes, they give the same results and run the same
 * programs in the same order; now and then a program unwinds through all of it. The verifier looks after each pass, a second run changes nothing. SHUNT_RANDOM_SEED=N in the
 * environment tries other modules than those of every day.
 */
#include <setjmp.h>
#include <sys/mman.h>
#include <unwind.h>
#include <llvm-c/Error.h>
#include <llvm-c/ExecutionEngine.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include "test/slowness.h"
#include "test/unit/passes.h"
#include "test/unit/passes_random_ir.h"

enum { NR_CASES = 50, NR_MODULES = 25, NR_CPUS = 3, MAX_ENTRIES = 5, STRIDE = 16, OBJECT_SIZE = 64 };

static _Thread_local struct {
	uint32_t start, cpu_number;
	uint64_t rseq_cs;
} area __attribute__((aligned(32))); /* as struct rseq is, which the kernel does not know */
static char *object; /* NR_CPUS copies, and one below for threads without a number */
static uint64_t notes;
uint64_t random_nr_stub_calls; /* for the assembly below */
static char storage[128] __attribute__((aligned(8))), hashed[8];

static struct shunt_map_abi array = {
	.type = SHUNT_MAP_ARRAY, .key_size = 4, .value_size = 12, .max_entries = MAX_ENTRIES, .stride = STRIDE, .index_mask = 7, .values = storage
};
static struct shunt_map_abi array_2 = {
	.type = SHUNT_MAP_ARRAY, .key_size = 4, .value_size = 12, .max_entries = MAX_ENTRIES, .stride = STRIDE, .index_mask = 7, .values = storage + 64
};
static struct shunt_map_abi percpu_array = {
	.type = SHUNT_MAP_PERCPU_ARRAY, .key_size = 4, .value_size = 12, .max_entries = MAX_ENTRIES, .stride = STRIDE, .index_mask = 7, .values = storage
};
static struct shunt_map_abi hash = {
	.type = SHUNT_MAP_HASH, .key_size = 4, .value_size = 8, .max_entries = MAX_ENTRIES
};
static struct shunt_map_abi percpu_hash = {
	.type = SHUNT_MAP_PERCPU_HASH, .key_size = 4, .value_size = 8, .max_entries = MAX_ENTRIES
};

/* What a dispatcher's stub does at last: a jump to what the nest register names. It may clobber r11, or x16 and x17. */
void random_stub(void);
#if defined(__x86_64__)
__asm__(".text\n.globl random_stub\nrandom_stub:\n"
	"movq random_nr_stub_calls@GOTPCREL(%rip), %r11\nincq (%r11)\njmpq *%r10\n");
#else
__asm__(".text\n.globl random_stub\nrandom_stub:\n"
	"adrp x16, :got:random_nr_stub_calls\nldr x16, [x16, :got_lo12:random_nr_stub_calls]\n"
	"ldr x17, [x16]\nadd x17, x17, #1\nstr x17, [x16]\nbr x18\n");
#endif

static jmp_buf landing;
static uintptr_t case_frame; /* of the call of a case: unwinding ends there */
static bool is_unwinding;
static uint64_t nr_unwound;

static _Unwind_Reason_Code stop_at_case(int version, _Unwind_Action actions, _Unwind_Exception_Class class, struct _Unwind_Exception *exception,
					struct _Unwind_Context *context, void *user)
{
	if (_Unwind_GetCFA(context) < case_frame && !(actions & _UA_END_OF_STACK))
		return _URC_NO_REASON;
	longjmp(landing, _Unwind_GetCFA(context) < case_frame ? 2 : 1);
}

/* Sees each program and each landing pad run; the thread moves to another CPU meanwhile. */
static void my_note(uint64_t value)
{
	static struct _Unwind_Exception exception;

	notes = notes * 31 + value;
	area.cpu_number = (uint32_t)(notes % (NR_CPUS + 1)) - 1;
	if (is_unwinding || notes % 61 != 7)
		return;
	is_unwinding = true;
	_Unwind_ForcedUnwind(&exception, stop_at_case, NULL);
	abort();
}

static uint32_t my_cpu_id(void)
{
	return area.cpu_number;
}

static char *copy(void *p, int64_t cpu)
{
	return (char *)((uintptr_t)p + (uintptr_t)cpu * (UINT64_C(1) << SHUNT_PERCPU_SHIFT));
}

static void *my_percpu_this(void *p)
{
	return copy(p, (int32_t)area.cpu_number);
}

static void *my_percpu_of(void *p, uint32_t cpu)
{
	return cpu < NR_CPUS ? copy(p, cpu) : NULL;
}

#define DEFINE_ADD(bits)                                                                                                                   \
	static void my_add##bits(void *p, uint##bits##_t v)                                                                                \
	{                                                                                                                                  \
		*(uint##bits##_t *)copy(p, (int32_t)area.cpu_number) += v;                                                                 \
	}
DEFINE_ADD(64)
DEFINE_ADD(32)
DEFINE_ADD(16)
DEFINE_ADD(8)

static uint32_t my_nr_cpus(void)
{
	return NR_CPUS;
}

static void *my_find(void *map, const void *key)
{
	uint32_t number;

	memcpy(&number, key, sizeof(number));
	return number % 2 ? NULL : hashed;
}

static void *lookup(struct shunt_map_abi *map, const void *key, int64_t cpu)
{
	bool is_hash = map->type == SHUNT_MAP_HASH || map->type == SHUNT_MAP_PERCPU_HASH;
	uint32_t number;
	char *p;

	memcpy(&number, key, sizeof(number));
	if (is_hash)
		p = my_find(map, key);
	else
		p = number < map->max_entries ? (char *)map->values + (size_t)number * map->stride : NULL;
	return p && (map->type == SHUNT_MAP_PERCPU_ARRAY || map->type == SHUNT_MAP_PERCPU_HASH) ? copy(p, cpu) : p;
}

static void *my_lookup(struct shunt_map_abi *map, const void *key)
{
	return lookup(map, key, (int32_t)area.cpu_number);
}

static void *my_lookup_of(struct shunt_map_abi *map, const void *key, uint32_t cpu)
{
	return cpu < NR_CPUS ? lookup(map, key, cpu) : NULL;
}

static uint64_t my_helper_1(uint64_t map, uint64_t key, uint64_t a, uint64_t b, uint64_t c)
{
	return (uintptr_t)my_lookup((void *)(uintptr_t)map, (const void *)(uintptr_t)key);
}

static void map_name(LLVMExecutionEngineRef engine, LLVMModuleRef module, const char *name, void *address)
{
	LLVMValueRef value = LLVMGetNamedFunction(module, name);

	if (!value)
		value = LLVMGetNamedGlobal(module, name);
	if (value)
		LLVMAddGlobalMapping(engine, value, address);
}

static LLVMExecutionEngineRef compile(LLVMModuleRef module)
{
	const struct {
		const char *name;
		void *address;
	} names[] = {
		{ "note", my_note },
		{ "shunt_cpu_id", my_cpu_id },
		{ "shunt_percpu_this", my_percpu_this },
		{ "shunt_percpu_of", my_percpu_of },
		{ "shunt_nr_cpus", my_nr_cpus },
		{ "shunt_percpu_add64", my_add64 },
		{ "shunt_percpu_add32", my_add32 },
		{ "shunt_percpu_add16", my_add16 },
		{ "shunt_percpu_add8", my_add8 },
		{ "shunt_map_lookup", my_lookup },
		{ "shunt_map_lookup_of", my_lookup_of },
		{ "shunt_map_find_percpu", my_find },
		{ "shunt_map_find_hash", my_find },
		{ "_bpf_helper_ext_0001", my_helper_1 },
		{ "array", &array },
		{ "array_2", &array_2 },
		{ "percpu_array", &percpu_array },
		{ "hash", &hash },
		{ "percpu_hash", &percpu_hash },
		{ "object", object },
	};
	struct LLVMMCJITCompilerOptions jit;
	LLVMExecutionEngineRef engine;
	char *error = NULL, stub[32];

	LLVMInitializeMCJITCompilerOptions(&jit, sizeof(jit));
	jit.CodeModel = LLVMCodeModelLarge;
	jit.OptLevel = 0;
	/* Hidden means local: the old dynamic linker behind MCJIT loses GOT entries of code in the large model on arm64. */
	for (LLVMValueRef value = LLVMGetFirstGlobal(module); value; value = LLVMGetNextGlobal(value))
		if (LLVMIsDeclaration(value))
			LLVMSetVisibility(value, LLVMHiddenVisibility);
	cr_assert_eq(LLVMCreateMCJITCompilerForModule(&engine, module, &jit, sizeof(jit), &error), 0, "%s", error);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		map_name(engine, module, names[i].name, names[i].address);
	for (unsigned i = 0; i < RANDOM_IR_NR_DISPATCHERS; i++) {
		snprintf(stub, sizeof(stub), SHUNT_STUB_PREFIX "d%u", i);
		map_name(engine, module, stub, random_stub);
	}
	return engine;
}

static struct shunt_pass_map describe(const char *symbol, const struct shunt_map_abi *map, bool values_known)
{
	return (struct shunt_pass_map){
		.symbol = symbol, .type = map->type, .key_size = map->key_size, .value_size = map->value_size,
		.max_entries = map->max_entries, .stride = map->stride, .index_mask = map->index_mask,
		.values = values_known ? (uintptr_t)map->values : 0,
	};
}

/* Each pass by itself, as "shunt" does it, so that the verifier sees every step; then all again. */
static void run_passes(LLVMModuleRef module, uint64_t seed, struct shunt_pass_counts *counts)
{
	static const char *const passes[] = { "shunt-mark", "shunt-bpf-helpers", "shunt-percpu", "shunt-targets", "shunt-dispatch",
					      "shunt-pairs" };
	struct shunt_pass_map maps[] = {
		describe("array", &array, seed % 2), describe("array_2", &array_2, seed % 2), describe("percpu_array", &percpu_array, seed % 2),
		describe("hash", &hash, false), describe("percpu_hash", &percpu_hash, false),
	};
	struct shunt_pass_options options = {
		.maps = maps, .nr_maps = sizeof(maps) / sizeof(maps[0]), .cpu = seed % 5 ? SHUNT_PASS_CPU_RSEQ : SHUNT_PASS_CPU_TP,
		.cpu_offset = (char *)&area.cpu_number - (char *)__builtin_thread_pointer(),
		.nr_cpus = seed % 3 ? NR_CPUS : 0, .spectre_v1 = seed % 4 == 3, .hash_calls = true,
	};
	char *once, *twice;

	for (size_t i = 0; i < sizeof(passes) / sizeof(passes[0]); i++) {
		cr_assert_eq(shunt_passes_run(module, passes[i], &options, counts, NULL), 0);
		check_module(module);
	}
	once = LLVMPrintModuleToString(module);
	cr_assert_eq(shunt_passes_run(module, "shunt", &options, NULL, NULL), 0);
	twice = LLVMPrintModuleToString(module);
	cr_expect_str_eq(once, twice, "seed %lu: a second run changes the module", (unsigned long)seed);
	LLVMDisposeMessage(once);
	LLVMDisposeMessage(twice);
}

static void optimise(LLVMModuleRef module)
{
	LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
	LLVMErrorRef error = LLVMRunPasses(module, "default<O1>", NULL, options);

	cr_assert_null(error);
	LLVMDisposePassBuilderOptions(options);
}

typedef uint64_t case_fn(uint64_t a, uint64_t b);

/* The result, or a number that says that a program has unwound. */
static __attribute__((noinline)) uint64_t call_case(case_fn *fn, uint64_t a, uint64_t b)
{
	int unwound = setjmp(landing);

	for (int cpu = -1; cpu < NR_CPUS && !unwound; cpu++)
		memset(copy(object, cpu), 0, OBJECT_SIZE);
	is_unwinding = false;
	if (!unwound) {
		case_frame = (uintptr_t)__builtin_frame_address(0);
		return fn(a, b);
	}
	cr_assert_eq(unwound, 1, "some frame cannot be unwound through");
	nr_unwound++;
	return UINT64_C(0xdeadbeef);
}

static void compare(uint64_t seed, unsigned number, case_fn *before, case_fn *after)
{
	static const uint64_t inputs[][2] = { { 0, 1 }, { 0x123456789abcdef, 3 }, { UINT64_MAX, 6 } };

	for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++) {
		char wanted_object[NR_CPUS + 1][OBJECT_SIZE];
		uint64_t wanted, wanted_notes, got;

		notes = 0;
		area.cpu_number = (uint32_t)i - 1;
		wanted = call_case(before, inputs[i][0], inputs[i][1]);
		wanted_notes = notes;
		for (int cpu = -1; cpu < NR_CPUS; cpu++)
			memcpy(wanted_object[cpu + 1], copy(object, cpu), OBJECT_SIZE);
		notes = 0;
		area.cpu_number = (uint32_t)i - 1;
		got = call_case(after, inputs[i][0], inputs[i][1]);
		cr_assert_eq(got, wanted, "seed %lu, case %u, input %zu: %lx, should be %lx", (unsigned long)seed, number, i, (unsigned long)got,
			     (unsigned long)wanted);
		cr_assert_eq(notes, wanted_notes, "seed %lu, case %u, input %zu: other programs ran", (unsigned long)seed, number, i);
		cr_assert_eq(area.rseq_cs, 0, "seed %lu, case %u, input %zu: a descriptor stays behind", (unsigned long)seed, number, i);
		for (int cpu = -1; cpu < NR_CPUS; cpu++)
			cr_assert_arr_eq(copy(object, cpu), wanted_object[cpu + 1], OBJECT_SIZE, "seed %lu, case %u, input %zu: CPU %d counts otherwise",
					 (unsigned long)seed, number, i, cpu);
	}
}

static void try_module(uint64_t seed, struct shunt_pass_counts *counts)
{
	char *triple = LLVMGetDefaultTargetTriple(), *text = random_ir(seed, NR_CASES, triple), name[32];
	LLVMContextRef context = LLVMContextCreate();
	LLVMModuleRef module = parse_module(context, text), lowered = LLVMCloneModule(module);
	LLVMExecutionEngineRef before, after;

	run_passes(lowered, seed, counts);
	if (seed % 4 == 0) {
		optimise(lowered);
		cr_assert_eq(shunt_passes_run(lowered, "shunt-pairs", NULL, NULL, NULL), 0);
		check_module(lowered);
	}
	before = compile(module);
	after = compile(lowered);
	for (unsigned i = 0; i < NR_CASES; i++) {
		snprintf(name, sizeof(name), "case_%u", i);
		compare(seed, i, (case_fn *)LLVMGetFunctionAddress(before, name), (case_fn *)LLVMGetFunctionAddress(after, name));
	}
	LLVMDisposeExecutionEngine(before);
	LLVMDisposeExecutionEngine(after);
	LLVMContextDispose(context);
	LLVMDisposeMessage(triple);
	free(text);
}

static void try_modules(uint64_t first)
{
	const char *base = getenv("SHUNT_RANDOM_SEED");
	struct shunt_pass_counts counts = { 0 };
	/* An emulator gets the first of the modules only: there the machine is tried, not the passes. */
	unsigned nr = (unsigned)(NR_MODULES / test_slowness());
	unsigned often = 100 * nr / NR_MODULES;

	for (uint64_t i = 0; i < nr; i++)
		try_module((base ? strtoull(base, NULL, 0) : 0) + first * NR_MODULES + i, &counts);
	/* All of it happened, often. */
	cr_expect_gt(counts.dispatches, often);
	cr_expect_gt(counts.static_calls, often);
	cr_expect_gt(counts.marked, often);
	cr_expect_gt(counts.helpers, often / 5);
	cr_expect_gt(counts.cpu_ids, often / 5);
	cr_expect_gt(counts.percpu_array_lookups + counts.percpu_hash_lookups + counts.array_lookups, often);
	cr_expect_gt(counts.exact_updates, often);
	cr_expect_gt(random_nr_stub_calls, often);
	cr_expect_gt(nr_unwound, often / 2);
	printf("%u cases: %u dispatched calls, %u static, %u marked, %u per-CPU and map calls inlined, %u left; %lu stub calls, %lu calls unwound\n",
	       nr * NR_CASES, counts.dispatches, counts.static_calls, counts.marked,
	       counts.cpu_ids + counts.percpu_this + counts.percpu_of + counts.array_lookups + counts.percpu_array_lookups +
		       counts.percpu_hash_lookups,
	       counts.missed, (unsigned long)random_nr_stub_calls, (unsigned long)nr_unwound);
}

static void setup(void)
{
	object = mmap(NULL, (size_t)(NR_CPUS + 1) << SHUNT_PERCPU_SHIFT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	cr_assert_neq(object, MAP_FAILED);
	object += (size_t)1 << SHUNT_PERCPU_SHIFT;
	LLVMLinkInMCJIT();
	LLVMInitializeNativeTarget();
	LLVMInitializeNativeAsmPrinter();
	LLVMInitializeNativeAsmParser();
}

TestSuite(random, .init = setup, .timeout = 300);

Test(random, modules_mean_the_same_after_the_passes_1)
{
	try_modules(0);
}

Test(random, modules_mean_the_same_after_the_passes_2)
{
	try_modules(1);
}

Test(random, modules_mean_the_same_after_the_passes_3)
{
	try_modules(2);
}

Test(random, modules_mean_the_same_after_the_passes_4)
{
	try_modules(3);
}
