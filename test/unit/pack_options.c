/* SPDX-License-Identifier: MIT */
/*
 * How blocks are cut, gathered and given back, and what is off until asked for: packs that nobody can write any more, places that nobody can
 * guess, names for debuggers and profilers.
 */
#include "test/unit/pack_check.h"
#include "test/lacks.h"
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <shunt/log.h>
#include <shunt/reader.h>

#include "runtime/pack/backing_sys.h"
#include "runtime/pack/pack_space.h"
#include "test/unit/pack_test.h"

static bool can_be_read(const void *p)
{
	char byte;
	struct iovec to = { &byte, 1 }, from = { (void *)p, 1 };

	return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1;
}

/* ---- cutting, gathering, giving back --------------------------------------------------------------------------- */

Test(pack_blocks, what_a_shrunk_block_leaves_is_where_the_next_one_begins)
{
	struct shunt_arena_options options = { .size = 4 << 20 };
	struct shunt_arena *arena = create_arena(&options);
	struct shunt_block block, next, found;

	for (int i = 0; i < 100; i++) {
		cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 4000, 0, &block), 0);
		memset(block.rw, 0x90, block.len);
		cr_assert_eq(shunt_pack_shrink(&block, 130), 0);
		cr_assert_eq(block.len, 192);
		cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 64, 0, &next), 0);
		cr_assert_eq(next.rx, (char *)block.rx + 192);
		cr_assert(is_all_traps(next.rx, 3900), "the tail was not filled");
		cr_assert_eq(shunt_pack_find((char *)block.rx + 191, &found, NULL), 0);
		cr_assert_eq(found.len, 192);
		cr_assert_eq(shunt_pack_find((char *)next.rx + 64, &found, NULL), -ENOENT);
	}
}

Test(pack_blocks, a_block_behind_a_used_up_run_stays_one_when_the_runs_last_block_shrinks)
{
	struct shunt_arena_options options = { .size = 2 << 20 };
	struct shunt_arena *arena = create_arena(&options);
	struct shunt_block block, behind, found;

	/* The large one is no part of a run; where it lies tells where the run before it ended. */
	do
		cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 4096, 0, &block), 0);
	while ((uintptr_t)block.rx % 65536 != 65536 - 4096);
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 100000, 0, &behind), 0);
	cr_assert_eq(behind.rx, (char *)block.rx + 4096, "the run is longer than this test knows");
	cr_assert_eq(shunt_pack_shrink(&block, 64), 0);
	cr_assert_eq(shunt_pack_find((char *)behind.rx + 5000, &found, NULL), 0);
	cr_assert_eq(found.rx, behind.rx);
	cr_assert_eq(found.id, behind.id);
	cr_assert_eq(shunt_pack_free(&behind), 0, "%s", shunt_error());
}

/* Batches in 100 ms that begin with a free, while as many more are freed every 2 ms. */
static uint64_t count_batches(uint32_t nr_freed)
{
	static struct shunt_block blocks[50][1500];
	struct shunt_arena_options options = { .size = 64 << 20 };
	struct shunt_arena *arena = create_arena(&options);
	struct timespec pause = { 0, 2000000 };
	struct shunt_reclaim_stats before, after;

	for (int round = 0; round < 50; round++)
		for (uint32_t i = 0; i < nr_freed; i++)
			cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 64, 0, &blocks[round][i]), 0, "%s", shunt_error());
	cr_assert_eq(shunt_quiesce(), 0);
	shunt_reclaim_get_stats(&before);
	for (int round = 0; round < 50; round++) {
		for (uint32_t i = 0; i < nr_freed; i++)
			cr_assert_eq(shunt_pack_free(&blocks[round][i]), 0);
		nanosleep(&pause, NULL);
	}
	shunt_reclaim_get_stats(&after);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(shunt_arena_destroy(arena), 0, "%s", shunt_error());
	return after.nr_batches - before.nr_batches;
}

Test(pack_blocks, a_batch_gathers_on_while_blocks_are_freed_by_the_thousand)
{
	uint64_t few = 0, many = 0;

	/* Of time: where the machine does something else in between, once more. */
	for (int attempt = 0; attempt < 10 && few < 2 * many + 2; attempt++) {
		few = count_batches(10);
		many = count_batches(1500);
	}
	cr_assert_geq(few, 2 * many + 2, "%lu batches for some, %lu for many", (unsigned long)few, (unsigned long)many);
}

Test(pack_blocks, an_open_run_is_given_back_to_who_needs_the_whole_pack)
{
	struct shunt_arena_options options = { .size = 2 << 20 };
	struct shunt_arena *arena = create_arena(&options);
	struct shunt_block small, large;

	cr_assert(make_tiny(arena, 1, &small));
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, SHUNT_PACK_SIZE - 64, 0, &large), 0, "%s", shunt_error());
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 1, 0, &small), -ENOMEM);
	cr_assert_eq(shunt_pack_abandon(&large), 0);
	cr_assert(make_tiny(arena, 2, &small), "%s", shunt_error());
}

/* Runs cut to the end and runs given back, beside blocks that were taken whole, against one byte a chunk. */
Test(pack_blocks, open_runs_agree_with_a_plain_array)
{
	static struct shunt_pack_space space;
	static uint8_t model[SHUNT_PACK_CHUNKS]; /* 1 used */
	unsigned seed = 7;

	shunt_space_init(&space);
	for (int round = 0; round < 3000; round++) {
		uint32_t nr = 1 + (uint32_t)rand_r(&seed) % 40, end = 0;
		uint32_t next = shunt_space_open_at(&space, nr, 200, round % 2 ? (uint64_t)rand_r(&seed) : 0, &end);

		if (next == SHUNT_NO_CHUNK) {
			memset(model, 0, sizeof(model));
			shunt_space_init(&space);
			continue;
		}
		cr_assert(end - next >= nr && end - next <= 200);
		while (end - next >= nr && rand_r(&seed) % 16) {
			shunt_space_cut(&space, next + nr - 1);
			for (uint32_t i = 0; i < nr; i++)
				cr_assert_eq(model[next + i]++, 0, "chunk %u was used already", next + i);
			cr_assert_eq(shunt_space_block_from(&space, next), nr);
			next += nr;
		}
		if (next < end)
			shunt_space_give(&space, next, end - next);
		/* Some of what was cut dies, many at once. */
		for (uint32_t chunk = 0; round % 8 == 7 && chunk < SHUNT_PACK_CHUNKS; chunk++) {
			uint32_t len = shunt_space_block_from(&space, chunk);

			if (!len || rand_r(&seed) % 3)
				continue;
			shunt_space_give_early(&space, chunk, len);
			memset(&model[chunk], 0, len);
		}
		if (round % 8 == 7)
			shunt_space_give_done(&space);
		if (round % 64 == 7) {
			uint32_t longest = 0, run = 0;

			for (uint32_t chunk = 0; chunk < SHUNT_PACK_CHUNKS; chunk++) {
				cr_assert_eq(shunt_bit_is_set(&space, SHUNT_BIT_USED, chunk), model[chunk]);
				run = model[chunk] ? 0 : run + 1;
				longest = run > longest ? run : longest;
			}
			cr_assert_eq(shunt_space_longest(&space), longest);
		}
	}
}

Test(pack_blocks, what_is_freed_is_reclaimed_by_itself_in_few_batches)
{
	struct shunt_arena_options options = { .size = 8 << 20, .rest = SHUNT_REST_NONE };
	struct shunt_arena *arena = create_arena(&options);
	static struct shunt_block blocks[5000];
	struct shunt_reclaim_stats before, after;
	struct shunt_pack_stats stats;

	for (uint32_t i = 0; i < 5000; i++)
		cr_assert(make_tiny(arena, i, &blocks[i]));
	shunt_reclaim_get_stats(&before);
	for (uint32_t i = 1; i < 5000; i++)
		cr_assert_eq(shunt_pack_free(&blocks[i]), 0);
	for (int tries = 0; tries < 1000; tries++) {
		cr_assert_eq(shunt_pack_get_stats(arena, &stats), 0);
		if (!stats.bytes_pending)
			break;
		usleep(10000);
	}
	cr_assert_eq(stats.bytes_pending, 0, "nobody reclaimed");
	shunt_reclaim_get_stats(&after);
	cr_assert_lt(after.nr_batches - before.nr_batches, 500, "%llu batches", (unsigned long long)(after.nr_batches - before.nr_batches));
	cr_assert(is_all_traps(blocks[1].rx, 4999 * 64));
	cr_assert_eq(call(blocks[0].rx), 0);
	/* All of the room is there again, in one piece. */
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, SHUNT_PACK_SIZE - 64, 0, &blocks[1]), 0);
	cr_assert_eq(blocks[1].rx, (char *)blocks[0].rx + 64);
}

static void *(*real_mmap)(void *addr, size_t len, int prot, int flags, int fd, off_t offset);

static void *refuse_to_vacate(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
	if (prot == PROT_NONE) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	return real_mmap(addr, len, prot, flags, fd, offset);
}

/* A pack that dies as a whole is not filled, since it goes; where it cannot go it must be. */
Test(pack_blocks, a_dead_pack_that_the_system_does_not_take_back_is_traps_and_is_used_again)
{
	struct shunt_arena_options options = { .size = 8 << 20 };
	struct shunt_arena *arena = create_arena(&options);
	struct shunt_block blocks[3], again;
	struct shunt_pack_stats stats;

	for (int i = 0; i < 3; i++) {
		cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, SHUNT_PACK_SIZE, 0, &blocks[i]), 0);
		memset(blocks[i].rw, 0x90, SHUNT_PACK_SIZE);
	}
	real_mmap = shunt_sys.mmap;
	shunt_sys.mmap = refuse_to_vacate;
	for (int i = 0; i < 3; i++)
		cr_assert_eq(shunt_pack_free(&blocks[i]), 0);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(shunt_pack_get_stats(arena, &stats), 0);
	cr_assert_eq(stats.nr_packs[SHUNT_SEGMENT_CODE], 3);
	cr_assert_eq(stats.bytes_pending, 0);
	for (int i = 0; i < 3; i++) {
		cr_assert(is_all_traps(blocks[i].rx, SHUNT_PACK_SIZE), "pack %d", i);
		cr_assert_eq(shunt_pack_free(&blocks[i]), -EINVAL);
	}
	for (int i = 0; i < 3; i++)
		cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, SHUNT_PACK_SIZE, 0, &again), 0, "%s", shunt_error());
	shunt_sys.mmap = real_mmap;
}

Test(pack_blocks, packs_that_die_together_go_but_for_one_and_that_one_is_traps)
{
	struct shunt_arena_options options = { .size = 16 << 20 };
	struct shunt_arena *arena = create_arena(&options);
	static struct shunt_block blocks[5000];
	struct shunt_pack_stats stats;
	struct shunt_block whole;

	for (uint32_t i = 0; i < 5000; i++) {
		cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 1000, 0, &blocks[i]), 0);
		memset(blocks[i].rw, 0x90, blocks[i].len);
	}
	for (uint32_t i = 0; i < 5000; i++)
		cr_assert_eq(shunt_pack_free(&blocks[(i * 37) % 5000]), 0);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(shunt_pack_get_stats(arena, &stats), 0);
	cr_assert_eq(stats.nr_packs[SHUNT_SEGMENT_CODE], 1);
	cr_assert_eq(stats.bytes_used[SHUNT_SEGMENT_CODE], 0);
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, SHUNT_PACK_SIZE, 0, &whole), 0);
	cr_assert(is_all_traps(whole.rx, SHUNT_PACK_SIZE));
	cr_assert_eq(shunt_pack_abandon(&whole), 0);
	cr_assert_eq(shunt_arena_destroy(arena), 0, "%s", shunt_error());
}

/* ---- resting ---------------------------------------------------------------------------------------------------- */

/* A block that is freed, and that its grace period is over for. */
static void free_now(const struct shunt_block *block)
{
	cr_assert_eq(shunt_pack_free(block), 0, "%s", shunt_error());
	cr_assert_eq(shunt_quiesce(), 0);
}

Test(pack_rest, a_freed_block_is_handed_out_again_only_after_as_many_others_were_freed)
{
	struct shunt_arena_options options = { .size = 2 << 20, .rest = 10 };
	struct shunt_arena *arena = create_arena(&options);
	struct shunt_block anchor, filler, blocks[12], next, found;
	struct shunt_pack_stats stats;

	cr_assert(make_tiny(arena, 1, &anchor));
	for (int i = 0; i < 12; i++)
		cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 5000, 0, &blocks[i]), 0);
	/* No other room of this length. */
	while (shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 5000, 0, &filler) == 0)
		;
	for (int i = 0; i < 10; i++) {
		memset(blocks[i].rw, 0x90, blocks[i].len);
		free_now(&blocks[i]);
		cr_assert(is_all_traps(blocks[i].rx, blocks[i].len));
		cr_assert_eq(shunt_pack_free(&blocks[i]), -EINVAL);
		cr_assert_eq(shunt_pack_find(blocks[i].rx, &found, NULL), -ENOENT);
		for (int j = 0; j <= i; j++)
			cr_assert_eq(shunt_pack_find((char *)blocks[j].rx + 64, &found, NULL), -ENOENT, "%d", j);
	}
	cr_assert_eq(shunt_pack_get_stats(arena, &stats), 0);
	cr_assert_eq(stats.bytes_resting, 10 * 5056);
	cr_assert_eq(stats.bytes_pending, 0);
	free_now(&blocks[10]);
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 5000, 0, &next), 0, "the one that rested longest is free");
	cr_assert((char *)next.rx < (char *)blocks[0].rx + blocks[0].len && (char *)blocks[0].rx < (char *)next.rx + next.len, "%p, not at %p", next.rx,
		  blocks[0].rx);
	/* With no room left at all nothing rests any more. */
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 5000, 0, &next), 0, "%s", shunt_error());
	cr_assert_eq(shunt_pack_get_stats(arena, &stats), 0);
	cr_assert_eq(stats.bytes_resting, 0);
	cr_assert_eq(call(anchor.rx), 1);
}

Test(pack_rest, what_rests_agrees_with_a_model)
{
	struct shunt_arena_options options = { .size = 8 << 20, .rest = 64 };
	struct shunt_arena *arena = create_arena(&options);
	static struct shunt_block blocks[3000];
	static uintptr_t rested[64];
	uint64_t nr_freed = 0, nr_live = 0;
	struct shunt_pack_stats stats;
	unsigned seed = 11;

	for (int i = 0; i < 20000; i++) {
		struct shunt_block *block = &blocks[rand_r(&seed) % 3000];

		if (block->id) {
			cr_assert_eq(call(block->rx), (int)(block - blocks));
			cr_assert_eq(shunt_pack_free(block), 0, "%s", shunt_error());
			/* Of a batch the order is that of addresses: each by itself here. */
			if (nr_live > 2800)
				cr_assert_eq(shunt_quiesce(), 0);
			rested[nr_freed++ % 64] = nr_live > 2800 ? (uintptr_t)block->rx : 0;
			block->id = 0;
			nr_live--;
			continue;
		}
		cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 20 + (size_t)rand_r(&seed) % 700, 0, block), 0, "%s", shunt_error());
		for (uint64_t back = 1; back <= 64 && back <= nr_freed; back++)
			cr_assert_neq((uintptr_t)block->rx, rested[(nr_freed - back) % 64], "freed %llu frees ago", (unsigned long long)back);
		write_tiny(block->rw, (uint32_t)(block - blocks));
		cr_assert_eq(shunt_pack_finalize(block, 1), 0);
		nr_live++;
	}
	for (int i = 0; i < 3000; i++)
		if (blocks[i].id)
			cr_assert_eq(shunt_pack_free(&blocks[i]), 0);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(shunt_pack_get_stats(arena, &stats), 0);
	cr_assert_eq(stats.nr_packs[SHUNT_SEGMENT_CODE], 1);
	cr_assert_eq(shunt_arena_destroy(arena), 0, "%s", shunt_error());
}

Test(pack_rest, no_more_than_a_sixteenth_of_an_arena_rests)
{
	struct shunt_arena_options options = { .size = 32 << 20, .rest = 1000 };
	struct shunt_arena *arena = create_arena(&options);
	static struct shunt_block blocks[100];
	struct shunt_pack_stats stats;

	for (int i = 0; i < 100; i++)
		cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 200000, 0, &blocks[i]), 0, "%s", shunt_error());
	for (int i = 0; i < 100; i++)
		if (i % 10)
			cr_assert_eq(shunt_pack_free(&blocks[i]), 0);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(shunt_pack_get_stats(arena, &stats), 0);
	cr_assert_gt(stats.bytes_resting, 1 << 20);
	cr_assert_leq(stats.bytes_resting, 2 << 20);
	options.rest = UINT32_MAX - 1;
	cr_assert_eq(shunt_arena_create(&options, &arena), -EINVAL);
}

/* ---- options --------------------------------------------------------------------------------------------------- */

Test(pack_options, code_without_its_rw_view_runs_and_is_freed_and_new_code_goes_elsewhere)
{
	struct shunt_arena_options options = { .size = 16 << 20 };
	struct shunt_arena *arena = create_arena(&options);
	struct shunt_block old[3], new;
	struct shunt_pack_stats stats;

	if (lacks_process_read())
		cr_skip_test(LACKS_PROCESS_READ);
	for (uint32_t i = 0; i < 3; i++)
		cr_assert(make_tiny(arena, i, &old[i]));
	cr_assert(can_be_read(old[0].rw));
	cr_assert_eq(shunt_arena_drop_rw(arena), 0, "%s", shunt_error());
	cr_assert(!can_be_read(old[0].rw), "the rw view is still there");
	cr_assert(make_tiny(arena, 9, &new), "%s", shunt_error());
	cr_assert_neq((uintptr_t)new.rx / SHUNT_PACK_SIZE, (uintptr_t)old[0].rx / SHUNT_PACK_SIZE);
	cr_assert_eq(call(new.rx), 9);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(call(old[i].rx), i);
	cr_assert_eq(shunt_pack_shrink(&old[1], 8), 0);
	cr_assert_eq(shunt_pack_free(&old[2]), 0);
	cr_assert_eq(shunt_pack_abandon(&old[1]), 0);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(shunt_pack_free(&old[1]), -EINVAL);
	cr_assert_eq(call(old[0].rx), 0);
	cr_assert_eq(shunt_pack_free(&old[0]), 0);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(shunt_pack_get_stats(arena, &stats), 0);
	cr_assert_eq(stats.nr_packs[SHUNT_SEGMENT_CODE], 1, "the pack did not go when it was empty");
	cr_assert_eq(call(new.rx), 9);
	cr_assert_eq(shunt_pack_free(&new), 0);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(shunt_arena_destroy(arena), 0, "%s", shunt_error());
}

Test(pack_options, random_starts_differ_from_arena_to_arena_and_waste_nothing)
{
	struct shunt_arena_options options = { .size = 4 << 20, .random_start = true };
	uintptr_t offsets[8];
	unsigned nr_equal = 0;

	for (int i = 0; i < 8; i++) {
		struct shunt_arena *arena = create_arena(&options);
		struct shunt_pack_stats stats;
		struct shunt_block block;
		unsigned nr = 0;

		while (shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 2048, 0, &block) == 0) {
			if (!nr++)
				offsets[i] = (uintptr_t)block.rx % SHUNT_PACK_SIZE;
		}
		/* Runs that begin anywhere leave ends too short for a block. */
		cr_assert_geq(nr, 2048 - 128, "%u", nr);
		cr_assert_eq(shunt_pack_get_stats(arena, &stats), 0);
		cr_assert_eq(stats.nr_blocks[SHUNT_SEGMENT_CODE], nr);
		for (int j = 0; j < i; j++)
			nr_equal += offsets[i] == offsets[j];
	}
	cr_assert_leq(nr_equal, 2, "%u of 28 pairs begin at the same place", nr_equal);
}

Test(pack_options, a_pool_of_huge_pages_is_used_when_asked_for_and_done_without_when_empty)
{
	struct shunt_arena_options options = { .size = 4 << 20, .hugetlb = true };
	struct shunt_pack_stats stats;
	struct shunt_arena *arena;
	struct shunt_block block;
	unsigned nr_free = 0;
	FILE *pool = fopen("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "re");

	if (lacks_second_views())
		cr_skip_test(LACKS_SECOND_VIEWS);
	if (pool && fscanf(pool, "%u", &nr_free) != 1)
		nr_free = 0;
	if (pool)
		fclose(pool);
	arena = create_arena(&options);
	cr_assert(make_tiny(arena, 5, &block), "%s", shunt_error());
	cr_assert_eq(call(block.rx), 5);
	write_tiny(block.rw, 6);
	cr_assert_eq(shunt_pack_finalize(&block, 1), 0);
	cr_assert_eq(call(block.rx), 6);
	cr_assert_eq(shunt_pack_get_stats(arena, &stats), 0);
	if (nr_free)
		cr_assert_eq(smaps_field(block.rx, "KernelPageSize"), SHUNT_PACK_SIZE, "%u pages were free, and none was taken", nr_free);
	cr_assert(!nr_free || stats.bytes_huge == SHUNT_PACK_SIZE);
	cr_assert_eq(shunt_pack_free(&block), 0);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(shunt_arena_destroy(arena), 0, "%s", shunt_error());
}

/* ---- names ----------------------------------------------------------------------------------------------------- */

Test(pack_options, names_are_written_where_perf_looks_for_them)
{
	struct shunt_arena_options options = { .size = 4 << 20, .anon = true };
	struct shunt_arena *arena;
	struct shunt_block block;
	char path[64], line[256] = "", expected[256];
	FILE *file;

	if (lacks_second_views())
		cr_skip_test(LACKS_SECOND_VIEWS);
	arena = create_arena(&options);
	cr_assert(make_tiny(arena, 3, &block));
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", (int)getpid());
	cr_assert_eq(shunt_pack_name(&block, "early"), 0);
	cr_assert_neq(access(path, F_OK), 0, "a file was made before anybody asked");
	cr_assert_eq(shunt_names_enable(SHUNT_NAMES_PERF), 0);
	cr_assert_eq(shunt_names_enable(64), -EINVAL);
	cr_assert_eq(shunt_pack_name(&block, "three"), 0, "%s", shunt_error());
	cr_assert_eq(shunt_pack_name(&block, "two\nlines"), -EINVAL);
	file = fopen(path, "re");
	cr_assert(file && fgets(line, sizeof(line), file));
	fclose(file);
	unlink(path);
	snprintf(expected, sizeof(expected), "%lx %zx three\n", (unsigned long)(uintptr_t)block.rx, block.len);
	cr_assert_str_eq(line, expected);
	cr_assert_eq(shunt_pack_free(&block), 0);
	cr_assert_eq(shunt_pack_name(&block, "late"), -EINVAL);
}

static bool file_says(const char *path, const char *expected)
{
	FILE *file = fopen(path, "re");
	char text[1024] = "";
	size_t len = file ? fread(text, 1, sizeof(text) - 1, file) : 0;

	if (file)
		fclose(file);
	text[len] = '\0';
	return file && !strcmp(text, expected);
}

Test(pack_options, a_forks_child_has_a_file_of_the_names_that_live_in_it)
{
	struct shunt_arena_options options = { .size = 4 << 20, .anon = true };
	const char *functions[] = { "first", "second" };
	struct shunt_arena *arena;
	struct shunt_block blocks[3];
	struct shunt_part parts[2];
	char path[64], child_path[64], parent_says[512], child_says[512];
	int status;
	pid_t child;

	if (lacks_second_views())
		cr_skip_test(LACKS_SECOND_VIEWS);
	arena = create_arena(&options);
	cr_assert_eq(shunt_names_enable(SHUNT_NAMES_PERF), 0);
	for (uint32_t i = 0; i < 3; i++)
		cr_assert(make_tiny(arena, i, &blocks[i]));
	cr_assert_eq(shunt_pack_name(&blocks[0], "gone"), 0, "%s", shunt_error());
	for (size_t i = 0; i < 2; i++)
		parts[i] = (struct shunt_part){ 4 * i, 4, functions[i] };
	cr_assert_eq(shunt_pack_name_parts(&blocks[1], parts, 2), 0, "%s", shunt_error());
	parts[1].len = blocks[1].len;
	cr_assert_eq(shunt_pack_name_parts(&blocks[1], parts, 2), -EINVAL, "a name for bytes behind the block");
	cr_assert_eq(shunt_pack_free(&blocks[0]), 0);
	snprintf(parent_says, sizeof(parent_says), "%lx %zx gone\n%lx 4 first\n%lx 4 second\n", (unsigned long)(uintptr_t)blocks[0].rx,
		 blocks[0].len, (unsigned long)(uintptr_t)blocks[1].rx, (unsigned long)(uintptr_t)blocks[1].rx + 4);
	snprintf(child_says, sizeof(child_says), "%lx 4 first\n%lx 4 second\n%lx %zx own\n", (unsigned long)(uintptr_t)blocks[1].rx,
		 (unsigned long)(uintptr_t)blocks[1].rx + 4, (unsigned long)(uintptr_t)blocks[2].rx, blocks[2].len);
	child = fork();
	if (child == 0)
		_exit(shunt_pack_name(&blocks[2], "own") != 0);
	cr_assert(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", (int)getpid());
	snprintf(child_path, sizeof(child_path), "/tmp/perf-%d.map", (int)child);
	cr_assert(file_says(path, parent_says));
	cr_assert(file_says(child_path, child_says));
	unlink(path);
	unlink(child_path);
}

Test(pack_options, a_link_laid_for_the_name_file_is_not_followed)
{
	struct shunt_arena_options options = { .size = 4 << 20 };
	struct shunt_arena *arena = create_arena(&options);
	struct shunt_block block;
	char path[64], victim[64];

	cr_assert(make_tiny(arena, 3, &block));
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", (int)getpid());
	snprintf(victim, sizeof(victim), "/tmp/shunt-victim-%d", (int)getpid());
	cr_assert_eq(symlink(victim, path), 0);
	cr_assert_eq(shunt_names_enable(SHUNT_NAMES_PERF), 0);
	cr_assert_eq(shunt_pack_name(&block, "three"), -ELOOP);
	cr_assert_neq(access(victim, F_OK), 0, "the link was followed");
	unlink(path);
}

/* GDB's side of its interface. */
struct entry {
	struct entry *next, *prev;
	const char *symfile;
	uint64_t size;
};
struct descriptor {
	uint32_t version, action;
	struct entry *relevant, *first;
};
extern struct descriptor __jit_debug_descriptor;

static const Elf64_Shdr *section(const struct entry *entry, unsigned n)
{
	const Elf64_Ehdr *header = (const void *)entry->symfile;

	return (const void *)(entry->symfile + header->e_shoff + n * header->e_shentsize);
}

Test(pack_options, gdb_finds_a_name_as_long_as_its_block_lives)
{
	static const char *const names[] = { "one", "two", "three" };
	struct shunt_arena_options options = { .size = 4 << 20 };
	struct shunt_arena *arena = create_arena(&options);
	struct shunt_block blocks[3];
	const Elf64_Sym *symbol;

	cr_assert_eq(shunt_names_enable(SHUNT_NAMES_GDB), 0);
	cr_assert_null(__jit_debug_descriptor.first);
	for (uint32_t i = 0; i < 3; i++) {
		cr_assert(make_tiny(arena, i, &blocks[i]));
		cr_assert_eq(shunt_pack_name(&blocks[i], names[i]), 0, "%s", shunt_error());
		cr_assert_not_null(__jit_debug_descriptor.first);
		cr_assert(!memcmp(__jit_debug_descriptor.first->symfile, ELFMAG, SELFMAG));
		symbol = (const void *)(__jit_debug_descriptor.first->symfile + section(__jit_debug_descriptor.first, 2)->sh_offset);
		cr_assert_eq(section(__jit_debug_descriptor.first, 1)->sh_addr, (uintptr_t)blocks[i].rx);
		cr_assert_str_eq(__jit_debug_descriptor.first->symfile + section(__jit_debug_descriptor.first, 3)->sh_offset + symbol[1].st_name, names[i]);
		cr_assert_eq(symbol[1].st_size, blocks[i].len);
	}
	cr_assert_eq(shunt_pack_free(&blocks[1]), 0);
	cr_assert_eq(section(__jit_debug_descriptor.first, 1)->sh_addr, (uintptr_t)blocks[2].rx);
	cr_assert_eq(section(__jit_debug_descriptor.first->next, 1)->sh_addr, (uintptr_t)blocks[0].rx);
	cr_assert_null(__jit_debug_descriptor.first->next->next);
	cr_assert_eq(shunt_pack_abandon(&blocks[2]), 0);
	cr_assert_eq(shunt_pack_free(&blocks[0]), 0);
	cr_assert_null(__jit_debug_descriptor.first);
}

Test(pack_options, a_debugger_can_write_into_a_private_rx_view_and_rw_still_shows_there)
{
	struct shunt_arena_options options = { .size = 4 << 20, .debug = true };
	struct shunt_arena *arena = create_arena(&options);
	struct shunt_block block;

	if (lacks_second_views())
		cr_skip_test(LACKS_SECOND_VIEWS);
	cr_assert(make_tiny(arena, 3, &block));
	cr_assert_eq(call(block.rx), 3);
	write_tiny(block.rw, 4);
	cr_assert_eq(shunt_pack_finalize(&block, 1), 0);
	cr_assert_eq(call(block.rx), 4);
	cr_assert_eq(mprotect((void *)((uintptr_t)block.rx & ~(uintptr_t)4095), 4096, PROT_READ | PROT_WRITE), 0);
}
