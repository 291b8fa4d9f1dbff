/* SPDX-License-Identifier: MIT */
/* What the tests of maps share. */
#ifndef TEST_UNIT_MAP_TEST_H
#define TEST_UNIT_MAP_TEST_H

#include "pack_check.h"

#include <errno.h>
#include <stdbool.h>
#include <shunt/log.h>
#include <shunt/map.h>
#include <shunt/percpu.h>
#include <shunt/reader.h>

static inline struct shunt_map *make_map(uint32_t type, uint32_t key_size, uint32_t value_size, uint32_t max_entries)
{
	struct shunt_map_attr attr = {
		.type = type,
		.key_size = key_size,
		.value_size = value_size,
		.max_entries = max_entries,
		.flags = type == SHUNT_MAP_LPM_TRIE ? SHUNT_MAP_NO_PREALLOC : 0,
		.name = "tested",
	};
	struct shunt_map *map = NULL;
	int err = shunt_map_create(&attr, &map);

	cr_assert_eq(err, 0, "shunt_map_create: %d %s", err, shunt_error());
	return map;
}

static inline int try_map(uint32_t type, uint32_t key_size, uint32_t value_size, uint32_t max_entries, uint32_t flags)
{
	struct shunt_map_attr attr = {
		.type = type, .key_size = key_size, .value_size = value_size, .max_entries = max_entries, .flags = flags, .name = "tried"};
	struct shunt_map *map = NULL;
	int err = shunt_map_create(&attr, &map);

	if (err)
		cr_assert_null(map, "a failed creation must not hand out a map");
	shunt_map_put(map);
	return err;
}

/* Ends a test: the map is gone when this returns, so that a leak checker sees what is left. */
static inline void end_map(struct shunt_map *map)
{
	shunt_map_put(map);
	cr_assert_eq(shunt_quiesce(), 0);
}

#endif
