/* SPDX-License-Identifier: MIT */
/* Many entries in one call, the values of threads without rseq, and the two ways of taking memory. */
#include "map_test.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/rseq.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/percpu/cpu.h"

enum { NR = 100 };

static void fill(struct shunt_map *map, uint32_t nr)
{
	uint32_t keys[NR];
	uint64_t values[NR];

	for (uint32_t i = 0; i < nr; i++) {
		keys[i] = i * 7;
		values[i] = i + 1000;
	}
	cr_assert_eq(shunt_map_host_update_batch(map, keys, values, &nr, SHUNT_ANY), 0);
}

Test(map_batch, batches_give_every_entry_once_whatever_their_size)
{
	struct shunt_map *map = make_map(SHUNT_MAP_HASH, 4, 8, NR);

	fill(map, NR);
	for (uint32_t size = 1; size <= NR + 1; size += 9) {
		bool seen[NR] = {false};
		uint32_t keys[NR + 1], after, total = 0, nr;
		uint64_t values[NR + 1];
		int err;

		do {
			nr = size;
			err = shunt_map_host_lookup_batch(map, total ? &after : NULL, keys, values, &nr);
			cr_assert(err == 0 || err == -ENOENT);
			cr_assert_eq(nr == size, err == 0);
			for (uint32_t i = 0; i < nr; i++) {
				cr_assert_eq(values[i], keys[i] / 7 + 1000);
				cr_assert_not(seen[keys[i] / 7]);
				seen[keys[i] / 7] = true;
			}
			total += nr;
			if (nr)
				after = keys[nr - 1];
		} while (!err);
		cr_assert_eq(total, NR);
	}
	end_map(map);
}

Test(map_batch, a_batch_stops_at_the_entry_that_fails_and_says_where)
{
	struct shunt_map *map = make_map(SHUNT_MAP_HASH, 4, 8, 4);
	uint32_t keys[6] = {1, 2, 3, 4, 5, 6}, nr = 6;
	uint64_t values[6] = {0};

	cr_assert_eq(shunt_map_host_update_batch(map, keys, values, &nr, SHUNT_ANY), -E2BIG);
	cr_assert_eq(nr, 4);
	nr = 2;
	cr_assert_eq(shunt_map_host_update_batch(map, keys, values, &nr, SHUNT_NOEXIST), -EEXIST);
	cr_assert_eq(nr, 0);
	nr = 2;
	cr_assert_eq(shunt_map_host_update_batch(map, keys, values, &nr, 7), -EINVAL);
	cr_assert_eq(nr, 0);
	nr = 6;
	cr_assert_eq(shunt_map_host_delete_batch(map, keys, &nr), -ENOENT);
	cr_assert_eq(nr, 4);
	cr_assert_eq(shunt_map_count(map), 0);
	nr = 6;
	cr_assert_eq(shunt_map_host_lookup_batch(map, NULL, keys, values, &nr), -ENOENT);
	cr_assert_eq(nr, 0);
	end_map(map);
}

Test(map_batch, batches_of_a_percpu_map_have_all_cpus_values)
{
	struct shunt_map *map = make_map(SHUNT_MAP_PERCPU_ARRAY, 4, 8, 3);
	uint32_t keys[3] = {0, 1, 2}, nr = 3, nr_cpus = shunt_nr_cpus();
	uint64_t *values = calloc(3 * nr_cpus, 8), *read = calloc(3 * nr_cpus, 8);

	for (uint32_t i = 0; i < 3 * nr_cpus; i++)
		values[i] = i + 1;
	cr_assert_eq(shunt_map_host_update_batch(map, keys, values, &nr, SHUNT_ANY), 0);
	nr = 3;
	cr_assert_eq(shunt_map_host_lookup_batch(map, NULL, keys, read, &nr), 0);
	cr_assert_eq(nr, 3);
	cr_assert_eq(memcmp(values, read, 3 * nr_cpus * 8), 0);
	free(values);
	free(read);
	end_map(map);
}

static void *count_without_rseq(void *map)
{
	uint32_t key = 1;
	uint64_t *value;

	if (!__rseq_size || syscall(SYS_rseq, shunt_cpu_thread_pointer() + __rseq_offset, 32, RSEQ_FLAG_UNREGISTER, RSEQ_SIG))
		return map;
	shunt_read_begin();
	value = shunt_map_lookup(map, &key);
	if (value)
		*value += 5;
	shunt_read_end();
	return NULL;
}

Test(map_batch, what_threads_without_rseq_counted_can_be_read)
{
	struct shunt_map *map = make_map(SHUNT_MAP_PERCPU_HASH, 4, 8, 3), *shared = make_map(SHUNT_MAP_HASH, 4, 8, 3);
	uint64_t *values = calloc(shunt_nr_cpus(), 8), value = 9;
	uint32_t key = 1;
	pthread_t thread;
	void *skipped;

	cr_assert_eq(shunt_map_host_update(map, &key, values, SHUNT_ANY), 0);
	cr_assert_eq(pthread_create(&thread, NULL, count_without_rseq, map), 0);
	pthread_join(thread, &skipped);
	cr_assert_eq(shunt_map_host_lookup_unregistered(map, &key, &value), 0);
	cr_assert_eq(value, skipped ? 0 : 5);
	cr_assert_eq(shunt_map_host_lookup(map, &key, values), 0);
	for (uint32_t cpu = 0; cpu < shunt_nr_cpus(); cpu++)
		cr_assert_eq(values[cpu], 0);
	key = 2;
	cr_assert_eq(shunt_map_host_lookup_unregistered(map, &key, &value), -ENOENT);
	cr_assert_eq(shunt_map_host_lookup_unregistered(shared, &key, &value), -EINVAL);
	free(values);
	end_map(map);
	end_map(shared);
}

/* Values for all entries do not fit into a CPU's unit: known at creation, or found when entries come. */
Test(map_batch, a_preallocated_hash_that_cannot_hold_its_entries_is_refused_and_an_on_demand_one_fills_up)
{
	struct shunt_map_attr attr = {
		.type = SHUNT_MAP_PERCPU_HASH, .key_size = 4, .value_size = 32768, .max_entries = 1u << 16, .name = "large"};
	uint64_t *values = calloc(shunt_nr_cpus(), 32768);
	struct shunt_map *map;
	uint32_t key = 0;

	cr_assert_eq(shunt_map_create(&attr, &map), -ENOMEM);
	cr_assert_not_null(strstr(shunt_error(), "NO_PREALLOC"), "%s", shunt_error());
	attr.flags = SHUNT_MAP_NO_PREALLOC;
	cr_assert_eq(shunt_map_create(&attr, &map), 0);
	cr_assert_eq(shunt_map_host_update(map, &key, values, SHUNT_ANY), 0);
	free(values);
	end_map(map);
	/* Nothing stayed behind of the map that was refused. */
	attr = (struct shunt_map_attr){
		.type = SHUNT_MAP_PERCPU_ARRAY, .key_size = 4, .value_size = 32768, .max_entries = 1u << 14, .name = "most of a unit"};
	cr_assert_eq(shunt_map_create(&attr, &map), 0);
	end_map(map);
}
