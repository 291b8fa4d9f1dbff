/* SPDX-License-Identifier: MIT */
/* What clang makes of this at -O0 and -O2 is in counter.O0.ll and counter.O2.ll: clang-19 -target bpf -S -emit-llvm. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, __u64);
} flows SEC(".maps");

SEC("xdp")
int count(struct xdp_md *ctx)
{
	__u32 key = ctx->ingress_ifindex & 255;
	__u64 flow = ctx->rx_queue_index, one = 1, *value;

	value = bpf_map_lookup_elem(&counts, &key);
	if (value)
		*value += bpf_get_smp_processor_id();
	value = bpf_map_lookup_elem(&flows, &flow);
	if (!value && bpf_map_update_elem(&flows, &flow, &one, BPF_NOEXIST) < 0)
		return XDP_ABORTED;
	if (bpf_ktime_get_ns() == 0)
		bpf_map_delete_elem(&flows, &flow);
	bpf_printk("%u", key);
	return XDP_PASS;
}

char license[] SEC("license") = "Dual MIT/GPL";
