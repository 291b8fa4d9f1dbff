/* SPDX-License-Identifier: MIT */
/* The bytecode check: each rule refuses with the program, the instruction and the reason; random bytes never do worse than be refused. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <criterion/criterion.h>
#include <shunt/log.h>
#include "lib/bpf/unit.h"
#include "test/exec/bpf_run.h"

static bool is_builtin(void *user, uint32_t number)
{
	return bpf_helper_builtin(number) || number == 3000;
}

static int check_func(struct bpf_insn *insns, uint32_t nr_insns, struct bpf_ref *refs, uint32_t nr_refs)
{
	struct bpf_insn exit_only[] = { EXIT() };
	struct bpf_func funcs[] = {
		{ .name = "prog", .is_program = true, .insns = insns, .nr_insns = nr_insns, .refs = refs, .nr_refs = nr_refs },
		{ .name = "sub", .insns = exit_only, .nr_insns = 1 },
		{ .name = "other", .is_program = true, .insns = exit_only, .nr_insns = 1 },
	};
	struct bpf_unit_map maps[] = { { .name = "m" } };
	struct bpf_unit_data datas[] = { { .name = ".rodata" } };
	struct bpf_unit unit = { .name = "test", .funcs = funcs, .nr_funcs = 3, .maps = maps, .nr_maps = 1, .datas = datas, .nr_datas = 1 };

	return bpf_check(&unit, &funcs[0], is_builtin, NULL);
}

#define CHECK(...)                                                                                                             \
	({                                                                                                                     \
		struct bpf_insn check_insns[] = { __VA_ARGS__ };                                                               \
		check_func(check_insns, sizeof(check_insns) / sizeof(check_insns[0]), NULL, 0);                                \
	})

#define ACCEPTS(...) cr_expect_eq(CHECK(__VA_ARGS__), 0, "%s", shunt_error())

/* The sentence must hold both the place and the reason. */
static void expect_refusal(int ret, int err, const char *place, const char *reason)
{
	cr_expect_eq(ret, -err, "%d: %s", ret, shunt_error());
	cr_expect(ret && strstr(shunt_error(), place) && strstr(shunt_error(), reason), "'%s' lacks '%s' or '%s'", shunt_error(), place, reason);
}

#define REFUSES(err, place, reason, ...) expect_refusal(CHECK(__VA_ARGS__), err, "program 'prog', instruction " place ":", reason)

Test(bpf_check, plain_programs_of_every_class_are_accepted)
{
	ACCEPTS(MOV_IMM(0, 0), EXIT());
	ACCEPTS(LOAD_IMM64(0, 0x123456789), EXIT());
	ACCEPTS(STORE_IMM(BPF_DW, 10, -8, 1), LOAD(BPF_DW, 0, 10, -8), EXIT());
	ACCEPTS(INSN(BPF_ALU64 | BPF_MOV | BPF_X, 0, 1, 32, 0), INSN(BPF_ALU64 | BPF_DIV | BPF_X, 0, 1, 1, 0), EXIT());
	ACCEPTS(LOAD_SIGNED(BPF_W, 0, 1, 0), INSN(BPF_ALU64 | BPF_END, 0, 0, 0, 64), EXIT());
	ACCEPTS(JUMP_LONG(1), EXIT(), MOV_IMM(0, 0), JUMP(-3));
	ACCEPTS(ATOMIC(BPF_W, BPF_CMPXCHG, 10, 1, -8), ATOMIC(BPF_B, 0x100, 0, 1, 0), EXIT());
	ACCEPTS(CALL(1), CALL(12), CALL(3000), EXIT());
}

Test(bpf_check, opcodes_that_do_not_exist_are_refused)
{
	REFUSES(EINVAL, "0", "unknown opcode 0x8f", INSN(0x8f, 0, 0, 0, 0), EXIT());
	REFUSES(EINVAL, "1", "unknown opcode 0x00", MOV_IMM(0, 0), INSN(0, 0, 0, 0, 0), EXIT());
	REFUSES(EINVAL, "0", "unknown opcode 0x96", INSN(BPF_JMP32 | BPF_EXIT, 0, 0, 0, 0), EXIT());
	REFUSES(EINVAL, "0", "unknown opcode 0xdf", INSN(BPF_ALU64 | BPF_END | BPF_X, 0, 0, 0, 16), EXIT());
	REFUSES(EINVAL, "0", "unknown opcode 0x99", INSN(BPF_LDX | 0x80 | BPF_DW, 0, 1, 0, 0), EXIT());
}

Test(bpf_check, instructions_that_need_a_kernel_are_refused_by_name)
{
	REFUSES(ENOTSUP, "0", "LD_ABS", INSN(BPF_LD | BPF_ABS | BPF_W, 0, 0, 0, 0), EXIT());
	REFUSES(ENOTSUP, "0", "LD_IND", INSN(BPF_LD | BPF_IND | BPF_H, 0, 1, 0, 0), EXIT());
	REFUSES(ENOTSUP, "0", "may_goto", INSN(0xe5, 0, 0, 0, 0), EXIT());
	REFUSES(ENOTSUP, "0", "addr_space_cast", INSN(BPF_ALU64 | BPF_MOV | BPF_X, 0, 1, 1, 1), EXIT());
	REFUSES(ENOTSUP, "0", "kfunc", INSN(BPF_JMP | BPF_CALL, 0, 2, 0, 5), EXIT());
	REFUSES(ENOTSUP, "0", "through a register", INSN(0x8d, 0, 1, 0, 0), EXIT());
}

Test(bpf_check, registers_are_r0_to_r10_and_r10_is_never_written)
{
	REFUSES(EINVAL, "0", "r11 does not exist", MOV_IMM(11, 0), EXIT());
	REFUSES(EINVAL, "0", "r15 does not exist", MOV_REG(0, 15), EXIT());
	REFUSES(EINVAL, "0", "writes r10", MOV_IMM(10, 0), EXIT());
	REFUSES(EINVAL, "0", "writes r10", LOAD(BPF_W, 10, 1, 0), EXIT());
	REFUSES(EINVAL, "0", "writes r10", LOAD_IMM64(10, 0), EXIT());
	REFUSES(EINVAL, "0", "writes r10", ATOMIC(BPF_DW, BPF_ADD | BPF_FETCH, 1, 10, 0), EXIT());
	REFUSES(EINVAL, "0", "writes r10", ATOMIC(BPF_DW, 0x100, 10, 1, 0), EXIT());
	ACCEPTS(ATOMIC(BPF_DW, BPF_ADD, 1, 10, 0), STORE(BPF_DW, 1, 10, 0), EXIT());
}

Test(bpf_check, reserved_fields_must_be_zero)
{
	REFUSES(EINVAL, "0", "source", INSN(BPF_ALU64 | BPF_ADD | BPF_K, 0, 1, 0, 1), EXIT());
	REFUSES(EINVAL, "0", "immediate", INSN(BPF_ALU64 | BPF_ADD | BPF_X, 0, 1, 0, 1), EXIT());
	REFUSES(EINVAL, "0", "offset", INSN(BPF_ALU64 | BPF_ADD | BPF_X, 0, 1, 1, 0), EXIT());
	REFUSES(EINVAL, "0", "immediate", INSN(BPF_ALU64 | BPF_NEG, 0, 0, 0, 1), EXIT());
	REFUSES(EINVAL, "0", "immediate", INSN(BPF_LDX | BPF_MEM | BPF_W, 0, 1, 0, 1), EXIT());
	REFUSES(EINVAL, "0", "destination", INSN(BPF_JMP | BPF_EXIT, 1, 0, 0, 0), EXIT());
	REFUSES(EINVAL, "0", "destination", INSN(BPF_JMP | BPF_JA, 1, 0, 0, 0), EXIT());
	REFUSES(EINVAL, "0", "offset", INSN(BPF_JMP32 | BPF_JA, 0, 0, 1, 0), EXIT());
	REFUSES(EINVAL, "0", "offset", INSN(BPF_JMP | BPF_CALL, 0, 0, 1, 1), EXIT());
	REFUSES(EINVAL, "0", "reserved", INSN(BPF_LD | BPF_IMM | BPF_DW, 0, 0, 0, 0), INSN(0, 1, 0, 0, 0), EXIT());
}

Test(bpf_check, operands_outside_of_their_list_are_refused)
{
	REFUSES(EINVAL, "0", "byte swap of 8 bits", INSN(BPF_ALU | BPF_END, 0, 0, 0, 8), EXIT());
	REFUSES(EINVAL, "0", "division with offset 2", INSN(BPF_ALU | BPF_DIV | BPF_X, 0, 1, 2, 0), EXIT());
	REFUSES(EINVAL, "0", "sign-extends 32 bits", INSN(BPF_ALU | BPF_MOV | BPF_X, 0, 1, 32, 0), EXIT());
	REFUSES(EINVAL, "0", "sign-extends 7 bits", INSN(BPF_ALU64 | BPF_MOV | BPF_X, 0, 1, 7, 0), EXIT());
	REFUSES(EINVAL, "0", "atomic operation 0x7", ATOMIC(BPF_W, 7, 1, 2, 0), EXIT());
	REFUSES(EINVAL, "0", "atomic operation on 2 bytes", ATOMIC(BPF_H, BPF_ADD, 1, 2, 0), EXIT());
}

Test(bpf_check, branches_stay_inside_and_out_of_the_middle_of_ld_imm64)
{
	REFUSES(EINVAL, "0", "jumps to instruction 2", JUMP(1), EXIT());
	REFUSES(EINVAL, "0", "jumps to instruction -1", JUMP_IMM(BPF_JEQ, 1, 0, -2), EXIT());
	REFUSES(EINVAL, "0", "jumps to instruction 1000001", JUMP_LONG(1000000), EXIT());
	REFUSES(EINVAL, "0", "middle of ld_imm64 at instruction 1", JUMP(1), LOAD_IMM64(0, 0), EXIT());
}

Test(bpf_check, control_never_falls_off_the_end)
{
	REFUSES(EINVAL, "0", "falls off", MOV_IMM(0, 0));
	REFUSES(EINVAL, "1", "falls off", MOV_IMM(0, 0), JUMP_IMM(BPF_JEQ, 0, 0, -2));
	REFUSES(EINVAL, "1", "falls off", LOAD_IMM64(0, 0));
	REFUSES(EINVAL, "1", "without its second half", MOV_IMM(0, 0), INSN(BPF_LD | BPF_IMM | BPF_DW, 0, 0, 0, 0));
	expect_refusal(check_func(NULL, 0, NULL, 0), EINVAL, "program 'prog':", "no instructions");
}

Test(bpf_check, stack_accesses_by_r10_stay_on_the_stack)
{
	ACCEPTS(STORE_IMM(BPF_DW, 10, -512, 0), STORE_IMM(BPF_B, 10, -1, 0), EXIT());
	REFUSES(EINVAL, "0", "outside of the 512 bytes of stack", STORE_IMM(BPF_DW, 10, -513, 0), EXIT());
	REFUSES(EINVAL, "0", "outside of the 512 bytes of stack", LOAD(BPF_W, 0, 10, -3), EXIT());
	REFUSES(EINVAL, "0", "outside of the 512 bytes of stack", ATOMIC(BPF_DW, BPF_ADD, 10, 1, 0), EXIT());
}

Test(bpf_check, helpers_are_known_by_number_or_refused_by_name)
{
	REFUSES(ENOTSUP, "1", "helper 22 (perf_event_read)", MOV_IMM(1, 0), CALL(22), EXIT());
	REFUSES(ENOTSUP, "0", "unknown helper 2999", CALL(2999), EXIT());
	REFUSES(EINVAL, "0", "unknown helper -1", CALL(-1), EXIT());
	REFUSES(EINVAL, "0", "unknown helper 0", CALL(0), EXIT());
	/* Those of generated code are not for programs. */
	REFUSES(EINVAL, "0", "unknown helper 9001", CALL(9001), EXIT());
	REFUSES(EINVAL, "0", "subprogram that does not exist", INSN(BPF_JMP | BPF_CALL, 0, 1, 0, 0), EXIT());
	REFUSES(EINVAL, "0", "call of unknown kind 3", INSN(BPF_JMP | BPF_CALL, 0, 3, 0, 1), EXIT());
	REFUSES(EINVAL, "0", "ld_imm64 of kind 1", INSN(BPF_LD | BPF_IMM | BPF_DW, 0, 1, 0, 3), INSN(0, 0, 0, 0, 0), EXIT());
}

static void refs_case(struct bpf_ref ref, const char *reason)
{
	struct bpf_insn insns[] = { LOAD_IMM64(1, 0), INSN(BPF_JMP | BPF_CALL, 0, 1, 0, 0), MOV_IMM(0, 0), EXIT() };
	struct bpf_ref refs[] = { ref };

	if (ref.insn != 2) {
		insns[2] = (struct bpf_insn)MOV_IMM(2, 0);
		expect_refusal(check_func(insns, 5, refs, 1), EINVAL, "program 'prog'", reason);
	} else {
		expect_refusal(check_func(insns, 5, refs, 1), EINVAL, "program 'prog', instruction 2", reason);
	}
}

Test(bpf_check, every_reference_lies_on_an_instruction_of_its_kind_and_names_something)
{
	struct bpf_insn insns[] = { LOAD_IMM64(1, 0), INSN(BPF_JMP | BPF_CALL, 0, 1, 0, 0), MOV_IMM(0, 0), EXIT() };
	struct bpf_ref good[] = { { .insn = 0, .kind = BPF_REF_MAP }, { .insn = 2, .kind = BPF_REF_CALL, .index = 1 } };
	struct bpf_ref unsorted[] = { good[1], good[0] }, twice[] = { good[0], good[0], good[1] };

	cr_expect_eq(check_func(insns, 5, good, 2), 0, "%s", shunt_error());
	expect_refusal(check_func(insns, 5, unsorted, 2), EINVAL, "instruction 0", "out of order");
	expect_refusal(check_func(insns, 5, twice, 3), EINVAL, "instruction 0", "two references");
	refs_case((struct bpf_ref){ .insn = 3, .kind = BPF_REF_MAP }, "a reference of kind 0 on opcode 0xb7");
	refs_case((struct bpf_ref){ .insn = 1, .kind = BPF_REF_MAP }, "in the middle of ld_imm64");
	refs_case((struct bpf_ref){ .insn = 0, .kind = BPF_REF_CALL, .index = 1 }, "a reference of kind 4 on opcode 0x18");
	refs_case((struct bpf_ref){ .insn = 0, .kind = BPF_REF_MAP, .index = 1 }, "refers to object 1 of 1");
	refs_case((struct bpf_ref){ .insn = 0, .kind = BPF_REF_DATA, .index = 9 }, "refers to object 9 of 1");
	refs_case((struct bpf_ref){ .insn = 99, .kind = BPF_REF_MAP }, "outside of the program");
	refs_case((struct bpf_ref){ .insn = 2, .kind = BPF_REF_CALL, .index = 3 }, "refers to object 3 of 3");
	refs_case((struct bpf_ref){ .insn = 2, .kind = BPF_REF_CALL, .index = 2 }, "calls 'other', which is a program itself");
}

Test(bpf_check, program_names_that_generated_code_uses_are_refused)
{
	static const char *const names[] = { "memcpy", "llvm.trap", "shunt_map_lookup", "_bpf_helper_ext_0001", "map.m", "" };
	struct bpf_insn insns[] = { MOV_IMM(0, 0), EXIT() };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct bpf_func func = { .name = (char *)names[i], .is_program = true, .insns = insns, .nr_insns = 2 };
		struct bpf_unit unit = { .name = "test", .funcs = &func, .nr_funcs = 1 };

		expect_refusal(bpf_check(&unit, &func, is_builtin, NULL), EINVAL, "program '", "taken");
		func.is_program = false;
		cr_expect_eq(bpf_check(&unit, &func, is_builtin, NULL), 0, "%s", shunt_error());
	}
}

Test(bpf_check, random_bytes_are_refused_or_accepted_but_never_read_out_of_bounds)
{
	unsigned accepted = 0;

	srand(1);
	for (int round = 0; round < 200000; round++) {
		uint32_t nr = 1 + (uint32_t)rand() % 12, nr_refs = (uint32_t)rand() % 3;
		/* Exactly sized, so that a sanitizer sees the first byte beyond. */
		struct bpf_insn *insns = malloc(nr * sizeof(*insns));
		struct bpf_ref *refs = malloc(nr_refs * sizeof(*refs) + 1);

		for (size_t i = 0; i < nr * sizeof(*insns); i++)
			((unsigned char *)insns)[i] = (unsigned char)(rand() >> 5);
		for (uint32_t i = 0; i < nr && round % 2; i++) {
			insns[i].dst_reg %= 11;
			insns[i].src_reg %= rand() % 2 ? 11 : 1;
			insns[i].off %= 5;
			insns[i].imm = rand() % 2 ? 0 : insns[i].imm % 66;
		}
		if (round % 3)
			insns[nr - 1] = (struct bpf_insn)EXIT();
		for (uint32_t i = 0; i < nr_refs; i++)
			refs[i] = (struct bpf_ref){ .insn = (uint32_t)rand() % (nr + 2), .kind = (enum bpf_ref_kind)(rand() % 5),
						    .index = (uint32_t)rand() % 4 };
		accepted += !check_func(insns, nr, refs, nr_refs);
		free(insns);
		free(refs);
	}
	cr_expect_gt(accepted, 1000u, "only %u were accepted, the test says little", accepted);
}
