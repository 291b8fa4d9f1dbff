/* SPDX-License-Identifier: MIT */
/*
 * ARRAY and PERCPU_ARRAY. Values always exist, zeroed; nothing is ever freed before the map, so readers need no grace period.
 * Memory is mapped, not touched: an array of a million entries costs what is used of it.
 */
#include <errno.h>
#include <sys/mman.h>

#include "runtime/log.h"
#include "runtime/map/map.h"

/* Largest value of a per-CPU map, as the kernel's smallest per-CPU unit. */
#define PERCPU_VALUE_MAX 32768u

static int array_check(const struct shunt_map_attr *attr, const char *name)
{
	if (attr->key_size != 4)
		return shunt_fail(EINVAL, "map '%s': key_size %u; array keys are indexes of 4 bytes", name, attr->key_size);
	if (attr->flags & SHUNT_MAP_NO_PREALLOC)
		return shunt_fail(EINVAL, "map '%s': arrays are always preallocated, take away NO_PREALLOC", name);
	return 0;
}

static int percpu_array_check(const struct shunt_map_attr *attr, const char *name)
{
	if (attr->value_size > PERCPU_VALUE_MAX)
		return shunt_fail(E2BIG, "map '%s': value_size %u; per-CPU values have at most %u bytes", name, attr->value_size,
				  PERCPU_VALUE_MAX);
	return array_check(attr, name);
}

static uint64_t array_bytes(struct shunt_map *map)
{
	return ((uint64_t)map->abi.index_mask + 1) * map->abi.stride;
}

static void set_index_mask(struct shunt_map *map)
{
	uint32_t last = map->abi.max_entries - 1;

	map->abi.index_mask = last ? UINT32_MAX >> __builtin_clz(last) : 0;
}

static int array_init(struct shunt_map *map, const struct shunt_map_attr *attr)
{
	set_index_mask(map);
	map->abi.values = mmap(NULL, array_bytes(map), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (map->abi.values == MAP_FAILED)
		return shunt_fail(ENOMEM, "map '%s': no %llu bytes for %u entries: %s", map->name, (unsigned long long)array_bytes(map),
				  map->abi.max_entries, strerror(errno));
	return 0;
}

static void array_fini(struct shunt_map *map)
{
	munmap(map->abi.values, array_bytes(map));
}

static int percpu_array_init(struct shunt_map *map, const struct shunt_map_attr *attr)
{
	set_index_mask(map);
	return shunt_percpu_alloc(array_bytes(map), 0, &map->abi.values);
}

static void percpu_array_fini(struct shunt_map *map)
{
	shunt_percpu_free(map->abi.values);
}

static void *value_at(struct shunt_map *map, const void *key)
{
	uint32_t index = map_load_index(key);

	return index < map->abi.max_entries ? (char *)map->abi.values + (uint64_t)index * map->abi.stride : NULL;
}

static void *percpu_array_lookup(struct shunt_map *map, const void *key)
{
	void *object = value_at(map, key);

	return object ? shunt_percpu_this(object) : NULL;
}

static void *percpu_array_lookup_of(struct shunt_map *map, const void *key, uint32_t cpu)
{
	void *object = value_at(map, key);

	return object ? shunt_percpu_of(object, cpu) : NULL;
}

/* Finds what an update may write: *object and 0, or the kernel's refusals. */
static int update_target(struct shunt_map *map, const void *key, uint64_t flags, void **object)
{
	*object = value_at(map, key);
	if (!*object)
		return -E2BIG;
	return flags == SHUNT_NOEXIST ? -EEXIST : 0;
}

static int array_update(struct shunt_map *map, const void *key, const void *value, uint64_t flags)
{
	void *object;
	int err = update_target(map, key, flags, &object);

	if (!err)
		map_value_write(object, value, map->abi.value_size);
	return err;
}

static int percpu_array_update(struct shunt_map *map, const void *key, const void *value, uint64_t flags)
{
	void *object;
	int err = update_target(map, key, flags, &object);

	if (!err)
		map_value_write(shunt_percpu_this(object), value, map->abi.value_size);
	return err;
}

static int percpu_array_host_update(struct shunt_map *map, const void *key, const void *values, uint64_t flags)
{
	void *object;
	int err = update_target(map, key, flags, &object);

	if (!err)
		shunt_map_percpu_write(map, object, values);
	return err;
}

static int array_delete(struct shunt_map *map, const void *key)
{
	return -EINVAL;
}

static int array_host_lookup(struct shunt_map *map, const void *key, void *value)
{
	void *object = value_at(map, key);

	if (!object)
		return -ENOENT;
	map_value_read(value, object, map->abi.value_size);
	return 0;
}

static int percpu_array_host_lookup(struct shunt_map *map, const void *key, void *values)
{
	void *object = value_at(map, key);

	if (!object)
		return -ENOENT;
	shunt_map_percpu_read(map, object, values);
	return 0;
}

static uint32_t array_count(const struct shunt_map *map)
{
	return map->abi.max_entries;
}

const struct shunt_map_ops shunt_map_array_ops = {
	.size = sizeof(struct shunt_map),
	.check = array_check,
	.init = array_init,
	.fini = array_fini,
	.lookup = value_at,
	.update = array_update,
	.delete = array_delete,
	.host_lookup = array_host_lookup,
	.next_key = shunt_map_index_next_key,
	.count = array_count,
};

const struct shunt_map_ops shunt_map_percpu_array_ops = {
	.size = sizeof(struct shunt_map),
	.percpu = true,
	.check = percpu_array_check,
	.init = percpu_array_init,
	.fini = percpu_array_fini,
	.lookup = percpu_array_lookup,
	.lookup_of = percpu_array_lookup_of,
	.update = percpu_array_update,
	.delete = array_delete,
	.host_lookup = percpu_array_host_lookup,
	.host_update = percpu_array_host_update,
	.next_key = shunt_map_index_next_key,
	.count = array_count,
};
