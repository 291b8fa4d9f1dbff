/* SPDX-License-Identifier: MIT */
/* See bpf_interpreter.h. Written from the instruction set's text, not from the translator. */
#include <stdbool.h>
#include <string.h>
#include "bpf_interpreter.h"

static uint64_t alu64(const struct bpf_insn *insn, uint64_t dst, uint64_t src)
{
	switch (insn->code >> 4) {
	case 0x0: return dst + src;
	case 0x1: return dst - src;
	case 0x2: return dst * src;
	case 0x3:
		if (insn->off == 1)
			return src == 0 ? 0 : src == UINT64_MAX ? -dst : (uint64_t)((int64_t)dst / (int64_t)src);
		return src ? dst / src : 0;
	case 0x4: return dst | src;
	case 0x5: return dst & src;
	case 0x6: return dst << (src % 64);
	case 0x7: return dst >> (src % 64);
	case 0x8: return -dst;
	case 0x9:
		if (insn->off == 1)
			return src == 0 ? dst : src == UINT64_MAX ? 0 : (uint64_t)((int64_t)dst % (int64_t)src);
		return src ? dst % src : dst;
	case 0xa: return dst ^ src;
	case 0xb:
		switch (insn->off) {
		case 8: return (uint64_t)(int64_t)(int8_t)src;
		case 16: return (uint64_t)(int64_t)(int16_t)src;
		case 32: return (uint64_t)(int64_t)(int32_t)src;
		default: return src;
		}
	default: return (uint64_t)((int64_t)dst >> (src % 64));
	}
}

static uint32_t alu32(const struct bpf_insn *insn, uint32_t dst, uint32_t src)
{
	switch (insn->code >> 4) {
	case 0x0: return dst + src;
	case 0x1: return dst - src;
	case 0x2: return dst * src;
	case 0x3:
		if (insn->off == 1)
			return src == 0 ? 0 : src == UINT32_MAX ? -dst : (uint32_t)((int32_t)dst / (int32_t)src);
		return src ? dst / src : 0;
	case 0x4: return dst | src;
	case 0x5: return dst & src;
	case 0x6: return dst << (src % 32);
	case 0x7: return dst >> (src % 32);
	case 0x8: return -dst;
	case 0x9:
		if (insn->off == 1)
			return src == 0 ? dst : src == UINT32_MAX ? 0 : (uint32_t)((int32_t)dst % (int32_t)src);
		return src ? dst % src : dst;
	case 0xa: return dst ^ src;
	case 0xb: return insn->off == 8 ? (uint32_t)(int8_t)src : insn->off == 16 ? (uint32_t)(int16_t)src : src;
	default: return (uint32_t)((int32_t)dst >> (src % 32));
	}
}

static uint64_t reverse(uint64_t value, int bits)
{
	uint64_t result = 0;

	for (int i = 0; i < bits; i += 8)
		result |= ((value >> i) & 0xff) << (bits - 8 - i);
	return result;
}

static uint64_t end(const struct bpf_insn *insn, uint64_t value)
{
	bool swaps = (insn->code & 7) == 7 || (insn->code & 8);

	if (swaps)
		return reverse(value, insn->imm);
	return insn->imm == 64 ? value : value & ((1ull << insn->imm) - 1);
}

static bool is_taken(const struct bpf_insn *insn, uint64_t dst, uint64_t src)
{
	int64_t signed_dst = (int64_t)dst, signed_src = (int64_t)src;

	if ((insn->code & 7) == 6) {
		dst = (uint32_t)dst;
		src = (uint32_t)src;
		signed_dst = (int32_t)dst;
		signed_src = (int32_t)src;
	}
	switch (insn->code >> 4) {
	case 0x1: return dst == src;
	case 0x2: return dst > src;
	case 0x3: return dst >= src;
	case 0x4: return (dst & src) != 0;
	case 0x5: return dst != src;
	case 0x6: return signed_dst > signed_src;
	case 0x7: return signed_dst >= signed_src;
	case 0xa: return dst < src;
	case 0xb: return dst <= src;
	case 0xc: return signed_dst < signed_src;
	case 0xd: return signed_dst <= signed_src;
	default: return true; /* JA */
	}
}

static unsigned size_of(const struct bpf_insn *insn)
{
	static const unsigned sizes[] = { 4, 2, 1, 8 };

	return sizes[(insn->code >> 3) & 3];
}

static uint64_t load(uint64_t address, unsigned size)
{
	uint64_t value = 0;

	memcpy(&value, (const void *)(uintptr_t)address, size);
	return value;
}

static void store(uint64_t address, unsigned size, uint64_t value)
{
	memcpy((void *)(uintptr_t)address, &value, size);
}

static void atomic(const struct bpf_insn *insn, uint64_t *regs)
{
	unsigned size = size_of(insn);
	uint64_t address = regs[insn->dst_reg] + (uint64_t)(int64_t)insn->off, old = load(address, size), src = regs[insn->src_reg];
	uint64_t mask = size == 8 ? UINT64_MAX : UINT32_MAX;

	switch (insn->imm & 0xf0) {
	case 0x00: store(address, size, old + src); break;
	case 0x40: store(address, size, old | src); break;
	case 0x50: store(address, size, old & src); break;
	case 0xa0: store(address, size, old ^ src); break;
	case 0xe0: store(address, size, src); break;
	default:
		if (old == (regs[0] & mask))
			store(address, size, src);
		regs[0] = old;
		return;
	}
	if (insn->imm & 1)
		regs[insn->src_reg] = old;
}

static uint64_t sign_extended(uint64_t value, unsigned size)
{
	return size == 1 ? (uint64_t)(int64_t)(int8_t)value : size == 2 ? (uint64_t)(int64_t)(int16_t)value : (uint64_t)(int64_t)(int32_t)value;
}

int bpf_interpret(const struct bpf_insn *insns, size_t nr_insns, uint64_t regs[11], size_t max_steps)
{
	size_t at = 0;

	for (size_t step = 0; step < max_steps && at < nr_insns; step++, at++) {
		const struct bpf_insn *insn = &insns[at];
		uint64_t *dst = &regs[insn->dst_reg], imm = (uint64_t)(int64_t)insn->imm;
		uint64_t src = insn->code & 8 ? regs[insn->src_reg] : imm;
		uint64_t offset = (uint64_t)(int64_t)insn->off;

		switch (insn->code & 7) {
		case 0:
			*dst = (uint32_t)insn->imm | (uint64_t)(uint32_t)insns[at + 1].imm << 32;
			at++;
			break;
		case 1:
			*dst = load(regs[insn->src_reg] + offset, size_of(insn));
			if (insn->code >> 5 == 4)
				*dst = sign_extended(*dst, size_of(insn));
			break;
		case 2:
			store(*dst + offset, size_of(insn), imm);
			break;
		case 3:
			if (insn->code >> 5 == 6)
				atomic(insn, regs);
			else
				store(*dst + offset, size_of(insn), regs[insn->src_reg]);
			break;
		case 4:
			*dst = insn->code >> 4 == 0xd ? end(insn, *dst) : alu32(insn, (uint32_t)*dst, (uint32_t)src);
			break;
		case 7:
			*dst = insn->code >> 4 == 0xd ? end(insn, *dst) : alu64(insn, *dst, src);
			break;
		default:
			if (insn->code == 0x95)
				return 0;
			if (is_taken(insn, *dst, src))
				at += (size_t)(insn->code == 0x06 ? (int64_t)insn->imm : (int64_t)insn->off);
			break;
		}
	}
	return -1;
}
