/* SPDX-License-Identifier: MIT */
/*
 * arm64 instructions, one function each: mnemonic, then operand kinds. All operate on 64 bits.
 *
 * An operand that does not fit is a sticky -ERANGE, a destination that is no multiple of 4 away a sticky -EINVAL, and an undefined
 * instruction is emitted in its place: lengths stay true and nothing that was meant otherwise can run. Destinations are
 * absolute addresses.
 */
#ifndef TARGETS_ARM64_ENCODE_H
#define TARGETS_ARM64_ENCODE_H

#include "targets/code.h"

enum arm64_reg { /* only those that are general registers wherever they stand: 31 is sp here and zero there */
	ARM64_X0, ARM64_X1, ARM64_X2, ARM64_X3, ARM64_X4, ARM64_X5, ARM64_X6, ARM64_X7, ARM64_X8, ARM64_X9, ARM64_X10,
	ARM64_X11, ARM64_X12, ARM64_X13, ARM64_X14, ARM64_X15, ARM64_X16, ARM64_X17, ARM64_X18, ARM64_X19, ARM64_X20,
	ARM64_X21, ARM64_X22, ARM64_X23, ARM64_X24, ARM64_X25, ARM64_X26, ARM64_X27, ARM64_X28, ARM64_X29, ARM64_X30,
};

enum arm64_cond {
	ARM64_EQ = 0x0,
	ARM64_NE = 0x1,
	ARM64_HI = 0x8, /* higher, unsigned */
	ARM64_LS = 0x9, /* lower or same, unsigned */
	ARM64_LT = 0xb, /* less, signed */
};

/* The trap word: udf #0xcccc. Permanently undefined on every arm64, unlike brk, which debuggers take for theirs. */
#define ARM64_TRAP 0x0000ccccu

void arm64_bti_c(struct shunt_code *code);
void arm64_nop(struct shunt_code *code);
void arm64_udf_imm16(struct shunt_code *code, uint16_t value);

void arm64_b_imm26(struct shunt_code *code, uint64_t dest);
void arm64_bcond_imm19(struct shunt_code *code, enum arm64_cond cond, uint64_t dest);
void arm64_bl_imm26(struct shunt_code *code, uint64_t dest);
/* To dest when bit 0 of the register is clear. */
void arm64_tbz_bit0_imm14(struct shunt_code *code, enum arm64_reg bits, uint64_t dest);
void arm64_ret(struct shunt_code *code);
void arm64_br_reg(struct shunt_code *code, enum arm64_reg target);

/* The page (4 KiB) of addr. */
void arm64_adrp_reg_imm21(struct shunt_code *code, enum arm64_reg to, uint64_t addr);
/* Immediates of add, sub and cmp: 12 bits, or 12 bits shifted by 12; anything between is out of range. */
void arm64_add_reg_reg_imm12(struct shunt_code *code, enum arm64_reg to, enum arm64_reg left, uint64_t right);
void arm64_sub_reg_reg_imm12(struct shunt_code *code, enum arm64_reg to, enum arm64_reg left, uint64_t right);
void arm64_cmp_reg_imm12(struct shunt_code *code, enum arm64_reg left, uint64_t right);
void arm64_sub_reg_reg_reg(struct shunt_code *code, enum arm64_reg to, enum arm64_reg left, enum arm64_reg right);
void arm64_cmp_reg_reg(struct shunt_code *code, enum arm64_reg left, enum arm64_reg right);
void arm64_ror_reg_reg_imm6(struct shunt_code *code, enum arm64_reg to, enum arm64_reg from, unsigned count);
void arm64_mov_reg_reg(struct shunt_code *code, enum arm64_reg to, enum arm64_reg from);
/* The 16 bits of a register at shift (0, 16, 32 or 48); movz clears the others, movk keeps them. */
void arm64_movz_reg_imm16(struct shunt_code *code, enum arm64_reg to, uint64_t value, unsigned shift);
void arm64_movk_reg_imm16(struct shunt_code *code, enum arm64_reg to, uint64_t value, unsigned shift);
/* Push and pop the frame pair x29, x30 with len bytes of frame, a multiple of 16 up to 512. */
void arm64_stp_frame(struct shunt_code *code, unsigned len);
void arm64_ldp_frame(struct shunt_code *code, unsigned len);
/* Eight bytes at sp + offset, a multiple of 8. */
void arm64_str_reg_sp(struct shunt_code *code, enum arm64_reg from, unsigned offset);
void arm64_ldr_reg_sp(struct shunt_code *code, enum arm64_reg to, unsigned offset);
/* All of `to` becomes the low len bytes (1, 2, 4 or 8) of from. */
void arm64_movz_reg_reg(struct shunt_code *code, enum arm64_reg to, enum arm64_reg from, unsigned len);
void arm64_lsr_reg_reg_reg(struct shunt_code *code, enum arm64_reg to, enum arm64_reg left, enum arm64_reg count);

/* The thread pointer. */
void arm64_mrs_reg_tpidr(struct shunt_code *code, enum arm64_reg to);
/* All ones but for the bits of value. */
void arm64_movn_reg_imm16(struct shunt_code *code, enum arm64_reg to, uint64_t value);
/* The four bytes at left + right, zeros above. */
void arm64_ldr32_reg_reg_reg(struct shunt_code *code, enum arm64_reg to, enum arm64_reg left, enum arm64_reg right);
/* The low nr bits, 1 to 31. */
void arm64_and32_low_bits(struct shunt_code *code, enum arm64_reg to, enum arm64_reg from, unsigned nr);
void arm64_add_reg_reg_reg_lsl(struct shunt_code *code, enum arm64_reg to, enum arm64_reg left, enum arm64_reg right, unsigned shift);
/* Eight bytes at base + offset, a multiple of 8 below 32768. */
void arm64_ldr_reg_reg_imm12(struct shunt_code *code, enum arm64_reg to, enum arm64_reg base, uint64_t offset);
void arm64_str_reg_reg_imm12(struct shunt_code *code, enum arm64_reg from, enum arm64_reg base, uint64_t offset);

/* The eight bytes at addr. */
void arm64_ldr_reg_imm12(struct shunt_code *code, enum arm64_reg to, enum arm64_reg base, unsigned offset);
void arm64_ldr_reg_imm19(struct shunt_code *code, enum arm64_reg to, uint64_t addr);

/* True when add, sub and cmp can hold value. */
int arm64_is_imm12(uint64_t value);

#endif
