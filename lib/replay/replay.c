/* SPDX-License-Identifier: MIT */
/* Life of a replay: objects opened, maps set, programs compiled and attached. The measuring is in run.c, the kernel's side in kernel.c. */
#include "lib/replay/replay.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <shunt/reader.h>
#include "lib/replay/setting.h"
#include "runtime/log.h"

/* "OBJECT" or "OBJECT:PROGRAM"; a file whose own name holds a colon wins. */
static int split_queue(const char *text, struct shunt_replay_queue *queue)
{
	const char *colon = access(text, F_OK) ? strrchr(text, ':') : NULL;

	queue->path = colon ? strndup(text, colon - text) : strdup(text);
	queue->program = colon ? strdup(colon + 1) : NULL;
	if (!queue->path || (colon && !queue->program))
		return shunt_fail(ENOMEM, "no memory for queue '%s'", text);
	return 0;
}

static void keep_remark(void *user, const struct shunt_remark *remark)
{
	struct shunt_replay *replay = user;
	size_t nr = replay->nr_remarks;
	struct shunt_replay_remark *kept = replay->remarks;

	/* Grown at powers of two; a remark that finds no memory is lost, the counts are not. */
	if (!(nr & (nr - 1))) {
		kept = realloc(replay->remarks, (nr ? 2 * nr : 1) * sizeof(*kept));
		if (!kept)
			return;
		replay->remarks = kept;
	}
	kept[nr] = (struct shunt_replay_remark){
		.missed = remark->kind == SHUNT_REMARK_MISSED,
		.pass = strdup(remark->pass ?: ""),
		.function = strdup(remark->function ?: ""),
		.callee = strdup(remark->callee ?: ""),
		.message = strdup(remark->message ?: ""),
	};
	if (kept[nr].pass && kept[nr].function && kept[nr].callee && kept[nr].message) {
		replay->nr_remarks++;
		return;
	}
	free(kept[nr].pass);
	free(kept[nr].function);
	free(kept[nr].callee);
	free(kept[nr].message);
}

static int open_queue(struct shunt_replay *replay, struct shunt_replay_queue *queue, const char *text,
		      const struct shunt_replay_options *options)
{
	struct shunt_bpf_options bpf = {
		.jit = replay->jit,
		.pins = replay->pins,
		.pipeline = options->pipeline,
		.keep_ir = options->keep_ir,
		.code = options->code,
		.code_len = options->code_len,
		.maps = options->maps,
		.nr_maps = options->nr_maps,
		.remark = keep_remark,
		.remark_user = replay,
	};
	int err = split_queue(text, queue);

	if (err)
		return err;
	bpf.program = queue->program;
	return shunt_bpf_open_file(queue->path, &bpf, &queue->object);
}

static int create_parts(struct shunt_replay *replay, const char *capture, const struct shunt_replay_options *options)
{
	struct shunt_jit_options jit = { .opt_level = 2, .keep_ir = options->keep_ir };
	int err = shunt_replay_capture_open(capture, &replay->capture);

	if (!err && options->anon_arena)
		err = shunt_arena_create(&(struct shunt_arena_options){ .anon = true }, &replay->arena);
	jit.arena = replay->arena;
	if (!err)
		err = shunt_jit_create(&jit, &replay->jit);
	if (!err && !options->private_maps)
		err = shunt_bpf_pins_create(&replay->pins);
	for (size_t i = 0; i < options->nr_queues && !err; i++) {
		err = open_queue(replay, &replay->queues[i], options->queues[i], options);
		replay->nr_queues = i + 1;
	}
	return err;
}

int shunt_replay_create(const char *capture, const struct shunt_replay_options *options, struct shunt_replay **out)
{
	struct shunt_replay *replay = calloc(1, sizeof(*replay));
	int err;

	if (!options->nr_queues) {
		free(replay);
		return shunt_fail(EINVAL, "a replay needs at least one queue");
	}
	if (options->code && options->nr_queues > 1) {
		free(replay);
		return shunt_fail(EINVAL, "code that was compiled before is for one queue, not %zu", options->nr_queues);
	}
	if (replay)
		replay->queues = calloc(options->nr_queues, sizeof(*replay->queues));
	if (!replay || !replay->queues) {
		free(replay);
		return shunt_fail(ENOMEM, "no memory for %zu queues", options->nr_queues);
	}
	replay->pipeline = options->pipeline;
	replay->ifindex = options->ifindex ?: 1;
	err = create_parts(replay, capture, options);
	if (err) {
		shunt_replay_destroy(replay);
		return err;
	}
	*out = replay;
	return 0;
}

void shunt_replay_destroy(struct shunt_replay *replay)
{
	if (!replay)
		return;
	for (size_t i = 0; i < replay->nr_queues; i++)
		if (replay->queues[i].attached)
			shunt_dispatcher_detach(replay->dispatcher, replay->queues[i].entry);
	if (replay->loop_module)
		shunt_jit_remove(replay->loop_module);
	for (size_t i = 0; i < replay->nr_queues; i++) {
		shunt_bpf_close(replay->queues[i].object);
		free(replay->queues[i].path);
		free(replay->queues[i].program);
	}
	shunt_bpf_pins_destroy(replay->pins);
	shunt_jit_destroy(replay->jit);
	if (replay->dispatcher)
		shunt_dispatcher_destroy(replay->dispatcher);
	if (replay->arena) {
		shunt_quiesce();
		shunt_arena_destroy(replay->arena);
	}
	for (size_t i = 0; i < replay->nr_remarks; i++) {
		free(replay->remarks[i].pass);
		free(replay->remarks[i].function);
		free(replay->remarks[i].callee);
		free(replay->remarks[i].message);
	}
	free(replay->remarks);
	shunt_replay_buffers_destroy(replay->buffers);
	shunt_replay_capture_close(replay->capture);
	free(replay->contexts);
	free(replay->verdicts);
	free(replay->queues);
	free(replay);
}

/* A map that queues share is set once: the same struct shunt_map again is skipped. */
static bool is_seen(const struct shunt_replay *replay, size_t nr, const struct shunt_map *map, const char *name)
{
	for (size_t i = 0; i < nr; i++)
		if (shunt_bpf_find_map(replay->queues[i].object, name) == map)
			return true;
	return false;
}

int shunt_replay_set_map(struct shunt_replay *replay, const char *setting)
{
	const char *bracket = strchr(setting, '[');
	char *name = bracket ? strndup(setting, bracket - setting) : strdup(setting);
	bool found = false;
	int err = name ? 0 : shunt_fail(ENOMEM, "no memory for '%s'", setting);

	for (size_t i = 0; i < replay->nr_queues && !err; i++) {
		struct shunt_map *map = bracket ? shunt_bpf_find_map(replay->queues[i].object, name) : NULL;

		if ((bracket && !map) || is_seen(replay, i, map, name))
			continue;
		/* Without a bracket it is refused there, with the form to write. */
		err = shunt_replay_set(replay->queues[i].object, setting);
		found = true;
	}
	if (!err && !found)
		err = shunt_fail(ENOENT, "'%s': no queue's object has a map '%s'", setting, name);
	free(name);
	return err;
}

static void add_counts(struct shunt_pass_counts *sum, const struct shunt_pass_counts *counts)
{
	sum->cpu_ids += counts->cpu_ids;
	sum->percpu_this += counts->percpu_this;
	sum->percpu_of += counts->percpu_of;
	sum->array_lookups += counts->array_lookups;
	sum->percpu_array_lookups += counts->percpu_array_lookups;
	sum->percpu_hash_lookups += counts->percpu_hash_lookups;
	sum->hash_lookups += counts->hash_lookups;
	sum->dispatches += counts->dispatches;
	sum->exact_updates += counts->exact_updates;
	sum->helpers += counts->helpers;
	sum->missed += counts->missed;
}

/* Why none of the object's programs can be run: each by name. */
static int fail_unsupported(struct shunt_replay_queue *queue)
{
	struct shunt_bpf_program *prog = NULL;
	char reasons[768] = "it holds none";
	size_t len = 0;

	while ((prog = shunt_bpf_next_program(queue->object, prog)) && len < sizeof(reasons))
		len += snprintf(reasons + len, sizeof(reasons) - len, "%s'%s': %s", len ? "; " : "", shunt_bpf_program_name(prog),
				shunt_bpf_program_unsupported(prog));
	return shunt_fail(ENOTSUP, "%s: no program that can be run: %s", queue->path, reasons);
}

/* The named program, else the first that can be compiled: as ip link and xdp-loader take an object's first. */
static int choose_program(struct shunt_replay_queue *queue)
{
	const char *reason;

	if (queue->program) {
		queue->prog = shunt_bpf_find_program(queue->object, queue->program);
		if (!queue->prog)
			return shunt_fail(ENOENT, "%s: no program '%s' in this object", queue->path, queue->program);
		reason = shunt_bpf_program_unsupported(queue->prog);
		return reason ? shunt_fail(ENOTSUP, "%s: program '%s': %s", queue->path, queue->program, reason) : 0;
	}
	for (queue->prog = NULL; (queue->prog = shunt_bpf_next_program(queue->object, queue->prog));)
		if (!shunt_bpf_program_unsupported(queue->prog))
			return 0;
	return fail_unsupported(queue);
}

static int start_queue(struct shunt_replay *replay, struct shunt_replay_queue *queue)
{
	int err = choose_program(queue);

	if (!err)
		err = shunt_bpf_compile(queue->object);
	if (err)
		return err;
	add_counts(&replay->counts, shunt_bpf_counts(queue->object));
	queue->entry = shunt_bpf_program_entry(queue->prog);
	if (!queue->entry)
		return shunt_fail(ENOENT, "%s: program '%s' has no entry after compilation", queue->path, shunt_bpf_program_name(queue->prog));
	err = shunt_dispatcher_attach(replay->dispatcher, queue->entry);
	queue->attached = !err;
	return err;
}

/* Lists each queue's contexts one after the other, in the capture's order. */
static int sort_frames(struct shunt_replay *replay)
{
	const struct shunt_replay_capture *capture = replay->capture;
	struct shunt_xdp_ctx **next;

	replay->contexts = calloc(capture->nr_frames, sizeof(struct shunt_xdp_ctx *));
	replay->verdicts = calloc(SHUNT_REPLAY_BATCH, sizeof(*replay->verdicts));
	if (!replay->contexts || !replay->verdicts)
		return shunt_fail(ENOMEM, "no memory to sort %zu frames into queues", capture->nr_frames);
	next = replay->contexts;
	for (size_t q = 0; q < replay->nr_queues; q++) {
		struct shunt_replay_queue *queue = &replay->queues[q];

		queue->contexts = next;
		for (size_t i = 0; i < capture->nr_frames; i++)
			if (shunt_replay_queue_of(&capture->frames[i], (uint32_t)replay->nr_queues) == q)
				*next++ = &replay->buffers->contexts[i];
		queue->nr_frames = next - queue->contexts;
	}
	return 0;
}

int shunt_replay_start(struct shunt_replay *replay)
{
	struct shunt_dispatcher_options options = { .arena = replay->arena };
	int err = shunt_dispatcher_create(SHUNT_REPLAY_DISPATCHER, &options, &replay->dispatcher);

	for (size_t i = 0; i < replay->nr_queues && !err; i++)
		err = start_queue(replay, &replay->queues[i]);
	if (!err)
		err = shunt_replay_loop_compile(replay->jit, SHUNT_REPLAY_DISPATCHER, replay->pipeline, keep_remark, replay,
						&replay->loop_module, &replay->loop);
	if (err)
		return err;
	add_counts(&replay->counts, shunt_jit_module_counts(replay->loop_module));
	err = shunt_replay_buffers_create(replay->capture, (uint32_t)replay->nr_queues, replay->ifindex, &replay->buffers);
	return err ?: sort_frames(replay);
}
