/* SPDX-License-Identifier: MIT */
/* The x86-64 target: stub slots, C entries, veneers and traps. See targets/target.h. */
#include "targets/target.h"
#include "targets/x86_64/chain.h"
#include "targets/x86_64/encode.h"
#include "targets/x86_64/tree.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

#define STUB_WORD_LEN 8u
#define JMP_LEN 5u

static void fill_traps(void *p, size_t len)
{
	memset(p, X86_64_INT3, len);
}

static int is_traps(const void *p, size_t len)
{
	const uint8_t *bytes = p;

	for (size_t i = 0; i < len; i++)
		if (bytes[i] != X86_64_INT3)
			return 0;
	return 1;
}

static void emit_word(struct shunt_code *code, uint64_t dest)
{
	x86_64_jmp_rel32(code, dest);
	for (unsigned i = JMP_LEN; i < STUB_WORD_LEN; i++)
		x86_64_int3(code);
}

static void emit_stub(struct shunt_code *code, uint64_t dest)
{
	if (shunt_code_here(code) % SHUNT_STUB_LEN) {
		shunt_code_fail(code, EINVAL);
		return;
	}
	x86_64_endbr64(code);
	x86_64_nops(code, 4);
	emit_word(code, dest);
}

static int encode_stub_word(uint64_t slot, uint64_t dest, uint64_t *word)
{
	uint8_t bytes[STUB_WORD_LEN];
	struct shunt_code code;

	shunt_code_init(&code, bytes, sizeof(bytes), slot + SHUNT_STUB_WORD);
	emit_word(&code, dest);
	if (code.error)
		return code.error;
	memcpy(word, bytes, sizeof(bytes));
	return 0;
}

static int decode_stub_word(uint64_t slot, uint64_t word, uint64_t *dest)
{
	uint8_t bytes[STUB_WORD_LEN];
	int32_t disp;

	memcpy(bytes, &word, sizeof(bytes));
	if (bytes[0] != 0xe9 || !is_traps(bytes + JMP_LEN, STUB_WORD_LEN - JMP_LEN))
		return -EINVAL;
	memcpy(&disp, bytes + 1, sizeof(disp));
	*dest = slot + SHUNT_STUB_WORD + JMP_LEN + (uint64_t)(int64_t)disp;
	return 0;
}

/* Integer arguments of the System V calling convention; the program is the one after nr_args others. */
static const enum x86_64_reg c_args[] = { X86_64_RDI, X86_64_RSI, X86_64_RDX, X86_64_RCX, X86_64_R8, X86_64_R9 };

#define MAX_C_ARGS (sizeof(c_args) / sizeof(c_args[0]) - 1)

static void emit_c_entry(struct shunt_code *code, unsigned nr_args, uint64_t slot)
{
	if (nr_args > MAX_C_ARGS) {
		shunt_code_fail(code, EINVAL);
		return;
	}
	x86_64_endbr64(code);
	x86_64_mov_reg_reg(code, X86_64_R10, c_args[nr_args]);
	x86_64_jmp_rel32(code, slot);
}

static void emit_word_jump(struct shunt_code *code, uint64_t word)
{
	if (word % 8)
		shunt_code_fail(code, EINVAL);
	x86_64_jmp_rip(code, word);
}

static void emit_veneer(struct shunt_code *code, uint64_t dest)
{
	x86_64_movabs_reg_imm64(code, X86_64_R11, dest);
	x86_64_jmp_reg(code, X86_64_R11);
	x86_64_int3(code);
}

const struct shunt_target shunt_target_x86_64 = {
	.name = "x86_64",
	.branch_reach = INT64_C(1) << 31,
	.default_arena = UINT64_C(1) << 30,
	.max_c_args = MAX_C_ARGS,
	.elf_machine = EM_X86_64,
	.fill_traps = fill_traps,
	.is_traps = is_traps,
	.emit_stub = emit_stub,
	.encode_stub_word = encode_stub_word,
	.decode_stub_word = decode_stub_word,
	.emit_c_entry = emit_c_entry,
	.emit_tree = x86_64_emit_tree,
	.lay_out_tree = x86_64_lay_out_tree,
	.emit_return = x86_64_emit_return,
	.emit_chain = x86_64_emit_chain,
	.emit_word_jump = emit_word_jump,
	.emit_veneer = emit_veneer,
};
