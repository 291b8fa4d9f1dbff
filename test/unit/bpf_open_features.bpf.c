/* SPDX-License-Identifier: MIT */
/* What real objects at hand lack: subprograms, callbacks, data sections that point to each other, maps of maps, program arrays, externs. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "MIT";

struct inner {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
};
struct inner first SEC(".maps"), second SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 8);
	__uint(key_size, 4);
	__array(values, struct inner);
} outer SEC(".maps") = { .values = { [1] = &first, [5] = &second } };

int xdp_tail(struct xdp_md *ctx);

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 4);
	__uint(key_size, 4);
	__array(values, int(void *));
} jumps SEC(".maps") = { .values = { [2] = (void *)&xdp_tail } };

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

const volatile __u32 limit = 7;
const char *volatile text = "hello";
__u64 counter = 5;
static __u64 zeroed[3];

static __attribute__((noinline)) __u64 twice(__u64 x)
{
	zeroed[1] += x;
	return x * 2 + limit;
}

__attribute__((noinline)) int weigh(__u64 x)
{
	return (int)twice(x + 1) + (int)counter;
}

static long add_one(__u32 index, void *sum)
{
	*(__u64 *)sum += index;
	return 0;
}

SEC("xdp") int xdp_calls(struct xdp_md *ctx)
{
	return weigh(twice(3)) > 5 ? XDP_PASS : XDP_DROP;
}

SEC("xdp/text") int xdp_text(struct xdp_md *ctx)
{
	return text[0] == 'h' ? XDP_PASS : XDP_DROP;
}

SEC("xdp") int xdp_loops(struct xdp_md *ctx)
{
	__u64 sum = 0;

	bpf_loop(4, add_one, &sum, 0);
	return sum == 6 ? XDP_PASS : XDP_DROP;
}

SEC("xdp.frags") int xdp_jumps(struct xdp_md *ctx)
{
	bpf_tail_call(ctx, &jumps, 2);
	return XDP_ABORTED;
}

SEC("xdp") int xdp_tail(struct xdp_md *ctx)
{
	return XDP_TX;
}

SEC("xdp") int xdp_nested(struct xdp_md *ctx)
{
	__u32 key = 5, zero = 0;
	void *map = bpf_map_lookup_elem(&outer, &key);
	__u64 *value = map ? bpf_map_lookup_elem(map, &zero) : 0;

	return value ? (int)*value : XDP_ABORTED;
}

SEC("xdp") int xdp_events(struct xdp_md *ctx)
{
	return bpf_ringbuf_output(&events, &counter, 8, 0) ? XDP_DROP : XDP_PASS;
}

extern int LINUX_KERNEL_VERSION __kconfig;
extern const int kernel_only __ksym;
extern const int kernel_maybe __ksym __weak;
extern void kernel_call(void) __ksym;
extern void kernel_call_maybe(void) __ksym __weak;

SEC("xdp") int xdp_kconfig(struct xdp_md *ctx)
{
	return LINUX_KERNEL_VERSION;
}

SEC("xdp") int xdp_ksym(struct xdp_md *ctx)
{
	return kernel_only;
}

SEC("xdp") int xdp_weak(struct xdp_md *ctx)
{
	if (&kernel_maybe)
		return XDP_DROP;
	if (kernel_call_maybe)
		kernel_call_maybe();
	return XDP_PASS;
}

SEC("xdp") int xdp_kfunc(struct xdp_md *ctx)
{
	kernel_call();
	return XDP_PASS;
}

SEC("xdp") int xdp_license(struct xdp_md *ctx)
{
	return *(volatile char *)LICENSE;
}

struct task_struct {
	int pid;
} __attribute__((preserve_access_index));

SEC("xdp") int xdp_core(struct xdp_md *ctx)
{
	struct task_struct *task = (void *)(long)ctx->data;

	return task->pid;
}

struct ethhdr {
	unsigned char dest[6], source[6];
	__be16 proto;
} __attribute__((preserve_access_index));

SEC("xdp") int xdp_headers(struct xdp_md *ctx)
{
	struct ethhdr *eth = (void *)(long)ctx->data;

	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	return eth->proto ? XDP_PASS : XDP_DROP;
}

SEC("tc") int tc_pass(struct __sk_buff *skb)
{
	return 0;
}

SEC("fentry/do_nothing") int trace(void *ctx)
{
	return 0;
}

SEC("?custom/thing") int custom(void *ctx)
{
	return 0;
}
