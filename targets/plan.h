/* SPDX-License-Identifier: MIT */
/*
 * A plan: the CPU-neutral description of a dispatch tree. runtime/dispatch/plan.c makes plans, a target turns them into bytes.
 *
 * Nodes are laid out in the order of execution when nothing branches: each node falls through to the next one.
 */
#ifndef TARGETS_PLAN_H
#define TARGETS_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum shunt_plan_op {
	SHUNT_PLAN_OP_EQUAL,    /* pointer == programs[program]: jump there; else next node */
	SHUNT_PLAN_OP_ABOVE,    /* pointer > programs[program]: go to node `node`; else next node */
	SHUNT_PLAN_OP_ANCHOR,   /* later compares are relative to an anchor of the target's choice, next node. First node only */
	SHUNT_PLAN_OP_INSIDE,   /* a pointer within the plan's bounds goes to node `node`; else next node. Needs an ANCHOR as first node */
	/* A pointer outside the plan's bounds goes to the next fallback. As first node it is an ANCHOR too; a later one needs an ANCHOR as
	 * first node */
	SHUNT_PLAN_OP_RANGE,
	SHUNT_PLAN_OP_FALLBACK, /* to the program that the pointer names, by an indirect jump. The last node is one */
	SHUNT_PLAN_OP_PART,     /* goes on in the tree at parts[program], which is a part of this one */
};

struct shunt_plan_node {
	enum shunt_plan_op op;
	bool align16;     /* this node starts at a multiple of 16 bytes */
	bool one_line;    /* all from this node to the next fallback or part lies in one cache line, if it fits there: it is fetched at once */
	uint32_t program; /* EQUAL, ABOVE: index into programs; PART: into parts */
	uint32_t node;    /* ABOVE, INSIDE: index of a later node */
};

/*
 * Where jumps to programs are counted: 64-bit words, a row of them for each CPU (modulo the number of rows), one word a program. The row is
 * picked by the 32-bit number at number_offset from the thread pointer; the addition is not atomic.
 */
struct shunt_plan_counts {
	uint64_t rows;         /* address of the first one, a multiple of 8 */
	uint8_t row_shift;     /* one begins every 1 << row_shift bytes */
	uint8_t row_bits;      /* there are 1 << row_bits; 0: one, and no number is read */
	int32_t number_offset;
	const uint32_t *words; /* for each of the plan's programs, the index of its word in a row, below 1 << 20 */
};

struct shunt_plan {
	const uint64_t *programs; /* addresses, ascending, distinct */
	uint32_t nr_programs;
	const struct shunt_plan_node *nodes;
	uint32_t nr_nodes;
	uint32_t depth; /* compares on the longest path */
	bool is_literal; /* every compare is emitted, also one whose result the flags hold already (the kernel's shape) */
	bool outside_is_below; /* anchored: an ABOVE takes a pointer above the bounds for one below them, so that both go the same way */

	/*
	 * A large tree may be made of parts, each in a place of its own, so that a change makes one of them anew and the tree above them. They
	 * share one anchor, so what it depends on is given: bounds (both 0: the first and the last program) around every program of
	 * tree and parts, and every bit that any of their addresses has.
	 */
	uint64_t low, high;
	uint64_t bits;
	const uint64_t *parts;
	uint32_t nr_parts;
	const struct shunt_plan_counts *counts; /* NULL: nothing is counted */
	bool is_part; /* entered by a PART node, from behind an ANCHOR or RANGE */
};

enum shunt_fallback {
	SHUNT_FALLBACK_JUMP,
	SHUNT_FALLBACK_RETPOLINE, /* x86-64; arm64 has no equivalent and jumps */
	SHUNT_FALLBACK_LFENCE,    /* x86-64: lfence, jump; arm64 jumps */
};

#endif
