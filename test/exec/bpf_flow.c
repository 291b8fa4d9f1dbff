/* SPDX-License-Identifier: MIT */
/* Jumps, memory, atomics, subprograms: everything that is not arithmetic, run. */
#include <string.h>
#include "bpf_run.h"

#define NR(array) (sizeof(array) / sizeof((array)[0]))
#define CALL_SUB(o) INSN(BPF_JMP | BPF_CALL, 0, 1, 0, o)

static const uint64_t values[] = {
	0, 1, 2, 0x7fffffff, 0x80000000, 0xffffffff, 0x100000000, 0x100000001, 0x7fffffffffffffff, 0x8000000000000000, 0xffffffff80000000,
	0xffffffffffffffff,
};

static bool is_taken(unsigned op, bool wide, uint64_t a, uint64_t b)
{
	int64_t sa = wide ? (int64_t)a : (int32_t)a, sb = wide ? (int64_t)b : (int32_t)b;

	if (!wide) {
		a = (uint32_t)a;
		b = (uint32_t)b;
	}
	switch (op) {
	case BPF_JEQ: return a == b;
	case BPF_JNE: return a != b;
	case BPF_JGT: return a > b;
	case BPF_JGE: return a >= b;
	case BPF_JLT: return a < b;
	case BPF_JLE: return a <= b;
	case BPF_JSGT: return sa > sb;
	case BPF_JSGE: return sa >= sb;
	case BPF_JSLT: return sa < sb;
	case BPF_JSLE: return sa <= sb;
	default: return a & b;
	}
}

static void run_jump(struct bpf_insn jump, bool wide, bool by_reg)
{
	const struct bpf_insn insns[] = { LOAD(BPF_DW, 2, 1, 0), LOAD(BPF_DW, 3, 1, 8), MOV_IMM(0, 1), jump, MOV_IMM(0, 0), EXIT() };
	struct shunt_bpf_object *object = bpf_run_open(insns, NR(insns), SHUNT_BPF_CONTEXT_NONE);
	bpf_plain_fn *entry = (bpf_plain_fn *)(uintptr_t)shunt_bpf_program_entry(shunt_bpf_find_program(object, "main"));

	for (size_t a = 0; a < NR(values); a++) {
		for (size_t b = 0; b < (by_reg ? NR(values) : 1); b++) {
			uint64_t mem[2] = { values[a], by_reg ? values[b] : (uint64_t)(int64_t)jump.imm };
			bool expected = is_taken(jump.code & 0xf0, wide, mem[0], mem[1]);

			shunt_read_begin();
			cr_assert_eq(entry(mem, sizeof(mem)), expected, "jump 0x%02x on %llx, %llx", jump.code, (unsigned long long)mem[0],
				     (unsigned long long)mem[1]);
			shunt_read_end();
		}
	}
	shunt_bpf_close(object);
}

Test(bpf_flow, every_conditional_jump_in_both_widths_goes_where_it_should)
{
	static const unsigned ops[] = { BPF_JEQ, BPF_JNE, BPF_JGT, BPF_JGE, BPF_JLT, BPF_JLE, BPF_JSGT, BPF_JSGE, BPF_JSLT, BPF_JSLE, BPF_JSET };
	static const int32_t immediates[] = { 0, -1, 0x7fffffff };

	for (size_t i = 0; i < NR(ops); i++) {
		for (int wide = 0; wide < 2; wide++) {
			unsigned code = (wide ? BPF_JMP : BPF_JMP32) | ops[i];

			run_jump(INSN(code | BPF_X, 2, 3, 1, 0), wide, true);
			for (size_t n = 0; n < NR(immediates); n++)
				run_jump(INSN(code | BPF_K, 2, 0, 1, immediates[n]), wide, false);
		}
	}
}

Test(bpf_flow, jumps_go_backwards_far_and_nowhere)
{
	cr_expect_eq(RUN(NULL, 0, MOV_IMM(0, 0), MOV_IMM(2, 10), ALU64_REG(BPF_ADD, 0, 2), ALU64_IMM(BPF_SUB, 2, 1),
			 JUMP_IMM(BPF_JNE, 2, 0, -3), EXIT()), 55u);
	cr_expect_eq(RUN(NULL, 0, MOV_IMM(0, 1), JUMP_LONG(1), EXIT(), MOV_IMM(0, 2), JUMP_LONG(-3)), 2u);
	cr_expect_eq(RUN(NULL, 0, MOV_IMM(0, 1), JUMP(0), JUMP_IMM(BPF_JEQ, 0, 1, 0), EXIT()), 1u);
	/* Unreachable instructions, also such as would fall into reachable ones. */
	cr_expect_eq(RUN(NULL, 0, MOV_IMM(0, 4), JUMP(1), MOV_IMM(0, 5), EXIT()), 4u);
}

Test(bpf_flow, loads_and_stores_of_every_size_extend_as_they_should)
{
	uint64_t mem[3] = { 0xf1f2f3f4f5f6f7f8, 0, 0x1122334455667788 };

	cr_expect_eq(RUN(mem, 24, LOAD(BPF_B, 0, 1, 0), EXIT()), 0xf8u);
	cr_expect_eq(RUN(mem, 24, LOAD(BPF_H, 0, 1, 0), EXIT()), 0xf7f8u);
	cr_expect_eq(RUN(mem, 24, LOAD(BPF_W, 0, 1, 0), EXIT()), 0xf5f6f7f8u);
	cr_expect_eq(RUN(mem, 24, LOAD_SIGNED(BPF_B, 0, 1, 0), EXIT()), 0xfffffffffffffff8u);
	cr_expect_eq(RUN(mem, 24, LOAD_SIGNED(BPF_H, 0, 1, 0), EXIT()), 0xfffffffffffff7f8u);
	cr_expect_eq(RUN(mem, 24, LOAD_SIGNED(BPF_W, 0, 1, 0), EXIT()), 0xfffffffff5f6f7f8u);
	cr_expect_eq(RUN(mem, 24, LOAD(BPF_DW, 0, 1, 3), EXIT()), 0x000000f1f2f3f4f5u, "an unaligned load");
	RUN(mem, 24, LOAD(BPF_DW, 2, 1, 16), STORE(BPF_B, 1, 2, 8), STORE(BPF_H, 1, 2, 9), STORE(BPF_W, 1, 2, 11), EXIT());
	cr_expect_eq(mem[1], 0x0055667788778888u);
	RUN(mem, 24, STORE_IMM(BPF_DW, 1, 8, -2), EXIT());
	cr_expect_eq(mem[1], (uint64_t)-2);
	RUN(mem, 24, STORE_IMM(BPF_H, 1, 8, 0x12345), STORE_IMM(BPF_B, 1, 15, 0x1ff), EXIT());
	cr_expect_eq(mem[1], 0xffffffffffff2345u);
	cr_expect_eq(RUN(mem, 24, MOV_REG(0, 2), EXIT()), 24u, "r2 is the length");
}

Test(bpf_flow, the_stack_keeps_what_is_stored_by_any_register_and_size)
{
	cr_expect_eq(RUN(NULL, 0, STORE_IMM(BPF_DW, 10, -512, 7), STORE_IMM(BPF_DW, 10, -8, 0x01020304), MOV_REG(2, 10),
			 ALU64_IMM(BPF_ADD, 2, -512), LOAD(BPF_DW, 0, 2, 0), LOAD(BPF_B, 3, 2, 504), ALU64_REG(BPF_ADD, 0, 3), EXIT()), 11u);
	/* A computed address reaches the same bytes as a constant one. */
	uint64_t index = 2;

	cr_expect_eq(RUN(&index, 8, STORE_IMM(BPF_DW, 10, -32, 1), STORE_IMM(BPF_DW, 10, -24, 2), STORE_IMM(BPF_DW, 10, -16, 3),
			 STORE_IMM(BPF_DW, 10, -8, 4), LOAD(BPF_DW, 2, 1, 0), ALU64_IMM(BPF_LSH, 2, 3), MOV_REG(3, 10),
			 ALU64_IMM(BPF_ADD, 3, -32), ALU64_REG(BPF_ADD, 3, 2), STORE_IMM(BPF_DW, 3, 0, 9), LOAD(BPF_DW, 0, 10, -16), EXIT()), 9u);
	/* What was never written is some value, the same one every time it is used. */
	cr_expect_eq(RUN(NULL, 0, LOAD(BPF_DW, 1, 10, -8), MOV_IMM(0, 1), JUMP_REG(BPF_JEQ, 1, 1, 1), MOV_IMM(0, 0), EXIT()), 1u);
}

Test(bpf_flow, registers_begin_as_zero)
{
	cr_expect_eq(RUN(NULL, 5, MOV_REG(0, 3), ALU64_REG(BPF_OR, 0, 7), ALU64_REG(BPF_OR, 0, 9), EXIT()), 0u);
	cr_expect_eq(RUN(NULL, 5, EXIT()), 0u);
}

Test(bpf_flow, atomics_change_memory_and_fetch_what_was_there)
{
	static const struct { int op; uint64_t result; } ops[] = {
		{ BPF_ADD, 0x10000000e }, { BPF_OR, 0x10000000f }, { BPF_AND, 0x2 }, { BPF_XOR, 0x10000000d },
	};

	for (size_t i = 0; i < NR(ops); i++) {
		for (int fetch = 0; fetch < 2; fetch++) {
			uint64_t mem[2] = { 0x10000000b, 3 }, old;

			if (ops[i].op == BPF_AND)
				mem[1] = 6;
			else if (ops[i].op == BPF_OR || ops[i].op == BPF_XOR)
				mem[1] = 6;
			old = RUN(mem, 16, LOAD(BPF_DW, 2, 1, 8), ATOMIC(BPF_DW, ops[i].op | (fetch ? BPF_FETCH : 0), 1, 2, 0), MOV_REG(0, 2),
				  EXIT());
			cr_expect_eq(mem[0], ops[i].result, "op %x gives %llx", ops[i].op, (unsigned long long)mem[0]);
			cr_expect_eq(old, fetch ? 0x10000000b : mem[1]);
			mem[0] = 0x10000000b;
			old = RUN(mem, 16, LOAD(BPF_DW, 2, 1, 8), ATOMIC(BPF_W, ops[i].op | (fetch ? BPF_FETCH : 0), 1, 2, 0), MOV_REG(0, 2),
				  EXIT());
			cr_expect_eq(mem[0], (ops[i].result & 0xffffffff) | 0x100000000, "a 32-bit atomic leaves the upper half");
			cr_expect_eq(old, fetch ? 0xb : mem[1], "32-bit fetches clear the upper half");
		}
	}
}

Test(bpf_flow, exchanges_compare_with_r0_in_their_own_width)
{
	uint64_t mem[2] = { 0x200000001, 0xaaaaaaaabbbbbbbb };

	cr_expect_eq(RUN(mem, 16, LOAD(BPF_DW, 2, 1, 8), ATOMIC(BPF_DW, BPF_XCHG, 1, 2, 0), MOV_REG(0, 2), EXIT()), 0x200000001u);
	cr_expect_eq(mem[0], 0xaaaaaaaabbbbbbbb);
	cr_expect_eq(RUN(mem, 16, MOV_IMM(2, 5), LOAD_IMM64(0, 0xaaaaaaaabbbbbbbb), ATOMIC(BPF_DW, BPF_CMPXCHG, 1, 2, 0), EXIT()),
		     0xaaaaaaaabbbbbbbb);
	cr_expect_eq(mem[0], 5u);
	cr_expect_eq(RUN(mem, 16, MOV_IMM(2, 6), MOV_IMM(0, 4), ATOMIC(BPF_DW, BPF_CMPXCHG, 1, 2, 0), EXIT()), 5u);
	cr_expect_eq(mem[0], 5u, "not equal: nothing is stored");
	mem[0] = 0x700000005;
	cr_expect_eq(RUN(mem, 16, MOV_IMM(2, 6), LOAD_IMM64(0, 0x900000005), ATOMIC(BPF_W, BPF_CMPXCHG, 1, 2, 0), EXIT()), 5u);
	cr_expect_eq(mem[0], 0x700000006u);
	cr_expect_eq(RUN(mem, 16, ATOMIC(BPF_W, 0x100, 0, 1, 4), EXIT()), 7u, "load acquire");
	RUN(mem, 16, MOV_IMM(2, 9), ATOMIC(BPF_H, 0x110, 1, 2, 0), EXIT());
	cr_expect_eq(mem[0], 0x700000009u, "store release");
}

Test(bpf_flow, subprograms_have_their_own_stack_and_keep_r6_to_r9_of_the_caller)
{
	cr_expect_eq(RUN(NULL, 0, STORE_IMM(BPF_DW, 10, -8, 1), MOV_IMM(6, 2), MOV_IMM(1, 3), CALL_SUB(4), LOAD(BPF_DW, 1, 10, -8),
			 ALU64_REG(BPF_ADD, 0, 1), ALU64_REG(BPF_ADD, 0, 6), EXIT(),
			 /* sub: */ STORE_IMM(BPF_DW, 10, -8, 100), MOV_IMM(6, 1000), LOAD(BPF_DW, 0, 10, -8), ALU64_REG(BPF_ADD, 0, 1), EXIT()),
		     106u);
}

Test(bpf_flow, subprograms_take_five_arguments_and_pointers_into_the_callers_stack)
{
	cr_expect_eq(RUN(NULL, 0, STORE_IMM(BPF_DW, 10, -16, 5), MOV_REG(1, 10), ALU64_IMM(BPF_ADD, 1, -16), MOV_IMM(2, 2), MOV_IMM(3, 3),
			 MOV_IMM(4, 4), MOV_IMM(5, 5), CALL_SUB(3), LOAD(BPF_DW, 1, 10, -16), ALU64_REG(BPF_ADD, 0, 1), EXIT(),
			 /* sub: */ LOAD(BPF_DW, 0, 1, 0), STORE_IMM(BPF_DW, 1, 0, 1000), ALU64_REG(BPF_ADD, 0, 2), ALU64_REG(BPF_ADD, 0, 3),
			 ALU64_REG(BPF_ADD, 0, 4), ALU64_REG(BPF_ADD, 0, 5), EXIT()), 1019u);
}

Test(bpf_flow, calls_clear_the_argument_registers)
{
	cr_expect_eq(RUN(NULL, 0, MOV_IMM(1, 1), MOV_IMM(2, 2), MOV_IMM(5, 5), CALL(5), MOV_REG(0, 1), ALU64_REG(BPF_OR, 0, 2),
			 ALU64_REG(BPF_OR, 0, 5), EXIT()), 0u);
}

Test(bpf_flow, recursion_and_calls_deeper_than_the_kernel_allows_are_refused)
{
	struct bpf_insn chain[40];

	cr_expect(strstr(REFUSAL(SHUNT_BPF_CONTEXT_NONE, CALL_SUB(1), EXIT(), CALL_SUB(-1), EXIT()), "recursion"), "%s", shunt_error());
	for (int depth = 8; depth <= 9; depth++) {
		int nr = 0;
		const char *refusal;

		for (int i = 1; i < depth; i++) {
			chain[nr++] = (struct bpf_insn)CALL_SUB(1);
			chain[nr++] = (struct bpf_insn)EXIT();
		}
		chain[nr++] = (struct bpf_insn)MOV_IMM(0, 3);
		chain[nr++] = (struct bpf_insn)EXIT();
		refusal = bpf_run_refusal(chain, (size_t)nr, SHUNT_BPF_CONTEXT_NONE);
		cr_expect(depth == 8 ? !*refusal : strstr(refusal, "nest deeper than 8") != NULL, "depth %d: '%s'", depth, refusal);
	}
}
