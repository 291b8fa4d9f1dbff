/* SPDX-License-Identifier: MIT */
/* Allocating blocks, publishing them, making them shorter. Expected load: thousands of programs a second, a million live ones. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "runtime/pack/arena.h"
#include "runtime/pack/backing_sys.h"
#include "runtime/log.h"
#include "runtime/machine.h"
#include "runtime/pack/pack.h"
#include "targets/target.h"

#define ALIGN_MAX ((size_t)4096)
/* In chunks: what an open run is at most, and the longest block that is cut from one. */
#define OPEN_MAX 1024u
#define OPEN_BLOCK_MAX 64u

/* A block's id: 33 bits of its pack's serial, 15 of its first chunk, 16 of that chunk's generation. */
static uint64_t id_of(const struct shunt_pack *pack, uint32_t first)
{
	return pack->serial << 31 | (uint64_t)first << 16 | shunt_pack_generation(pack, first);
}

void shunt_pack_describe(const struct shunt_pack *pack, uint32_t first, uint32_t nr, struct shunt_block *out)
{
	out->rx = pack->rx + first * SHUNT_CHUNK_SIZE;
	out->rw = pack->rw + first * SHUNT_CHUNK_SIZE;
	out->len = nr * SHUNT_CHUNK_SIZE;
	out->id = id_of(pack, first);
}

struct shunt_pack *shunt_pack_at(struct shunt_arena *arena, const void *addr, uint32_t *chunk)
{
	size_t offset = (uintptr_t)addr - (uintptr_t)arena->base;
	bool is_rw = offset >= arena->size;
	struct shunt_pack *pack;

	if (is_rw)
		offset = (uintptr_t)addr - (uintptr_t)arena->rw_base;
	if (offset >= arena->size)
		return NULL;
	pack = arena->slots[offset / SHUNT_PACK_SIZE];
	/* A pack with one view has nothing at the second address. */
	if (!pack || (is_rw && pack->rw == pack->rx))
		return NULL;
	*chunk = (uint32_t)((offset - pack->first_slot * SHUNT_PACK_SIZE) / SHUNT_CHUNK_SIZE);
	return pack;
}

static bool is_open_at(const struct shunt_pack *pack, uint32_t chunk)
{
	const struct shunt_pack_open *open = &pack->shelf->open;

	return open->pack == pack && chunk >= open->next && chunk < open->end;
}

bool shunt_pack_block_at(const struct shunt_pack *pack, uint32_t chunk, uint32_t *first, uint32_t *nr, bool *dying)
{
	if (pack->nr_slots > 1) {
		*first = 0;
		*nr = pack->large_chunks;
		*dying = pack->nr_dying > 0;
		return chunk < pack->large_chunks;
	}
	*first = chunk;
	*nr = shunt_space_block_from(&pack->space, chunk);
	if (!*nr && !shunt_space_block(&pack->space, chunk, first, nr))
		return false;
	if (shunt_pack_generation(pack, *first) == SHUNT_GENERATION_WORN || shunt_bit_is_resting(&pack->space, *first) || is_open_at(pack, *first))
		return false;
	*dying = shunt_bit_is_set(&pack->space, SHUNT_BIT_DYING, *first);
	return true;
}

const char *shunt_pack_check(struct shunt_arena *arena, const struct shunt_block *block, struct shunt_pack **pack, uint32_t *first,
			     uint32_t *nr)
{
	bool dying;
	uint32_t chunk;

	*pack = shunt_pack_at(arena, block->rx, &chunk);
	if (!*pack || !shunt_pack_block_at(*pack, chunk, first, nr, &dying))
		return "is not allocated: it was freed already, or never was one";
	if ((char *)block->rx != (*pack)->rx + *first * SHUNT_CHUNK_SIZE)
		return "does not begin there: pass the block as shunt_pack_alloc gave it";
	if (dying)
		return "was freed already and waits for its grace period";
	if (block->id != id_of(*pack, *first))
		return "was freed already, another block lives there now";
	return NULL;
}

int shunt_pack_lock_block(const char *verb, const struct shunt_block *block, bool mutate, struct shunt_pack_ref *out)
{
	const char *why;

	out->arena = mutate ? shunt_arena_lock_owner_mutate(block->rx) : shunt_arena_lock_owner(block->rx);
	if (!out->arena)
		return shunt_fail(EINVAL, "%s: block %p lies in no arena", verb, block->rx);
	why = shunt_pack_check(out->arena, block, &out->pack, &out->first, &out->nr);
	if (!why)
		return 0;
	pthread_mutex_unlock(&out->arena->lock);
	return shunt_fail(EINVAL, "%s: block %p %s", verb, block->rx, why);
}

static int fail_alloc(struct shunt_arena *arena, size_t size, int err, const struct shunt_backing_failure *failure)
{
	if (failure->step)
		return shunt_fail(failure->err, "pack for %zu bytes: %s failed: %s", size, failure->step, strerror(failure->err));
	return shunt_fail(-err, "arena %p of %zu bytes is full: no room for a block of %zu bytes; free some or create a larger arena",
			  (void *)arena, arena->size, size);
}

void shunt_pack_place(struct shunt_pack *pack)
{
	if (pack->nr_slots == 1 && !pack->frozen && !pack->closing)
		shunt_room_place(&pack->shelf->room, &pack->room, shunt_space_longest(&pack->space));
}

void shunt_pack_close(struct shunt_shelf *shelf)
{
	struct shunt_pack_open *open = &shelf->open;
	struct shunt_pack *pack = open->pack;

	open->pack = NULL;
	if (!pack || open->next == open->end)
		return;
	shunt_space_give(&pack->space, open->next, open->end - open->next);
	shunt_pack_place(pack);
}

void shunt_pack_uncut(struct shunt_pack *pack, uint32_t first, uint32_t nr)
{
	struct shunt_pack_open *open = &pack->shelf->open;

	shunt_bit_clear(&pack->space, SHUNT_BIT_LAST, first + nr - 1);
	open->next = first;
	shunt_space_cut(&pack->space, open->end - 1);
}

/* The next nr chunks of the open run, or NULL. */
static struct shunt_pack *cut(struct shunt_pack_open *open, uint32_t nr, uint32_t *first)
{
	if (!open->pack || open->end - open->next < nr)
		return NULL;
	*first = open->next;
	open->next += nr;
	shunt_space_cut(&open->pack->space, open->next - 1);
	return open->pack;
}

/* A pack with a run of nr chunks on the shelf, or NULL. */
static struct shunt_pack *find_room(struct shunt_shelf *shelf, uint32_t nr)
{
	struct shunt_room_link *link = shunt_room_find(&shelf->room, nr);

	if (!link && shelf->open.pack) {
		shunt_pack_close(shelf);
		link = shunt_room_find(&shelf->room, nr);
	}
	return link ? (struct shunt_pack *)((char *)link - offsetof(struct shunt_pack, room)) : NULL;
}

/* The same on other nodes, nearest number first. */
static struct shunt_pack *find_room_elsewhere(struct shunt_arena *arena, enum shunt_segment segment, uint32_t node, uint32_t nr)
{
	struct shunt_pack *pack = NULL;

	for (uint32_t i = 1; i < arena->nr_nodes && !pack; i++)
		pack = find_room(shunt_shelf_of(arena, (node + i) % arena->nr_nodes, segment), nr);
	return pack;
}

/* A pack with a run of nr chunks: on the node, a new one there, on another node, where something rests. */
static int find_pack(struct shunt_arena *arena, enum shunt_segment segment, uint32_t node, uint32_t nr, struct shunt_pack **out,
		     struct shunt_backing_failure *failure)
{
	struct shunt_shelf *shelf = shunt_shelf_of(arena, node, segment);
	int err;

	*out = find_room(shelf, nr);
	if (*out)
		return 0;
	err = shunt_pack_make(arena, segment, node, 1, out, failure);
	if (!err)
		return 0;
	*out = find_room_elsewhere(arena, segment, node, nr);
	if (!*out && shunt_pack_rest_end(arena)) {
		*out = find_room(shelf, nr);
		if (!*out)
			*out = find_room_elsewhere(arena, segment, node, nr);
	}
	return *out ? 0 : err;
}

static uint64_t next_random(struct shunt_arena *arena)
{
	uint64_t state = arena->random_state;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	arena->random_state = state;
	/* Multiplied, so that its outcomes do not tell the state. */
	return state * UINT64_C(0x2545f4914f6cdd1d) >> 16;
}

/* Chunks for a block of at most a pack. */
static int take(struct shunt_arena *arena, enum shunt_segment segment, uint32_t node, uint32_t nr, uint32_t align, struct shunt_pack **out, uint32_t *first,
		struct shunt_backing_failure *failure)
{
	struct shunt_pack_open *open = &shunt_shelf_of(arena, node, segment)->open;
	/* A run this long holds the block at any place it begins; an empty pack begins aligned. */
	uint32_t need = nr + align - 1 < SHUNT_PACK_CHUNKS ? nr + align - 1 : SHUNT_PACK_CHUNKS;
	bool small = align == 1 && nr <= OPEN_BLOCK_MAX;
	struct shunt_pack *pack;
	int err;

	if (small) {
		*out = cut(open, nr, first);
		if (*out)
			return 0;
		shunt_pack_close(shunt_shelf_of(arena, node, segment));
	}
	err = find_pack(arena, segment, node, need, &pack, failure);
	if (err)
		return err;
	if (small) {
		/* On another node that one's run goes on. */
		open = &pack->shelf->open;
		shunt_pack_close(pack->shelf);
		*first = open->next = shunt_space_open_at(&pack->space, nr, OPEN_MAX, arena->random_start ? next_random(arena) : 0, &open->end);
		open->pack = *first == SHUNT_NO_CHUNK ? NULL : pack;
		*out = cut(open, nr, first);
	} else {
		*first = shunt_space_take(&pack->space, nr, align);
		*out = *first == SHUNT_NO_CHUNK ? NULL : pack;
	}
	shunt_pack_place(pack);
	/* NULL cannot be: the room's longest run is exact. Refused rather than trusted. */
	return *out ? 0 : -ENOMEM;
}

/* Where the calling thread runs, as an index into the arena's nodes; the first for a node without memory of ours. */
static uint32_t node_here(const struct shunt_arena *arena)
{
	int node = shunt_sys.node_here();

	for (uint32_t i = 0; i < arena->nr_nodes; i++)
		if (arena->nodes[i] == node)
			return i;
	return 0;
}

/* The block that is wanted in chunks, and how it is aligned in chunks, as far as arena lets blocks share pages. */
static uint32_t shape(const struct shunt_arena *arena, enum shunt_segment segment, size_t size, size_t align, uint32_t *align_chunks)
{
	if (shunt_arena_has_whole_pages(arena) && segment != SHUNT_SEGMENT_DATA) {
		size_t page_size = shunt_machine_page_size();

		size = (size + page_size - 1) & ~(page_size - 1);
		align = align < page_size ? page_size : align;
	}
	*align_chunks = align < SHUNT_CHUNK_SIZE ? 1 : (uint32_t)(align / SHUNT_CHUNK_SIZE);
	return (uint32_t)((size + SHUNT_CHUNK_SIZE - 1) / SHUNT_CHUNK_SIZE);
}

int shunt_pack_alloc(struct shunt_arena *arena, enum shunt_segment segment, size_t size, size_t align, struct shunt_block *out)
{
	struct shunt_backing_failure failure = { 0 };
	struct shunt_pack *pack = NULL;
	uint32_t first = 0;
	uint32_t nr, nr_align;
	uint32_t node = 0;
	bool toggled;
	int err = 0;

	if (!size)
		return shunt_fail(EINVAL, "a block must have at least 1 byte");
	if ((unsigned)segment >= SHUNT_NR_SEGMENTS)
		return shunt_fail(EINVAL, "segment %d is none of enum shunt_segment", (int)segment);
	if (!align)
		align = SHUNT_CHUNK_SIZE;
	if (align & (align - 1) || align > ALIGN_MAX)
		return shunt_fail(EINVAL, "alignment %zu is not a power of two up to %zu", align, ALIGN_MAX);
	if (!arena) {
		err = shunt_arena_default(&arena);
		if (err)
			return err;
	}
	if (size > arena->size)
		return fail_alloc(arena, size, -ENOMEM, &failure);
	if (arena->nr_nodes > 1)
		node = node_here(arena);
	shunt_arena_lock_mutate(arena);
	do {
		toggled = arena->toggle;
		nr = shape(arena, segment, size, align, &nr_align);
		if (nr > SHUNT_PACK_CHUNKS)
			err = shunt_pack_make(arena, segment, node, (nr + SHUNT_PACK_CHUNKS - 1) / SHUNT_PACK_CHUNKS, &pack, &failure);
		else
			err = take(arena, segment, node, nr, nr_align, &pack, &first, &failure);
		/* Refused two views, the arena may have become one that does with one. */
	} while (err && arena->toggle != toggled);
	if (err)
		goto out_unlock;
	if (pack->nr_slots > 1)
		pack->large_chunks = nr;
	if (!pack->nr_live && !pack->nr_dying)
		pack->shelf->nr_empty--;
	pack->nr_live++;
	arena->nr_blocks[segment]++;
	arena->chunks_used[segment] += nr;
	err = shunt_pack_open_pages(pack, first, nr);
	if (err) {
		failure.step = "making the block's pages writable";
		failure.err = -err;
		shunt_pack_take_back(pack, first, nr);
		goto out_unlock;
	}
	shunt_pack_describe(pack, first, nr, out);
out_unlock:
	pthread_mutex_unlock(&arena->lock);
	return err ? fail_alloc(arena, size, err, &failure) : 0;
}

/* Checks a handle by itself; 0 or the failure. *toggles becomes true where the block's pages are to be closed. */
static int check_published(const struct shunt_block *block, bool *toggles)
{
	struct shunt_pack_ref ref;
	int err = shunt_pack_lock_block("finalize", block, false, &ref);

	if (err)
		return err;
	*toggles |= shunt_pack_toggles(ref.pack);
	err = shunt_pack_show_written(ref.pack, ref.first, ref.nr);
	pthread_mutex_unlock(&ref.arena->lock);
	return err ? shunt_fail(-err, "finalize: what a debugger wrote into block %p stays: madvise failed: %s", block->rx, strerror(-err)) : 0;
}

/* The written pages of blocks with one view become what they are to be. */
static int close_written(const struct shunt_block *blocks, size_t nr)
{
	for (size_t i = 0; i < nr; i++) {
		struct shunt_pack_ref ref;
		int err = shunt_pack_lock_block("finalize", &blocks[i], false, &ref);

		if (err)
			return err;
		err = shunt_pack_close_pages(ref.pack, ref.first, ref.nr);
		pthread_mutex_unlock(&ref.arena->lock);
		if (err)
			return shunt_fail(-err, "finalize: making the pages of block %p executable failed: %s", blocks[i].rx, strerror(-err));
	}
	return 0;
}

int shunt_pack_finalize(const struct shunt_block *blocks, size_t nr)
{
	bool toggles = false;
	int err = 0;

	/* All are checked before the first is touched. The blocks are the caller's, who cannot free them meanwhile. */
	for (size_t i = 0; i < nr && !err; i++)
		err = check_published(&blocks[i], &toggles);
	if (!err && toggles)
		err = close_written(blocks, nr);
	if (err || !nr || !shunt_machine_needs_finalize())
		return err;
	for (size_t i = 0; i < nr; i++) {
		/* Emulators that need more see writes through the address that runs. */
		if (blocks[i].rx == blocks[i].rw)
			shunt_machine_maintain(blocks[i].rx, blocks[i].rx, blocks[i].len);
		else
			shunt_machine_sync_caches(blocks[i].rx, blocks[i].rw, blocks[i].len);
	}
	return shunt_sync_core();
}

int shunt_pack_shrink(struct shunt_block *block, size_t size)
{
	struct shunt_pack_ref ref;
	struct shunt_arena *arena;
	struct shunt_pack *pack;
	uint32_t first;
	uint32_t align;
	uint32_t want;
	uint32_t nr;
	int err = shunt_pack_lock_block("shrink", block, true, &ref);

	if (err)
		return err;
	arena = ref.arena;
	pack = ref.pack;
	first = ref.first;
	nr = ref.nr;
	if (!size || size > nr * SHUNT_CHUNK_SIZE) {
		pthread_mutex_unlock(&arena->lock);
		return shunt_fail(EINVAL, "shrink to %zu bytes: block %p can only become shorter, down to 1 byte", size, block->rx);
	}
	want = shape(arena, pack->segment, size, 0, &align);
	if (want < nr) {
		shunt_pack_fill_unused(pack, first + want, nr - want);
		if (pack->nr_slots > 1) {
			pack->large_chunks = want;
		} else if (shunt_pack_is_open(pack) && pack->shelf->open.next == first + nr) {
			/* Made last, with room for what might have been: the next block begins right behind it. */
			shunt_pack_uncut(pack, first + want, nr - want);
			shunt_space_cut(&pack->space, first + want - 1);
		} else {
			shunt_space_shorten(&pack->space, first + nr - 1, first + want - 1);
			shunt_pack_place(pack);
		}
		arena->chunks_used[pack->segment] -= nr - want;
	}
	block->len = want * SHUNT_CHUNK_SIZE;
	pthread_mutex_unlock(&arena->lock);
	return 0;
}
