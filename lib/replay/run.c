/* SPDX-License-Identifier: MIT */
/*
 * The timed replay. A batch is what one poll of a queue takes: up to 256 frames in one read section, all through the generated loop. Only
 * the section with the loop is timed; counting verdicts and putting changed frames back is not.
 */
#include "lib/replay/replay.h"

#include <errno.h>
#include <stdlib.h>
#include <shunt/reader.h>
#include "lib/replay/timing.h"
#include "runtime/log.h"

#define PROGRESS_INTERVAL_NS 100000000u

struct run_progress {
	shunt_replay_progress_fn *fn;
	void *user;
	uint64_t done, total, next_ns;
};

static void report_progress(struct run_progress *progress, uint64_t now_ns, size_t nr_frames)
{
	progress->done += nr_frames;
	if (!progress->fn || now_ns < progress->next_ns)
		return;
	progress->next_ns = now_ns + PROGRESS_INTERVAL_NS;
	progress->fn(progress->user, progress->done, progress->total);
}

/* A program that was seen to change frames gets them as captured each time; else only one that moved a context's pointers is put back. */
static void restore(struct shunt_replay *replay, struct shunt_replay_queue *queue, struct shunt_xdp_ctx **contexts, size_t nr, bool look)
{
	for (size_t i = 0; i < nr; i++) {
		size_t frame = contexts[i] - replay->buffers->contexts;

		if (look ? shunt_replay_buffers_is_changed(replay->buffers, frame) : shunt_replay_buffers_is_moved(replay->buffers, frame))
			queue->changes_frames = true;
		if (queue->changes_frames)
			shunt_replay_buffers_restore(replay->buffers, frame, true);
	}
}

static uint64_t run_batch(struct shunt_replay *replay, struct shunt_replay_queue *queue, struct shunt_xdp_ctx **contexts, size_t nr)
{
	const void *program = queue->entry;
	uint64_t start = shunt_replay_now_ns();

	shunt_read_begin();
	replay->loop(&program, contexts, nr, replay->verdicts);
	shunt_read_end();
	return shunt_replay_now_ns() - start;
}

static void run_queue(struct shunt_replay *replay, struct shunt_replay_queue *queue, struct shunt_replay_samples *samples, bool first,
		      struct run_progress *progress)
{
	for (size_t done = 0; done < queue->nr_frames;) {
		size_t left = queue->nr_frames - done;
		size_t nr = left < SHUNT_REPLAY_BATCH ? left : SHUNT_REPLAY_BATCH;
		struct shunt_xdp_ctx **contexts = queue->contexts + done;
		uint64_t ns = run_batch(replay, queue, contexts, nr);

		for (size_t i = 0; i < nr; i++)
			shunt_replay_count_verdict(queue, replay->verdicts[i]);
		restore(replay, queue, contexts, nr, first);
		/* A short rest of the queue would mostly measure the clock. */
		if (nr >= SHUNT_REPLAY_BATCH / 2 || queue->nr_frames < SHUNT_REPLAY_BATCH)
			shunt_replay_samples_add(samples, ns, nr);
		done += nr;
		report_progress(progress, shunt_replay_now_ns(), nr);
	}
}

void shunt_replay_count_verdict(struct shunt_replay_queue *queue, uint32_t verdict)
{
	queue->verdicts[verdict < SHUNT_REPLAY_NR_VERDICTS - 1 ? verdict : SHUNT_REPLAY_NR_VERDICTS - 1]++;
}

int shunt_replay_run(struct shunt_replay *replay, uint64_t repeat, shunt_replay_progress_fn *progress_fn, void *user)
{
	struct run_progress progress = {
		.fn = progress_fn,
		.user = user,
		.total = repeat * replay->capture->nr_frames,
		.next_ns = shunt_replay_now_ns() + PROGRESS_INTERVAL_NS,
	};
	struct shunt_replay_samples *samples = calloc(replay->nr_queues, sizeof(*samples));
	int err = samples ? 0 : shunt_fail(ENOMEM, "no memory for timing samples");

	for (size_t q = 0; q < replay->nr_queues && !err; q++)
		err = shunt_replay_samples_init(&samples[q]);
	for (uint64_t pass = 0; pass < repeat && !err; pass++)
		for (size_t q = 0; q < replay->nr_queues; q++)
			run_queue(replay, &replay->queues[q], &samples[q], pass == 0, &progress);
	for (size_t q = 0; q < replay->nr_queues && !err; q++)
		shunt_replay_samples_summarize(&samples[q], &replay->queues[q].timing);
	for (size_t q = 0; q < replay->nr_queues && samples; q++)
		shunt_replay_samples_fini(&samples[q]);
	free(samples);
	return err;
}

uint64_t shunt_replay_time_frame(struct shunt_replay *replay, struct shunt_replay_queue *queue, size_t frame, uint32_t repeat)
{
	struct shunt_xdp_ctx *contexts[SHUNT_REPLAY_BATCH];
	uint64_t total = 0;

	for (size_t i = 0; i < SHUNT_REPLAY_BATCH; i++)
		contexts[i] = &replay->buffers->contexts[frame];
	for (uint32_t done = 0; done < repeat; done += SHUNT_REPLAY_BATCH)
		total += run_batch(replay, queue, contexts, repeat - done < SHUNT_REPLAY_BATCH ? repeat - done : SHUNT_REPLAY_BATCH);
	shunt_replay_buffers_restore(replay->buffers, frame, true);
	return total;
}
