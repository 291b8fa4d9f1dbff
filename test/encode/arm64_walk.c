/* SPDX-License-Identifier: MIT */
/* See arm64_walk.h. Written from the instruction descriptions of the Arm manual, not from the encoders. */
#include "arm64_walk.h"

#include <string.h>

#define MAX_STEPS 100000u

static int64_t sign_extend(uint64_t value, unsigned bits)
{
	return (int64_t)(value << (64 - bits)) >> (64 - bits);
}

static uint64_t reg(const struct arm64_walk *walk, unsigned number)
{
	return number == 31 ? 0 : walk->x[number];
}

static uint64_t subtract(struct arm64_walk *walk, uint64_t left, uint64_t right)
{
	uint64_t result = left - right;

	walk->n = result >> 63;
	walk->z = !result;
	walk->c = left >= right;
	walk->v = ((left ^ right) & (left ^ result)) >> 63;
	return result;
}

static bool holds(const struct arm64_walk *walk, unsigned cond)
{
	bool result = true;

	switch (cond >> 1) {
	case 0: result = walk->z; break;
	case 1: result = walk->c; break;
	case 2: result = walk->n; break;
	case 3: result = walk->v; break;
	case 4: result = walk->c && !walk->z; break;
	case 5: result = walk->n == walk->v; break;
	case 6: result = walk->n == walk->v && !walk->z; break;
	}
	return cond & 1 && cond != 15 ? !result : result;
}

static void step(struct arm64_walk *walk, uint32_t word)
{
	unsigned rd = word & 31, rn = word >> 5 & 31, rm = word >> 16 & 31;
	uint64_t imm12 = (uint64_t)(word >> 10 & 0xfff) << (word >> 22 & 1 ? 12 : 0);
	uint64_t next = walk->pc + 4;

	walk->was_indirect = false;
	if (word >> 26 == 0x05) { /* b */
		next = walk->pc + (uint64_t)(sign_extend(word & 0x3ffffff, 26) * 4);
	} else if ((word & 0xff000010) == 0x54000000) { /* b.cond */
		if (holds(walk, word & 15))
			next = walk->pc + (uint64_t)(sign_extend(word >> 5 & 0x7ffff, 19) * 4);
	} else if ((word & 0xfffffc1f) == 0xd61f0000) { /* br */
		next = reg(walk, rn);
		walk->was_indirect = true;
		if (rn != 16 && rn != 17)
			walk->error = "br through a register that bti c refuses";
	} else if ((word & 0x9f000000) == 0x90000000) { /* adrp */
		walk->x[rd] = (walk->pc & ~UINT64_C(0xfff)) +
			      (uint64_t)(sign_extend((uint64_t)(word >> 5 & 0x7ffff) << 2 | (word >> 29 & 3), 21) * 4096);
	} else if ((word & 0xff800000) == 0x91000000) { /* add immediate */
		walk->x[rd] = walk->x[rn] + imm12;
	} else if ((word & 0xff800000) == 0xd1000000) { /* sub immediate */
		walk->x[rd] = walk->x[rn] - imm12;
	} else if ((word & 0xff80001f) == 0xf100001f) { /* cmp immediate */
		subtract(walk, walk->x[rn], imm12);
	} else if ((word & 0xffe0fc00) == 0xcb000000) { /* sub */
		walk->x[rd] = reg(walk, rn) - reg(walk, rm);
	} else if ((word & 0xffe0fc1f) == 0xeb00001f) { /* cmp */
		subtract(walk, reg(walk, rn), reg(walk, rm));
	} else if ((word & 0xffe00000) == 0x93c00000 && rn == rm) { /* ror */
		unsigned count = word >> 10 & 63;
		uint64_t value = reg(walk, rn);

		walk->x[rd] = count ? value >> count | value << (64 - count) : value;
	} else if ((word & 0xffe0ffe0) == 0xaa0003e0) { /* mov */
		walk->x[rd] = reg(walk, rm);
	} else if ((word & 0xff800000) == 0xd2800000) { /* movz */
		walk->x[rd] = (uint64_t)(word >> 5 & 0xffff) << (word >> 21 & 3) * 16;
	} else if ((word & 0xff800000) == 0xf2800000) { /* movk */
		unsigned shift = (word >> 21 & 3) * 16;

		walk->x[rd] = (walk->x[rd] & ~(UINT64_C(0xffff) << shift)) | (uint64_t)(word >> 5 & 0xffff) << shift;
	} else if ((word & 0xffffffe0) == 0xd53bd040) { /* mrs tpidr_el0 */
		walk->x[rd] = walk->tp;
	} else if ((word & 0xff800000) == 0x92800000) { /* movn */
		walk->x[rd] = ~((uint64_t)(word >> 5 & 0xffff) << (word >> 21 & 3) * 16);
	} else if ((word & 0xffe0fc00) == 0xb8606800) { /* ldr w, [x, x] */
		walk->x[rd] = *(const uint32_t *)(uintptr_t)(reg(walk, rn) + reg(walk, rm));
	} else if ((word & 0xffff0000) == 0x12000000) { /* and w, low bits */
		walk->x[rd] = reg(walk, rn) & ((UINT64_C(2) << (word >> 10 & 63)) - 1);
	} else if ((word & 0xffe00000) == 0x8b000000) { /* add, lsl */
		walk->x[rd] = reg(walk, rn) + (reg(walk, rm) << (word >> 10 & 63));
	} else if ((word & 0xff000000) == 0x58000000) { /* ldr, literal */
		uint64_t at = walk->pc + (uint64_t)(sign_extend(word >> 5 & 0x7ffff, 19) * 4) - walk->addr;

		if (at % 8 || at + 8 > walk->len)
			walk->error = "a literal that is not in the code, or not aligned";
		else
			memcpy(&walk->x[rd], walk->bytes + at, 8);
	} else if ((word & 0xffc00000) == 0xf9400000) { /* ldr */
		walk->x[rd] = *(const uint64_t *)(uintptr_t)(reg(walk, rn) + (word >> 10 & 0xfff) * 8);
	} else if ((word & 0xffc00000) == 0xf9000000) { /* str */
		*(uint64_t *)(uintptr_t)(reg(walk, rn) + (word >> 10 & 0xfff) * 8) = reg(walk, rd);
	} else if (word != 0xd503201f && word != 0xd503245f) { /* nop, bti c */
		walk->error = "an instruction that no stub or tree is made of";
	}
	walk->pc = next;
}

void arm64_walk(struct arm64_walk *walk, const uint8_t *bytes, size_t len, uint64_t addr)
{
	walk->bytes = bytes;
	walk->addr = addr;
	walk->len = len;
	while (!walk->error && walk->pc - addr < len) {
		const uint8_t *at = bytes + (walk->pc - addr);

		if ((walk->pc - addr) % 4 || ++walk->nr_steps > MAX_STEPS) {
			walk->error = "a misaligned program counter or an endless walk";
			return;
		}
		step(walk, (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
	}
}
