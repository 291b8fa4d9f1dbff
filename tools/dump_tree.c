/* SPDX-License-Identifier: MIT */
/* shunt dump: a dispatcher's plan, stub and tree over made-up programs, for either CPU on either CPU. Nothing of it is run. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <shunt/log.h>
#include "lib/replay/sample.h"
#include "tools/command.h"

#define PROGRAMS_MAX 4096u
static const char help[] =
	"usage: shunt dump [--target x86_64|arm64] [--programs N] [--spacing BYTES] [--plan NAME] [--miss NAME] [--hot N] [--count-hits] [--dot]\n"
	"\n"
	"Prints the plan, the stub and the tree that a dispatcher with N programs has, BYTES apart, as they would lie in a pack. Of a dispatcher that\n"
	"runs, see shunt run --dump.\n"
	"\n"
	"  -t, --target NAME     x86_64 or arm64 (default: this machine)\n"
	"  -n, --programs N      0 to 4096 (default 8)\n"
	"  -s, --spacing BYTES   from one program to the next, a multiple of 4 (default 256)\n"
	"  -p, --plan NAME       default, linear, balanced, kernel or weighted\n"
	"  -m, --miss NAME       how other programs are reached: jump, retpoline or lfence (default: jump; arm64 jumps)\n"
	"      --hot N           the first N programs, up to 8, are called ten times as often as all others together\n"
	"      --count-hits      with the code that counts calls of each program\n"
	"      --dot             a picture in Graphviz's dot language instead: shunt dump --dot | dot -Tsvg -o tree.svg\n"
	"  -h, --help            this text\n"
	"\n"
	"Exit status: 0 done; 1 failed; 2 wrong usage.\n";

enum { OPT_HOT = 256, OPT_COUNT_HITS, OPT_DOT };

static const struct option long_options[] = {
	{ "target", required_argument, NULL, 't' },
	{ "programs", required_argument, NULL, 'n' },
	{ "spacing", required_argument, NULL, 's' },
	{ "plan", required_argument, NULL, 'p' },
	{ "miss", required_argument, NULL, 'm' },
	{ "hot", required_argument, NULL, OPT_HOT },
	{ "count-hits", no_argument, NULL, OPT_COUNT_HITS },
	{ "dot", no_argument, NULL, OPT_DOT },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

struct dump_arguments {
	const char *target;
	uint64_t nr_programs, spacing, nr_hot;
	enum shunt_plan_kind plan;
	enum shunt_miss_kind miss;
	bool counts_hits, draws;
};

static int usage_error(const char *what, const char *argument)
{
	fprintf(stderr, "shunt dump: %s %s; 'shunt dump --help' lists the options\n", what, argument);
	return SHUNT_EXIT_USAGE;
}

static int parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoull(text, &end, 0);
	return errno || *end || *text < '0' || *text > '9' || *out < min || *out > max ? -1 : 0;
}

static int parse_plan(const char *text, enum shunt_plan_kind *out)
{
	for (int kind = SHUNT_PLAN_DEFAULT; kind <= SHUNT_PLAN_WEIGHTED; kind++) {
		*out = (enum shunt_plan_kind)kind;
		if (!strcmp(text, shunt_plan_name(*out)))
			return 0;
	}
	return -1;
}

static int parse_miss(const char *text, enum shunt_miss_kind *out)
{
	for (int kind = SHUNT_MISS_JUMP; kind <= SHUNT_MISS_LFENCE; kind++) {
		*out = (enum shunt_miss_kind)kind;
		if (!strcmp(text, shunt_miss_name(*out)))
			return 0;
	}
	return -1;
}

/* Returns -1 to go on, else the exit status. */
static int parse_arguments(int argc, char **argv, struct dump_arguments *args)
{
	int option;

	while ((option = getopt_long(argc, argv, "t:n:s:p:m:h", long_options, NULL)) != -1) {
		switch (option) {
		case 't':
			args->target = optarg;
			if (strcmp(optarg, "x86_64") && strcmp(optarg, "arm64"))
				return usage_error("--target takes x86_64 or arm64, not", optarg);
			break;
		case 'n':
			if (parse_number(optarg, 0, PROGRAMS_MAX, &args->nr_programs))
				return usage_error("--programs takes a number up to 4096, not", optarg);
			break;
		case 's':
			if (parse_number(optarg, 4, 1 << 20, &args->spacing) || args->spacing % 4)
				return usage_error("--spacing takes a multiple of 4 up to 1 MiB, not", optarg);
			break;
		case 'p':
			if (parse_plan(optarg, &args->plan))
				return usage_error("--plan takes default, linear, balanced, kernel or weighted, not", optarg);
			break;
		case 'm':
			if (parse_miss(optarg, &args->miss))
				return usage_error("--miss takes jump, retpoline or lfence, not", optarg);
			break;
		case OPT_HOT:
			if (parse_number(optarg, 0, 8, &args->nr_hot))
				return usage_error("--hot takes a number up to 8, not", optarg);
			break;
		case OPT_COUNT_HITS:
			args->counts_hits = true;
			break;
		case OPT_DOT:
			args->draws = true;
			break;
		case 'h':
			fputs(help, stdout);
			return SHUNT_EXIT_OK;
		default: /* getopt has said what is wrong */
			fputs("'shunt dump --help' lists the options\n", stderr);
			return SHUNT_EXIT_USAGE;
		}
	}
	return optind == argc ? -1 : usage_error("takes options only, not", argv[optind]);
}

int shunt_command_dump(int argc, char **argv)
{
	struct dump_arguments args = { .nr_programs = 8, .spacing = 256 };
	struct shunt_replay_sample sample;
	int status = parse_arguments(argc, argv, &args);

	if (status >= 0)
		return status;
	sample = (struct shunt_replay_sample){ .target = args.target, .nr_programs = (uint32_t)args.nr_programs, .spacing = args.spacing,
					       .plan = args.plan, .miss = args.miss, .nr_hot = (uint32_t)args.nr_hot,
					       .counts_hits = args.counts_hits };
	if (args.draws ? shunt_replay_draw_sample(&sample, stdout) : shunt_replay_list_sample(&sample, stdout)) {
		fprintf(stderr, "shunt dump: %s\n", shunt_error());
		return SHUNT_EXIT_FAILED;
	}
	return SHUNT_EXIT_OK;
}
