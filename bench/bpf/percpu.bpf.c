// SPDX-License-Identifier: MIT
/*
 * What bench_percpu measures, compiled once for the kernel and for us. Each program does 1,000 operations a run; a "keys" program goes over
 * 256 keys, a "const" one stays on one. `loop` is what all of them do besides: count, and store a key.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define NR_OPS 1000
#define NR_KEYS 256

struct counter {
	__u64 value;
} __attribute__((aligned(64)));

/* glob-arr-inc: one counter a CPU, without a map. */
struct counter counters[NR_KEYS];

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, NR_KEYS);
	__type(key, __u32);
	__type(value, __u64);
} per_cpu_array SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, NR_KEYS);
	__type(key, __u32);
	__type(value, __u64);
} per_cpu_hash SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, NR_KEYS);
	__type(key, __u32);
	__type(value, __u64);
} shared_hash SEC(".maps");

static __always_inline void inc(void *map, __u32 *key)
{
	__u64 *value = bpf_map_lookup_elem(map, key);

	if (value)
		*value += 1;
}

SEC("xdp")
int loop(struct xdp_md *ctx)
{
	volatile __u32 key;

	for (__u32 i = 0; i < NR_OPS; i++)
		key = i & (NR_KEYS - 1);
	return XDP_PASS;
}

SEC("xdp")
int glob_arr_inc(struct xdp_md *ctx)
{
	for (__u32 i = 0; i < NR_OPS; i++)
		counters[bpf_get_smp_processor_id() & (NR_KEYS - 1)].value++;
	return XDP_PASS;
}

SEC("xdp")
int arr_inc_keys(struct xdp_md *ctx)
{
	for (__u32 i = 0; i < NR_OPS; i++) {
		__u32 key = i & (NR_KEYS - 1);

		inc(&per_cpu_array, &key);
	}
	return XDP_PASS;
}

SEC("xdp")
int arr_inc_const(struct xdp_md *ctx)
{
	__u32 key = 7;

	for (__u32 i = 0; i < NR_OPS; i++)
		inc(&per_cpu_array, &key);
	return XDP_PASS;
}

SEC("xdp")
int hash_inc_keys(struct xdp_md *ctx)
{
	for (__u32 i = 0; i < NR_OPS; i++) {
		__u32 key = i & (NR_KEYS - 1);

		inc(&per_cpu_hash, &key);
	}
	return XDP_PASS;
}

SEC("xdp")
int hash_inc_const(struct xdp_md *ctx)
{
	__u32 key = 7;

	for (__u32 i = 0; i < NR_OPS; i++)
		inc(&per_cpu_hash, &key);
	return XDP_PASS;
}

SEC("xdp")
int shared_hash_inc_keys(struct xdp_md *ctx)
{
	for (__u32 i = 0; i < NR_OPS; i++) {
		__u32 key = i & (NR_KEYS - 1);

		inc(&shared_hash, &key);
	}
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";
