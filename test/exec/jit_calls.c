/* SPDX-License-Identifier: MIT */
/* What generated calls look like in memory: direct where the target is near, through the object's table where it is not, on both CPUs. */
#include "jit_test.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <llvm-c/Disassembler.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <shunt/dispatcher.h>
#include <shunt/percpu.h>
#include "lib/jit/jit_internal.h"

#define MAX_BRANCHES 64

/* Targets of the direct calls and jumps in code, found by disassembling it. */
struct branches {
	uint64_t target[MAX_BRANCHES];
	size_t nr;
};

static bool decode_branch(const uint8_t *at, uint64_t *target)
{
#if defined(__x86_64__)
	int32_t disp;

	if (*at == 0x67) /* the linker relaxes a call through the GOT to a prefixed direct one */
		at++;
	if (*at != 0xe8 && *at != 0xe9)
		return false;
	memcpy(&disp, at + 1, sizeof(disp));
	*target = (uintptr_t)at + 5 + disp;
	return true;
#else
	uint32_t word;

	memcpy(&word, at, sizeof(word));
	if ((word & 0x7c000000) != 0x14000000)
		return false;
	*target = (uintptr_t)at + ((int64_t)(int32_t)(word << 6) >> 4);
	return true;
#endif
}

static struct branches branches_of(struct shunt_jit *jit, struct shunt_jit_module *module, const char *function)
{
	LLVMDisasmContextRef disassembler = NULL;
	struct branches branches = { .nr = 0 };
	const void *code;
	size_t len;

	if (!LLVMInitializeNativeDisassembler())
		disassembler = LLVMCreateDisasm(shunt_jit_triple(jit), NULL, 0, NULL, NULL);
	cr_assert(disassembler);
	cr_assert(shunt_jit_module_code(module, function, &code, &len) == 0);
	cr_assert(len > 0);
	for (size_t at = 0; at < len;) {
		char text[128];
		uint8_t *bytes = (uint8_t *)code + at;
		size_t size = LLVMDisasmInstruction(disassembler, bytes, len - at, (uintptr_t)bytes, text, sizeof(text));

		cr_assert(size > 0, "no instruction at %zu of %zu", at, len);
		if (branches.nr < MAX_BRANCHES && decode_branch(bytes, &branches.target[branches.nr]))
			branches.nr++;
		at += size;
	}
	LLVMDisasmDispose(disassembler);
	return branches;
}

static bool branch_to(const struct branches *branches, const void *target)
{
	for (size_t i = 0; i < branches->nr; i++)
		if (branches->target[i] == (uintptr_t)target)
			return true;
	return false;
}

static int64_t near_helper(int64_t x)
{
	return x + 1000;
}

#define CALLS_HELPER \
	"declare i64 @helper(i64)\n" \
	"define i64 @f(i64 %x) {\n" \
	"  %a = call i64 @helper(i64 %x)\n" \
	"  %r = add i64 %a, 1\n" \
	"  ret i64 %r\n" \
	"}\n" \
	"define i64 @g(i64 %x) nonlazybind {\n" \
	"  %r = tail call i64 @helper(i64 %x)\n" \
	"  ret i64 %r\n" \
	"}\n"

Test(jit_calls, a_helper_in_the_host_is_called_directly)
{
	const struct shunt_jit_symbol symbols[] = { { "helper", (void *)near_helper } };
	const struct shunt_jit_module_options options = { .pipeline = "", .symbols = symbols, .nr_symbols = 1 };
	struct shunt_jit *jit = jit_test_create();
	struct shunt_jit_module *module = jit_test_must_add(jit, CALLS_HELPER, &options);
	struct branches f = branches_of(jit, module, "f"), g = branches_of(jit, module, "g");

	cr_expect(((int64_t (*)(int64_t))shunt_jit_lookup(module, "f"))(5) == 1006);
	cr_expect(((int64_t (*)(int64_t))shunt_jit_lookup(module, "g"))(5) == 1005);
	cr_expect(f.nr == 1 && branch_to(&f, (void *)near_helper));
	cr_expect(g.nr == 1 && branch_to(&g, (void *)near_helper));
	shunt_jit_destroy(jit);
}

/* A copy of a function at the other end of the address space. */
static void *far_copy_of_identity(void)
{
#if defined(__x86_64__)
	static const uint8_t identity[] = { 0x48, 0x89, 0xf8, 0xc3 }; /* mov rax, rdi; ret */
#else
	static const uint32_t identity[] = { 0xd65f03c0 }; /* ret */
#endif
	char *page = mmap((void *)0x100000000, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	cr_assert(page != MAP_FAILED);
	memcpy(page, identity, sizeof(identity));
	cr_assert(mprotect(page, 4096, PROT_READ | PROT_EXEC) == 0);
	__builtin___clear_cache(page, page + 64);
	return page;
}

Test(jit_calls, a_function_and_an_object_out_of_reach_still_work)
{
	void *far_function = far_copy_of_identity();
	int64_t *far_object = mmap((void *)0x200000000, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const struct shunt_jit_symbol symbols[] = { { "helper", far_function }, { "object", far_object } };
	const struct shunt_jit_module_options options = { .pipeline = "", .symbols = symbols, .nr_symbols = 2 };
	struct shunt_jit *jit = jit_test_create();
	struct shunt_jit_module *module = jit_test_must_add(jit,
		CALLS_HELPER
		"@object = external global i64\n"
		"define i64 @h() {\n  %v = load i64, ptr @object\n  ret i64 %v\n}\n", &options);

	cr_assert(far_object != MAP_FAILED);
	*far_object = 77;
	cr_expect(((int64_t (*)(int64_t))shunt_jit_lookup(module, "f"))(5) == 6);
	cr_expect(((int64_t (*)(int64_t))shunt_jit_lookup(module, "g"))(5) == 5);
	cr_expect(((int64_t (*)(void))shunt_jit_lookup(module, "h"))() == 77);
	shunt_jit_destroy(jit);
}

Test(jit_calls, a_marked_call_runs_jitted_programs_through_the_stub)
{
	struct shunt_dispatcher *dispatcher;
	struct shunt_jit *jit = jit_test_create();
	struct shunt_jit_module *programs, *host;
	struct branches branches;
	int64_t (*loop)(void *const *table, int64_t n);
	void *table[2];

	cr_assert(shunt_dispatcher_create("jit_test", NULL, &dispatcher) == 0, "%s", shunt_error());
	programs = jit_test_must_add(jit,
		"define i64 @one(i64 %x) {\n %r = add i64 %x, 1\n ret i64 %r\n}\n"
		"define i64 @two(i64 %x) {\n %r = mul i64 %x, 2\n ret i64 %r\n}\n", NULL);
	host = jit_test_must_add(jit,
		"define i64 @loop(ptr %table, i64 %n) {\n"
		"entry:\n  br label %loop\n"
		"loop:\n"
		"  %i = phi i64 [ 0, %entry ], [ %j, %loop ]\n"
		"  %x = phi i64 [ 1, %entry ], [ %y, %loop ]\n"
		"  %k = and i64 %i, 1\n"
		"  %p = getelementptr ptr, ptr %table, i64 %k\n"
		"  %f = load ptr, ptr %p\n"
		"  %y = call i64 %f(i64 %x), !shunt.dispatch !0\n"
		"  %j = add i64 %i, 1\n"
		"  %c = icmp ult i64 %j, %n\n"
		"  br i1 %c, label %loop, label %out\n"
		"out:\n  ret i64 %y\n"
		"}\n"
		"!0 = !{!\"jit_test\"}\n", NULL);
	cr_expect(shunt_jit_module_counts(host)->dispatches == 1);
	branches = branches_of(jit, host, "loop");
	cr_expect(branch_to(&branches, shunt_dispatcher_stub(dispatcher)), "the call does not go to the stub");

	loop = (int64_t (*)(void *const *, int64_t))shunt_jit_lookup(host, "loop");
	table[0] = shunt_jit_lookup(programs, "one");
	table[1] = shunt_jit_lookup(programs, "two");
	shunt_read_begin();
	cr_expect(loop(table, 6) == 22); /* nothing attached: the fallback */
	cr_assert(shunt_dispatcher_attach(dispatcher, table[0]) == 0, "%s", shunt_error());
	cr_expect(loop(table, 6) == 22);
	cr_assert(shunt_dispatcher_attach(dispatcher, table[1]) == 0, "%s", shunt_error());
	cr_expect(loop(table, 6) == 22);
	cr_assert(shunt_dispatcher_detach(dispatcher, table[0]) == 0);
	cr_assert(shunt_dispatcher_detach(dispatcher, table[1]) == 0);
	cr_expect(loop(table, 6) == 22);
	shunt_read_end();
	shunt_jit_destroy(jit);
	cr_expect(shunt_dispatcher_destroy(dispatcher) == 0);
}

Test(jit_calls, the_cpu_number_becomes_a_load_where_the_process_has_one)
{
	const struct shunt_jit_options options = { .opt_level = 2, .keep_ir = true };
	struct shunt_jit *jit;
	struct shunt_jit_module *module;
	struct shunt_cpu_index index;
	struct branches branches;

	shunt_cpu_index(&index);
	cr_assert(shunt_jit_create(&options, &jit) == 0);
	module = jit_test_must_add(jit,
		"declare i32 @shunt_cpu_id()\n"
		"define i32 @f() {\n  %r = call i32 @shunt_cpu_id()\n  ret i32 %r\n}\n", NULL);
	branches = branches_of(jit, module, "f");
	cr_expect(((uint32_t (*)(void))shunt_jit_lookup(module, "f"))() < shunt_nr_cpus());
	cr_expect(shunt_jit_module_counts(module)->cpu_ids == (index.source != SHUNT_CPU_GETCPU));
	cr_expect(branch_to(&branches, (void *)shunt_cpu_id) == (index.source == SHUNT_CPU_GETCPU));
	cr_expect(shunt_jit_module_ir(module) != NULL);
	shunt_jit_destroy(jit);
}

static LLVMMemoryBufferRef arm64_object(const char *text)
{
	LLVMContextRef context = LLVMContextCreate();
	LLVMModuleRef module = jit_test_parse(context, text);
	LLVMMemoryBufferRef object = NULL;
	LLVMTargetMachineRef machine;
	LLVMTargetRef target;
	char *message = NULL;

	LLVMInitializeAArch64TargetInfo();
	LLVMInitializeAArch64Target();
	LLVMInitializeAArch64TargetMC();
	LLVMInitializeAArch64AsmPrinter();
	if (LLVMGetTargetFromTriple("aarch64-linux-gnu", &target, &message))
		cr_skip_test("this LLVM has no arm64 code generator");
	machine = LLVMCreateTargetMachine(target, "aarch64-linux-gnu", "generic", "", LLVMCodeGenLevelDefault, LLVMRelocPIC,
					  LLVMCodeModelSmall);
	LLVMSetTarget(module, "aarch64-linux-gnu");
	cr_assert(!LLVMTargetMachineEmitToMemoryBuffer(machine, module, LLVMObjectFile, &message, &object));
	LLVMDisposeTargetMachine(machine);
	LLVMDisposeModule(module);
	LLVMContextDispose(context);
	return object;
}

static uint64_t arm64_bl_target(const uint32_t *code, size_t len, unsigned nth)
{
	for (size_t i = 0; i < len / 4; i++)
		if ((code[i] & 0xfc000000) == 0x94000000 && !nth--)
			return (uintptr_t)&code[i] + ((int64_t)(int32_t)(code[i] << 6) >> 4);
	return 0;
}

/* The linker works on another CPU's object as well; the code is looked at, not run. */
Test(jit_calls, on_arm64_near_calls_leave_the_linkers_stub)
{
	struct shunt_jit *jit = jit_test_create();
	LLVMMemoryBufferRef object = arm64_object(
		"declare void @near()\n"
		"declare void @far()\n"
		"define void @f() nounwind {\n  call void @near()\n  call void @far()\n  call void @near()\n  ret void\n}\n");
	struct shunt_jit_module *module = calloc(1, sizeof(*module));
	struct shunt_jit_symbol symbols[2] = { { "near", NULL }, { "far", (void *)0x1000 } };
	struct shunt_block near_block;
	const void *code;
	uint64_t far;
	size_t len;

	cr_assert(module);
	module->jit = jit;
	cr_assert(shunt_pack_alloc(NULL, SHUNT_SEGMENT_CODE, 64, 0, &near_block) == 0);
	symbols[0].address = near_block.rx;
	cr_assert(jit_link(jit, object, symbols, 2, module) == 0, "%s", shunt_error());
	cr_assert(shunt_jit_module_code(module, "f", &code, &len) == 0);
	cr_expect(arm64_bl_target(code, len, 0) == (uintptr_t)near_block.rx);
	cr_expect(arm64_bl_target(code, len, 2) == (uintptr_t)near_block.rx);
	far = arm64_bl_target(code, len, 1);
	cr_expect(far > (uintptr_t)code && far < (uintptr_t)code + 4096, "the far call left its object");
	jit_module_release(module);
	shunt_pack_abandon(&near_block);
	shunt_jit_destroy(jit);
}
