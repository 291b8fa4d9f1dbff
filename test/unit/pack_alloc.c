/* SPDX-License-Identifier: MIT */
/* Blocks: allocated, run, found, walked, freed once and no more. */
#include "test/unit/pack_check.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <shunt/log.h>
#include <shunt/reader.h>

#include "runtime/pack/arena.h"
#include "runtime/pack/pack.h"
#include "test/unit/pack_test.h"

/* Where what is freed may be handed out again at once. */
static struct shunt_arena *make_arena(size_t size)
{
	struct shunt_arena_options options = { .size = size, .rest = SHUNT_REST_NONE };
	struct shunt_arena *arena = NULL;

	stay_on_one_node();
	cr_assert_eq(shunt_arena_create(&options, &arena), 0, "%s", shunt_error());
	return arena;
}

static struct shunt_pack_stats stats_of(struct shunt_arena *arena)
{
	struct shunt_pack_stats stats;

	cr_assert_eq(shunt_pack_get_stats(arena, &stats), 0);
	return stats;
}

Test(pack, code_written_at_rw_runs_at_rx_of_the_default_arena)
{
	struct shunt_block block;

	cr_assert(make_tiny(NULL, 1234, &block), "%s", shunt_error());
	cr_assert_neq(block.rx, block.rw);
	cr_assert_eq(block.len, 64);
	cr_assert_neq(block.id, 0);
	cr_assert_eq(call(block.rx), 1234);
	cr_assert_eq(shunt_pack_free(&block), 0);
}

Test(pack, blocks_are_aligned_disjoint_and_traps_until_written)
{
	static const size_t aligns[] = { 0, 1, 16, 64, 128, 1024, 4096 };
	struct shunt_arena *arena = make_arena(16 << 20);
	struct shunt_block blocks[300];
	char *end = NULL;

	for (int i = 0; i < 300; i++) {
		size_t align = aligns[i % 7];

		cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, (size_t)(i * 37 % 5000 + 1), align, &blocks[i]), 0);
		cr_assert_eq((uintptr_t)blocks[i].rx % (align < 64 ? 64 : align), 0);
		cr_assert(is_all_traps(blocks[i].rx, blocks[i].len));
		memset(blocks[i].rw, i, blocks[i].len);
	}
	for (int i = 0; i < 300; i++)
		for (size_t at = 0; at < blocks[i].len; at++)
			cr_assert_eq(((unsigned char *)blocks[i].rx)[at], (unsigned char)i);
	for (int i = 0; i < 300; i++) {
		end = blocks[i].rx;
		cr_assert_eq(shunt_pack_free(&blocks[i]), 0);
	}
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert(is_all_traps(end, 64));
	cr_assert_eq(shunt_arena_destroy(arena), 0, "%s", shunt_error());
}

Test(pack, a_second_free_is_refused_before_and_after_the_grace_period)
{
	struct shunt_arena *arena = make_arena(4 << 20);
	struct shunt_block block;
	struct shunt_block neighbour;

	cr_assert(make_tiny(arena, 1, &block) && make_tiny(arena, 2, &neighbour));
	shunt_read_begin();
	cr_assert_eq(shunt_pack_free(&block), 0);
	cr_assert_eq(shunt_pack_free(&block), -EINVAL);
	cr_assert(strstr(shunt_error(), "grace period"), "%s", shunt_error());
	cr_assert_eq(shunt_pack_abandon(&block), -EINVAL);
	cr_assert_eq(call(block.rx), 1, "a freed program was not left alone inside the section");
	shunt_read_end();
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(shunt_pack_free(&block), -EINVAL);
	cr_assert(strstr(shunt_error(), "freed already"), "%s", shunt_error());
	cr_assert_eq(call(neighbour.rx), 2);
}

Test(pack, a_stale_handle_does_not_free_the_next_block_at_its_address)
{
	struct shunt_arena *arena = make_arena(4 << 20);
	struct shunt_block old;
	struct shunt_block new;

	cr_assert(make_tiny(arena, 1, &old));
	cr_assert_eq(shunt_pack_abandon(&old), 0);
	cr_assert(make_tiny(arena, 2, &new));
	cr_assert_eq(new.rx, old.rx);
	cr_assert_neq(new.id, old.id);
	cr_assert_eq(shunt_pack_free(&old), -EINVAL);
	cr_assert(strstr(shunt_error(), "another block"), "%s", shunt_error());
	cr_assert_eq(shunt_pack_finalize(&old, 1), -EINVAL);
	cr_assert_eq(shunt_pack_shrink(&old, 1), -EINVAL);
	cr_assert_eq(call(new.rx), 2);
	cr_assert_eq(shunt_pack_free(&new), 0);
}

Test(pack, interior_and_foreign_addresses_are_refused)
{
	struct shunt_arena *arena = make_arena(4 << 20);
	struct shunt_block block;
	struct shunt_block wrong;
	int local = 0;

	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 1000, 0, &block), 0);
	wrong = block;
	wrong.rx = (char *)block.rx + 64;
	cr_assert_eq(shunt_pack_free(&wrong), -EINVAL);
	cr_assert(strstr(shunt_error(), "does not begin there"), "%s", shunt_error());
	wrong.rx = (char *)block.rx + 1;
	cr_assert_eq(shunt_pack_free(&wrong), -EINVAL);
	wrong.rx = &local;
	cr_assert_eq(shunt_pack_free(&wrong), -EINVAL);
	cr_assert(strstr(shunt_error(), "no arena"), "%s", shunt_error());
	wrong.rx = (char *)block.rx + (1 << 20);
	cr_assert_eq(shunt_pack_free(&wrong), -EINVAL);
	wrong.rx = (char *)block.rx + (3 << 20);
	cr_assert_eq(shunt_pack_free(&wrong), -EINVAL);
	wrong = block;
	wrong.id = 0;
	cr_assert_eq(shunt_pack_free(&wrong), -EINVAL);
	cr_assert_eq(stats_of(arena).nr_blocks[SHUNT_SEGMENT_CODE], 1);
	cr_assert_eq(shunt_pack_free(&block), 0);
}

Test(pack, a_batch_with_one_stale_block_is_not_published_at_all)
{
	struct shunt_arena *arena = make_arena(4 << 20);
	struct shunt_block blocks[2];

	cr_assert(make_tiny(arena, 1, &blocks[0]) && make_tiny(arena, 2, &blocks[1]));
	cr_assert_eq(shunt_pack_finalize(blocks, 2), 0);
	cr_assert_eq(shunt_pack_finalize(NULL, 0), 0);
	cr_assert_eq(shunt_pack_abandon(&blocks[1]), 0);
	cr_assert_eq(shunt_pack_finalize(blocks, 2), -EINVAL);
}

Test(pack, a_block_larger_than_a_pack_gets_contiguous_packs_and_its_owner_is_found_by_range)
{
	struct shunt_arena *arena = make_arena(16 << 20);
	struct shunt_block small;
	struct shunt_block large;
	struct shunt_block found;
	size_t size = (5 << 20) + 100;
	char *last;

	cr_assert(make_tiny(arena, 1, &small));
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, size, 4096, &large), 0, "%s", shunt_error());
	cr_assert_eq(large.len, (size + 63) / 64 * 64);
	cr_assert_eq(stats_of(arena).bytes_mapped[SHUNT_SEGMENT_CODE], 8u << 20);
	last = (char *)large.rw + large.len - 64;
	write_tiny(last, 77);
	cr_assert_eq(shunt_pack_finalize(&large, 1), 0);
	cr_assert_eq(call((char *)large.rx + large.len - 64), 77);
	cr_assert_eq(shunt_pack_find((char *)large.rx + (3 << 20), &found, NULL), 0);
	cr_assert_eq(found.rx, large.rx);
	cr_assert_eq(found.id, large.id);
	cr_assert_eq(shunt_pack_find((char *)large.rx + large.len, &found, NULL), -ENOENT);
	cr_assert(is_all_traps((char *)large.rx + large.len, 4096));
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 9 << 20, 0, &found), -ENOMEM);
	cr_assert_eq(shunt_pack_free(&large), 0);
	cr_assert_eq(shunt_pack_free(&large), -EINVAL);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(stats_of(arena).bytes_mapped[SHUNT_SEGMENT_CODE], 2u << 20);
	cr_assert_eq(shunt_pack_free(&large), -EINVAL);
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 14 << 20, 0, &large), 0, "the slots were not given back");
	cr_assert_eq(call(small.rx), 1);
}

Test(pack, a_whole_pack_fits_even_when_aligned)
{
	struct shunt_arena *arena = make_arena(4 << 20);
	struct shunt_block blocks[2];

	for (int i = 0; i < 2; i++)
		cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, SHUNT_PACK_SIZE, 4096, &blocks[i]), 0, "%s", shunt_error());
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 1, 0, &blocks[0]), -ENOMEM);
	cr_assert(strstr(shunt_error(), "full"), "%s", shunt_error());
}

Test(pack, bad_requests_are_refused_with_a_sentence)
{
	struct shunt_block block;

	cr_assert_eq(shunt_pack_alloc(NULL, SHUNT_SEGMENT_CODE, 0, 0, &block), -EINVAL);
	cr_assert_eq(shunt_pack_alloc(NULL, SHUNT_SEGMENT_CODE, 1, 3, &block), -EINVAL);
	cr_assert_eq(shunt_pack_alloc(NULL, SHUNT_SEGMENT_CODE, 1, 8192, &block), -EINVAL);
	cr_assert(strstr(shunt_error(), "8192"));
	cr_assert_eq(shunt_pack_alloc(NULL, (enum shunt_segment)7, 1, 0, &block), -EINVAL);
	cr_assert_eq(shunt_pack_alloc(NULL, SHUNT_SEGMENT_CODE, SIZE_MAX, 0, &block), -ENOMEM);
}

Test(pack, shrinking_frees_the_tail_as_traps_and_keeps_the_handle)
{
	struct shunt_arena *arena = make_arena(4 << 20);
	struct shunt_block block;
	struct shunt_block next;

	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 1000, 0, &block), 0);
	memset(block.rw, 0x55, block.len);
	cr_assert_eq(shunt_pack_shrink(&block, 0), -EINVAL);
	cr_assert_eq(shunt_pack_shrink(&block, 2000), -EINVAL);
	cr_assert_eq(shunt_pack_shrink(&block, 100), 0);
	cr_assert_eq(block.len, 128);
	cr_assert(is_all_traps((char *)block.rx + 128, 1024 - 128));
	cr_assert_eq(((char *)block.rx)[127], 0x55);
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 64, 0, &next), 0);
	cr_assert_eq(next.rx, (char *)block.rx + 128);
	cr_assert_eq(shunt_pack_free(&block), 0);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(stats_of(arena).bytes_used[SHUNT_SEGMENT_CODE], 64);
}

Test(pack, rodata_is_written_at_rw_and_data_has_one_address)
{
	struct shunt_arena *arena = make_arena(8 << 20);
	struct shunt_block rodata;
	struct shunt_block data;
	struct shunt_block again;

	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_RODATA, 100, 0, &rodata), 0);
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_DATA, 100, 0, &data), 0);
	cr_assert_neq(rodata.rx, rodata.rw);
	cr_assert_eq(data.rx, data.rw);
	for (int i = 0; i < 128; i++)
		cr_assert(!((char *)rodata.rx)[i] && !((char *)data.rx)[i]);
	strcpy(rodata.rw, "constant");
	strcpy(data.rw, "variable");
	cr_assert_str_eq(rodata.rx, "constant");
	cr_assert_eq(shunt_pack_rw(rodata.rx), rodata.rw);
	cr_assert_eq(shunt_pack_rw((char *)data.rx + 5), (char *)data.rx + 5);
	cr_assert_null(shunt_pack_rw(&data));
	cr_assert_eq(shunt_pack_free(&data), 0);
	cr_assert_eq(shunt_pack_free(&rodata), 0);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_DATA, SHUNT_PACK_SIZE, 0, &again), 0);
	cr_assert_eq(again.rx, data.rx);
	cr_assert_eq(*(char *)again.rx, 0, "data was handed out with its former content");
}

Test(pack, either_view_finds_the_live_block_and_nothing_else)
{
	struct shunt_arena *arena = make_arena(4 << 20);
	struct shunt_arena *found_in = NULL;
	struct shunt_block block;
	struct shunt_block found;

	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 300, 0, &block), 0);
	cr_assert_eq(shunt_pack_find((char *)block.rx + 299, &found, &found_in), 0);
	cr_assert_eq(found_in, arena);
	cr_assert(!memcmp(&found, &block, sizeof(found)));
	cr_assert_eq(shunt_pack_find((char *)block.rw + 1, &found, NULL), 0);
	cr_assert(!memcmp(&found, &block, sizeof(found)));
	cr_assert_eq(shunt_pack_find((char *)block.rx + 320, &found, NULL), -ENOENT);
	cr_assert_eq(shunt_pack_find(&found, &found, NULL), -ENOENT);
	shunt_read_begin();
	cr_assert_eq(shunt_pack_free(&block), 0);
	cr_assert_eq(shunt_pack_find(block.rx, &found, NULL), -ENOENT, "a freed block was found");
	shunt_read_end();
}

struct seen {
	unsigned nr;
	const char *last;
	unsigned stop_at;
};

static int see(void *user, enum shunt_segment segment, const struct shunt_block *block)
{
	struct seen *seen = user;
	struct shunt_block found;

	cr_assert_gt((const char *)block->rx, seen->last);
	cr_assert_eq(shunt_pack_find(block->rx, &found, NULL), 0);
	cr_assert_eq(found.id, block->id);
	seen->last = block->rx;
	return ++seen->nr == seen->stop_at ? 42 : 0;
}

Test(pack, a_walk_sees_every_live_block_once_in_address_order_and_can_stop)
{
	struct shunt_arena *arena = make_arena(32 << 20);
	struct shunt_block blocks[500];
	struct seen seen = { 0 };

	cr_assert_eq(shunt_pack_walk(arena, see, &seen), 0);
	for (int i = 0; i < 500; i++)
		cr_assert_eq(shunt_pack_alloc(arena, (enum shunt_segment)(i % 3), i % 100 ? 200 : 3 << 20, 0, &blocks[i]), 0, "%s",
			     shunt_error());
	for (int i = 0; i < 500; i += 5)
		cr_assert_eq(shunt_pack_abandon(&blocks[i]), 0);
	cr_assert_eq(shunt_pack_walk(arena, see, &seen), 0);
	cr_assert_eq(seen.nr, 400);
	memset(&seen, 0, sizeof(seen));
	seen.stop_at = 7;
	cr_assert_eq(shunt_pack_walk(arena, see, &seen), 42);
	cr_assert_eq(seen.nr, 7);
}

Test(pack, empty_packs_go_back_to_the_system_but_for_one_in_reserve)
{
	struct shunt_arena *arena = make_arena(32 << 20);
	struct shunt_block blocks[8];
	char *base = NULL;

	for (int i = 0; i < 8; i++)
		cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 2000000, 0, &blocks[i]), 0);
	cr_assert_eq(stats_of(arena).nr_packs[SHUNT_SEGMENT_CODE], 8);
	for (int i = 0; i < 8; i++)
		cr_assert_eq(shunt_pack_free(&blocks[i]), 0);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(stats_of(arena).nr_packs[SHUNT_SEGMENT_CODE], 1);
	cr_assert_eq(stats_of(arena).bytes_pending, 0);
	base = (char *)stats_of(arena).arena_base;
	cr_assert_eq(smaps_field(base + (16 << 20), "Rss"), 0);
	cr_assert_eq(shunt_arena_destroy(arena), 0);
	cr_assert_eq(smaps_field(base, "Size"), 0, "the arena is still mapped");
}

Test(pack, a_chunk_whose_generations_are_used_up_is_left_out_until_its_pack_is_empty)
{
	struct shunt_arena *arena = make_arena(4 << 20);
	struct shunt_block anchor;
	struct shunt_block block;
	struct shunt_block first;

	cr_assert(make_tiny(arena, 1, &anchor));
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 128, 0, &first), 0);
	block = first;
	for (uint32_t i = 1; i < SHUNT_GENERATION_WORN; i++) {
		cr_assert_eq(shunt_pack_abandon(&block), 0);
		cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 128, 0, &block), 0);
		cr_assert_eq(block.rx, first.rx);
		cr_assert_neq(block.id, first.id);
	}
	cr_assert_eq(shunt_pack_abandon(&block), 0);
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 128, 0, &block), 0);
	cr_assert_neq(block.rx, first.rx);
	cr_assert_eq(shunt_pack_free(&first), -EINVAL);
	cr_assert_eq(shunt_pack_find(first.rx, &first, NULL), -ENOENT);
	cr_assert_eq(shunt_pack_abandon(&block), 0);
	cr_assert_eq(shunt_pack_abandon(&anchor), 0);
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, SHUNT_PACK_SIZE, 0, &block), 0);
	cr_assert_eq(stats_of(arena).nr_packs[SHUNT_SEGMENT_CODE], 1, "the worn chunk did not come back with its pack");
}

Test(pack, an_empty_pack_in_reserve_is_in_nobodys_way)
{
	struct shunt_arena *arena = make_arena(8 << 20);
	struct shunt_block block, other;

	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 100, 0, &block), 0);
	cr_assert_eq(shunt_pack_abandon(&block), 0);
	cr_assert_eq(stats_of(arena).nr_packs[SHUNT_SEGMENT_CODE], 1);
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 8 << 20, 4096, &block), 0, "%s", shunt_error());
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 1, 0, &other), -ENOMEM);
	cr_assert_eq(shunt_pack_shrink(&block, 1), 0);
	cr_assert_eq(shunt_pack_free(&block), 0);
	cr_assert_eq(shunt_quiesce(), 0);
	/* Another segment's likewise. */
	for (int i = 0; i < 4; i++)
		cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, SHUNT_PACK_SIZE, 0, &block), 0);
	cr_assert_eq(shunt_pack_abandon(&block), 0);
	cr_assert_eq(stats_of(arena).nr_packs[SHUNT_SEGMENT_CODE], 4);
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_RODATA, 100, 0, &other), 0, "%s", shunt_error());
	cr_assert_eq(stats_of(arena).nr_packs[SHUNT_SEGMENT_CODE], 3);
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 1, 0, &block), -ENOMEM);
}

Test(pack, bookkeeping_stays_below_24_bytes_a_block_of_200_bytes)
{
	struct shunt_arena *arena = make_arena(64 << 20);
	struct shunt_pack_stats stats;
	struct shunt_block block;

	for (int i = 0; i < 100000; i++)
		cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 200, 0, &block), 0);
	stats = stats_of(arena);
	cr_assert_eq(stats.nr_blocks[SHUNT_SEGMENT_CODE], 100000);
	cr_assert_eq(stats.bytes_used[SHUNT_SEGMENT_CODE], 25600000);
	cr_assert_eq(stats.nr_packs[SHUNT_SEGMENT_CODE], 13);
	cr_assert_lt(stats.bytes_metadata, UINT64_C(24) * 100000);
}

Test(pack, a_page_shown_a_second_time_shows_later_writes_and_runs)
{
	struct shunt_arena *arena = make_arena(4 << 20);
	struct shunt_block block;
	struct shunt_block unaligned;
	void *page;

	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 4096, 4096, &block), 0);
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 64, 0, &unaligned), 0);
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 64, 0, &unaligned), 0);
	page = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cr_assert_eq(shunt_pack_page_dup(&block, (char *)page + 64), -EINVAL);
	cr_assert_neq((uintptr_t)unaligned.rx % 4096, 0);
	cr_assert_eq(shunt_pack_page_dup(&unaligned, page), -EINVAL);
	cr_assert_eq(shunt_pack_page_dup(&block, (char *)page + 4096), 0, "%s", shunt_error());
	write_tiny((char *)block.rw + 128, 99);
	cr_assert_eq(shunt_pack_finalize(&block, 1), 0);
	cr_assert_eq(call((char *)page + 4096 + 128), 99);
	cr_assert_neq(mprotect((char *)page + 4096, 4096, PROT_READ | PROT_WRITE), 0, "the second view can be made writable");
	cr_assert_eq(shunt_pack_page_undup((char *)page + 4096), 0);
	cr_assert_eq(shunt_pack_page_undup((char *)page + 4096), -ENOENT);
}
