/* SPDX-License-Identifier: MIT */
/*
 * The parts of the BPF instruction set (RFC 9669 and version 4) that older linux/bpf.h headers lack, and the numbers of helpers that only
 * translated code calls. Shared by check, context and translate.
 */
#ifndef LIB_BPF_TRANSLATE_ISA_H
#define LIB_BPF_TRANSLATE_ISA_H

#include <stdbool.h>
#include <stdint.h>
#include <linux/bpf.h>
#include "lib/bpf/unit.h"

#define ISA_MODE_MEMSX 0x80
#define ISA_ADDR_SPACE_CAST 1 /* offset of a MOV */
#define ISA_MAY_GOTO 0xe5     /* JMP | JCOND */
#define ISA_CALL_REG 0x8d     /* JMP | CALL | X, clang's form of an indirect call */
#define ISA_GOTOL (BPF_JMP32 | BPF_JA)
#define ISA_LOAD_ACQUIRE 0x100
#define ISA_STORE_RELEASE 0x110

#define ISA_NR_REGS 11
#define ISA_STACK_SIZE 512
#define ISA_CALL_DEPTH 8 /* frames, the program's included */
#define ISA_MAX_INSNS 1000000u

/* Internal helpers: above every number that a program may call, resolved by bpf_helper_builtin like the others. */
#define HELPER_INTERNAL 9000u
#define HELPER_TAIL_CALL 9001u     /* (r1, map, index, uint64_t *verdict, is_xdp): 1 when a program ran */
#define HELPER_CHAIN_ENTER 9002u   /* (struct bpf_chain *, len) */
#define HELPER_CHAIN_LEAVE 9003u   /* (struct bpf_chain *) */
#define HELPER_REDIRECT_DONE 9004u /* (ctx, verdict): what redirect chose goes to ctx */

enum { /* kernel numbers that check and translate treat by themselves */
	HELPER_REDIRECT = 23,
	HELPER_REDIRECT_MAP = 51,
	HELPER_TAIL_CALL_BPF = 12,
	HELPER_FOR_EACH = 164,
	HELPER_LOOP = 181,
};

static inline unsigned isa_class(const struct bpf_insn *insn)
{
	return insn->code & 0x07;
}

static inline bool isa_is_load_imm64(const struct bpf_insn *insn)
{
	return insn->code == (BPF_LD | BPF_IMM | BPF_DW);
}

static inline bool isa_is_jump_class(const struct bpf_insn *insn)
{
	return isa_class(insn) == BPF_JMP || isa_class(insn) == BPF_JMP32;
}

static inline bool isa_is_exit(const struct bpf_insn *insn)
{
	return insn->code == (BPF_JMP | BPF_EXIT);
}

static inline bool isa_is_call(const struct bpf_insn *insn)
{
	return insn->code == (BPF_JMP | BPF_CALL);
}

static inline bool isa_is_goto(const struct bpf_insn *insn)
{
	return insn->code == (BPF_JMP | BPF_JA) || insn->code == ISA_GOTOL;
}

/* A jump to isa_target, conditional or not. */
static inline bool isa_is_branch(const struct bpf_insn *insn)
{
	return isa_is_jump_class(insn) && !isa_is_exit(insn) && !isa_is_call(insn);
}

static inline int64_t isa_target(const struct bpf_insn *insn, uint32_t at)
{
	return (int64_t)at + 1 + (insn->code == ISA_GOTOL ? insn->imm : insn->off);
}

/* Bytes that a load, store or atomic touches. */
static inline unsigned isa_size(const struct bpf_insn *insn)
{
	switch (insn->code & 0x18) {
	case BPF_B:
		return 1;
	case BPF_H:
		return 2;
	case BPF_W:
		return 4;
	default:
		return 8;
	}
}

/* The reference on instruction at, or NULL. */
static inline const struct bpf_ref *isa_find_ref(const struct bpf_func *func, uint32_t at)
{
	uint32_t low = 0, high = func->nr_refs;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (func->refs[middle].insn < at)
			low = middle + 1;
		else
			high = middle;
	}
	return low < func->nr_refs && func->refs[low].insn == at ? &func->refs[low] : NULL;
}

#endif
