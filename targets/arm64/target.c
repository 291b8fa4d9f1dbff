/* SPDX-License-Identifier: MIT */
/* The arm64 target: stub slots, C entries, veneers and traps. See targets/target.h. */
#include "targets/target.h"
#include "targets/arm64/chain.h"
#include "targets/arm64/encode.h"
#include "targets/arm64/tree.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

#define B_OPCODE 0x14000000u
#define B_OPCODE_MASK 0xfc000000u
#define B_REACH (INT64_C(1) << 27)
#define MAX_C_ARGS 7u /* x0 to x7, and the program is the last one */
#define LITERAL_ALIGN 8u

/* Instructions are little endian whatever the data is, so traps are bytes here. */
static uint8_t trap_byte(size_t offset)
{
	return (uint8_t)(ARM64_TRAP >> (offset % 4 * 8));
}

static void fill_traps(void *p, size_t len)
{
	uint8_t *bytes = p;

	for (size_t i = 0; i < len; i++)
		bytes[i] = trap_byte(i);
}

static int is_traps(const void *p, size_t len)
{
	const uint8_t *bytes = p;

	for (size_t i = 0; i < len; i++)
		if (bytes[i] != trap_byte(i))
			return 0;
	return 1;
}

static void emit_word(struct shunt_code *code, uint64_t dest)
{
	arm64_b_imm26(code, dest);
	shunt_code_emit32(code, ARM64_TRAP);
}

static void emit_stub(struct shunt_code *code, uint64_t dest)
{
	if (shunt_code_here(code) % SHUNT_STUB_LEN) {
		shunt_code_fail(code, EINVAL);
		return;
	}
	arm64_bti_c(code);
	arm64_nop(code);
	emit_word(code, dest);
}

static int encode_stub_word(uint64_t slot, uint64_t dest, uint64_t *word)
{
	uint8_t bytes[8];
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
	uint32_t b = (uint32_t)word;
	int64_t disp;

	if ((b & B_OPCODE_MASK) != B_OPCODE || word >> 32 != ARM64_TRAP)
		return -EINVAL;
	disp = (int64_t)(b & ~B_OPCODE_MASK) * 4;
	if (disp >= B_REACH)
		disp -= 2 * B_REACH;
	*dest = slot + SHUNT_STUB_WORD + (uint64_t)disp;
	return 0;
}

static void emit_c_entry(struct shunt_code *code, unsigned nr_args, uint64_t slot)
{
	if (nr_args > MAX_C_ARGS) {
		shunt_code_fail(code, EINVAL);
		return;
	}
	arm64_bti_c(code);
	arm64_mov_reg_reg(code, ARM64_X18, (enum arm64_reg)nr_args);
	arm64_b_imm26(code, slot);
}

static void emit_word_jump(struct shunt_code *code, uint64_t word)
{
	arm64_adrp_reg_imm21(code, ARM64_X16, word);
	arm64_ldr_reg_imm12(code, ARM64_X16, ARM64_X16, word & 0xfff);
	arm64_br_reg(code, ARM64_X16);
}

static void emit_veneer(struct shunt_code *code, uint64_t dest)
{
	uint64_t end = shunt_code_here(code) + 8;
	uint64_t literal = (end + LITERAL_ALIGN - 1) & ~(uint64_t)(LITERAL_ALIGN - 1);

	if (end % 4 || dest % 4) {
		shunt_code_fail(code, EINVAL);
		return;
	}
	/* An aligned literal is loaded in one piece, so that it could be changed under execution; a split one could be torn. */
	arm64_ldr_reg_imm19(code, ARM64_X16, literal);
	arm64_br_reg(code, ARM64_X16);
	if (literal != end)
		shunt_code_emit32(code, ARM64_TRAP);
	shunt_code_emit64(code, dest);
}

const struct shunt_target shunt_target_arm64 = {
	.name = "arm64",
	.branch_reach = B_REACH,
	.default_arena = UINT64_C(64) << 20,
	.max_c_args = MAX_C_ARGS,
	.elf_machine = EM_AARCH64,
	.fill_traps = fill_traps,
	.is_traps = is_traps,
	.emit_stub = emit_stub,
	.encode_stub_word = encode_stub_word,
	.decode_stub_word = decode_stub_word,
	.emit_c_entry = emit_c_entry,
	.emit_tree = arm64_emit_tree,
	.lay_out_tree = arm64_lay_out_tree,
	.emit_return = arm64_emit_return,
	.emit_chain = arm64_emit_chain,
	.emit_word_jump = emit_word_jump,
	.emit_veneer = emit_veneer,
};
