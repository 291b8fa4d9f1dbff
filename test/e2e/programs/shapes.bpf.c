// SPDX-License-Identifier: MIT
// Everything that differs between an object and IR until code is generated: maps of several types, globals in each kind of section, subprograms
// that get the context, a callback, a CO-RE access, inline assembly, and frames that are written to. What the globals and frames hold at
// the end of a call is added up in a map. CONST_HELPERS: helpers as newer libbpf headers declare them.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#ifdef CONST_HELPERS
static void *(*const lookup)(void *map, const void *key) = (void *)1;
static long (*const update)(void *map, const void *key, const void *value, __u64 flags) = (void *)2;
#else
static void *(*lookup)(void *map, const void *key) = (void *)1;
static long (*update)(void *map, const void *key, const void *value, __u64 flags) = (void *)2;
#endif

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 8);
	__type(key, __u32);
	__type(value, __u64);
} verdicts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u64);
} sources SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u16);
	__type(value, __u64);
} protocols SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 8);
	__type(key, __u32);
	__type(value, __u64);
} sums SEC(".maps");

struct ethhdr {
	unsigned char h_dest[6], h_source[6];
	__be16 h_proto;
} __attribute__((preserve_access_index));

const volatile __u64 step = 3;       /* .rodata */
__u64 weight = 5;                    /* .data */
static volatile __u64 seen[2];       /* .bss */
static const __u32 odd[4] = { 7, 1, 5, 3 };

static __attribute__((noinline)) __u64 length(struct xdp_md *ctx)
{
	return ctx->data_end - ctx->data;
}

/* The sum of the first 32 bytes, as they are now. */
static __attribute__((noinline)) __u64 sum_of(struct xdp_md *ctx)
{
	unsigned char *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u64 sum = 0;

	if (data + 32 > end)
		return 0;
	for (int i = 0; i < 32; i++)
		sum = sum * 31 + data[i];
	return sum;
}

static long count_up(__u32 index, void *total)
{
	*(__u64 *)total += index * step;
	return 0;
}

static __attribute__((noinline)) void add(__u32 index, __u64 value)
{
	__u64 *sum = lookup(&sums, &index);

	if (sum)
		__sync_fetch_and_add(sum, value);
}

SEC("xdp") int shapes(struct xdp_md *ctx)
{
	unsigned char *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = (void *)data;
	__u64 one = 1, total = 0, *value;
	__u32 source = 0, verdict;
	__u16 protocol;

	if (data + 34 > end)
		return XDP_ABORTED;
	protocol = eth->h_proto;
	value = lookup(&protocols, &protocol);
	if (value)
		*value += 1;
	else
		update(&protocols, &protocol, &one, BPF_ANY);
	source = *(__u32 *)(data + 26);
	value = lookup(&sources, &source);
	if (value)
		__sync_fetch_and_add(value, length(ctx));
	else
		update(&sources, &source, &one, BPF_ANY);

	data[0] ^= (unsigned char)odd[source & 3];
	data[5] = data[11];
	seen[source & 1]++;
	weight += seen[0] ^ step;
	bpf_loop(4, count_up, &total, 0);
	asm volatile("%0 <<= 1" : "+r"(total));
	add(0, total);
	add(1, sum_of(ctx));
	add(2, weight);
	add(3, seen[1]);
	verdict = ctx->rx_queue_index + (source & 1 ? XDP_PASS : XDP_TX);
	value = lookup(&verdicts, &verdict);
	if (value)
		*value += 1;
	return verdict;
}

char _license[] SEC("license") = "GPL";
