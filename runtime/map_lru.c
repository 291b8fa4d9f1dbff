/* SPDX-License-Identifier: MIT */
/*
 * Tables that make room: LRU_HASH and LRU_PERCPU_HASH. Lookups set a byte in the element and take no lock; all changes of the table and of
 * its list run under map->lock, so that evicting one entry and adding another is one step.
 *
 * The order is approximate, as the kernel's: elements stand in the order of their insertion; one that was used since it last came to
 * the end goes back to the front instead of out.
 */
#include <errno.h>

#include "runtime/map_hash.h"

/* Second chances given in one eviction. Bounds the time under the lock when everything is in use. */
#define SCAN_MAX 128

static void list_remove(struct map_hash *table, struct map_elem *elem)
{
	if (elem->lru.newer)
		elem->lru.newer->lru.older = elem->lru.older;
	else
		table->newest = elem->lru.older;
	if (elem->lru.older)
		elem->lru.older->lru.newer = elem->lru.newer;
	else
		table->oldest = elem->lru.newer;
}

static void list_add_newest(struct map_hash *table, struct map_elem *elem)
{
	elem->lru.newer = NULL;
	elem->lru.older = table->newest;
	if (table->newest)
		table->newest->lru.newer = elem;
	else
		table->oldest = elem;
	table->newest = elem;
}

static void set_count(struct map_hash *table, int change)
{
	__atomic_add_fetch(&table->count, (uint32_t)change, __ATOMIC_RELAXED);
}

static void take_out(struct map_hash *table, struct map_elem *elem)
{
	cds_lfht_del(table->buckets, &elem->node);
	list_remove(table, elem);
	set_count(table, -1);
}

static struct map_elem *evict(struct map_hash *table)
{
	struct map_elem *elem = table->oldest;

	for (int i = 0; i < SCAN_MAX; i++) {
		if (!__atomic_load_n(map_elem_used(table, elem), __ATOMIC_RELAXED))
			break;
		__atomic_store_n(map_elem_used(table, elem), 0, __ATOMIC_RELAXED);
		list_remove(table, elem);
		list_add_newest(table, elem);
		elem = table->oldest;
	}
	take_out(table, elem);
	return elem;
}

static int flags_refuse(const struct map_elem *old, uint64_t flags)
{
	if (old)
		return flags == SHUNT_NOEXIST ? -EEXIST : 0;
	return flags == SHUNT_EXIST ? -ENOENT : 0;
}

int map_lru_store(struct map_hash *table, const void *key, const void *value, uint64_t flags, enum map_fill fill)
{
	struct map_elem *elem, *old, *gone = NULL;
	struct cds_lfht_iter iter;
	struct map_probe probe;
	int err;

	map_hash_probe(table, key, &probe);
	old = map_hash_find_at(table, &probe, &iter);
	err = flags_refuse(old, flags);
	if (err)
		return err;
	if (old && fill != MAP_FILL_VALUE) {
		map_hash_fill_percpu(table, old, value, fill);
		__atomic_store_n(map_elem_used(table, old), 1, __ATOMIC_RELAXED);
		return 0;
	}
	/* Made ready before the lock is taken, which may find another state of the key. */
	elem = map_pool_get(table);
	if (!elem)
		return -ENOMEM;
	map_hash_fill_new(table, elem, key, value, fill);

	pthread_mutex_lock(&table->map.lock);
	old = map_hash_find_at(table, &probe, &iter);
	err = flags_refuse(old, flags);
	if (!err && old && fill != MAP_FILL_VALUE) {
		map_hash_fill_percpu(table, old, value, fill);
	} else if (!err && old) {
		cds_lfht_replace(table->buckets, &iter, probe.hash, probe.match, probe.argument, &elem->node);
		list_remove(table, old);
		list_add_newest(table, elem);
		gone = old;
		elem = NULL;
	} else if (!err) {
		if (table->count >= table->map.abi.max_entries)
			gone = evict(table);
		cds_lfht_add_unique(table->buckets, probe.hash, probe.match, probe.argument, &elem->node);
		list_add_newest(table, elem);
		set_count(table, 1);
		elem = NULL;
	}
	pthread_mutex_unlock(&table->map.lock);
	if (elem)
		map_pool_put(table, elem);
	if (gone)
		map_pool_retire(table, gone);
	return err;
}

int map_lru_delete(struct shunt_map *map, const void *key)
{
	struct map_hash *table = (struct map_hash *)map;
	struct cds_lfht_iter iter;
	struct map_probe probe;
	struct map_elem *elem;

	map_hash_probe(table, key, &probe);
	pthread_mutex_lock(&map->lock);
	elem = map_hash_find_at(table, &probe, &iter);
	if (elem)
		take_out(table, elem);
	pthread_mutex_unlock(&map->lock);
	if (!elem)
		return -ENOENT;
	map_pool_retire(table, elem);
	return 0;
}
