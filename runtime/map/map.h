/* SPDX-License-Identifier: MIT */
/*
 * What map families share. A family embeds struct shunt_map as its first member and gives one struct shunt_map_ops a type.
 *
 * Who synchronises with whom:
 *	lookup			read section of the caller; no lock, no reference
 *	update, delete		read section (begun by map.c) and, where a family says so, map->lock
 *	removed pieces		shunt_map_retire: released after a grace period, and the map itself after its last piece
 *	fork			map.c holds every map->lock across fork, so a child can go on using its maps; taken after the readers'
 *				registry and before the grace queue's lock (runtime/pack/pack.h)
 */
#ifndef RUNTIME_MAP_H
#define RUNTIME_MAP_H

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <shunt/map.h>
#include <shunt/percpu.h>

#include "runtime/grace.h"

struct shunt_map_ops {
	size_t size; /* of the family's struct */
	bool percpu;
	bool host_only; /* programs may look up, not update or delete */
	/* Bytes of a host value, when it is neither value_size nor all CPUs' values. */
	uint32_t host_value_size;

	int (*check)(const struct shunt_map_attr *attr, const char *name);
	/* abi, name and flags are set; a failure leaves nothing behind. */
	int (*init)(struct shunt_map *map, const struct shunt_map_attr *attr);
	/* Nobody can reach the map any more. */
	void (*fini)(struct shunt_map *map);

	void *(*lookup)(struct shunt_map *map, const void *key);
	void *(*lookup_of)(struct shunt_map *map, const void *key, uint32_t cpu); /* per-CPU families */
	int (*update)(struct shunt_map *map, const void *key, const void *value, uint64_t flags);
	int (*delete)(struct shunt_map *map, const void *key);

	/* host_update NULL: as update. */
	int (*host_lookup)(struct shunt_map *map, const void *key, void *value);
	int (*host_update)(struct shunt_map *map, const void *key, const void *value, uint64_t flags);
	int (*next_key)(struct shunt_map *map, const void *key, void *next);
	uint32_t (*count)(const struct shunt_map *map);
};

struct shunt_map {
	struct shunt_map_abi abi; /* first: inlined code reads it */
	const struct shunt_map_ops *ops;
	char *name;
	uint32_t flags;
	uint32_t refs;    /* atomic; 0 is final */
	uint32_t retired; /* atomic: pieces in the grace queue, plus one for the map; 0 frees it */
	pthread_mutex_t lock;
	struct shunt_map *next, *prev; /* list of all maps, map.c */
	struct shunt_grace_item grace;
};


/* Queues item, which belongs to map; its release must end with shunt_map_piece_done(map). */
void shunt_map_retire(struct shunt_map *map, struct shunt_grace_item *item, void (*release)(struct shunt_grace_item *item));
void shunt_map_piece_done(struct shunt_map *map);
/* The same for an item that the family queues itself. */
void shunt_map_piece_add(struct shunt_map *map);

extern const struct shunt_map_ops shunt_map_array_ops, shunt_map_percpu_array_ops;
extern const struct shunt_map_ops shunt_map_hash_ops, shunt_map_percpu_hash_ops;
extern const struct shunt_map_ops shunt_map_lru_hash_ops, shunt_map_lru_percpu_hash_ops;
extern const struct shunt_map_ops shunt_map_array_of_maps_ops, shunt_map_hash_of_maps_ops;
extern const struct shunt_map_ops shunt_map_prog_array_ops, shunt_map_perf_event_array_ops;
extern const struct shunt_map_ops shunt_map_devmap_ops, shunt_map_devmap_hash_ops, shunt_map_cpumap_ops, shunt_map_xskmap_ops;
extern const struct shunt_map_ops shunt_map_lpm_ops;

static inline uint32_t map_round8(uint32_t size)
{
	return (size + 7) & ~7u;
}

static inline uint32_t map_load_index(const void *key)
{
	uint32_t index;

	memcpy(&index, key, sizeof(index));
	return index;
}

/*
 * Copies into and out of values that programs use at the same time. Words are single accesses, as the kernel's: a counter is never
 * seen torn. `value` is 8-byte aligned; the other side is anyone's buffer.
 */
static inline void map_value_write(void *value, const void *from, size_t size)
{
	size_t at = 0;

	for (; at + 8 <= size; at += 8) {
		uint64_t word;

		memcpy(&word, (const char *)from + at, 8);
		__atomic_store_n((uint64_t *)((char *)value + at), word, __ATOMIC_RELAXED);
	}
	if (at + 4 <= size) {
		uint32_t word;

		memcpy(&word, (const char *)from + at, 4);
		__atomic_store_n((uint32_t *)((char *)value + at), word, __ATOMIC_RELAXED);
		at += 4;
	}
	for (; at < size; at++)
		__atomic_store_n((char *)value + at, ((const char *)from)[at], __ATOMIC_RELAXED);
}

static inline void map_value_read(void *to, const void *value, size_t size)
{
	size_t at = 0;

	for (; at + 8 <= size; at += 8) {
		uint64_t word = __atomic_load_n((const uint64_t *)((const char *)value + at), __ATOMIC_RELAXED);

		memcpy((char *)to + at, &word, 8);
	}
	if (at + 4 <= size) {
		uint32_t word = __atomic_load_n((const uint32_t *)((const char *)value + at), __ATOMIC_RELAXED);

		memcpy((char *)to + at, &word, 4);
		at += 4;
	}
	for (; at < size; at++)
		((char *)to)[at] = __atomic_load_n((const char *)value + at, __ATOMIC_RELAXED);
}

/* All CPUs' values of a per-CPU object, in the layout of the host calls. */
void shunt_map_percpu_read(const struct shunt_map *map, void *object, void *values);
void shunt_map_percpu_write(const struct shunt_map *map, void *object, const void *values);

/* next_key and the index of keys, for the families whose keys are 0 .. max_entries - 1. */
int shunt_map_index_next_key(struct shunt_map *map, const void *key, void *next);

#endif
