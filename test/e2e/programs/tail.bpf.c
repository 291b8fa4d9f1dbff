// SPDX-License-Identifier: MIT
// Chains itself through a statically filled program array until the limit, and counts.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

__u64 runs;

int chain(struct xdp_md *ctx);

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 2);
	__uint(key_size, 4);
	__array(values, int(struct xdp_md *));
} programs SEC(".maps") = { .values = { [1] = &chain } };

SEC("xdp") int chain(struct xdp_md *ctx)
{
	runs++;
	bpf_tail_call(ctx, &programs, 1);
	return XDP_DROP;
}

char _license[] SEC("license") = "MIT";
