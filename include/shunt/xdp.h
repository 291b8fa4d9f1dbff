/* SPDX-License-Identifier: MIT */
/* What an XDP program sees of a frame, and what it says. */
#ifndef SHUNT_XDP_H
#define SHUNT_XDP_H

#include <shunt/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Verdicts, as in linux/bpf.h (enum xdp_action). */
enum shunt_xdp_action {
	SHUNT_XDP_ABORTED,
	SHUNT_XDP_DROP,
	SHUNT_XDP_PASS,
	SHUNT_XDP_TX,
	SHUNT_XDP_REDIRECT,
};

/*
 * The context argument of a compiled XDP program: struct xdp_md with 64-bit pointers, so that frames may lie anywhere. Loads of data,
 * data_end and data_meta of struct xdp_md (offsets 0, 4, 8) become loads of these; ingress_ifindex (12), rx_queue_index (16) and
 * egress_ifindex (20) are the 32-bit members below. data_hard_start <= data_meta <= data <= data_end <= data_hard_end.
 */
struct shunt_xdp_ctx {
	void *data;
	void *data_end;
	void *data_meta;
	void *data_hard_start; /* start of the headroom; adjust_head and adjust_meta leave the first 40 bytes free, as the kernel does */
	void *data_hard_end;   /* highest address that adjust_tail may reach */
	uint32_t ingress_ifindex;
	uint32_t rx_queue_index;
	uint32_t egress_ifindex;
	uint32_t redirect_index; /* what redirect or redirect_map chose, when the verdict is REDIRECT */
	struct shunt_map *redirect_map; /* NULL: redirect_index is an interface */
};

/* redirect_index when redirect_map is a DEVMAP or DEVMAP_HASH and the program chose BPF_F_BROADCAST: to every entry of the map... */
#define SHUNT_XDP_BROADCAST UINT32_MAX
/* ...or, with BPF_F_EXCLUDE_INGRESS, to every entry that is not ingress_ifindex. */
#define SHUNT_XDP_BROADCAST_BUT_INGRESS (UINT32_MAX - 1)

#define SHUNT_XDP_HEADROOM 256u /* bytes before a frame, as XDP_PACKET_HEADROOM in linux/bpf.h */

#ifdef __cplusplus
}
#endif
#endif
