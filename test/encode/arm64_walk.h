/* SPDX-License-Identifier: MIT */
/* An interpreter for the arm64 instructions that stubs and trees are made of. It knows no others: anything else is an error. */
#ifndef TEST_ENCODE_ARM64_WALK_H
#define TEST_ENCODE_ARM64_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arm64_walk {
	uint64_t x[31];
	uint64_t pc;          /* in: where to start; out: the first address outside the code */
	bool n, z, c, v;
	bool was_indirect;    /* the code was left by br, not by b */
	unsigned nr_steps;
	uint64_t tp;          /* in: the thread pointer. Loads and stores go to memory of the test */
	const uint8_t *bytes; /* the walk's own */
	uint64_t addr, len;
	const char *error;    /* NULL, or why the walk stopped inside the code */
};

/* Runs until the program counter leaves [addr, addr + len). */
void arm64_walk(struct arm64_walk *walk, const uint8_t *bytes, size_t len, uint64_t addr);

#endif
