/* SPDX-License-Identifier: MIT */
/* The values of the dataflow in flow.c, and what one instruction does to them (flow_step.c). */
#ifndef LIB_BPF_FLOW_STEP_H
#define LIB_BPF_FLOW_STEP_H

#include "lib/bpf/flow.h"
#include "lib/bpf/translate_isa.h"

/*
 * A lattice: NONE (no path yet) below everything, MIXED (may be the context, or not) above everything. Between them, joining
 * unequal values gives MIXED when one is the context, FRAME when one is a stack address, else the first of PACKET, LOW, OTHER that occurs.
 *
 * The kernel's verifier has seen the program. So what is loaded or stored through is an address on every path, and is the context on all
 * paths or on none: a slot of the context that may meanwhile hold a NUMBER is still the context where it is used as an address.
 */
enum value_kind {
	VALUE_NONE,
	VALUE_NUMBER, /* surely not an address */
	VALUE_OTHER,  /* surely neither the context nor in a frame */
	VALUE_FUNC,   /* address of unit->funcs[off] */
	VALUE_LOW,    /* the low half of a packet pointer: not an address */
	VALUE_PACKET, /* derived from data, data_end or data_meta */
	VALUE_STACK,  /* r10 + off; with IS_UNSURE in id it may be a number as well */
	VALUE_ARG,    /* what register id (1-5) held at a subprogram's entry, + off: points into a caller's frame */
	VALUE_FRAME,  /* somewhere in the frames that off, a set of IN_*, names; or something else that is not the context */
	VALUE_CTX,    /* the context + off */
	VALUE_MIXED,
};

struct value {
	uint32_t kind : 4;
	uint32_t id : 4;
	int32_t off : 24;
};

#define IS_UNSURE 1u

#define IN_OWN 1           /* this function's frame */
#define IN_ARG(id) (1 << (id)) /* what argument id (1-5) points into */
#define IN_CALLERS (1 << 6) /* any frame of a caller */
#define ANYWHERE INT16_MIN, INT16_MAX

#define NR_HALVES (ISA_STACK_SIZE / 4)

/* Registers, and the stack in 4-byte halves; halves of one 8-byte value are equal, with id telling them apart on load. */
struct state {
	struct value regs[ISA_NR_REGS];
	struct value halves[NR_HALVES];
};

/* One place that calls a subprogram or hands a callback to a helper: values of r1-r5 as the callee gets them, and the frame then. */
struct site {
	uint32_t caller, insn, callee;
	struct value args[5];
	struct value halves[NR_HALVES];
};

/* What a function, with all that it calls, may store at bytes [low, high) from one of its arguments. */
struct effect {
	int32_t low, high; /* equal: nothing */
	struct value value;
};
#define NR_EFFECTS 6 /* by register number; number 0 is for anywhere in callers' frames */

struct step {
	const struct bpf_unit *unit;
	const struct bpf_func *func;
	uint32_t index; /* of func */
	void *flow;     /* for the calls back into flow.c */
	const char *refusal; /* set when the instruction cannot be translated */
	struct bpf_note note;
};

/* What `size` bytes at `off` of a frame hold. */
struct value value_load_halves(const struct value *halves, int off, unsigned size);
/* What 8 bytes somewhere in it do. */
struct value value_load_anywhere(const struct value *halves);
struct value value_join(struct value a, struct value b);
bool value_is_equal(struct value a, struct value b);

/* Applies instruction at to state; false when control does not go on (a call whose callee has not been seen to return). */
bool flow_step(struct step *step, struct state *state, uint32_t at);

/* In flow.c. What `size` bytes at `off` from argument id (a register number) of step's function hold, over all callers; ANY_ARG: what
 * anything in the callers' frames may be. */
#define ANY_ARG 15u
struct value flow_load_arg(struct step *step, unsigned id, int off, unsigned size);
/* Records that step's function may store value at [low, high) from what argument id held, 0 for anywhere in callers' frames. */
void flow_write(struct step *step, unsigned id, int low, int high, struct value value);
const struct effect *flow_effects(const struct step *step, uint32_t callee);
/* Records a call; returns r0's value after it, VALUE_NONE when the callee has not been seen to return. */
struct value flow_call(struct step *step, const struct state *state, uint32_t at, uint32_t callee, const struct value args[5]);

#endif
