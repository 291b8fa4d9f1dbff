/* SPDX-License-Identifier: MIT */
/*
 * The instructions that dispatch trees are made of, inline: a tree is thousands of them, made anew at every attach. Included by
 * targets/x86_64/encode.h, which says what all of them have in common.
 */
#ifndef TARGETS_X86_64_ENCODE_INLINE_H
#define TARGETS_X86_64_ENCODE_INLINE_H

#include <stdbool.h>

#define X86_64_REX_W 0x48u
#define X86_64_REX_R 0x04u /* extends the reg field */
#define X86_64_REX_B 0x01u /* extends the rm field */

#define X86_64_EMIT(code, ...) shunt_code_emit(code, (const uint8_t[]){ __VA_ARGS__ }, sizeof((const uint8_t[]){ __VA_ARGS__ }))
/* Records -ERANGE and emits int3 in place of an instruction of that length. */
void x86_64_fail_range(struct shunt_code *code, size_t len);

static inline uint8_t x86_64_modrm(unsigned mod, unsigned reg, unsigned rm)
{
	return (uint8_t)(mod << 6 | (reg & 7) << 3 | (rm & 7));
}

static inline uint8_t x86_64_rex_w(unsigned rm, unsigned reg)
{
	return (uint8_t)(X86_64_REX_W | (reg > 7 ? X86_64_REX_R : 0) | (rm > 7 ? X86_64_REX_B : 0));
}

/* REX.W, opcode, ModRM with two registers. */
static inline void x86_64_emit_rm_reg(struct shunt_code *code, uint8_t opcode, unsigned rm, unsigned reg)
{
	X86_64_EMIT(code, x86_64_rex_w(rm, reg), opcode, x86_64_modrm(3, reg, rm));
}

/* From the end of an instruction of len bytes that starts here. */
static inline int64_t x86_64_disp_to(const struct shunt_code *code, size_t len, uint64_t dest)
{
	return (int64_t)(dest - (shunt_code_here(code) + len));
}

static inline void x86_64_emit_rel8(struct shunt_code *code, uint8_t opcode, uint64_t dest)
{
	int64_t disp = x86_64_disp_to(code, 2, dest);

	if (disp == (int8_t)disp)
		X86_64_EMIT(code, opcode, (uint8_t)disp);
	else
		x86_64_fail_range(code, 2);
}

static inline void x86_64_emit_rel32(struct shunt_code *code, uint8_t opcode, uint64_t dest)
{
	int64_t disp = x86_64_disp_to(code, 5, dest);

	if (disp == (int32_t)disp)
		shunt_code_emit_low(code, opcode | (uint64_t)(uint32_t)disp << 8, 5);
	else
		x86_64_fail_range(code, 5);
}

static inline void x86_64_int3(struct shunt_code *code)
{
	shunt_code_emit8(code, X86_64_INT3);
}

static inline void x86_64_jmp_rel8(struct shunt_code *code, uint64_t dest)
{
	x86_64_emit_rel8(code, 0xeb, dest);
}

static inline void x86_64_jmp_rel32(struct shunt_code *code, uint64_t dest)
{
	x86_64_emit_rel32(code, 0xe9, dest);
}

static inline void x86_64_jcc_rel8(struct shunt_code *code, enum x86_64_cond cond, uint64_t dest)
{
	x86_64_emit_rel8(code, (uint8_t)(0x70 | cond), dest);
}

static inline void x86_64_jcc_rel32(struct shunt_code *code, enum x86_64_cond cond, uint64_t dest)
{
	int64_t disp = x86_64_disp_to(code, 6, dest);

	if (disp == (int32_t)disp)
		shunt_code_emit_low(code, 0x0fu | (0x80u | cond) << 8 | (uint64_t)(uint32_t)disp << 16, 6);
	else
		x86_64_fail_range(code, 6);
}

/* jmp_reg for an extended register and int3 behind it, at bytes; returns the length. */
static inline size_t x86_64_write_jmp_reg_int3(uint8_t *bytes, enum x86_64_reg target)
{
	uint32_t word = htole32((0x40u | X86_64_REX_B) | 0xff00u | (uint32_t)x86_64_modrm(3, 4, target) << 16 | (uint32_t)X86_64_INT3 << 24);

	memcpy(bytes, &word, 4);
	return 4;
}

static inline void x86_64_jmp_reg(struct shunt_code *code, enum x86_64_reg target)
{
	if (target > 7)
		shunt_code_emit_low(code, 0x40 | X86_64_REX_B | 0xff00u | (uint32_t)x86_64_modrm(3, 4, target) << 16, 3);
	else
		shunt_code_emit_low(code, 0xffu | (uint32_t)x86_64_modrm(3, 4, target) << 8, 2);
}

static inline void x86_64_cmp_reg_imm8(struct shunt_code *code, enum x86_64_reg left, int64_t right)
{
	if (right == (int8_t)right)
		shunt_code_emit_low(code, x86_64_rex_w(left, 7) | 0x8300u | (uint32_t)x86_64_modrm(3, 7, left) << 16 | (uint32_t)right << 24, 4);
	else
		x86_64_fail_range(code, 4);
}

static inline void x86_64_cmp_reg_imm32(struct shunt_code *code, enum x86_64_reg left, int64_t right)
{
	if (right == (int32_t)right)
		shunt_code_emit_low(code, x86_64_rex_w(left, 7) | 0x8100u | (uint32_t)x86_64_modrm(3, 7, left) << 16 |
					  (uint64_t)(uint32_t)right << 24, 7);
	else
		x86_64_fail_range(code, 7);
}

/* In its shortest form. */
static inline void x86_64_cmp_reg_imm(struct shunt_code *code, enum x86_64_reg left, int64_t right)
{
	if (right == (int8_t)right)
		x86_64_cmp_reg_imm8(code, left, right);
	else
		x86_64_cmp_reg_imm32(code, left, right);
}

/*
 * A compare with an immediate and the jump behind it, as by the two above (is_long: jcc_rel32, else jcc_rel8), at bytes, which are to run at
 * addr and of which there are 16; what is not used of them is written over. Returns the length, or 0 where an operand does not fit.
 * Most of a tree is this, and that it asks nothing of a code buffer halves the time that a tree takes.
 */
static inline size_t x86_64_write_cmp_jcc(uint8_t *bytes, uint64_t addr, enum x86_64_reg left, int64_t right, enum x86_64_cond cond, uint64_t dest,
					  bool is_long)
{
	bool is_imm8 = right == (int8_t)right;
	size_t cmp_len = is_imm8 ? 4 : 7, len = cmp_len + (is_long ? 6 : 2);
	int64_t disp = (int64_t)(dest - (addr + len));
	uint64_t cmp = x86_64_rex_w(left, 7) | (is_imm8 ? 0x8300u : 0x8100u) | (uint32_t)x86_64_modrm(3, 7, left) << 16 |
		       (uint64_t)(uint32_t)right << 24;
	uint64_t jcc = is_long ? 0x0fu | (0x80u | cond) << 8 | (uint64_t)(uint32_t)disp << 16 : 0x70u | cond | (uint64_t)(uint8_t)disp << 8;

	if (right != (int32_t)right || disp != (is_long ? (int32_t)disp : (int8_t)disp))
		return 0;
	cmp = htole64(cmp);
	jcc = htole64(jcc);
	memcpy(bytes, &cmp, 8);
	memcpy(bytes + cmp_len, &jcc, 8);
	return len;
}

#endif
