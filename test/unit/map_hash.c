/* SPDX-License-Identifier: MIT */
/* HASH and PERCPU_HASH. */
#include "map_test.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Test(map_hash, what_was_put_in_is_found_and_what_was_deleted_is_not)
{
	struct shunt_map *map = make_map(SHUNT_MAP_HASH, 4, 8, 100);
	uint32_t key;
	uint64_t value, *found;

	for (key = 0; key < 100; key++) {
		value = key * 3;
		cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_ANY), 0);
	}
	cr_assert_eq(shunt_map_count(map), 100);
	for (key = 0; key < 100; key++) {
		found = shunt_map_lookup(map, &key);
		cr_assert(found && *found == key * 3);
		cr_assert_eq((uintptr_t)found % 8, 0);
		cr_assert_eq(shunt_map_find_hash(map, &key), found);
	}
	cr_assert_null(shunt_map_lookup(map, &key));
	for (key = 0; key < 100; key += 2)
		cr_assert_eq(shunt_map_delete(map, &key), 0);
	for (key = 0; key < 100; key++)
		cr_assert_eq(shunt_map_lookup(map, &key) != NULL, key % 2);
	cr_assert_eq(shunt_map_count(map), 50);
	key = 0;
	cr_assert_eq(shunt_map_delete(map, &key), -ENOENT);
	cr_assert_eq(shunt_map_host_delete(map, &key), -ENOENT);
	cr_assert_eq(shunt_map_host_lookup(map, &key, &value), -ENOENT);
	end_map(map);
}

Test(map_hash, flags_are_the_kernels)
{
	uint32_t types[] = {SHUNT_MAP_HASH, SHUNT_MAP_PERCPU_HASH, SHUNT_MAP_LRU_HASH, SHUNT_MAP_LRU_PERCPU_HASH};

	for (int t = 0; t < 4; t++) {
		struct shunt_map *map = make_map(types[t], 8, 8, 4);
		uint64_t key = 7, value = 1, *found;

		cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_EXIST), -ENOENT);
		cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_NOEXIST), 0);
		cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_NOEXIST), -EEXIST);
		value = 2;
		cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_EXIST), 0);
		value = 3;
		cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_ANY), 0);
		cr_assert_eq(shunt_map_update(map, &key, &value, 3), -EINVAL);
		cr_assert_eq(shunt_map_update(map, &key, &value, 4), -EINVAL);
		cr_assert_eq(shunt_map_count(map), 1);
		if (!shunt_map_is_percpu(map)) {
			found = shunt_map_lookup(map, &key);
			cr_assert(found && *found == 3);
		}
		end_map(map);
	}
}

Test(map_hash, a_full_map_refuses_new_keys_and_takes_new_values)
{
	uint32_t types[] = {SHUNT_MAP_HASH, SHUNT_MAP_PERCPU_HASH};

	for (int t = 0; t < 2; t++) {
		struct shunt_map *map = make_map(types[t], 4, 8, 3);
		uint32_t key;
		uint64_t value = 1;

		for (key = 0; key < 3; key++)
			cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_ANY), 0);
		cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_ANY), -E2BIG);
		cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_NOEXIST), -E2BIG);
		cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_EXIST), -ENOENT);
		key = 1;
		cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_ANY), 0);
		cr_assert_eq(shunt_map_delete(map, &key), 0);
		key = 3;
		cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_ANY), 0);
		cr_assert_eq(shunt_map_count(map), 3);
		end_map(map);
	}
}

/* Each key is the previous one with one byte changed, so that a compare that stops short finds the wrong one. */
Test(map_hash, keys_of_every_size_are_told_apart_in_their_last_byte)
{
	for (uint32_t size = 1; size <= 70; size++) {
		struct shunt_map *map = make_map(SHUNT_MAP_HASH, size, size, 200);
		unsigned char buffer[72] = {0}, *key = buffer + 1, *found;

		for (int i = 0; i < 200; i++) {
			key[size - 1] = (unsigned char)i;
			cr_assert_eq(shunt_map_update(map, key, key, SHUNT_NOEXIST), 0);
		}
		for (int i = 0; i < 256; i++) {
			key[size - 1] = (unsigned char)i;
			found = shunt_map_lookup(map, key);
			cr_assert_eq(found != NULL, i < 200);
			if (found)
				cr_assert_eq(memcmp(found, key, size), 0);
		}
		end_map(map);
	}
}

Test(map_hash, large_values_are_kept_whole)
{
	struct shunt_map *map = make_map(SHUNT_MAP_HASH, 4, 300001, 5);
	unsigned char *value = malloc(300001), *out = malloc(300001);

	for (int round = 0; round < 3; round++) {
		for (uint32_t key = 0; key < 5; key++) {
			memset(value, (int)key + 1, 300001);
			cr_assert_eq(shunt_map_host_update(map, &key, value, SHUNT_ANY), 0);
		}
		cr_assert_eq(shunt_quiesce(), 0);
	}
	for (uint32_t key = 0; key < 5; key++) {
		memset(value, (int)key + 1, 300001);
		cr_assert_eq(shunt_map_host_lookup(map, &key, out), 0);
		cr_assert_eq(memcmp(value, out, 300001), 0);
	}
	free(value);
	free(out);
	end_map(map);
}

Test(map_hash, a_found_value_stays_what_it_was_until_the_read_section_ends)
{
	struct shunt_map *map = make_map(SHUNT_MAP_HASH, 4, 8, 4);
	uint32_t key = 1;
	uint64_t value = 11, *old;

	cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_ANY), 0);
	shunt_read_begin();
	old = shunt_map_lookup(map, &key);
	value = 22;
	cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_ANY), 0);
	cr_assert_eq(*(uint64_t *)shunt_map_lookup(map, &key), 22);
	cr_assert_eq(*old, 11, "the old value was overwritten in place");
	/* Elements taken and given back meanwhile do not reuse it. */
	for (int i = 0; i < 2000; i++) {
		value = 33;
		cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_ANY), 0);
		cr_assert_eq(shunt_map_delete(map, &key), 0);
	}
	usleep(20000);
	cr_assert_eq(*old, 11, "the old value was reused inside the section");
	shunt_read_end();
	end_map(map);
}

Test(map_hash, a_deleted_value_stays_readable_and_its_place_unused_until_the_read_section_ends)
{
	uint32_t types[] = {SHUNT_MAP_HASH, SHUNT_MAP_LRU_HASH, SHUNT_MAP_PERCPU_HASH, SHUNT_MAP_LRU_PERCPU_HASH};

	for (int t = 0; t < 4; t++) {
		struct shunt_map *map = make_map(types[t], 4, 8, 4);
		uint32_t key = 1, cpu = 0;
		uint64_t value = 11, *old = NULL;

		cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_ANY), 0);
		shunt_read_begin();
		/* The copy that the update wrote, whatever CPU this runs on by now. */
		while (!old || *old != 11)
			old = shunt_map_is_percpu(map) ? shunt_map_lookup_of(map, &key, cpu++) : shunt_map_lookup(map, &key);
		cr_assert_eq(shunt_map_delete(map, &key), 0);
		for (key = 2; key < 6; key++) {
			value = 100 + key;
			cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_ANY), 0);
		}
		cr_assert_eq(*old, 11, "type %u: the place was reused inside the section", types[t]);
		shunt_read_end();
		end_map(map);
	}
}

Test(map_hash, storms_of_updates_are_never_refused_because_elements_wait)
{
	struct shunt_map *map = make_map(SHUNT_MAP_HASH, 4, 8, 1);
	uint32_t key = 1;
	uint64_t value = 0;

	/* Inside a section nothing comes back. */
	shunt_read_begin();
	for (int i = 0; i < 50000; i++)
		cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_ANY), 0);
	shunt_read_end();
	cr_assert_eq(shunt_map_count(map), 1);
	end_map(map);
}

Test(map_hash, keys_are_listed_each_once_and_an_absent_key_starts_again)
{
	struct shunt_map *map = make_map(SHUNT_MAP_HASH, 4, 8, 64);
	uint32_t key, next, absent = 1000, first;
	uint64_t value = 0;
	bool seen[64] = {false};
	int nr = 0;

	cr_assert_eq(shunt_map_next_key(map, NULL, &next), -ENOENT);
	for (key = 0; key < 64; key++)
		cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_ANY), 0);
	for (int err = shunt_map_next_key(map, NULL, &key); !err; err = shunt_map_next_key(map, &key, &key)) {
		cr_assert_lt(key, 64);
		cr_assert_not(seen[key]);
		seen[key] = true;
		nr++;
	}
	cr_assert_eq(nr, 64);
	cr_assert_eq(shunt_map_next_key(map, NULL, &first), 0);
	cr_assert_eq(shunt_map_next_key(map, &absent, &next), 0);
	cr_assert_eq(first, next);
	end_map(map);
}

static uint64_t at_cpu(struct shunt_map *map, const void *key, uint32_t cpu)
{
	uint64_t *value = shunt_map_lookup_of(map, key, cpu);

	cr_assert_not_null(value);
	return *value;
}

Test(map_hash, the_program_side_of_a_percpu_hash_writes_one_copy)
{
	uint32_t types[] = {SHUNT_MAP_PERCPU_HASH, SHUNT_MAP_LRU_PERCPU_HASH};

	for (int t = 0; t < 2; t++) {
		struct shunt_map *map = make_map(types[t], 4, 8, 8);
		uint32_t key = 5, nr = shunt_nr_cpus(), nr_new = 0, nr_old = 0;
		uint64_t *values = calloc(nr, 8), value = 1;

		for (uint32_t cpu = 0; cpu < nr; cpu++)
			values[cpu] = 100;
		cr_assert_eq(shunt_map_host_update(map, &key, values, SHUNT_ANY), 0);
		/* An existing key: the other CPUs keep theirs. */
		cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_ANY), 0);
		for (uint32_t cpu = 0; cpu < nr; cpu++) {
			nr_new += at_cpu(map, &key, cpu) == 1;
			nr_old += at_cpu(map, &key, cpu) == 100;
		}
		cr_assert(nr_new == 1 && nr_old == nr - 1);
		/* A new key in a slot that was used: the other CPUs' are zero. */
		cr_assert_eq(shunt_map_delete(map, &key), 0);
		cr_assert_eq(shunt_quiesce(), 0);
		for (int round = 0; round < 100; round++) {
			uint64_t sum = 0;

			cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_NOEXIST), 0);
			for (uint32_t cpu = 0; cpu < nr; cpu++)
				sum += at_cpu(map, &key, cpu);
			cr_assert_eq(sum, 1);
			cr_assert_eq(shunt_map_host_update(map, &key, values, SHUNT_EXIST), 0);
			cr_assert_eq(shunt_map_delete(map, &key), 0);
			cr_assert_eq(shunt_quiesce(), 0);
		}
		free(values);
		end_map(map);
	}
}

Test(map_hash, the_call_half_of_an_inlined_lookup_gives_cpu_0s_copy)
{
	struct shunt_map *map = make_map(SHUNT_MAP_PERCPU_HASH, 16, 24, 8);
	unsigned char key[16] = "sixteen bytes..", value[24] = "twenty-four bytes......", *found;

	cr_assert_eq(shunt_map_update(map, key, value, SHUNT_ANY), 0);
	found = shunt_map_find_percpu(map, key);
	cr_assert_not_null(found);
	cr_assert_eq((void *)found, shunt_map_lookup_of(map, key, 0));
	for (uint32_t cpu = 0; cpu < shunt_nr_cpus(); cpu++)
		cr_assert_eq(shunt_map_lookup_of(map, key, cpu), (void *)(found + ((int64_t)cpu << SHUNT_PERCPU_SHIFT)));
	key[15] = 'x';
	cr_assert_null(shunt_map_find_percpu(map, key));
	cr_assert_null(shunt_map_lookup(map, key));
	cr_assert_null(shunt_map_lookup_of(map, key, 0));
	end_map(map);
}

Test(map_hash, many_percpu_entries_have_values_of_their_own)
{
	struct shunt_map *map = make_map(SHUNT_MAP_PERCPU_HASH, 4, 20, 3000);
	uint32_t nr = shunt_nr_cpus(), value[5] = {0};
	char *values = calloc(nr, 24);

	for (uint32_t key = 0; key < 3000; key++) {
		for (uint32_t cpu = 0; cpu < nr; cpu++) {
			value[0] = key * 7 + cpu;
			value[4] = ~value[0];
			memcpy(values + cpu * 24, value, 20);
		}
		cr_assert_eq(shunt_map_host_update(map, &key, values, SHUNT_NOEXIST), 0);
	}
	for (uint32_t key = 0; key < 3000; key++) {
		cr_assert_eq(shunt_map_host_lookup(map, &key, values), 0);
		for (uint32_t cpu = 0; cpu < nr; cpu++) {
			memcpy(value, values + cpu * 24, 20);
			cr_assert(value[0] == key * 7 + cpu && value[4] == ~value[0]);
		}
	}
	free(values);
	end_map(map);
}

/* As code does it that has the first probe inline (shunt/abi.h); the elements of other keys are further along their chains. */
static void probe(uint32_t key_size)
{
	struct shunt_map *map = make_map(SHUNT_MAP_HASH, key_size, 8, 1000);
	const struct shunt_map_abi *abi = shunt_map_abi(map);
	const uint64_t *flip = abi->hash_key;
	uint32_t nr_first = 0;

	for (uint64_t number = 0; number < 1000; number++) {
		uint64_t words[2] = {number * 0x9e3779b97f4a7c15, ~number};

		cr_assert_eq(shunt_map_update(map, words, &number, SHUNT_ANY), 0);
	}
	for (uint64_t number = 0; number < 1000; number++) {
		uint64_t words[2] = {number * 0x9e3779b97f4a7c15, ~number}, hash;
		uint32_t halves[2] = {(uint32_t)words[0], (uint32_t)(key_size == 4 ? words[0] : words[0] >> 32)};
		char *elem;

		if (key_size == 16) {
			uint64_t low = words[0] ^ flip[0], high = words[1] ^ flip[1];
			unsigned __int128 product = (unsigned __int128)low * high;

			hash = 16 + __builtin_bswap64(low) + high + ((uint64_t)product ^ (uint64_t)(product >> 64));
			hash = (hash ^ hash >> 37) * 0x165667919e3779f9;
			hash ^= hash >> 32;
		} else {
			hash = ((uint64_t)halves[0] << 32 | halves[1]) ^ flip[0];
			hash ^= (hash << 49 | hash >> 15) ^ (hash << 24 | hash >> 40);
			hash *= 0x9fb21c651e98df25;
			hash = (hash ^ ((hash >> 35) + key_size)) * 0x9fb21c651e98df25;
			hash ^= hash >> 28;
		}
		elem = ((char **)abi->buckets)[hash & abi->bucket_mask];
		cr_assert_not_null(elem, "a key of %u bytes is in another bucket", key_size);
		if (memcmp(elem + SHUNT_MAP_ELEM_KEY, words, key_size))
			continue;
		nr_first++;
		cr_assert_eq(*(uint64_t *)(elem + SHUNT_MAP_ELEM_KEY + (key_size + 7) / 8 * 8), number);
		cr_assert_eq((char *)shunt_map_lookup(map, words), elem + SHUNT_MAP_ELEM_KEY + (key_size + 7) / 8 * 8);
	}
	cr_assert_gt(nr_first, 500, "of keys of %u bytes only %u are first", key_size, nr_first);
	end_map(map);
}

Test(map_hash, the_first_probe_of_small_keys_finds_what_lookup_finds)
{
	probe(4);
	probe(8);
	probe(16);
}
