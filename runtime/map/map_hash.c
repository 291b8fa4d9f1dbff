/* SPDX-License-Identifier: MIT */
/*
 * HASH and PERCPU_HASH, and what the other hashed types share. Expected load: lookups from every program call, far fewer updates; so a
 * lookup is a hash, one load of the bucket and one compare, without a lock or a call, and updates take turns.
 *
 * A map says how much it will hold, so the number of buckets is fixed: twice max_entries, rounded up to a power of two, within BUCKETS_MAX.
 * Twice, because what costs in a small table is a mispredicted step along a chain. Buckets are memory that was never touched until they are
 * used. Above BUCKETS_MAX chains grow.
 */
#include "runtime/map/map_hash.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "runtime/log.h"

#define BUCKETS_MAX (1u << 24)
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

/* What XXH3 mixes into keys of 4 to 16 bytes: words of its secret (of the format, so of every version since 0.8) and the seed. */
static void set_hash_key(struct shunt_map_abi *abi, uint64_t seed)
{
	const uint64_t at_8 = 0x1cad21f72c81017c, at_16 = 0xdb979083e96dd4de, at_24 = 0x1f67b3b7a4a44072, at_32 = 0x78e5c0cc4ee679cb,
		       at_40 = 0x2172ffcc7dd05a82, at_48 = 0x8e2443f7744608b8;

	if (abi->key_size <= 8) {
		abi->hash_key[0] = (at_8 ^ at_16) - (seed ^ ((uint64_t)__builtin_bswap32((uint32_t)seed) << 32));
	} else {
		abi->hash_key[0] = (at_24 ^ at_32) + seed;
		abi->hash_key[1] = (at_40 ^ at_48) - seed;
	}
}

int map_hash_init(struct map_hash *table, uint32_t body_size, bool lru)
{
	struct shunt_map *map = &table->map;
	uint32_t key_area = map->abi.key_size + (lru ? 1 : 0);
	uint32_t last = map->abi.max_entries - 1;
	uint64_t nr_buckets = last ? UINT64_C(2) << (32 - __builtin_clz(last)) : 1;
	int err;

	if (nr_buckets > BUCKETS_MAX)
		nr_buckets = BUCKETS_MAX;
	table->seed = random_seed();
	table->key_size = map->abi.key_size;
	table->body_size = map->ops->percpu ? sizeof(void *) : body_size ? body_size : map->abi.value_size;
	/* The byte goes into the slack behind the key where there is some: the line of the key, which a lookup reads anyway. */
	table->used_at = lru ? (uint32_t)offsetof(struct map_elem, key) + map->abi.key_size : 0;
	table->body_at = (uint32_t)offsetof(struct map_elem, key) + map_round8(key_area);
	table->elem_size = (table->body_at + map_round8(table->body_size) + 63) & ~63u;
	set_hash_key(&map->abi, table->seed);
	map->abi.bucket_mask = nr_buckets - 1;
	map->abi.buckets = calloc(nr_buckets, sizeof(struct map_elem *));
	if (!map->abi.buckets)
		return shunt_fail(ENOMEM, "map '%s': no memory for %llu buckets", map->name, (unsigned long long)nr_buckets);
	err = map_pool_init(table, !(map->flags & SHUNT_MAP_NO_PREALLOC));
	if (err)
		free(map->abi.buckets);
	return err;
}

/* Nobody else can reach the table. */
void map_hash_fini(struct shunt_map *map)
{
	struct map_hash *table = (struct map_hash *)map;

	for (uint64_t i = 0; table->drop && i <= map->abi.bucket_mask; i++) {
		for (struct map_elem *elem = map_hash_buckets(table)[i]; elem; elem = elem->next)
			table->drop(elem, map_elem_body(table, elem));
	}
	free(map->abi.buckets);
	map_pool_fini(table);
}

static inline uint64_t hash_of(const struct map_hash *table, const void *key, uint32_t size)
{
	return XXH3_64bits_withSeed(key, size, table->seed);
}

static inline struct map_elem **bucket_of(const struct map_hash *table, uint64_t hash)
{
	return &map_hash_buckets(table)[hash & table->map.abi.bucket_mask];
}

static inline struct map_elem *follow(struct map_elem **link)
{
	return __atomic_load_n(link, __ATOMIC_ACQUIRE);
}

/* Inlined with a constant size, hash and comparison are a few instructions. */
static inline __attribute__((always_inline)) struct map_elem *find_sized(const struct map_hash *table, const void *key, uint32_t size)
{
	struct map_elem *elem = follow(bucket_of(table, hash_of(table, key, size)));

	while (elem && memcmp(elem->key, key, size))
		elem = follow(&elem->next);
	return elem;
}

static struct map_elem *find_any(const struct map_hash *table, const void *key)
{
	uint64_t hash = hash_of(table, key, table->key_size);
	struct map_elem *elem = follow(bucket_of(table, hash));

	while (elem && (elem->hash != hash || memcmp(elem->key, key, table->key_size)))
		elem = follow(&elem->next);
	return elem;
}

static inline __attribute__((always_inline)) struct map_elem *find(const struct map_hash *table, const void *key)
{
	switch (table->key_size) {
	case 4:
		return find_sized(table, key, 4);
	case 8:
		return find_sized(table, key, 8);
	case 16:
		return find_sized(table, key, 16);
	default:
		return find_any(table, key);
	}
}

struct map_elem *map_hash_find(const struct map_hash *table, const void *key)
{
	return find(table, key);
}

uint64_t map_hash_of(const struct map_hash *table, const void *key)
{
	return hash_of(table, key, table->key_size);
}

struct map_elem **map_hash_locate(const struct map_hash *table, const void *key, uint64_t hash)
{
	struct map_elem **link = bucket_of(table, hash);

	while (*link && ((*link)->hash != hash || memcmp((*link)->key, key, table->key_size)))
		link = &(*link)->next;
	return link;
}

void map_hash_link(struct map_elem **link, struct map_elem *elem)
{
	elem->next = *link ? (*link)->next : NULL;
	__atomic_store_n(link, elem, __ATOMIC_RELEASE);
}

void map_hash_count_add(struct map_hash *table, int change)
{
	__atomic_store_n(&table->count, table->count + (uint32_t)change, __ATOMIC_RELAXED);
}

void map_hash_take_out(struct map_hash *table, struct map_elem **link)
{
	struct map_elem *elem = *link;

	if (table->used_at)
		map_lru_forget(table, elem);
	__atomic_store_n(link, elem->next, __ATOMIC_RELEASE);
	map_hash_count_add(table, -1);
}

int map_hash_refuses(const struct map_elem *old, uint64_t flags)
{
	if (old)
		return flags == SHUNT_NOEXIST ? -EEXIST : 0;
	return flags == SHUNT_EXIST ? -ENOENT : 0;
}

static inline struct map_elem *find_and_use(const struct map_hash *table, const void *key)
{
	struct map_elem *elem = find(table, key);

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

void map_hash_fill_new(struct map_hash *table, struct map_elem *elem, const void *key, uint64_t hash, const void *value,
		       enum map_fill fill)
{
	elem->hash = hash;
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
}

int map_hash_store(struct map_hash *table, const void *key, const void *value, uint64_t flags, enum map_fill fill)
{
	uint64_t hash = map_hash_of(table, key);
	struct map_elem *elem, *old = find(table, key), **link;
	int err = map_hash_refuses(old, flags);

	if (err)
		return err;
	if (old && fill != MAP_FILL_VALUE) {
		map_hash_fill_percpu(table, old, value, fill);
		return 0;
	}
	if (!old && map_hash_count(&table->map) >= table->map.abi.max_entries) {
		/* The last place may have gone to this key. */
		if (!find(table, key))
			return -E2BIG;
	}
	/* Made ready before the lock is taken, which may find another state of the key. */
	elem = map_pool_get(table);
	if (!elem)
		return -ENOMEM;
	map_hash_fill_new(table, elem, key, hash, value, fill);

	pthread_mutex_lock(&table->map.lock);
	link = map_hash_locate(table, key, hash);
	old = *link;
	err = map_hash_refuses(old, flags);
	if (!err && old && fill != MAP_FILL_VALUE) {
		/* Another thread was first: the place is taken, its copies are written as those of any present key. */
		map_hash_fill_percpu(table, old, value, fill);
	} else if (!err && !old && table->count >= table->map.abi.max_entries) {
		err = -E2BIG;
	} else if (!err) {
		map_hash_link(link, elem);
		elem = NULL;
		if (old)
			map_pool_retire(table, old);
		else
			map_hash_count_add(table, 1);
	}
	pthread_mutex_unlock(&table->map.lock);
	if (elem)
		map_pool_put(table, elem); /* no reader has seen it */
	return err;
}

int map_hash_delete(struct shunt_map *map, const void *key)
{
	struct map_hash *table = (struct map_hash *)map;
	uint64_t hash = map_hash_of(table, key);
	struct map_elem **link, *elem;

	pthread_mutex_lock(&map->lock);
	link = map_hash_locate(table, key, hash);
	elem = *link;
	if (elem) {
		map_hash_take_out(table, link);
		map_pool_retire(table, elem);
	}
	pthread_mutex_unlock(&map->lock);
	return elem ? 0 : -ENOENT;
}

/* Bucket by bucket, so that a key's place in the order does not depend on what comes and goes elsewhere. */
int map_hash_next_key(struct shunt_map *map, const void *key, void *next)
{
	struct map_hash *table = (struct map_hash *)map;
	struct map_elem *elem = key ? find(table, key) : NULL;
	uint64_t bucket = 0;

	if (elem) {
		bucket = (elem->hash & map->abi.bucket_mask) + 1;
		elem = follow(&elem->next);
	}
	while (!elem && bucket <= map->abi.bucket_mask)
		elem = follow(&map_hash_buckets(table)[bucket++]);
	if (!elem)
		return -ENOENT;
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
	struct map_elem *elem = find(table, key);

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
	.delete = map_hash_delete,
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
	.delete = map_hash_delete,
	.host_lookup = map_hash_host_lookup,
	.host_update = lru_percpu_host_update,
	.next_key = map_hash_next_key,
	.count = map_hash_count,
};
