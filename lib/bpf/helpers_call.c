/* SPDX-License-Identifier: MIT */
/* Helpers that run code: tail calls (see struct bpf_chain) and callbacks. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "lib/bpf/helpers.h"

#define MAX_TAIL_CALLS 33u
#define MAX_LOOPS (1u << 23)

_Static_assert(sizeof(struct bpf_chain) == BPF_CHAIN_SIZE, "generated code allocates it");

static __thread struct {
	struct bpf_chain *current; /* of the innermost running program that has one */
	uint32_t *handed_over;     /* set between a tail call and the first thing that its program does */
} chains;

uint64_t bpf_helper_chain_enter(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5)
{
	struct bpf_chain *chain = (struct bpf_chain *)(uintptr_t)r1;

	chain->own = 0;
	chain->count = chains.handed_over ? chains.handed_over : &chain->own;
	chain->len = r2;
	chain->outer = chains.current;
	chains.handed_over = NULL;
	chains.current = chain;
	return 0;
}

uint64_t bpf_helper_chain_leave(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5)
{
	chains.current = ((struct bpf_chain *)(uintptr_t)r1)->outer;
	return 0;
}

uint64_t bpf_helper_tail_call(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5)
{
	struct shunt_map *map = (struct shunt_map *)(uintptr_t)r2;
	struct bpf_chain *chain = chains.current;
	uint32_t index = (uint32_t)r3;
	const void *const *slot;
	const void *entry;
	uint64_t verdict;

	if (shunt_map_abi(map)->type != SHUNT_MAP_PROG_ARRAY || *chain->count >= MAX_TAIL_CALLS)
		return 0;
	slot = shunt_map_lookup(map, &index);
	entry = slot ? __atomic_load_n(slot, __ATOMIC_ACQUIRE) : NULL;
	if (!entry)
		return 0;
	++*chain->count;
	chains.handed_over = chain->count;
	if (r5)
		verdict = ((uint32_t(*)(void *))(uintptr_t)entry)((void *)(uintptr_t)r1);
	else
		verdict = ((uint64_t(*)(void *, size_t))(uintptr_t)entry)((void *)(uintptr_t)r1, chain->len);
	/* A program without tail calls did not take it. */
	chains.handed_over = NULL;
	*(uint64_t *)(uintptr_t)r4 = verdict;
	return 1;
}

uint64_t bpf_helper_loop(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5)
{
	shunt_bpf_helper_fn *callback = (shunt_bpf_helper_fn *)(uintptr_t)r2;
	uint32_t nr_loops = (uint32_t)r1;

	if (r4)
		return (uint64_t)-EINVAL;
	if (nr_loops > MAX_LOOPS)
		/* The kernel inlines this helper, with 32 bits of error. */
		return (uint32_t)-E2BIG;
	for (uint32_t i = 0; i < nr_loops; i++)
		if (callback(i, r3, 0, 0, 0))
			return i + 1;
	return nr_loops;
}

static uint64_t for_each_in_array(struct shunt_map *map, shunt_bpf_helper_fn *callback, uint64_t data)
{
	uint32_t nr = shunt_map_abi(map)->max_entries;

	for (uint32_t i = 0; i < nr; i++) {
		uint32_t key = i;
		void *value = shunt_map_lookup(map, &key);

		if (value && callback((uintptr_t)map, (uintptr_t)&key, (uintptr_t)value, data, 0))
			return i + 1;
	}
	return nr;
}

/* Keys are gathered first: a callback may delete the entry that it sees, and a walk from a deleted key begins again. */
static uint64_t for_each_in_hash(struct shunt_map *map, shunt_bpf_helper_fn *callback, uint64_t data)
{
	uint32_t key_size = shunt_map_abi(map)->key_size, max = shunt_map_count(map), nr = 0, visited = 0;
	char *keys = malloc(((size_t)max + 1) * key_size);

	if (!keys)
		return (uint64_t)-ENOMEM;
	while (nr < max && !shunt_map_next_key(map, nr ? keys + (size_t)(nr - 1) * key_size : NULL, keys + (size_t)nr * key_size))
		nr++;
	for (uint32_t i = 0; i < nr; i++) {
		char *key = keys + (size_t)i * key_size;
		void *value = shunt_map_lookup(map, key);

		if (!value)
			continue;
		visited++;
		if (callback((uintptr_t)map, (uintptr_t)key, (uintptr_t)value, data, 0))
			break;
	}
	free(keys);
	return visited;
}

uint64_t bpf_helper_for_each_map_elem(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5)
{
	struct shunt_map *map = (struct shunt_map *)(uintptr_t)r1;
	shunt_bpf_helper_fn *callback = (shunt_bpf_helper_fn *)(uintptr_t)r2;

	if (r4)
		return (uint64_t)-EINVAL;
	switch (shunt_map_abi(map)->type) {
	case SHUNT_MAP_ARRAY: case SHUNT_MAP_PERCPU_ARRAY:
		return for_each_in_array(map, callback, r3);
	case SHUNT_MAP_HASH: case SHUNT_MAP_LRU_HASH: case SHUNT_MAP_PERCPU_HASH: case SHUNT_MAP_LRU_PERCPU_HASH:
		return for_each_in_hash(map, callback, r3);
	default:
		return (uint64_t)-EINVAL;
	}
}
