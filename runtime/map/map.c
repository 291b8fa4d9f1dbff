/* SPDX-License-Identifier: MIT */
/*
 * Maps: creation, references, dispatch by type, and the host's side. One owner of the list of maps and of their lifetime.
 */
#include "runtime/map/map.h"

#include <errno.h>
#include <stdlib.h>

#include "runtime/percpu/cpu.h"
#include "runtime/log.h"
#include "runtime/map/map_hash.h"
#include "runtime/pack/pack.h"

#define KNOWN_FLAGS (SHUNT_MAP_NO_PREALLOC | SHUNT_MAP_RDONLY_PROG)

static const struct map_type {
	const char *name;
	const struct shunt_map_ops *ops;
} types[] = {
	[SHUNT_MAP_HASH] = {"hash", &shunt_map_hash_ops},
	[SHUNT_MAP_ARRAY] = {"array", &shunt_map_array_ops},
	[SHUNT_MAP_PROG_ARRAY] = {"prog_array", &shunt_map_prog_array_ops},
	[SHUNT_MAP_PERF_EVENT_ARRAY] = {"perf_event_array", &shunt_map_perf_event_array_ops},
	[SHUNT_MAP_PERCPU_HASH] = {"percpu_hash", &shunt_map_percpu_hash_ops},
	[SHUNT_MAP_PERCPU_ARRAY] = {"percpu_array", &shunt_map_percpu_array_ops},
	[SHUNT_MAP_LRU_HASH] = {"lru_hash", &shunt_map_lru_hash_ops},
	[SHUNT_MAP_LRU_PERCPU_HASH] = {"lru_percpu_hash", &shunt_map_lru_percpu_hash_ops},
	[SHUNT_MAP_LPM_TRIE] = {"lpm_trie", &shunt_map_lpm_ops},
	[SHUNT_MAP_ARRAY_OF_MAPS] = {"array_of_maps", &shunt_map_array_of_maps_ops},
	[SHUNT_MAP_HASH_OF_MAPS] = {"hash_of_maps", &shunt_map_hash_of_maps_ops},
	[SHUNT_MAP_DEVMAP] = {"devmap", &shunt_map_devmap_ops},
	[SHUNT_MAP_CPUMAP] = {"cpumap", &shunt_map_cpumap_ops},
	[SHUNT_MAP_XSKMAP] = {"xskmap", &shunt_map_xskmap_ops},
	[SHUNT_MAP_DEVMAP_HASH] = {"devmap_hash", &shunt_map_devmap_hash_ops},
};

/* All live maps, so that fork can hold their locks. Order of locks: list_mutex, then one map's after the other's. */
static pthread_mutex_t list_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct shunt_map *all_maps;

static void fork_prepare(void)
{
	pthread_mutex_lock(&list_mutex);
	for (struct shunt_map *map = all_maps; map; map = map->next)
		pthread_mutex_lock(&map->lock);
}

static void fork_done(void)
{
	for (struct shunt_map *map = all_maps; map; map = map->next)
		pthread_mutex_unlock(&map->lock);
	pthread_mutex_unlock(&list_mutex);
}

static struct shunt_fork_hooks fork_hooks = {.prepare = fork_prepare, .parent = fork_done, .child = fork_done};

static void register_hooks(void)
{
	shunt_fork_register(&fork_hooks);
}

static void list_add(struct shunt_map *map)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, register_hooks);
	pthread_mutex_lock(&list_mutex);
	map->next = all_maps;
	if (all_maps)
		all_maps->prev = map;
	all_maps = map;
	pthread_mutex_unlock(&list_mutex);
}

static void list_remove(struct shunt_map *map)
{
	pthread_mutex_lock(&list_mutex);
	if (map->prev)
		map->prev->next = map->next;
	else
		all_maps = map->next;
	if (map->next)
		map->next->prev = map->prev;
	pthread_mutex_unlock(&list_mutex);
}

static int check_attr(const struct shunt_map_attr *attr, const char *name)
{
	if (attr->flags & ~KNOWN_FLAGS)
		return shunt_fail(EINVAL, "map '%s': flags %#x are not supported", name, attr->flags & ~KNOWN_FLAGS);
	if (!attr->max_entries)
		return shunt_fail(EINVAL, "map '%s': max_entries is 0", name);
	if (!attr->key_size)
		return shunt_fail(EINVAL, "map '%s': key_size is 0", name);
	if (!attr->value_size)
		return shunt_fail(EINVAL, "map '%s': value_size is 0", name);
	/* Bounds that keep all sums of sizes within 32 bits; the kernel's are lower or the same. */
	if (attr->key_size > 4096)
		return shunt_fail(E2BIG, "map '%s': key_size %u is above 4096", name, attr->key_size);
	if (attr->value_size > (1u << 30))
		return shunt_fail(E2BIG, "map '%s': value_size %u is above 1 GiB", name, attr->value_size);
	return 0;
}

int shunt_map_create(const struct shunt_map_attr *attr, struct shunt_map **out)
{
	const char *name = attr->name ? attr->name : "";
	const struct shunt_map_ops *ops;
	struct shunt_map *map;
	int err;

	if (attr->type >= sizeof(types) / sizeof(types[0]) || !types[attr->type].ops)
		return shunt_fail(ENOTSUP, "map '%s': type %u is not supported", name, attr->type);
	ops = types[attr->type].ops;
	err = check_attr(attr, name);
	if (err)
		return err;
	err = ops->check(attr, name);
	if (err)
		return err;
	/* Cache-line aligned: the abi part, which every lookup reads, and the family's constants share no line with others' data. */
	map = aligned_alloc(64, (ops->size + 63) & ~(size_t)63);
	if (!map)
		return shunt_fail(ENOMEM, "map '%s': no memory", name);
	memset(map, 0, ops->size);
	map->ops = ops;
	map->refs = 1;
	map->retired = 1;
	map->flags = attr->flags;
	map->abi.type = attr->type;
	map->abi.key_size = attr->key_size;
	map->abi.value_size = attr->value_size;
	map->abi.max_entries = attr->max_entries;
	map->abi.stride = map_round8(attr->value_size);
	pthread_mutex_init(&map->lock, NULL);
	map->name = strdup(name);
	if (!map->name) {
		err = shunt_fail(ENOMEM, "map '%s': no memory", name);
		goto out_free;
	}
	err = ops->init(map, attr);
	if (err)
		goto out_free;
	list_add(map);
	*out = map;
	return 0;

out_free:
	pthread_mutex_destroy(&map->lock);
	free(map->name);
	free(map);
	return err;
}

struct shunt_map *shunt_map_get(struct shunt_map *map)
{
	uint32_t refs = __atomic_load_n(&map->refs, __ATOMIC_RELAXED);

	/* A map found inside a read section may have lost its last reference meanwhile: that is final. */
	do {
		if (!refs)
			return NULL;
	} while (!__atomic_compare_exchange_n(&map->refs, &refs, refs + 1, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return map;
}

static void destroy(struct shunt_map *map)
{
	list_remove(map);
	map->ops->fini(map);
	pthread_mutex_destroy(&map->lock);
	free(map->name);
	free(map);
}

void shunt_map_piece_done(struct shunt_map *map)
{
	if (__atomic_sub_fetch(&map->retired, 1, __ATOMIC_ACQ_REL) == 0)
		destroy(map);
}

void shunt_map_piece_add(struct shunt_map *map)
{
	__atomic_add_fetch(&map->retired, 1, __ATOMIC_RELAXED);
}

void shunt_map_retire(struct shunt_map *map, struct shunt_grace_item *item, void (*release)(struct shunt_grace_item *item))
{
	shunt_map_piece_add(map);
	*item = (struct shunt_grace_item){.release = release};
	shunt_grace_defer(item);
}

static void release_map(struct shunt_grace_item *item)
{
	shunt_map_piece_done((struct shunt_map *)((char *)item - offsetof(struct shunt_map, grace)));
}

void shunt_map_put(struct shunt_map *map)
{
	if (!map || __atomic_sub_fetch(&map->refs, 1, __ATOMIC_ACQ_REL))
		return;
	/* The count that the map itself holds on `retired` goes with its own item. */
	map->grace = (struct shunt_grace_item){.release = release_map};
	shunt_grace_defer(&map->grace);
}

const struct shunt_map_abi *shunt_map_abi(const struct shunt_map *map)
{
	return &map->abi;
}

const char *shunt_map_name(const struct shunt_map *map)
{
	return map->name;
}

bool shunt_map_is_percpu(const struct shunt_map *map)
{
	return map->ops->percpu;
}

void *shunt_map_lookup(struct shunt_map *map, const void *key)
{
	void *object;

	/* The frequent types without an indirect call. */
	switch (map->abi.type) {
	case SHUNT_MAP_ARRAY:
	case SHUNT_MAP_PERCPU_ARRAY: {
		uint32_t index = map_load_index(key);

		if (index >= map->abi.max_entries)
			return NULL;
		object = (char *)map->abi.values + (uint64_t)(index & map->abi.index_mask) * map->abi.stride;
		return map->abi.type == SHUNT_MAP_ARRAY ? object : shunt_cpu_this(object);
	}
	case SHUNT_MAP_HASH:
	case SHUNT_MAP_LRU_HASH:
		return shunt_map_find_hash(map, key);
	case SHUNT_MAP_PERCPU_HASH:
	case SHUNT_MAP_LRU_PERCPU_HASH:
		object = shunt_map_find_percpu(map, key);
		return object ? shunt_cpu_this(object) : NULL;
	default:
		return map->ops->lookup(map, key);
	}
}

void *shunt_map_lookup_of(struct shunt_map *map, const void *key, uint32_t cpu)
{
	/* The number is looked at last, as inlined code does: a key that is there counts as used. */
	return map->ops->lookup_of ? map->ops->lookup_of(map, key, cpu) : NULL;
}

#define FLAG_LOCK 4u /* BPF_F_LOCK, for values with a lock, which no map here has */

/* What a program hears of flags that no update takes. For arrays the kernel looks at FLAG_LOCK last. */
static int flags_error(struct shunt_map *map, const void *key, uint64_t flags)
{
	bool is_array = map->abi.type == SHUNT_MAP_ARRAY || map->abi.type == SHUNT_MAP_PERCPU_ARRAY;

	if (!is_array || (flags & ~(uint64_t)FLAG_LOCK) > SHUNT_EXIST)
		return -EINVAL;
	if (map_load_index(key) >= map->abi.max_entries)
		return -E2BIG;
	return flags & SHUNT_NOEXIST ? -EEXIST : -EINVAL;
}

int shunt_map_update(struct shunt_map *map, const void *key, const void *value, uint64_t flags)
{
	int err;

	if (map->ops->host_only)
		return -EINVAL;
	if (flags > SHUNT_EXIST)
		return flags_error(map, key, flags);
	shunt_read_begin();
	err = map->ops->update(map, key, value, flags);
	shunt_read_end();
	return err;
}

int shunt_map_delete(struct shunt_map *map, const void *key)
{
	int err;

	if (map->ops->host_only)
		return -EINVAL;
	shunt_read_begin();
	err = map->ops->delete(map, key);
	shunt_read_end();
	return err;
}

size_t shunt_map_host_value_size(const struct shunt_map *map)
{
	if (map->ops->host_value_size)
		return map->ops->host_value_size;
	return map->ops->percpu ? (size_t)shunt_nr_cpus() * map->abi.stride : map->abi.value_size;
}

int shunt_map_host_lookup(struct shunt_map *map, const void *key, void *value)
{
	int err;

	shunt_read_begin();
	err = map->ops->host_lookup(map, key, value);
	shunt_read_end();
	return err;
}

int shunt_map_host_lookup_unregistered(struct shunt_map *map, const void *key, void *value)
{
	void *object;

	if (!map->ops->percpu)
		return -EINVAL;
	shunt_read_begin();
	object = map->ops->lookup_of(map, key, 0);
	if (object)
		map_value_read(value, shunt_percpu_unregistered(object), map->abi.value_size);
	shunt_read_end();
	return object ? 0 : -ENOENT;
}

int shunt_map_host_update(struct shunt_map *map, const void *key, const void *value, uint64_t flags)
{
	int err;

	if (flags > SHUNT_EXIST)
		return -EINVAL;
	shunt_read_begin();
	err = (map->ops->host_update ? map->ops->host_update : map->ops->update)(map, key, value, flags);
	shunt_read_end();
	return err;
}

int shunt_map_host_delete(struct shunt_map *map, const void *key)
{
	int err;

	shunt_read_begin();
	err = map->ops->delete(map, key);
	shunt_read_end();
	return err;
}

int shunt_map_next_key(struct shunt_map *map, const void *key, void *next)
{
	int err;

	shunt_read_begin();
	err = map->ops->next_key(map, key, next);
	shunt_read_end();
	return err;
}

uint32_t shunt_map_count(const struct shunt_map *map)
{
	return map->ops->count(map);
}

void shunt_map_percpu_read(const struct shunt_map *map, void *object, void *values)
{
	for (uint32_t cpu = 0; cpu < shunt_nr_cpus(); cpu++) {
		char *to = (char *)values + (size_t)cpu * map->abi.stride;

		map_value_read(to, shunt_percpu_of(object, cpu), map->abi.value_size);
		memset(to + map->abi.value_size, 0, map->abi.stride - map->abi.value_size);
	}
}

void shunt_map_percpu_write(const struct shunt_map *map, void *object, const void *values)
{
	for (uint32_t cpu = 0; cpu < shunt_nr_cpus(); cpu++)
		map_value_write(shunt_percpu_of(object, cpu), (const char *)values + (size_t)cpu * map->abi.stride, map->abi.value_size);
}

int shunt_map_index_next_key(struct shunt_map *map, const void *key, void *next)
{
	uint32_t index = key ? map_load_index(key) : UINT32_MAX;

	if (index == map->abi.max_entries - 1)
		return -ENOENT;
	index = index >= map->abi.max_entries ? 0 : index + 1;
	memcpy(next, &index, sizeof(index));
	return 0;
}
