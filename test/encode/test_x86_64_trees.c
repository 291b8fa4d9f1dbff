/* SPDX-License-Identifier: MIT */
/*
 * x86-64 trees, run by this CPU: every program is reached directly, every other pointer by the fallback.
 *
 * Programs are addresses in a region full of int3. Wherever a tree leads, the machine stops there with a signal, whose handler looks
 * at all registers and returns to the test. Under the retpoline fallback the pointer is found just below the stack
 * afterwards, which tells a fallback from a direct jump; the other fallbacks are checked for where they lead.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <criterion/criterion.h>

#include "plans.h"
#include "shapes.h"
#include "targets/target.h"

#define REGION_LEN (UINT64_C(64) << 20)
#define REGION_HINT ((void *)0x600000000000) /* nothing is mapped at its aliases */
#define TREE_MAX (UINT64_C(1) << 20)
#define STACK_MARK UINT64_C(0x57ac57ac57ac57ac)

static uint8_t *region;

static struct {
	uint64_t pc;
	uint64_t stack_below; /* what the retpoline leaves there */
	bool was_fault;       /* the jump itself faulted, as to an address that cannot be one */
	bool kept_registers;
	bool kept_stack;
} reached;

static void set_up_region(void)
{
	if (region)
		return;
	region = mmap(REGION_HINT, REGION_LEN, PROT_READ | PROT_WRITE | PROT_EXEC,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
	if (region == MAP_FAILED)
		region = mmap(NULL, REGION_LEN, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			      -1, 0);
	if (region == MAP_FAILED)
		cr_skip_test("no writable and executable memory here");
}

#ifdef __x86_64__

uint64_t tree_run_stack; /* rsp when the tree starts, its return address on top */
void tree_run(uint64_t tree, uint64_t pointer);
extern const uint8_t tree_run_return[];

/* Enters `tree` with r10 = pointer and a known value in every other register; the signal handler continues at tree_run_return. */
__asm__(".text\n"
	".globl tree_run, tree_run_return\n"
	"tree_run:\n\t"
	"push %rbp\n\tpush %rbx\n\tpush %r12\n\tpush %r13\n\tpush %r14\n\tpush %r15\n\t"
	"sub $256, %rsp\n\t"
	"mov %rdi, %r11\n\t"
	"mov %rsi, %r10\n\t"
	"lea -8(%rsp), %rax\n\tmov %rax, tree_run_stack(%rip)\n\t"
	"movabs $0x57ac57ac57ac57ac, %rax\n\tmov %rax, -16(%rsp)\n\t"
	"mov $100, %rax\n\tmov $101, %rcx\n\tmov $102, %rdx\n\tmov $103, %rbx\n\tmov $104, %rbp\n\tmov $105, %rsi\n\t"
	"mov $106, %rdi\n\tmov $107, %r8\n\tmov $108, %r9\n\tmov $109, %r12\n\tmov $110, %r13\n\tmov $111, %r14\n\t"
	"mov $112, %r15\n\t"
	"call *%r11\n"
	"tree_run_return:\n\t"
	"mov tree_run_stack(%rip), %rsp\n\t"
	"add $264, %rsp\n\t"
	"pop %r15\n\tpop %r14\n\tpop %r13\n\tpop %r12\n\tpop %rbx\n\tpop %rbp\n\t"
	"ret\n");

static void on_signal(int signo, siginfo_t *info, void *context)
{
	static const int numbers[] = { REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RBP, REG_RSI, REG_RDI,
				       REG_R8,  REG_R9,  REG_R12, REG_R13, REG_R14, REG_R15 };
	greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
	uint64_t rsp = (uint64_t)regs[REG_RSP];

	reached.pc = (uint64_t)regs[REG_RIP] - (signo == SIGTRAP);
	reached.was_fault = signo != SIGTRAP;
	reached.kept_registers = true;
	for (unsigned i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (regs[numbers[i]] != 100 + (greg_t)i)
			reached.kept_registers = false;
	reached.kept_stack = rsp == tree_run_stack && *(uint64_t *)rsp == (uint64_t)tree_run_return;
	reached.stack_below = *(uint64_t *)(tree_run_stack - 8);
	regs[REG_RIP] = (greg_t)tree_run_return;
}

static void set_up(void)
{
	static const int signals[] = { SIGTRAP, SIGSEGV, SIGBUS, SIGILL };
	struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO };

	set_up_region();
	memset(region, 0xcc, REGION_LEN);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigaction(signals[i], &action, NULL);
}

#else

static void tree_run(uint64_t tree, uint64_t pointer)
{
}

static void set_up(void)
{
	set_up_region();
	cr_skip_test("trees for x86-64 run on x86-64 only");
}

#endif

struct tree {
	uint64_t start, len, head; /* head: where it is entered */
	enum shunt_fallback fallback;
	const struct shunt_plan *plan;
	bool is_graph;
};

static void emit_tree(struct tree *tree, uint8_t *at, const struct shunt_plan *plan, enum shunt_fallback fallback)
{
	struct shunt_code measure, code;

	memset(at, 0xcc, TREE_MAX);
	shunt_code_init(&code, at, TREE_MAX, (uint64_t)at);
	shunt_target_x86_64.emit_tree(&code, plan, fallback);
	cr_assert_eq(code.error, 0, "%d", code.error);
	/* Measured there, and measured before there is an address, which may be out of reach of all programs. */
	shunt_code_init(&measure, NULL, 0, (uint64_t)at);
	shunt_target_x86_64.emit_tree(&measure, plan, fallback);
	cr_assert_eq(measure.len, code.len);
	cr_assert_eq(measure.error, 0);
	shunt_code_init(&measure, NULL, 0, (uint64_t)at % 64);
	shunt_target_x86_64.emit_tree(&measure, plan, fallback);
	cr_assert_eq(measure.len, code.len);
	*tree = (struct tree){ .start = (uint64_t)at, .head = (uint64_t)at, .len = code.len, .fallback = fallback, .plan = plan };
}

static bool is_in_tree(const struct tree *tree, uint64_t pc)
{
	return pc - tree->start < tree->len;
}

static void check_pointer(void *context, uint64_t pointer, bool is_program)
{
	const struct tree *tree = context;

	if (pointer - tree->start < TREE_MAX)
		return; /* code, not int3 */
	tree_run(tree->head, pointer);
	cr_assert(reached.kept_registers, "%#lx: a register changed", (unsigned long)pointer);
	if (is_in_tree(tree, reached.pc)) {
		/* The fallback's jump to an address that is no address at all faults where it stands. */
		cr_assert(reached.was_fault && !is_program, "%#lx stopped at %#lx", (unsigned long)pointer, (unsigned long)reached.pc);
		cr_assert(pointer >> 47 != 0 && ~pointer >> 47 != 0, "%#lx faulted in the tree", (unsigned long)pointer);
		return;
	}
	cr_assert_eq(reached.pc, pointer, "%#lx led to %#lx", (unsigned long)pointer, (unsigned long)reached.pc);
	cr_assert(reached.kept_stack, "%#lx: the stack moved", (unsigned long)pointer);
	cr_assert(shape_finds(tree->plan, pointer) == is_program || tree->is_graph);
	if (tree->fallback != SHUNT_FALLBACK_RETPOLINE)
		cr_assert_eq(reached.stack_below, STACK_MARK);
	else if (shape_finds(tree->plan, pointer))
		cr_assert_eq(reached.stack_below, STACK_MARK, "%#lx was reached by the fallback", (unsigned long)pointer);
	else
		cr_assert_eq(reached.stack_below, pointer, "%#lx was not reached by the fallback", (unsigned long)pointer);
}

static void check_random_trees(uint64_t seed, unsigned nr_trees, uint32_t max_programs, uint64_t span, uint64_t align)
{
	uint64_t *programs = malloc((max_programs + 1) * sizeof(*programs));

	set_up();
	for (unsigned i = 0; i < nr_trees; i++) {
		uint32_t nr = (uint32_t)(shape_random(&seed) % (max_programs + 1));
		struct shape shape = shape_any(&seed);
		/* At any alignment, behind or before the programs. */
		uint8_t *at = region + (i & 1 ? 0 : REGION_LEN - 2 * TREE_MAX) + shape_random(&seed) % 64;
		struct shunt_plan plan;
		struct tree tree;

		if (nr > 300 && !shape.leaf_max)
			shape.leaf_max = 4;
		shape_programs(&seed, (uint64_t)region + 2 * TREE_MAX, span, align, programs, nr);
		shape_plan(shape, programs, nr, &plan);
		emit_tree(&tree, at, &plan, i % 4 ? SHUNT_FALLBACK_RETPOLINE : i % 8 ? SHUNT_FALLBACK_JUMP : SHUNT_FALLBACK_LFENCE);
		tree.is_graph = shape.is_graph;
		shape_for_each_pointer(programs, nr, &seed, check_pointer, &tree);
		free((void *)plan.nodes);
	}
	free(programs);
}

Test(x86_64_trees, lead_every_program_and_nothing_else_to_itself)
{
	check_random_trees(1, 200, 48, UINT64_C(1) << 20, 64);
}

Test(x86_64_trees, tell_programs_apart_over_the_whole_region)
{
	check_random_trees(2, 150, 64, UINT64_C(48) << 20, 64);
}

Test(x86_64_trees, tell_programs_apart_that_are_neighbours)
{
	check_random_trees(3, 150, 64, 128, 1);
}

Test(x86_64_trees, hold_thousands_of_programs)
{
	check_random_trees(4, 8, 4096, UINT64_C(48) << 20, 64);
	check_random_trees(5, 2, 4096, UINT64_C(48) << 20, 1);
}

static void check_runtime_plan(void *context, const struct shunt_plan *plan, uint64_t *state)
{
	uint64_t bits = shape_random(state);
	uint8_t *at = region + (bits & 1 ? 0 : REGION_LEN - 2 * TREE_MAX) + (bits >> 8) % 64;
	struct tree tree;

	emit_tree(&tree, at, plan, (bits >> 16) % 4 ? SHUNT_FALLBACK_RETPOLINE : (bits >> 24) % 2 ? SHUNT_FALLBACK_JUMP : SHUNT_FALLBACK_LFENCE);
	shape_for_each_pointer(plan->programs, plan->nr_programs, state, check_pointer, &tree);
}

Test(x86_64_trees, of_every_plan_of_the_runtime_lead_every_program_and_nothing_else_to_itself)
{
	set_up();
	plans_for_each(21, 40, (uint64_t)region + 2 * TREE_MAX, UINT64_C(48) << 20, 64, check_runtime_plan, NULL);
	plans_for_each(22, 20, (uint64_t)region + 2 * TREE_MAX, UINT64_C(1) << 13, 1, check_runtime_plan, NULL);
}

Test(x86_64_trees, in_parts_lead_every_program_and_nothing_else_to_itself)
{
	static const enum shunt_fallback fallbacks[] = { SHUNT_FALLBACK_JUMP, SHUNT_FALLBACK_RETPOLINE, SHUNT_FALLBACK_LFENCE };
	uint64_t *programs = malloc(PLANS_MAX * sizeof(*programs));
	uint64_t seed = 23;

	set_up();
	for (unsigned i = 0; i < 16; i++) {
		uint32_t nr = 1 + (uint32_t)(shape_random(&seed) % (i % 8 ? 600 : PLANS_MAX));
		struct tree tree = { .start = (uint64_t)region, .fallback = fallbacks[i % 3] };
		struct shunt_code code;
		struct shunt_plan whole;

		shape_programs(&seed, (uint64_t)region + 2 * TREE_MAX, i % 4 ? UINT64_C(48) << 20 : UINT64_C(1) << 14, i % 4 ? 64 : 1, programs, nr);
		memset(region, 0xcc, TREE_MAX);
		shunt_code_init(&code, region, TREE_MAX, (uint64_t)region);
		tree.head = plans_emit_in_parts(&shunt_target_x86_64, programs, nr, tree.fallback, &seed, &code, &whole);
		tree.len = code.len;
		tree.plan = &whole;
		shape_for_each_pointer(programs, nr, &seed, check_pointer, &tree);
		free((void *)whole.nodes);
	}
	free(programs);
}

static _Thread_local uint32_t number;

Test(x86_64_trees, with_counts_count_each_program_in_the_row_of_the_thread_s_number)
{
	enum { ROWS = 8, ROW_SHIFT = 16 };
	uint64_t *rows = calloc(ROWS, 1 << ROW_SHIFT);
	uint64_t programs[300];
	uint32_t words[300];
	uint64_t seed = 52;

	set_up();
	for (unsigned i = 0; i < 30; i++) {
		uint32_t nr = 1 + (uint32_t)(shape_random(&seed) % 300);
		struct shunt_plan_counts counts = { .rows = (uint64_t)(uintptr_t)rows, .row_shift = ROW_SHIFT, .row_bits = i % 3 ? 3 : 0, .words = words,
						    .number_offset = (int32_t)((char *)&number - (char *)__builtin_thread_pointer()) };
		struct shunt_plan plan;
		struct tree tree;

		memset(rows, 0, ROWS << ROW_SHIFT);
		shape_programs(&seed, (uint64_t)region + 2 * TREE_MAX, UINT64_C(48) << 20, 64, programs, nr);
		for (uint32_t k = 0; k < nr; k++)
			words[k] = k * 27;
		shape_plan((struct shape){ .head = i % 2 ? SHUNT_PLAN_OP_ANCHOR : SHUNT_PLAN_OP_FALLBACK, .leaf_max = 1 + i % 3, .align16 = i % 2 },
			   programs, nr, &plan);
		plan.counts = &counts;
		emit_tree(&tree, region + i, &plan, i % 5 ? SHUNT_FALLBACK_JUMP : SHUNT_FALLBACK_RETPOLINE);
		for (uint32_t k = 0; k < nr; k++) {
			uint32_t row = counts.row_bits ? k % ROWS : 0;

			/* Numbers beyond the rows, and that of a thread that has none, are some row's too. */
			number = k % 5 ? row : row + ROWS * 1000;
			check_pointer(&tree, programs[k], true);
			cr_assert_eq(rows[((size_t)row << ROW_SHIFT) / 8 + words[k]], 1, "program %u of %u", k, nr);
			rows[((size_t)row << ROW_SHIFT) / 8 + words[k]] = 0;
			check_pointer(&tree, programs[k] + 1, false);
		}
		for (size_t k = 0; k < ((size_t)ROWS << ROW_SHIFT) / 8; k++)
			cr_assert_eq(rows[k], 0, "word %zu was counted in", k);
		free((void *)plan.nodes);
	}
	free(rows);
}

Test(x86_64_trees, are_reached_through_stub_slot_and_c_entry_with_all_arguments_in_place)
{
	const struct shunt_plan_node nodes[] = { { .op = SHUNT_PLAN_OP_EQUAL }, { .op = SHUNT_PLAN_OP_FALLBACK } };
	struct shunt_code code;
	uint64_t program, word;

	set_up();
	program = (uint64_t)region + 3 * TREE_MAX;
	for (unsigned nr_args = 0; nr_args <= shunt_target_x86_64.max_c_args; nr_args++) {
		static const uint64_t args[] = { 106, 105, 102, 101, 107, 108 }; /* rdi, rsi, rdx, rcx, r8, r9 as tree_run sets them */
		struct shunt_plan plan = { .programs = &program, .nr_programs = 1, .nodes = nodes, .nr_nodes = 2 };

		/* An entry whose program argument is a small number: its fallback jumps there and faults at that very address. */
		shunt_code_init(&code, region, TREE_MAX, (uint64_t)region);
		shunt_target_x86_64.emit_stub(&code, (uint64_t)region + 64);
		shunt_target_x86_64.emit_c_entry(&code, nr_args, (uint64_t)region);
		cr_assert_eq(code.error, 0);
		cr_assert_leq(code.len, 64);
		shunt_code_init(&code, region + 64, TREE_MAX, (uint64_t)region + 64);
		shunt_target_x86_64.emit_tree(&code, &plan, SHUNT_FALLBACK_JUMP);
		cr_assert_eq(code.error, 0);
		tree_run((uint64_t)region + 16, program);
		cr_expect_eq(reached.pc, args[nr_args]);
		cr_expect(reached.kept_registers && reached.kept_stack);
		tree_run((uint64_t)region, program);
		cr_expect_eq(reached.pc, program);
		cr_expect(reached.kept_registers && reached.kept_stack);
	}
	/* One store of the second word, and the slot leads elsewhere. */
	cr_assert_eq(shunt_target_x86_64.encode_stub_word((uint64_t)region, program + 64, &word), 0);
	__atomic_store_n((uint64_t *)(region + SHUNT_STUB_WORD), word, __ATOMIC_RELEASE);
	tree_run((uint64_t)region, program);
	cr_expect_eq(reached.pc, program + 64);
}

Test(x86_64_trees, have_a_veneer_that_reaches_any_address)
{
	struct shunt_code code;

	set_up();
	shunt_code_init(&code, region + 1, 32, (uint64_t)region + 1);
	shunt_target_x86_64.emit_veneer(&code, 0x123456789abc);
	cr_assert_eq(code.error, 0);
	tree_run((uint64_t)region + 1, 7);
	cr_expect_eq(reached.pc, 0x123456789abc);
	cr_expect(reached.kept_registers && reached.kept_stack);
}

Test(x86_64_trees, refuse_a_program_out_of_reach)
{
	const struct shunt_plan_node nodes[] = { { .op = SHUNT_PLAN_OP_EQUAL }, { .op = SHUNT_PLAN_OP_FALLBACK } };
	const uint64_t addr = 0x600000000000, lea = addr + 7, je = addr + 16;
	const struct { uint64_t program; int error; } cases[] = {
		{ lea + INT32_MAX, 0 },                    { lea + INT32_MAX + 1, -ERANGE },
		{ je - (UINT64_C(1) << 31), 0 },           { je - (UINT64_C(1) << 31) - 1, -ERANGE },
		{ addr + (UINT64_C(1) << 32), -ERANGE },   { addr ^ UINT64_C(1) << 63, -ERANGE },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct shunt_plan plan = { .programs = &cases[i].program, .nr_programs = 1, .nodes = nodes, .nr_nodes = 2 };
		uint8_t bytes[64];
		struct shunt_code code;

		shunt_code_init(&code, bytes, sizeof(bytes), addr);
		shunt_target_x86_64.emit_tree(&code, &plan, SHUNT_FALLBACK_JUMP);
		cr_expect_eq(code.error, cases[i].error, "case %zu: %d", i, code.error);
	}
}

/* Programs may lie on both sides of a tree, further from each other than an imm32 holds: compared one by one then. */
Test(x86_64_trees, with_programs_further_apart_than_an_immediate_reaches_do_without_an_anchor)
{
	const struct shunt_plan_node nodes[] = { { .op = SHUNT_PLAN_OP_RANGE }, { .op = SHUNT_PLAN_OP_EQUAL },
						 { .op = SHUNT_PLAN_OP_EQUAL, .program = 1 }, { .op = SHUNT_PLAN_OP_FALLBACK } };
	const uint64_t addr = 0x600000000000;

	for (uint64_t more = 0; more < 2; more++) {
		const uint64_t programs[] = { addr - (UINT64_C(1) << 30), addr + (UINT64_C(1) << 30) - 1 + more };
		struct shunt_plan plan = { .programs = programs, .nr_programs = 2, .nodes = nodes, .nr_nodes = 4 };
		struct shunt_code code;

		shunt_code_init(&code, NULL, 0, addr);
		shunt_target_x86_64.emit_tree(&code, &plan, SHUNT_FALLBACK_JUMP);
		cr_expect_eq(code.error, 0);
		cr_expect_eq(code.len, more ? 36 : 46, "%zu", code.len);
	}
}
