/* SPDX-License-Identifier: MIT */
/*
 * One receive buffer a frame, a page and a cache line apart: with whole pages all frames would start in the same set of the first-level
 * cache, which eight of them fill.
 */
#include "lib/replay/buffers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "runtime/log.h"

#define BUFFER_STRIDE (4096u + 64u)

static void fill(struct shunt_replay_buffers *buffers, uint32_t nr_queues, uint32_t ifindex)
{
	for (size_t i = 0; i < buffers->capture->nr_frames; i++) {
		const struct shunt_replay_frame *frame = &buffers->capture->frames[i];
		uint8_t *start = buffers->memory + i * BUFFER_STRIDE;
		uint8_t *data = start + SHUNT_XDP_HEADROOM;

		buffers->templates[i] = (struct shunt_xdp_ctx){
			.data = data,
			.data_end = data + frame->len,
			.data_meta = data,
			.data_hard_start = start,
			.data_hard_end = data + SHUNT_REPLAY_FRAME_MAX,
			.ingress_ifindex = ifindex,
			.rx_queue_index = shunt_replay_queue_of(frame, nr_queues),
		};
		shunt_replay_buffers_restore(buffers, i, true);
	}
}

int shunt_replay_buffers_create(const struct shunt_replay_capture *capture, uint32_t nr_queues, uint32_t ifindex,
				struct shunt_replay_buffers **out)
{
	struct shunt_replay_buffers *buffers = calloc(1, sizeof(*buffers));

	if (!buffers)
		goto no_memory;
	buffers->capture = capture;
	buffers->memory_len = capture->nr_frames * BUFFER_STRIDE;
	buffers->memory = mmap(NULL, buffers->memory_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (buffers->memory == MAP_FAILED) {
		buffers->memory = NULL;
		goto no_memory;
	}
	buffers->contexts = aligned_alloc(64, capture->nr_frames * sizeof(*buffers->contexts));
	buffers->templates = aligned_alloc(64, capture->nr_frames * sizeof(*buffers->templates));
	if (!buffers->contexts || !buffers->templates)
		goto no_memory;
	fill(buffers, nr_queues, ifindex);
	*out = buffers;
	return 0;

no_memory:
	shunt_replay_buffers_destroy(buffers);
	return shunt_fail(ENOMEM, "no memory for %zu receive buffers", capture->nr_frames);
}

void shunt_replay_buffers_destroy(struct shunt_replay_buffers *buffers)
{
	if (!buffers)
		return;
	if (buffers->memory)
		munmap(buffers->memory, buffers->memory_len);
	free(buffers->contexts);
	free(buffers->templates);
	free(buffers);
}

void shunt_replay_buffers_restore(struct shunt_replay_buffers *buffers, size_t i, bool bytes)
{
	struct shunt_xdp_ctx *ctx = &buffers->contexts[i];

	*ctx = buffers->templates[i];
	if (bytes) {
		const struct shunt_replay_frame *frame = &buffers->capture->frames[i];

		memcpy(ctx->data, frame->bytes, frame->len);
	}
}

bool shunt_replay_buffers_is_changed(const struct shunt_replay_buffers *buffers, size_t i)
{
	const struct shunt_replay_frame *frame = &buffers->capture->frames[i];
	const struct shunt_xdp_ctx *before = &buffers->templates[i], *now = &buffers->contexts[i];

	return now->data != before->data || now->data_end != before->data_end || now->data_meta != before->data_meta ||
	       memcmp(before->data, frame->bytes, frame->len);
}
