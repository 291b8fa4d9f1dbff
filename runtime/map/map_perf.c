/* SPDX-License-Identifier: MIT */
/*
 * PERF_EVENT_ARRAY: where programs send samples to listeners. Here nobody listens: no entry can be set, and a program that sends is told
 * so, as the kernel tells it while no perf event is open. So objects that report on the side run, and lose only their reports.
 */
#include <errno.h>

#include "runtime/log.h"
#include "runtime/map/map.h"

static int perf_check(const struct shunt_map_attr *attr, const char *name)
{
	if (attr->value_size != 4)
		return shunt_fail(EINVAL, "map '%s': value_size %u; the value of a perf event array has 4 bytes", name, attr->value_size);
	return shunt_map_array_ops.check(attr, name);
}

static int perf_init(struct shunt_map *map, const struct shunt_map_attr *attr)
{
	return 0;
}

static void perf_fini(struct shunt_map *map)
{
}

static void *perf_lookup(struct shunt_map *map, const void *key)
{
	return NULL;
}

static int perf_host_lookup(struct shunt_map *map, const void *key, void *value)
{
	return -ENOENT;
}

static int perf_update(struct shunt_map *map, const void *key, const void *value, uint64_t flags)
{
	return map_load_index(key) < map->abi.max_entries ? -ENOTSUP : -E2BIG;
}

static int perf_delete(struct shunt_map *map, const void *key)
{
	return map_load_index(key) < map->abi.max_entries ? -ENOENT : -E2BIG;
}

static uint32_t perf_count(const struct shunt_map *map)
{
	return map->abi.max_entries;
}

const struct shunt_map_ops shunt_map_perf_event_array_ops = {
	.size = sizeof(struct shunt_map),
	.host_only = true,
	.check = perf_check,
	.init = perf_init,
	.fini = perf_fini,
	.lookup = perf_lookup,
	.update = perf_update,
	.delete = perf_delete,
	.host_lookup = perf_host_lookup,
	.next_key = shunt_map_index_next_key,
	.count = perf_count,
};
