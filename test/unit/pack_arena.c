/* SPDX-License-Identifier: MIT */
/* Where arenas lie, and what they refuse. */
#include "test/unit/pack_check.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <shunt/log.h>
#include <shunt/percpu.h>
#include <shunt/reader.h>

#include "runtime/pack/arena.h"
#include "runtime/pack/backing_sys.h"
#include "runtime/pack/pack.h"
#include "test/unit/pack_test.h"

extern const char __executable_start[];
extern const char _end[];

static void check_reach(const char *arena_base, size_t size, const char *image, const char *image_end)
{
	int64_t reach = shunt_target_host()->branch_reach;

	cr_assert_eq((uintptr_t)arena_base % SHUNT_PACK_SIZE, 0);
	cr_assert_leq(arena_base + size - image, reach, "the arena's end does not reach the image's beginning");
	cr_assert_leq(image_end - arena_base, reach, "the image's end does not reach the arena's beginning");
}

static struct shunt_pack_stats stats_of(struct shunt_arena *arena)
{
	struct shunt_pack_stats stats;

	cr_assert_eq(shunt_pack_get_stats(arena, &stats), 0);
	return stats;
}

Test(arena, the_default_arena_is_in_reach_of_the_image_from_end_to_end)
{
	struct shunt_arena *arena;
	struct shunt_arena *again;

	cr_assert_eq(shunt_arena_default(&arena), 0, "%s", shunt_error());
	cr_assert_eq(shunt_arena_default(&again), 0);
	cr_assert_eq(arena, again);
	cr_assert_eq(stats_of(arena).nr_packs[SHUNT_SEGMENT_CODE], 0, "a pack was made before the first allocation");
	check_reach(stats_of(arena).arena_base, stats_of(arena).arena_size, __executable_start, _end);
	cr_assert_eq(shunt_arena_destroy(arena), -EINVAL);
	cr_assert(strstr(shunt_error(), "default arena"), "%s", shunt_error());
}

Test(arena, an_arena_near_a_library_reaches_it)
{
	struct shunt_arena_options options = { .size = 64 << 20, .near_addr = (const void *)(uintptr_t)&strlen };
	struct shunt_arena *arena;

	cr_assert_eq(shunt_arena_create(&options, &arena), 0, "%s", shunt_error());
	check_reach(stats_of(arena).arena_base, options.size, (const char *)options.near_addr, (const char *)options.near_addr + 1);
	cr_assert_eq(shunt_arena_destroy(arena), 0);
}

static uint64_t distance(const void *p, const void *q)
{
	return p > q ? (uint64_t)((const char *)p - (const char *)q) : (uint64_t)((const char *)q - (const char *)p);
}

Test(arena, writable_views_and_per_cpu_areas_leave_the_room_beside_libraries_to_later_libraries)
{
	struct shunt_arena_options options = { .near_addr = (const void *)(uintptr_t)&strlen };
	uint64_t reach = (uint64_t)shunt_target_host()->branch_reach;
	struct shunt_arena *arena;
	struct shunt_block block;
	void *counter;

	cr_assert_eq(shunt_arena_create(&options, &arena), 0, "%s", shunt_error());
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 64, 0, &block), 0, "%s", shunt_error());
	cr_assert_gt(distance(block.rw, options.near_addr), 2 * reach, "the rw view lies where a library would be in reach");
	cr_assert_eq(shunt_percpu_alloc(8, 8, &counter), 0, "%s", shunt_error());
	cr_assert_gt(distance(counter, options.near_addr), 2 * reach, "the per-CPU area lies where a library would be in reach");
	shunt_percpu_free(counter);
	cr_assert_eq(shunt_pack_free(&block), 0);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(shunt_arena_destroy(arena), 0);
}

/* An address with free space around it, and the walls that leave only what the tests name. */
static char *far_place(void)
{
	char *p = mmap(NULL, (size_t)64 << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		cr_skip_test("no 64 GiB of addresses here");
	return p + ((size_t)32 << 30);
}

Test(arena, without_room_below_the_range_above_is_taken_and_the_other_way_round)
{
	struct shunt_arena_options options = { .size = 16 << 20 };
	char *place = far_place();
	size_t room = 64 << 20;
	struct shunt_arena *arena;

	options.near_addr = place;
	cr_assert_eq(shunt_arena_create(&options, &arena), -ENOMEM, "there is no room at all");
	cr_assert(strstr(shunt_error(), "no free range"), "%s", shunt_error());
	for (int above = 0; above < 2; above++) {
		char *gap = above ? place + ((size_t)1 << 24) : place - room - ((size_t)1 << 24);

		/* The wall is one mapping, whose gap splits it: near_addr's part is then the image. */
		cr_assert_eq(munmap(gap, room), 0);
		cr_assert_eq(mprotect(place, 4096, PROT_READ), 0);
		cr_assert_eq(shunt_arena_create(&options, &arena), 0, "%s", shunt_error());
		cr_assert_geq((const char *)stats_of(arena).arena_base, gap);
		cr_assert_leq((const char *)stats_of(arena).arena_base + options.size, gap + room);
		check_reach(stats_of(arena).arena_base, options.size, place, place + 4096);
		cr_assert_eq(shunt_arena_destroy(arena), 0);
		cr_assert_eq(mmap(gap, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0), gap);
	}
}

Test(arena, nothing_is_in_reach_of_an_address_that_no_process_has)
{
	struct shunt_arena_options options = { .size = SHUNT_PACK_SIZE, .near_addr = (const void *)UINTPTR_MAX };
	struct shunt_arena *arena;

	cr_assert_eq(shunt_arena_create(&options, &arena), -ENOMEM);
	cr_assert(strstr(shunt_error(), "no free range"), "%s", shunt_error());
	options.near_addr = (const void *)(UINTPTR_MAX & ~(uintptr_t)0xffffff);
	cr_assert_eq(shunt_arena_create(&options, &arena), -ENOMEM);
}

Test(arena, a_gap_out_of_reach_is_not_taken_and_one_just_in_reach_is)
{
	struct shunt_arena_options options = { .size = 2 << 20 };
	uint64_t reach = (uint64_t)shunt_target_host()->branch_reach;
	char *place = far_place();
	struct shunt_arena *arena;
	char *gap;

	place = (char *)((uintptr_t)place & ~(SHUNT_PACK_SIZE - 1));
	options.near_addr = place;
	cr_assert_eq(mprotect(place, 4096, PROT_READ), 0);
	/* [place, place + 4096) is the image. An arena that ends at place + reach still reaches its beginning. */
	gap = place + reach - options.size;
	cr_assert_eq(munmap(gap + SHUNT_PACK_SIZE, SHUNT_PACK_SIZE), 0);
	cr_assert_eq(shunt_arena_create(&options, &arena), -ENOMEM, "an arena out of reach");
	cr_assert_eq(munmap(gap, SHUNT_PACK_SIZE), 0);
	cr_assert_eq(shunt_arena_create(&options, &arena), 0, "%s", shunt_error());
	cr_assert_eq(stats_of(arena).arena_base, gap);
	cr_assert_eq(mmap(gap + SHUNT_PACK_SIZE, SHUNT_PACK_SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), gap + SHUNT_PACK_SIZE);
	/* Below: the image's end must reach the arena's beginning. */
	gap = place - reach;
	cr_assert_eq(munmap(gap, SHUNT_PACK_SIZE), 0);
	cr_assert_eq(shunt_arena_create(&options, &arena), -ENOMEM, "an arena 4096 bytes out of reach");
	cr_assert_eq(munmap(gap + SHUNT_PACK_SIZE, SHUNT_PACK_SIZE), 0);
	cr_assert_eq(shunt_arena_create(&options, &arena), 0, "%s", shunt_error());
	cr_assert_eq(stats_of(arena).arena_base, gap + SHUNT_PACK_SIZE);
}

static struct shunt_sys real;
static unsigned nr_races;

/* Another thread maps something into the range just before we do. */
static void *racing_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
	if (addr && nr_races) {
		nr_races--;
		cr_assert_eq(real.mmap((char *)addr + len / 2, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
			     (char *)addr + len / 2);
	}
	return real.mmap(addr, len, prot, flags, fd, offset);
}

Test(arena, a_range_taken_by_another_thread_meanwhile_is_not_overwritten_and_another_is_found)
{
	struct shunt_arena_options options = { .size = 16 << 20 };
	struct shunt_arena *arena;

	real = shunt_sys;
	shunt_sys.mmap = racing_mmap;
	nr_races = 3;
	cr_assert_eq(shunt_arena_create(&options, &arena), 0, "%s", shunt_error());
	cr_assert_eq(nr_races, 0);
	cr_assert_eq(shunt_arena_destroy(arena), 0);
}

static char log_text[1000];

static void keep_log(void *user, enum shunt_log_level level, const char *message)
{
	snprintf(log_text, sizeof(log_text), "%s", message);
}

/* Reservations above a size are refused as if no range were free. */
static void *small_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
	if (len > 100 << 20) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	return real.mmap(addr, len, prot, flags, fd, offset);
}

Test(arena, the_default_arena_takes_less_where_there_is_less_and_says_so)
{
	struct shunt_arena *arena;

	real = shunt_sys;
	shunt_sys.mmap = small_mmap;
	shunt_set_log(keep_log, NULL, SHUNT_LOG_WARN);
	cr_assert_eq(shunt_arena_default(&arena), 0, "%s", shunt_error());
	cr_assert_eq(stats_of(arena).arena_size, 64 << 20);
	if (shunt_target_host()->default_arena > 64 << 20)
		cr_assert(strstr(log_text, "instead of"), "%s", log_text);
}

Test(arena, bad_sizes_are_refused)
{
	struct shunt_arena_options options = { .size = (2 << 20) + 4096 };
	struct shunt_arena *arena;

	cr_assert_eq(shunt_arena_create(&options, &arena), -EINVAL);
	options.size = (size_t)1 << 40;
	cr_assert_eq(shunt_arena_create(&options, &arena), -EINVAL);
	cr_assert(strstr(shunt_error(), "reach"), "%s", shunt_error());
}

Test(arena, an_arena_in_use_is_not_destroyed_and_a_destroyed_one_not_again)
{
	struct shunt_arena_options options = { .size = 4 << 20 };
	struct shunt_arena *arena;
	struct shunt_block block;
	unsigned maps;

	cr_assert_eq(shunt_arena_create(&options, &arena), 0);
	cr_assert_eq(shunt_arena_destroy(arena), 0);
	maps = count_maps(is_shared_or_reserved);
	cr_assert_eq(shunt_arena_create(&options, &arena), 0);
	cr_assert(make_tiny(arena, 1, &block));
	cr_assert_eq(shunt_arena_destroy(arena), -EBUSY);
	shunt_read_begin();
	cr_assert_eq(shunt_pack_free(&block), 0);
	cr_assert_eq(shunt_arena_destroy(arena), -EBUSY);
	cr_assert(strstr(shunt_error(), "grace period"), "%s", shunt_error());
	shunt_read_end();
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(shunt_arena_destroy(arena), 0, "%s", shunt_error());
	cr_assert_eq(shunt_arena_destroy(arena), -EINVAL);
	cr_assert_eq(shunt_pack_free(&block), -EINVAL);
	/* The worker's stack may have come. */
	cr_assert_leq(count_maps(is_shared_or_reserved), maps + 4);
}

static void *get_default(void *unused)
{
	struct shunt_arena *arena = NULL;

	return shunt_arena_default(&arena) == 0 ? arena : NULL;
}

Test(arena, threads_that_ask_at_once_get_one_default_arena)
{
	pthread_t threads[8];
	void *first = NULL;

	for (int i = 0; i < 8; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, get_default, NULL), 0);
	for (int i = 0; i < 8; i++) {
		void *arena;

		pthread_join(threads[i], &arena);
		cr_assert_not_null(arena);
		cr_assert(!first || first == arena);
		first = arena;
	}
}

static int stop_looking;
static struct shunt_arena *watched;

static void *look_for_addresses(void *addr)
{
	struct shunt_block block;

	while (!__atomic_load_n(&stop_looking, __ATOMIC_RELAXED))
		shunt_pack_find(addr, &block, NULL);
	return NULL;
}

Test(arena, addresses_may_be_looked_for_while_the_arena_that_had_them_goes)
{
	struct shunt_arena_options options = { .size = 4 << 20 };
	struct shunt_block block, found;
	struct shunt_pack_stats stats;
	pthread_t thread;

	cr_assert_eq(shunt_arena_create(&options, &watched), 0);
	cr_assert_eq(shunt_pack_get_stats(watched, &stats), 0);
	cr_assert_eq(pthread_create(&thread, NULL, look_for_addresses, (char *)stats.arena_base + 64), 0);
	for (int i = 0; i < 200; i++) {
		cr_assert_eq(shunt_pack_alloc(watched, SHUNT_SEGMENT_CODE, 100, 0, &block), 0, "%s", shunt_error());
		cr_assert_eq(shunt_pack_find(block.rx, &found, NULL), 0);
		cr_assert_eq(found.id, block.id);
		cr_assert_eq(shunt_pack_abandon(&block), 0);
		cr_assert_eq(shunt_arena_destroy(watched), 0, "%s", shunt_error());
		cr_assert_eq(shunt_pack_find(block.rx, &found, NULL), -ENOENT);
		cr_assert_eq(shunt_pack_free(&block), -EINVAL);
		cr_assert_eq(shunt_arena_create(&options, &watched), 0);
	}
	__atomic_store_n(&stop_looking, 1, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
}
