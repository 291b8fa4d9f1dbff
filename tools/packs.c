/* SPDX-License-Identifier: MIT */
/*
 * shunt packs: how packs fill and empty, as a picture. Programs of random lengths are placed, some of them freed, and others placed in
 * the room that this left.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shunt/log.h>
#include <shunt/pack.h>
#include <shunt/reader.h>
#include "tools/command.h"
#include "tools/picture.h"

static const char help[] =
	"usage: shunt packs [options]\n"
	"\n"
	"Places programs in packs, frees some, places more, and draws what the packs look like then.\n"
	"\n"
	"  -n, --programs N         how many (default: 20000)\n"
	"  -l, --lengths LOW-HIGH   their lengths in bytes, every one as likely (default: 64-1000)\n"
	"  -f, --free PERCENT       how many of them are freed again; half as many come in their place (default: 40)\n"
	"  -s, --svg FILE           draw into FILE, too\n"
	"  -h, --help               this text\n";

struct arguments {
	uint64_t nr, low, high, percent;
	const char *svg;
};

/* ---- the programs ---------------------------------------------------------------------------------------------- */

static uint64_t random_below(uint64_t limit)
{
	static uint64_t state = 88172645463325252u;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % limit;
}

static int place_one(const struct arguments *args, struct shunt_arena *arena, struct shunt_block *out)
{
	return shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, args->low + random_below(args->high - args->low + 1), 0, out);
}

/* Programs that were placed in the room of others, by address. */
struct refilled {
	const void **rx;
	size_t nr;
};

static int compare_addresses(const void *a, const void *b)
{
	uintptr_t one = (uintptr_t) * (void *const *)a, other = (uintptr_t) * (void *const *)b;

	return (one > other) - (one < other);
}

static const char *name_block(void *user, enum shunt_segment segment, const struct shunt_block *block)
{
	const struct refilled *refilled = user;

	if (refilled->nr && bsearch(&block->rx, refilled->rx, refilled->nr, sizeof(*refilled->rx), compare_addresses))
		return "programs placed after others were freed";
	return "programs that were there from the beginning";
}

/* blocks and refilled have room for args->nr. shunt_error() says why not. */
static int place_all(const struct arguments *args, struct shunt_arena *arena, struct shunt_block *blocks, struct refilled *refilled)
{
	uint64_t nr_freed = 0;
	int err = 0;

	for (uint64_t i = 0; !err && i < args->nr; i++)
		err = place_one(args, arena, &blocks[i]);
	for (uint64_t i = 0; !err && i < args->nr; i++) {
		if (random_below(100) >= args->percent)
			continue;
		err = shunt_pack_free(&blocks[i]);
		nr_freed++;
	}
	if (!err)
		err = shunt_quiesce();
	for (; !err && refilled->nr < nr_freed / 2; refilled->nr++) {
		err = place_one(args, arena, &blocks[0]);
		refilled->rx[refilled->nr] = blocks[0].rx;
	}
	if (!err)
		qsort(refilled->rx, refilled->nr, sizeof(*refilled->rx), compare_addresses);
	return err;
}

static int draw(struct shunt_arena *arena, struct refilled *refilled, const char *svg)
{
	const struct shunt_pack_stats *stats;
	struct picture picture;
	int err = picture_take(arena, name_block, refilled, &picture);

	if (err) {
		fprintf(stderr, "shunt packs: %s\n", strerror(-err));
		return err;
	}
	picture_print(&picture, stdout);
	stats = &picture.stats;
	printf("%" PRIu64 " programs, %" PRIu64 " bytes used of %" PRIu64 " in %" PRIu64 " packs (%s, %" PRIu64 " bytes on 2 MiB pages)\n",
	       stats->nr_blocks[SHUNT_SEGMENT_CODE], stats->bytes_used[SHUNT_SEGMENT_CODE], stats->bytes_mapped[SHUNT_SEGMENT_CODE],
	       stats->nr_packs[SHUNT_SEGMENT_CODE], shunt_backing_name(stats->backing), stats->bytes_huge);
	err = svg ? picture_write_svg(&picture, svg) : 0;
	if (err)
		fprintf(stderr, "shunt packs: %s cannot be written: %s\n", svg, strerror(-err));
	picture_fini(&picture);
	return err;
}

static bool parse_number(const char *text, uint64_t min, uint64_t max, char stop, uint64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoull(text, &end, 10);
	return !errno && *text >= '0' && *text <= '9' && *end == stop && *out >= min && *out <= max;
}

static bool parse_lengths(const char *text, struct arguments *args)
{
	const char *dash = strchr(text, '-');

	return dash && parse_number(text, 1, 1 << 20, '-', &args->low) && parse_number(dash + 1, args->low, 1 << 20, '\0', &args->high);
}

/* -1 to go on, else the exit status. */
static int parse(int argc, char **argv, struct arguments *args)
{
	static const struct option options[] = {
		{ "programs", required_argument, NULL, 'n' }, { "lengths", required_argument, NULL, 'l' }, { "free", required_argument, NULL, 'f' },
		{ "svg", required_argument, NULL, 's' },      { "help", no_argument, NULL, 'h' },          { 0 },
	};
	int option;
	bool good = true;

	while (good && (option = getopt_long(argc, argv, "n:l:f:s:h", options, NULL)) != -1) {
		if (option == 'h') {
			fputs(help, stdout);
			return SHUNT_EXIT_OK;
		}
		if (option == 'n')
			good = parse_number(optarg, 1, 10000000, '\0', &args->nr);
		else if (option == 'f')
			good = parse_number(optarg, 0, 100, '\0', &args->percent);
		else if (option == 'l')
			good = parse_lengths(optarg, args);
		else if (option == 's')
			args->svg = optarg;
		else
			good = false;
		if (!good)
			fprintf(stderr, "shunt packs: %s: not understood; 'shunt packs --help' lists the options\n", optarg ? optarg : "an option");
	}
	if (good && optind < argc) {
		fprintf(stderr, "shunt packs: unexpected argument '%s'; 'shunt packs --help' lists the options\n", argv[optind]);
		good = false;
	}
	return good ? -1 : SHUNT_EXIT_USAGE;
}

int shunt_command_packs(int argc, char **argv)
{
	struct arguments args = { .nr = 20000, .low = 64, .high = 1000, .percent = 40 };
	struct refilled refilled = { 0 };
	struct shunt_block *blocks;
	struct shunt_arena *arena;
	int status = parse(argc, argv, &args);

	if (status >= 0)
		return status;
	status = SHUNT_EXIT_FAILED;
	blocks = calloc(args.nr, sizeof(*blocks));
	refilled.rx = calloc(args.nr, sizeof(*refilled.rx));
	if (!blocks || !refilled.rx)
		fprintf(stderr, "shunt packs: no memory\n");
	else if (shunt_arena_create(NULL, &arena) != 0 || place_all(&args, arena, blocks, &refilled) != 0)
		fprintf(stderr, "shunt packs: %s\n", shunt_error());
	else if (draw(arena, &refilled, args.svg) == 0)
		status = SHUNT_EXIT_OK;
	free(blocks);
	free(refilled.rx);
	return status;
}
