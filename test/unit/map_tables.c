/* SPDX-License-Identifier: MIT */
/* Maps whose values are programs, maps, or where to redirect to. */
#include "map_test.h"

#include <string.h>

Test(map_prog_array, entries_are_addresses_that_come_and_go)
{
	struct shunt_map *map = make_map(SHUNT_MAP_PROG_ARRAY, 4, 4, 4);
	uint32_t key = 2, past = 4;
	uint64_t addr = 0x7f0012345678, out = 0, zero = 0;

	cr_assert_eq(shunt_map_host_value_size(map), 8);
	cr_assert_null(shunt_map_lookup(map, &key));
	cr_assert_eq(shunt_map_host_lookup(map, &key, &out), -ENOENT);
	cr_assert_eq(shunt_map_host_update(map, &key, &addr, SHUNT_ANY), 0);
	cr_assert_eq(*(uint64_t *)shunt_map_lookup(map, &key), addr);
	cr_assert_eq(shunt_map_host_lookup(map, &key, &out), 0);
	cr_assert_eq(out, addr);
	cr_assert_eq(shunt_map_host_update(map, &key, &addr, SHUNT_EXIST), -EINVAL);
	cr_assert_eq(shunt_map_host_update(map, &key, &zero, SHUNT_ANY), -EINVAL);
	cr_assert_eq(shunt_map_host_update(map, &past, &addr, SHUNT_ANY), -E2BIG);
	cr_assert_null(shunt_map_lookup(map, &past));
	cr_assert_eq(shunt_map_host_delete(map, &past), -E2BIG);
	cr_assert_eq(shunt_map_host_delete(map, &key), 0);
	cr_assert_eq(shunt_map_host_delete(map, &key), -ENOENT);
	cr_assert_null(shunt_map_lookup(map, &key));
	/* Programs may not change who is called. */
	cr_assert_eq(shunt_map_update(map, &key, &addr, SHUNT_ANY), -EINVAL);
	cr_assert_eq(shunt_map_delete(map, &key), -EINVAL);
	end_map(map);
}

static struct shunt_map *make_outer(uint32_t type, const struct shunt_map_attr *inner)
{
	struct shunt_map_attr attr = {.type = type, .key_size = 4, .value_size = 4, .max_entries = 4, .name = "outer", .inner = inner};
	struct shunt_map *map;

	cr_assert_eq(shunt_map_create(&attr, &map), 0, "%s", shunt_error());
	return map;
}

static const uint32_t outer_types[] = {SHUNT_MAP_ARRAY_OF_MAPS, SHUNT_MAP_HASH_OF_MAPS};

Test(map_of_maps, a_lookup_gives_the_inner_map)
{
	for (int t = 0; t < 2; t++) {
		struct shunt_map *outer = make_outer(outer_types[t], NULL), *inner = make_map(SHUNT_MAP_ARRAY, 4, 8, 2), *out = NULL;
		uint32_t key = 1, past = 9;

		cr_assert_null(shunt_map_lookup(outer, &key));
		cr_assert_eq(shunt_map_host_value_size(outer), 8);
		cr_assert_eq(shunt_map_host_update(outer, &key, &inner, SHUNT_ANY), 0, "%s", shunt_error());
		cr_assert_eq(shunt_map_lookup(outer, &key), (void *)inner);
		cr_assert_eq(shunt_map_host_lookup(outer, &key, &out), 0);
		cr_assert_eq(out, inner);
		cr_assert_null(shunt_map_lookup(outer, &past));
		cr_assert_eq(shunt_map_update(outer, &key, &inner, SHUNT_ANY), -EINVAL, "programs may not");
		cr_assert_eq(shunt_map_delete(outer, &key), -EINVAL);
		cr_assert_eq(shunt_map_host_delete(outer, &key), 0);
		cr_assert_eq(shunt_map_host_delete(outer, &key), -ENOENT);
		cr_assert_null(shunt_map_lookup(outer, &key));
		shunt_map_put(inner);
		end_map(outer);
	}
}

Test(map_of_maps, the_outer_map_holds_a_reference)
{
	for (int t = 0; t < 2; t++) {
		struct shunt_map *outer = make_outer(outer_types[t], NULL), *inner = make_map(SHUNT_MAP_HASH, 4, 8, 2), *found;
		uint32_t key = 1;
		uint64_t value = 77;

		cr_assert_eq(shunt_map_host_update(outer, &key, &inner, SHUNT_ANY), 0);
		cr_assert_eq(shunt_map_update(inner, &key, &value, SHUNT_ANY), 0);
		shunt_map_put(inner);
		cr_assert_eq(shunt_quiesce(), 0);
		shunt_read_begin();
		found = shunt_map_lookup(outer, &key);
		cr_assert_eq(*(uint64_t *)shunt_map_lookup(found, &key), 77);
		/* Its last reference goes inside the section. */
		cr_assert_eq(shunt_map_host_delete(outer, &key), 0);
		cr_assert_eq(*(uint64_t *)shunt_map_lookup(found, &key), 77);
		shunt_read_end();
		end_map(outer);
	}
}

Test(map_of_maps, replacing_an_inner_map_drops_the_old_one)
{
	for (int t = 0; t < 2; t++) {
		struct shunt_map *outer = make_outer(outer_types[t], NULL);

		for (uint32_t i = 0; i < 100; i++) {
			struct shunt_map *inner = make_map(SHUNT_MAP_ARRAY, 4, 8, 2);
			uint32_t key = i % 2;

			cr_assert_eq(shunt_map_host_update(outer, &key, &inner, SHUNT_ANY), 0);
			shunt_map_put(inner);
		}
		/* A leak checker sees whether 98 of them and then the last two are gone. */
		end_map(outer);
		cr_assert_eq(shunt_quiesce(), 0);
	}
}

Test(map_of_maps, an_inner_map_of_another_shape_is_refused)
{
	struct shunt_map_attr shape = {.type = SHUNT_MAP_ARRAY, .key_size = 4, .value_size = 8, .max_entries = 2};
	struct shunt_map_attr hash_shape = {.type = SHUNT_MAP_HASH, .key_size = 4, .value_size = 8, .max_entries = 2};
	uint32_t key = 1;

	for (int t = 0; t < 2; t++) {
		struct shunt_map *outer = make_outer(outer_types[t], &shape), *outer_hash = make_outer(outer_types[t], &hash_shape);
		struct shunt_map *fits = make_map(SHUNT_MAP_ARRAY, 4, 8, 2), *none = NULL;
		struct shunt_map *wrong[] = {make_map(SHUNT_MAP_HASH, 4, 8, 2), make_map(SHUNT_MAP_ARRAY, 4, 4, 2),
					     make_map(SHUNT_MAP_ARRAY, 4, 8, 3), make_map(SHUNT_MAP_PROG_ARRAY, 4, 8, 2)};
		struct shunt_map *larger_hash = make_map(SHUNT_MAP_HASH, 4, 8, 200);

		cr_assert_eq(shunt_map_host_update(outer, &key, &fits, SHUNT_ANY), 0, "%s", shunt_error());
		cr_assert_eq(shunt_map_host_update(outer, &key, &none, SHUNT_ANY), -EINVAL);
		for (int i = 0; i < 4; i++) {
			cr_assert_eq(shunt_map_host_update(outer, &key, &wrong[i], SHUNT_ANY), -EINVAL, "wrong %d", i);
			shunt_map_put(wrong[i]);
		}
		cr_assert_eq(shunt_map_lookup(outer, &key), (void *)fits);
		cr_assert_eq(shunt_map_host_update(outer_hash, &key, &larger_hash, SHUNT_ANY), 0, "a hash's size is no part of its shape");
		shunt_map_put(fits);
		shunt_map_put(larger_hash);
		shunt_map_put(outer_hash);
		end_map(outer);
	}
}

Test(map_of_maps, maps_of_maps_do_not_nest)
{
	struct shunt_map_attr nested = {.type = SHUNT_MAP_HASH_OF_MAPS, .key_size = 4, .value_size = 4, .max_entries = 2};
	struct shunt_map_attr attr = {.type = SHUNT_MAP_ARRAY_OF_MAPS, .key_size = 4, .value_size = 4, .max_entries = 4, .inner = &nested};
	struct shunt_map *map, *outer = make_outer(SHUNT_MAP_ARRAY_OF_MAPS, NULL), *inner = make_outer(SHUNT_MAP_HASH_OF_MAPS, NULL);
	uint32_t key = 0;

	cr_assert_eq(shunt_map_create(&attr, &map), -EINVAL);
	cr_assert_eq(shunt_map_host_update(outer, &key, &inner, SHUNT_ANY), -EINVAL);
	shunt_map_put(inner);
	end_map(outer);
}

Test(map_of_maps, flags_are_those_of_the_outer_type)
{
	struct shunt_map *array = make_outer(SHUNT_MAP_ARRAY_OF_MAPS, NULL), *hash = make_outer(SHUNT_MAP_HASH_OF_MAPS, NULL);
	struct shunt_map *inner = make_map(SHUNT_MAP_ARRAY, 4, 8, 2);
	uint32_t key = 0, past = 4;

	cr_assert_eq(shunt_map_host_update(array, &key, &inner, SHUNT_NOEXIST), -EINVAL);
	cr_assert_eq(shunt_map_host_update(array, &past, &inner, SHUNT_ANY), -E2BIG);
	cr_assert_eq(shunt_map_host_update(hash, &key, &inner, SHUNT_EXIST), -ENOENT);
	cr_assert_eq(shunt_map_host_update(hash, &key, &inner, SHUNT_NOEXIST), 0);
	cr_assert_eq(shunt_map_host_update(hash, &key, &inner, SHUNT_NOEXIST), -EEXIST);
	for (key = 1; key < 4; key++)
		cr_assert_eq(shunt_map_host_update(hash, &key, &inner, SHUNT_ANY), 0);
	cr_assert_eq(shunt_map_host_update(hash, &key, &inner, SHUNT_ANY), -E2BIG);
	cr_assert_eq(shunt_map_count(hash), 4);
	shunt_map_put(inner);
	shunt_map_put(array);
	end_map(hash);
}

Test(map_perf_event_array, it_takes_no_listener_and_has_none)
{
	struct shunt_map *map = make_map(SHUNT_MAP_PERF_EVENT_ARRAY, 4, 4, 4);
	uint32_t key = 0, value = 7, past = 4;

	cr_assert_eq(shunt_map_host_update(map, &key, &value, SHUNT_ANY), -ENOTSUP);
	cr_assert_eq(shunt_map_host_update(map, &past, &value, SHUNT_ANY), -E2BIG);
	cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_ANY), -EINVAL, "programs may not");
	cr_assert_null(shunt_map_lookup(map, &key));
	cr_assert_eq(shunt_map_host_lookup(map, &key, &value), -ENOENT);
	cr_assert_eq(shunt_map_host_delete(map, &key), -ENOENT);
	cr_assert_eq(shunt_map_host_delete(map, &past), -E2BIG);
	cr_assert_eq(shunt_map_count(map), 4);
	end_map(map);
}

Test(map_redirect, presence_follows_what_was_written)
{
	uint32_t types[] = {SHUNT_MAP_DEVMAP, SHUNT_MAP_CPUMAP, SHUNT_MAP_XSKMAP, SHUNT_MAP_DEVMAP_HASH};

	for (int t = 0; t < 4; t++) {
		struct shunt_map *map = make_map(types[t], 4, 4, 4);
		uint32_t key = 0, value = 7, out = 0, past = 4;

		cr_assert_null(shunt_map_lookup(map, &key));
		cr_assert_eq(shunt_map_host_lookup(map, &key, &out), -ENOENT);
		cr_assert_eq(shunt_map_host_update(map, &key, &value, SHUNT_ANY), 0);
		cr_assert_eq(*(uint32_t *)shunt_map_lookup(map, &key), 7);
		cr_assert_eq(shunt_map_host_lookup(map, &key, &out), 0);
		cr_assert_eq(out, 7);
		cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_ANY), -EINVAL, "programs may not");
		cr_assert_eq(shunt_map_host_delete(map, &key), 0);
		cr_assert_null(shunt_map_lookup(map, &key));
		cr_assert_eq(shunt_map_host_delete(map, &key), types[t] == SHUNT_MAP_DEVMAP_HASH ? -ENOENT : 0);
		if (types[t] != SHUNT_MAP_DEVMAP_HASH) {
			cr_assert_null(shunt_map_lookup(map, &past));
			cr_assert_eq(shunt_map_host_update(map, &past, &value, SHUNT_ANY), -E2BIG);
			cr_assert_eq(shunt_map_host_delete(map, &past), -EINVAL);
		}
		end_map(map);
	}
}

Test(map_redirect, flags_and_zeroes_are_each_types_own)
{
	struct shunt_map *dev = make_map(SHUNT_MAP_DEVMAP, 4, 8, 4), *cpu = make_map(SHUNT_MAP_CPUMAP, 4, 4, 100000);
	struct shunt_map *xsk = make_map(SHUNT_MAP_XSKMAP, 4, 4, 4), *hash = make_map(SHUNT_MAP_DEVMAP_HASH, 4, 4, 1);
	uint32_t key = 0, zero32 = 0, one = 1, queue = 16385, no_cpu = shunt_nr_cpus();
	uint64_t device = 3 | (9ull << 32), zero = 0, out;

	cr_assert_eq(shunt_map_host_update(dev, &key, &device, SHUNT_NOEXIST), -EEXIST);
	cr_assert_eq(shunt_map_host_update(dev, &key, &device, SHUNT_EXIST), 0);
	cr_assert_eq(shunt_map_host_lookup(dev, &key, &out), 0);
	cr_assert_eq(out, device);
	cr_assert_eq(shunt_map_host_update(dev, &key, &zero, SHUNT_ANY), 0);
	cr_assert_null(shunt_map_lookup(dev, &key), "no interface takes the entry away");

	cr_assert_eq(shunt_map_host_update(cpu, &key, &queue, SHUNT_ANY), -EOVERFLOW);
	cr_assert_eq(shunt_map_host_update(cpu, &no_cpu, &one, SHUNT_ANY), -ENODEV);

	cr_assert_eq(shunt_map_host_update(xsk, &key, &one, SHUNT_EXIST), -ENOENT);
	cr_assert_eq(shunt_map_host_update(xsk, &key, &zero32, SHUNT_NOEXIST), 0);
	cr_assert_not_null(shunt_map_lookup(xsk, &key), "0 is a value of an XSKMAP");
	cr_assert_eq(shunt_map_host_update(xsk, &key, &one, SHUNT_NOEXIST), -EEXIST);

	cr_assert_eq(shunt_map_host_update(hash, &key, &zero32, SHUNT_ANY), -EINVAL);
	cr_assert_eq(shunt_map_host_update(hash, &key, &one, SHUNT_EXIST), 0, "the kernel's does not ask whether it exists");
	cr_assert_eq(shunt_map_host_update(hash, &key, &one, SHUNT_NOEXIST), -EEXIST);
	cr_assert_eq(shunt_map_host_update(hash, &one, &one, SHUNT_ANY), -E2BIG);
	shunt_map_put(dev);
	shunt_map_put(cpu);
	shunt_map_put(xsk);
	end_map(hash);
}
