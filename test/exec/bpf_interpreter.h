/* SPDX-License-Identifier: MIT */
/* A slow, plain interpreter for tests: one instruction after the other, as RFC 9669 describes them. No calls. */
#ifndef TEST_BPF_INTERPRETER_H
#define TEST_BPF_INTERPRETER_H

#include <stddef.h>
#include <stdint.h>
#include <linux/bpf.h>

/* Runs at most max_steps instructions; regs are r0-r10, memory accesses are real. 0, or -1 when it did not end by exit. */
int bpf_interpret(const struct bpf_insn *insns, size_t nr_insns, uint64_t regs[11], size_t max_steps);

#endif
