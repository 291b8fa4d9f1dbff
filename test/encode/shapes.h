/* SPDX-License-Identifier: MIT */
/* Plans and pointers for the tests of tree emitters: every shape that a plan may have, random programs, awkward pointers. */
#ifndef TEST_ENCODE_SHAPES_H
#define TEST_ENCODE_SHAPES_H

#include <stdbool.h>

#include "targets/plan.h"

struct shape {
	enum shunt_plan_op head;  /* ANCHOR or RANGE; anything else: no head */
	bool late_range;          /* head is ANCHOR: a RANGE follows the hot ones */
	uint32_t leaf_max;        /* most EQUALs in a row; 0: all of them, a linear plan */
	uint32_t nr_hot;          /* programs tested ahead of the tree as well */
	bool align16;             /* upper halves, as the kernel does; literal as well, but behind a RANGE */
	bool is_graph;            /* no tree at all: any forward jumps, programs tested often or never */
};

/* A sequence that is the same in every run. */
uint64_t shape_random(uint64_t *state);
/* A random shape. */
struct shape shape_any(uint64_t *state);
/* nr distinct addresses, ascending, multiples of align in [base, base + span). */
void shape_programs(uint64_t *state, uint64_t base, uint64_t span, uint64_t align, uint64_t *programs, uint32_t nr);
/* Fills out, whose nodes go to free(). */
void shape_plan(struct shape shape, const uint64_t *programs, uint32_t nr, struct shunt_plan *out);

/* What a plan says of a pointer: true when it leads to an EQUAL that names it, false when to a fallback. */
bool shape_finds(const struct shunt_plan *plan, uint64_t pointer);

/* Calls visit for every program and for pointers near and far that a sloppy compare takes for one. */
void shape_for_each_pointer(const uint64_t *programs, uint32_t nr, uint64_t *state,
			    void (*visit)(void *context, uint64_t pointer, bool is_program), void *context);

#endif
