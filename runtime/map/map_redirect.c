/* SPDX-License-Identifier: MIT */
/*
 * DEVMAP, DEVMAP_HASH, CPUMAP, XSKMAP: where a packet may be redirected to. Here they are tables of numbers: a redirect helper asks whether
 * the key is present, and the host says what device, CPU or socket a number means. Writing the number 0 into DEVMAP or CPUMAP takes
 * the entry away, as in the kernel (no interface, no queue).
 */
#include <errno.h>
#include <sys/mman.h>

#include "runtime/log.h"
#include "runtime/map/map_hash.h"

#define CPUMAP_QUEUE_MAX 16384u

struct redirect_table {
	struct shunt_map map;
	uint64_t *values;        /* atomic; the first value_size bytes are the value */
	unsigned char *present;  /* atomic; apart, since 0 is a value of an XSKMAP */
};

static int table_check(const struct shunt_map_attr *attr, const char *name)
{
	if (attr->value_size != 4 && (attr->value_size != 8 || attr->type == SHUNT_MAP_XSKMAP))
		return shunt_fail(EINVAL, "map '%s': value_size %u; values of redirect maps have 4 bytes, or 8 with a program", name,
				  attr->value_size);
	return shunt_map_array_ops.check(attr, name);
}

static int devmap_hash_check(const struct shunt_map_attr *attr, const char *name)
{
	int err = table_check(attr, name);

	return err ? err : map_hash_check(attr, name);
}

static size_t table_len(const struct shunt_map *map)
{
	return (size_t)map->abi.max_entries * (sizeof(uint64_t) + 1);
}

static int table_init(struct shunt_map *map, const struct shunt_map_attr *attr)
{
	struct redirect_table *table = (struct redirect_table *)map;

	table->values = mmap(NULL, table_len(map), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (table->values == MAP_FAILED)
		return shunt_fail(ENOMEM, "map '%s': no memory for %u entries: %s", map->name, map->abi.max_entries, strerror(errno));
	table->present = (unsigned char *)(table->values + map->abi.max_entries);
	return 0;
}

static void table_fini(struct shunt_map *map)
{
	munmap(((struct redirect_table *)map)->values, table_len(map));
}

static void *table_lookup(struct shunt_map *map, const void *key)
{
	struct redirect_table *table = (struct redirect_table *)map;
	uint32_t index = map_load_index(key);

	if (index >= map->abi.max_entries || !__atomic_load_n(&table->present[index], __ATOMIC_ACQUIRE))
		return NULL;
	return &table->values[index];
}

static int table_host_lookup(struct shunt_map *map, const void *key, void *value)
{
	uint64_t *found = table_lookup(map, key);

	if (!found)
		return -ENOENT;
	map_value_read(value, found, map->abi.value_size);
	return 0;
}

static void set_entry(struct redirect_table *table, uint32_t index, const void *value, bool present)
{
	uint64_t word = 0;

	if (!present) {
		__atomic_store_n(&table->present[index], 0, __ATOMIC_RELAXED);
		return;
	}
	memcpy(&word, value, table->map.abi.value_size);
	__atomic_store_n(&table->values[index], word, __ATOMIC_RELAXED);
	__atomic_store_n(&table->present[index], 1, __ATOMIC_RELEASE);
}

static int numbers_update(struct shunt_map *map, const void *key, const void *value, uint64_t flags)
{
	uint32_t index = map_load_index(key), number = map_load_index(value);

	if (index >= map->abi.max_entries)
		return -E2BIG;
	/* As an array's: the slot is always there. */
	if (flags == SHUNT_NOEXIST)
		return -EEXIST;
	if (map->abi.type == SHUNT_MAP_CPUMAP) {
		if (number > CPUMAP_QUEUE_MAX)
			return -EOVERFLOW;
		if (index >= shunt_nr_cpus())
			return -ENODEV;
	}
	set_entry((struct redirect_table *)map, index, value, number != 0);
	return 0;
}

static int xskmap_update(struct shunt_map *map, const void *key, const void *value, uint64_t flags)
{
	struct redirect_table *table = (struct redirect_table *)map;
	uint32_t index = map_load_index(key);
	int err;

	if (index >= map->abi.max_entries)
		return -E2BIG;
	/* The test and the setting are one step. */
	pthread_mutex_lock(&map->lock);
	err = table->present[index] ? (flags == SHUNT_NOEXIST ? -EEXIST : 0) : (flags == SHUNT_EXIST ? -ENOENT : 0);
	if (!err)
		set_entry(table, index, value, true);
	pthread_mutex_unlock(&map->lock);
	return err;
}

static int table_delete(struct shunt_map *map, const void *key)
{
	uint32_t index = map_load_index(key);

	if (index >= map->abi.max_entries)
		return -EINVAL;
	/* 0 for an empty slot too: the kernel's three do not tell. */
	set_entry((struct redirect_table *)map, index, NULL, false);
	return 0;
}

static uint32_t table_count(const struct shunt_map *map)
{
	return map->abi.max_entries;
}

static int devmap_hash_init(struct shunt_map *map, const struct shunt_map_attr *attr)
{
	return map_hash_init((struct map_hash *)map, 0, false);
}

static void *devmap_hash_lookup(struct shunt_map *map, const void *key)
{
	struct map_hash *table = (struct map_hash *)map;
	struct map_elem *elem = map_hash_find(table, key);

	return elem ? map_elem_body(table, elem) : NULL;
}

static int devmap_hash_update(struct shunt_map *map, const void *key, const void *value, uint64_t flags)
{
	if (!map_load_index(value))
		return -EINVAL;
	/* The kernel's does not look whether an entry that EXIST asks for is there. */
	return map_hash_store((struct map_hash *)map, key, value, flags == SHUNT_EXIST ? SHUNT_ANY : flags, MAP_FILL_VALUE);
}

#define TABLE_OPS                                                                                                                          \
	.size = sizeof(struct redirect_table), .host_only = true, .check = table_check, .init = table_init, .fini = table_fini,            \
	.lookup = table_lookup, .delete = table_delete, .host_lookup = table_host_lookup, .next_key = shunt_map_index_next_key,            \
	.count = table_count

const struct shunt_map_ops shunt_map_devmap_ops = {TABLE_OPS, .update = numbers_update};
const struct shunt_map_ops shunt_map_cpumap_ops = {TABLE_OPS, .update = numbers_update};
const struct shunt_map_ops shunt_map_xskmap_ops = {TABLE_OPS, .update = xskmap_update};

const struct shunt_map_ops shunt_map_devmap_hash_ops = {
	.size = sizeof(struct map_hash),
	.host_only = true,
	.check = devmap_hash_check,
	.init = devmap_hash_init,
	.fini = map_hash_fini,
	.lookup = devmap_hash_lookup,
	.update = devmap_hash_update,
	.delete = map_hash_delete,
	.host_lookup = map_hash_host_lookup,
	.next_key = map_hash_next_key,
	.count = map_hash_count,
};
