/* SPDX-License-Identifier: MIT */
/*
 * Read-modify-writes of map values and per-CPU variables: what of them is one update, and how it is made exact.
 *
 * The lookups of a module are recorded as they are inlined; when all are, every store through one of them is looked at.
 */
#ifndef PASSES_RMW_H
#define PASSES_RMW_H

#include "passes/ir.h"

/* Whether the policy asks for exact updates. */
bool shunt_rmw_is_exact(const struct shunt_pass *pass);

enum shunt_rmw_kind {
	SHUNT_RMW_THIS_CPU,  /* this CPU's copy of the per-CPU object whose CPU 0's copy is unit0 */
	SHUNT_RMW_OTHER_CPU, /* the copy of a CPU that the program names */
	SHUNT_RMW_SHARED,    /* a value that all CPUs share */
};

/* What a pointer in generated code is. map: where it was found, NULL for a variable or where that is one of several. */
struct shunt_rmw_lookup {
	LLVMValueRef value;
	enum shunt_rmw_kind kind;
	LLVMValueRef unit0; /* may be NULL without rseq, which needs it */
	LLVMValueRef object; /* pointers with the same one are to copies of one variable; NULL: value itself */
	const struct shunt_pass_map *map;
};
/* rmw_record.c. Where the policy is not exact, nothing is kept. */
void shunt_rmw_record(struct shunt_pass *pass, const struct shunt_rmw_lookup *lookup);
/* NULL: base is none that was recorded. */
const struct shunt_rmw_lookup *shunt_rmw_find(const struct shunt_pass *pass, LLVMValueRef base);
/* The first pointer that was recorded with that object. */
const struct shunt_rmw_lookup *shunt_rmw_first_of(const struct shunt_pass *pass, LLVMValueRef object);
void shunt_rmw_forget(struct shunt_pass *pass); /* all of them */

/* Where a pointer leads: a fixed number of bytes from a value. */
struct shunt_rmw_place {
	LLVMValueRef base;
	int64_t offset;
};
struct shunt_rmw_place shunt_rmw_place_of(struct shunt_pass *pass, LLVMValueRef pointer);

enum shunt_rmw_op { SHUNT_RMW_ADD, SHUNT_RMW_OR, SHUNT_RMW_AND, SHUNT_RMW_XOR, SHUNT_RMW_NONE };
const char *shunt_rmw_op_name(enum shunt_rmw_op op);

/* Whether numbers of that type have exact operations. */
bool shunt_rmw_has_width(LLVMTypeRef type);

/* rmw_match.c. What value (to be stored at place) does to what is there. loads: filled with the loads that it reads there. */
enum { SHUNT_RMW_MAX_LOADS = 8 };
struct shunt_rmw_match {
	enum shunt_rmw_op op; /* NONE: the same value is written back */
	LLVMValueRef loads[SHUNT_RMW_MAX_LOADS];
	unsigned nr_loads;
	const char *why; /* the end of a sentence about why it is no update that has a form */
};
bool shunt_rmw_match_value(struct shunt_pass *pass, LLVMValueRef value, struct shunt_rmw_place place, struct shunt_rmw_match *out);
/* The operand of that update, built beside the instructions that it is made of. */
LLVMValueRef shunt_rmw_build_operand(struct shunt_pass *pass, LLVMValueRef value, struct shunt_rmw_place place, enum shunt_rmw_op op);
/* Whether value is computed from a load of place. */
bool shunt_rmw_depends(struct shunt_pass *pass, LLVMValueRef value, struct shunt_rmw_place place);

/* rmw_order.c. Whether nothing on the way from the loads to store may write what they read. */
bool shunt_rmw_is_undisturbed(struct shunt_pass *pass, const struct shunt_rmw_match *match, LLVMValueRef store);

/* rmw_emit.c, at the pass's builder. To this CPU's copy of unit0 in one restartable operation; to pointer in one atomic one. */
bool shunt_rmw_has_rseq(const struct shunt_pass *pass);
void shunt_rmw_emit_rseq(struct shunt_pass *pass, enum shunt_rmw_op op, LLVMValueRef unit0, LLVMValueRef operand);
void shunt_rmw_emit_atomic(struct shunt_pass *pass, enum shunt_rmw_op op, LLVMValueRef pointer, LLVMValueRef operand);

/* rmw_disarm.c. Marks a restartable sequence just built; then, where sequences are marked, clears the thread's rseq_cs on all ways out. */
void shunt_rmw_mark_armed(struct shunt_pass *pass, LLVMValueRef sequence);
void shunt_rmw_disarm(struct shunt_pass *pass);
/* rmw_emit.c: stores 0 to it, at the pass's builder. */
void shunt_rmw_emit_clear(struct shunt_pass *pass);

/* A restartable sequence of one update. */
struct shunt_rmw_sequence {
	enum shunt_rmw_op op;
	unsigned width; /* bits; operands of fewer than 32 are extended to that */
	LLVMValueRef unit0, operand;
};
/* pairs.c: writes beside a sequence just built what it is, for shunt-pairs; whether that is there. */
void shunt_rmw_describe(struct shunt_pass *pass, LLVMValueRef call, enum shunt_rmw_op op, unsigned width);
bool shunt_rmw_is_described(const struct shunt_pass *pass, LLVMValueRef call);
/* rmw_emit_pair.c, at the pass's builder: both in one; whether a sequence may be the first of a pair. distance: of the second's unit0 from
 * the first's, below 1 << 29 either way; NULL: not known. */
bool shunt_rmw_can_be_first(const struct shunt_pass *pass, const struct shunt_rmw_sequence *sequence);
void shunt_rmw_emit_pair(struct shunt_pass *pass, const struct shunt_rmw_sequence *first, const struct shunt_rmw_sequence *second,
			 const int64_t *distance);
/* rmw_unroll.c: asks LLVM to unroll loops of one sequence. Before shunt_rmw_disarm. */
void shunt_rmw_unroll(struct shunt_pass *pass);

/* After all calls of shunt-percpu. */
void shunt_pass_rmw(struct shunt_pass *pass);

#endif
