/* SPDX-License-Identifier: MIT */
/* Every arithmetic instruction, in both widths, with register and immediate, on the values where machines and C differ. */
#include <limits.h>
#include "bpf_run.h"

#define NR(array) (sizeof(array) / sizeof((array)[0]))

static const uint64_t values[] = {
	0, 1, 2, 7, 31, 32, 33, 63, 64, 65, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0x7fffffff, 0x80000000, 0xffffffff, 0x100000000,
	0x1ffffffff, 0x7fffffffffffffff, 0x8000000000000000, 0x8000000080000000, 0xfffffffffffffffe, 0xffffffffffffffff,
	0x0123456789abcdef, 0xffffffff80000000,
};

static const int32_t immediates[] = { 0, 1, 2, 7, 31, 32, 63, 64, 0x7fffffff, INT32_MIN, -1, -2, -33, 0x12345678 };

/* What the instruction set says, in C without undefined behaviour. */
static uint64_t expect64(unsigned op, int off, uint64_t a, uint64_t b)
{
	switch (op) {
	case BPF_ADD: return a + b;
	case BPF_SUB: return a - b;
	case BPF_MUL: return a * b;
	case BPF_OR: return a | b;
	case BPF_AND: return a & b;
	case BPF_XOR: return a ^ b;
	case BPF_LSH: return a << (b & 63);
	case BPF_RSH: return a >> (b & 63);
	case BPF_ARSH: return (uint64_t)((int64_t)a >> (b & 63));
	case BPF_NEG: return 0 - a;
	case BPF_MOV:
		return off == 8 ? (uint64_t)(int8_t)b : off == 16 ? (uint64_t)(int16_t)b : off == 32 ? (uint64_t)(int32_t)b : b;
	case BPF_DIV:
		if (!b)
			return 0;
		if (!off)
			return a / b;
		return b == UINT64_MAX ? 0 - a : (uint64_t)((int64_t)a / (int64_t)b);
	default: /* MOD */
		if (!b)
			return a;
		if (!off)
			return a % b;
		return b == UINT64_MAX ? 0 : (uint64_t)((int64_t)a % (int64_t)b);
	}
}

static uint64_t expect32(unsigned op, int off, uint32_t a, uint32_t b)
{
	switch (op) {
	case BPF_ADD: return a + b;
	case BPF_SUB: return a - b;
	case BPF_MUL: return a * b;
	case BPF_OR: return a | b;
	case BPF_AND: return a & b;
	case BPF_XOR: return a ^ b;
	case BPF_LSH: return a << (b & 31);
	case BPF_RSH: return a >> (b & 31);
	case BPF_ARSH: return (uint32_t)((int32_t)a >> (b & 31));
	case BPF_NEG: return 0 - a;
	case BPF_MOV:
		return off == 8 ? (uint32_t)(int8_t)b : off == 16 ? (uint32_t)(int16_t)b : b;
	case BPF_DIV:
		if (!b)
			return 0;
		if (!off)
			return a / b;
		return b == UINT32_MAX ? 0 - a : (uint32_t)((int32_t)a / (int32_t)b);
	default: /* MOD */
		if (!b)
			return a;
		if (!off)
			return a % b;
		return b == UINT32_MAX ? 0 : (uint32_t)((int32_t)a % (int32_t)b);
	}
}

static uint64_t expect(bool wide, unsigned op, int off, uint64_t a, uint64_t b)
{
	return wide ? expect64(op, off, a, b) : expect32(op, off, (uint32_t)a, (uint32_t)b);
}

struct operation {
	unsigned op;
	int off;
	bool only_wide, only_reg;
};

static const struct operation operations[] = {
	{ .op = BPF_ADD }, { .op = BPF_SUB }, { .op = BPF_MUL }, { .op = BPF_OR }, { .op = BPF_AND }, { .op = BPF_XOR }, { .op = BPF_LSH },
	{ .op = BPF_RSH }, { .op = BPF_ARSH }, { .op = BPF_MOV }, { .op = BPF_DIV }, { .op = BPF_DIV, .off = 1 }, { .op = BPF_MOD },
	{ .op = BPF_MOD, .off = 1 }, { .op = BPF_MOV, .off = 8, .only_reg = true }, { .op = BPF_MOV, .off = 16, .only_reg = true },
	{ .op = BPF_MOV, .off = 32, .only_reg = true, .only_wide = true },
};

static void run_on_values(struct bpf_insn insn, const struct operation *operation, bool wide, bool by_reg)
{
	/* The second operand comes from memory, or is the immediate. */
	const struct bpf_insn insns[] = { LOAD(BPF_DW, 2, 1, 0), LOAD(BPF_DW, 3, 1, 8), insn, MOV_REG(0, 2), EXIT() };
	struct shunt_bpf_object *object = bpf_run_open(insns, NR(insns), SHUNT_BPF_CONTEXT_NONE);
	bpf_plain_fn *entry = (bpf_plain_fn *)(uintptr_t)shunt_bpf_program_entry(shunt_bpf_find_program(object, "main"));

	for (size_t a = 0; a < NR(values); a++) {
		for (size_t b = 0; b < (by_reg ? NR(values) : 1); b++) {
			uint64_t mem[2] = { values[a], by_reg ? values[b] : (uint64_t)(int64_t)insn.imm }, result, expected;

			expected = expect(wide, operation->op, operation->off, mem[0], mem[1]);
			shunt_read_begin();
			result = entry(mem, sizeof(mem));
			shunt_read_end();
			cr_assert_eq(result, expected, "op 0x%02x off %d on %llx, %llx gives %llx, not %llx", insn.code, insn.off,
				     (unsigned long long)mem[0], (unsigned long long)mem[1], (unsigned long long)result,
				     (unsigned long long)expected);
		}
	}
	shunt_bpf_close(object);
}

Test(bpf_alu, every_operation_on_registers_gives_what_the_instruction_set_says)
{
	for (size_t i = 0; i < NR(operations); i++) {
		for (int wide = 0; wide < 2; wide++) {
			if (!wide && operations[i].only_wide)
				continue;
			run_on_values(INSN((wide ? BPF_ALU64 : BPF_ALU) | BPF_X | operations[i].op, 2, 3, (int16_t)operations[i].off, 0),
				      &operations[i], wide, true);
		}
	}
}

Test(bpf_alu, every_operation_on_immediates_sign_extends_them)
{
	for (size_t i = 0; i < NR(operations); i++) {
		for (size_t n = 0; n < NR(immediates) && !operations[i].only_reg; n++) {
			for (int wide = 0; wide < 2; wide++)
				run_on_values(INSN((wide ? BPF_ALU64 : BPF_ALU) | BPF_K | operations[i].op, 2, 0,
						   (int16_t)operations[i].off, immediates[n]), &operations[i], wide, false);
		}
	}
}

Test(bpf_alu, negation_wraps_and_clears_the_upper_half_in_32_bits)
{
	const struct operation negation = { .op = BPF_NEG };

	run_on_values(INSN(BPF_ALU64 | BPF_NEG, 2, 0, 0, 0), &negation, true, false);
	run_on_values(INSN(BPF_ALU | BPF_NEG, 2, 0, 0, 0), &negation, false, false);
}

Test(bpf_alu, constants_fold_to_the_same_values)
{
	/* The same edges with nothing left to run time: LLVM folds them, with its own idea of overflow and poison. */
	cr_expect_eq(RUN(NULL, 0, LOAD_IMM64(0, 1ull << 63), INSN(BPF_ALU64 | BPF_DIV | BPF_K, 0, 0, 1, -1), EXIT()), 1ull << 63);
	cr_expect_eq(RUN(NULL, 0, LOAD_IMM64(0, 1ull << 63), INSN(BPF_ALU64 | BPF_MOD | BPF_K, 0, 0, 1, -1), EXIT()), 0u);
	cr_expect_eq(RUN(NULL, 0, ALU32_IMM(BPF_MOV, 0, INT32_MIN), INSN(BPF_ALU | BPF_DIV | BPF_K, 0, 0, 1, -1), EXIT()), 0x80000000u);
	cr_expect_eq(RUN(NULL, 0, MOV_IMM(0, 5), MOV_IMM(1, 0), ALU64_REG(BPF_DIV, 0, 1), EXIT()), 0u);
	cr_expect_eq(RUN(NULL, 0, MOV_IMM(0, -5), MOV_IMM(1, 0), ALU32_REG(BPF_MOD, 0, 1), EXIT()), 0xfffffffbu);
	cr_expect_eq(RUN(NULL, 0, MOV_IMM(0, 3), MOV_IMM(1, 65), ALU64_REG(BPF_LSH, 0, 1), EXIT()), 6u);
	cr_expect_eq(RUN(NULL, 0, MOV_IMM(0, -8), MOV_IMM(1, 33), ALU32_REG(BPF_ARSH, 0, 1), EXIT()), 0xfffffffcu);
}

Test(bpf_alu, byte_swaps_turn_the_low_bytes_and_clear_the_rest)
{
	static const struct { unsigned code; int bits; uint64_t result; } swaps[] = {
		{ BPF_ALU | BPF_END | BPF_TO_LE, 16, 0xcdef }, { BPF_ALU | BPF_END | BPF_TO_LE, 32, 0x89abcdef },
		{ BPF_ALU | BPF_END | BPF_TO_LE, 64, 0x0123456789abcdef }, { BPF_ALU | BPF_END | BPF_TO_BE, 16, 0xefcd },
		{ BPF_ALU | BPF_END | BPF_TO_BE, 32, 0xefcdab89 }, { BPF_ALU | BPF_END | BPF_TO_BE, 64, 0xefcdab8967452301 },
		{ BPF_ALU64 | BPF_END, 16, 0xefcd }, { BPF_ALU64 | BPF_END, 32, 0xefcdab89 }, { BPF_ALU64 | BPF_END, 64, 0xefcdab8967452301 },
	};

	for (size_t i = 0; i < NR(swaps); i++) {
		uint64_t mem = 0x0123456789abcdef;

		cr_expect_eq(RUN(&mem, 8, LOAD(BPF_DW, 0, 1, 0), INSN(swaps[i].code, 0, 0, 0, swaps[i].bits), EXIT()), swaps[i].result,
			     "code 0x%x, %d bits", swaps[i].code, swaps[i].bits);
	}
}
