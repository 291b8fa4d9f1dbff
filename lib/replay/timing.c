/* SPDX-License-Identifier: MIT */
/* Keeps a bounded, evenly spread sample of batch times however long a run is. */
#include "lib/replay/timing.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include "runtime/log.h"

int shunt_replay_samples_init(struct shunt_replay_samples *samples)
{
	*samples = (struct shunt_replay_samples){ .keep_every = 1 };
	samples->ns = malloc(SHUNT_REPLAY_MAX_SAMPLES * sizeof(*samples->ns));
	return samples->ns ? 0 : shunt_fail(ENOMEM, "no memory for timing samples");
}

void shunt_replay_samples_fini(struct shunt_replay_samples *samples)
{
	free(samples->ns);
	samples->ns = NULL;
}

/* Halves what is kept, evenly over time, so that a long run is represented from its start to its end. */
static void thin_out(struct shunt_replay_samples *samples)
{
	for (size_t i = 0; i < samples->nr / 2; i++)
		samples->ns[i] = samples->ns[2 * i];
	samples->nr /= 2;
	samples->keep_every *= 2;
}

void shunt_replay_samples_add(struct shunt_replay_samples *samples, uint64_t ns, size_t nr_frames)
{
	samples->total_ns += (double)ns;
	samples->total_frames += nr_frames;
	if (samples->nr_seen++ % samples->keep_every)
		return;
	if (samples->nr == SHUNT_REPLAY_MAX_SAMPLES)
		thin_out(samples);
	samples->ns[samples->nr++] = (float)((double)ns / (double)nr_frames);
}

static int compare_floats(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

void shunt_replay_samples_summarize(struct shunt_replay_samples *samples, struct shunt_replay_timing *out)
{
	*out = (struct shunt_replay_timing){ 0 };
	if (!samples->nr)
		return;
	qsort(samples->ns, samples->nr, sizeof(*samples->ns), compare_floats);
	out->nr_batches = samples->nr_seen;
	/* Nearest rank: with few samples p99 is the largest. */
	out->median_ns = samples->ns[(samples->nr - 1) / 2];
	out->p99_ns = samples->ns[(samples->nr * 99 + 99) / 100 - 1];
	out->mean_ns = samples->total_ns / (double)samples->total_frames;
}

uint64_t shunt_replay_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
