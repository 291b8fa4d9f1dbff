/* SPDX-License-Identifier: MIT */
/* arm64 instruction encodings (Arm Architecture Reference Manual, chapter C6). See targets/arm64/encode.h. */
#include "targets/arm64/encode.h"

#include <errno.h>

#define IMM12_MAX 0xfffu
#define PAGE_SHIFT 12

static void fail(struct shunt_code *code, int error)
{
	shunt_code_fail(code, error);
	shunt_code_emit32(code, ARM64_TRAP);
}

/*
 * An instruction whose field of `bits` bits at bit `at` holds a displacement in words: [-2^(bits-1), 2^(bits-1)) of them.
 */
static void emit_disp(struct shunt_code *code, uint32_t opcode, unsigned bits, unsigned at, uint64_t dest)
{
	int64_t disp = (int64_t)(dest - shunt_code_here(code));
	int64_t reach = INT64_C(4) << (bits - 1);

	if (disp % 4) {
		fail(code, EINVAL);
		return;
	}
	if (disp < -reach || disp >= reach) {
		fail(code, ERANGE);
		return;
	}
	shunt_code_emit32(code, opcode | ((uint32_t)(disp / 4) & ((1u << bits) - 1)) << at);
}

void arm64_bti_c(struct shunt_code *code)
{
	shunt_code_emit32(code, 0xd503245f);
}

void arm64_nop(struct shunt_code *code)
{
	shunt_code_emit32(code, 0xd503201f);
}

void arm64_udf_imm16(struct shunt_code *code, uint16_t value)
{
	shunt_code_emit32(code, value);
}

void arm64_b_imm26(struct shunt_code *code, uint64_t dest)
{
	emit_disp(code, 0x14000000, 26, 0, dest);
}

void arm64_bcond_imm19(struct shunt_code *code, enum arm64_cond cond, uint64_t dest)
{
	emit_disp(code, 0x54000000 | cond, 19, 5, dest);
}

void arm64_bl_imm26(struct shunt_code *code, uint64_t dest)
{
	emit_disp(code, 0x94000000, 26, 0, dest);
}

void arm64_tbz_bit0_imm14(struct shunt_code *code, enum arm64_reg bits, uint64_t dest)
{
	emit_disp(code, 0x36000000 | bits, 14, 5, dest);
}

void arm64_ret(struct shunt_code *code)
{
	shunt_code_emit32(code, 0xd65f03c0);
}

void arm64_br_reg(struct shunt_code *code, enum arm64_reg target)
{
	shunt_code_emit32(code, 0xd61f0000 | (uint32_t)target << 5);
}

void arm64_adrp_reg_imm21(struct shunt_code *code, enum arm64_reg to, uint64_t addr)
{
	/* Subtracted before they are divided, so that the difference of two pages wraps as addresses do. */
	int64_t pages = (int64_t)((addr >> PAGE_SHIFT << PAGE_SHIFT) - (shunt_code_here(code) >> PAGE_SHIFT << PAGE_SHIFT)) /
			(INT64_C(1) << PAGE_SHIFT);
	uint32_t field = (uint32_t)pages & 0x1fffff;

	if (pages < -(INT64_C(1) << 20) || pages >= INT64_C(1) << 20) {
		fail(code, ERANGE);
		return;
	}
	shunt_code_emit32(code, 0x90000000 | (field & 3) << 29 | field >> 2 << 5 | to);
}

int arm64_is_imm12(uint64_t value)
{
	return value <= IMM12_MAX || (!(value & IMM12_MAX) && value >> 12 <= IMM12_MAX);
}

static void emit_imm12(struct shunt_code *code, uint32_t opcode, uint32_t to, enum arm64_reg left, uint64_t right)
{
	uint32_t shifted = right > IMM12_MAX;

	if (!arm64_is_imm12(right)) {
		fail(code, ERANGE);
		return;
	}
	shunt_code_emit32(code, opcode | shifted << 22 | (uint32_t)(shifted ? right >> 12 : right) << 10 | (uint32_t)left << 5 | to);
}

void arm64_add_reg_reg_imm12(struct shunt_code *code, enum arm64_reg to, enum arm64_reg left, uint64_t right)
{
	emit_imm12(code, 0x91000000, to, left, right);
}

void arm64_sub_reg_reg_imm12(struct shunt_code *code, enum arm64_reg to, enum arm64_reg left, uint64_t right)
{
	emit_imm12(code, 0xd1000000, to, left, right);
}

void arm64_cmp_reg_imm12(struct shunt_code *code, enum arm64_reg left, uint64_t right)
{
	emit_imm12(code, 0xf1000000, 31, left, right);
}

void arm64_sub_reg_reg_reg(struct shunt_code *code, enum arm64_reg to, enum arm64_reg left, enum arm64_reg right)
{
	shunt_code_emit32(code, 0xcb000000 | (uint32_t)right << 16 | (uint32_t)left << 5 | to);
}

void arm64_cmp_reg_reg(struct shunt_code *code, enum arm64_reg left, enum arm64_reg right)
{
	shunt_code_emit32(code, 0xeb00001f | (uint32_t)right << 16 | (uint32_t)left << 5);
}

void arm64_ror_reg_reg_imm6(struct shunt_code *code, enum arm64_reg to, enum arm64_reg from, unsigned count)
{
	if (count > 63) {
		fail(code, ERANGE);
		return;
	}
	shunt_code_emit32(code, 0x93c00000 | (uint32_t)from << 16 | count << 10 | (uint32_t)from << 5 | to);
}

void arm64_mov_reg_reg(struct shunt_code *code, enum arm64_reg to, enum arm64_reg from)
{
	shunt_code_emit32(code, 0xaa0003e0 | (uint32_t)from << 16 | to);
}

static void emit_imm16(struct shunt_code *code, uint32_t opcode, enum arm64_reg to, uint64_t value, unsigned shift)
{
	if (shift > 48 || shift % 16) {
		fail(code, EINVAL);
		return;
	}
	if (value > UINT16_MAX) {
		fail(code, ERANGE);
		return;
	}
	shunt_code_emit32(code, opcode | shift / 16 << 21 | (uint32_t)value << 5 | to);
}

void arm64_movz_reg_imm16(struct shunt_code *code, enum arm64_reg to, uint64_t value, unsigned shift)
{
	emit_imm16(code, 0xd2800000, to, value, shift);
}

void arm64_movk_reg_imm16(struct shunt_code *code, enum arm64_reg to, uint64_t value, unsigned shift)
{
	emit_imm16(code, 0xf2800000, to, value, shift);
}

void arm64_ldr_reg_imm12(struct shunt_code *code, enum arm64_reg to, enum arm64_reg base, unsigned offset)
{
	if (offset % 8 || offset / 8 > 0xfff) {
		fail(code, offset % 8 ? EINVAL : ERANGE);
		return;
	}
	shunt_code_emit32(code, 0xf9400000 | offset / 8 << 10 | base << 5 | to);
}

void arm64_ldr_reg_imm19(struct shunt_code *code, enum arm64_reg to, uint64_t addr)
{
	emit_disp(code, 0x58000000 | to, 19, 5, addr);
}

static void emit_frame(struct shunt_code *code, uint32_t opcode, unsigned len, int sign)
{
	if (len > 512 - 8 * (sign > 0) || len % 16) {
		fail(code, EINVAL);
		return;
	}
	shunt_code_emit32(code, opcode | ((uint32_t)(sign * (int)(len / 8)) & 0x7f) << 15);
}

void arm64_stp_frame(struct shunt_code *code, unsigned len)
{
	emit_frame(code, 0xa9807bfd, len, -1);
}

void arm64_ldp_frame(struct shunt_code *code, unsigned len)
{
	emit_frame(code, 0xa8c07bfd, len, 1);
}

static void emit_sp(struct shunt_code *code, uint32_t opcode, enum arm64_reg reg, unsigned offset)
{
	if (offset % 8 || offset / 8 > IMM12_MAX) {
		fail(code, EINVAL);
		return;
	}
	shunt_code_emit32(code, opcode | offset / 8 << 10 | 31 << 5 | reg);
}

void arm64_str_reg_sp(struct shunt_code *code, enum arm64_reg from, unsigned offset)
{
	emit_sp(code, 0xf9000000, from, offset);
}

void arm64_ldr_reg_sp(struct shunt_code *code, enum arm64_reg to, unsigned offset)
{
	emit_sp(code, 0xf9400000, to, offset);
}

void arm64_movz_reg_reg(struct shunt_code *code, enum arm64_reg to, enum arm64_reg from, unsigned len)
{
	switch (len) {
	case 1:
		shunt_code_emit32(code, 0x53001c00 | (uint32_t)from << 5 | to); /* uxtb */
		break;
	case 2:
		shunt_code_emit32(code, 0x53003c00 | (uint32_t)from << 5 | to); /* uxth */
		break;
	case 4:
		shunt_code_emit32(code, 0x2a0003e0 | (uint32_t)from << 16 | to); /* mov w, w */
		break;
	case 8:
		arm64_mov_reg_reg(code, to, from);
		break;
	default:
		fail(code, EINVAL);
		break;
	}
}

void arm64_lsr_reg_reg_reg(struct shunt_code *code, enum arm64_reg to, enum arm64_reg left, enum arm64_reg count)
{
	shunt_code_emit32(code, 0x9ac02400 | (uint32_t)count << 16 | (uint32_t)left << 5 | to);
}

void arm64_mrs_reg_tpidr(struct shunt_code *code, enum arm64_reg to)
{
	shunt_code_emit32(code, 0xd53bd040 | to);
}

void arm64_movn_reg_imm16(struct shunt_code *code, enum arm64_reg to, uint64_t value)
{
	if (value > 0xffff)
		fail(code, ERANGE);
	else
		shunt_code_emit32(code, 0x92800000 | (uint32_t)value << 5 | to);
}

void arm64_ldr32_reg_reg_reg(struct shunt_code *code, enum arm64_reg to, enum arm64_reg left, enum arm64_reg right)
{
	shunt_code_emit32(code, 0xb8606800 | (uint32_t)right << 16 | (uint32_t)left << 5 | to);
}

void arm64_and32_low_bits(struct shunt_code *code, enum arm64_reg to, enum arm64_reg from, unsigned nr)
{
	if (nr < 1 || nr > 31)
		fail(code, EINVAL);
	else
		shunt_code_emit32(code, 0x12000000 | (nr - 1) << 10 | (uint32_t)from << 5 | to);
}

void arm64_add_reg_reg_reg_lsl(struct shunt_code *code, enum arm64_reg to, enum arm64_reg left, enum arm64_reg right, unsigned shift)
{
	if (shift > 63)
		fail(code, EINVAL);
	else
		shunt_code_emit32(code, 0x8b000000 | (uint32_t)right << 16 | shift << 10 | (uint32_t)left << 5 | to);
}

static void emit_imm12_times_8(struct shunt_code *code, uint32_t opcode, enum arm64_reg reg, enum arm64_reg base, uint64_t offset)
{
	if (offset % 8 || offset > 8 * IMM12_MAX)
		fail(code, ERANGE);
	else
		shunt_code_emit32(code, opcode | (uint32_t)(offset / 8) << 10 | (uint32_t)base << 5 | reg);
}

void arm64_ldr_reg_reg_imm12(struct shunt_code *code, enum arm64_reg to, enum arm64_reg base, uint64_t offset)
{
	emit_imm12_times_8(code, 0xf9400000, to, base, offset);
}

void arm64_str_reg_reg_imm12(struct shunt_code *code, enum arm64_reg from, enum arm64_reg base, uint64_t offset)
{
	emit_imm12_times_8(code, 0xf9000000, from, base, offset);
}
