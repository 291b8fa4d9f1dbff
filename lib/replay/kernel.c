/* SPDX-License-Identifier: MIT */
/* Loads the replay's objects with libbpf and runs them under BPF_PROG_TEST_RUN beside our own. */
#include "lib/replay/kernel.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <shunt/reader.h>
#include "lib/bpf/object.h"
#include "lib/replay/kernel_maps.h"
#include "lib/replay/timing.h"
#include "runtime/log.h"

/* What the kernel's test run gives a program to see; see kernel.h. */
#define TEST_RUN_IFINDEX 1u
#define TEST_RUN_QUEUE 0u

struct kernel_queue {
	struct bpf_object *object;
	int program_fd;
	char *verifier_log; /* of the program; libbpf holds it until the object is closed */
};

#define VERIFIER_LOG_LEN (1u << 20)

struct kernel_map {
	struct shunt_map *map; /* the queue's object holds it */
	int fd;                /* libbpf's */
};

struct shunt_replay_kernel {
	struct shunt_replay *replay;
	struct kernel_queue *queues;
	struct kernel_map *maps;
	size_t nr_maps;
};

/* libbpf says why a load failed through its print function only; the last warning goes into our sentence. */
static _Thread_local char libbpf_message[256];

static int keep_message(enum libbpf_print_level level, const char *format, va_list args)
{
	if (level == LIBBPF_WARN && !libbpf_message[0]) {
		vsnprintf(libbpf_message, sizeof(libbpf_message), format, args);
		libbpf_message[strcspn(libbpf_message, "\n")] = 0;
	}
	return 0;
}

static int fd_of(const struct shunt_replay_kernel *kernel, const struct shunt_map *map)
{
	for (size_t i = 0; i < kernel->nr_maps; i++)
		if (kernel->maps[i].map == map)
			return kernel->maps[i].fd;
	return -1;
}

/* Pin paths are cleared: nothing of this process stays in a bpf file system. Queues that share a map of ours share the kernel's too. */
static int prepare_maps(struct shunt_replay_kernel *kernel, struct shunt_replay_queue *queue, struct bpf_object *object)
{
	struct bpf_map *kernel_map;

	bpf_object__for_each_map(kernel_map, object) {
		struct shunt_map *map = shunt_bpf_find_map(queue->object, bpf_map__name(kernel_map));
		int fd = map ? fd_of(kernel, map) : -1;
		int err = bpf_map__set_pin_path(kernel_map, NULL);

		if (!err && fd >= 0)
			err = bpf_map__reuse_fd(kernel_map, fd);
		if (err)
			return shunt_fail(-err, "%s: map '%s': libbpf: %s", queue->path, bpf_map__name(kernel_map), strerror(-err));
	}
	return 0;
}

/* The wanted program, and in an object with a program array also those that its tail calls may reach. */
static bool has_program_array(const struct bpf_object *object)
{
	const struct bpf_map *map;

	bpf_object__for_each_map(map, object)
		if (bpf_map__type(map) == BPF_MAP_TYPE_PROG_ARRAY)
			return true;
	return false;
}

static int choose_program(struct shunt_replay_queue *queue, struct bpf_object *object, struct bpf_program **out)
{
	const char *wanted = shunt_bpf_program_name(queue->prog);
	bool load_all = has_program_array(object);
	struct bpf_program *program;

	*out = NULL;
	bpf_object__for_each_program(program, object) {
		const char *name = bpf_program__name(program);
		struct shunt_bpf_program *ours = shunt_bpf_find_program(queue->object, name);
		bool is_wanted = !strcmp(name, wanted);
		bool is_loaded = is_wanted || (load_all && ours && !shunt_bpf_program_unsupported(ours));

		bpf_program__set_autoload(program, is_loaded);
		if (is_loaded)
			bpf_program__set_type(program, BPF_PROG_TYPE_XDP);
		if (is_wanted)
			*out = program;
	}
	return *out ? 0 : shunt_fail(ENOENT, "%s: libbpf finds no program '%s'", queue->path, wanted);
}

/* New maps of this queue: remembered with their fds, filled with our contents. */
static int take_maps(struct shunt_replay_kernel *kernel, struct shunt_replay_queue *queue, struct bpf_object *object)
{
	for (size_t i = 0; i < shunt_bpf_nr_maps(queue->object); i++) {
		struct shunt_map *map = shunt_bpf_map(queue->object, i);
		struct bpf_map *kernel_map = map ? bpf_object__find_map_by_name(object, shunt_map_name(map)) : NULL;
		struct kernel_map *maps;
		int err;

		if (!kernel_map || bpf_map__fd(kernel_map) < 0 || fd_of(kernel, map) >= 0)
			continue;
		maps = reallocarray(kernel->maps, kernel->nr_maps + 1, sizeof(*maps));
		if (!maps)
			return shunt_fail(ENOMEM, "no memory for the kernel's maps");
		kernel->maps = maps;
		maps[kernel->nr_maps++] = (struct kernel_map){ map, bpf_map__fd(kernel_map) };
		if (!shunt_replay_kernel_map_is_copied(map))
			continue;
		err = shunt_replay_kernel_map_copy(map, bpf_map__fd(kernel_map));
		if (err)
			return err;
	}
	return 0;
}

/* The verifier's last line but its statistics: the reason. */
static const char *verifier_reason(char *log)
{
	char *statistics = strstr(log, "processed ");
	char *line;

	if (statistics)
		*statistics = 0;
	for (size_t len = strlen(log); len && log[len - 1] == '\n';)
		log[--len] = 0;
	line = strrchr(log, '\n');
	return line ? line + 1 : log;
}

static int fail_load(struct shunt_replay_queue *queue, struct kernel_queue *side, int err)
{
	const char *reason = verifier_reason(side->verifier_log);

	if (!*reason)
		reason = libbpf_message[0] ? libbpf_message : "libbpf says no more";
	/* The verifier refuses with EACCES, too: only a missing right is EPERM. */
	return shunt_fail(err == -EACCES ? EINVAL : -err, "%s: the kernel does not load it: %s: %s", queue->path, strerror(-err), reason);
}

/* A file of IR is no object; the one that was made of it is the same for both sides. */
static struct bpf_object *open_object(const struct shunt_replay_queue *queue)
{
	LIBBPF_OPTS(bpf_object_open_opts, options);
	const char *slash = strrchr(queue->path, '/'), *base = slash ? slash + 1 : queue->path;
	struct bpf_object *object;
	char *name;

	if (!queue->object->image)
		return bpf_object__open_file(queue->path, NULL);
	name = strndup(base, strcspn(base, ".")); /* as libbpf calls an object that is in a file */
	if (!name)
		return NULL;
	options.object_name = name;
	object = bpf_object__open_mem(queue->object->image, queue->object->image_len, &options);
	free(name);
	return object;
}

static int load_queue(struct shunt_replay_kernel *kernel, size_t i)
{
	struct shunt_replay_queue *queue = &kernel->replay->queues[i];
	struct bpf_program *program;
	struct bpf_object *object;
	int err;

	libbpf_message[0] = 0;
	object = open_object(queue);
	if (!object)
		return shunt_fail(errno, "%s: libbpf does not open it: %s %s", queue->path, strerror(errno), libbpf_message);
	kernel->queues[i].object = object;
	err = prepare_maps(kernel, queue, object);
	if (!err)
		err = choose_program(queue, object, &program);
	if (err)
		return err;
	kernel->queues[i].verifier_log = calloc(1, VERIFIER_LOG_LEN);
	if (!kernel->queues[i].verifier_log)
		return shunt_fail(ENOMEM, "no memory for the verifier's log");
	bpf_program__set_log_buf(program, kernel->queues[i].verifier_log, VERIFIER_LOG_LEN);
	err = bpf_object__load(object);
	if (err)
		return fail_load(queue, &kernel->queues[i], err);
	kernel->queues[i].program_fd = bpf_program__fd(program);
	return take_maps(kernel, queue, object);
}

int shunt_replay_kernel_open(struct shunt_replay *replay, struct shunt_replay_kernel **out)
{
	struct shunt_replay_kernel *kernel = calloc(1, sizeof(*kernel));
	libbpf_print_fn_t previous;
	int err = 0;

	if (kernel)
		kernel->queues = calloc(replay->nr_queues, sizeof(*kernel->queues));
	if (!kernel || !kernel->queues) {
		free(kernel);
		return shunt_fail(ENOMEM, "no memory for the kernel's side");
	}
	kernel->replay = replay;
	previous = libbpf_set_print(keep_message);
	if (libbpf_num_possible_cpus() != (int)shunt_nr_cpus())
		err = shunt_fail(ENOTSUP, "the kernel counts %d possible CPUs, Shunt %u: per-CPU maps cannot be compared",
				 libbpf_num_possible_cpus(), shunt_nr_cpus());
	for (size_t i = 0; i < replay->nr_queues && !err; i++)
		err = load_queue(kernel, i);
	libbpf_set_print(previous);
	if (err) {
		shunt_replay_kernel_close(kernel);
		return err;
	}
	*out = kernel;
	return 0;
}

void shunt_replay_kernel_close(struct shunt_replay_kernel *kernel)
{
	if (!kernel)
		return;
	for (size_t i = 0; i < kernel->replay->nr_queues; i++) {
		bpf_object__close(kernel->queues[i].object);
		free(kernel->queues[i].verifier_log);
	}
	free(kernel->maps);
	free(kernel->queues);
	free(kernel);
}

static uint32_t run_ours(struct shunt_replay *replay, struct shunt_replay_queue *queue, size_t frame)
{
	struct shunt_xdp_ctx *ctx = &replay->buffers->contexts[frame];
	const void *program = queue->entry;
	uint32_t verdict;

	ctx->ingress_ifindex = TEST_RUN_IFINDEX;
	ctx->rx_queue_index = TEST_RUN_QUEUE;
	shunt_read_begin();
	replay->loop(&program, &ctx, 1, &verdict);
	shunt_read_end();
	return verdict;
}

static int run_kernel(const struct shunt_replay_kernel *kernel, size_t queue, const struct shunt_replay_frame *frame,
		      struct bpf_test_run_opts *opts)
{
	opts->data_in = frame->bytes;
	opts->data_size_in = frame->len;
	if (bpf_prog_test_run_opts(kernel->queues[queue].program_fd, opts))
		return shunt_fail(errno, "%s: BPF_PROG_TEST_RUN of a frame of %u bytes: %s", kernel->replay->queues[queue].path, frame->len,
				  strerror(errno));
	return 0;
}

static int compare_frame(struct shunt_replay_kernel *kernel, size_t frame, struct shunt_replay_check *check)
{
	struct shunt_replay *replay = kernel->replay;
	const struct shunt_replay_frame *captured = &replay->capture->frames[frame];
	size_t q = shunt_replay_queue_of(captured, (uint32_t)replay->nr_queues);
	struct shunt_xdp_ctx *ctx = &replay->buffers->contexts[frame];
	/* The kernel gives back metadata, too, before the frame. */
	const uint8_t *start;
	uint8_t result[4096];
	LIBBPF_OPTS(bpf_test_run_opts, opts, .data_out = result, .data_size_out = sizeof(result), .repeat = 1);
	uint32_t verdict = run_ours(replay, &replay->queues[q], frame);
	int err = run_kernel(kernel, q, captured, &opts);
	size_t len;

	if (err)
		return err;
	start = ctx->data_meta;
	len = (const uint8_t *)ctx->data_end - start;
	check->nr_frames++;
	shunt_replay_count_verdict(&replay->queues[q], verdict);
	if (verdict != opts.retval)
		shunt_replay_check_note(check, &check->nr_verdict_diffs, "frame %zu, queue %zu: verdict %u here, %u in the kernel", frame + 1, q,
					verdict, opts.retval);
	if (len != opts.data_size_out || memcmp(start, result, len))
		shunt_replay_check_note(check, &check->nr_frame_diffs, "frame %zu, queue %zu: %zu bytes here, %u in the kernel%s", frame + 1, q,
					len, opts.data_size_out, len == opts.data_size_out ? ", with other contents" : "");
	shunt_replay_buffers_restore(replay->buffers, frame, true);
	return 0;
}

static void compare_section(const struct shunt_replay_queue *queue, const char *section, const uint8_t *ours, const uint8_t *theirs,
			    size_t len, struct shunt_replay_check *check)
{
	for (size_t offset = 0; offset < len; offset += 8) {
		size_t left = len - offset < 8 ? len - offset : 8;

		check->nr_map_values++;
		if (memcmp(ours + offset, theirs + offset, left))
			shunt_replay_check_note(check, &check->nr_map_diffs, "%s: variables in %s differ from byte %zu on", queue->path, section,
						offset);
	}
}

/* Variables of .data and .bss: in the kernel the only value of an array that libbpf names "object.section". */
static int compare_globals(struct shunt_replay_queue *queue, struct bpf_object *object, struct shunt_replay_check *check)
{
	struct bpf_map *map;

	bpf_object__for_each_map(map, object) {
		const char *section = strchr(bpf_map__name(map), '.');
		bool is_variable = bpf_map__is_internal(map) && section && (!strncmp(section, ".data", 5) || !strncmp(section, ".bss", 4));
		size_t len = 0, their_len = bpf_map__value_size(map);
		const uint8_t *ours = is_variable ? shunt_bpf_section_data(queue->object, section, &len) : NULL;
		uint8_t *theirs;

		if (!ours)
			continue;
		theirs = calloc(1, their_len);
		if (!theirs)
			return shunt_fail(ENOMEM, "no memory to compare %s", section);
		if (!bpf_map_lookup_elem(bpf_map__fd(map), &(uint32_t){ 0 }, theirs))
			compare_section(queue, section, ours, theirs, len < their_len ? len : their_len, check);
		free(theirs);
	}
	return 0;
}

static int pin_to_one_cpu(cpu_set_t *before)
{
	cpu_set_t one;
	int cpu = sched_getcpu();

	if (cpu < 0 || sched_getaffinity(0, sizeof(*before), before))
		return shunt_fail(errno, "cannot read this thread's CPU: %s", strerror(errno));
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		return shunt_fail(errno, "cannot pin this thread to CPU %d: %s", cpu, strerror(errno));
	return 0;
}

int shunt_replay_kernel_compare(struct shunt_replay_kernel *kernel, struct shunt_replay_check *check)
{
	cpu_set_t affinity;
	int err = pin_to_one_cpu(&affinity);

	if (err)
		return err;
	*check = (struct shunt_replay_check){ 0 };
	for (size_t i = 0; i < kernel->replay->capture->nr_frames && !err; i++)
		err = compare_frame(kernel, i, check);
	for (size_t i = 0; i < kernel->nr_maps && !err; i++)
		if (shunt_replay_kernel_map_is_comparable(kernel->maps[i].map))
			err = shunt_replay_kernel_map_compare(kernel->maps[i].map, kernel->maps[i].fd, check);
	for (size_t i = 0; i < kernel->replay->nr_queues && !err; i++)
		err = compare_globals(&kernel->replay->queues[i], kernel->queues[i].object, check);
	sched_setaffinity(0, sizeof(affinity), &affinity);
	return err;
}

int shunt_replay_kernel_time(struct shunt_replay_kernel *kernel, uint32_t repeat, double *kernel_ns, double *shunt_ns)
{
	struct shunt_replay *replay = kernel->replay;
	size_t nr = replay->capture->nr_frames;
	double ours = 0, theirs = 0;
	cpu_set_t affinity;
	int err = pin_to_one_cpu(&affinity);

	if (err)
		return err;
	/* Frame by frame on both sides in turn, so that a disturbance of the machine hits both. */
	for (size_t i = 0; i < nr && !err; i++) {
		const struct shunt_replay_frame *frame = &replay->capture->frames[i];
		size_t q = shunt_replay_queue_of(frame, (uint32_t)replay->nr_queues);
		LIBBPF_OPTS(bpf_test_run_opts, opts, .repeat = (int)repeat);

		err = run_kernel(kernel, q, frame, &opts);
		theirs += opts.duration;
		ours += (double)shunt_replay_time_frame(replay, &replay->queues[q], i, repeat) / repeat;
	}
	sched_setaffinity(0, sizeof(affinity), &affinity);
	if (err)
		return err;
	*kernel_ns = theirs / (double)nr;
	*shunt_ns = ours / (double)nr;
	return 0;
}
