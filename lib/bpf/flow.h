/* SPDX-License-Identifier: MIT */
/*
 * The dataflow that a translation needs: where the XDP context, packet pointers and stack addresses are. A program compiled for the kernel
 * reads 32-bit fields of struct xdp_md; ours are members of struct shunt_xdp_ctx, so every load through the context must be known as
 * one. Forward over the bytecode of all wanted functions together, it follows the context through registers, stack slots, arguments of
 * subprograms and data of callbacks; what cannot be followed is refused. By the way it tells which accesses are at a constant offset of the
 * frame. flow.c walks, flow_step.c knows what one instruction does.
 */
#ifndef LIB_BPF_FLOW_H
#define LIB_BPF_FLOW_H

#include "lib/bpf/unit.h"

enum bpf_note_kind {
	BPF_NOTE_DEAD,  /* never reached */
	BPF_NOTE_PLAIN,
	BPF_NOTE_CTX,   /* load: of the context's field at `off` of struct xdp_md */
	BPF_NOTE_STACK, /* load, store, atomic: at r10 + off; move or addition: the result is r10 + off */
};

struct bpf_note {
	uint8_t kind;
	int16_t off;
};

struct bpf_flow {
	struct bpf_note **notes; /* per function: one per instruction; NULL when not wanted */
	uint32_t **blocks;       /* per function: block number of each first instruction of a block, UINT32_MAX elsewhere */
	uint32_t *nr_blocks;
	uint32_t nr_funcs;
};

/* 0, -EINVAL (program and instruction in shunt_error()) or -ENOMEM; on failure flow is empty. */
int bpf_flow_create(const struct bpf_unit *unit, const bool *wanted, struct bpf_flow *flow);
void bpf_flow_destroy(struct bpf_flow *flow);

#endif
