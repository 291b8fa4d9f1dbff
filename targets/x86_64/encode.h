/* SPDX-License-Identifier: MIT */
/*
 * x86-64 instructions, one function each: mnemonic, then operand kinds. All operate on 64 bits.
 *
 * An operand that does not fit is a sticky -ERANGE, and the instruction's length of int3 is emitted in its place: lengths stay
 * true and nothing that was meant otherwise can run. Destinations are absolute addresses.
 */
#ifndef TARGETS_X86_64_ENCODE_H
#define TARGETS_X86_64_ENCODE_H

#include "targets/code.h"

enum x86_64_reg {
	X86_64_RAX, X86_64_RCX, X86_64_RDX, X86_64_RBX, X86_64_RSP, X86_64_RBP, X86_64_RSI, X86_64_RDI,
	X86_64_R8, X86_64_R9, X86_64_R10, X86_64_R11, X86_64_R12, X86_64_R13, X86_64_R14, X86_64_R15,
};

enum x86_64_cond { /* the low four bits of a conditional jump's opcode */
	X86_64_B = 0x2, /* below, unsigned */
	X86_64_AE = 0x3, /* not below: also no carry */
	X86_64_E = 0x4,
	X86_64_BE = 0x6, /* below or equal, unsigned */
	X86_64_A = 0x7, /* above, unsigned */
	X86_64_L = 0xc, /* less, signed */
};

#define X86_64_INT3 0xccu

#include "targets/x86_64/encode_inline.h" /* int3, jmp, jcc, cmp with immediates */

void x86_64_endbr64(struct shunt_code *code);
void x86_64_lfence(struct shunt_code *code);
void x86_64_pause(struct shunt_code *code);
void x86_64_ret(struct shunt_code *code);
/* len bytes of nops, as few instructions as possible. */
void x86_64_nops(struct shunt_code *code, size_t len);

void x86_64_call_rel32(struct shunt_code *code, uint64_t dest);

void x86_64_push_reg(struct shunt_code *code, enum x86_64_reg from);
/* mov to, [rsp + disp] */
void x86_64_mov_reg_rsp(struct shunt_code *code, enum x86_64_reg to, uint32_t disp);
void x86_64_add_rsp_imm8(struct shunt_code *code, int64_t value);
/* All of `to` becomes the low len bytes (1, 2, 4 or 8) of from. */
void x86_64_movz_reg_reg(struct shunt_code *code, enum x86_64_reg to, enum x86_64_reg from, unsigned len);
void x86_64_xor_eax_eax(struct shunt_code *code);
/* Carry becomes bit `bit` of `bits`. */
void x86_64_bt_reg_reg(struct shunt_code *code, enum x86_64_reg bits, enum x86_64_reg bit);

void x86_64_mov_reg_reg(struct shunt_code *code, enum x86_64_reg to, enum x86_64_reg from);
/* mov [rsp], from */
void x86_64_mov_rsp_reg(struct shunt_code *code, enum x86_64_reg from);
void x86_64_movabs_reg_imm64(struct shunt_code *code, enum x86_64_reg to, uint64_t value);
/* lea to, [rip + (addr - next instruction)] */
void x86_64_lea_reg_rip(struct shunt_code *code, enum x86_64_reg to, uint64_t addr);
/* jmp [rip + (addr - next instruction)]: to where the 8 bytes at addr say */
void x86_64_jmp_rip(struct shunt_code *code, uint64_t addr);
void x86_64_sub_reg_reg(struct shunt_code *code, enum x86_64_reg to, enum x86_64_reg value);
void x86_64_cmp_reg_reg(struct shunt_code *code, enum x86_64_reg left, enum x86_64_reg right);

/* mov to, dword ptr fs:[offset]: of the thread pointer */
void x86_64_mov_reg32_fs(struct shunt_code *code, enum x86_64_reg to, int32_t offset);
void x86_64_and_reg32_imm32(struct shunt_code *code, enum x86_64_reg to, uint32_t mask);
void x86_64_shl_reg_imm8(struct shunt_code *code, enum x86_64_reg to, uint8_t count);
/* Of the eight bytes at addr. */
void x86_64_add_reg_rip(struct shunt_code *code, enum x86_64_reg to, uint64_t addr);
void x86_64_mov_reg_rip(struct shunt_code *code, enum x86_64_reg to, uint64_t addr);
/* inc qword ptr [base + disp]; base is not rsp or r12 */
void x86_64_inc_mem_disp32(struct shunt_code *code, enum x86_64_reg base, int32_t disp);

#endif
