/* SPDX-License-Identifier: MIT */
/* The chunk bookkeeping of one pack against a plain array of chunks. */
#include "test/unit/pack_check.h"
#include <stdlib.h>

#include "runtime/pack/pack_room.h"
#include "runtime/pack/pack_space.h"

static struct shunt_pack_space space;
/* 0: free, else the number of the block that the chunk belongs to. */
static uint32_t model[SHUNT_PACK_CHUNKS];

static uint32_t model_longest(void)
{
	uint32_t longest = 0;
	uint32_t run = 0;

	for (uint32_t chunk = 0; chunk < SHUNT_PACK_CHUNKS; chunk++) {
		run = model[chunk] ? 0 : run + 1;
		longest = run > longest ? run : longest;
	}
	return longest;
}

static uint32_t model_lowest(uint32_t nr)
{
	uint32_t run = 0;

	for (uint32_t chunk = 0; chunk < SHUNT_PACK_CHUNKS; chunk++) {
		run = model[chunk] ? 0 : run + 1;
		if (run == nr)
			return chunk + 1 - nr;
	}
	return SHUNT_NO_CHUNK;
}

static void model_set(uint32_t first, uint32_t nr, uint32_t value)
{
	for (uint32_t chunk = first; chunk < first + nr; chunk++)
		model[chunk] = value;
}

Test(pack_space, a_new_space_is_one_free_run)
{
	shunt_space_init(&space);
	cr_assert_eq(shunt_space_longest(&space), SHUNT_PACK_CHUNKS);
	cr_assert_eq(shunt_space_next_used(&space, 0), SHUNT_NO_CHUNK);
	cr_assert_eq(shunt_space_take(&space, SHUNT_PACK_CHUNKS, 64), 0);
	cr_assert_eq(shunt_space_longest(&space), 0);
	cr_assert_eq(shunt_space_take(&space, 1, 1), SHUNT_NO_CHUNK);
	shunt_space_give(&space, 0, SHUNT_PACK_CHUNKS);
	cr_assert_eq(shunt_space_longest(&space), SHUNT_PACK_CHUNKS);
}

Test(pack_space, takes_and_gives_in_any_order_agree_with_a_plain_array)
{
	enum { NR = 3000, STEPS = 20000 };
	static struct { uint32_t first, nr; } blocks[NR];
	uint32_t steps_checked = 0;

	srand(1);
	shunt_space_init(&space);
	for (uint32_t step = 0; step < STEPS; step++) {
		uint32_t which = (uint32_t)rand() % NR;
		uint32_t first;
		uint32_t nr;

		if (blocks[which].nr) {
			bool found = shunt_space_block(&space, blocks[which].first + (uint32_t)rand() % blocks[which].nr, &first, &nr);

			cr_assert(found);
			cr_assert_eq(first, blocks[which].first);
			cr_assert_eq(nr, blocks[which].nr);
			if (nr > 1 && rand() % 4 == 0) {
				uint32_t keep = 1 + (uint32_t)rand() % (nr - 1);

				shunt_space_shorten(&space, first + nr - 1, first + keep - 1);
				model_set(first + keep, nr - keep, 0);
				blocks[which].nr = keep;
			} else {
				shunt_space_give(&space, first, nr);
				model_set(first, nr, 0);
				blocks[which].nr = 0;
			}
		} else {
			uint32_t want = rand() % 50 ? 1 + (uint32_t)rand() % 20 : 1 + (uint32_t)rand() % 700;
			uint32_t align = 1u << (rand() % 4 ? 0 : rand() % 7);

			first = shunt_space_take(&space, want, align);
			if (align == 1)
				cr_assert_eq(first, model_lowest(want), "not the lowest run of %u", want);
			if (first == SHUNT_NO_CHUNK) {
				cr_assert_gt(want + align - 1, model_longest());
				continue;
			}
			cr_assert_eq(first % align, 0);
			for (uint32_t chunk = first; chunk < first + want; chunk++)
				cr_assert_eq(model[chunk], 0, "chunk %u was taken twice", chunk);
			model_set(first, want, which + 1);
			blocks[which].first = first;
			blocks[which].nr = want;
		}
		if (step % 16 == 0) {
			cr_assert_eq(shunt_space_longest(&space), model_longest());
			steps_checked++;
		}
	}
	cr_assert_gt(steps_checked, 1000);
	for (uint32_t chunk = 0; chunk < SHUNT_PACK_CHUNKS; chunk++)
		cr_assert_eq(shunt_bit_is_set(&space, SHUNT_BIT_USED, chunk), model[chunk] != 0);
}

Test(pack_space, every_length_is_found_at_every_offset_of_a_word)
{
	for (uint32_t nr = 1; nr <= 130; nr++) {
		for (uint32_t at = 0; at < 64; at++) {
			shunt_space_init(&space);
			cr_assert_eq(shunt_space_take(&space, SHUNT_PACK_CHUNKS, 1), 0);
			/* One hole of nr chunks, and a shorter one below it. */
			shunt_space_shorten(&space, SHUNT_PACK_CHUNKS - 1, 639 + at);
			cr_assert_eq(shunt_space_take(&space, nr, 1), 640 + at);
			cr_assert_eq(shunt_space_take(&space, SHUNT_PACK_CHUNKS - 640 - at - nr, 1), 640 + at + nr);
			cr_assert_eq(shunt_space_longest(&space), 0);
			shunt_space_give(&space, 640 + at, nr);
			cr_assert_eq(shunt_space_longest(&space), nr);
			cr_assert_eq(shunt_space_take(&space, nr + 1, 1), SHUNT_NO_CHUNK);
			cr_assert_eq(shunt_space_take(&space, nr, 1), 640 + at);
		}
	}
}

Test(pack_space, blocks_side_by_side_are_told_apart)
{
	uint32_t first;
	uint32_t nr;

	shunt_space_init(&space);
	cr_assert_eq(shunt_space_take(&space, 3, 1), 0);
	cr_assert_eq(shunt_space_take(&space, 61, 1), 3);
	cr_assert_eq(shunt_space_take(&space, 200, 1), 64);
	cr_assert(shunt_space_block(&space, 2, &first, &nr) && first == 0 && nr == 3);
	cr_assert(shunt_space_block(&space, 3, &first, &nr) && first == 3 && nr == 61);
	cr_assert(shunt_space_block(&space, 263, &first, &nr) && first == 64 && nr == 200);
	cr_assert_not(shunt_space_block(&space, 264, &first, &nr));
}

Test(pack_room, the_tightest_pack_that_fits_is_found)
{
	static struct shunt_room room;
	static struct shunt_room_link packs[4];
	static const uint32_t longest[4] = { 5, 40, 700, 32768 };

	cr_assert_null(shunt_room_find(&room, 1));
	for (int i = 0; i < 4; i++)
		shunt_room_place(&room, &packs[i], longest[i]);
	cr_assert_eq(shunt_room_find(&room, 1), &packs[0]);
	cr_assert_eq(shunt_room_find(&room, 5), &packs[0]);
	cr_assert_eq(shunt_room_find(&room, 6), &packs[1]);
	cr_assert_eq(shunt_room_find(&room, 40), &packs[1]);
	cr_assert_eq(shunt_room_find(&room, 41), &packs[2]);
	cr_assert_eq(shunt_room_find(&room, 32768), &packs[3]);
	shunt_room_place(&room, &packs[3], 0);
	cr_assert_null(shunt_room_find(&room, 701));
	shunt_room_place(&room, &packs[0], 32768);
	cr_assert_eq(shunt_room_find(&room, 701), &packs[0]);
}

Test(pack_room, every_request_is_served_by_a_pack_long_enough)
{
	for (uint32_t have = 1; have <= 32768; have += have < 300 ? 1 : 97) {
		struct shunt_room room = { 0 };
		struct shunt_room_link pack = { 0 };

		shunt_room_place(&room, &pack, have);
		cr_assert_eq(shunt_room_find(&room, have), &pack);
		cr_assert_null(shunt_room_find(&room, have + 1));
		shunt_room_place(&room, &pack, 0);
		cr_assert_eq(room.filled[0] | room.filled[1], 0);
	}
}
