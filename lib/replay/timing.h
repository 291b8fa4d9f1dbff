/* SPDX-License-Identifier: MIT */
/* Samples of nanoseconds a frame, and their median and 99th percentile. */
#ifndef LIB_REPLAY_TIMING_H
#define LIB_REPLAY_TIMING_H

#include <stddef.h>
#include <stdint.h>
#include "lib/replay/replay.h"

/* At most this many samples are kept: past it every second one is dropped and every second new one taken, and so on. */
#define SHUNT_REPLAY_MAX_SAMPLES 65536u

struct shunt_replay_samples {
	float *ns; /* a frame */
	size_t nr;
	uint64_t nr_seen;
	uint64_t keep_every; /* a power of two */
	double total_ns;
	uint64_t total_frames;
};

int shunt_replay_samples_init(struct shunt_replay_samples *samples);
void shunt_replay_samples_fini(struct shunt_replay_samples *samples);
void shunt_replay_samples_add(struct shunt_replay_samples *samples, uint64_t ns, size_t nr_frames);
/* Sorts the samples; nothing may be added afterwards. */
void shunt_replay_samples_summarize(struct shunt_replay_samples *samples, struct shunt_replay_timing *out);

/* Monotonic time in nanoseconds. */
uint64_t shunt_replay_now_ns(void);

#endif
