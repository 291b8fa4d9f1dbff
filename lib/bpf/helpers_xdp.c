/* SPDX-License-Identifier: MIT */
/* Helpers on frames: where they begin and end, where they go, and their checksums. Limits and results are those of Linux 6.18. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <linux/bpf.h>
#include "lib/bpf/helpers.h"

#define MIN_FRAME 14 /* an Ethernet header */
#define MAX_METADATA 252
#define FRAME_HEADER 40 /* what the kernel keeps for itself at the start of the headroom */
#define ACTION_MASK 3u
#define DEVMAP_FLAGS (1u << 3 | 1u << 4) /* broadcast, and not to where the frame came from */
#define IS_BROADCAST (1u << 3)
#define IS_BUT_INGRESS (1u << 4)

#define CTX(reg) ((struct shunt_xdp_ctx *)(uintptr_t)(reg))
#define RESULT(value) ((uint64_t)(int64_t)(value))

/* ---- redirection ---------------------------------------------------------------------------------------------- */

/* redirect and redirect_map have no context argument: what they chose waits here for the exit of the program that called them. */
static __thread struct {
	struct shunt_map *map;
	uint32_t index;
	bool is_pending;
} chosen;

uint64_t bpf_helper_redirect(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5)
{
	if (r2)
		return SHUNT_XDP_ABORTED;
	chosen.map = NULL;
	chosen.index = (uint32_t)r1;
	chosen.is_pending = true;
	return SHUNT_XDP_REDIRECT;
}

uint64_t bpf_helper_redirect_map(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5)
{
	struct shunt_map *map = (struct shunt_map *)(uintptr_t)r1;
	uint32_t type = shunt_map_abi(map)->type, key = (uint32_t)r2;
	bool is_devmap = type == SHUNT_MAP_DEVMAP || type == SHUNT_MAP_DEVMAP_HASH;

	if (r3 & ~(uint64_t)(is_devmap ? ACTION_MASK | DEVMAP_FLAGS : ACTION_MASK))
		return SHUNT_XDP_ABORTED;
	if (!is_devmap && type != SHUNT_MAP_CPUMAP && type != SHUNT_MAP_XSKMAP)
		return SHUNT_XDP_ABORTED;
	chosen.is_pending = false;
	/* Broadcast looks at no key. */
	if (!(r3 & IS_BROADCAST) && !shunt_map_lookup(map, &key))
		return r3 & ACTION_MASK;
	chosen.map = map;
	chosen.index = !(r3 & IS_BROADCAST) ? key : r3 & IS_BUT_INGRESS ? SHUNT_XDP_BROADCAST_BUT_INGRESS : SHUNT_XDP_BROADCAST;
	chosen.is_pending = true;
	return SHUNT_XDP_REDIRECT;
}

uint64_t bpf_helper_redirect_done(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5)
{
	if (chosen.is_pending && (uint32_t)r2 == SHUNT_XDP_REDIRECT) {
		CTX(r1)->redirect_map = chosen.map;
		CTX(r1)->redirect_index = chosen.index;
	}
	chosen.is_pending = false;
	return 0;
}

/* ---- reports -------------------------------------------------------------------------------------------------- */

/* Nobody listens to a PERF_EVENT_ARRAY here: what is left are the kernel's checks, in its order, and its answer to that. */
uint64_t bpf_helper_perf_event_output(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5)
{
	const struct shunt_map_abi *map = shunt_map_abi((struct shunt_map *)(uintptr_t)r2);
	uint64_t index = r3 & BPF_F_INDEX_MASK, frame_len = (r3 & BPF_F_CTXLEN_MASK) >> 32;

	if (map->type != SHUNT_MAP_PERF_EVENT_ARRAY || (r3 & ~(BPF_F_INDEX_MASK | BPF_F_CTXLEN_MASK)))
		return RESULT(-EINVAL);
	if (frame_len > bpf_helper_xdp_get_buff_len(r1, 0, 0, 0, 0))
		return RESULT(-EFAULT);
	if (index == BPF_F_CURRENT_CPU)
		index = shunt_cpu_id();
	return RESULT(index < map->max_entries ? -ENOENT : -E2BIG);
}

/* ---- the frame's ends ----------------------------------------------------------------------------------------- */

/* Comparisons are on integers: an offset may lead outside of every object. */
static intptr_t address(const void *p)
{
	return (intptr_t)p;
}

uint64_t bpf_helper_xdp_adjust_head(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5)
{
	struct shunt_xdp_ctx *ctx = CTX(r1);
	int32_t offset = (int32_t)r2;
	intptr_t metadata = address(ctx->data) - address(ctx->data_meta);
	intptr_t data = address(ctx->data) + offset;

	/* Moving up is fine in every headroom, also one too small for the header. */
	if ((offset < 0 && data < address(ctx->data_hard_start) + FRAME_HEADER + metadata) || data > address(ctx->data_end) - MIN_FRAME)
		return RESULT(-EINVAL);
	if (metadata)
		memmove((void *)(address(ctx->data_meta) + offset), ctx->data_meta, (size_t)metadata);
	ctx->data_meta = (void *)(address(ctx->data_meta) + offset);
	ctx->data = (void *)data;
	return 0;
}

uint64_t bpf_helper_xdp_adjust_meta(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5)
{
	struct shunt_xdp_ctx *ctx = CTX(r1);
	intptr_t meta = address(ctx->data_meta) + (int32_t)r2;
	intptr_t len = address(ctx->data) - meta;

	if (((int32_t)r2 < 0 && meta < address(ctx->data_hard_start) + FRAME_HEADER) || len < 0)
		return RESULT(-EINVAL);
	if (len % 4 || len > MAX_METADATA)
		return RESULT(-EACCES);
	ctx->data_meta = (void *)meta;
	return 0;
}

uint64_t bpf_helper_xdp_adjust_tail(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5)
{
	struct shunt_xdp_ctx *ctx = CTX(r1);
	int32_t offset = (int32_t)r2;
	intptr_t end = address(ctx->data_end) + offset;

	if (end > address(ctx->data_hard_end) || end < address(ctx->data) + MIN_FRAME)
		return RESULT(-EINVAL);
	if (offset > 0)
		memset(ctx->data_end, 0, (size_t)offset);
	ctx->data_end = (void *)end;
	return 0;
}

uint64_t bpf_helper_xdp_get_buff_len(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5)
{
	return (uint64_t)(address(CTX(r1)->data_end) - address(CTX(r1)->data));
}

/* len bytes at offset of the frame, or NULL with the kernel's error. */
static void *frame_bytes(const struct shunt_xdp_ctx *ctx, uint64_t offset, uint64_t len, int *error)
{
	*error = -EFAULT;
	if ((uint32_t)offset > 0xffff || (uint32_t)len > 0xffff)
		return NULL;
	*error = -EINVAL;
	if ((uint32_t)offset + (uint32_t)len > address(ctx->data_end) - address(ctx->data))
		return NULL;
	return (char *)ctx->data + (uint32_t)offset;
}

uint64_t bpf_helper_xdp_load_bytes(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5)
{
	int error;
	void *bytes = frame_bytes(CTX(r1), r2, r4, &error);

	if (!bytes)
		return RESULT(error);
	memcpy((void *)(uintptr_t)r3, bytes, (uint32_t)r4);
	return 0;
}

uint64_t bpf_helper_xdp_store_bytes(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5)
{
	int error;
	void *bytes = frame_bytes(CTX(r1), r2, r4, &error);

	if (!bytes)
		return RESULT(error);
	memcpy(bytes, (const void *)(uintptr_t)r3, (uint32_t)r4);
	return 0;
}

/* ---- checksums ------------------------------------------------------------------------------------------------ */

static uint32_t add_carry(uint32_t a, uint32_t b)
{
	uint64_t sum = (uint64_t)a + b;

	return (uint32_t)(sum + (sum >> 32));
}

/* One's complement sum of 32-bit words, the last one filled up with zeros. */
static uint32_t sum_words(const char *bytes, uint32_t len, uint32_t sum)
{
	for (uint32_t i = 0; i < len; i += 4) {
		uint32_t word = 0;

		memcpy(&word, bytes + i, len - i < sizeof(word) ? len - i : sizeof(word));
		sum = add_carry(sum, word);
	}
	return sum;
}

uint64_t bpf_helper_csum_diff(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5)
{
	const char *from = (const char *)(uintptr_t)r1, *to = (const char *)(uintptr_t)r3;
	uint32_t from_size = (uint32_t)r2, to_size = (uint32_t)r4, sum = (uint32_t)r5;

	if (from_size && to_size)
		sum = add_carry(sum_words(to, to_size, sum), ~sum_words(from, from_size, 0));
	else if (to_size)
		sum = sum_words(to, to_size, sum);
	else if (from_size)
		sum = ~sum_words(from, from_size, ~sum);
	return (uint16_t)((sum + (sum << 16 | sum >> 16)) >> 16);
}
