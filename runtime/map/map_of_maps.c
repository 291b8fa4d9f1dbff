/* SPDX-License-Identifier: MIT */
/*
 * ARRAY_OF_MAPS and HASH_OF_MAPS: values are maps, each with a reference of the outer map's. A lookup gives the inner map itself, valid
 * like any value until the read section ends: dropping the last reference defers the inner map's end past that section.
 */
#include <errno.h>
#include <sys/mman.h>

#include "runtime/log.h"
#include "runtime/map/map_hash.h"

/* The shape asked of inner maps. type 0: any. */
struct inner_shape {
	struct shunt_map_attr attr;
};

struct array_of_maps {
	struct shunt_map map;
	struct inner_shape inner;
	struct shunt_map **slots; /* atomic */
};

struct hash_of_maps {
	struct map_hash table;
	struct inner_shape inner;
};

static bool cannot_be_inner(uint32_t type)
{
	return type == SHUNT_MAP_ARRAY_OF_MAPS || type == SHUNT_MAP_HASH_OF_MAPS || type == SHUNT_MAP_PROG_ARRAY;
}

static int outer_check(const struct shunt_map_attr *attr, const char *name)
{
	/* 4 is what BPF objects carry, where a value is a file descriptor. */
	if (attr->value_size != 4 && attr->value_size != 8)
		return shunt_fail(EINVAL, "map '%s': value_size %u; the value of a map of maps has 4 bytes", name, attr->value_size);
	if (attr->inner && cannot_be_inner(attr->inner->type))
		return shunt_fail(EINVAL, "map '%s': inner type %u; maps of maps and program arrays cannot be inner maps", name,
				  attr->inner->type);
	return 0;
}

static int array_check(const struct shunt_map_attr *attr, const char *name)
{
	int err = outer_check(attr, name);

	return err ? err : shunt_map_array_ops.check(attr, name);
}

static int hash_check(const struct shunt_map_attr *attr, const char *name)
{
	int err = outer_check(attr, name);

	return err ? err : map_hash_check(attr, name);
}

static void keep_shape(struct inner_shape *inner, const struct shunt_map_attr *attr)
{
	if (!attr->inner)
		return;
	inner->attr = *attr->inner;
	/* Neither is part of the shape, and both belong to the caller. */
	inner->attr.name = NULL;
	inner->attr.inner = NULL;
}

/* Takes a reference on the map that value holds, when it fits. */
static int take_inner(struct shunt_map *outer, const struct inner_shape *inner, const void *value, struct shunt_map **out)
{
	const struct shunt_map_attr *want = &inner->attr;
	struct shunt_map *map;
	bool same_entries;

	memcpy(&map, value, sizeof(map));
	if (!map)
		return shunt_fail(EINVAL, "map '%s': the inner map is NULL", outer->name);
	if (cannot_be_inner(map->abi.type))
		return shunt_fail(EINVAL, "map '%s': '%s' cannot be an inner map, its type is %u", outer->name, map->name, map->abi.type);
	if (want->type) {
		/* Code compiled for the shape has an array's bound folded in; a hash is asked. */
		same_entries = (want->type != SHUNT_MAP_ARRAY && want->type != SHUNT_MAP_PERCPU_ARRAY) ||
			       want->max_entries == map->abi.max_entries;
		if (want->type != map->abi.type || want->key_size != map->abi.key_size || want->value_size != map->abi.value_size ||
		    want->flags != map->flags || !same_entries)
			return shunt_fail(EINVAL,
					  "map '%s': '%s' (type %u, key %u, value %u, entries %u, flags %#x) is not of the inner shape (type "
					  "%u, key %u, value %u, entries %u, flags %#x)",
					  outer->name, map->name, map->abi.type, map->abi.key_size, map->abi.value_size,
					  map->abi.max_entries, map->flags, want->type, want->key_size, want->value_size,
					  want->max_entries, want->flags);
	}
	*out = shunt_map_get(map);
	return *out ? 0 : shunt_fail(EINVAL, "map '%s': the inner map has no reference left", outer->name);
}

/* ---- array ---- */

static size_t slots_len(const struct shunt_map *map)
{
	return (size_t)map->abi.max_entries * sizeof(struct shunt_map *);
}

static int array_init(struct shunt_map *map, const struct shunt_map_attr *attr)
{
	struct array_of_maps *outer = (struct array_of_maps *)map;

	keep_shape(&outer->inner, attr);
	outer->slots = mmap(NULL, slots_len(map), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (outer->slots == MAP_FAILED)
		return shunt_fail(ENOMEM, "map '%s': no memory for %u entries: %s", map->name, map->abi.max_entries, strerror(errno));
	return 0;
}

static void array_fini(struct shunt_map *map)
{
	struct array_of_maps *outer = (struct array_of_maps *)map;

	for (uint32_t i = 0; i < map->abi.max_entries; i++)
		shunt_map_put(outer->slots[i]);
	munmap(outer->slots, slots_len(map));
}

static void *array_lookup(struct shunt_map *map, const void *key)
{
	uint32_t index = map_load_index(key);

	if (index >= map->abi.max_entries)
		return NULL;
	return __atomic_load_n(&((struct array_of_maps *)map)->slots[index], __ATOMIC_ACQUIRE);
}

static int array_host_lookup(struct shunt_map *map, const void *key, void *value)
{
	struct shunt_map *inner = array_lookup(map, key);

	if (!inner)
		return -ENOENT;
	memcpy(value, &inner, sizeof(inner));
	return 0;
}

static int array_update(struct shunt_map *map, const void *key, const void *value, uint64_t flags)
{
	struct array_of_maps *outer = (struct array_of_maps *)map;
	uint32_t index = map_load_index(key);
	struct shunt_map *inner;
	int err;

	if (flags != SHUNT_ANY)
		return -EINVAL;
	if (index >= map->abi.max_entries)
		return -E2BIG;
	err = take_inner(map, &outer->inner, value, &inner);
	if (!err)
		shunt_map_put(__atomic_exchange_n(&outer->slots[index], inner, __ATOMIC_ACQ_REL));
	return err;
}

static int array_delete(struct shunt_map *map, const void *key)
{
	struct array_of_maps *outer = (struct array_of_maps *)map;
	uint32_t index = map_load_index(key);
	struct shunt_map *old;

	if (index >= map->abi.max_entries)
		return -E2BIG;
	old = __atomic_exchange_n(&outer->slots[index], NULL, __ATOMIC_ACQ_REL);
	shunt_map_put(old);
	return old ? 0 : -ENOENT;
}

static uint32_t array_count(const struct shunt_map *map)
{
	return map->abi.max_entries;
}

/* ---- hash ---- */

static void drop_inner(struct map_elem *elem, void *body)
{
	shunt_map_put(*(struct shunt_map **)body);
}

static int hash_init(struct shunt_map *map, const struct shunt_map_attr *attr)
{
	struct hash_of_maps *outer = (struct hash_of_maps *)map;

	keep_shape(&outer->inner, attr);
	outer->table.drop = drop_inner;
	return map_hash_init(&outer->table, sizeof(struct shunt_map *), false);
}

static void *hash_lookup(struct shunt_map *map, const void *key)
{
	struct map_hash *table = (struct map_hash *)map;
	struct map_elem *elem = map_hash_find(table, key);

	return elem ? *(void **)map_elem_body(table, elem) : NULL;
}

static int hash_update(struct shunt_map *map, const void *key, const void *value, uint64_t flags)
{
	struct hash_of_maps *outer = (struct hash_of_maps *)map;
	struct shunt_map *inner;
	int err = take_inner(map, &outer->inner, value, &inner);

	if (err)
		return err;
	/* The reference goes into the element; the element that this one replaces drops its own. */
	err = map_hash_store(&outer->table, key, &inner, flags, MAP_FILL_VALUE);
	if (err)
		shunt_map_put(inner);
	return err;
}

const struct shunt_map_ops shunt_map_array_of_maps_ops = {
	.size = sizeof(struct array_of_maps),
	.host_only = true,
	.host_value_size = sizeof(struct shunt_map *),
	.check = array_check,
	.init = array_init,
	.fini = array_fini,
	.lookup = array_lookup,
	.update = array_update,
	.delete = array_delete,
	.host_lookup = array_host_lookup,
	.next_key = shunt_map_index_next_key,
	.count = array_count,
};

const struct shunt_map_ops shunt_map_hash_of_maps_ops = {
	.size = sizeof(struct hash_of_maps),
	.host_only = true,
	.host_value_size = sizeof(struct shunt_map *),
	.check = hash_check,
	.init = hash_init,
	.fini = map_hash_fini,
	.lookup = hash_lookup,
	.update = hash_update,
	.delete = map_hash_delete,
	.host_lookup = map_hash_host_lookup,
	.next_key = map_hash_next_key,
	.count = map_hash_count,
};
