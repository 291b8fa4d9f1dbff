/* SPDX-License-Identifier: MIT */
/*
 * Tables that make room: LRU_HASH and LRU_PERCPU_HASH. Lookups set a byte in the element and take no lock; all changes of the table and of
 * its list run under map->lock, so that evicting one entry and adding another is one step.
 *
 * The order is approximate, as the kernel's: elements stand in the order of their insertion; one that was used since it last came to
 * the end goes back to the front instead of out.
 */
#include <errno.h>

#include "runtime/map/map_hash.h"

/* Second chances given in one eviction. Bounds the time under the lock when everything is in use. */
#define SCAN_MAX 128

void map_lru_forget(struct map_hash *table, struct map_elem *elem)
{
	if (elem->newer)
		elem->newer->older = elem->older;
	else
		table->newest = elem->older;
	if (elem->older)
		elem->older->newer = elem->newer;
	else
		table->oldest = elem->newer;
}

static void list_add_newest(struct map_hash *table, struct map_elem *elem)
{
	elem->newer = NULL;
	elem->older = table->newest;
	if (table->newest)
		table->newest->newer = elem;
	else
		table->oldest = elem;
	table->newest = elem;
}

static struct map_elem *evict(struct map_hash *table)
{
	struct map_elem *elem = table->oldest;

	for (int i = 0; i < SCAN_MAX; i++) {
		if (!__atomic_load_n(map_elem_used(table, elem), __ATOMIC_RELAXED))
			break;
		__atomic_store_n(map_elem_used(table, elem), 0, __ATOMIC_RELAXED);
		map_lru_forget(table, elem);
		list_add_newest(table, elem);
		elem = table->oldest;
	}
	map_hash_take_out(table, map_hash_locate(table, elem->key, elem->hash));
	return elem;
}

int map_lru_store(struct map_hash *table, const void *key, const void *value, uint64_t flags, enum map_fill fill)
{
	uint64_t hash = map_hash_of(table, key);
	struct map_elem *elem, *old = map_hash_find(table, key), **link;
	int err = map_hash_refuses(old, flags);

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
	map_hash_fill_new(table, elem, key, hash, value, fill);

	pthread_mutex_lock(&table->map.lock);
	link = map_hash_locate(table, key, hash);
	old = *link;
	err = map_hash_refuses(old, flags);
	if (!err && old && fill != MAP_FILL_VALUE) {
		map_hash_fill_percpu(table, old, value, fill);
	} else if (!err && old) {
		map_hash_link(link, elem);
		map_lru_forget(table, old);
		list_add_newest(table, elem);
		map_pool_retire(table, old);
		elem = NULL;
	} else if (!err) {
		if (table->count >= table->map.abi.max_entries) {
			map_pool_retire(table, evict(table));
			/* What was evicted may have stood before the end of this very chain. */
			link = map_hash_locate(table, key, hash);
		}
		map_hash_link(link, elem);
		list_add_newest(table, elem);
		map_hash_count_add(table, 1);
		elem = NULL;
	}
	pthread_mutex_unlock(&table->map.lock);
	if (elem)
		map_pool_put(table, elem);
	return err;
}
