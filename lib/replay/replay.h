/* SPDX-License-Identifier: MIT */
/*
 * Replays a capture through XDP programs: queues with a program each, one dispatcher, verdicts, timings, and the kernel as oracle. What `shunt
 * run` does; the tool itself only parses arguments and prints.
 *
 * Order of calls: create, set_map..., start, then (lib/replay/kernel.h) and run, then read the results, destroy. One thread.
 */
#ifndef LIB_REPLAY_REPLAY_H
#define LIB_REPLAY_REPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <shunt/bpf.h>
#include <shunt/dispatcher.h>
#include <shunt/jit.h>
#include <shunt/pack.h>
#include "lib/replay/buffers.h"
#include "lib/replay/capture.h"
#include "lib/replay/loop.h"

#define SHUNT_REPLAY_DISPATCHER "xdp"
#define SHUNT_REPLAY_BATCH 256u /* frames between two clock readings, and in one read section */
#define SHUNT_REPLAY_NR_VERDICTS 6 /* the five of enum shunt_xdp_action, then all others */

struct shunt_replay_timing {
	uint64_t nr_batches; /* 0: not measured */
	double median_ns, p99_ns, mean_ns; /* a frame, of batches */
};

struct shunt_replay_queue {
	char *path;    /* of the object */
	char *program; /* wanted program's name, or NULL: the only or first one supported */
	struct shunt_bpf_object *object;
	struct shunt_bpf_program *prog;
	const void *entry;
	bool attached;
	size_t nr_frames; /* of the capture in this queue */
	struct shunt_xdp_ctx **contexts; /* theirs, within the replay's */
	bool changes_frames;             /* seen to move, resize or write one */
	uint64_t verdicts[SHUNT_REPLAY_NR_VERDICTS]; /* over all repeats */
	struct shunt_replay_timing timing;
};

/* A remark of the passes, kept for the report. */
struct shunt_replay_remark {
	bool missed;
	char *pass, *function, *callee, *message;
};

struct shunt_replay_options {
	const char *const *queues; /* OBJECT or OBJECT:PROGRAM each */
	size_t nr_queues;
	bool private_maps;         /* do not share pinned maps of the same name between queues */
	const char *pipeline;      /* NULL "shunt"; "" none */
	bool keep_ir;
	uint32_t ifindex;          /* 0: 1 */
	bool anon_arena;           /* code in fd-less memory, so that perf resolves symbols */
	const void *code;          /* of the only queue, compiled before (shunt_bpf_emit); the caller's until start. NULL: compile */
	size_t code_len;
	const struct shunt_pass_map *maps; /* of struct shunt_bpf_options; the caller's until created */
	size_t nr_maps;
};

struct shunt_replay {
	struct shunt_replay_capture *capture;
	struct shunt_jit *jit;
	struct shunt_arena *arena;
	struct shunt_bpf_pins *pins;
	struct shunt_replay_queue *queues;
	size_t nr_queues;
	struct shunt_dispatcher *dispatcher;
	struct shunt_jit_module *loop_module;
	shunt_replay_loop_fn *loop;
	struct shunt_pass_counts counts; /* of all objects and the loop */
	struct shunt_replay_remark *remarks;
	size_t nr_remarks;
	struct shunt_replay_buffers *buffers;
	struct shunt_xdp_ctx **contexts; /* all queues' contexts, queue by queue */
	uint32_t *verdicts;              /* of one batch */
	const char *pipeline;            /* the options', which outlive the replay's start */
	uint32_t ifindex;
};

/* Opens the capture and the objects. Errors are those of shunt_bpf_open_file and shunt_replay_capture_open. */
int shunt_replay_create(const char *capture, const struct shunt_replay_options *options, struct shunt_replay **out);
/* NULL allowed. */
void shunt_replay_destroy(struct shunt_replay *replay);

/* Applies MAP[KEY]=VALUE (lib/replay/setting.h) to every queue's object that has such a map; -ENOENT when none has. Before start. */
int shunt_replay_set_map(struct shunt_replay *replay, const char *setting);

/* Compiles, attaches every program to the dispatcher, prepares the frames. */
int shunt_replay_start(struct shunt_replay *replay);

/* Called about ten times a second during long work; done and total in frames. */
typedef void shunt_replay_progress_fn(void *user, uint64_t done, uint64_t total);

/* Runs every frame `repeat` times through its queue's program; adds to the queues' verdicts and sets their timings. */
int shunt_replay_run(struct shunt_replay *replay, uint64_t repeat, shunt_replay_progress_fn *progress, void *user);

/* Adds a verdict to a queue's table. */
void shunt_replay_count_verdict(struct shunt_replay_queue *queue, uint32_t verdict);

/* Nanoseconds for `repeat` runs of the queue's program on one frame, not put back between them, as BPF_PROG_TEST_RUN's repeat mode does. */
uint64_t shunt_replay_time_frame(struct shunt_replay *replay, struct shunt_replay_queue *queue, size_t frame, uint32_t repeat);

#endif
