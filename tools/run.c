/* SPDX-License-Identifier: MIT */
/* shunt run: argument parsing, the order of the steps, the progress line. */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <shunt/log.h>
#include <shunt/pack.h>
#include "passes/map_text.h"
#include "tools/command.h"
#include "tools/dump.h"
#include "tools/file.h"
#include "tools/report.h"
#include "tools/run_packs.h"

#define KERNEL_TIMING_REPEAT 1000u /* runs a frame on each side when the kernel is timed */
#define MANY_QUEUES 8              /* more may take a second to compile */
#define PROGRESS_AFTER_CALLS 10    /* of about ten a second: work that takes longer than a second shows a line */

static const char help[] =
	"usage: shunt run [options] PROGRAM.o CAPTURE.pcap\n"
	"       shunt run [options] --queue PROGRAM.o[:NAME] [--queue ...] CAPTURE.pcap\n"
	"\n"
	"Runs XDP programs of BPF objects, or of LLVM IR of clang -target bpf (.ll, .bc), over the Ethernet frames of a capture. Each\n"
	"--queue is a receive queue with a program of its own; frames are spread over the queues by a hash of their flow, and every\n"
	"program is called through one dispatcher.\n"
	"\n"
	"  -q, --queue OBJECT[:PROGRAM]  add a queue; PROGRAM defaults to the first one that can be run\n"
	"  -s, --set MAP[KEY]=VALUE      set a map entry before the run (on all CPUs); KEY and VALUE are an integer, port:N (network\n"
	"                                byte order), an IPv4, IPv6 or MAC address, ADDRESS/LEN for an LPM trie, or hex:BYTES\n"
	"  -m, --map NAME:type=T,key=BYTES,value=BYTES,entries=N[,inner=NAME]\n"
	"                                what a map is that the program does not describe, because it was built without -g; T is a kernel\n"
	"                                number or array, percpu_array, hash, percpu_hash, lru_hash, lru_percpu_hash\n"
	"  -r, --repeat N                run every frame N times (default 1)\n"
	"      --private-maps            do not share pinned maps of the same name between queues\n"
	"      --no-passes               leave helper calls and program calls as they are\n"
	"  -c, --check-kernel            run the same objects, maps and frames in the kernel and compare verdicts, frames and maps;\n"
	"                                needs the right to load BPF programs\n"
	"      --time-kernel             measure the kernel's BPF_PROG_TEST_RUN beside this (with --check-kernel or alone)\n"
	"      --ifindex N               ingress_ifindex that programs see (default 1)\n"
	"      --code FILE.o             load what 'shunt compile' made of the only queue's object for this machine, compile nothing\n"
	"      --anon-code               keep code in memory without a file and write /tmp/perf-PID.map: perf then resolves its symbols\n"
	"  -j, --json                    print the report as JSON\n"
	"      --all-entries             list every map entry, also zeros\n"
	"      --remarks                 list what the passes inlined, too, not only what they left\n"
	"      --dump ir|code|tree|all   print generated IR, machine code, or the dispatcher's plan, counters, stub and tree, before the report\n"
	"      --dump dot|hits           print the tree as a picture for Graphviz, or how often each program was called (0.4 to 1 ns a call)\n"
	"      --packs[=FILE.svg]        draw what lies where in the packs of code, before the report, and into FILE.svg\n"
	"  -v, --verbose                 print Shunt's log on the standard error stream\n"
	"  -h, --help                    this text\n"
	"\n"
	"Exit status: 0 done (and equal to the kernel, when asked); 1 failed or different; 2 wrong usage; 77 the kernel cannot be asked here.\n";

struct run_arguments {
	struct shunt_replay_options replay;
	struct dump_selection dump;
	const char **queues, **settings;
	size_t nr_settings;
	struct shunt_map_list maps;
	const char *capture, *code;
	uint64_t repeat;
	const char *packs_svg;
	bool check_kernel, time_kernel, json, all_entries, remarks, packs, verbose;
};

enum { OPT_PRIVATE_MAPS = 256, OPT_NO_PASSES, OPT_TIME_KERNEL, OPT_IFINDEX, OPT_ANON_CODE, OPT_CODE, OPT_ALL_ENTRIES, OPT_REMARKS, OPT_DUMP, OPT_PACKS };

static const struct option long_options[] = {
	{ "queue", required_argument, NULL, 'q' },
	{ "set", required_argument, NULL, 's' },
	{ "map", required_argument, NULL, 'm' },
	{ "repeat", required_argument, NULL, 'r' },
	{ "private-maps", no_argument, NULL, OPT_PRIVATE_MAPS },
	{ "no-passes", no_argument, NULL, OPT_NO_PASSES },
	{ "check-kernel", no_argument, NULL, 'c' },
	{ "time-kernel", no_argument, NULL, OPT_TIME_KERNEL },
	{ "ifindex", required_argument, NULL, OPT_IFINDEX },
	{ "anon-code", no_argument, NULL, OPT_ANON_CODE },
	{ "code", required_argument, NULL, OPT_CODE },
	{ "json", no_argument, NULL, 'j' },
	{ "all-entries", no_argument, NULL, OPT_ALL_ENTRIES },
	{ "remarks", no_argument, NULL, OPT_REMARKS },
	{ "dump", required_argument, NULL, OPT_DUMP },
	{ "packs", optional_argument, NULL, OPT_PACKS },
	{ "verbose", no_argument, NULL, 'v' },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

static int usage_error(const char *what, const char *argument)
{
	fprintf(stderr, "shunt run: %s%s%s; 'shunt run --help' lists the options\n", what, argument ? " " : "", argument ? argument : "");
	return SHUNT_EXIT_USAGE;
}

static int parse_count(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoull(text, &end, 0);
	return errno || *end || *text < '0' || *text > '9' || *out < min || *out > max ? -1 : 0;
}

/* Returns -1 to go on, else the exit status. */
static int parse_option(int option, struct run_arguments *args)
{
	uint64_t number;

	switch (option) {
	case 'q':
		args->queues[args->replay.nr_queues++] = optarg;
		return -1;
	case 's':
		args->settings[args->nr_settings++] = optarg;
		return -1;
	case 'm': {
		char why[256];

		if (!shunt_map_list_add(&args->maps, optarg, why, sizeof(why)))
			return -1;
		return usage_error("--map:", why);
	}
	case 'r':
		return parse_count(optarg, 1, UINT32_MAX, &args->repeat) ? usage_error("--repeat takes a number from 1, not", optarg) : -1;
	case OPT_IFINDEX:
		if (parse_count(optarg, 1, INT32_MAX, &number))
			return usage_error("--ifindex takes a number from 1, not", optarg);
		args->replay.ifindex = (uint32_t)number;
		return -1;
	case OPT_DUMP:
		return dump_parse(optarg, &args->dump) ? usage_error("--dump takes ir, code, tree, all, dot or hits, not", optarg) : -1;
	case OPT_PACKS:
		args->packs = true;
		args->packs_svg = optarg;
		return -1;
	case OPT_PRIVATE_MAPS: args->replay.private_maps = true; return -1;
	case OPT_NO_PASSES: args->replay.pipeline = ""; return -1;
	case OPT_ANON_CODE: args->replay.anon_arena = true; return -1;
	case OPT_CODE: args->code = optarg; return -1;
	case OPT_TIME_KERNEL: args->time_kernel = true; return -1;
	case OPT_ALL_ENTRIES: args->all_entries = true; return -1;
	case OPT_REMARKS: args->remarks = true; return -1;
	case 'c': args->check_kernel = true; return -1;
	case 'j': args->json = true; return -1;
	case 'v': args->verbose = true; return -1;
	case 'h':
		fputs(help, stdout);
		return SHUNT_EXIT_OK;
	default: /* getopt has said what is wrong */
		fputs("'shunt run --help' lists the options\n", stderr);
		return SHUNT_EXIT_USAGE;
	}
}

static int parse_arguments(int argc, char **argv, struct run_arguments *args)
{
	int option, status;

	argv[0] = "shunt run"; /* getopt's messages begin with it */
	while ((option = getopt_long(argc, argv, "q:s:m:r:cjvh", long_options, NULL)) != -1)
		if ((status = parse_option(option, args)) >= 0)
			return status;
	if (!args->replay.nr_queues && argc - optind > 2)
		return usage_error("one program and one capture, not also", argv[optind + 2]);
	if (!args->replay.nr_queues && argc - optind == 2)
		args->queues[args->replay.nr_queues++] = argv[optind++];
	if (args->json && (args->dump.ir || args->dump.code || args->dump.tree || args->dump.dot || args->dump.hits))
		return usage_error("--dump prints text, which --json's reader cannot read: one of the two", NULL);
	if (args->json && args->packs && !args->packs_svg)
		return usage_error("--packs prints text, which --json's reader cannot read: draw into a file with --packs=FILE.svg", NULL);
	if (!args->replay.nr_queues)
		return usage_error("name a program: PROGRAM.o CAPTURE.pcap, or --queue PROGRAM.o", NULL);
	if (argc - optind != 1)
		return usage_error(argc == optind ? "the capture file is missing" : "one capture file, not also", argc == optind ? NULL : argv[optind + 1]);
	args->capture = argv[optind];
	args->replay.queues = args->queues;
	args->replay.maps = args->maps.maps;
	args->replay.nr_maps = args->maps.nr;
	args->replay.keep_ir = args->dump.ir;
	return -1;
}

struct progress_line {
	unsigned calls;
	bool shown;
};

static void show_progress(void *user, uint64_t done, uint64_t total)
{
	struct progress_line *line = user;

	if (++line->calls < PROGRESS_AFTER_CALLS || !isatty(STDERR_FILENO))
		return;
	line->shown = true;
	fprintf(stderr, "\r%s of %s frames (%.0f %%) ", report_number(done), report_number(total), 100.0 * (double)done / (double)total);
}

static void print_log(void *user, enum shunt_log_level level, const char *message)
{
	static const char *const names[] = { "error", "warning", "info", "debug" };

	fprintf(stderr, "shunt: %s: %s\n", names[level], message);
}

static int fail(const char *step)
{
	fprintf(stderr, "shunt run: %s: %s\n", step, shunt_error());
	return SHUNT_EXIT_FAILED;
}

/* The kernel could not be asked at all: not a failure of the programs. */
static int skip(int err)
{
	bool is_denied = err == -EPERM || err == -ENOSYS || err == -ENOTSUP;

	fprintf(stderr, "shunt run: the kernel check %s: %s\n", is_denied ? "is not possible here" : "failed", shunt_error());
	return is_denied ? SHUNT_EXIT_SKIPPED : SHUNT_EXIT_FAILED;
}

static int print_report(const struct run_arguments *args, const struct report *report)
{
	int err;

	dump_print(report->replay, &args->dump, stdout);
	if (args->packs) {
		err = run_packs_draw(report->replay, args->packs_svg, args->json ? NULL : stdout);
		if (err) {
			fprintf(stderr, "shunt run: --packs%s%s: %s\n", args->packs_svg ? " " : "", args->packs_svg ? args->packs_svg : "", strerror(-err));
			return SHUNT_EXIT_FAILED;
		}
	}
	if (!args->json)
		report_print_text(report, stdout);
	else if (report_print_json(report, stdout) && !ferror(stdout)) {
		fprintf(stderr, "shunt run: no memory for the report\n");
		return SHUNT_EXIT_FAILED;
	}
	return SHUNT_EXIT_OK; /* main sees whether all of it could be written */
}

/* Maps are reported as the counted frames left them, so the kernel is timed before on a replay of its own. */
static int time_kernel(const struct run_arguments *args, struct report *report)
{
	struct shunt_replay_kernel *kernel;
	struct shunt_replay *replay;
	int status = SHUNT_EXIT_OK;
	int err;

	if (shunt_replay_create(args->capture, &args->replay, &replay))
		return fail("timing beside the kernel");
	for (size_t i = 0; i < args->nr_settings && !status; i++)
		if (shunt_replay_set_map(replay, args->settings[i]))
			status = fail("--set");
	if (!status && shunt_replay_start(replay))
		status = fail("timing beside the kernel");
	if (!status) {
		err = shunt_replay_kernel_open(replay, &kernel);
		if (err)
			status = skip(err);
		else {
			if (shunt_replay_kernel_time(kernel, KERNEL_TIMING_REPEAT, &report->kernel_ns, &report->shunt_ns))
				status = fail("timing beside the kernel");
			shunt_replay_kernel_close(kernel);
		}
	}
	report->has_kernel_time = !status;
	shunt_replay_destroy(replay);
	return status;
}

static int check_kernel(struct shunt_replay *replay, struct shunt_replay_check *check)
{
	struct shunt_replay_kernel *kernel;
	int err = shunt_replay_kernel_open(replay, &kernel);

	if (err)
		return skip(err);
	err = shunt_replay_kernel_compare(kernel, check);
	shunt_replay_kernel_close(kernel);
	return err ? fail("kernel check") : SHUNT_EXIT_OK;
}

static int run_replay(const struct run_arguments *args, struct shunt_replay *replay, struct report *report)
{
	struct shunt_replay_check check = { 0 };
	struct progress_line line = { 0 };
	uint64_t repeat = args->repeat;
	int status = SHUNT_EXIT_OK;

	for (size_t i = 0; i < args->nr_settings; i++)
		if (shunt_replay_set_map(replay, args->settings[i]))
			return fail("--set");
	if (replay->nr_queues > MANY_QUEUES && isatty(STDERR_FILENO))
		fprintf(stderr, "compiling %zu objects\r", replay->nr_queues);
	if (shunt_replay_start(replay))
		return fail("compiling");
	if (args->dump.hits && shunt_dispatcher_count_hits(replay->dispatcher, true))
		return fail("counting hits");
	if (args->check_kernel) {
		status = check_kernel(replay, &check);
		if (status)
			return status;
		report->check = &check;
		repeat--; /* the comparison was the first run of every frame */
	}
	if (repeat && shunt_replay_run(replay, repeat, show_progress, &line))
		return fail("running");
	if (line.shown)
		fputs("\r\033[K", stderr);
	report->replay = replay;
	status = print_report(args, report);
	if (!status && check.nr_verdict_diffs + check.nr_frame_diffs + check.nr_map_diffs)
		status = SHUNT_EXIT_FAILED;
	return status;
}

int shunt_command_run(int argc, char **argv)
{
	struct run_arguments args = { .repeat = 1 };
	struct report report = { 0 };
	struct shunt_replay *replay = NULL;
	void *code = NULL;
	int status;

	args.queues = calloc((size_t)argc + 1, sizeof(*args.queues));
	args.settings = calloc((size_t)argc + 1, sizeof(*args.settings));
	if (!args.queues || !args.settings) {
		fprintf(stderr, "shunt run: no memory\n");
		status = SHUNT_EXIT_FAILED;
		goto out;
	}
	status = parse_arguments(argc, argv, &args);
	if (status >= 0)
		goto out;
	if (args.replay.anon_arena)
		shunt_names_enable(SHUNT_NAMES_PERF);
	if (args.verbose)
		shunt_set_log(print_log, NULL, SHUNT_LOG_INFO);
	report = (struct report){ .capture_path = args.capture, .repeat = args.repeat, .all_remarks = args.remarks, .all_entries = args.all_entries };
	status = args.time_kernel ? time_kernel(&args, &report) : SHUNT_EXIT_OK;
	if (status)
		goto out;
	if (args.code) {
		int err = file_read(args.code, &code, &args.replay.code_len);

		if (err) {
			fprintf(stderr, "shunt run: --code %s: %s\n", args.code, strerror(-err));
			status = SHUNT_EXIT_FAILED;
			goto out;
		}
		args.replay.code = code;
	}
	if (shunt_replay_create(args.capture, &args.replay, &replay)) {
		status = fail("opening");
		goto out;
	}
	status = run_replay(&args, replay, &report);
	shunt_replay_destroy(replay);
out:
	free(args.queues);
	free(args.settings);
	shunt_map_list_fini(&args.maps);
	free(code);
	return status;
}
