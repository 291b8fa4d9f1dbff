/* SPDX-License-Identifier: MIT */
/* Built-in helpers by file, and the run-time state of tail calls that generated code keeps on its stack. */
#ifndef LIB_BPF_HELPERS_H
#define LIB_BPF_HELPERS_H

#include "lib/bpf/unit.h"

/*
 * Tail calls. A program that may make one has a link on its stack, entered in a per-thread list for as long as it runs. `count` points to
 * the number of tail calls since the outermost program began: a program that a tail call runs takes over the counter of its caller,
 * which tail_call leaves in a thread variable right before it calls the entry; a program run from elsewhere starts its own. The
 * layout is known to the translator by size only (BPF_CHAIN_SIZE).
 */
struct bpf_chain {
	struct bpf_chain *outer;
	uint32_t *count;
	uint64_t len;  /* of the memory that a program without XDP context runs on */
	uint32_t own;
	uint32_t reserved;
};
#define BPF_CHAIN_SIZE 32

/* How many of r1-r5 a known helper reads; 5 for an unknown one. */
unsigned bpf_helper_nr_args(uint32_t number);

#define DECLARE_HELPER(name) uint64_t name(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5)

/* helpers_xdp.c */
DECLARE_HELPER(bpf_helper_perf_event_output);
DECLARE_HELPER(bpf_helper_redirect);
DECLARE_HELPER(bpf_helper_redirect_map);
DECLARE_HELPER(bpf_helper_redirect_done);
DECLARE_HELPER(bpf_helper_csum_diff);
DECLARE_HELPER(bpf_helper_xdp_adjust_head);
DECLARE_HELPER(bpf_helper_xdp_adjust_meta);
DECLARE_HELPER(bpf_helper_xdp_adjust_tail);
DECLARE_HELPER(bpf_helper_xdp_get_buff_len);
DECLARE_HELPER(bpf_helper_xdp_load_bytes);
DECLARE_HELPER(bpf_helper_xdp_store_bytes);

/* helpers_text.c */
DECLARE_HELPER(bpf_helper_trace_printk);
DECLARE_HELPER(bpf_helper_strtol);
DECLARE_HELPER(bpf_helper_strtoul);
DECLARE_HELPER(bpf_helper_strncmp);

/* helpers_call.c: helpers that run programs and callbacks. */
DECLARE_HELPER(bpf_helper_tail_call);
DECLARE_HELPER(bpf_helper_chain_enter);
DECLARE_HELPER(bpf_helper_chain_leave);
DECLARE_HELPER(bpf_helper_loop);
DECLARE_HELPER(bpf_helper_for_each_map_elem);

#endif
