/* SPDX-License-Identifier: MIT */
/* ARRAY and PERCPU_ARRAY. */
#include "map_test.h"

#include <stdlib.h>
#include <string.h>

Test(map_array, all_values_exist_and_are_zero_at_first)
{
	struct shunt_map *map = make_map(SHUNT_MAP_ARRAY, 4, 12, 10);

	for (uint32_t i = 0; i < 10; i++) {
		char *value = shunt_map_lookup(map, &i);

		cr_assert_not_null(value);
		for (int byte = 0; byte < 12; byte++)
			cr_assert_eq(value[byte], 0);
	}
	cr_assert_eq(shunt_map_count(map), 10);
	end_map(map);
}

Test(map_array, values_lie_where_inlined_code_looks_for_them)
{
	struct shunt_map *map = make_map(SHUNT_MAP_ARRAY, 4, 12, 10);
	const struct shunt_map_abi *abi = shunt_map_abi(map);

	cr_assert_eq(abi->stride, 16);
	cr_assert_eq(abi->index_mask, 15);
	for (uint32_t i = 0; i < 10; i++)
		cr_assert_eq(shunt_map_lookup(map, &i), (void *)((char *)abi->values + i * 16));
	/* The memory reaches to the mask, past max_entries. */
	memset((char *)abi->values + 15 * 16, 0, 16);
	end_map(map);
	map = make_map(SHUNT_MAP_ARRAY, 4, 8, 1);
	cr_assert_eq(shunt_map_abi(map)->index_mask, 0);
	end_map(map);
	map = make_map(SHUNT_MAP_ARRAY, 4, 8, 8);
	cr_assert_eq(shunt_map_abi(map)->index_mask, 7);
	end_map(map);
	map = make_map(SHUNT_MAP_ARRAY, 4, 8, 9);
	cr_assert_eq(shunt_map_abi(map)->index_mask, 15);
	end_map(map);
}

Test(map_array, an_index_past_the_end_is_absent_and_cannot_be_written)
{
	uint32_t past[] = {10, 15, 16, UINT32_MAX};
	uint64_t value = 1;
	uint32_t types[] = {SHUNT_MAP_ARRAY, SHUNT_MAP_PERCPU_ARRAY};

	for (int t = 0; t < 2; t++) {
		struct shunt_map *map = make_map(types[t], 4, 8, 10);
		uint64_t *values = calloc(shunt_nr_cpus(), 8);

		for (int i = 0; i < 4; i++) {
			cr_assert_null(shunt_map_lookup(map, &past[i]));
			cr_assert_null(shunt_map_lookup_of(map, &past[i], 0));
			cr_assert_eq(shunt_map_update(map, &past[i], &value, SHUNT_ANY), -E2BIG);
			cr_assert_eq(shunt_map_host_update(map, &past[i], values, SHUNT_ANY), -E2BIG);
			cr_assert_eq(shunt_map_host_lookup(map, &past[i], values), -ENOENT);
		}
		free(values);
		end_map(map);
	}
}

Test(map_array, flags_and_deletion_are_the_kernels)
{
	struct shunt_map *map = make_map(SHUNT_MAP_ARRAY, 4, 8, 4);
	uint32_t key = 2, past = 4;
	uint64_t value = 5;

	cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_NOEXIST), -EEXIST);
	cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_EXIST), 0);
	cr_assert_eq(shunt_map_update(map, &key, &value, 3), -EINVAL);
	cr_assert_eq(shunt_map_update(map, &key, &value, 4), -EINVAL);
	cr_assert_eq(shunt_map_update(map, &key, &value, 4 | SHUNT_NOEXIST), -EEXIST);
	cr_assert_eq(shunt_map_update(map, &key, &value, 4 | SHUNT_EXIST), -EINVAL);
	cr_assert_eq(shunt_map_update(map, &key, &value, 7), -EINVAL);
	cr_assert_eq(shunt_map_update(map, &past, &value, 4), -E2BIG);
	cr_assert_eq(shunt_map_host_update(map, &key, &value, 1ull << 40), -EINVAL);
	cr_assert_eq(shunt_map_update(map, &past, &value, SHUNT_NOEXIST), -E2BIG);
	cr_assert_eq(shunt_map_delete(map, &key), -EINVAL);
	cr_assert_eq(shunt_map_host_delete(map, &key), -EINVAL);
	cr_assert_eq(*(uint64_t *)shunt_map_lookup(map, &key), 5);
	end_map(map);
}

Test(map_array, values_of_every_size_are_copied_whole_and_no_further)
{
	for (uint32_t size = 1; size <= 40; size++) {
		struct shunt_map *map = make_map(SHUNT_MAP_ARRAY, 4, size, 2);
		unsigned char in[48], out[48];
		uint32_t key = 0, next = 1;

		for (uint32_t i = 0; i < sizeof(in); i++)
			in[i] = (unsigned char)(i + 1);
		memset(out, 0xee, sizeof(out));
		/* From an address that no alignment helps. */
		cr_assert_eq(shunt_map_host_update(map, &key, in + 1, SHUNT_ANY), 0);
		cr_assert_eq(shunt_map_host_lookup(map, &key, out + 1), 0);
		cr_assert_eq(memcmp(out + 1, in + 1, size), 0);
		cr_assert_eq(out[size + 1], 0xee);
		cr_assert_eq(((unsigned char *)shunt_map_lookup(map, &next))[0], 0);
		end_map(map);
	}
}

Test(map_array, keys_are_listed_in_order)
{
	struct shunt_map *map = make_map(SHUNT_MAP_ARRAY, 4, 8, 3);
	uint32_t key, next, bad = 99;

	cr_assert_eq(shunt_map_next_key(map, NULL, &next), 0);
	cr_assert_eq(next, 0);
	for (key = 0; key < 2; key++) {
		cr_assert_eq(shunt_map_next_key(map, &key, &next), 0);
		cr_assert_eq(next, key + 1);
	}
	cr_assert_eq(shunt_map_next_key(map, &next, &next), -ENOENT);
	cr_assert_eq(shunt_map_next_key(map, &bad, &next), 0);
	cr_assert_eq(next, 0);
	end_map(map);
}

Test(map_array, the_host_sees_all_cpus_values_and_a_program_its_own)
{
	struct shunt_map *map = make_map(SHUNT_MAP_PERCPU_ARRAY, 4, 4, 3);
	uint32_t nr = shunt_nr_cpus(), key = 1, sum = 0;
	struct {
		uint32_t value, pad;
	} *values = calloc(nr, sizeof(*values));

	for (uint32_t cpu = 0; cpu < nr; cpu++)
		values[cpu].value = 100 + cpu;
	cr_assert_eq(shunt_map_host_value_size(map), nr * 8);
	cr_assert_eq(shunt_map_host_update(map, &key, values, SHUNT_ANY), 0);
	for (uint32_t cpu = 0; cpu < nr; cpu++)
		cr_assert_eq(*(uint32_t *)shunt_map_lookup_of(map, &key, cpu), 100 + cpu);
	cr_assert_null(shunt_map_lookup_of(map, &key, nr));
	shunt_percpu_add32(shunt_map_lookup_of(map, &key, 0), 1000);
	memset(values, 0xff, nr * sizeof(*values));
	cr_assert_eq(shunt_map_host_lookup(map, &key, values), 0);
	for (uint32_t cpu = 0; cpu < nr; cpu++) {
		sum += values[cpu].value;
		cr_assert_eq(values[cpu].pad, 0, "padding is not left from the caller's buffer");
	}
	cr_assert_eq(sum, nr * 100 + nr * (nr - 1) / 2 + 1000);
	free(values);
	end_map(map);
}

Test(map_array, a_program_updates_only_this_cpus_value)
{
	struct shunt_map *map = make_map(SHUNT_MAP_PERCPU_ARRAY, 4, 8, 3);
	uint64_t value = 42;
	uint32_t key = 2, nr_set = 0;

	cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_EXIST), 0);
	for (uint32_t cpu = 0; cpu < shunt_nr_cpus(); cpu++)
		nr_set += *(uint64_t *)shunt_map_lookup_of(map, &key, cpu) == 42;
	cr_assert_eq(nr_set, 1);
	cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_NOEXIST), -EEXIST);
	cr_assert_eq(shunt_map_update(map, &key, &value, 4 | SHUNT_NOEXIST), -EEXIST);
	end_map(map);
}
