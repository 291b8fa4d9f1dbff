/* SPDX-License-Identifier: MIT */
/*
 * shunt packs: how packs fill and empty, as a picture. Programs of random lengths are placed, some of them freed, and others placed in
 * the room that this left; each pack is drawn as a map of its 4 KiB pages, on the terminal and as SVG.
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

#define CELL ((size_t)4096)
#define CELLS (SHUNT_PACK_SIZE / CELL)
#define COLUMNS 64
#define MAX_PACKS 512

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

/* Bytes in use of each page, pack by pack. */
struct picture {
	const char *base;
	size_t nr_packs;                    /* drawn: up to the last one with a block */
	uint16_t cells[MAX_PACKS][CELLS];
};

struct arguments {
	uint64_t nr, low, high, percent;
	const char *svg;
};

/* ---- taking the picture ---------------------------------------------------------------------------------------- */

static int take_block(void *user, enum shunt_segment segment, const struct shunt_block *block)
{
	struct picture *picture = user;
	size_t at = (size_t)((const char *)block->rx - picture->base), end = at + block->len;

	(void)segment;
	while (at < end && at / SHUNT_PACK_SIZE < MAX_PACKS) {
		size_t here = CELL - at % CELL < end - at ? CELL - at % CELL : end - at;

		picture->cells[at / SHUNT_PACK_SIZE][at % SHUNT_PACK_SIZE / CELL] += (uint16_t)here;
		picture->nr_packs = at / SHUNT_PACK_SIZE + 1;
		at += here;
	}
	return 0;
}

static size_t bytes_in(const uint16_t *cells)
{
	size_t bytes = 0;

	for (size_t i = 0; i < CELLS; i++)
		bytes += cells[i];
	return bytes;
}

/* ---- drawing --------------------------------------------------------------------------------------------------- */

static void draw_text(const struct picture *picture)
{
	static const char *const shades[] = { "\xc2\xb7", "\xe2\x96\x91", "\xe2\x96\x92", "\xe2\x96\x93", "\xe2\x96\x88" }; /* . to full block */

	for (size_t pack = 0; pack < picture->nr_packs; pack++) {
		const uint16_t *cells = picture->cells[pack];
		size_t bytes = bytes_in(cells);

		if (!bytes)
			continue;
		printf("%p  %5.1f %% used\n", (const void *)(picture->base + pack * SHUNT_PACK_SIZE), 100.0 * (double)bytes / SHUNT_PACK_SIZE);
		for (size_t i = 0; i < CELLS; i++) {
			if (i % COLUMNS == 0)
				printf("  ");
			fputs(shades[cells[i] ? 1 + cells[i] * 3 / CELL : 0], stdout);
			if (i % COLUMNS == COLUMNS - 1)
				printf("\n");
		}
	}
	printf("each character is a page of 4 KiB: \xc2\xb7 unused, \xe2\x96\x91 below a third, \xe2\x96\x92 below two, \xe2\x96\x93 more, \xe2\x96\x88 full\n");
}

static int draw_svg(const struct picture *picture, const char *path)
{
	FILE *file = fopen(path, "we");
	size_t rows = CELLS / COLUMNS, drawn = 0, nr = 0;
	bool failed;

	if (!file)
		return -errno;
	for (size_t pack = 0; pack < picture->nr_packs; pack++)
		nr += bytes_in(picture->cells[pack]) != 0;
	fprintf(file, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%zu\" font-family=\"monospace\" font-size=\"12\">\n",
		COLUMNS * 10 + 20, nr * (rows * 10 + 34) + 10);
	fprintf(file, "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n");
	for (size_t pack = 0; pack < picture->nr_packs; pack++) {
		const uint16_t *cells = picture->cells[pack];
		size_t bytes = bytes_in(cells), top = drawn * (rows * 10 + 34) + 10;

		if (!bytes)
			continue;
		fprintf(file, "<text x=\"10\" y=\"%zu\">%p  %.1f %% used</text>\n", top + 12,
			(const void *)(picture->base + pack * SHUNT_PACK_SIZE), 100.0 * (double)bytes / SHUNT_PACK_SIZE);
		for (size_t i = 0; i < CELLS; i++)
			fprintf(file, "<rect x=\"%zu\" y=\"%zu\" width=\"9\" height=\"9\" fill=\"#%s\" fill-opacity=\"%.2f\"/>\n",
				10 + i % COLUMNS * 10, top + 18 + i / COLUMNS * 10, cells[i] ? "1f5fa8" : "cccccc",
				cells[i] ? 0.2 + 0.8 * cells[i] / CELL : 0.5);
		drawn++;
	}
	fprintf(file, "</svg>\n");
	failed = ferror(file);
	return fclose(file) != 0 || failed ? -EIO : 0;
}

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

static int place_all(const struct arguments *args, struct shunt_arena *arena)
{
	struct shunt_block *blocks = calloc(args->nr, sizeof(*blocks));
	uint64_t nr_freed = 0;
	int err = blocks ? 0 : -ENOMEM;

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
	for (uint64_t i = 0; !err && i < nr_freed / 2; i++)
		err = place_one(args, arena, &blocks[0]);
	free(blocks);
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
	struct picture *picture = calloc(1, sizeof(*picture));
	struct shunt_pack_stats stats;
	struct shunt_arena *arena;
	int status = parse(argc, argv, &args);
	int err;

	if (status >= 0 || !picture) {
		free(picture);
		return picture ? status : SHUNT_EXIT_FAILED;
	}
	if (shunt_arena_create(NULL, &arena) != 0 || place_all(&args, arena) != 0 || shunt_pack_get_stats(arena, &stats) != 0) {
		fprintf(stderr, "shunt packs: %s\n", shunt_error());
		free(picture);
		return SHUNT_EXIT_FAILED;
	}
	picture->base = stats.arena_base;
	shunt_pack_walk(arena, take_block, picture);
	draw_text(picture);
	printf("%" PRIu64 " programs, %" PRIu64 " bytes used of %" PRIu64 " in %" PRIu64 " packs (%s, %" PRIu64 " bytes on 2 MiB pages)\n",
	       stats.nr_blocks[SHUNT_SEGMENT_CODE], stats.bytes_used[SHUNT_SEGMENT_CODE], stats.bytes_mapped[SHUNT_SEGMENT_CODE],
	       stats.nr_packs[SHUNT_SEGMENT_CODE], shunt_backing_name(stats.backing), stats.bytes_huge);
	err = args.svg ? draw_svg(picture, args.svg) : 0;
	if (err)
		fprintf(stderr, "shunt packs: %s cannot be written: %s\n", args.svg, strerror(-err));
	free(picture);
	return err ? SHUNT_EXIT_FAILED : SHUNT_EXIT_OK;
}
