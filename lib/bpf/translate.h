/* SPDX-License-Identifier: MIT */
/* What translate.c (modules, functions) and translate_insn.c (instructions) share. */
#ifndef LIB_BPF_TRANSLATE_H
#define LIB_BPF_TRANSLATE_H

#include <llvm-c/Core.h>
#include "lib/bpf/flow.h"
#include "lib/bpf/translate_isa.h"

struct translation {
	const struct bpf_unit *unit;
	const bool *wanted;
	struct bpf_flow flow;
	uint8_t *traits; /* per function, over everything it calls: TRAIT_* */
	LLVMContextRef context;
	LLVMModuleRef module;
	LLVMBuilderRef builder;
	LLVMTypeRef i8, i16, i32, i64, ptr;
	LLVMTypeRef registers_type; /* i64 (i64, i64, i64, i64, i64): helpers, subprograms */
	LLVMValueRef *functions;    /* per function of the unit */
};

enum {
	TRAIT_CHAIN = 1 << 0,    /* makes tail calls, or calls helpers of the host, which may run other programs */
	TRAIT_REDIRECT = 1 << 1,
	TRAIT_XDP = 1 << 2,      /* is called by an XDP program... */
	TRAIT_PLAIN = 1 << 3,    /* ...by one of another context */
};

/* The function being translated. */
struct translated {
	struct translation *all;
	const struct bpf_func *func;
	const struct bpf_note *notes;
	const uint32_t *block_of;
	uint32_t index;
	LLVMValueRef function;
	LLVMValueRef regs[ISA_NR_REGS - 1]; /* allocas of i64 */
	LLVMValueRef stack;                 /* alloca */
	LLVMValueRef chain;                 /* alloca of struct bpf_chain, or NULL */
	LLVMBasicBlockRef *blocks;          /* by block number */
};

/* Emits instruction at. The caller positions the builder at blocks. */
void translate_insn(struct translated *t, uint32_t at);
/* Emits the return of value (i64, r0) with everything due at an exit. */
void translate_return(struct translated *t, LLVMValueRef value);
/* Calls _bpf_helper_ext_NNNN with five i64. */
LLVMValueRef translate_helper_call(struct translation *all, uint32_t number, LLVMValueRef args[5]);

#endif
