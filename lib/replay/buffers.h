/* SPDX-License-Identifier: MIT */
/*
 * Receive buffers: every frame of the capture in memory with headroom and tailroom as the kernel's BPF_PROG_TEST_RUN gives it, and its XDP
 * context. Programs may move the context's pointers and write to frames; restore undoes both.
 */
#ifndef LIB_REPLAY_BUFFERS_H
#define LIB_REPLAY_BUFFERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <shunt/xdp.h>
#include "lib/replay/capture.h"

struct shunt_replay_buffers {
	uint8_t *memory;
	size_t memory_len;
	struct shunt_xdp_ctx *contexts;       /* one a frame */
	struct shunt_xdp_ctx *templates;      /* as they were */
	const struct shunt_replay_capture *capture;
};

/* nr_queues spreads the frames: frame i's rx_queue_index is shunt_replay_queue_of(). -ENOMEM. */
int shunt_replay_buffers_create(const struct shunt_replay_capture *capture, uint32_t nr_queues, uint32_t ifindex,
				struct shunt_replay_buffers **out);
void shunt_replay_buffers_destroy(struct shunt_replay_buffers *buffers);

/* Puts frame i's context back, and its bytes when bytes is true. */
void shunt_replay_buffers_restore(struct shunt_replay_buffers *buffers, size_t i, bool bytes);

/* True when the program left frame i other than it was: moved, resized or written. */
bool shunt_replay_buffers_is_changed(const struct shunt_replay_buffers *buffers, size_t i);

/* True when the program moved frame i's pointers; looks at the context only, which is in the cache after the program ran. */
static inline bool shunt_replay_buffers_is_moved(const struct shunt_replay_buffers *buffers, size_t i)
{
	const struct shunt_xdp_ctx *ctx = &buffers->contexts[i];
	uint8_t *data = (uint8_t *)ctx->data_hard_start + SHUNT_XDP_HEADROOM;

	return ctx->data != data || ctx->data_meta != data || ctx->data_end != data + buffers->capture->frames[i].len;
}

static inline uint32_t shunt_replay_queue_of(const struct shunt_replay_frame *frame, uint32_t nr_queues)
{
	return frame->flow_hash % nr_queues;
}

#endif
