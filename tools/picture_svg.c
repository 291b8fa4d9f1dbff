/* SPDX-License-Identifier: MIT */
/*
 * The picture as SVG: a row for 16 KiB of a pack, rows without a block drawn together as one thin line, each block at its place in its
 * owner's colour. Blocks of an owner are one path, which keeps a hundred thousand of them a file that browsers open.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tools/picture.h"
#include "tools/report.h"

#define ROW_BYTES ((size_t)16384)
#define ROWS (SHUNT_PACK_SIZE / ROW_BYTES)
#define CHUNK_WIDTH 3
#define WIDTH (ROW_BYTES / SHUNT_CHUNK_SIZE * CHUNK_WIDTH)
#define LEFT 86
#define TOP 16
#define LINE_HEIGHT 18
#define SQUARE 11
#define MANY_ROWS 96 /* from here on they are thin */
#define NR_COLOURS 10u
#define MAX_TITLES 2000 /* blocks that say what they are under the mouse */

static const char *const colours[NR_COLOURS] = {
	"#2f6db3", "#e08a1e", "#3a9a5b", "#c4453c", "#7d5fb2", "#8a6d4f", "#d17bb0", "#5fa8b8", "#a3a33a", "#6f7f8f",
};

/* How rows are drawn. */
struct style {
	int row, bar;       /* heights of a row and of what is drawn of it */
	size_t label_every; /* rows, from the pack's first on */
};
static const struct style thick = { 14, 11, 1 }, thin = { 6, 5, 8 };

/* Where a row of a pack is drawn; -1: not at all. */
struct rows {
	const struct style *style;
	int y[ROWS];
	int height;
	size_t nr_used;
};

static void place_rows(const struct picture *picture, size_t first, size_t nr, size_t base, const struct style *style, struct rows *rows)
{
	bool used[ROWS] = { false };
	int y = 0;

	rows->style = style;
	rows->nr_used = 0;
	for (size_t i = first; i < first + nr; i++)
		for (size_t at = picture->blocks[i].offset - base; at < picture->blocks[i].offset - base + picture->blocks[i].len && at < SHUNT_PACK_SIZE;
		     at = (at / ROW_BYTES + 1) * ROW_BYTES)
			used[at / ROW_BYTES] = true;
	for (size_t row = 0; row < ROWS; row++) {
		rows->y[row] = used[row] ? y : -1;
		rows->nr_used += used[row];
		if (used[row])
			y += style->row;
		else if (row == 0 || used[row - 1])
			y += thick.row; /* the line that stands for this one and those after it */
	}
	rows->height = y;
}

static void escape(FILE *file, const char *text)
{
	for (; *text; text++) {
		const char *entity = *text == '&' ? "&amp;" : *text == '<' ? "&lt;" : *text == '>' ? "&gt;" : *text == '"' ? "&quot;" : NULL;

		if (entity)
			fputs(entity, file);
		else
			fputc(*text, file);
	}
}

/* The outline of a block: a rectangle in each row that it is in. A gap of a pixel shows where the next begins. */
static void draw_block(FILE *file, const struct picture_block *block, size_t base, const struct rows *rows, int top)
{
	size_t at = block->offset - base, end = at + block->len;

	while (at < end && at < SHUNT_PACK_SIZE) {
		size_t row = at / ROW_BYTES, stop = (row + 1) * ROW_BYTES < end ? (row + 1) * ROW_BYTES : end;
		size_t width = (stop - at) / SHUNT_CHUNK_SIZE * CHUNK_WIDTH;

		fprintf(file, "M%zu %dh%zuv%dh-%zuz", LEFT + at % ROW_BYTES / SHUNT_CHUNK_SIZE * CHUNK_WIDTH, top + rows->y[row], width - (stop == end),
			rows->style->bar, width - (stop == end));
		at = stop;
	}
}

static void draw_blocks(FILE *file, const struct picture *picture, size_t first, size_t nr, size_t base, const struct rows *rows, int top)
{
	bool titles = picture->nr_blocks <= MAX_TITLES;

	for (size_t owner = 0; owner < picture->nr_owners; owner++) {
		bool open = false;

		for (size_t i = first; i < first + nr; i++) {
			const struct picture_block *block = &picture->blocks[i];

			if (block->owner != owner)
				continue;
			if (!open)
				fprintf(file, "<path fill=\"%s\" d=\"", colours[owner % NR_COLOURS]);
			open = true;
			draw_block(file, block, base, rows, top);
			if (!titles)
				continue;
			fprintf(file, "\"><title>");
			escape(file, picture->owners[owner].name);
			fprintf(file, ", %s bytes at +0x%zx</title></path>\n", report_number(block->len), block->offset - base);
			open = false;
		}
		if (open)
			fprintf(file, "\"/>\n");
	}
}

/* Rows, with the offsets that they begin at. */
static void draw_rows(FILE *file, const struct rows *rows, int top)
{
	int y = top;

	for (size_t row = 0; row < ROWS;) {
		size_t end = row;

		if (rows->y[row] >= 0) {
			if (row % rows->style->label_every == 0 || row == 0 || rows->y[row - 1] < 0)
				fprintf(file, "<text x=\"%d\" y=\"%d\" class=\"s\">%06zx</text>", LEFT - 62, y + rows->style->bar / 2 + 4, row * ROW_BYTES);
			fprintf(file, "<rect x=\"%d\" y=\"%d\" width=\"%zu\" height=\"%d\" class=\"u\"/>\n", LEFT, y, WIDTH, rows->style->bar);
			row++;
			y += rows->style->row;
			continue;
		}
		while (end < ROWS && rows->y[end] < 0)
			end++;
		fprintf(file, "<path d=\"M%d %dh%zu\" class=\"l\"/><text x=\"%zu\" y=\"%d\" class=\"m\">%zu KiB unused</text>\n", LEFT, y + 5, WIDTH,
			LEFT + WIDTH / 2, y + 9, (end - row) * ROW_BYTES >> 10);
		row = end;
		y += thick.row;
	}
}

static int legend_height(const struct picture *picture)
{
	return (int)picture->nr_owners * LINE_HEIGHT + 10;
}

static void draw_legend(FILE *file, const struct picture *picture, int top)
{
	for (size_t i = 0; i < picture->nr_owners; i++) {
		const struct picture_owner *owner = &picture->owners[i];
		int y = top + (int)i * LINE_HEIGHT;

		fprintf(file, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\"/><text x=\"%d\" y=\"%d\">", LEFT, y, SQUARE, SQUARE,
			colours[i % NR_COLOURS], LEFT + 20, y + 10);
		escape(file, owner->name);
		fprintf(file, ": %s bytes", report_number(owner->bytes));
		if (owner->nr_blocks != 1)
			fprintf(file, " in %s blocks", report_number(owner->nr_blocks));
		fprintf(file, "</text>\n");
	}
}

/* Of the whole drawing; *nr_rows becomes how many rows have a block in them. */
static int total_height(const struct picture *picture, const struct style *style, size_t *nr_rows)
{
	int height = TOP;

	*nr_rows = 0;
	for (size_t first = 0, nr; first < picture->nr_blocks; first += nr) {
		size_t base, bytes;
		struct rows rows;

		nr = picture_pack(picture, first, &base, &bytes);
		place_rows(picture, first, nr, base, style, &rows);
		*nr_rows += rows.nr_used;
		height += LINE_HEIGHT + rows.height + TOP;
	}
	return height + legend_height(picture);
}

int picture_write_svg(const struct picture *picture, const char *path)
{
	FILE *file = fopen(path, "we");
	const struct style *style = &thick;
	int height, top = TOP;
	size_t nr_rows;
	bool failed;

	if (!file)
		return -errno;
	height = total_height(picture, style, &nr_rows);
	if (nr_rows > MANY_ROWS) {
		style = &thin;
		height = total_height(picture, style, &nr_rows);
	}
	fprintf(file, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%zu\" height=\"%d\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n"
		"<style>.s,.m{font-size:10px;fill:#777}.s{font-family:monospace}.m{text-anchor:middle;paint-order:stroke;stroke:#fff;stroke-width:8px}"
		".u{fill:#e9ebee}.l{stroke:#ccc;stroke-dasharray:2 3}.t{font-weight:bold}</style>\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n", LEFT + WIDTH + 20, height);
	for (size_t first = 0, nr; first < picture->nr_blocks; first += nr) {
		size_t base, bytes;
		struct rows rows;
		char title[160];

		nr = picture_pack(picture, first, &base, &bytes);
		place_rows(picture, first, nr, base, style, &rows);
		picture_title(picture, first, title, sizeof(title));
		fprintf(file, "<text x=\"%d\" y=\"%d\" class=\"t\">%s</text>\n", LEFT, top + 11, title);
		draw_rows(file, &rows, top + LINE_HEIGHT);
		draw_blocks(file, picture, first, nr, base, &rows, top + LINE_HEIGHT);
		top += LINE_HEIGHT + rows.height + TOP;
	}
	draw_legend(file, picture, top);
	fprintf(file, "</svg>\n");
	failed = ferror(file);
	return fclose(file) != 0 || failed ? -EIO : 0;
}
