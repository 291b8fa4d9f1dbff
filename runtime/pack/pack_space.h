/* SPDX-License-Identifier: MIT */
/*
 * The chunks of one pack: which are used, where blocks end, where the longest free run is. Pure bookkeeping, no locks, no memory of
 * its own.
 *
 * Bits for each chunk (used; last of its block) and a tree of free runs over the 64-chunk words: the root knows the longest run exactly,
 * and finding the lowest run that fits, taking and giving back cost a walk of the tree's nine levels however full the pack is.
 */
#ifndef RUNTIME_PACK_SPACE_H
#define RUNTIME_PACK_SPACE_H

#include <stdbool.h>
#include <stdint.h>
#include <shunt/pack.h>

#define SHUNT_PACK_CHUNKS ((uint32_t)(SHUNT_PACK_SIZE / SHUNT_CHUNK_SIZE))
#define SHUNT_PACK_WORDS (SHUNT_PACK_CHUNKS / 64)
#define SHUNT_NO_CHUNK UINT32_MAX

/* Free runs of a span of chunks: at its beginning, at its end, the longest anywhere. */
struct shunt_free_run {
	uint16_t prefix;
	uint16_t suffix;
	uint16_t longest;
};

/* Bits of a chunk. Those of 64 chunks lie side by side, since whoever looks at one looks at the others. */
enum shunt_bit {
	SHUNT_BIT_USED,
	SHUNT_BIT_LAST,  /* of its block */
	SHUNT_BIT_DYING, /* of a block's first chunk: freed; kept by pack_free.c */
	SHUNT_BIT_BATCH, /* and covered by the batch in progress; likewise. Without DYING: that batch is over, and the block rests */
	SHUNT_BIT_REUSED, /* a block that began here has gone since the pack was new; likewise */
	SHUNT_NR_BITS,
};

struct shunt_pack_space {
	uint64_t bits[SHUNT_PACK_WORDS][SHUNT_NR_BITS];
	struct shunt_free_run tree[2 * SHUNT_PACK_WORDS]; /* [1] the root; [n] has children [2n], [2n + 1]; leaves are words */
};

void shunt_space_init(struct shunt_pack_space *space);
uint32_t shunt_space_longest(const struct shunt_pack_space *space);

/* Takes nr chunks starting at a multiple of align (a power of two): the first, or SHUNT_NO_CHUNK. */
uint32_t shunt_space_take(struct shunt_pack_space *space, uint32_t nr, uint32_t align);

/* Takes the lowest run of at least nr chunks, up to max of it, as if it were one block: *end is behind its last chunk. Blocks are then
 * cut from its beginning (shunt_space_cut), and what is left at last is given back like a block. */
uint32_t shunt_space_open(struct shunt_pack_space *space, uint32_t nr, uint32_t max, uint32_t *end);
/* As that, but the run begins somewhere in the free run, as seed says. */
uint32_t shunt_space_open_at(struct shunt_pack_space *space, uint32_t nr, uint32_t max, uint64_t seed, uint32_t *end);

/* The chunk becomes the last of its block: what comes before and after it in one block are two blocks now. */
static inline void shunt_space_cut(struct shunt_pack_space *space, uint32_t last);

/* Gives back nr chunks from first; they are one block or the tail of one. */
void shunt_space_give(struct shunt_pack_space *space, uint32_t first, uint32_t nr);

/* The same for many blocks: each by itself, then once the sum of it. Only giving is allowed in between. */
void shunt_space_give_early(struct shunt_pack_space *space, uint32_t first, uint32_t nr);
void shunt_space_give_done(struct shunt_pack_space *space);

/* Moves the end of a block from its chunk old_last to its chunk new_last, which is lower; the tail is free then. */
void shunt_space_shorten(struct shunt_pack_space *space, uint32_t old_last, uint32_t new_last);

/* The block that chunk is in: first and count. False when the chunk is free. */
bool shunt_space_block(const struct shunt_pack_space *space, uint32_t chunk, uint32_t *first, uint32_t *nr);

/* The same where chunk may be a block's first: how many chunks that block has; 0 when no block begins there. */
uint32_t shunt_space_block_from(const struct shunt_pack_space *space, uint32_t chunk);

/* The first used chunk at or above from, or SHUNT_NO_CHUNK. */
uint32_t shunt_space_next_used(const struct shunt_pack_space *space, uint32_t from);

static inline bool shunt_bit_is_set(const struct shunt_pack_space *space, enum shunt_bit bit, uint32_t chunk)
{
	return space->bits[chunk / 64][bit] >> chunk % 64 & 1;
}

static inline bool shunt_bit_is_resting(const struct shunt_pack_space *space, uint32_t chunk)
{
	return (space->bits[chunk / 64][SHUNT_BIT_BATCH] & ~space->bits[chunk / 64][SHUNT_BIT_DYING]) >> chunk % 64 & 1;
}

static inline void shunt_bit_set(struct shunt_pack_space *space, enum shunt_bit bit, uint32_t chunk)
{
	space->bits[chunk / 64][bit] |= UINT64_C(1) << chunk % 64;
}

static inline void shunt_bit_clear(struct shunt_pack_space *space, enum shunt_bit bit, uint32_t chunk)
{
	space->bits[chunk / 64][bit] &= ~(UINT64_C(1) << chunk % 64);
}

static inline void shunt_space_cut(struct shunt_pack_space *space, uint32_t last)
{
	shunt_bit_set(space, SHUNT_BIT_LAST, last);
}

#endif
