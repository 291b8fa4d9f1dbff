/* SPDX-License-Identifier: MIT */
/* See bpf_random_program.h. */
#include <string.h>
#include "bpf_random_program.h"

static uint64_t state;

void bpf_random_seed(uint64_t seed)
{
	state = seed * 0x9e3779b97f4a7c15u | 1;
}

static uint32_t random_below(uint32_t limit)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)((state >> 16) % limit);
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

/* With verifiable: no division by a constant 0, no shift by a constant above the width; both are defined for registers only. */
static struct bpf_insn random_alu(bool verifiable)
{
	static const uint8_t ops[] = { BPF_ADD, BPF_SUB, BPF_MUL, BPF_DIV, BPF_OR, BPF_AND, BPF_LSH, BPF_RSH, BPF_MOD, BPF_XOR, BPF_MOV, BPF_ARSH };
	uint8_t class = random_below(2) ? BPF_ALU64 : BPF_ALU, op = ops[random_below(sizeof(ops))];
	static const int16_t moves[] = { 0, 8, 16, 32 };
	int16_t off = 0;
	int32_t imm;

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
	if (random_below(2)) {
		imm = random_imm();
		if (verifiable && (op == BPF_LSH || op == BPF_RSH || op == BPF_ARSH))
			imm &= class == BPF_ALU64 ? 63 : 31;
		else if (verifiable && !imm && (op == BPF_DIV || op == BPF_MOD))
			imm = -7;
		return INSN(class | op | BPF_K, random_reg(), 0, off, imm);
	}
	if (op == BPF_MOV)
		off = moves[random_below(class == BPF_ALU64 ? 4 : 3)];
	return INSN(class | op | BPF_X, random_reg(), random_reg(), off, 0);
}

/* An access in the memory or on the stack, by r6, r9 or r10. The verifier wants the stack's aligned, and atomics not in packets. */
static struct bpf_insn random_access(bool verifiable)
{
	static const uint8_t sizes[] = { BPF_B, BPF_H, BPF_W, BPF_DW };
	static const int atomics[] = { BPF_ADD, BPF_OR, BPF_AND, BPF_XOR, BPF_XCHG, BPF_CMPXCHG };
	unsigned log = random_below(4);
	uint8_t base = random_below(2) ? 6 : random_below(2) ? 9 : 10;
	int16_t low = base == 10 ? -64 : 0, off = (int16_t)random_below(64 - (1u << log) + 1);
	int op;

	if (verifiable && base != 6)
		off = (int16_t)(off & ~((1 << log) - 1));
	off = (int16_t)(off + low);
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
		if (verifiable && base == 6)
			base = 9;
		/* Linux 6.18 tracks values that come from the stack by an atomic wrongly: it drops branches that can be reached, and forgets
		 * to clear r0's upper half after a 32-bit BPF_CMPXCHG. */
		op = atomics[random_below(verifiable ? 4 : 6)];
		log = 2 + random_below(2);
		if (!verifiable && op != BPF_XCHG && op != BPF_CMPXCHG && random_below(2))
			op |= BPF_FETCH;
		return ATOMIC(sizes[log], op, base, random_reg(), (int16_t)(low + (int)random_below(8) * 8));
	}
}

/* With verifiable: nothing that would leave instructions unreachable. */
static struct bpf_insn random_jump(uint32_t left, bool verifiable)
{
	static const uint8_t ops[] = { BPF_JEQ, BPF_JGT, BPF_JGE, BPF_JSET, BPF_JNE, BPF_JSGT, BPF_JSGE, BPF_JLT, BPF_JLE, BPF_JSLT, BPF_JSLE };
	uint8_t class = random_below(2) ? BPF_JMP : BPF_JMP32, op = ops[random_below(sizeof(ops))];
	int16_t off = (int16_t)random_below(left < 8 ? left + 1 : 8);

	if (random_below(12) == 0)
		return random_below(2) ? JUMP(verifiable ? 0 : off) : JUMP_LONG(verifiable ? 0 : off);
	return random_below(2) ? INSN(class | op | BPF_X, random_reg(), random_reg(), off, 0) : INSN(class | op | BPF_K, random_reg(), 0, off, random_imm());
}

size_t bpf_random_program(const struct bpf_random_rules *rules, struct bpf_insn insns[BPF_RANDOM_MAX_INSNS])
{
	uint32_t body = 1 + random_below(80);
	size_t nr = rules->nr_entry;

	memcpy(insns, rules->entry, nr * sizeof(*insns));
	insns[nr++] = MOV_REG(9, 10);
	insns[nr++] = ALU64_IMM(BPF_ADD, 9, -64);
	for (int16_t i = 0; i < 8; i++) {
		insns[nr++] = LOAD(BPF_DW, (uint8_t)(i == 6 ? 8 : i), 6, (int16_t)(i * 8));
		insns[nr++] = STORE(BPF_DW, 10, (uint8_t)(i == 6 ? 8 : i), (int16_t)(-8 - 8 * i));
	}
	for (uint32_t i = 0; i < body; i++) {
		uint32_t kind = random_below(10);

		insns[nr++] = kind < 5 ? random_alu(rules->verifiable) :
			      kind < 8 ? random_access(rules->verifiable) :
					 random_jump(body - 1 - i, rules->verifiable);
	}
	for (int16_t i = 0; i < 8; i++)
		insns[nr++] = STORE(BPF_DW, 6, (uint8_t)(i == 6 ? 8 : i), (int16_t)(64 + i * 8));
	for (int16_t i = 0; i < 8; i++) { /* both halves of each word count in r0's lower one, which is all that XDP returns */
		insns[nr++] = LOAD(BPF_DW, 1, 10, (int16_t)(-8 - 8 * i));
		insns[nr++] = ALU64_IMM(BPF_MUL, 0, 31);
		insns[nr++] = ALU64_REG(BPF_ADD, 0, 1);
		insns[nr++] = ALU64_IMM(BPF_RSH, 1, 32);
		insns[nr++] = ALU64_REG(BPF_ADD, 0, 1);
	}
	insns[nr++] = EXIT();
	return nr;
}

void bpf_random_fill(uint64_t mem[BPF_RANDOM_MEM / 8])
{
	static const uint64_t edges[] = { 0, 1, UINT64_MAX, 1ull << 63, INT64_MAX, 0x80000000, 0xffffffff, 0x7fffffff, 64, 32 };

	for (size_t i = 0; i < BPF_RANDOM_MEM / 8; i++)
		mem[i] = random_below(2) ? edges[random_below(10)] : (uint64_t)random_below(UINT32_MAX) << 32 | random_below(UINT32_MAX);
}

