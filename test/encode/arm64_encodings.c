/* SPDX-License-Identifier: MIT */
/* arm64: one encoding a line; bytes in memory order. Branch operands are displacements, as LLVM prints them. */
#include "encodings.h"
#include "targets/arm64/encode.h"

#define A ENCODING_ADDR

void arm64_for_each_encoding(encoding_check *check)
{
	ENCODING("bti c", "5f2403d5", arm64_bti_c(c));
	ENCODING("nop", "1f2003d5", arm64_nop(c));
	ENCODING("udf #52428", "cccc0000", arm64_udf_imm16(c, 0xcccc));
	ENCODING("b #0", "00000014", arm64_b_imm26(c, A));
	ENCODING("b #16", "04000014", arm64_b_imm26(c, A + 16));
	ENCODING("b #-4", "ffffff17", arm64_b_imm26(c, A - 4));
	ENCODING("b #134217724", "ffffff15", arm64_b_imm26(c, A + 0x7fffffc));
	ENCODING("b.eq #8", "40000054", arm64_bcond_imm19(c, ARM64_EQ, A + 8));
	ENCODING("b.ne #8", "41000054", arm64_bcond_imm19(c, ARM64_NE, A + 8));
	ENCODING("b.hi #4096", "08800054", arm64_bcond_imm19(c, ARM64_HI, A + 4096));
	ENCODING("b.lt #-8", "cbffff54", arm64_bcond_imm19(c, ARM64_LT, A - 8));
	ENCODING("b.ne #-1048576", "01008054", arm64_bcond_imm19(c, ARM64_NE, A - 0x100000));
	ENCODING("b #-134217728", "00000016", arm64_b_imm26(c, A - 0x8000000));
	ENCODING("bl #134217724", "ffffff95", arm64_bl_imm26(c, A + 0x7fffffc));
	ENCODING("tbz w16, #0, #-32768", "10000436", arm64_tbz_bit0_imm14(c, ARM64_X16, A - 32768));
	ENCODING("ldr x16, #1048572", "f0ff7f58", arm64_ldr_reg_imm19(c, ARM64_X16, A + 0xffffc));
	ENCODING("ldr x16, #-1048576", "10008058", arm64_ldr_reg_imm19(c, ARM64_X16, A - 0x100000));
	ENCODING("b.ls #8", "49000054", arm64_bcond_imm19(c, ARM64_LS, A + 8));
	ENCODING("mrs x16, TPIDR_EL0", "50d03bd5", arm64_mrs_reg_tpidr(c, ARM64_X16));
	ENCODING("mov x17, #-33", "11048092", arm64_movn_reg_imm16(c, ARM64_X17, 32));
	ENCODING("ldr w16, [x16, x17]", "106a71b8", arm64_ldr32_reg_reg_reg(c, ARM64_X16, ARM64_X16, ARM64_X17));
	ENCODING("and w16, w16, #0xff", "101e0012", arm64_and32_low_bits(c, ARM64_X16, ARM64_X16, 8));
	ENCODING("and w16, w17, #0x1", "30020012", arm64_and32_low_bits(c, ARM64_X16, ARM64_X17, 1));
	ENCODING("add x16, x17, x16, lsl #12", "3032108b", arm64_add_reg_reg_reg_lsl(c, ARM64_X16, ARM64_X17, ARM64_X16, 12));
	ENCODING("ldr x17, [x16, #32760]", "11fe7ff9", arm64_ldr_reg_reg_imm12(c, ARM64_X17, ARM64_X16, 32760));
	ENCODING("str x17, [x16, #8]", "110600f9", arm64_str_reg_reg_imm12(c, ARM64_X17, ARM64_X16, 8));
	ENCODING("bl #4096", "00040094", arm64_bl_imm26(c, A + 4096));
	ENCODING("tbz w17, #0, #32764", "f1ff0336", arm64_tbz_bit0_imm14(c, ARM64_X17, A + 32764));
	ENCODING("ret", "c0035fd6", arm64_ret(c));
	ENCODING("stp x29, x30, [sp, #-32]!", "fd7bbea9", arm64_stp_frame(c, 32));
	ENCODING("stp x29, x30, [sp, #-512]!", "fd7ba0a9", arm64_stp_frame(c, 512));
	ENCODING("ldp x29, x30, [sp], #496", "fd7bdfa8", arm64_ldp_frame(c, 496));
	ENCODING("ldp x29, x30, [sp], #80", "fd7bc5a8", arm64_ldp_frame(c, 80));
	ENCODING("str x7, [sp, #32760]", "e7ff3ff9", arm64_str_reg_sp(c, ARM64_X7, 32760));
	ENCODING("str x7, [sp, #72]", "e72700f9", arm64_str_reg_sp(c, ARM64_X7, 72));
	ENCODING("ldr x0, [sp, #16]", "e00b40f9", arm64_ldr_reg_sp(c, ARM64_X0, 16));
	ENCODING("uxtb w16, w0", "101c0053", arm64_movz_reg_reg(c, ARM64_X16, ARM64_X0, 1));
	ENCODING("uxth w16, w0", "103c0053", arm64_movz_reg_reg(c, ARM64_X16, ARM64_X0, 2));
	ENCODING("mov w16, w0", "f003002a", arm64_movz_reg_reg(c, ARM64_X16, ARM64_X0, 4));
	ENCODING("mov x16, x0", "f00300aa", arm64_movz_reg_reg(c, ARM64_X16, ARM64_X0, 8));
	ENCODING("lsr x17, x17, x16", "3126d09a", arm64_lsr_reg_reg_reg(c, ARM64_X17, ARM64_X17, ARM64_X16));
	ENCODING("br x16", "00021fd6", arm64_br_reg(c, ARM64_X16));
	ENCODING("br x17", "20021fd6", arm64_br_reg(c, ARM64_X17));
	ENCODING("adrp x16, #0", "10000090", arm64_adrp_reg_imm21(c, ARM64_X16, A + 0xfff));
	ENCODING("adrp x16, #4096", "100000b0", arm64_adrp_reg_imm21(c, ARM64_X16, A + 4096));
	ENCODING("adrp x17, #-4096", "f1fffff0", arm64_adrp_reg_imm21(c, ARM64_X17, A - 1));
	ENCODING("adrp x16, #16384", "30000090", arm64_adrp_reg_imm21(c, ARM64_X16, A + 0x4008));
	ENCODING("add x16, x16, #291", "108e0491", arm64_add_reg_reg_imm12(c, ARM64_X16, ARM64_X16, 0x123));
	ENCODING("add x0, x30, #4095", "c0ff3f91", arm64_add_reg_reg_imm12(c, ARM64_X0, ARM64_X30, 4095));
	ENCODING("sub x17, x16, #1, lsl #12", "110640d1", arm64_sub_reg_reg_imm12(c, ARM64_X17, ARM64_X16, 4096));
	ENCODING("sub x17, x16, #4095, lsl #12", "11fe7fd1", arm64_sub_reg_reg_imm12(c, ARM64_X17, ARM64_X16, 0xfff000));
	ENCODING("cmp x16, #0", "1f0200f1", arm64_cmp_reg_imm12(c, ARM64_X16, 0));
	ENCODING("cmp x16, #4095", "1ffe3ff1", arm64_cmp_reg_imm12(c, ARM64_X16, 4095));
	ENCODING("cmp x17, #2, lsl #12", "3f0a40f1", arm64_cmp_reg_imm12(c, ARM64_X17, 8192));
	ENCODING("sub x16, x18, x16", "500210cb", arm64_sub_reg_reg_reg(c, ARM64_X16, ARM64_X18, ARM64_X16));
	ENCODING("cmp x18, x16", "5f0210eb", arm64_cmp_reg_reg(c, ARM64_X18, ARM64_X16));
	ENCODING("cmp x16, x17", "1f0211eb", arm64_cmp_reg_reg(c, ARM64_X16, ARM64_X17));
	ENCODING("ror x16, x16, #6", "101ad093", arm64_ror_reg_reg_imm6(c, ARM64_X16, ARM64_X16, 6));
	ENCODING("ror x17, x18, #63", "51fed293", arm64_ror_reg_reg_imm6(c, ARM64_X17, ARM64_X18, 63));
	ENCODING("mov x18, x0", "f20300aa", arm64_mov_reg_reg(c, ARM64_X18, ARM64_X0));
	ENCODING("mov x18, x7", "f20307aa", arm64_mov_reg_reg(c, ARM64_X18, ARM64_X7));
	ENCODING("mov x16, x18", "f00312aa", arm64_mov_reg_reg(c, ARM64_X16, ARM64_X18));
	ENCODING("mov x17, #4660", "914682d2", arm64_movz_reg_imm16(c, ARM64_X17, 0x1234, 0));
	ENCODING("mov x17, #305397760", "9146a2d2", arm64_movz_reg_imm16(c, ARM64_X17, 0x1234, 16));
	ENCODING("movk x17, #65535, lsl #16", "f1ffbff2", arm64_movk_reg_imm16(c, ARM64_X17, 0xffff, 16));
	ENCODING("movk x17, #1, lsl #48", "3100e0f2", arm64_movk_reg_imm16(c, ARM64_X17, 1, 48));
	ENCODING("ldr x16, [x16]", "100240f9", arm64_ldr_reg_imm12(c, ARM64_X16, ARM64_X16, 0));
	ENCODING("ldr x16, [x17, #4088]", "30fe47f9", arm64_ldr_reg_imm12(c, ARM64_X16, ARM64_X17, 4088));
	ENCODING("ldr x16, #8", "50000058", arm64_ldr_reg_imm19(c, ARM64_X16, A + 8));
	ENCODING("ldr x16, #-16", "90ffff58", arm64_ldr_reg_imm19(c, ARM64_X16, A - 16));
}
