/* SPDX-License-Identifier: MIT */
/*
 * Random BPF programs and random memory, all from one seed. Programs go forward only, so they end. They work on BPF_RANDOM_MEM bytes at r6, on as
 * many at the bottom of the stack, and on r0-r5, r7 and r8; at the end the eight registers lie in the second half of the memory and r0 is a sum
 * of the stack.
 */
#ifndef TEST_BPF_RANDOM_PROGRAM_H
#define TEST_BPF_RANDOM_PROGRAM_H

#include "bpf_run.h"

#define BPF_RANDOM_MEM 128
#define BPF_RANDOM_MAX_INSNS 192

struct bpf_random_rules {
	const struct bpf_insn *entry; /* leaves the memory's address in r6 */
	size_t nr_entry;
	bool verifiable; /* only what the kernel's verifier takes: every instruction reachable, atomics on the stack only */
};

void bpf_random_seed(uint64_t seed);
void bpf_random_fill(uint64_t mem[BPF_RANDOM_MEM / 8]);
size_t bpf_random_program(const struct bpf_random_rules *rules, struct bpf_insn insns[BPF_RANDOM_MAX_INSNS]);

#endif
