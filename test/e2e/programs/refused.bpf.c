// SPDX-License-Identifier: MIT
// Reads a frame without looking at its end: the verifier refuses it.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("xdp") int refused(struct xdp_md *ctx)
{
	return *(unsigned char *)(long)ctx->data & 1 ? XDP_PASS : XDP_DROP;
}

char _license[] SEC("license") = "MIT";
