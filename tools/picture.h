/* SPDX-License-Identifier: MIT */
/* What lies where in an arena's packs, drawn on a terminal and as SVG. */
#ifndef TOOLS_PICTURE_H
#define TOOLS_PICTURE_H

#include <stdio.h>
#include <shunt/pack.h>

struct picture_block {
	enum shunt_segment segment;
	uint32_t owner;     /* index of picture.owners */
	size_t offset, len; /* in the arena */
};

/* Blocks that one name is for. */
struct picture_owner {
	char *name;
	size_t nr_blocks, bytes;
};

struct picture {
	struct shunt_pack_stats stats;
	struct picture_block *blocks; /* in address order */
	size_t nr_blocks, max_blocks;
	struct picture_owner *owners; /* in the order of their first blocks */
	size_t nr_owners;
};

/* Whose block it is: a name that is valid until the next call. */
typedef const char *picture_owner_fn(void *user, enum shunt_segment segment, const struct shunt_block *block);

/* Takes the picture of arena (NULL: the default). 0 or -ENOMEM; errors of shunt_pack_get_stats. */
int picture_take(struct shunt_arena *arena, picture_owner_fn *owner, void *user, struct picture *out);
void picture_fini(struct picture *picture);

/* A few blocks: a letter a chunk of 64 bytes; many: a shade a page of 4 KiB. */
void picture_print(const struct picture *picture, FILE *out);
/* Writes the SVG; a negative errno when that fails. */
int picture_write_svg(const struct picture *picture, const char *path);

/* picture.c, for both drawings: blocks of the pack (or packs of one block) that begins with blocks[first], and the offset that it begins at. */
size_t picture_pack(const struct picture *picture, size_t first, size_t *base, size_t *bytes_used);
const char *picture_segment_name(enum shunt_segment segment);
/* "code pack 0x...: 12 blocks, 3.4 % of 2 MiB used" */
void picture_title(const struct picture *picture, size_t first, char *out, size_t len);

#endif
