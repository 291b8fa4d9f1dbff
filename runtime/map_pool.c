/* SPDX-License-Identifier: MIT */
/*
 * Elements of hash tables. Expected load: a get and a put an update; a chunk now and then. Chunks are never given back before the
 * table, so a table keeps the most that it ever had alive plus waiting for a grace period: an update storm costs memory, and is never
 * refused because elements are still waiting.
 */
#include <errno.h>
#include <stdlib.h>

#include "runtime/log.h"
#include "runtime/map_hash.h"

/* The first element stands so that its hot part (node, key, value) begins a cache line; as sizes are whole lines, so do the others'. */
#define CHUNK_HEAD (64u + (64u - offsetof(struct map_elem, node) % 64u) % 64u)
#define PERCPU_CHUNK_MAX (1u << 20)
_Static_assert(sizeof(struct map_chunk) <= CHUNK_HEAD, "the first element follows the head");

void map_pool_init(struct map_hash *table)
{
	uint32_t max = table->map.abi.max_entries;
	uint32_t nr = (uint32_t)(MAP_CHUNK_ALIGN - CHUNK_HEAD) / table->elem_size;

	/* A small table gets a small chunk: its entries, and some for replacements under way. */
	if (nr > 32 && max < nr - 32)
		nr = max + 32;
	/* The unit of a CPU is finite: take it in pieces. */
	if (table->map.ops->percpu && nr > PERCPU_CHUNK_MAX / table->map.abi.stride)
		nr = PERCPU_CHUNK_MAX / table->map.abi.stride;
	table->pool.nr_per_chunk = nr ? nr : 1;
}

static struct map_chunk *new_chunk(struct map_hash *table)
{
	size_t len = CHUNK_HEAD + (size_t)table->pool.nr_per_chunk * table->elem_size;
	struct map_chunk *chunk = aligned_alloc(MAP_CHUNK_ALIGN, (len + MAP_CHUNK_ALIGN - 1) & ~(size_t)(MAP_CHUNK_ALIGN - 1));

	if (!chunk)
		return NULL;
	memset(chunk, 0, sizeof(*chunk));
	chunk->table = table;
	if (table->map.ops->percpu && shunt_percpu_alloc((size_t)table->pool.nr_per_chunk * table->map.abi.stride, 0, &chunk->percpu)) {
		free(chunk);
		return NULL;
	}
	return chunk;
}

static struct map_elem *take_fresh(struct map_hash *table)
{
	struct map_chunk *chunk = table->pool.fresh;
	struct map_elem *elem = (struct map_elem *)((char *)chunk + CHUNK_HEAD + (size_t)chunk->nr_used * table->elem_size);

	if (chunk->percpu)
		*(void **)map_elem_body(table, elem) = (char *)chunk->percpu + (size_t)chunk->nr_used * table->map.abi.stride;
	if (++chunk->nr_used == table->pool.nr_per_chunk)
		table->pool.fresh = chunk->next_fresh;
	return elem;
}

struct map_elem *map_pool_get(struct map_hash *table)
{
	struct map_pool *pool = &table->pool;
	struct map_elem *elem = NULL;
	struct map_chunk *chunk;

	pthread_mutex_lock(&table->map.lock);
	if (pool->free) {
		elem = map_elem_of(pool->free);
		pool->free = pool->free->next;
	} else if (pool->fresh) {
		elem = take_fresh(table);
	}
	pthread_mutex_unlock(&table->map.lock);
	if (elem)
		return elem;
	/* Outside the lock: the per-CPU area has a lock of its own, which fork takes in another order. */
	chunk = new_chunk(table);
	if (!chunk)
		return NULL;
	pthread_mutex_lock(&table->map.lock);
	chunk->next = pool->chunks;
	pool->chunks = chunk;
	chunk->next_fresh = pool->fresh;
	pool->fresh = chunk;
	elem = take_fresh(table);
	pthread_mutex_unlock(&table->map.lock);
	return elem;
}

void map_pool_put(struct map_hash *table, struct map_elem *elem)
{
	pthread_mutex_lock(&table->map.lock);
	elem->node.next = table->pool.free;
	table->pool.free = &elem->node;
	pthread_mutex_unlock(&table->map.lock);
}

static void release(struct shunt_grace_item *item)
{
	struct map_elem *elem = (struct map_elem *)item;
	/* The head of a chunk is found by alignment: an element begins within the first MAP_CHUNK_ALIGN bytes, however large it is. */
	struct map_hash *table = ((struct map_chunk *)((uintptr_t)elem & ~(uintptr_t)(MAP_CHUNK_ALIGN - 1)))->table;

	if (table->drop)
		table->drop(elem, map_elem_body(table, elem));
	map_pool_put(table, elem);
	shunt_map_piece_done(&table->map);
}

void map_pool_retire(struct map_hash *table, struct map_elem *elem)
{
	_Static_assert(offsetof(struct map_elem, grace) == 0, "an item is its element");
	shunt_map_retire(&table->map, &elem->grace, release);
}

void map_pool_fini(struct map_hash *table)
{
	while (table->pool.chunks) {
		struct map_chunk *chunk = table->pool.chunks;

		table->pool.chunks = chunk->next;
		shunt_percpu_free(chunk->percpu);
		free(chunk);
	}
}
