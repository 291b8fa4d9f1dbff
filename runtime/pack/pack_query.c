/* SPDX-License-Identifier: MIT */
/* Questions about packs: which block is here, which blocks are there, how much of everything. */
#include <errno.h>
#include <string.h>

#include "runtime/pack/arena.h"
#include "runtime/log.h"
#include "runtime/machine.h"

int shunt_pack_find(const void *addr, struct shunt_block *out, struct shunt_arena **arena_out)
{
	struct shunt_arena *arena = shunt_arena_lock_owner(addr);
	struct shunt_pack *pack;
	uint32_t chunk;
	uint32_t first;
	uint32_t nr;
	bool dying;
	int err = -ENOENT;

	if (arena) {
		pack = shunt_pack_at(arena, addr, &chunk);
		if (pack && shunt_pack_block_at(pack, chunk, &first, &nr, &dying) && !dying) {
			shunt_pack_describe(pack, first, nr, out);
			err = 0;
		}
		pthread_mutex_unlock(&arena->lock);
	}
	if (err)
		return shunt_fail(ENOENT, "no live block holds %p", addr);
	if (arena_out)
		*arena_out = arena;
	return 0;
}

/* The first live block at or above the chunk *at of the arena; *at becomes the chunk after it. False at the end. */
static bool next_block(struct shunt_arena *arena, uint64_t *at, enum shunt_segment *segment, struct shunt_block *out)
{
	uint64_t end = (uint64_t)arena->nr_slots * SHUNT_PACK_CHUNKS;

	while (*at < end) {
		struct shunt_pack *pack = arena->slots[*at / SHUNT_PACK_CHUNKS];
		uint64_t base;
		uint32_t chunk;
		uint32_t first;
		uint32_t nr;
		bool dying;

		if (!pack) {
			*at = (*at / SHUNT_PACK_CHUNKS + 1) * SHUNT_PACK_CHUNKS;
			continue;
		}
		base = (uint64_t)pack->first_slot * SHUNT_PACK_CHUNKS;
		chunk = (uint32_t)(*at - base);
		if (pack->nr_slots == 1)
			chunk = shunt_space_next_used(&pack->space, chunk);
		else if (chunk > 0)
			chunk = SHUNT_NO_CHUNK;
		if (chunk == SHUNT_NO_CHUNK) {
			*at = base + (uint64_t)pack->nr_slots * SHUNT_PACK_CHUNKS;
			continue;
		}
		if (!shunt_pack_block_at(pack, chunk, &first, &nr, &dying)) {
			*at = base + chunk + 1;
			continue;
		}
		*at = base + first + nr;
		if (dying)
			continue;
		*segment = pack->segment;
		shunt_pack_describe(pack, first, nr, out);
		return true;
	}
	return false;
}

int shunt_pack_walk(struct shunt_arena *arena, shunt_pack_walk_fn *fn, void *user)
{
	uint64_t at = 0;
	int err = 0;

	if (!arena)
		err = shunt_arena_default(&arena);
	while (!err) {
		enum shunt_segment segment;
		struct shunt_block block;
		bool found;

		/* Not held across fn, which may look things up here. */
		pthread_mutex_lock(&arena->lock);
		found = next_block(arena, &at, &segment, &block);
		pthread_mutex_unlock(&arena->lock);
		if (!found)
			break;
		err = fn(user, segment, &block);
	}
	return err;
}

int shunt_pack_get_stats(struct shunt_arena *arena, struct shunt_pack_stats *out)
{
	int err = arena ? 0 : shunt_arena_default(&arena);

	if (err)
		return err;
	memset(out, 0, sizeof(*out));
	pthread_mutex_lock(&arena->lock);
	for (int segment = 0; segment < SHUNT_NR_SEGMENTS; segment++) {
		out->nr_packs[segment] = arena->nr_packs[segment];
		out->nr_blocks[segment] = arena->nr_blocks[segment];
		out->bytes_used[segment] = arena->chunks_used[segment] * SHUNT_CHUNK_SIZE;
		out->bytes_mapped[segment] = arena->nr_slots_used[segment] * SHUNT_PACK_SIZE;
		out->bytes_metadata += arena->nr_packs[segment] * sizeof(struct shunt_pack);
	}
	for (uint32_t slot = 0; slot < arena->nr_slots; slot++) {
		const struct shunt_pack *pack = arena->slots[slot];

		if (!pack || pack->first_slot != slot)
			continue;
		out->bytes_by_node[arena->nodes[pack->node]] += pack->nr_slots * SHUNT_PACK_SIZE;
		if (pack->segment == SHUNT_SEGMENT_CODE)
			out->bytes_huge += pack->made.bytes_huge;
	}
	out->bytes_pending = arena->chunks_pending * SHUNT_CHUNK_SIZE;
	out->bytes_resting = arena->rest.chunks * SHUNT_CHUNK_SIZE;
	out->nr_nodes = arena->nr_nodes;
	out->bytes_metadata += sizeof(*arena) + arena->nr_nodes * SHUNT_NR_SEGMENTS * sizeof(*arena->shelves) + arena->rest.size * sizeof(*arena->rest.ring) + arena->nr_slots * sizeof(struct shunt_pack *) + shunt_pack_dups_bytes(arena);
	out->arena_size = arena->size;
	out->arena_base = arena->base;
	out->backing = arena->newest;
	pthread_mutex_unlock(&arena->lock);
	out->page_size = shunt_machine_page_size();
	return 0;
}

int shunt_pack_node(const struct shunt_block *block)
{
	struct shunt_pack_ref ref;
	int node, err = shunt_pack_lock_block("node", block, false, &ref);

	if (err)
		return err;
	node = ref.arena->nodes[ref.pack->node];
	pthread_mutex_unlock(&ref.arena->lock);
	return node;
}

const char *shunt_backing_name(enum shunt_backing backing)
{
	switch (backing) {
	case SHUNT_BACKING_MEMFD_NOEXEC_SEAL:
		return "memfd-noexec-seal";
	case SHUNT_BACKING_MEMFD_EXEC:
		return "memfd-exec";
	case SHUNT_BACKING_MEMFD:
		return "memfd";
	case SHUNT_BACKING_SHARED_ANON:
		return "shared-anonymous";
	case SHUNT_BACKING_TOGGLE:
		return "toggle";
	}
	return "unknown";
}
