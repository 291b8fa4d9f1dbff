// SPDX-License-Identifier: MIT
// Redirects to entry 1 of a device map, passes when there is none.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u32);
} devices SEC(".maps");

SEC("xdp") int redirect(struct xdp_md *ctx)
{
	return bpf_redirect_map(&devices, 1, XDP_PASS);
}

char _license[] SEC("license") = "MIT";
