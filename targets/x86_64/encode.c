/* SPDX-License-Identifier: MIT */
/* x86-64 instruction encodings (Intel SDM volume 2, AMD APM volume 3). See targets/x86_64/encode.h. */
#include "targets/x86_64/encode.h"

#include <errno.h>

#define REX_W 0x48u
#define REX_R 0x04u /* extends the reg field */
#define REX_B 0x01u /* extends the rm field */

#define EMIT(code, ...) shunt_code_emit(code, (const uint8_t[]){ __VA_ARGS__ }, sizeof((const uint8_t[]){ __VA_ARGS__ }))

static void fail_range(struct shunt_code *code, size_t len)
{
	shunt_code_fail(code, ERANGE);
	while (len--)
		shunt_code_emit8(code, X86_64_INT3);
}

static uint8_t modrm(unsigned mod, unsigned reg, unsigned rm)
{
	return (uint8_t)(mod << 6 | (reg & 7) << 3 | (rm & 7));
}

/* REX.W, opcode, ModRM with two registers. */
static void emit_rm_reg(struct shunt_code *code, uint8_t opcode, unsigned rm, unsigned reg)
{
	EMIT(code, (uint8_t)(REX_W | (reg > 7 ? REX_R : 0) | (rm > 7 ? REX_B : 0)), opcode, modrm(3, reg, rm));
}

/* From the end of an instruction of len bytes that starts here. */
static int64_t disp_to(const struct shunt_code *code, size_t len, uint64_t dest)
{
	return (int64_t)(dest - (shunt_code_here(code) + len));
}

void x86_64_endbr64(struct shunt_code *code)
{
	EMIT(code, 0xf3, 0x0f, 0x1e, 0xfa);
}

void x86_64_int3(struct shunt_code *code)
{
	shunt_code_emit8(code, X86_64_INT3);
}

void x86_64_lfence(struct shunt_code *code)
{
	EMIT(code, 0x0f, 0xae, 0xe8);
}

void x86_64_pause(struct shunt_code *code)
{
	EMIT(code, 0xf3, 0x90);
}

void x86_64_ret(struct shunt_code *code)
{
	shunt_code_emit8(code, 0xc3);
}

void x86_64_nops(struct shunt_code *code, size_t len)
{
	/* The forms that both vendors recommend, by length. */
	static const uint8_t nops[8][8] = {
		{ 0x90 },
		{ 0x66, 0x90 },
		{ 0x0f, 0x1f, 0x00 },
		{ 0x0f, 0x1f, 0x40, 0x00 },
		{ 0x0f, 0x1f, 0x44, 0x00, 0x00 },
		{ 0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00 },
		{ 0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00 },
		{ 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00 },
	};

	while (len) {
		size_t step = len < 8 ? len : 8;

		shunt_code_emit(code, nops[step - 1], step);
		len -= step;
	}
}

static void emit_rel8(struct shunt_code *code, uint8_t opcode, uint64_t dest)
{
	int64_t disp = disp_to(code, 2, dest);

	if (disp != (int8_t)disp) {
		fail_range(code, 2);
		return;
	}
	EMIT(code, opcode, (uint8_t)disp);
}

/* An optional 0x0f, an opcode and a rel32. */
static void emit_rel32(struct shunt_code *code, int has_0f, uint8_t opcode, uint64_t dest)
{
	size_t len = has_0f ? 6 : 5;
	int64_t disp = disp_to(code, len, dest);

	if (disp != (int32_t)disp) {
		fail_range(code, len);
		return;
	}
	if (has_0f)
		shunt_code_emit8(code, 0x0f);
	shunt_code_emit8(code, opcode);
	shunt_code_emit32(code, (uint32_t)disp);
}

void x86_64_jmp_rel8(struct shunt_code *code, uint64_t dest)
{
	emit_rel8(code, 0xeb, dest);
}

void x86_64_jmp_rel32(struct shunt_code *code, uint64_t dest)
{
	emit_rel32(code, 0, 0xe9, dest);
}

void x86_64_jcc_rel8(struct shunt_code *code, enum x86_64_cond cond, uint64_t dest)
{
	emit_rel8(code, (uint8_t)(0x70 | cond), dest);
}

void x86_64_jcc_rel32(struct shunt_code *code, enum x86_64_cond cond, uint64_t dest)
{
	emit_rel32(code, 1, (uint8_t)(0x80 | cond), dest);
}

void x86_64_call_rel32(struct shunt_code *code, uint64_t dest)
{
	emit_rel32(code, 0, 0xe8, dest);
}

void x86_64_jmp_reg(struct shunt_code *code, enum x86_64_reg target)
{
	if (target > 7)
		shunt_code_emit8(code, 0x40 | REX_B);
	EMIT(code, 0xff, modrm(3, 4, target));
}

void x86_64_push_reg(struct shunt_code *code, enum x86_64_reg from)
{
	if (from > 7)
		shunt_code_emit8(code, 0x40 | REX_B);
	shunt_code_emit8(code, (uint8_t)(0x50 | (from & 7)));
}

void x86_64_mov_reg_rsp(struct shunt_code *code, enum x86_64_reg to, uint32_t disp)
{
	/* A base of rsp needs a SIB byte. Always the long displacement, so that lengths do not depend on it. */
	EMIT(code, (uint8_t)(REX_W | (to > 7 ? REX_R : 0)), 0x8b, modrm(2, to, 4), 0x24);
	shunt_code_emit32(code, disp);
}

void x86_64_add_rsp_imm8(struct shunt_code *code, int64_t value)
{
	if (value != (int8_t)value) {
		fail_range(code, 4);
		return;
	}
	emit_rm_reg(code, 0x83, X86_64_RSP, 0);
	shunt_code_emit8(code, (uint8_t)value);
}

void x86_64_movz_reg_reg(struct shunt_code *code, enum x86_64_reg to, enum x86_64_reg from, unsigned len)
{
	/* A REX byte also makes the low byte of rsi and rdi what is meant. */
	uint8_t rex = (uint8_t)(0x40 | (to > 7 ? REX_R : 0) | (from > 7 ? REX_B : 0));

	switch (len) {
	case 1:
		EMIT(code, rex, 0x0f, 0xb6, modrm(3, to, from));
		break;
	case 2:
		EMIT(code, rex, 0x0f, 0xb7, modrm(3, to, from));
		break;
	case 4:
		EMIT(code, rex, 0x8b, modrm(3, to, from));
		break;
	case 8:
		EMIT(code, (uint8_t)(rex | REX_W), 0x8b, modrm(3, to, from));
		break;
	default:
		shunt_code_fail(code, EINVAL);
		break;
	}
}

void x86_64_xor_eax_eax(struct shunt_code *code)
{
	EMIT(code, 0x31, 0xc0);
}

void x86_64_bt_reg_reg(struct shunt_code *code, enum x86_64_reg bits, enum x86_64_reg bit)
{
	EMIT(code, (uint8_t)(REX_W | (bit > 7 ? REX_R : 0) | (bits > 7 ? REX_B : 0)), 0x0f, 0xa3, modrm(3, bit, bits));
}

void x86_64_mov_reg_reg(struct shunt_code *code, enum x86_64_reg to, enum x86_64_reg from)
{
	emit_rm_reg(code, 0x89, to, from);
}

void x86_64_mov_rsp_reg(struct shunt_code *code, enum x86_64_reg from)
{
	/* A base of rsp needs a SIB byte. */
	EMIT(code, (uint8_t)(REX_W | (from > 7 ? REX_R : 0)), 0x89, modrm(0, from, 4), 0x24);
}

void x86_64_movabs_reg_imm64(struct shunt_code *code, enum x86_64_reg to, uint64_t value)
{
	EMIT(code, (uint8_t)(REX_W | (to > 7 ? REX_B : 0)), (uint8_t)(0xb8 | (to & 7)));
	shunt_code_emit64(code, value);
}

void x86_64_lea_reg_rip(struct shunt_code *code, enum x86_64_reg to, uint64_t addr)
{
	int64_t disp = disp_to(code, 7, addr);

	if (disp != (int32_t)disp) {
		fail_range(code, 7);
		return;
	}
	EMIT(code, (uint8_t)(REX_W | (to > 7 ? REX_R : 0)), 0x8d, modrm(0, to, 5));
	shunt_code_emit32(code, (uint32_t)disp);
}

void x86_64_sub_reg_reg(struct shunt_code *code, enum x86_64_reg to, enum x86_64_reg value)
{
	emit_rm_reg(code, 0x29, to, value);
}

void x86_64_cmp_reg_reg(struct shunt_code *code, enum x86_64_reg left, enum x86_64_reg right)
{
	emit_rm_reg(code, 0x39, left, right);
}

void x86_64_cmp_reg_imm8(struct shunt_code *code, enum x86_64_reg left, int64_t right)
{
	if (right != (int8_t)right) {
		fail_range(code, 4);
		return;
	}
	emit_rm_reg(code, 0x83, left, 7);
	shunt_code_emit8(code, (uint8_t)right);
}

void x86_64_cmp_reg_imm32(struct shunt_code *code, enum x86_64_reg left, int64_t right)
{
	if (right != (int32_t)right) {
		fail_range(code, 7);
		return;
	}
	emit_rm_reg(code, 0x81, left, 7);
	shunt_code_emit32(code, (uint32_t)right);
}
