/* SPDX-License-Identifier: MIT */
/*
 * Random programs, compiled and interpreted: the same registers, memory and stack come out. Programs go forward only, so they end. Every
 * random number comes from one seed, which a failure prints.
 */
#include <stdlib.h>
#include <string.h>
#include "bpf_interpreter.h"
#include "bpf_run.h"

#define MEM_LEN 128
#define MAX_INSNS 160

static uint64_t seed;

static uint32_t random_below(uint32_t limit)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)((seed >> 16) % limit);
}

static int32_t random_imm(void)
{
	static const int32_t edges[] = { 0, 1, -1, 2, 31, 32, 63, 64, INT32_MAX, INT32_MIN, 0x80, 0xffff, -128 };

	return random_below(2) ? edges[random_below(sizeof(edges) / sizeof(edges[0]))] : (int32_t)random_below(UINT32_MAX);
}

/* r0-r5 and r7, r8 hold numbers; r6 always the memory, r9 a copy of r10 less 64. */
static uint8_t random_reg(void)
{
	static const uint8_t regs[] = { 0, 1, 2, 3, 4, 5, 7, 8 };

	return regs[random_below(sizeof(regs))];
}

static struct bpf_insn random_alu(void)
{
	static const uint8_t ops[] = { BPF_ADD, BPF_SUB, BPF_MUL, BPF_DIV, BPF_OR, BPF_AND, BPF_LSH, BPF_RSH, BPF_MOD, BPF_XOR, BPF_MOV, BPF_ARSH };
	uint8_t class = random_below(2) ? BPF_ALU64 : BPF_ALU, op = ops[random_below(sizeof(ops))];
	static const int16_t moves[] = { 0, 8, 16, 32 };
	int16_t off = 0;

	switch (random_below(12)) {
	case 0:
		return INSN(class | BPF_NEG, random_reg(), 0, 0, 0);
	case 1:
		return INSN(class | BPF_END | (class == BPF_ALU && random_below(2) ? BPF_TO_BE : 0), random_reg(), 0, 0, 16 << random_below(3));
	default:
		break;
	}
	if (op == BPF_DIV || op == BPF_MOD)
		off = (int16_t)random_below(2);
	if (random_below(2))
		return INSN(class | op | BPF_K, random_reg(), 0, off, random_imm());
	if (op == BPF_MOV)
		off = moves[random_below(class == BPF_ALU64 ? 4 : 3)];
	return INSN(class | op | BPF_X, random_reg(), random_reg(), off, 0);
}

/* An access in the memory or on the stack, by r6, r9 or r10; aligned for atomics. */
static struct bpf_insn random_access(void)
{
	static const uint8_t sizes[] = { BPF_B, BPF_H, BPF_W, BPF_DW };
	static const int atomics[] = { BPF_ADD, BPF_OR, BPF_AND, BPF_XOR, BPF_XCHG, BPF_CMPXCHG };
	unsigned log = random_below(4);
	uint8_t base = random_below(2) ? 6 : random_below(2) ? 9 : 10;
	int16_t off = (int16_t)random_below(64 - (1u << log) + 1);

	if (base == 10)
		off = (int16_t)(off - 64);
	switch (random_below(5)) {
	case 0:
		return LOAD(sizes[log], random_reg(), base, off);
	case 1:
		return LOAD_SIGNED(sizes[log % 3], random_reg(), base, (int16_t)(off & ~3));
	case 2:
		return STORE(sizes[log], base, random_reg(), off);
	case 3:
		return STORE_IMM(sizes[log], base, off, random_imm());
	default:
		log = 2 + random_below(2);
		off = (int16_t)((base == 10 ? -64 : 0) + (int)random_below(8) * 8);
		{
			int op = atomics[random_below(6)];

			if (op != BPF_XCHG && op != BPF_CMPXCHG && random_below(2))
				op |= BPF_FETCH;
			return ATOMIC(sizes[log], op, base, random_reg(), off);
		}
	}
}

static struct bpf_insn random_jump(uint32_t left)
{
	static const uint8_t ops[] = { BPF_JEQ, BPF_JGT, BPF_JGE, BPF_JSET, BPF_JNE, BPF_JSGT, BPF_JSGE, BPF_JLT, BPF_JLE, BPF_JSLT, BPF_JSLE };
	uint8_t class = random_below(2) ? BPF_JMP : BPF_JMP32, op = ops[random_below(sizeof(ops))];
	int16_t off = (int16_t)random_below(left < 8 ? left + 1 : 8);

	if (random_below(12) == 0)
		return random_below(2) ? JUMP(off) : JUMP_LONG(off);
	return random_below(2) ? INSN(class | op | BPF_X, random_reg(), random_reg(), off, 0) : INSN(class | op | BPF_K, random_reg(), 0, off, random_imm());
}

/* Memory at r1 -> program -> the registers at memory + 64, the lowest 64 bytes changed; stack copied to r0's sum. */
static size_t random_program(struct bpf_insn *insns)
{
	uint32_t body = 1 + random_below(80), nr = 0;

	insns[nr++] = (struct bpf_insn)MOV_REG(6, 1);
	insns[nr++] = (struct bpf_insn)MOV_REG(9, 10);
	insns[nr++] = (struct bpf_insn)ALU64_IMM(BPF_ADD, 9, -64);
	for (int16_t i = 0; i < 8; i++) {
		insns[nr++] = (struct bpf_insn)LOAD(BPF_DW, (uint8_t)(i == 6 ? 8 : i), 6, (int16_t)(i * 8));
		insns[nr++] = (struct bpf_insn)STORE(BPF_DW, 10, (uint8_t)(i == 6 ? 8 : i), (int16_t)(-8 - 8 * i));
	}
	for (uint32_t i = 0; i < body; i++) {
		uint32_t kind = random_below(10);

		insns[nr++] = kind < 5 ? random_alu() : kind < 8 ? random_access() : random_jump(body - 1 - i);
	}
	for (int16_t i = 0; i < 8; i++)
		insns[nr++] = (struct bpf_insn)STORE(BPF_DW, 6, (uint8_t)(i == 6 ? 8 : i), (int16_t)(64 + i * 8));
	for (int16_t i = 0; i < 8; i++) {
		insns[nr++] = (struct bpf_insn)LOAD(BPF_DW, 1, 10, (int16_t)(-8 - 8 * i));
		insns[nr++] = (struct bpf_insn)ALU64_IMM(BPF_MUL, 0, 31);
		insns[nr++] = (struct bpf_insn)ALU64_REG(BPF_ADD, 0, 1);
	}
	insns[nr++] = (struct bpf_insn)EXIT();
	return nr;
}

static void fill(uint64_t mem[MEM_LEN / 8])
{
	static const uint64_t edges[] = { 0, 1, UINT64_MAX, 1ull << 63, INT64_MAX, 0x80000000, 0xffffffff, 0x7fffffff, 64, 32 };

	for (size_t i = 0; i < MEM_LEN / 8; i++)
		mem[i] = random_below(2) ? edges[random_below(10)] : (uint64_t)random_below(UINT32_MAX) << 32 | random_below(UINT32_MAX);
}

static void compare(const struct bpf_insn *insns, size_t nr, uint64_t program_seed)
{
	struct shunt_bpf_object *object = bpf_run_open(insns, nr, SHUNT_BPF_CONTEXT_NONE);
	bpf_plain_fn *entry = (bpf_plain_fn *)(uintptr_t)shunt_bpf_program_entry(shunt_bpf_find_program(object, "main"));

	for (int run = 0; run < 4; run++) {
		uint64_t compiled[MEM_LEN / 8], interpreted[MEM_LEN / 8], stack[64] = { 0 }, result;
		uint64_t regs[11] = { [1] = (uintptr_t)interpreted, [2] = MEM_LEN, [10] = (uintptr_t)(stack + 64) };

		fill(compiled);
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
	struct bpf_insn insns[MAX_INSNS];

	for (int i = 0; i < nr_programs; i++) {
		uint64_t program_seed = first_seed + (uint64_t)i;

		seed = program_seed * 0x9e3779b97f4a7c15u | 1;
		compare(insns, random_program(insns), program_seed);
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
