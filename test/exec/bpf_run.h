/* SPDX-License-Identifier: MIT */
/* For tests of translated code: instructions in a readable form, and one call that compiles and runs them. */
#ifndef TEST_BPF_RUN_H
#define TEST_BPF_RUN_H

#include <stdint.h>
#include <stddef.h>
#include <criterion/criterion.h>
#include <linux/bpf.h>
#include <shunt/bpf.h>
#include <shunt/jit.h>
#include <shunt/log.h>
#include <shunt/reader.h>
#include "lib/bpf/unit.h"

#define INSN(c, d, s, o, i) ((struct bpf_insn){ .code = (c), .dst_reg = (d), .src_reg = (s), .off = (o), .imm = (i) })
#define ALU64_REG(op, d, s) INSN(BPF_ALU64 | (op) | BPF_X, d, s, 0, 0)
#define ALU64_IMM(op, d, i) INSN(BPF_ALU64 | (op) | BPF_K, d, 0, 0, i)
#define ALU32_REG(op, d, s) INSN(BPF_ALU | (op) | BPF_X, d, s, 0, 0)
#define ALU32_IMM(op, d, i) INSN(BPF_ALU | (op) | BPF_K, d, 0, 0, i)
#define MOV_REG(d, s) ALU64_REG(BPF_MOV, d, s)
#define MOV_IMM(d, i) ALU64_IMM(BPF_MOV, d, i)
#define LOAD_IMM64(d, v) INSN(BPF_LD | BPF_IMM | BPF_DW, d, 0, 0, (int32_t)(v)), INSN(0, 0, 0, 0, (int32_t)((uint64_t)(v) >> 32))
#define LOAD(size, d, s, o) INSN(BPF_LDX | BPF_MEM | (size), d, s, o, 0)
#define LOAD_SIGNED(size, d, s, o) INSN(BPF_LDX | 0x80 | (size), d, s, o, 0)
#define STORE(size, d, s, o) INSN(BPF_STX | BPF_MEM | (size), d, s, o, 0)
#define STORE_IMM(size, d, o, i) INSN(BPF_ST | BPF_MEM | (size), d, 0, o, i)
#define ATOMIC(size, op, d, s, o) INSN(BPF_STX | BPF_ATOMIC | (size), d, s, o, op)
#define JUMP(o) INSN(BPF_JMP | BPF_JA, 0, 0, o, 0)
#define JUMP_LONG(i) INSN(BPF_JMP32 | BPF_JA, 0, 0, 0, i)
#define JUMP_REG(op, d, s, o) INSN(BPF_JMP | (op) | BPF_X, d, s, o, 0)
#define JUMP_IMM(op, d, i, o) INSN(BPF_JMP | (op) | BPF_K, d, 0, o, i)
#define JUMP32_REG(op, d, s, o) INSN(BPF_JMP32 | (op) | BPF_X, d, s, o, 0)
#define JUMP32_IMM(op, d, i, o) INSN(BPF_JMP32 | (op) | BPF_K, d, 0, o, i)
#define CALL(i) INSN(BPF_JMP | BPF_CALL, 0, 0, 0, i)
#define EXIT() INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)

typedef uint64_t bpf_plain_fn(void *mem, size_t len);
typedef uint32_t bpf_xdp_fn(struct shunt_xdp_ctx *ctx);

/* One JIT for the test's process; freed with it. */
struct shunt_jit *bpf_run_jit(void);

/* Compiles; fails the test with shunt_error() when that fails. */
struct shunt_bpf_object *bpf_run_open(const struct bpf_insn *insns, size_t nr_insns, enum shunt_bpf_context context);

/* Compiles, runs once on mem, frees. */
uint64_t bpf_run_plain(const struct bpf_insn *insns, size_t nr_insns, void *mem, size_t len);

#define RUN(mem, len, ...)                                                                                                     \
	({                                                                                                                     \
		const struct bpf_insn run_insns[] = { __VA_ARGS__ };                                                           \
		bpf_run_plain(run_insns, sizeof(run_insns) / sizeof(run_insns[0]), mem, len);                                  \
	})

/* A unit made by hand, with maps and callbacks: checks, translates and compiles all of it without Shunt's passes. */
struct bpf_run_unit {
	struct shunt_jit_module *module;
};
struct bpf_run_unit bpf_run_unit(const struct bpf_unit *unit);

/* The sentence with which instructions are refused, "" when they are not. */
const char *bpf_run_refusal(const struct bpf_insn *insns, size_t nr_insns, enum shunt_bpf_context context);
#define REFUSAL(context, ...)                                                                                                  \
	({                                                                                                                     \
		const struct bpf_insn run_insns[] = { __VA_ARGS__ };                                                           \
		bpf_run_refusal(run_insns, sizeof(run_insns) / sizeof(run_insns[0]), context);                                 \
	})

#endif
