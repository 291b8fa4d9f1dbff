/* SPDX-License-Identifier: MIT */
/*
 * Functions for hooks on arm64. A chain keeps the arguments in its frame, since programs may change every register that carries one:
 *
 *	stp x29, x30, [sp, #-len]!; mov x29, sp; str each argument
 *	for each program     [ldr the arguments again] bl program; [test the result] or to the end with it
 *	mov x0, verdict
 *	end: ldp x29, x30, [sp], #len; ret
 */
#include "targets/arm64/chain.h"
#include "targets/arm64/encode.h"

#include <errno.h>

#define MAX_ARGS 8u
#define WORD 8u
#define FRAME_HEAD 16u

static void emit_value(struct shunt_code *code, enum arm64_reg to, uint64_t value)
{
	arm64_movz_reg_imm16(code, to, value & 0xffff, 0);
	for (unsigned shift = 16; shift < 64; shift += 16)
		if (value >> shift & 0xffff)
			arm64_movk_reg_imm16(code, to, value >> shift & 0xffff, shift);
}

void arm64_emit_return(struct shunt_code *code, uint64_t value)
{
	arm64_bti_c(code);
	emit_value(code, ARM64_X0, value);
	arm64_ret(code);
}

/* The result stays in x0 as the program left it: what lies above ret_len bytes is the caller's business. */
static void emit_test(struct shunt_code *code, const struct shunt_chain *chain, uint64_t continue_on, uint64_t end)
{
	if (continue_on == SHUNT_CHAIN_ALWAYS)
		return;
	if (!continue_on) {
		arm64_b_imm26(code, end);
		return;
	}
	arm64_movz_reg_reg(code, ARM64_X16, ARM64_X0, chain->ret_len);
	arm64_cmp_reg_imm12(code, ARM64_X16, 63);
	arm64_bcond_imm19(code, ARM64_HI, end);
	emit_value(code, ARM64_X17, continue_on);
	arm64_lsr_reg_reg_reg(code, ARM64_X17, ARM64_X17, ARM64_X16);
	arm64_tbz_bit0_imm14(code, ARM64_X17, end);
}

/* Returns the address of the end. */
static uint64_t emit_pass(struct shunt_code *code, const struct shunt_chain *chain, uint64_t end)
{
	unsigned frame_len = FRAME_HEAD + (chain->nr_args + chain->nr_args % 2) * WORD;

	arm64_bti_c(code);
	arm64_stp_frame(code, frame_len);
	/* mov x29, sp */
	shunt_code_emit32(code, 0x910003fd);
	for (unsigned i = 0; i < chain->nr_args; i++)
		arm64_str_reg_sp(code, (enum arm64_reg)i, FRAME_HEAD + i * WORD);
	for (uint32_t i = 0; i < chain->nr_links; i++) {
		for (unsigned arg = 0; i > 0 && arg < chain->nr_args; arg++)
			arm64_ldr_reg_sp(code, (enum arm64_reg)arg, FRAME_HEAD + arg * WORD);
		arm64_bl_imm26(code, chain->links[i].program);
		emit_test(code, chain, chain->links[i].continue_on, end);
	}
	emit_value(code, ARM64_X0, chain->verdict);
	end = shunt_code_here(code);
	arm64_ldp_frame(code, frame_len);
	arm64_ret(code);
	return end;
}

void arm64_emit_chain(struct shunt_code *code, const struct shunt_chain *chain)
{
	struct shunt_code measure;

	if (chain->nr_args > MAX_ARGS || shunt_code_here(code) % 4 ||
	    (chain->ret_len != 1 && chain->ret_len != 2 && chain->ret_len != 4 && chain->ret_len != 8)) {
		shunt_code_fail(code, EINVAL);
		return;
	}
	shunt_code_init(&measure, NULL, 0, shunt_code_here(code));
	emit_pass(code, chain, emit_pass(&measure, chain, shunt_code_here(code)));
}
