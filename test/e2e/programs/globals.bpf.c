// SPDX-License-Identifier: MIT
// Keeps everything it learns in global variables, zero ones and others.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

__u64 frames, bytes, longest;
__u64 shortest = 65535;

SEC("xdp") int globals(struct xdp_md *ctx)
{
	__u64 len = ctx->data_end - ctx->data;

	frames++;
	bytes += len;
	if (len > longest)
		longest = len;
	if (len < shortest)
		shortest = len;
	return XDP_PASS;
}

char _license[] SEC("license") = "MIT";
