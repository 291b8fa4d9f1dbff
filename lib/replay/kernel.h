/* SPDX-License-Identifier: MIT */
/*
 * The kernel as oracle: the same objects, map contents and frames under BPF_PROG_TEST_RUN must give the same verdicts, frames and maps.
 *
 * Needs the right to load BPF programs. The kernel runs a test with the loopback device's context (ingress_ifindex 1, rx_queue_index 0), so the
 * comparison runs ours with the same. Maps are compared value by value, each CPU's: both sides are pinned to one CPU meanwhile.
 */
#ifndef LIB_REPLAY_KERNEL_H
#define LIB_REPLAY_KERNEL_H

#include "lib/replay/replay.h"

struct shunt_replay_kernel;

struct shunt_replay_check {
	uint64_t nr_frames;     /* compared */
	uint64_t nr_map_values; /* compared; a CPU's value each */
	uint64_t nr_verdict_diffs, nr_frame_diffs, nr_map_diffs;
	char first_diff[512];   /* a sentence; "" when all is equal */
};

/* Loads the queues' objects into the kernel, unpinned, and copies the replay's map contents there. -EPERM, -ENOSYS, -EACCES, -ENOTSUP...: the kernel cannot
 * be asked, why in shunt_error(). The replay is started and outlives it. */
int shunt_replay_kernel_open(struct shunt_replay *replay, struct shunt_replay_kernel **out);
void shunt_replay_kernel_close(struct shunt_replay_kernel *kernel);

/* Runs each frame once on both sides and compares; ours counts into the queues' verdicts. 0 also when there are differences. */
int shunt_replay_kernel_compare(struct shunt_replay_kernel *kernel, struct shunt_replay_check *check);

/* Nanoseconds a frame on both sides, each frame of the capture repeated `repeat` times, means over the frames. Changes map contents. */
int shunt_replay_kernel_time(struct shunt_replay_kernel *kernel, uint32_t repeat, double *kernel_ns, double *shunt_ns);

#endif
