// SPDX-License-Identifier: MIT
// Leaves eight bytes of metadata before each frame.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("xdp") int metadata(struct xdp_md *ctx)
{
	if (bpf_xdp_adjust_meta(ctx, -8))
		return XDP_ABORTED;
	__u64 *mark = (void *)(long)ctx->data_meta;
	if ((void *)(mark + 1) > (void *)(long)ctx->data)
		return XDP_ABORTED;
	*mark = 0x1122334455667788;
	return XDP_PASS;
}

char _license[] SEC("license") = "MIT";
