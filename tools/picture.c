/* SPDX-License-Identifier: MIT */
/* Taking the picture of an arena, and drawing it with characters. */
#include "tools/picture.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "tools/report.h"

#define PAGE ((size_t)4096)
#define COLUMNS 64              /* chunks of a page, and pages of a row */
#define LETTERS 26u
#define PAGES_WITH_LETTERS 48   /* of an arena; more do not fit a screen and are drawn as shades */

/* ---- taking ---------------------------------------------------------------------------------------------------- */

struct taking {
	struct picture *picture;
	picture_owner_fn *owner;
	void *user;
};

/* Index of the owner of that name, or -ENOMEM. */
static int64_t find_owner(struct picture *picture, const char *name)
{
	struct picture_owner *owners;

	/* Neighbours mostly have the same. */
	for (size_t i = picture->nr_owners; i > 0; i--)
		if (!strcmp(picture->owners[i - 1].name, name))
			return (int64_t)i - 1;
	owners = realloc(picture->owners, (picture->nr_owners + 1) * sizeof(*owners));
	if (!owners)
		return -ENOMEM;
	picture->owners = owners;
	owners[picture->nr_owners] = (struct picture_owner){ .name = strdup(name) };
	return owners[picture->nr_owners].name ? (int64_t)picture->nr_owners++ : -ENOMEM;
}

static int take_block(void *user, enum shunt_segment segment, const struct shunt_block *block)
{
	struct taking *taking = user;
	struct picture *picture = taking->picture;
	int64_t owner = find_owner(picture, taking->owner(taking->user, segment, block));

	if (owner < 0)
		return (int)owner;
	if (picture->nr_blocks == picture->max_blocks) {
		size_t max = picture->max_blocks ? 2 * picture->max_blocks : 256;
		struct picture_block *blocks = realloc(picture->blocks, max * sizeof(*blocks));

		if (!blocks)
			return -ENOMEM;
		picture->blocks = blocks;
		picture->max_blocks = max;
	}
	picture->blocks[picture->nr_blocks++] = (struct picture_block){
		.segment = segment,
		.owner = (uint32_t)owner,
		.offset = (size_t)((const char *)block->rx - (const char *)picture->stats.arena_base),
		.len = block->len,
	};
	picture->owners[owner].nr_blocks++;
	picture->owners[owner].bytes += block->len;
	return 0;
}

int picture_take(struct shunt_arena *arena, picture_owner_fn *owner, void *user, struct picture *out)
{
	struct taking taking = { out, owner, user };
	int err;

	*out = (struct picture){ 0 };
	err = shunt_pack_get_stats(arena, &out->stats);
	if (!err)
		err = shunt_pack_walk(arena, take_block, &taking);
	if (err)
		picture_fini(out);
	return err;
}

void picture_fini(struct picture *picture)
{
	for (size_t i = 0; i < picture->nr_owners; i++)
		free(picture->owners[i].name);
	free(picture->owners);
	free(picture->blocks);
	*picture = (struct picture){ 0 };
}

size_t picture_pack(const struct picture *picture, size_t first, size_t *base, size_t *bytes_used)
{
	size_t nr = 0;

	*base = picture->blocks[first].offset / SHUNT_PACK_SIZE * SHUNT_PACK_SIZE;
	*bytes_used = 0;
	while (first + nr < picture->nr_blocks && picture->blocks[first + nr].offset - *base < SHUNT_PACK_SIZE)
		*bytes_used += picture->blocks[first + nr++].len;
	return nr;
}

const char *picture_segment_name(enum shunt_segment segment)
{
	static const char *const names[] = { "code", "read-only", "data" };

	return names[segment];
}

void picture_title(const struct picture *picture, size_t first, char *out, size_t len)
{
	size_t base, bytes, nr = picture_pack(picture, first, &base, &bytes);
	size_t nr_packs = (picture->blocks[first].len + SHUNT_PACK_SIZE - 1) / SHUNT_PACK_SIZE;

	snprintf(out, len, "%s pack %p: %s block%s, %s bytes, %.1f %% of %zu MiB", picture_segment_name(picture->blocks[first].segment),
		 (const void *)((const char *)picture->stats.arena_base + base), report_number(nr), nr == 1 ? "" : "s", report_number(bytes),
		 100.0 * (double)bytes / (double)(nr_packs * SHUNT_PACK_SIZE), nr_packs * SHUNT_PACK_SIZE >> 20);
}

/* ---- drawing --------------------------------------------------------------------------------------------------- */

static size_t count_pages(const struct picture *picture)
{
	size_t nr = 0, next = 0;

	for (size_t i = 0; i < picture->nr_blocks; i++) {
		size_t begin = picture->blocks[i].offset / PAGE, end = (picture->blocks[i].offset + picture->blocks[i].len + PAGE - 1) / PAGE;

		begin = begin < next ? next : begin;
		nr += end - begin;
		next = end;
	}
	return nr;
}

/* A line a page, a letter a chunk: a block's first is a capital. Pages without a block are left out. */
static void print_letters(const struct picture *picture, size_t first, size_t nr, size_t base, FILE *out)
{
	size_t left_out = 0, block = first;

	for (size_t page = base; page < base + SHUNT_PACK_SIZE; page += PAGE) {
		char line[COLUMNS + 1];
		bool any = false;

		memset(line, '.', COLUMNS);
		line[COLUMNS] = '\0';
		for (; block < first + nr && picture->blocks[block].offset < page + PAGE; block++) {
			const struct picture_block *at = &picture->blocks[block];
			char letter = (char)('a' + at->owner % LETTERS);

			any = true;
			for (size_t chunk = at->offset; chunk < at->offset + at->len && chunk < page + PAGE; chunk += SHUNT_CHUNK_SIZE)
				if (chunk >= page)
					line[(chunk - page) / SHUNT_CHUNK_SIZE] = (char)(chunk == at->offset ? letter - 'a' + 'A' : letter);
			if (at->offset + at->len > page + PAGE)
				break;
		}
		if (!any) {
			left_out++;
			continue;
		}
		fprintf(out, "  %06zx  %s\n", page - base, line);
	}
	if (left_out)
		fprintf(out, "          %zu page%s unused\n", left_out, left_out == 1 ? "" : "s");
}

/* A character a page. */
static void print_shades(const struct picture *picture, size_t first, size_t nr, size_t base, FILE *out)
{
	static const char *const shades[] = { "\xc2\xb7", "\xe2\x96\x91", "\xe2\x96\x92", "\xe2\x96\x93", "\xe2\x96\x88" }; /* . to full block */
	uint16_t used[SHUNT_PACK_SIZE / PAGE] = { 0 };

	for (size_t i = first; i < first + nr; i++) {
		size_t at = picture->blocks[i].offset - base, end = at + picture->blocks[i].len;

		while (at < end && at < SHUNT_PACK_SIZE) {
			size_t here = PAGE - at % PAGE < end - at ? PAGE - at % PAGE : end - at;

			used[at / PAGE] = (uint16_t)(used[at / PAGE] + here);
			at += here;
		}
	}
	for (size_t i = 0; i < SHUNT_PACK_SIZE / PAGE; i++)
		fprintf(out, "%s%s%s", i % COLUMNS ? "" : "  ", shades[used[i] ? 1 + used[i] * 3 / PAGE : 0], i % COLUMNS == COLUMNS - 1 ? "\n" : "");
}

static void print_owners(const struct picture *picture, bool letters, FILE *out)
{
	for (size_t i = 0; i < picture->nr_owners; i++) {
		const struct picture_owner *owner = &picture->owners[i];

		if (letters)
			fprintf(out, "  %c ", (char)('A' + i % LETTERS));
		else
			fprintf(out, "  ");
		fprintf(out, "%s: %s bytes", owner->name, report_number(owner->bytes));
		fprintf(out, owner->nr_blocks == 1 ? "\n" : " in %s blocks\n", report_number(owner->nr_blocks));
	}
}

void picture_print(const struct picture *picture, FILE *out)
{
	bool letters = count_pages(picture) <= PAGES_WITH_LETTERS;

	for (size_t first = 0, nr; first < picture->nr_blocks; first += nr) {
		size_t base, bytes;
		char title[160];

		nr = picture_pack(picture, first, &base, &bytes);
		picture_title(picture, first, title, sizeof(title));
		fprintf(out, "%s\n", title);
		if (letters)
			print_letters(picture, first, nr, base, out);
		else
			print_shades(picture, first, nr, base, out);
	}
	if (letters)
		fprintf(out, "a line is a page of 4 KiB, a character a chunk of 64 bytes, a capital the beginning of a block\n");
	else
		fprintf(out, "a character is a page of 4 KiB: \xc2\xb7 unused, \xe2\x96\x91 below a third, \xe2\x96\x92 below two, \xe2\x96\x93 more, \xe2\x96\x88 full\n");
	print_owners(picture, letters, out);
}
