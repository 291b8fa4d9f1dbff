/* SPDX-License-Identifier: MIT */
/*
 * Random arm64 trees, run by the CPU that this is built for: 10,000 of them lead the pointers of their programs and others to where they point.
 *
 * Programs are addresses in a region of zeros, which are no instructions. Wherever a tree leads, the machine stops there with a signal, whose
 * handler looks at all registers and returns to the test. Those tell a direct jump from the fallback where the tree has an anchor.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <criterion/criterion.h>

#include "shapes.h"
#include "targets/target.h"

#define NR_TREES 10000
#define NR_PROGRAMS_MAX 48
#define NR_POINTERS 10 /* tried of each tree */
#define REGION_HINT ((void *)0x2000000000)
#define REGION_LEN (UINT64_C(64) << 20)
#define TREE_MAX (UINT64_C(1) << 16)

static uint8_t *region;

#ifdef __aarch64__

static unsigned nr_led;

static struct {
	uint64_t pc, x16;
	bool kept_registers;
} reached;

uint64_t tree_run_stack;
void tree_run(uint64_t tree, uint64_t pointer);
extern const uint8_t tree_run_return[];

/* Enters `tree` with x18 = pointer and a known value in every register but x16, x17, x29 and x30. */
__asm__(".text\n"
	".globl tree_run, tree_run_return\n"
	"tree_run:\n\t"
	"stp x29, x30, [sp, #-96]!\n\t"
	"stp x19, x20, [sp, #16]\n\tstp x21, x22, [sp, #32]\n\tstp x23, x24, [sp, #48]\n\tstp x25, x26, [sp, #64]\n\tstp x27, x28, [sp, #80]\n\t"
	"adrp x9, tree_run_stack\n\tadd x9, x9, :lo12:tree_run_stack\n\tmov x10, sp\n\tstr x10, [x9]\n\t"
	"mov x16, x0\n\tmov x18, x1\n\t"
	"mov x0, #100\n\tmov x1, #101\n\tmov x2, #102\n\tmov x3, #103\n\tmov x4, #104\n\tmov x5, #105\n\tmov x6, #106\n\tmov x7, #107\n\t"
	"mov x8, #108\n\tmov x9, #109\n\tmov x10, #110\n\tmov x11, #111\n\tmov x12, #112\n\tmov x13, #113\n\tmov x14, #114\n\tmov x15, #115\n\t"
	"mov x19, #119\n\tmov x20, #120\n\tmov x21, #121\n\tmov x22, #122\n\tmov x23, #123\n\tmov x24, #124\n\tmov x25, #125\n\tmov x26, #126\n\t"
	"mov x27, #127\n\tmov x28, #128\n\t"
	"br x16\n"
	"tree_run_return:\n\t"
	"adrp x9, tree_run_stack\n\tadd x9, x9, :lo12:tree_run_stack\n\tldr x10, [x9]\n\tmov sp, x10\n\t"
	"ldp x19, x20, [sp, #16]\n\tldp x21, x22, [sp, #32]\n\tldp x23, x24, [sp, #48]\n\tldp x25, x26, [sp, #64]\n\tldp x27, x28, [sp, #80]\n\t"
	"ldp x29, x30, [sp], #96\n\t"
	"ret\n");

static void on_signal(int signo, siginfo_t *info, void *context)
{
	mcontext_t *machine = &((ucontext_t *)context)->uc_mcontext;

	reached.pc = machine->pc;
	reached.x16 = machine->regs[16];
	reached.kept_registers = machine->sp == tree_run_stack;
	for (unsigned i = 0; i <= 28; i++)
		if (i != 16 && i != 17 && i != 18)
			reached.kept_registers &= machine->regs[i] == 100 + i;
	machine->pc = (uint64_t)(uintptr_t)tree_run_return;
}

static void set_up(void)
{
	static const int signals[] = { SIGILL, SIGTRAP, SIGSEGV, SIGBUS };
	struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO };

	region = mmap(REGION_HINT, REGION_LEN, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (region == MAP_FAILED)
		cr_skip_test("no writable and executable memory here");
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigaction(signals[i], &action, NULL);
}

static void check_pointer(uint64_t tree, const struct shunt_plan *plan, uint64_t pointer, unsigned number)
{
	uint64_t start = (uint64_t)(uintptr_t)region;
	/* Behind an anchor x16 holds a distance until the fallback moves the pointer there. */
	bool tells_fallback = plan->nodes[0].op == SHUNT_PLAN_OP_ANCHOR || plan->nodes[0].op == SHUNT_PLAN_OP_RANGE;

	pointer &= ~UINT64_C(3);
	/* Elsewhere there may be code that does something. */
	if (pointer < start + TREE_MAX || pointer >= start + REGION_LEN)
		return;
	memset(&reached, 0, sizeof(reached));
	tree_run(tree, pointer);
	cr_assert_eq(reached.pc, pointer, "tree %u: %#lx led to %#lx", number, (unsigned long)pointer, (unsigned long)reached.pc);
	if (tells_fallback)
		cr_assert_eq(reached.x16 == pointer, !shape_finds(plan, pointer), "tree %u: %#lx went the wrong way", number, (unsigned long)pointer);
	cr_assert(reached.kept_registers, "tree %u: a register was clobbered", number);
	nr_led++;
}

static void check_tree(uint64_t *seed, unsigned number, uint64_t span, uint64_t align)
{
	uint64_t programs[NR_PROGRAMS_MAX + 1];
	uint32_t nr = 1 + (uint32_t)(shape_random(seed) % NR_PROGRAMS_MAX);
	/* A place of its own in turn, so that a tree is not run that was there before. */
	uint8_t *at = region + number % 4 * (TREE_MAX / 4);
	uint64_t tree = (uint64_t)(uintptr_t)at;
	struct shunt_plan plan;
	struct shunt_code code;

	shape_programs(seed, (uint64_t)(uintptr_t)region + TREE_MAX, span, align, programs, nr);
	shape_plan(shape_any(seed), programs, nr, &plan);
	shunt_code_init(&code, at, TREE_MAX / 4, tree);
	shunt_target_arm64.emit_tree(&code, &plan, SHUNT_FALLBACK_JUMP);
	cr_assert_eq(code.error, 0, "tree %u: %d", number, code.error);
	__builtin___clear_cache((char *)at, (char *)at + code.len);
	for (unsigned i = 0; i < NR_POINTERS; i++) {
		uint64_t program = programs[shape_random(seed) % nr];

		switch (i % 5) {
		case 3: /* beside one, most of the time */
			program += shape_random(seed) % 2 ? align : -align;
			break;
		case 4:
			program = (uint64_t)(uintptr_t)region + shape_random(seed) % REGION_LEN;
			break;
		}
		check_pointer(tree, &plan, program, number);
	}
	free((void *)plan.nodes);
}

Test(arm64_trees_run, ten_thousand_lead_where_the_pointer_points, .init = set_up)
{
	uint64_t seed = 97;

	for (unsigned number = 0; number < NR_TREES; number++)
		check_tree(&seed, number, number % 3 ? REGION_LEN - 2 * TREE_MAX : UINT64_C(1) << 18, number % 2 ? 64 : 4);
	printf("%u trees were run, and led %u pointers where they point\n", NR_TREES, nr_led);
}

#else

Test(arm64_trees_run, ten_thousand_lead_where_the_pointer_points)
{
	(void)region;
	cr_skip_test("trees for arm64 run on arm64 only");
}

#endif
