/* SPDX-License-Identifier: MIT */
/* LRU_HASH and LRU_PERCPU_HASH: they make room instead of refusing. */
#include "map_test.h"

#include <stdlib.h>
#include <unistd.h>

Test(map_lru, a_full_map_lets_an_old_entry_go)
{
	uint32_t types[] = {SHUNT_MAP_LRU_HASH, SHUNT_MAP_LRU_PERCPU_HASH};

	for (int t = 0; t < 2; t++) {
		struct shunt_map *map = make_map(types[t], 4, 8, 10);
		uint64_t value = 1;
		uint32_t nr = 0;

		for (uint32_t key = 0; key < 1000; key++) {
			cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_NOEXIST), 0);
			cr_assert_not_null(shunt_map_lookup(map, &key), "the newest entry is there");
			cr_assert_leq(shunt_map_count(map), 10);
		}
		for (uint32_t key = 0; key < 1000; key++)
			nr += shunt_map_lookup(map, &key) != NULL;
		cr_assert_eq(nr, 10);
		end_map(map);
	}
}

Test(map_lru, entries_that_are_looked_up_stay)
{
	struct shunt_map *map = make_map(SHUNT_MAP_LRU_HASH, 4, 8, 64);
	uint64_t value = 1;
	uint32_t favourite = 3;

	for (uint32_t key = 0; key < 5000; key++) {
		cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_ANY), 0);
		if (key >= favourite)
			cr_assert_not_null(shunt_map_find_hash(map, &favourite), "lost at %u", key);
	}
	end_map(map);
}

Test(map_lru, the_call_half_of_an_inlined_percpu_lookup_counts_as_use)
{
	struct shunt_map *map = make_map(SHUNT_MAP_LRU_PERCPU_HASH, 4, 8, 64);
	uint64_t value = 1;
	uint32_t favourite = 3;

	for (uint32_t key = 0; key < 5000; key++) {
		cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_ANY), 0);
		if (key >= favourite)
			cr_assert_not_null(shunt_map_find_percpu(map, &favourite), "lost at %u", key);
	}
	end_map(map);
}

Test(map_lru, what_the_host_reads_does_not_count_as_use)
{
	struct shunt_map *map = make_map(SHUNT_MAP_LRU_HASH, 4, 8, 8);
	uint64_t value = 1;
	uint32_t key, oldest = 0;

	for (key = 0; key < 8; key++)
		cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_ANY), 0);
	cr_assert_eq(shunt_map_host_lookup(map, &oldest, &value), 0);
	cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_ANY), 0);
	cr_assert_eq(shunt_map_host_lookup(map, &oldest, &value), -ENOENT);
	end_map(map);
}

Test(map_lru, an_entry_goes_even_when_all_are_in_use)
{
	struct shunt_map *map = make_map(SHUNT_MAP_LRU_HASH, 4, 8, 1000);
	uint64_t value = 1;

	for (uint32_t key = 0; key < 3000; key++) {
		cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_ANY), 0);
		for (uint32_t other = key >= 1000 ? key - 999 : 0; other <= key; other += 37)
			shunt_map_lookup(map, &other);
		shunt_map_lookup(map, &key);
	}
	cr_assert_eq(shunt_map_count(map), 1000);
	end_map(map);
}

Test(map_lru, deletion_and_replacement_keep_the_order_whole)
{
	struct shunt_map *map = make_map(SHUNT_MAP_LRU_HASH, 4, 8, 4);
	uint64_t value;
	uint32_t key, nr = 0;
	unsigned int seed = 5;

	for (int i = 0; i < 20000; i++) {
		key = (uint32_t)(rand_r(&seed) % 9);
		value = key * 2;
		if (rand_r(&seed) % 3)
			cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_ANY), 0);
		else
			shunt_map_delete(map, &key);
	}
	for (int err = shunt_map_next_key(map, NULL, &key); !err; err = shunt_map_next_key(map, &key, &key)) {
		cr_assert_eq(shunt_map_host_lookup(map, &key, &value), 0);
		cr_assert_eq(value, key * 2);
		nr++;
	}
	cr_assert_eq(nr, shunt_map_count(map));
	end_map(map);
}

Test(map_lru, an_evicted_value_stays_readable_until_the_section_ends)
{
	struct shunt_map *map = make_map(SHUNT_MAP_LRU_HASH, 4, 8, 1);
	uint32_t key = 0;
	uint64_t value = 7, *old;

	cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_ANY), 0);
	shunt_read_begin();
	old = shunt_map_lookup(map, &key);
	for (key = 1; key < 1000; key++) {
		value = 1000 + key;
		cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_ANY), 0);
	}
	usleep(20000);
	cr_assert_eq(*old, 7);
	shunt_read_end();
	end_map(map);
}
