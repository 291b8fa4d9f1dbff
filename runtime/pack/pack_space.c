/* SPDX-License-Identifier: MIT */
/* Chunk bitmaps and the tree of free runs. Expected load: up to 32,768 blocks a pack, taken and given back in any order. */
#include "runtime/pack/pack_space.h"

#include <string.h>

#define LEAF(word) (SHUNT_PACK_WORDS + (word))

static struct shunt_free_run run_of_word(uint64_t used)
{
	struct shunt_free_run run = { 64, 64, 64 };
	uint64_t starts = ~used; /* of runs of longest free bits at least */
	uint64_t longer;
	uint32_t longest = 1;
	uint32_t step = 1;

	if (!used)
		return run;
	run.prefix = (uint16_t)__builtin_ctzll(used);
	run.suffix = (uint16_t)__builtin_clzll(used);
	run.longest = 0;
	if (!starts)
		return run;
	/* Doubled as long as any run is that long, then by halves to the exact length. */
	while ((longer = starts & starts >> step)) {
		starts = longer;
		longest += step;
		step *= 2;
	}
	while (step /= 2) {
		longer = starts & starts >> step;
		if (longer) {
			starts = longer;
			longest += step;
		}
	}
	run.longest = (uint16_t)longest;
	return run;
}

/* span: chunks of one child. UINT16_MAX never occurs: a whole pack is 32,768. */
static struct shunt_free_run join(struct shunt_free_run low, struct shunt_free_run high, uint32_t span)
{
	struct shunt_free_run run;
	uint32_t across = (uint32_t)low.suffix + high.prefix;

	run.prefix = (uint16_t)(low.prefix == span ? span + high.prefix : low.prefix);
	run.suffix = (uint16_t)(high.suffix == span ? span + low.suffix : high.suffix);
	run.longest = low.longest > high.longest ? low.longest : high.longest;
	if (across > run.longest)
		run.longest = (uint16_t)across;
	return run;
}

/* Brings the tree up to date after the words from_word..to_word changed. */
static void refresh(struct shunt_pack_space *space, uint32_t from_word, uint32_t to_word)
{
	uint32_t low = LEAF(from_word);
	uint32_t high = LEAF(to_word);
	uint32_t span = 64;
	uint32_t word;
	uint32_t node;

	for (word = from_word; word <= to_word; word++)
		space->tree[LEAF(word)] = run_of_word(space->bits[word][SHUNT_BIT_USED]);
	while (low > 1) {
		bool changed = false;

		low /= 2;
		high /= 2;
		for (node = low; node <= high; node++) {
			struct shunt_free_run run = join(space->tree[2 * node], space->tree[2 * node + 1], span);

			changed |= memcmp(&run, &space->tree[node], sizeof(run)) != 0;
			space->tree[node] = run;
		}
		/* Nothing above looks different then. */
		if (!changed)
			return;
		span *= 2;
	}
}

static uint64_t mask_of(uint32_t bit, uint32_t nr)
{
	return (nr == 64 ? ~UINT64_C(0) : (UINT64_C(1) << nr) - 1) << bit;
}

static void mark_early(struct shunt_pack_space *space, uint32_t first, uint32_t nr, bool used)
{
	uint32_t chunk = first;
	uint32_t end = first + nr;

	while (chunk < end) {
		uint32_t bit = chunk % 64;
		uint32_t here = end - chunk < 64 - bit ? end - chunk : 64 - bit;

		if (used)
			space->bits[chunk / 64][SHUNT_BIT_USED] |= mask_of(bit, here);
		else
			space->bits[chunk / 64][SHUNT_BIT_USED] &= ~mask_of(bit, here);
		chunk += here;
	}
}

static void mark(struct shunt_pack_space *space, uint32_t first, uint32_t nr, bool used)
{
	mark_early(space, first, nr, used);
	refresh(space, first / 64, (first + nr - 1) / 64);
}

void shunt_space_init(struct shunt_pack_space *space)
{
	memset(space->tree, 0, sizeof(space->tree));
	memset(space->bits, 0, sizeof(space->bits));
	refresh(space, 0, SHUNT_PACK_WORDS - 1);
}

uint32_t shunt_space_longest(const struct shunt_pack_space *space)
{
	return space->tree[1].longest;
}

/* In a word whose longest free run is at least nr, or nr 64 and the word free. */
static uint32_t find_in_word(uint64_t used, uint32_t nr)
{
	uint64_t starts = ~used;
	uint32_t have = 1;

	/* After the loop a bit of starts is set where nr free bits begin; doubling the run length each step. */
	while (have < nr) {
		uint32_t step = nr - have < have ? nr - have : have;

		starts &= starts >> step;
		have += step;
	}
	return (uint32_t)__builtin_ctzll(starts);
}

/* The lowest run of nr free chunks, which exists. */
static uint32_t find_lowest(const struct shunt_pack_space *space, uint32_t nr)
{
	uint32_t node = 1;
	uint32_t base = 0;
	uint32_t span = SHUNT_PACK_CHUNKS;

	while (node < SHUNT_PACK_WORDS) {
		const struct shunt_free_run *low = &space->tree[2 * node];
		const struct shunt_free_run *high = low + 1;

		span /= 2;
		if (low->longest >= nr) {
			node = 2 * node;
		} else if ((uint32_t)low->suffix + high->prefix >= nr) {
			return base + span - low->suffix;
		} else {
			node = 2 * node + 1;
			base += span;
		}
	}
	return base + find_in_word(space->bits[node - SHUNT_PACK_WORDS][SHUNT_BIT_USED], nr);
}

static bool is_free(const struct shunt_pack_space *space, uint32_t first, uint32_t nr)
{
	uint32_t next = shunt_space_next_used(space, first);

	return next == SHUNT_NO_CHUNK || next >= first + nr;
}

uint32_t shunt_space_take(struct shunt_pack_space *space, uint32_t nr, uint32_t align)
{
	uint32_t first = SHUNT_NO_CHUNK;
	uint32_t chunk;

	if (nr > SHUNT_PACK_CHUNKS || shunt_space_longest(space) < nr)
		return SHUNT_NO_CHUNK;
	if (nr + align - 1 <= shunt_space_longest(space)) {
		first = (find_lowest(space, nr + align - 1) + align - 1) & ~(align - 1);
	} else {
		/* A run may still lie on a boundary by luck; at most 512 places at the alignments that reach this. */
		for (chunk = 0; chunk + nr <= SHUNT_PACK_CHUNKS && first == SHUNT_NO_CHUNK; chunk += align)
			if (is_free(space, chunk, nr))
				first = chunk;
	}
	if (first == SHUNT_NO_CHUNK)
		return first;
	mark(space, first, nr, true);
	shunt_bit_set(space, SHUNT_BIT_LAST, first + nr - 1);
	return first;
}

uint32_t shunt_space_open(struct shunt_pack_space *space, uint32_t nr, uint32_t max, uint32_t *end)
{
	return shunt_space_open_at(space, nr, max, 0, end);
}

uint32_t shunt_space_open_at(struct shunt_pack_space *space, uint32_t nr, uint32_t max, uint64_t seed, uint32_t *end)
{
	uint32_t first, next;

	if (nr > SHUNT_PACK_CHUNKS || shunt_space_longest(space) < nr)
		return SHUNT_NO_CHUNK;
	first = find_lowest(space, nr);
	next = shunt_space_next_used(space, first);
	*end = next == SHUNT_NO_CHUNK ? SHUNT_PACK_CHUNKS : next;
	first += (uint32_t)(seed % (*end - first - nr + 1));
	if (*end - first > max)
		*end = first + max;
	mark(space, first, *end - first, true);
	shunt_bit_set(space, SHUNT_BIT_LAST, *end - 1);
	return first;
}

void shunt_space_give(struct shunt_pack_space *space, uint32_t first, uint32_t nr)
{
	shunt_bit_clear(space, SHUNT_BIT_LAST, first + nr - 1);
	mark(space, first, nr, false);
}

void shunt_space_give_early(struct shunt_pack_space *space, uint32_t first, uint32_t nr)
{
	shunt_bit_clear(space, SHUNT_BIT_LAST, first + nr - 1);
	mark_early(space, first, nr, false);
}

void shunt_space_give_done(struct shunt_pack_space *space)
{
	refresh(space, 0, SHUNT_PACK_WORDS - 1);
}

void shunt_space_shorten(struct shunt_pack_space *space, uint32_t old_last, uint32_t new_last)
{
	shunt_bit_set(space, SHUNT_BIT_LAST, new_last);
	shunt_space_give(space, new_last + 1, old_last - new_last);
}

static uint32_t next_set(const struct shunt_pack_space *space, enum shunt_bit bit, uint32_t from)
{
	uint32_t word = from / 64;
	uint64_t left;

	if (from >= SHUNT_PACK_CHUNKS)
		return SHUNT_NO_CHUNK;
	left = space->bits[word][bit] & ~UINT64_C(0) << from % 64;
	while (!left) {
		if (++word == SHUNT_PACK_WORDS)
			return SHUNT_NO_CHUNK;
		left = space->bits[word][bit];
	}
	return word * 64 + (uint32_t)__builtin_ctzll(left);
}

uint32_t shunt_space_next_used(const struct shunt_pack_space *space, uint32_t from)
{
	return next_set(space, SHUNT_BIT_USED, from);
}

uint32_t shunt_space_block_from(const struct shunt_pack_space *space, uint32_t chunk)
{
	if (!shunt_bit_is_set(space, SHUNT_BIT_USED, chunk))
		return 0;
	if (chunk && shunt_bit_is_set(space, SHUNT_BIT_USED, chunk - 1) && !shunt_bit_is_set(space, SHUNT_BIT_LAST, chunk - 1))
		return 0;
	return next_set(space, SHUNT_BIT_LAST, chunk) + 1 - chunk;
}

bool shunt_space_block(const struct shunt_pack_space *space, uint32_t chunk, uint32_t *first, uint32_t *nr)
{
	uint32_t word = chunk / 64;
	uint64_t left;

	if (!shunt_bit_is_set(space, SHUNT_BIT_USED, chunk))
		return false;
	/* A block begins above the nearest chunk below that is free or another block's last. */
	left = (space->bits[word][SHUNT_BIT_LAST] | ~space->bits[word][SHUNT_BIT_USED]) & mask_of(0, chunk % 64);
	while (!left && word > 0) {
		word--;
		left = space->bits[word][SHUNT_BIT_LAST] | ~space->bits[word][SHUNT_BIT_USED];
	}
	*first = left ? word * 64 + 64 - (uint32_t)__builtin_clzll(left) : 0;
	*nr = next_set(space, SHUNT_BIT_LAST, chunk) + 1 - *first;
	return true;
}
