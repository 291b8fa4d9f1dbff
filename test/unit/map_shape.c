/* SPDX-License-Identifier: MIT */
/* Which maps can be made, what they say of themselves, and how long they live. */
#include "map_test.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint32_t index_types[] = {SHUNT_MAP_ARRAY,         SHUNT_MAP_PERCPU_ARRAY, SHUNT_MAP_PROG_ARRAY,
				       SHUNT_MAP_ARRAY_OF_MAPS, SHUNT_MAP_DEVMAP,       SHUNT_MAP_CPUMAP,
				       SHUNT_MAP_XSKMAP,        SHUNT_MAP_DEVMAP_HASH,  SHUNT_MAP_PERF_EVENT_ARRAY};
static const uint32_t hash_types[] = {SHUNT_MAP_HASH, SHUNT_MAP_PERCPU_HASH, SHUNT_MAP_LRU_HASH, SHUNT_MAP_LRU_PERCPU_HASH,
				      SHUNT_MAP_HASH_OF_MAPS};

#define NR(array) (sizeof(array) / sizeof((array)[0]))

Test(map_shape, every_type_in_the_list_can_be_made_and_says_its_shape)
{
	for (size_t i = 0; i < NR(index_types) + NR(hash_types) + 1; i++) {
		uint32_t type = i < NR(index_types) ? index_types[i] :
				i < NR(index_types) + NR(hash_types) ? hash_types[i - NR(index_types)] : SHUNT_MAP_LPM_TRIE;
		struct shunt_map *map = make_map(type, type == SHUNT_MAP_LPM_TRIE ? 8 : 4, 4, 5);
		const struct shunt_map_abi *abi = shunt_map_abi(map);
		bool percpu = type == SHUNT_MAP_PERCPU_ARRAY || type == SHUNT_MAP_PERCPU_HASH || type == SHUNT_MAP_LRU_PERCPU_HASH;

		cr_assert_eq((const void *)abi, (const void *)map, "inlined code finds the shape at the map's own address");
		cr_assert_eq(abi->type, type);
		cr_assert_eq(abi->value_size, 4);
		cr_assert_eq(abi->max_entries, 5);
		cr_assert_eq(abi->stride, 8);
		cr_assert_str_eq(shunt_map_name(map), "tested");
		cr_assert_eq(shunt_map_is_percpu(map), percpu);
		cr_assert_eq(abi->values != NULL, type == SHUNT_MAP_ARRAY || type == SHUNT_MAP_PERCPU_ARRAY);
		if (percpu)
			cr_assert_eq(shunt_map_host_value_size(map), (size_t)shunt_nr_cpus() * 8);
		end_map(map);
	}
}

Test(map_shape, unknown_types_and_flags_are_refused)
{
	cr_assert_eq(try_map(0, 4, 4, 1, 0), -ENOTSUP);
	cr_assert_eq(try_map(7, 4, 4, 1, 0), -ENOTSUP);
	cr_assert_eq(try_map(1000, 4, 4, 1, 0), -ENOTSUP);
	cr_assert_eq(try_map((uint32_t)-1, 4, 4, 1, 0), -ENOTSUP);
	cr_assert_eq(try_map(SHUNT_MAP_HASH, 4, 4, 1, 1u << 1), -EINVAL);
	cr_assert_eq(try_map(SHUNT_MAP_HASH, 4, 4, 1, SHUNT_MAP_NO_PREALLOC | SHUNT_MAP_RDONLY_PROG), 0);
	cr_assert_eq(try_map(SHUNT_MAP_ARRAY, 4, 4, 1, SHUNT_MAP_RDONLY_PROG), 0);
}

Test(map_shape, sizes_of_nothing_are_refused)
{
	for (size_t i = 0; i < NR(index_types); i++) {
		cr_expect_eq(try_map(index_types[i], 4, 4, 0, 0), -EINVAL);
		cr_expect_eq(try_map(index_types[i], 4, 0, 1, 0), -EINVAL);
		cr_expect_eq(try_map(index_types[i], 0, 4, 1, 0), -EINVAL);
		cr_expect_eq(try_map(index_types[i], 8, 4, 1, 0), -EINVAL, "an index has 4 bytes");
		cr_expect_eq(try_map(index_types[i], 3, 4, 1, 0), -EINVAL);
		cr_expect_eq(try_map(index_types[i], 4, 4, 1, SHUNT_MAP_NO_PREALLOC), -EINVAL);
	}
	for (size_t i = 0; i < NR(hash_types); i++) {
		cr_expect_eq(try_map(hash_types[i], 4, 4, 0, 0), -EINVAL);
		cr_expect_eq(try_map(hash_types[i], 4, 0, 1, 0), -EINVAL);
		cr_expect_eq(try_map(hash_types[i], 0, 4, 1, 0), -EINVAL);
		cr_expect_eq(try_map(hash_types[i], 513, 4, 1, 0), -E2BIG);
	}
	cr_assert_str_neq(shunt_error(), "");
}

Test(map_shape, each_family_refuses_what_the_kernel_refuses)
{
	cr_expect_eq(try_map(SHUNT_MAP_LPM_TRIE, 8, 4, 1, 0), -EINVAL, "a trie needs NO_PREALLOC");
	cr_expect_eq(try_map(SHUNT_MAP_LPM_TRIE, 4, 4, 1, SHUNT_MAP_NO_PREALLOC), -EINVAL, "no data behind the prefix length");
	cr_expect_eq(try_map(SHUNT_MAP_LPM_TRIE, 5, 4, 1, SHUNT_MAP_NO_PREALLOC), 0);
	cr_expect_eq(try_map(SHUNT_MAP_LPM_TRIE, 260, 4, 1, SHUNT_MAP_NO_PREALLOC), 0);
	cr_expect_eq(try_map(SHUNT_MAP_LPM_TRIE, 261, 4, 1, SHUNT_MAP_NO_PREALLOC), -EINVAL);
	cr_expect_eq(try_map(SHUNT_MAP_LRU_HASH, 4, 4, 1, SHUNT_MAP_NO_PREALLOC), -EINVAL);
	cr_expect_eq(try_map(SHUNT_MAP_PERCPU_ARRAY, 4, 32768, 1, 0), 0);
	cr_expect_eq(try_map(SHUNT_MAP_PERCPU_ARRAY, 4, 32769, 1, 0), -E2BIG);
	cr_expect_eq(try_map(SHUNT_MAP_PERCPU_HASH, 4, 32769, 1, 0), -E2BIG);
	cr_expect_eq(try_map(SHUNT_MAP_PROG_ARRAY, 4, 16, 1, 0), -EINVAL);
	cr_expect_eq(try_map(SHUNT_MAP_DEVMAP, 4, 8, 1, 0), 0);
	cr_expect_eq(try_map(SHUNT_MAP_DEVMAP, 4, 2, 1, 0), -EINVAL);
	cr_expect_eq(try_map(SHUNT_MAP_XSKMAP, 4, 8, 1, 0), -EINVAL);
	cr_expect_eq(try_map(SHUNT_MAP_PERF_EVENT_ARRAY, 4, 8, 1, 0), -EINVAL);
}

Test(map_shape, a_huge_array_fails_cleanly_and_a_large_one_costs_nothing_until_touched)
{
	struct shunt_map *map;

	cr_assert_eq(try_map(SHUNT_MAP_ARRAY, 4, 1u << 30, UINT32_MAX, 0), -ENOMEM);
	cr_assert_eq(try_map(SHUNT_MAP_PERCPU_ARRAY, 4, 32768, UINT32_MAX, 0), -ENOMEM);
	map = make_map(SHUNT_MAP_ARRAY, 4, 64, 1u << 24);
	end_map(map);
}

Test(map_shape, a_name_is_copied_and_may_be_missing)
{
	char name[] = "borrowed";
	struct shunt_map_attr attr = {.type = SHUNT_MAP_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1, .name = name};
	struct shunt_map *map;

	cr_assert_eq(shunt_map_create(&attr, &map), 0);
	name[0] = 'x';
	cr_assert_str_eq(shunt_map_name(map), "borrowed");
	end_map(map);
	attr.name = NULL;
	cr_assert_eq(shunt_map_create(&attr, &map), 0);
	cr_assert_str_eq(shunt_map_name(map), "");
	end_map(map);
}

Test(map_shape, a_map_lives_as_long_as_its_last_reference)
{
	struct shunt_map *map = make_map(SHUNT_MAP_HASH, 4, 8, 16);
	uint32_t key = 3;
	uint64_t value = 9;

	cr_assert_eq(shunt_map_get(map), map);
	shunt_map_put(map);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(shunt_map_host_update(map, &key, &value, SHUNT_ANY), 0);
	end_map(map);
	shunt_map_put(NULL);
}

Test(map_shape, a_map_found_in_a_read_section_outlives_its_last_put_until_the_section_ends)
{
	struct shunt_map *map = make_map(SHUNT_MAP_HASH, 4, 8, 16);
	uint32_t key = 3;
	uint64_t value = 9, *found;

	cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_ANY), 0);
	shunt_read_begin();
	shunt_map_put(map);
	usleep(20000);
	found = shunt_map_lookup(map, &key);
	cr_assert(found && *found == 9);
	cr_assert_null(shunt_map_get(map), "a dead map cannot be revived");
	shunt_read_end();
	cr_assert_eq(shunt_quiesce(), 0);
}

static int stop;

static void *churn(void *map)
{
	for (uint32_t i = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++) {
		uint32_t key = i % 8;
		uint64_t value = i;

		shunt_map_update(map, &key, &value, SHUNT_ANY);
	}
	return NULL;
}

Test(map_shape, a_forked_child_can_use_maps_that_another_thread_was_updating)
{
	struct shunt_map *map;
	pthread_t thread;

	SKIP_WHERE_A_FORKED_CHILD_MAY_NOT_ALLOCATE();
	map = make_map(SHUNT_MAP_LRU_HASH, 4, 8, 16);
	cr_assert_eq(pthread_create(&thread, NULL, churn, map), 0);
	for (int i = 0; i < 50; i++) {
		pid_t child = fork();
		int status;

		cr_assert_geq(child, 0);
		if (!child) {
			uint32_t key = 77;
			uint64_t value = 1;

			alarm(10);
			_exit(shunt_map_update(map, &key, &value, SHUNT_ANY) || !shunt_map_lookup(map, &key));
		}
		cr_assert_eq(waitpid(child, &status, 0), child);
		cr_assert(WIFEXITED(status) && !WEXITSTATUS(status), "status %#x", status);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	end_map(map);
}
