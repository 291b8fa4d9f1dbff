/* SPDX-License-Identifier: MIT */
/* LPM_TRIE: longest prefix match, against a list that is searched from end to end. */
#include "map_test.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct key4 {
	uint32_t len;
	unsigned char data[4];
};

static struct key4 ip(uint32_t len, unsigned char a, unsigned char b, unsigned char c, unsigned char d)
{
	return (struct key4){len, {a, b, c, d}};
}

static int put(struct shunt_map *map, struct key4 key, uint64_t value)
{
	return shunt_map_update(map, &key, &value, SHUNT_ANY);
}

static uint64_t look(struct shunt_map *map, struct key4 key)
{
	uint64_t *found = shunt_map_lookup(map, &key);

	return found ? *found : 0;
}

Test(map_lpm, the_longest_prefix_wins)
{
	struct shunt_map *map = make_map(SHUNT_MAP_LPM_TRIE, 8, 8, 16);

	cr_assert_eq(put(map, ip(16, 192, 168, 0, 0), 16), 0);
	cr_assert_eq(put(map, ip(24, 192, 168, 0, 0), 24), 0);
	cr_assert_eq(put(map, ip(24, 192, 168, 128, 0), 128), 0);
	cr_assert_eq(put(map, ip(8, 10, 0, 0, 0), 10), 0);
	cr_assert_eq(look(map, ip(32, 192, 168, 0, 1)), 24);
	cr_assert_eq(look(map, ip(32, 192, 168, 128, 1)), 128);
	cr_assert_eq(look(map, ip(32, 192, 168, 7, 1)), 16);
	cr_assert_eq(look(map, ip(32, 10, 1, 2, 3)), 10);
	cr_assert_eq(look(map, ip(32, 11, 1, 2, 3)), 0);
	/* The key's own length bounds the match. */
	cr_assert_eq(look(map, ip(20, 192, 168, 0, 0)), 16);
	cr_assert_eq(look(map, ip(4, 10, 0, 0, 0)), 0);
	cr_assert_eq(look(map, ip(33, 10, 0, 0, 0)), 0);
	cr_assert_eq(put(map, ip(0, 1, 2, 3, 4), 1), 0);
	cr_assert_eq(look(map, ip(32, 11, 1, 2, 3)), 1);
	cr_assert_eq(look(map, ip(0, 0, 0, 0, 0)), 1);
	cr_assert_eq(shunt_map_count(map), 5);
	end_map(map);
}

Test(map_lpm, flags_and_limits_are_the_kernels)
{
	struct shunt_map *map = make_map(SHUNT_MAP_LPM_TRIE, 8, 8, 2);
	struct key4 key = ip(8, 10, 0, 0, 0), longer = ip(16, 10, 1, 0, 0), third = ip(8, 11, 0, 0, 0), bad = ip(33, 1, 1, 1, 1);
	uint64_t value = 1;

	cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_EXIST), -ENOENT);
	cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_NOEXIST), 0);
	cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_NOEXIST), -EEXIST);
	cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_EXIST), 0);
	cr_assert_eq(shunt_map_update(map, &key, &value, 3), -EINVAL);
	cr_assert_eq(shunt_map_update(map, &bad, &value, SHUNT_ANY), -EINVAL);
	cr_assert_eq(shunt_map_delete(map, &bad), -EINVAL);
	cr_assert_eq(shunt_map_delete(map, &longer), -ENOENT);
	cr_assert_eq(shunt_map_update(map, &longer, &value, SHUNT_ANY), 0);
	cr_assert_eq(shunt_map_update(map, &third, &value, SHUNT_ANY), -ENOSPC);
	value = 2;
	cr_assert_eq(shunt_map_update(map, &key, &value, SHUNT_ANY), 0, "a full trie takes new values");
	cr_assert_eq(shunt_map_delete(map, &key), 0);
	cr_assert_eq(shunt_map_delete(map, &key), -ENOENT);
	cr_assert_eq(shunt_map_update(map, &third, &value, SHUNT_ANY), 0);
	end_map(map);
}

Test(map_lpm, a_fork_is_no_entry)
{
	struct shunt_map *map = make_map(SHUNT_MAP_LPM_TRIE, 8, 8, 8);
	struct key4 fork = ip(7, 10, 0, 0, 0);

	cr_assert_eq(put(map, ip(8, 10, 0, 0, 0), 1), 0);
	cr_assert_eq(put(map, ip(8, 11, 0, 0, 0), 2), 0);
	cr_assert_eq(look(map, ip(7, 10, 0, 0, 0)), 0);
	cr_assert_eq(shunt_map_delete(map, &fork), -ENOENT);
	cr_assert_eq(shunt_map_count(map), 2);
	/* It becomes one, and a fork again. */
	cr_assert_eq(put(map, fork, 3), 0);
	cr_assert_eq(look(map, ip(7, 10, 0, 0, 0)), 3);
	cr_assert_eq(shunt_map_delete(map, &fork), 0);
	cr_assert_eq(look(map, ip(7, 10, 0, 0, 0)), 0);
	cr_assert_eq(look(map, ip(32, 10, 0, 0, 0)), 1);
	cr_assert_eq(look(map, ip(32, 11, 0, 0, 0)), 2);
	end_map(map);
}

Test(map_lpm, a_found_value_stays_until_the_section_ends)
{
	struct shunt_map *map = make_map(SHUNT_MAP_LPM_TRIE, 8, 8, 8);
	struct key4 key = ip(8, 10, 0, 0, 0);
	uint64_t *old;

	cr_assert_eq(put(map, key, 5), 0);
	shunt_read_begin();
	old = shunt_map_lookup(map, &key);
	cr_assert_eq(put(map, key, 6), 0);
	cr_assert_eq(shunt_map_delete(map, &key), 0);
	for (int i = 0; i < 100; i++)
		cr_assert_eq(put(map, key, 7), 0);
	usleep(20000);
	cr_assert_eq(*old, 5);
	shunt_read_end();
	end_map(map);
}

enum { NR_MODEL = 64 };

struct model {
	struct {
		unsigned char key[20];
		uint32_t value;
		bool used;
	} entries[NR_MODEL];
	uint32_t data_size;
};

static bool covers(const unsigned char *prefix, const unsigned char *key)
{
	uint32_t prefix_len, len;

	memcpy(&prefix_len, prefix, 4);
	memcpy(&len, key, 4);
	if (prefix_len > len)
		return false;
	for (uint32_t bit = 0; bit < prefix_len; bit++) {
		if ((prefix[4 + bit / 8] ^ key[4 + bit / 8]) & (0x80 >> bit % 8))
			return false;
	}
	return true;
}

static int model_find(const struct model *model, const unsigned char *key)
{
	for (int i = 0; i < NR_MODEL; i++) {
		if (model->entries[i].used && !memcmp(model->entries[i].key, key, 4) && covers(model->entries[i].key, key))
			return i;
	}
	return -1;
}

static int model_match(const struct model *model, const unsigned char *key)
{
	uint32_t best_len = 0;
	int best = -1;

	for (int i = 0; i < NR_MODEL; i++) {
		uint32_t len;

		memcpy(&len, model->entries[i].key, 4);
		if (model->entries[i].used && covers(model->entries[i].key, key) && (best < 0 || len > best_len)) {
			best = i;
			best_len = len;
		}
	}
	return best;
}

/* Few distinct bits, so that prefixes nest and share forks. */
static void random_key(unsigned int *seed, uint32_t data_size, unsigned char *key)
{
	uint32_t len = (uint32_t)rand_r(seed) % (data_size * 8 + 1);

	memcpy(key, &len, 4);
	for (uint32_t i = 0; i < data_size; i++)
		key[4 + i] = (unsigned char)(rand_r(seed) % 4 ? (rand_r(seed) % 2 ? 0 : 0xc0) : rand_r(seed));
}

static void check_listing(struct shunt_map *map, const struct model *model, uint32_t nr)
{
	unsigned char key[20], next[20];
	uint32_t listed = 0;

	for (int err = shunt_map_next_key(map, NULL, next); !err; err = shunt_map_next_key(map, key, next)) {
		memcpy(key, next, sizeof(key));
		cr_assert_geq(model_find(model, key), 0, "a key was invented");
		cr_assert_leq(++listed, nr, "keys are listed twice");
	}
	cr_assert_eq(listed, nr);
}

static void run_model(uint32_t data_size, unsigned int seed, int steps)
{
	struct shunt_map *map = make_map(SHUNT_MAP_LPM_TRIE, 4 + data_size, 4, NR_MODEL);
	struct model model = {.data_size = data_size};
	uint32_t nr = 0;

	for (int step = 0; step < steps; step++) {
		unsigned char key[20];
		uint32_t *found, value = (uint32_t)step;
		int at, err;

		random_key(&seed, data_size, key);
		at = model_find(&model, key);
		switch (rand_r(&seed) % 4) {
		case 0:
			err = shunt_map_delete(map, key);
			cr_assert_eq(err, at < 0 ? -ENOENT : 0);
			if (at >= 0) {
				model.entries[at].used = false;
				nr--;
			}
			break;
		case 1:
			err = shunt_map_update(map, key, &value, SHUNT_ANY);
			cr_assert_eq(err, at < 0 && nr == NR_MODEL ? -ENOSPC : 0);
			if (err)
				break;
			if (at < 0) {
				for (at = 0; model.entries[at].used; at++)
					;
				nr++;
			}
			model.entries[at].used = true;
			memcpy(model.entries[at].key, key, 4 + data_size);
			model.entries[at].value = value;
			break;
		default:
			found = shunt_map_lookup(map, key);
			at = model_match(&model, key);
			cr_assert_eq(found != NULL, at >= 0);
			if (found)
				cr_assert_eq(*found, model.entries[at].value);
			break;
		}
		cr_assert_eq(shunt_map_count(map), nr);
		if (step % 500 == 0)
			check_listing(map, &model, nr);
	}
	end_map(map);
}

Test(map_lpm, random_prefixes_agree_with_a_plain_list)
{
	run_model(1, 1, 50000);
	run_model(4, 2, 50000);
	run_model(7, 3, 20000);
	run_model(16, 4, 50000);
}
