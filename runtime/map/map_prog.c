/* SPDX-License-Identifier: MIT */
/*
 * PROG_ARRAY: entry addresses of programs, for tail calls. The address of a slot stays valid as long as the map; the slot may become 0 at
 * any time, so a tail call loads it once, with one 8-byte load, and tests what it loaded. Whoever frees a program takes it out of
 * the map first and lets a grace period pass.
 */
#include <errno.h>
#include <sys/mman.h>

#include "runtime/log.h"
#include "runtime/map/map.h"

struct prog_array {
	struct shunt_map map;
	uint64_t *entries; /* atomic; 0: none */
};

static int prog_check(const struct shunt_map_attr *attr, const char *name)
{
	/* 4 is what BPF objects carry, where a value is a file descriptor. */
	if (attr->value_size != 4 && attr->value_size != 8)
		return shunt_fail(EINVAL, "map '%s': value_size %u; the value of a program array has 4 bytes", name, attr->value_size);
	return shunt_map_array_ops.check(attr, name);
}

static size_t entries_len(const struct shunt_map *map)
{
	return (size_t)map->abi.max_entries * sizeof(uint64_t);
}

static int prog_init(struct shunt_map *map, const struct shunt_map_attr *attr)
{
	struct prog_array *array = (struct prog_array *)map;

	array->entries = mmap(NULL, entries_len(map), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (array->entries == MAP_FAILED)
		return shunt_fail(ENOMEM, "map '%s': no memory for %u entries: %s", map->name, map->abi.max_entries, strerror(errno));
	return 0;
}

static void prog_fini(struct shunt_map *map)
{
	munmap(((struct prog_array *)map)->entries, entries_len(map));
}

static uint64_t *entry_at(struct shunt_map *map, const void *key)
{
	uint32_t index = map_load_index(key);

	return index < map->abi.max_entries ? &((struct prog_array *)map)->entries[index] : NULL;
}

static void *prog_lookup(struct shunt_map *map, const void *key)
{
	uint64_t *entry = entry_at(map, key);

	return entry && __atomic_load_n(entry, __ATOMIC_ACQUIRE) ? entry : NULL;
}

static int prog_host_lookup(struct shunt_map *map, const void *key, void *value)
{
	uint64_t *entry = entry_at(map, key);
	uint64_t addr = entry ? __atomic_load_n(entry, __ATOMIC_ACQUIRE) : 0;

	if (!addr)
		return -ENOENT;
	memcpy(value, &addr, sizeof(addr));
	return 0;
}

static int prog_update(struct shunt_map *map, const void *key, const void *value, uint64_t flags)
{
	uint64_t *entry = entry_at(map, key), addr;

	if (flags != SHUNT_ANY)
		return -EINVAL;
	if (!entry)
		return -E2BIG;
	memcpy(&addr, value, sizeof(addr));
	if (!addr)
		return shunt_fail(EINVAL, "map '%s': a program's entry address is 0; delete the key instead", map->name);
	/* Release: what was written for the program's sake is there before it can be called. */
	__atomic_store_n(entry, addr, __ATOMIC_RELEASE);
	return 0;
}

static int prog_delete(struct shunt_map *map, const void *key)
{
	uint64_t *entry = entry_at(map, key);

	if (!entry)
		return -E2BIG;
	return __atomic_exchange_n(entry, 0, __ATOMIC_ACQ_REL) ? 0 : -ENOENT;
}

static uint32_t prog_count(const struct shunt_map *map)
{
	return map->abi.max_entries;
}

const struct shunt_map_ops shunt_map_prog_array_ops = {
	.size = sizeof(struct prog_array),
	.host_only = true,
	.host_value_size = sizeof(uint64_t),
	.check = prog_check,
	.init = prog_init,
	.fini = prog_fini,
	.lookup = prog_lookup,
	.update = prog_update,
	.delete = prog_delete,
	.host_lookup = prog_host_lookup,
	.next_key = shunt_map_index_next_key,
	.count = prog_count,
};
