/* SPDX-License-Identifier: MIT */
/*
 * The hash table behind HASH, LRU_HASH, their per-CPU types, HASH_OF_MAPS and DEVMAP_HASH: liburcu's lock-free table and a pool of
 * elements (map_pool.c).
 *
 * An element is found by readers without a lock; it goes back to the pool a grace period after its removal, so what a reader found
 * stays what it was until the reader's section ends. Replacing is one atomic step: a reader sees the old or the new value, no mix.
 */
#ifndef RUNTIME_MAP_HASH_H
#define RUNTIME_MAP_HASH_H

#include <urcu/urcu-bp.h>
#include <urcu/rculfhash.h>

#include "runtime/map.h"

/* Cold words first, so that the grace item is at a fixed place. What lookups read begins with node: one cache line with small keys and
 * values (map_pool.c places it). */
struct map_elem {
	union {
		struct shunt_grace_item grace; /* once removed */
		struct {
			struct map_elem *newer, *older;
		} lru; /* while in the table; under map->lock */
	};
	struct cds_lfht_node node;
	unsigned char key[]; /* then, at body_at, the value, or the per-CPU pointer */
};

/* Elements come in chunks of one alignment, whose first line says whose they are. */
#define MAP_CHUNK_ALIGN 65536u

struct map_chunk {
	struct map_hash *table;
	struct map_chunk *next;       /* all chunks of the table */
	struct map_chunk *next_fresh; /* those with elements never handed out */
	void *percpu;                 /* per-CPU values of its elements, in order; NULL for other tables */
	uint32_t nr_used;
};

struct map_pool {
	struct map_chunk *chunks, *fresh;
	struct cds_lfht_node *free; /* elements linked by node.next */
	uint32_t nr_per_chunk;
};

struct map_hash {
	struct shunt_map map;
	/* Constant after init. */
	struct cds_lfht *buckets;
	uint64_t seed;
	uint32_t key_size;
	uint32_t body_at;   /* offset in the element */
	uint32_t body_size; /* bytes of an in-place value; 8 for a per-CPU pointer */
	uint32_t used_at;   /* offset of the "used" byte of LRU tables; 0: none */
	uint32_t elem_size;
	/* What an element holds beyond memory; called when its last reader has left. */
	void (*drop)(struct map_elem *elem, void *body);

	/* Written by updates. */
	uint32_t count __attribute__((aligned(64))); /* atomic: entries, and reservations of updates under way */
	struct map_pool pool;                        /* map.lock */
	struct map_elem *newest, *oldest;            /* map.lock; LRU tables */
};

enum map_fill {
	MAP_FILL_VALUE,    /* one value in place */
	MAP_FILL_THIS_CPU, /* this CPU's copy; the others are zeroed in a new element, kept in an old one */
	MAP_FILL_ALL_CPUS, /* the host's layout */
};

/* One key on its way through the table. */
struct map_probe {
	unsigned long hash;
	cds_lfht_match_fct match;
	const void *argument;
	struct {
		const void *key;
		uint32_t size;
	} any;
};

int map_hash_check(const struct shunt_map_attr *attr, const char *name);
/* body_size 0: the map's value_size, or per-CPU pointers by its ops. */
int map_hash_init(struct map_hash *table, uint32_t body_size, bool lru);
void map_hash_fini(struct shunt_map *map);

void map_hash_probe(const struct map_hash *table, const void *key, struct map_probe *probe);
struct map_elem *map_hash_find_at(const struct map_hash *table, const struct map_probe *probe, struct cds_lfht_iter *iter);
/* Without marking the element used. */
struct map_elem *map_hash_find(const struct map_hash *table, const void *key);

int map_hash_store(struct map_hash *table, const void *key, const void *value, uint64_t flags, enum map_fill fill);
int map_hash_delete(struct shunt_map *map, const void *key);
int map_hash_next_key(struct shunt_map *map, const void *key, void *next);
uint32_t map_hash_count(const struct shunt_map *map);
int map_hash_host_lookup(struct shunt_map *map, const void *key, void *value);

/* map_lru.c: the same for tables that evict. */
int map_lru_store(struct map_hash *table, const void *key, const void *value, uint64_t flags, enum map_fill fill);
int map_lru_delete(struct shunt_map *map, const void *key);

/* Writes key and value into an element that no reader knows, and makes it ready to be added. */
void map_hash_fill_new(struct map_hash *table, struct map_elem *elem, const void *key, const void *value, enum map_fill fill);
void map_hash_fill_percpu(struct map_hash *table, struct map_elem *elem, const void *value, enum map_fill fill);

/* map_pool.c. get: an element of undefined contents (its per-CPU pointer set), or NULL; takes map.lock. put: no reader can know it. */
void map_pool_init(struct map_hash *table);
void map_pool_fini(struct map_hash *table);
struct map_elem *map_pool_get(struct map_hash *table);
void map_pool_put(struct map_hash *table, struct map_elem *elem);
/* put after a grace period. Not under map.lock: the queue has a lock of its own, which fork takes in another order. */
void map_pool_retire(struct map_hash *table, struct map_elem *elem);

static inline void *map_elem_body(const struct map_hash *table, struct map_elem *elem)
{
	return (char *)elem + table->body_at;
}

static inline void *map_elem_percpu(const struct map_hash *table, struct map_elem *elem)
{
	return *(void **)map_elem_body(table, elem);
}

static inline unsigned char *map_elem_used(const struct map_hash *table, struct map_elem *elem)
{
	return (unsigned char *)elem + table->used_at;
}

static inline struct map_elem *map_elem_of(struct cds_lfht_node *node)
{
	return node ? (struct map_elem *)((char *)node - offsetof(struct map_elem, node)) : NULL;
}

#endif
