/* SPDX-License-Identifier: MIT */
/*
 * HASH and PERCPU_HASH, and what the other hashed types share. Expected load: lookups from every program call, far fewer updates.
 *
 * The table has a fixed number of buckets, max_entries rounded up to a power of two within BUCKETS_MAX: a map says how much it will hold,
 * and resizing would bring liburcu's worker thread into every process with a hash map. Above BUCKETS_MAX chains grow: four million
 * entries are four to a bucket.
 */
#include "runtime/map_hash.h"

#include <errno.h>
#include <sys/random.h>
#include <time.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "runtime/log.h"

#define BUCKETS_MAX (1u << 20)
#define KEY_MAX 512u
#define PERCPU_VALUE_MAX 32768u

int map_hash_check(const struct shunt_map_attr *attr, const char *name)
{
	bool percpu = attr->type == SHUNT_MAP_PERCPU_HASH || attr->type == SHUNT_MAP_LRU_PERCPU_HASH;
	bool lru = attr->type == SHUNT_MAP_LRU_HASH || attr->type == SHUNT_MAP_LRU_PERCPU_HASH;

	if (attr->key_size > KEY_MAX)
		return shunt_fail(E2BIG, "map '%s': key_size %u; hash keys have at most %u bytes", name, attr->key_size, KEY_MAX);
	if (percpu && attr->value_size > PERCPU_VALUE_MAX)
		return shunt_fail(E2BIG, "map '%s': value_size %u; per-CPU values have at most %u bytes", name, attr->value_size,
				  PERCPU_VALUE_MAX);
	if (lru && (attr->flags & SHUNT_MAP_NO_PREALLOC))
		return shunt_fail(EINVAL, "map '%s': LRU hashes are always preallocated, take away NO_PREALLOC", name);
	return 0;
}

static uint64_t random_seed(void)
{
	struct timespec now;
	uint64_t seed;

	if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) == sizeof(seed))
		return seed;
	/* Before the kernel's pool is ready, or where the call is filtered: still different from run to run. */
	clock_gettime(CLOCK_MONOTONIC, &now);
	return XXH3_64bits_withSeed(&now, sizeof(now), (uintptr_t)&seed);
}

int map_hash_init(struct map_hash *table, uint32_t body_size, bool lru)
{
	struct shunt_map *map = &table->map;
	uint32_t key_area = map->abi.key_size + (lru ? 1 : 0);
	uint32_t last = map->abi.max_entries - 1;
	unsigned long nr_buckets = last ? 1ul << (32 - __builtin_clz(last)) : 1;

	if (nr_buckets > BUCKETS_MAX)
		nr_buckets = BUCKETS_MAX;
	table->seed = random_seed();
	table->key_size = map->abi.key_size;
	table->body_size = map->ops->percpu ? sizeof(void *) : body_size ? body_size : map->abi.value_size;
	/* The byte goes into the slack behind the key where there is some: the line of the key, which a lookup reads anyway. */
	table->used_at = lru ? (uint32_t)offsetof(struct map_elem, key) + map->abi.key_size : 0;
	table->body_at = (uint32_t)offsetof(struct map_elem, key) + map_round8(key_area);
	table->elem_size = (table->body_at + map_round8(table->body_size) + 63) & ~63u;
	map_pool_init(table);
	/* As many buckets at first as at last: liburcu then keeps one flat array. */
	table->buckets = cds_lfht_new_flavor(nr_buckets, nr_buckets, nr_buckets, 0, shunt_grace_flavor(), NULL);
	if (!table->buckets)
		return shunt_fail(ENOMEM, "map '%s': no memory for %lu buckets", map->name, nr_buckets);
	return 0;
}

void map_hash_fini(struct shunt_map *map)
{
	struct map_hash *table = (struct map_hash *)map;
	struct cds_lfht_iter iter;
	struct cds_lfht_node *node;

	/* Without a read section: nobody else can reach the table. */
	cds_lfht_first(table->buckets, &iter);
	while ((node = cds_lfht_iter_get_node(&iter))) {
		struct map_elem *elem = map_elem_of(node);

		cds_lfht_next(table->buckets, &iter);
		cds_lfht_del(table->buckets, node);
		if (table->drop)
			table->drop(elem, map_elem_body(table, elem));
	}
	cds_lfht_destroy(table->buckets, NULL);
	map_pool_fini(table);
}

static int match4(struct cds_lfht_node *node, const void *key)
{
	return !memcmp(map_elem_of(node)->key, key, 4);
}

static int match8(struct cds_lfht_node *node, const void *key)
{
	return !memcmp(map_elem_of(node)->key, key, 8);
}

static int match16(struct cds_lfht_node *node, const void *key)
{
	return !memcmp(map_elem_of(node)->key, key, 16);
}

static int match_any(struct cds_lfht_node *node, const void *argument)
{
	const struct map_probe *probe = argument;

	return !memcmp(map_elem_of(node)->key, probe->any.key, probe->any.size);
}

static inline void make_probe(const struct map_hash *table, const void *key, struct map_probe *probe)
{
	probe->argument = key;
	switch (table->key_size) {
	case 4:
		probe->hash = XXH3_64bits_withSeed(key, 4, table->seed);
		probe->match = match4;
		break;
	case 8:
		probe->hash = XXH3_64bits_withSeed(key, 8, table->seed);
		probe->match = match8;
		break;
	case 16:
		probe->hash = XXH3_64bits_withSeed(key, 16, table->seed);
		probe->match = match16;
		break;
	default:
		probe->hash = XXH3_64bits_withSeed(key, table->key_size, table->seed);
		probe->match = match_any;
		probe->any.key = key;
		probe->any.size = table->key_size;
		probe->argument = probe;
		break;
	}
}

void map_hash_probe(const struct map_hash *table, const void *key, struct map_probe *probe)
{
	make_probe(table, key, probe);
}

struct map_elem *map_hash_find_at(const struct map_hash *table, const struct map_probe *probe, struct cds_lfht_iter *iter)
{
	struct map_elem *elem;

	cds_lfht_lookup(table->buckets, probe->hash, probe->match, probe->argument, iter);
	elem = map_elem_of(cds_lfht_iter_get_node(iter));
	if (elem)
		map_observed(elem);
	return elem;
}

struct map_elem *map_hash_find(const struct map_hash *table, const void *key)
{
	struct cds_lfht_iter iter;
	struct map_probe probe;

	make_probe(table, key, &probe);
	return map_hash_find_at(table, &probe, &iter);
}

static inline struct map_elem *find_and_use(const struct map_hash *table, const void *key)
{
	struct map_elem *elem = map_hash_find(table, key);

	/* Looked at before it is written: the line of a busy element stays shared between the CPUs. */
	if (elem && table->used_at && !__atomic_load_n(map_elem_used(table, elem), __ATOMIC_RELAXED))
		__atomic_store_n(map_elem_used(table, elem), 1, __ATOMIC_RELAXED);
	return elem;
}

void *shunt_map_find_hash(struct shunt_map *map, const void *key)
{
	struct map_hash *table = (struct map_hash *)map;
	struct map_elem *elem = find_and_use(table, key);

	return elem ? map_elem_body(table, elem) : NULL;
}

void *shunt_map_find_percpu(struct shunt_map *map, const void *key)
{
	struct map_hash *table = (struct map_hash *)map;
	struct map_elem *elem = find_and_use(table, key);

	return elem ? map_elem_percpu(table, elem) : NULL;
}

/* Zeroes one copy that an earlier element may have used, without touching pages that nobody wrote. */
static void clear_copy(void *copy, uint32_t size)
{
	for (uint32_t at = 0; at < size; at += 8) {
		uint64_t *word = (uint64_t *)((char *)copy + at);

		if (__atomic_load_n(word, __ATOMIC_RELAXED))
			__atomic_store_n(word, 0, __ATOMIC_RELAXED);
	}
}

void map_hash_fill_percpu(struct map_hash *table, struct map_elem *elem, const void *value, enum map_fill fill)
{
	void *object = map_elem_percpu(table, elem);

	if (fill == MAP_FILL_ALL_CPUS)
		shunt_map_percpu_write(&table->map, object, value);
	else
		map_value_write(shunt_percpu_this(object), value, table->map.abi.value_size);
}

void map_hash_fill_new(struct map_hash *table, struct map_elem *elem, const void *key, const void *value, enum map_fill fill)
{
	memcpy(elem->key, key, table->key_size);
	if (table->used_at)
		__atomic_store_n(map_elem_used(table, elem), 0, __ATOMIC_RELAXED);
	if (fill == MAP_FILL_VALUE) {
		map_value_write(map_elem_body(table, elem), value, table->body_size);
	} else {
		char *object = map_elem_percpu(table, elem);

		/* All units, those of unregistered threads too. */
		for (int64_t unit = -2; unit < (int64_t)shunt_nr_cpus(); unit++)
			clear_copy(object + unit * ((int64_t)1 << SHUNT_PERCPU_SHIFT), table->map.abi.stride);
		map_hash_fill_percpu(table, elem, value, fill);
	}
	map_published(elem);
}

/* count is raised before an entry goes in and lowered after it went out: there are never more than max_entries. */
static bool reserve_entry(struct map_hash *table)
{
	uint32_t count = __atomic_load_n(&table->count, __ATOMIC_RELAXED);

	do {
		if (count >= table->map.abi.max_entries)
			return false;
	} while (!__atomic_compare_exchange_n(&table->count, &count, count + 1, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return true;
}

static void unreserve_entry(struct map_hash *table)
{
	__atomic_sub_fetch(&table->count, 1, __ATOMIC_RELAXED);
}

int map_hash_store(struct map_hash *table, const void *key, const void *value, uint64_t flags, enum map_fill fill)
{
	struct map_elem *elem = NULL, *old;
	struct cds_lfht_iter iter;
	struct map_probe probe;
	bool reserved = false;
	int err;

	make_probe(table, key, &probe);
	/* Goes round again only when another thread changed this very key in between. */
	for (;;) {
		old = map_hash_find_at(table, &probe, &iter);
		err = old && flags == SHUNT_NOEXIST ? -EEXIST : !old && flags == SHUNT_EXIST ? -ENOENT : 0;
		if (err)
			break;
		if (old && fill != MAP_FILL_VALUE) {
			map_hash_fill_percpu(table, old, value, fill);
			break;
		}
		if (!old && !reserved && !reserve_entry(table)) {
			/* The last place may have gone to this key. */
			if (map_hash_find_at(table, &probe, &iter))
				continue;
			err = -E2BIG;
			break;
		}
		reserved = reserved || !old;
		if (!elem) {
			elem = map_pool_get(table);
			if (!elem) {
				err = -ENOMEM;
				break;
			}
			map_hash_fill_new(table, elem, key, value, fill);
		}
		if (old) {
			if (cds_lfht_replace(table->buckets, &iter, probe.hash, probe.match, probe.argument, &elem->node))
				continue;
			map_pool_retire(table, old);
			elem = NULL;
			break;
		}
		if (cds_lfht_add_unique(table->buckets, probe.hash, probe.match, probe.argument, &elem->node) == &elem->node) {
			elem = NULL;
			reserved = false;
			break;
		}
	}
	if (elem)
		map_pool_put(table, elem); /* no reader has seen it */
	if (reserved)
		unreserve_entry(table);
	return err;
}

int map_hash_delete(struct shunt_map *map, const void *key)
{
	struct map_hash *table = (struct map_hash *)map;
	struct cds_lfht_iter iter;
	struct map_probe probe;
	struct map_elem *elem;

	make_probe(table, key, &probe);
	/* A failed removal means that another thread removed the element, or replaced it: then the key is still there. */
	while ((elem = map_hash_find_at(table, &probe, &iter))) {
		if (cds_lfht_del(table->buckets, &elem->node))
			continue;
		unreserve_entry(table);
		map_pool_retire(table, elem);
		return 0;
	}
	return -ENOENT;
}

int map_hash_next_key(struct shunt_map *map, const void *key, void *next)
{
	struct map_hash *table = (struct map_hash *)map;
	struct cds_lfht_iter iter;
	struct map_probe probe;
	struct map_elem *elem = NULL;

	if (key) {
		make_probe(table, key, &probe);
		elem = map_hash_find_at(table, &probe, &iter);
	}
	if (elem)
		cds_lfht_next(table->buckets, &iter);
	else
		cds_lfht_first(table->buckets, &iter);
	elem = map_elem_of(cds_lfht_iter_get_node(&iter));
	if (!elem)
		return -ENOENT;
	map_observed(elem);
	memcpy(next, elem->key, table->key_size);
	return 0;
}

uint32_t map_hash_count(const struct shunt_map *map)
{
	return __atomic_load_n(&((const struct map_hash *)map)->count, __ATOMIC_RELAXED);
}

int map_hash_host_lookup(struct shunt_map *map, const void *key, void *value)
{
	struct map_hash *table = (struct map_hash *)map;
	struct map_elem *elem = map_hash_find(table, key);

	if (!elem)
		return -ENOENT;
	if (map->ops->percpu)
		shunt_map_percpu_read(map, map_elem_percpu(table, elem), value);
	else
		map_value_read(value, map_elem_body(table, elem), table->body_size);
	return 0;
}

static int hash_init(struct shunt_map *map, const struct shunt_map_attr *attr)
{
	return map_hash_init((struct map_hash *)map, 0, false);
}

static int hash_update(struct shunt_map *map, const void *key, const void *value, uint64_t flags)
{
	return map_hash_store((struct map_hash *)map, key, value, flags, MAP_FILL_VALUE);
}

static int percpu_update(struct shunt_map *map, const void *key, const void *value, uint64_t flags)
{
	return map_hash_store((struct map_hash *)map, key, value, flags, MAP_FILL_THIS_CPU);
}

static int percpu_host_update(struct shunt_map *map, const void *key, const void *values, uint64_t flags)
{
	return map_hash_store((struct map_hash *)map, key, values, flags, MAP_FILL_ALL_CPUS);
}

static void *percpu_lookup(struct shunt_map *map, const void *key)
{
	void *object = shunt_map_find_percpu(map, key);

	return object ? shunt_percpu_this(object) : NULL;
}

static void *percpu_lookup_of(struct shunt_map *map, const void *key, uint32_t cpu)
{
	void *object = shunt_map_find_percpu(map, key);

	return object ? shunt_percpu_of(object, cpu) : NULL;
}

static int lru_init(struct shunt_map *map, const struct shunt_map_attr *attr)
{
	return map_hash_init((struct map_hash *)map, 0, true);
}

static int lru_update(struct shunt_map *map, const void *key, const void *value, uint64_t flags)
{
	return map_lru_store((struct map_hash *)map, key, value, flags, MAP_FILL_VALUE);
}

static int lru_percpu_update(struct shunt_map *map, const void *key, const void *value, uint64_t flags)
{
	return map_lru_store((struct map_hash *)map, key, value, flags, MAP_FILL_THIS_CPU);
}

static int lru_percpu_host_update(struct shunt_map *map, const void *key, const void *values, uint64_t flags)
{
	return map_lru_store((struct map_hash *)map, key, values, flags, MAP_FILL_ALL_CPUS);
}

const struct shunt_map_ops shunt_map_hash_ops = {
	.size = sizeof(struct map_hash),
	.check = map_hash_check,
	.init = hash_init,
	.fini = map_hash_fini,
	.lookup = shunt_map_find_hash,
	.update = hash_update,
	.delete = map_hash_delete,
	.host_lookup = map_hash_host_lookup,
	.next_key = map_hash_next_key,
	.count = map_hash_count,
};

const struct shunt_map_ops shunt_map_percpu_hash_ops = {
	.size = sizeof(struct map_hash),
	.percpu = true,
	.check = map_hash_check,
	.init = hash_init,
	.fini = map_hash_fini,
	.lookup = percpu_lookup,
	.lookup_of = percpu_lookup_of,
	.update = percpu_update,
	.delete = map_hash_delete,
	.host_lookup = map_hash_host_lookup,
	.host_update = percpu_host_update,
	.next_key = map_hash_next_key,
	.count = map_hash_count,
};

const struct shunt_map_ops shunt_map_lru_hash_ops = {
	.size = sizeof(struct map_hash),
	.check = map_hash_check,
	.init = lru_init,
	.fini = map_hash_fini,
	.lookup = shunt_map_find_hash,
	.update = lru_update,
	.delete = map_lru_delete,
	.host_lookup = map_hash_host_lookup,
	.next_key = map_hash_next_key,
	.count = map_hash_count,
};

const struct shunt_map_ops shunt_map_lru_percpu_hash_ops = {
	.size = sizeof(struct map_hash),
	.percpu = true,
	.check = map_hash_check,
	.init = lru_init,
	.fini = map_hash_fini,
	.lookup = percpu_lookup,
	.lookup_of = percpu_lookup_of,
	.update = lru_percpu_update,
	.delete = map_lru_delete,
	.host_lookup = map_hash_host_lookup,
	.host_update = lru_percpu_host_update,
	.next_key = map_hash_next_key,
	.count = map_hash_count,
};
