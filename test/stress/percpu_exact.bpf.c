// SPDX-License-Identifier: MIT
/* Programs that count in per-CPU maps the ways real ones do; each adds NR_ADDS to its sum a run. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define NR_ADDS 1000

struct record {
	__u64 packets;
	__u64 bytes;
	__u32 small;
	__u16 smaller;
	__u8 smallest;
	__u8 flags;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, struct record);
} array SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 64);
	__type(key, __u64);
	__type(value, __u64);
} hash SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
} shared SEC(".maps");

/* A counter and its neighbours; the sum is in packets, bytes is twice that. */
SEC("xdp")
int count_array(struct xdp_md *ctx)
{
	for (int i = 0; i < NR_ADDS; i++) {
		__u32 key = i & 3;
		struct record *record = bpf_map_lookup_elem(&array, &key);

		if (!record)
			return XDP_ABORTED;
		record->packets++;
		record->bytes += 2;
		record->small += 3;
		record->smaller += 5;
		record->smallest += 7;
	}
	return XDP_PASS;
}

/* The same with nothing between one update and the next, and few of them: for whoever goes through it step by step. */
SEC("xdp")
int count_few(struct xdp_md *ctx)
{
	for (__u32 key = 0; key < 4; key++) {
		struct record *record = bpf_map_lookup_elem(&array, &key);

		if (!record)
			return XDP_ABORTED;
		record->packets++;
		record->bytes += 2;
		record->small += 3;
		record->smaller += 5;
		record->smallest += 7;
	}
	return XDP_PASS;
}

/* The load tests a mask in one block, the store counts in another, and the two lookups' ends meet: as packet filters do. */
SEC("xdp")
int count_marked(struct xdp_md *ctx)
{
	for (int i = 0; i < NR_ADDS; i++) {
		__u64 key = i & 63;
		__u32 index = 1;
		__u64 *value = bpf_map_lookup_elem(&hash, &key);

		if (value && (*value & 1)) {
			*value += 1 << 1;
			continue;
		}
		value = bpf_map_lookup_elem(&array, &index);
		if (!value)
			return XDP_ABORTED;
		if ((*value & 1) == 0)
			*value += 1 << 1;
	}
	return XDP_PASS;
}

/* Load and store far apart: what is lost when the policy is plain. */
SEC("xdp")
int count_slowly(struct xdp_md *ctx)
{
	for (int i = 0; i < NR_ADDS; i++) {
		__u32 key = 0;
		struct record *record = bpf_map_lookup_elem(&array, &key);
		__u64 packets;

		if (!record)
			return XDP_ABORTED;
		packets = record->packets;
		if (bpf_ktime_get_ns() == 1)
			return XDP_DROP;
		record->packets = packets + 1;
	}
	return XDP_PASS;
}

SEC("xdp")
int count_shared(struct xdp_md *ctx)
{
	for (int i = 0; i < NR_ADDS; i++) {
		__u32 key = i & 3;
		__u64 *value = bpf_map_lookup_elem(&shared, &key);

		if (!value)
			return XDP_ABORTED;
		*value += 1;
	}
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";
