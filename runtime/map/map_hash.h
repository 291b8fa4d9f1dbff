/* SPDX-License-Identifier: MIT */
/*
 * The hash table behind HASH, LRU_HASH, their per-CPU types, HASH_OF_MAPS and DEVMAP_HASH: a fixed array of buckets, each the head of a
 * chain of elements, and a pool of elements (map_pool.c).
 *
 * Who synchronises with whom:
 *	lookup		read section; follows bucket and next with acquire loads, no lock
 *	changes		map->lock, all of them; an element is complete before one release store links it
 *	removed		keeps its next, so that a reader standing on it goes on; back to the pool after a grace period
 *
 * Replacing is one store of one link: a reader sees the old or the new value, no mix. What a reader found stays what it was until the
 * reader's section ends.
 */
#ifndef RUNTIME_MAP_HASH_H
#define RUNTIME_MAP_HASH_H

#include "runtime/map/map.h"

/* What lookups read begins with next: one cache line with small keys and values (map_pool.c places it). */
struct map_elem {
	/* Cold, under map->lock: neighbours in the order of an LRU table; newer alone links elements that wait or are free. */
	struct map_elem *newer, *older;
	struct map_elem *next; /* chain of its bucket; kept after removal */
	uint64_t hash;
	unsigned char key[]; /* then, at body_at, the value, or the per-CPU pointer */
};
_Static_assert(offsetof(struct map_elem, key) == SHUNT_MAP_ELEM_KEY, "inlined code compares keys");

/* Elements come in chunks of one alignment, whose first line says whose they are. */
#define MAP_CHUNK_ALIGN 65536u

struct map_chunk {
	struct map_hash *table;
	struct map_chunk *next;       /* all chunks of the table */
	struct map_chunk *next_fresh; /* those with elements never handed out */
	void *percpu;                 /* per-CPU values of its elements, in order; NULL for other tables */
	uint32_t nr_used;
};

struct map_elem_list {
	struct map_elem *first, *last;
};

/* All under map->lock. */
struct map_pool {
	struct map_chunk *chunks, *fresh;
	struct map_elem *free;
	struct map_elem_list retired, waiting; /* removed since the grace period in progress began; before it */
	bool queued;                           /* item stands for both in the grace queue */
	struct shunt_grace_item item;
	uint32_t nr_per_chunk;
};

struct map_hash {
	struct shunt_map map;
	/* Constant after init. */
	uint64_t seed;
	uint32_t key_size;
	uint32_t body_at;   /* offset in the element */
	uint32_t body_size; /* bytes of an in-place value; 8 for a per-CPU pointer */
	uint32_t used_at;   /* offset of the "used" byte of LRU tables; 0: none */
	uint32_t elem_size;
	/* What an element holds beyond memory; called when its last reader has left. */
	void (*drop)(struct map_elem *elem, void *body);

	/* Written by updates. */
	uint32_t count __attribute__((aligned(64))); /* map.lock; read without it */
	struct map_pool pool;
	struct map_elem *newest, *oldest;            /* map.lock; LRU tables */
};

enum map_fill {
	MAP_FILL_VALUE,    /* one value in place */
	MAP_FILL_THIS_CPU, /* this CPU's copy; the others are zeroed in a new element, kept in an old one */
	MAP_FILL_ALL_CPUS, /* the host's layout */
};

int map_hash_check(const struct shunt_map_attr *attr, const char *name);
/* body_size 0: the map's value_size, or per-CPU pointers by its ops. */
int map_hash_init(struct map_hash *table, uint32_t body_size, bool lru);
void map_hash_fini(struct shunt_map *map);

/* abi.buckets and abi.bucket_mask are those of all tables. */
static inline struct map_elem **map_hash_buckets(const struct map_hash *table)
{
	return table->map.abi.buckets;
}

uint64_t map_hash_of(const struct map_hash *table, const void *key);
/* In a read section. Without marking the element used. */
struct map_elem *map_hash_find(const struct map_hash *table, const void *key);

/* Under map->lock. The link that leads to key's element; it holds NULL, the end of the chain, when there is none. */
struct map_elem **map_hash_locate(const struct map_hash *table, const void *key, uint64_t hash);
/* Puts elem into the place of what link leads to: another value of the same key, or the end of the chain. */
void map_hash_link(struct map_elem **link, struct map_elem *elem);
void map_hash_count_add(struct map_hash *table, int change);
/* Takes what link leads to out of the table; the caller retires it. */
void map_hash_take_out(struct map_hash *table, struct map_elem **link);

/* -EEXIST or -ENOENT where flags forbid the update, given what is there. */
int map_hash_refuses(const struct map_elem *old, uint64_t flags);

int map_hash_store(struct map_hash *table, const void *key, const void *value, uint64_t flags, enum map_fill fill);
int map_hash_delete(struct shunt_map *map, const void *key);
int map_hash_next_key(struct shunt_map *map, const void *key, void *next);
uint32_t map_hash_count(const struct shunt_map *map);
int map_hash_host_lookup(struct shunt_map *map, const void *key, void *value);

/* map_lru.c: the same for tables that evict. */
int map_lru_store(struct map_hash *table, const void *key, const void *value, uint64_t flags, enum map_fill fill);
/* Takes elem out of the order, under map->lock. */
void map_lru_forget(struct map_hash *table, struct map_elem *elem);

/* Writes key and value into an element that no reader knows. */
void map_hash_fill_new(struct map_hash *table, struct map_elem *elem, const void *key, uint64_t hash, const void *value,
		       enum map_fill fill);
void map_hash_fill_percpu(struct map_hash *table, struct map_elem *elem, const void *value, enum map_fill fill);

/* map_pool.c. init: with reserve, elements for max_entries are made now, so that no update of a table that is not full fails for
 * memory. get: an element of undefined contents (its per-CPU pointer set), or NULL; takes map.lock. put: no reader can know it. */
int map_pool_init(struct map_hash *table, bool reserve);
void map_pool_fini(struct map_hash *table);
struct map_elem *map_pool_get(struct map_hash *table);
void map_pool_put(struct map_hash *table, struct map_elem *elem);
/* put after a grace period; under map->lock. */
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

#endif
