/* SPDX-License-Identifier: MIT */
/* Random programs, compiled and interpreted: the same registers, memory and stack come out. A failure prints its seed. */
#include <stdlib.h>
#include <string.h>
#include "bpf_interpreter.h"
#include "bpf_random_program.h"

static void compare(const struct bpf_insn *insns, size_t nr, uint64_t program_seed)
{
	struct shunt_bpf_object *object = bpf_run_open(insns, nr, SHUNT_BPF_CONTEXT_NONE);
	bpf_plain_fn *entry = (bpf_plain_fn *)(uintptr_t)shunt_bpf_program_entry(shunt_bpf_find_program(object, "main"));

	for (int run = 0; run < 4; run++) {
		uint64_t compiled[BPF_RANDOM_MEM / 8], interpreted[BPF_RANDOM_MEM / 8], stack[64] = { 0 }, result;
		uint64_t regs[11] = { [1] = (uintptr_t)interpreted, [2] = BPF_RANDOM_MEM, [10] = (uintptr_t)(stack + 64) };

		bpf_random_fill(compiled);
		memcpy(interpreted, compiled, sizeof(compiled));
		cr_assert_eq(bpf_interpret(insns, nr, regs, 1000), 0);
		shunt_read_begin();
		result = entry(compiled, sizeof(compiled));
		shunt_read_end();
		cr_assert_eq(result, regs[0], "seed %llu: r0 is %llx, not %llx", (unsigned long long)program_seed, (unsigned long long)result,
			     (unsigned long long)regs[0]);
		cr_assert_eq(memcmp(compiled, interpreted, sizeof(compiled)), 0, "seed %llu: memory differs", (unsigned long long)program_seed);
	}
	shunt_bpf_close(object);
}

static void run_programs(uint64_t first_seed, int nr_programs)
{
	static const struct bpf_insn entry[] = { MOV_REG(6, 1) };
	static const struct bpf_random_rules rules = { .entry = entry, .nr_entry = 1 };
	struct bpf_insn insns[BPF_RANDOM_MAX_INSNS];

	for (int i = 0; i < nr_programs; i++) {
		uint64_t program_seed = first_seed + (uint64_t)i;

		bpf_random_seed(program_seed);
		compare(insns, bpf_random_program(&rules, insns), program_seed);
	}
}

Test(bpf_random, compiled_programs_do_what_interpreted_ones_do)
{
	run_programs(1, 150);
}

Test(bpf_random, compiled_programs_do_what_interpreted_ones_do_with_other_seeds)
{
	run_programs(1000000, 150);
}
