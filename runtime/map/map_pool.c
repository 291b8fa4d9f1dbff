/* SPDX-License-Identifier: MIT */
/*
 * Elements of hash tables. Expected load: a get and a put an update; a chunk now and then. Chunks are never given back before the
 * table, so a table keeps the most that it ever had alive plus waiting for a grace period: an update storm costs memory, and is never
 * refused because elements are still waiting. A table that is to be preallocated has chunks for max_entries from the start; their pages
 * are touched when used.
 */
#include <errno.h>
#include <stdlib.h>

#include "runtime/log.h"
#include "runtime/map/map_hash.h"

/* The first element stands so that its hot part (next, key, value) begins a cache line; as sizes are whole lines, so do the others'. */
#define CHUNK_HEAD (64u + (64u - offsetof(struct map_elem, next) % 64u) % 64u)
#define PERCPU_CHUNK_MAX (1u << 20)
_Static_assert(sizeof(struct map_chunk) <= CHUNK_HEAD, "the first element follows the head");

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

static void add_chunk(struct map_pool *pool, struct map_chunk *chunk)
{
	chunk->next = pool->chunks;
	pool->chunks = chunk;
	chunk->next_fresh = pool->fresh;
	pool->fresh = chunk;
}

int map_pool_init(struct map_hash *table, bool reserve)
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
	for (uint64_t have = 0; reserve && have < max; have += table->pool.nr_per_chunk) {
		struct map_chunk *chunk = new_chunk(table);

		if (!chunk) {
			map_pool_fini(table);
			return shunt_fail(ENOMEM, "map '%s': no memory for %u entries; NO_PREALLOC takes it as entries come", table->map.name,
					  max);
		}
		add_chunk(&table->pool, chunk);
	}
	return 0;
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
		elem = pool->free;
		pool->free = elem->newer;
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
	add_chunk(pool, chunk);
	elem = take_fresh(table);
	pthread_mutex_unlock(&table->map.lock);
	return elem;
}

void map_pool_put(struct map_hash *table, struct map_elem *elem)
{
	pthread_mutex_lock(&table->map.lock);
	elem->newer = table->pool.free;
	table->pool.free = elem;
	pthread_mutex_unlock(&table->map.lock);
}

static void append(struct map_elem_list *list, struct map_elem_list *more)
{
	if (!more->first)
		return;
	if (list->first)
		list->last->newer = more->first;
	else
		list->first = more->first;
	list->last = more->last;
	*more = (struct map_elem_list){NULL, NULL};
}

static struct map_hash *table_of(struct shunt_grace_item *item)
{
	return (struct map_hash *)((char *)item - offsetof(struct map_hash, pool.item));
}

/* A grace period begins: it counts for what has been removed until now. */
static void collect(struct shunt_grace_item *item)
{
	struct map_hash *table = table_of(item);

	pthread_mutex_lock(&table->map.lock);
	append(&table->pool.waiting, &table->pool.retired);
	pthread_mutex_unlock(&table->map.lock);
}

static void release(struct shunt_grace_item *item)
{
	struct map_hash *table = table_of(item);
	struct map_pool *pool = &table->pool;
	struct map_elem *first;
	bool again;

	pthread_mutex_lock(&table->map.lock);
	first = pool->waiting.first;
	for (struct map_elem *elem = table->drop ? first : NULL; elem; elem = elem->newer)
		table->drop(elem, map_elem_body(table, elem));
	if (first) {
		pool->waiting.last->newer = pool->free;
		pool->free = first;
		pool->waiting = (struct map_elem_list){NULL, NULL};
	}
	again = pool->retired.first != NULL;
	pool->queued = again;
	/* Before the queue knows that this one is done: a fork sees both or neither. */
	if (again)
		shunt_grace_defer(item);
	shunt_grace_settle();
	pthread_mutex_unlock(&table->map.lock);
	if (!again)
		shunt_map_piece_done(&table->map);
}

/*
 * One item stands for all that is removed until a grace period begins: an update costs the queue nothing while one is on its way. The
 * order of locks is that of forks: map->lock, then the queue's.
 */
void map_pool_retire(struct map_hash *table, struct map_elem *elem)
{
	struct map_pool *pool = &table->pool;

	elem->newer = NULL;
	append(&pool->retired, &(struct map_elem_list){elem, elem});
	if (pool->queued)
		return;
	pool->queued = true;
	shunt_map_piece_add(&table->map);
	pool->item = (struct shunt_grace_item){.collect = collect, .release = release, .restartable = true};
	shunt_grace_defer(&pool->item);
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
