/* SPDX-License-Identifier: MIT */
/*
 * Functions for hooks on x86-64. A chain keeps the arguments on the stack, since programs may change every register that carries one:
 *
 *	push each argument, and one more where that leaves the stack unaligned
 *	for each program     [load the arguments again] call program; [test the result] or to the end with it
 *	movabs rax, verdict
 *	end: add rsp, ...; ret
 */
#include "targets/x86_64/chain.h"
#include "targets/x86_64/encode.h"

#include <errno.h>

#define MAX_ARGS 6u
#define WORD 8u

static const enum x86_64_reg args[MAX_ARGS] = { X86_64_RDI, X86_64_RSI, X86_64_RDX, X86_64_RCX, X86_64_R8, X86_64_R9 };

void x86_64_emit_return(struct shunt_code *code, uint64_t value)
{
	x86_64_endbr64(code);
	if (value)
		x86_64_movabs_reg_imm64(code, X86_64_RAX, value);
	else
		x86_64_xor_eax_eax(code);
	x86_64_ret(code);
}

/* The result stays in rax as the program left it: what lies above ret_len bytes is the caller's business. */
static void emit_test(struct shunt_code *code, const struct shunt_chain *chain, uint64_t continue_on, uint64_t end)
{
	if (continue_on == SHUNT_CHAIN_ALWAYS)
		return;
	if (!continue_on) {
		x86_64_jmp_rel32(code, end);
		return;
	}
	x86_64_movz_reg_reg(code, X86_64_R11, X86_64_RAX, chain->ret_len);
	x86_64_cmp_reg_imm8(code, X86_64_R11, 63);
	x86_64_jcc_rel32(code, X86_64_A, end);
	x86_64_movabs_reg_imm64(code, X86_64_RCX, continue_on);
	x86_64_bt_reg_reg(code, X86_64_RCX, X86_64_R11);
	x86_64_jcc_rel32(code, X86_64_AE, end);
}

/* Returns the address of the end. */
static uint64_t emit_pass(struct shunt_code *code, const struct shunt_chain *chain, uint64_t end)
{
	/* A call has left the stack 8 bytes off a multiple of 16. */
	unsigned nr_words = chain->nr_args | 1;

	x86_64_endbr64(code);
	for (unsigned i = 0; i < nr_words; i++)
		x86_64_push_reg(code, i < chain->nr_args ? args[i] : X86_64_RAX);
	for (uint32_t i = 0; i < chain->nr_links; i++) {
		for (unsigned arg = 0; i > 0 && arg < chain->nr_args; arg++)
			x86_64_mov_reg_rsp(code, args[arg], (nr_words - 1 - arg) * WORD);
		x86_64_call_rel32(code, chain->links[i].program);
		emit_test(code, chain, chain->links[i].continue_on, end);
	}
	x86_64_movabs_reg_imm64(code, X86_64_RAX, chain->verdict);
	end = shunt_code_here(code);
	x86_64_add_rsp_imm8(code, (int64_t)(nr_words * WORD));
	x86_64_ret(code);
	return end;
}

void x86_64_emit_chain(struct shunt_code *code, const struct shunt_chain *chain)
{
	struct shunt_code measure;

	if (chain->nr_args > MAX_ARGS || (chain->ret_len != 1 && chain->ret_len != 2 && chain->ret_len != 4 && chain->ret_len != 8)) {
		shunt_code_fail(code, EINVAL);
		return;
	}
	shunt_code_init(&measure, NULL, 0, shunt_code_here(code));
	emit_pass(code, chain, emit_pass(&measure, chain, shunt_code_here(code)));
}
