/* SPDX-License-Identifier: MIT */
/* Bytes of every instruction, and the limits of every operand: at the edge and one past it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include "encodings.h"
#include "targets/arm64/encode.h"
#include "targets/x86_64/encode.h"

static unsigned nr_checked;

static void check_hex(const char *text, const char *hex, const struct shunt_code *code)
{
	char got[2 * ENCODING_MAX + 1] = "";

	for (size_t i = 0; i < code->len; i++)
		snprintf(got + 2 * i, 3, "%02x", code->bytes[i]);
	cr_expect_str_eq(got, hex, "%s", text);
	cr_expect_eq(code->error, 0, "%s", text);
	nr_checked++;
}

Test(encodings, every_x86_64_instruction_has_its_bytes)
{
	x86_64_for_each_encoding(check_hex);
	cr_assert_geq(nr_checked, 50);
	printf("%u x86-64 instructions have their bytes\n", nr_checked);
}

Test(encodings, every_arm64_instruction_has_its_bytes)
{
	arm64_for_each_encoding(check_hex);
	cr_assert_geq(nr_checked, 35);
	printf("%u arm64 instructions have their bytes\n", nr_checked);
}

/* Runs a call on a fresh buffer at `addr` and gives its error; a refused instruction must be nothing but traps of len bytes. */
#define ERROR_OF(addr, expected_len, trap_bytes, call)                                           \
	({                                                                                       \
		uint8_t bytes_[ENCODING_MAX];                                                    \
		struct shunt_code code_, *c = &code_;                                            \
		shunt_code_init(c, bytes_, sizeof(bytes_), addr);                                \
		call;                                                                            \
		cr_expect_eq(c->len, (size_t)(expected_len), #call ": length %zu", c->len);       \
		if (c->error)                                                                    \
			for (size_t i_ = 0; i_ < c->len; i_++)                                   \
				cr_expect_eq(bytes_[i_], (trap_bytes)[i_ % 4], #call ": no trap"); \
		c->error;                                                                        \
	})
#define X86(addr, len, call) ERROR_OF(addr, len, ((const uint8_t[]){ 0xcc, 0xcc, 0xcc, 0xcc }), call)
#define ARM(addr, call) ERROR_OF(addr, 4, ((const uint8_t[]){ 0xcc, 0xcc, 0, 0 }), call)

/* Far from both ends of the address space, so that displacements do not wrap. */
#define X UINT64_C(0x555500000000)

Test(reach, x86_64_rel8_reaches_minus_128_to_127)
{
	cr_expect_eq(X86(X, 2, x86_64_jmp_rel8(c, X + 2 + 127)), 0);
	cr_expect_eq(X86(X, 2, x86_64_jmp_rel8(c, X + 2 + 128)), -ERANGE);
	cr_expect_eq(X86(X, 2, x86_64_jmp_rel8(c, X + 2 - 128)), 0);
	cr_expect_eq(X86(X, 2, x86_64_jmp_rel8(c, X + 2 - 129)), -ERANGE);
	cr_expect_eq(X86(X, 2, x86_64_jcc_rel8(c, X86_64_L, X + 2 + 127)), 0);
	cr_expect_eq(X86(X, 2, x86_64_jcc_rel8(c, X86_64_L, X + 2 + 128)), -ERANGE);
	cr_expect_eq(X86(X, 2, x86_64_jcc_rel8(c, X86_64_L, X + 2 - 128)), 0);
	cr_expect_eq(X86(X, 2, x86_64_jcc_rel8(c, X86_64_L, X + 2 - 129)), -ERANGE);
}

Test(reach, x86_64_rel32_reaches_two_gib)
{
	const uint64_t up = INT32_MAX, down = UINT64_C(1) << 31;

	cr_expect_eq(X86(X, 5, x86_64_jmp_rel32(c, X + 5 + up)), 0);
	cr_expect_eq(X86(X, 5, x86_64_jmp_rel32(c, X + 5 + up + 1)), -ERANGE);
	cr_expect_eq(X86(X, 5, x86_64_jmp_rel32(c, X + 5 - down)), 0);
	cr_expect_eq(X86(X, 5, x86_64_jmp_rel32(c, X + 5 - down - 1)), -ERANGE);
	cr_expect_eq(X86(X, 5, x86_64_call_rel32(c, X + 5 + up)), 0);
	cr_expect_eq(X86(X, 5, x86_64_call_rel32(c, X + 5 + up + 1)), -ERANGE);
	cr_expect_eq(X86(X, 5, x86_64_call_rel32(c, X + 5 - down)), 0);
	cr_expect_eq(X86(X, 5, x86_64_call_rel32(c, X + 5 - down - 1)), -ERANGE);
	cr_expect_eq(X86(X, 6, x86_64_jcc_rel32(c, X86_64_E, X + 6 + up)), 0);
	cr_expect_eq(X86(X, 6, x86_64_jcc_rel32(c, X86_64_E, X + 6 + up + 1)), -ERANGE);
	cr_expect_eq(X86(X, 6, x86_64_jcc_rel32(c, X86_64_E, X + 6 - down)), 0);
	cr_expect_eq(X86(X, 6, x86_64_jcc_rel32(c, X86_64_E, X + 6 - down - 1)), -ERANGE);
	cr_expect_eq(X86(X, 6, x86_64_jmp_rip(c, X + 6 + up)), 0);
	cr_expect_eq(X86(X, 6, x86_64_jmp_rip(c, X + 6 + up + 1)), -ERANGE);
	cr_expect_eq(X86(X, 6, x86_64_jmp_rip(c, X + 6 - down)), 0);
	cr_expect_eq(X86(X, 6, x86_64_jmp_rip(c, X + 6 - down - 1)), -ERANGE);
	cr_expect_eq(X86(X, 7, x86_64_lea_reg_rip(c, X86_64_R11, X + 7 + up)), 0);
	cr_expect_eq(X86(X, 7, x86_64_lea_reg_rip(c, X86_64_R11, X + 7 + up + 1)), -ERANGE);
	cr_expect_eq(X86(X, 7, x86_64_lea_reg_rip(c, X86_64_R11, X + 7 - down)), 0);
	cr_expect_eq(X86(X, 7, x86_64_lea_reg_rip(c, X86_64_R11, X + 7 - down - 1)), -ERANGE);
	/* The other half of the address space, and four GiB away: what a truncated field would reach. */
	cr_expect_eq(X86(X, 5, x86_64_jmp_rel32(c, X ^ UINT64_C(1) << 63)), -ERANGE);
	cr_expect_eq(X86(X, 5, x86_64_jmp_rel32(c, X + (UINT64_C(1) << 32))), -ERANGE);
}

Test(reach, x86_64_immediates_are_sign_extended)
{
	cr_expect_eq(X86(X, 4, x86_64_cmp_reg_imm8(c, X86_64_R11, 127)), 0);
	cr_expect_eq(X86(X, 4, x86_64_cmp_reg_imm8(c, X86_64_R11, 128)), -ERANGE);
	cr_expect_eq(X86(X, 4, x86_64_cmp_reg_imm8(c, X86_64_R11, -128)), 0);
	cr_expect_eq(X86(X, 4, x86_64_cmp_reg_imm8(c, X86_64_R11, -129)), -ERANGE);
	cr_expect_eq(X86(X, 7, x86_64_cmp_reg_imm32(c, X86_64_R11, INT32_MAX)), 0);
	cr_expect_eq(X86(X, 7, x86_64_cmp_reg_imm32(c, X86_64_R11, INT64_C(1) << 31)), -ERANGE);
	cr_expect_eq(X86(X, 7, x86_64_cmp_reg_imm32(c, X86_64_R11, INT32_MIN)), 0);
	cr_expect_eq(X86(X, 7, x86_64_cmp_reg_imm32(c, X86_64_R11, INT64_C(-1) - (INT64_C(1) << 31))), -ERANGE);
}

Test(reach, arm64_branches_reach_128_mib_and_1_mib_in_words)
{
	const uint64_t mib = UINT64_C(1) << 20;

	cr_expect_eq(ARM(X, arm64_b_imm26(c, X + 128 * mib - 4)), 0);
	cr_expect_eq(ARM(X, arm64_b_imm26(c, X + 128 * mib)), -ERANGE);
	cr_expect_eq(ARM(X, arm64_b_imm26(c, X - 128 * mib)), 0);
	cr_expect_eq(ARM(X, arm64_b_imm26(c, X - 128 * mib - 4)), -ERANGE);
	cr_expect_eq(ARM(X, arm64_bcond_imm19(c, ARM64_LT, X + mib - 4)), 0);
	cr_expect_eq(ARM(X, arm64_bcond_imm19(c, ARM64_LT, X + mib)), -ERANGE);
	cr_expect_eq(ARM(X, arm64_bcond_imm19(c, ARM64_LT, X - mib)), 0);
	cr_expect_eq(ARM(X, arm64_bcond_imm19(c, ARM64_LT, X - mib - 4)), -ERANGE);
	cr_expect_eq(ARM(X, arm64_ldr_reg_imm19(c, ARM64_X16, X + mib - 4)), 0);
	cr_expect_eq(ARM(X, arm64_ldr_reg_imm19(c, ARM64_X16, X + mib)), -ERANGE);
	cr_expect_eq(ARM(X, arm64_ldr_reg_imm19(c, ARM64_X16, X - mib)), 0);
	cr_expect_eq(ARM(X, arm64_ldr_reg_imm19(c, ARM64_X16, X - mib - 4)), -ERANGE);
	cr_expect_eq(ARM(X, arm64_bl_imm26(c, X + 128 * mib - 4)), 0);
	cr_expect_eq(ARM(X, arm64_bl_imm26(c, X + 128 * mib)), -ERANGE);
	cr_expect_eq(ARM(X, arm64_bl_imm26(c, X - 128 * mib)), 0);
	cr_expect_eq(ARM(X, arm64_bl_imm26(c, X - 128 * mib - 4)), -ERANGE);
	cr_expect_eq(ARM(X, arm64_tbz_bit0_imm14(c, ARM64_X16, X + 32764)), 0);
	cr_expect_eq(ARM(X, arm64_tbz_bit0_imm14(c, ARM64_X16, X + 32768)), -ERANGE);
	cr_expect_eq(ARM(X, arm64_tbz_bit0_imm14(c, ARM64_X16, X - 32768)), 0);
	cr_expect_eq(ARM(X, arm64_tbz_bit0_imm14(c, ARM64_X16, X - 32772)), -ERANGE);
	for (unsigned i = 1; i < 4; i++) {
		cr_expect_eq(ARM(X, arm64_b_imm26(c, X + i)), -EINVAL);
		cr_expect_eq(ARM(X, arm64_bcond_imm19(c, ARM64_NE, X - i)), -EINVAL);
		cr_expect_eq(ARM(X, arm64_ldr_reg_imm19(c, ARM64_X16, X + 8 + i)), -EINVAL);
	}
}

Test(reach, arm64_adrp_counts_pages_from_its_own)
{
	const uint64_t gib = UINT64_C(1) << 30;

	cr_expect_eq(ARM(X + 0xffc, arm64_adrp_reg_imm21(c, ARM64_X16, X + 4 * gib - 1)), 0);
	cr_expect_eq(ARM(X + 0xffc, arm64_adrp_reg_imm21(c, ARM64_X16, X + 4 * gib)), -ERANGE);
	cr_expect_eq(ARM(X + 0xffc, arm64_adrp_reg_imm21(c, ARM64_X16, X - 4 * gib)), 0);
	cr_expect_eq(ARM(X + 0xffc, arm64_adrp_reg_imm21(c, ARM64_X16, X - 4 * gib - 1)), -ERANGE);
}

Test(reach, arm64_immediates_are_12_bits_here_or_12_bits_higher)
{
	static const uint64_t fit[] = { 0, 1, 4095, 4096, 0xfff000 };
	static const uint64_t unfit[] = { 4097, 0xfff001, 0xffffff, 0x1000000, 0x1001000, UINT64_MAX, UINT64_C(1) << 32 };

	for (size_t i = 0; i < sizeof(fit) / sizeof(fit[0]); i++) {
		cr_expect_eq(ARM(X, arm64_cmp_reg_imm12(c, ARM64_X16, fit[i])), 0);
		cr_expect_eq(ARM(X, arm64_add_reg_reg_imm12(c, ARM64_X16, ARM64_X16, fit[i])), 0);
		cr_expect_eq(ARM(X, arm64_sub_reg_reg_imm12(c, ARM64_X16, ARM64_X16, fit[i])), 0);
	}
	for (size_t i = 0; i < sizeof(unfit) / sizeof(unfit[0]); i++) {
		cr_expect_eq(ARM(X, arm64_cmp_reg_imm12(c, ARM64_X16, unfit[i])), -ERANGE);
		cr_expect_eq(ARM(X, arm64_add_reg_reg_imm12(c, ARM64_X16, ARM64_X16, unfit[i])), -ERANGE);
		cr_expect_eq(ARM(X, arm64_sub_reg_reg_imm12(c, ARM64_X16, ARM64_X16, unfit[i])), -ERANGE);
	}
	cr_expect_eq(ARM(X, arm64_movz_reg_imm16(c, ARM64_X17, 65535, 48)), 0);
	cr_expect_eq(ARM(X, arm64_movz_reg_imm16(c, ARM64_X17, 65536, 0)), -ERANGE);
	cr_expect_eq(ARM(X, arm64_movk_reg_imm16(c, ARM64_X17, 65536, 0)), -ERANGE);
	cr_expect_eq(ARM(X, arm64_movk_reg_imm16(c, ARM64_X17, 1, 8)), -EINVAL);
	cr_expect_eq(ARM(X, arm64_movk_reg_imm16(c, ARM64_X17, 1, 64)), -EINVAL);
	cr_expect_eq(ARM(X, arm64_ror_reg_reg_imm6(c, ARM64_X16, ARM64_X16, 63)), 0);
	cr_expect_eq(ARM(X, arm64_ror_reg_reg_imm6(c, ARM64_X16, ARM64_X16, 64)), -ERANGE);
}

Test(reach, arm64_offsets_are_up_to_4095_times_8)
{
	cr_expect_eq(ARM(X, arm64_ldr_reg_imm12(c, ARM64_X16, ARM64_X17, 32760)), 0);
	cr_expect_eq(ARM(X, arm64_ldr_reg_imm12(c, ARM64_X16, ARM64_X17, 32768)), -ERANGE);
	cr_expect_eq(ARM(X, arm64_ldr_reg_imm12(c, ARM64_X16, ARM64_X17, 4)), -EINVAL);
	cr_expect_eq(ARM(X, arm64_ldr_reg_reg_imm12(c, ARM64_X16, ARM64_X17, 32760)), 0);
	cr_expect_eq(ARM(X, arm64_ldr_reg_reg_imm12(c, ARM64_X16, ARM64_X17, 32768)), -ERANGE);
	cr_expect_eq(ARM(X, arm64_str_reg_reg_imm12(c, ARM64_X16, ARM64_X17, 32760)), 0);
	cr_expect_eq(ARM(X, arm64_str_reg_reg_imm12(c, ARM64_X16, ARM64_X17, 32768)), -ERANGE);
	cr_expect_eq(ARM(X, arm64_str_reg_reg_imm12(c, ARM64_X16, ARM64_X17, 4)), -ERANGE);
	cr_expect_eq(ARM(X, arm64_ldr_reg_sp(c, ARM64_X0, 32760)), 0);
	cr_expect_eq(ARM(X, arm64_ldr_reg_sp(c, ARM64_X0, 32768)), -EINVAL);
	cr_expect_eq(ARM(X, arm64_str_reg_sp(c, ARM64_X0, 32760)), 0);
	cr_expect_eq(ARM(X, arm64_str_reg_sp(c, ARM64_X0, 32768)), -EINVAL);
	cr_expect_eq(ARM(X, arm64_str_reg_sp(c, ARM64_X0, 12)), -EINVAL);
}

Test(reach, arm64_frames_counts_and_widths_end_where_their_fields_do)
{
	cr_expect_eq(ARM(X, arm64_stp_frame(c, 512)), 0);
	cr_expect_eq(ARM(X, arm64_stp_frame(c, 528)), -EINVAL);
	cr_expect_eq(ARM(X, arm64_stp_frame(c, 24)), -EINVAL);
	cr_expect_eq(ARM(X, arm64_ldp_frame(c, 496)), 0);
	cr_expect_eq(ARM(X, arm64_ldp_frame(c, 512)), -EINVAL);
	cr_expect_eq(ARM(X, arm64_movn_reg_imm16(c, ARM64_X17, 65535)), 0);
	cr_expect_eq(ARM(X, arm64_movn_reg_imm16(c, ARM64_X17, 65536)), -ERANGE);
	cr_expect_eq(ARM(X, arm64_and32_low_bits(c, ARM64_X16, ARM64_X16, 1)), 0);
	cr_expect_eq(ARM(X, arm64_and32_low_bits(c, ARM64_X16, ARM64_X16, 31)), 0);
	cr_expect_eq(ARM(X, arm64_and32_low_bits(c, ARM64_X16, ARM64_X16, 0)), -EINVAL);
	cr_expect_eq(ARM(X, arm64_and32_low_bits(c, ARM64_X16, ARM64_X16, 32)), -EINVAL);
	cr_expect_eq(ARM(X, arm64_add_reg_reg_reg_lsl(c, ARM64_X16, ARM64_X17, ARM64_X16, 63)), 0);
	cr_expect_eq(ARM(X, arm64_add_reg_reg_reg_lsl(c, ARM64_X16, ARM64_X17, ARM64_X16, 64)), -EINVAL);
	for (unsigned len = 0; len <= 9; len++)
		cr_expect_eq(ARM(X, arm64_movz_reg_reg(c, ARM64_X16, ARM64_X0, len)), len == 1 || len == 2 || len == 4 || len == 8 ? 0 : -EINVAL);
}
