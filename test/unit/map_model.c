/* SPDX-License-Identifier: MIT */
/* A million random operations on hashes, 100,000 on each, against an array that says what must be there. */
#include "map_test.h"

#include <stdlib.h>
#include <string.h>

enum { NR_KEYS = 300, MAX_ENTRIES = 200, NR_STEPS = 100000 };

struct model {
	uint64_t value[NR_KEYS];
	bool used[NR_KEYS];
	uint32_t nr;
};

/* Key number n as a key of the map's size: different numbers differ at both ends. */
static void make_key(unsigned char *key, uint32_t key_size, uint32_t number)
{
	memset(key, 0x5a, key_size);
	memcpy(key, &number, key_size < 4 ? key_size : 4);
	if (key_size > 8)
		memcpy(key + key_size - 4, &number, 4);
}

static int model_update(struct model *model, uint32_t number, uint64_t value, uint64_t flags)
{
	if (flags > SHUNT_EXIST)
		return -EINVAL;
	if (model->used[number] ? flags == SHUNT_NOEXIST : flags == SHUNT_EXIST)
		return model->used[number] ? -EEXIST : -ENOENT;
	if (!model->used[number]) {
		if (model->nr == MAX_ENTRIES)
			return -E2BIG;
		model->used[number] = true;
		model->nr++;
	}
	model->value[number] = value;
	return 0;
}

static int model_delete(struct model *model, uint32_t number)
{
	if (!model->used[number])
		return -ENOENT;
	model->used[number] = false;
	model->nr--;
	return 0;
}

static void check_listing(struct shunt_map *map, const struct model *model, uint32_t key_size)
{
	unsigned char key[64], expected[64];
	uint32_t nr = 0;

	for (int err = shunt_map_next_key(map, NULL, key); !err; err = shunt_map_next_key(map, key, key)) {
		uint32_t number = 0;

		memcpy(&number, key, key_size < 4 ? key_size : 4);
		cr_assert_lt(number, NR_KEYS);
		make_key(expected, key_size, number);
		cr_assert_eq(memcmp(key, expected, key_size), 0);
		cr_assert(model->used[number]);
		cr_assert_leq(++nr, model->nr);
	}
	cr_assert_eq(nr, model->nr);
}

/* Tables that make room for the new get no more keys than they hold: which one would go is theirs to say. */
static void run(uint32_t type, uint32_t key_size, unsigned int seed)
{
	uint32_t nr_keys = type == SHUNT_MAP_LRU_HASH || type == SHUNT_MAP_LRU_PERCPU_HASH ? MAX_ENTRIES : NR_KEYS;
	struct shunt_map *map = make_map(type, key_size, 8, MAX_ENTRIES);
	bool percpu = shunt_map_is_percpu(map);
	struct model model = {0};
	uint64_t *values = calloc(shunt_nr_cpus(), 8);

	for (int step = 0; step < NR_STEPS; step++) {
		uint32_t number = (uint32_t)rand_r(&seed) % nr_keys;
		uint64_t flags = (uint64_t)rand_r(&seed) % 4, value = (uint64_t)step * 0x9e3779b97f4a7c15;
		unsigned char key[64];
		uint64_t *found;

		make_key(key, key_size, number);
		switch (rand_r(&seed) % 5) {
		case 0:
			cr_assert_eq(shunt_map_delete(map, key), model_delete(&model, number));
			break;
		case 1:
		case 2:
			for (uint32_t cpu = 0; cpu < shunt_nr_cpus(); cpu++)
				values[cpu] = value + cpu;
			cr_assert_eq(shunt_map_host_update(map, key, values, flags), model_update(&model, number, value, flags));
			break;
		default:
			found = percpu ? shunt_map_lookup_of(map, key, shunt_nr_cpus() - 1) : shunt_map_lookup(map, key);
			cr_assert_eq(found != NULL, model.used[number]);
			if (found)
				cr_assert_eq(*found, model.value[number] + (percpu ? shunt_nr_cpus() - 1 : 0));
			break;
		}
		cr_assert_eq(shunt_map_count(map), model.nr);
		if (step % 5000 == 0)
			check_listing(map, &model, key_size);
	}
	free(values);
	end_map(map);
}

Test(map_model, hashes_of_every_specialised_key_size_agree_with_the_model)
{
	run(SHUNT_MAP_HASH, 4, 1);
	run(SHUNT_MAP_HASH, 8, 2);
	run(SHUNT_MAP_HASH, 16, 3);
	run(SHUNT_MAP_HASH, 3, 4);
	run(SHUNT_MAP_HASH, 20, 5);
	run(SHUNT_MAP_HASH, 61, 6);
}

Test(map_model, percpu_hashes_agree_with_the_model)
{
	run(SHUNT_MAP_PERCPU_HASH, 4, 7);
	run(SHUNT_MAP_PERCPU_HASH, 13, 8);
}

Test(map_model, tables_that_make_room_agree_with_the_model_while_there_is_some)
{
	run(SHUNT_MAP_LRU_HASH, 8, 9);
	run(SHUNT_MAP_LRU_PERCPU_HASH, 16, 10);
}
