/* SPDX-License-Identifier: MIT */
/*
 * The table of BPF helpers: numbers and names as in linux/bpf.h, which of them are built in, and the small ones. A number with a name and
 * no function is a helper that only a kernel can serve; the host may still set it.
 */
#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#include <sys/syscall.h>
#include "lib/bpf/helpers.h"
#include "lib/bpf/translate_isa.h"

#define HELPER(name) static DECLARE_HELPER(name)
#define MAP(reg) ((struct shunt_map *)(uintptr_t)(reg))
#define POINTER(reg) ((void *)(uintptr_t)(reg))
#define RESULT(value) ((uint64_t)(int64_t)(value))

HELPER(map_lookup_elem)
{
	return (uintptr_t)shunt_map_lookup(MAP(r1), POINTER(r2));
}

HELPER(map_update_elem)
{
	return RESULT(shunt_map_update(MAP(r1), POINTER(r2), POINTER(r3), r4));
}

HELPER(map_delete_elem)
{
	return RESULT(shunt_map_delete(MAP(r1), POINTER(r2)));
}

HELPER(map_lookup_percpu_elem)
{
	return (uintptr_t)shunt_map_lookup_of(MAP(r1), POINTER(r2), (uint32_t)r3);
}

static uint64_t nanoseconds(clockid_t clock)
{
	struct timespec now = { 0 };

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

HELPER(ktime_get_ns)
{
	return nanoseconds(CLOCK_MONOTONIC);
}

HELPER(ktime_get_boot_ns)
{
	return nanoseconds(CLOCK_BOOTTIME);
}

HELPER(ktime_get_coarse_ns)
{
	return nanoseconds(CLOCK_MONOTONIC_COARSE);
}

HELPER(ktime_get_tai_ns)
{
	return nanoseconds(CLOCK_TAI);
}

/* splitmix64, seeded once per thread: programs want speed and spread, not secrets. */
HELPER(get_prandom_u32)
{
	static __thread uint64_t state;
	static __thread bool is_seeded;
	uint64_t z;

	if (!is_seeded) {
		if (getrandom(&state, sizeof(state), GRND_NONBLOCK) != sizeof(state))
			state = nanoseconds(CLOCK_MONOTONIC) ^ (uintptr_t)&state;
		is_seeded = true;
	}
	state += 0x9e3779b97f4a7c15u;
	z = state;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return (uint32_t)((z ^ (z >> 31)) >> 32);
}

HELPER(get_smp_processor_id)
{
	return shunt_cpu_id();
}

HELPER(get_current_pid_tgid)
{
	return (uint64_t)(uint32_t)getpid() << 32 | (uint32_t)syscall(SYS_gettid);
}

HELPER(get_current_comm)
{
	char name[16] = { 0 };
	uint32_t size = (uint32_t)r2;

	if (!size || prctl(PR_GET_NAME, name))
		return RESULT(-EINVAL);
	memset(POINTER(r1), 0, size);
	memcpy(POINTER(r1), name, size < sizeof(name) ? size - 1 : sizeof(name) - 1);
	return 0;
}

static const struct helper {
	const char *name;
	uint8_t nr_args;
	shunt_bpf_helper_fn *fn;
} helpers[] = {
	[1] = { "map_lookup_elem", 2, map_lookup_elem },
	[2] = { "map_update_elem", 4, map_update_elem },
	[3] = { "map_delete_elem", 2, map_delete_elem },
	[4] = { "probe_read", 3, NULL },
	[5] = { "ktime_get_ns", 0, ktime_get_ns },
	[6] = { "trace_printk", 5, bpf_helper_trace_printk },
	[7] = { "get_prandom_u32", 0, get_prandom_u32 },
	[8] = { "get_smp_processor_id", 0, get_smp_processor_id },
	[9] = { "skb_store_bytes", 5, NULL },
	[10] = { "l3_csum_replace", 5, NULL },
	[11] = { "l4_csum_replace", 5, NULL },
	[12] = { "tail_call", 3, NULL },
	[13] = { "clone_redirect", 3, NULL },
	[14] = { "get_current_pid_tgid", 0, get_current_pid_tgid },
	[15] = { "get_current_uid_gid", 0, NULL },
	[16] = { "get_current_comm", 2, get_current_comm },
	[18] = { "skb_vlan_push", 3, NULL },
	[22] = { "perf_event_read", 2, NULL },
	[23] = { "redirect", 2, bpf_helper_redirect },
	[25] = { "perf_event_output", 5, bpf_helper_perf_event_output },
	[26] = { "skb_load_bytes", 4, NULL },
	[27] = { "get_stackid", 3, NULL },
	[28] = { "csum_diff", 5, bpf_helper_csum_diff },
	[35] = { "get_current_task", 0, NULL },
	[36] = { "probe_write_user", 3, NULL },
	[44] = { "xdp_adjust_head", 2, bpf_helper_xdp_adjust_head },
	[45] = { "probe_read_str", 3, NULL },
	[46] = { "get_socket_cookie", 1, NULL },
	[51] = { "redirect_map", 3, bpf_helper_redirect_map },
	[54] = { "xdp_adjust_meta", 2, bpf_helper_xdp_adjust_meta },
	[65] = { "xdp_adjust_tail", 2, bpf_helper_xdp_adjust_tail },
	[67] = { "get_stack", 4, NULL },
	[69] = { "fib_lookup", 4, NULL },
	[80] = { "get_current_cgroup_id", 0, NULL },
	[84] = { "sk_lookup_tcp", 5, NULL },
	[85] = { "sk_lookup_udp", 5, NULL },
	[86] = { "sk_release", 1, NULL },
	[87] = { "map_push_elem", 3, NULL },
	[88] = { "map_pop_elem", 2, NULL },
	[89] = { "map_peek_elem", 2, NULL },
	[93] = { "spin_lock", 1, NULL },
	[94] = { "spin_unlock", 1, NULL },
	[99] = { "skc_lookup_tcp", 5, NULL },
	[100] = { "tcp_check_syncookie", 5, NULL },
	[105] = { "strtol", 4, bpf_helper_strtol },
	[106] = { "strtoul", 4, bpf_helper_strtoul },
	[107] = { "sk_storage_get", 4, NULL },
	[110] = { "tcp_gen_syncookie", 5, NULL },
	[112] = { "probe_read_user", 3, NULL },
	[113] = { "probe_read_kernel", 3, NULL },
	[114] = { "probe_read_user_str", 3, NULL },
	[115] = { "probe_read_kernel_str", 3, NULL },
	[118] = { "jiffies64", 0, NULL },
	[121] = { "xdp_output", 5, NULL },
	[125] = { "ktime_get_boot_ns", 0, ktime_get_boot_ns },
	[130] = { "ringbuf_output", 4, NULL },
	[131] = { "ringbuf_reserve", 3, NULL },
	[132] = { "ringbuf_submit", 2, NULL },
	[133] = { "ringbuf_discard", 2, NULL },
	[134] = { "ringbuf_query", 2, NULL },
	[148] = { "copy_from_user", 3, NULL },
	[149] = { "snprintf_btf", 5, NULL },
	[153] = { "per_cpu_ptr", 2, NULL },
	[154] = { "this_cpu_ptr", 1, NULL },
	[158] = { "get_current_task_btf", 0, NULL },
	[160] = { "ktime_get_coarse_ns", 0, ktime_get_coarse_ns },
	[163] = { "check_mtu", 5, NULL },
	[164] = { "for_each_map_elem", 4, bpf_helper_for_each_map_elem },
	[165] = { "snprintf", 5, NULL },
	[169] = { "timer_init", 3, NULL },
	[177] = { "trace_vprintk", 4, NULL },
	[181] = { "loop", 4, bpf_helper_loop },
	[182] = { "strncmp", 3, bpf_helper_strncmp },
	[188] = { "xdp_get_buff_len", 1, bpf_helper_xdp_get_buff_len },
	[189] = { "xdp_load_bytes", 4, bpf_helper_xdp_load_bytes },
	[190] = { "xdp_store_bytes", 4, bpf_helper_xdp_store_bytes },
	[194] = { "kptr_xchg", 2, NULL },
	[195] = { "map_lookup_percpu_elem", 3, map_lookup_percpu_elem },
	[197] = { "dynptr_from_mem", 4, NULL },
	[208] = { "ktime_get_tai_ns", 0, ktime_get_tai_ns },
	[209] = { "user_ringbuf_drain", 4, NULL },
};
#define NR_HELPERS (sizeof(helpers) / sizeof(helpers[0]))

shunt_bpf_helper_fn *bpf_helper_builtin(uint32_t number)
{
	switch (number) {
	case HELPER_TAIL_CALL:
		return bpf_helper_tail_call;
	case HELPER_CHAIN_ENTER:
		return bpf_helper_chain_enter;
	case HELPER_CHAIN_LEAVE:
		return bpf_helper_chain_leave;
	case HELPER_REDIRECT_DONE:
		return bpf_helper_redirect_done;
	default:
		return number < NR_HELPERS ? helpers[number].fn : NULL;
	}
}

/* Loops call their callback by its address, so only tail calls need code of their own. */
bool bpf_helper_is_expanded(uint32_t number)
{
	return number == HELPER_TAIL_CALL_BPF;
}

const char *bpf_helper_name(uint32_t number)
{
	return number < NR_HELPERS ? helpers[number].name : NULL;
}

unsigned bpf_helper_nr_args(uint32_t number)
{
	/* The host may have put a function of its own behind a kernel's number: only built-in ones are known to read less than five. */
	return number < NR_HELPERS && helpers[number].fn ? helpers[number].nr_args : 5;
}
