/* SPDX-License-Identifier: MIT */
/* x86-64 instruction encodings (Intel SDM volume 2, AMD APM volume 3). See targets/x86_64/encode.h. */
#include "targets/x86_64/encode.h"

#include <errno.h>


/* An instruction that cannot be made keeps its length. */
void x86_64_fail_range(struct shunt_code *code, size_t len)
{
	shunt_code_fail(code, ERANGE);
	while (len--)
		shunt_code_emit8(code, X86_64_INT3);
}

void x86_64_endbr64(struct shunt_code *code)
{
	X86_64_EMIT(code, 0xf3, 0x0f, 0x1e, 0xfa);
}

void x86_64_lfence(struct shunt_code *code)
{
	X86_64_EMIT(code, 0x0f, 0xae, 0xe8);
}

void x86_64_pause(struct shunt_code *code)
{
	X86_64_EMIT(code, 0xf3, 0x90);
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

void x86_64_call_rel32(struct shunt_code *code, uint64_t dest)
{
	x86_64_emit_rel32(code, 0xe8, dest);
}

void x86_64_push_reg(struct shunt_code *code, enum x86_64_reg from)
{
	if (from > 7)
		shunt_code_emit8(code, 0x40 | X86_64_REX_B);
	shunt_code_emit8(code, (uint8_t)(0x50 | (from & 7)));
}

void x86_64_mov_reg_rsp(struct shunt_code *code, enum x86_64_reg to, uint32_t disp)
{
	/* A base of rsp needs a SIB byte. Always the long displacement, so that lengths do not depend on it. */
	X86_64_EMIT(code, (uint8_t)(X86_64_REX_W | (to > 7 ? X86_64_REX_R : 0)), 0x8b, x86_64_modrm(2, to, 4), 0x24);
	shunt_code_emit32(code, disp);
}

void x86_64_add_rsp_imm8(struct shunt_code *code, int64_t value)
{
	if (value != (int8_t)value) {
		x86_64_fail_range(code, 4);
		return;
	}
	x86_64_emit_rm_reg(code, 0x83, X86_64_RSP, 0);
	shunt_code_emit8(code, (uint8_t)value);
}

void x86_64_movz_reg_reg(struct shunt_code *code, enum x86_64_reg to, enum x86_64_reg from, unsigned len)
{
	/* A REX byte also makes the low byte of rsi and rdi what is meant. */
	uint8_t rex = (uint8_t)(0x40 | (to > 7 ? X86_64_REX_R : 0) | (from > 7 ? X86_64_REX_B : 0));

	switch (len) {
	case 1:
		X86_64_EMIT(code, rex, 0x0f, 0xb6, x86_64_modrm(3, to, from));
		break;
	case 2:
		X86_64_EMIT(code, rex, 0x0f, 0xb7, x86_64_modrm(3, to, from));
		break;
	case 4:
		X86_64_EMIT(code, rex, 0x8b, x86_64_modrm(3, to, from));
		break;
	case 8:
		X86_64_EMIT(code, (uint8_t)(rex | X86_64_REX_W), 0x8b, x86_64_modrm(3, to, from));
		break;
	default:
		shunt_code_fail(code, EINVAL);
		break;
	}
}

void x86_64_xor_eax_eax(struct shunt_code *code)
{
	X86_64_EMIT(code, 0x31, 0xc0);
}

void x86_64_bt_reg_reg(struct shunt_code *code, enum x86_64_reg bits, enum x86_64_reg bit)
{
	X86_64_EMIT(code, (uint8_t)(X86_64_REX_W | (bit > 7 ? X86_64_REX_R : 0) | (bits > 7 ? X86_64_REX_B : 0)), 0x0f, 0xa3, x86_64_modrm(3, bit, bits));
}

void x86_64_mov_reg_reg(struct shunt_code *code, enum x86_64_reg to, enum x86_64_reg from)
{
	x86_64_emit_rm_reg(code, 0x89, to, from);
}

void x86_64_mov_rsp_reg(struct shunt_code *code, enum x86_64_reg from)
{
	/* A base of rsp needs a SIB byte. */
	X86_64_EMIT(code, (uint8_t)(X86_64_REX_W | (from > 7 ? X86_64_REX_R : 0)), 0x89, x86_64_modrm(0, from, 4), 0x24);
}

void x86_64_movabs_reg_imm64(struct shunt_code *code, enum x86_64_reg to, uint64_t value)
{
	X86_64_EMIT(code, (uint8_t)(X86_64_REX_W | (to > 7 ? X86_64_REX_B : 0)), (uint8_t)(0xb8 | (to & 7)));
	shunt_code_emit64(code, value);
}

void x86_64_jmp_rip(struct shunt_code *code, uint64_t addr)
{
	int64_t disp = x86_64_disp_to(code, 6, addr);

	if (disp != (int32_t)disp) {
		x86_64_fail_range(code, 6);
		return;
	}
	X86_64_EMIT(code, 0xff, x86_64_modrm(0, 4, 5));
	shunt_code_emit32(code, (uint32_t)disp);
}

/* REX.W, opcode and an operand in memory relative to the next instruction. */
static void emit_reg_rip(struct shunt_code *code, uint8_t opcode, enum x86_64_reg reg, uint64_t addr)
{
	int64_t disp = x86_64_disp_to(code, 7, addr);

	if (disp != (int32_t)disp) {
		x86_64_fail_range(code, 7);
		return;
	}
	X86_64_EMIT(code, (uint8_t)(X86_64_REX_W | (reg > 7 ? X86_64_REX_R : 0)), opcode, x86_64_modrm(0, reg, 5));
	shunt_code_emit32(code, (uint32_t)disp);
}

void x86_64_lea_reg_rip(struct shunt_code *code, enum x86_64_reg to, uint64_t addr)
{
	emit_reg_rip(code, 0x8d, to, addr);
}

void x86_64_add_reg_rip(struct shunt_code *code, enum x86_64_reg to, uint64_t addr)
{
	emit_reg_rip(code, 0x03, to, addr);
}

void x86_64_mov_reg_rip(struct shunt_code *code, enum x86_64_reg to, uint64_t addr)
{
	emit_reg_rip(code, 0x8b, to, addr);
}

void x86_64_mov_reg32_fs(struct shunt_code *code, enum x86_64_reg to, int32_t offset)
{
	/* fs, REX, mov, ModRM and SIB without base and index: 32 bits of address. */
	X86_64_EMIT(code, 0x64, (uint8_t)(0x40 | (to > 7 ? X86_64_REX_R : 0)), 0x8b, x86_64_modrm(0, to, 4), 0x25);
	shunt_code_emit32(code, (uint32_t)offset);
}

void x86_64_and_reg32_imm32(struct shunt_code *code, enum x86_64_reg to, uint32_t mask)
{
	X86_64_EMIT(code, (uint8_t)(0x40 | (to > 7 ? X86_64_REX_B : 0)), 0x81, x86_64_modrm(3, 4, to));
	shunt_code_emit32(code, mask);
}

void x86_64_shl_reg_imm8(struct shunt_code *code, enum x86_64_reg to, uint8_t count)
{
	X86_64_EMIT(code, x86_64_rex_w(to, 0), 0xc1, x86_64_modrm(3, 4, to), count);
}

void x86_64_inc_mem_disp32(struct shunt_code *code, enum x86_64_reg base, int32_t disp)
{
	if ((base & 7) == X86_64_RSP) {
		shunt_code_fail(code, EINVAL);
		return;
	}
	X86_64_EMIT(code, x86_64_rex_w(base, 0), 0xff, x86_64_modrm(2, 0, base));
	shunt_code_emit32(code, (uint32_t)disp);
}

void x86_64_sub_reg_reg(struct shunt_code *code, enum x86_64_reg to, enum x86_64_reg value)
{
	x86_64_emit_rm_reg(code, 0x29, to, value);
}

void x86_64_cmp_reg_reg(struct shunt_code *code, enum x86_64_reg left, enum x86_64_reg right)
{
	x86_64_emit_rm_reg(code, 0x39, left, right);
}
