/* SPDX-License-Identifier: MIT */
/* shunt dump: a dispatcher's stub and tree over made-up programs, for either CPU on either CPU. Nothing of it is run. */
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
	"usage: shunt dump [--target x86_64|arm64] [--programs N] [--spacing BYTES]\n"
	"\n"
	"Prints the stub and the tree that a dispatcher with N programs has, BYTES apart, as they would lie in a pack.\n"
	"\n"
	"  -t, --target NAME     x86_64 or arm64 (default: this machine)\n"
	"  -n, --programs N      0 to 4096 (default 8)\n"
	"  -s, --spacing BYTES   from one program to the next, a multiple of 4 (default 256)\n"
	"  -h, --help            this text\n"
	"\n"
	"Exit status: 0 done; 1 failed; 2 wrong usage.\n";

static const struct option long_options[] = {
	{ "target", required_argument, NULL, 't' },
	{ "programs", required_argument, NULL, 'n' },
	{ "spacing", required_argument, NULL, 's' },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

struct dump_arguments {
	const char *target;
	uint64_t nr_programs, spacing;
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

/* Returns -1 to go on, else the exit status. */
static int parse_arguments(int argc, char **argv, struct dump_arguments *args)
{
	int option;

	while ((option = getopt_long(argc, argv, "t:n:s:h", long_options, NULL)) != -1) {
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
	int status = parse_arguments(argc, argv, &args);

	if (status >= 0)
		return status;
	if (shunt_replay_list_sample(args.target, (uint32_t)args.nr_programs, args.spacing, stdout)) {
		fprintf(stderr, "shunt dump: %s\n", shunt_error());
		return SHUNT_EXIT_FAILED;
	}
	return SHUNT_EXIT_OK;
}
