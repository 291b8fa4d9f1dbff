/* SPDX-License-Identifier: MIT */
/*
 * The chunks of one pack: which are used, where blocks end, where the longest free run is. Pure bookkeeping, no locks, no memory of
 * its own.
 *
 * Two bits a chunk (used; last of its block) and a tree of free runs over the 64-chunk words: the root knows the longest run exactly,
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

struct shunt_pack_space {
	uint64_t used[SHUNT_PACK_WORDS];
	uint64_t last[SHUNT_PACK_WORDS];
	struct shunt_free_run tree[2 * SHUNT_PACK_WORDS]; /* [1] the root; [n] has children [2n], [2n + 1]; leaves are words */
};

void shunt_space_init(struct shunt_pack_space *space);
uint32_t shunt_space_longest(const struct shunt_pack_space *space);

/* Takes nr chunks starting at a multiple of align (a power of two): the first, or SHUNT_NO_CHUNK. */
uint32_t shunt_space_take(struct shunt_pack_space *space, uint32_t nr, uint32_t align);

/* Gives back nr chunks from first; they are one block or the tail of one. */
void shunt_space_give(struct shunt_pack_space *space, uint32_t first, uint32_t nr);

/* Moves the end of a block from its chunk old_last to its chunk new_last, which is lower; the tail is free then. */
void shunt_space_shorten(struct shunt_pack_space *space, uint32_t old_last, uint32_t new_last);

/* The block that chunk is in: first and count. False when the chunk is free. */
bool shunt_space_block(const struct shunt_pack_space *space, uint32_t chunk, uint32_t *first, uint32_t *nr);

/* The first used chunk at or above from, or SHUNT_NO_CHUNK. */
uint32_t shunt_space_next_used(const struct shunt_pack_space *space, uint32_t from);

static inline bool shunt_bit_is_set(const uint64_t *bits, uint32_t n)
{
	return bits[n / 64] >> n % 64 & 1;
}

static inline void shunt_bit_set(uint64_t *bits, uint32_t n)
{
	bits[n / 64] |= UINT64_C(1) << n % 64;
}

static inline void shunt_bit_clear(uint64_t *bits, uint32_t n)
{
	bits[n / 64] &= ~(UINT64_C(1) << n % 64);
}

#endif
