/* SPDX-License-Identifier: MIT */
/*
 * The way of a freed block: dying (refused and not found from now on) -> in the batch that waits for readers -> filled with traps ->
 * chunks free. A free cannot fail for lack of memory: bits and two grace items a pack are all it needs, however many blocks die.
 */
#include <errno.h>
#include <string.h>

#include "runtime/pack/arena.h"
#include "runtime/log.h"
#include "runtime/pack/pack.h"
#include "runtime/pack/pack_names.h"
#include "runtime/pack/pack_unwind.h"

/* What is given early wants shunt_space_give_done. */
static void free_chunks(struct shunt_pack *pack, uint32_t first, uint32_t nr, bool early)
{
	if (shunt_pack_is_open(pack) && pack->shelf->open.next == first + nr) {
		shunt_pack_uncut(pack, first, nr);
	} else if (early) {
		shunt_space_give_early(&pack->space, first, nr);
	} else {
		shunt_space_give(&pack->space, first, nr);
	}
}

/* Makes the chunks of a block that is neither live nor dying any more free. */
static void give_chunks(struct shunt_pack *pack, uint32_t first, uint32_t nr, bool early)
{
	if (pack->nr_slots > 1) {
		pack->large_chunks = 0;
		return;
	}
	if (shunt_pack_next_generation(pack, first) == SHUNT_GENERATION_WORN) {
		/* Another block at this chunk would repeat an id: it is left out until the whole pack is empty. */
		pack->nr_worn++;
		if (nr > 1)
			shunt_space_shorten(&pack->space, first + nr - 1, first);
	} else {
		free_chunks(pack, first, nr, early);
	}
}

bool shunt_pack_is_idle(const struct shunt_pack *pack)
{
	return pack->items[0].state == SHUNT_ITEM_IDLE && pack->items[1].state == SHUNT_ITEM_IDLE;
}

static void retire_if_empty(struct shunt_pack *pack)
{
	if (!pack->nr_live && !pack->nr_dying && shunt_pack_is_idle(pack))
		shunt_pack_retire_empty(pack);
}

/* Sees to it that a batch which begins from now on covers all dying blocks. */
static void queue_item(struct shunt_pack *pack)
{
	struct shunt_pack_item *idle = NULL;

	for (int i = 0; i < 2; i++) {
		if (pack->items[i].state == SHUNT_ITEM_QUEUED)
			return;
		if (pack->items[i].state == SHUNT_ITEM_IDLE)
			idle = &pack->items[i];
	}
	/* None is idle only where a fork's child found both in batches; the release of the first comes back here. */
	if (!idle)
		return;
	idle->state = SHUNT_ITEM_QUEUED;
	shunt_grace_defer(&idle->item);
}

static struct shunt_pack_item *item_of(struct shunt_grace_item *item)
{
	return (struct shunt_pack_item *)item;
}

/* The batch is about to wait for readers: what is dying now is in it, what dies later is not. */
static void collect(struct shunt_grace_item *grace_item)
{
	struct shunt_pack *pack = item_of(grace_item)->pack;

	pthread_mutex_lock(&pack->arena->lock);
	item_of(grace_item)->state = SHUNT_ITEM_BATCH;
	/* What rests keeps its bit. */
	for (uint32_t word = 0; word < SHUNT_PACK_WORDS; word++)
		pack->space.bits[word][SHUNT_BIT_BATCH] |= pack->space.bits[word][SHUNT_BIT_DYING];
	pthread_mutex_unlock(&pack->arena->lock);
}

static uint32_t count_batch(const struct shunt_pack *pack)
{
	uint32_t nr = 0;

	for (uint32_t word = 0; word < SHUNT_PACK_WORDS; word++)
		nr += (uint32_t)__builtin_popcountll(pack->space.bits[word][SHUNT_BIT_BATCH] & pack->space.bits[word][SHUNT_BIT_DYING]);
	return nr;
}

/* Calls fn for every block of the batch, in address order. */
static void each_in_batch(struct shunt_pack *pack, void (*fn)(struct shunt_pack *pack, uint32_t first, uint32_t nr, void *user), void *user)
{
	for (uint32_t word = 0; word < SHUNT_PACK_WORDS; word++) {
		/* A batch that a fork's child begins again may have been released in part. */
		uint64_t left = pack->space.bits[word][SHUNT_BIT_BATCH] & pack->space.bits[word][SHUNT_BIT_DYING];

		while (left) {
			uint32_t first = word * 64 + (uint32_t)__builtin_ctzll(left);

			left &= left - 1;
			fn(pack, first, pack->nr_slots > 1 ? pack->large_chunks : shunt_space_block_from(&pack->space, first), user);
		}
	}
}

/* A run of neighbours in the batch, filled at once. */
struct fill_run {
	uint32_t first;
	uint32_t end;
};

static void fill_block(struct shunt_pack *pack, uint32_t first, uint32_t nr, void *user)
{
	struct fill_run *run = user;

	if (first != run->end) {
		if (run->end > run->first)
			shunt_pack_fill_unused(pack, run->first, run->end - run->first);
		run->first = first;
	}
	run->end = first + nr;
}

/* All of the pack dies in this batch and the arena will have an empty one in reserve: the pack goes back to the system, so nothing is filled,
 * and nothing may come in between. */
static bool close_dead(struct shunt_pack *pack)
{
	if (pack->closing)
		return true;
	if (pack->emptying || pack->nr_live || pack->nr_dying != count_batch(pack))
		return false;
	if (pack->nr_slots == 1 && pack->shelf->nr_empty + pack->shelf->nr_emptying == 0) {
		pack->emptying = true;
		pack->shelf->nr_emptying++;
		return false;
	}
	if (shunt_pack_is_open(pack))
		shunt_pack_close(pack->shelf);
	pack->closing = true;
	shunt_room_place(&pack->shelf->room, &pack->room, 0);
	return true;
}

static void fill_batch(struct shunt_pack *pack)
{
	struct fill_run run = { 0, 0 };

	each_in_batch(pack, fill_block, &run);
	if (run.end > run.first)
		shunt_pack_fill_unused(pack, run.first, run.end - run.first);
}

static void forget_unwind(struct shunt_pack *pack, uint32_t first, uint32_t nr, void *user)
{
	shunt_unwind_forget(pack->rx + first * SHUNT_CHUNK_SIZE);
}

static void retire(struct shunt_grace_item *grace_item)
{
	struct shunt_pack *pack = item_of(grace_item)->pack;
	bool is_code = pack->segment == SHUNT_SEGMENT_CODE;

	/* Waits for a fork's child: its thread may still be reading what is filled here. */
	shunt_arena_lock_mutate(pack->arena);
	if (is_code && shunt_unwind_is_used()) {
		each_in_batch(pack, forget_unwind, NULL);
		shunt_unwind_settle(pack->rx);
	}
	/* What is not code may be the unwind tables of code in this batch: it stays until all of that is forgotten. */
	if (!close_dead(pack) && is_code)
		fill_batch(pack);
	pthread_mutex_unlock(&pack->arena->lock);
}

/* Bringing the whole tree of free runs up to date costs as much as so many blocks one by one. */
#define MANY 32

/* How many of the nr that have rested longest are of one pack. */
static uint32_t count_same_pack(const struct shunt_rest *rest, uint32_t nr)
{
	const struct shunt_rest_entry *oldest = &rest->ring[rest->head];
	uint32_t same = 1;

	while (same < nr && rest->ring[(rest->head + same) % rest->size].serial == oldest->serial)
		same++;
	return same;
}

/* The nr blocks that have rested longest become free. early: the pack in which many are given back now; its tree is brought up to date later. */
static void wake_oldest(struct shunt_arena *arena, const struct shunt_pack *early, uint32_t nr)
{
	struct shunt_rest *rest = &arena->rest;

	while (nr) {
		uint32_t same = count_same_pack(rest, nr);
		struct shunt_pack *pack = arena->slots[rest->ring[rest->head].slot];
		bool later = pack == early || same > MANY;

		/* Its pack may have gone, or become a new one, meanwhile. */
		if (pack && pack->serial != rest->ring[rest->head].serial)
			pack = NULL;
		nr -= same;
		for (; same > 0; same--) {
			const struct shunt_rest_entry *entry = &rest->ring[rest->head];

			rest->head = rest->head + 1 == rest->size ? 0 : rest->head + 1;
			rest->nr--;
			rest->chunks -= entry->nr;
			if (!pack)
				continue;
			shunt_bit_clear(&pack->space, SHUNT_BIT_BATCH, entry->first);
			free_chunks(pack, entry->first, entry->nr, later);
		}
		if (!pack || pack == early)
			continue;
		if (later)
			shunt_space_give_done(&pack->space);
		shunt_pack_place(pack);
	}
}

bool shunt_pack_rest_end(struct shunt_arena *arena)
{
	bool any = arena->rest.nr > 0;

	wake_oldest(arena, NULL, arena->rest.nr);
	return any;
}

/* The block, of a batch that is over, rests before it is free. */
static void lay_to_rest(struct shunt_pack *pack, uint32_t first, uint32_t nr, const struct shunt_pack *early)
{
	struct shunt_rest *rest = &pack->arena->rest;

	while (rest->nr && (rest->nr == rest->size || rest->chunks + nr > rest->max_chunks))
		wake_oldest(pack->arena, early, 1);
	rest->ring[(rest->head + rest->nr) % rest->size] =
		(struct shunt_rest_entry){ .serial = pack->serial, .slot = pack->first_slot, .first = first, .nr = nr };
	rest->nr++;
	rest->chunks += nr;
}

struct release {
	bool many;    /* the tree is brought up to date at the end */
	uint32_t nr_over; /* so many more than can rest: the first of them would be woken by the last */
};

static void release_block(struct shunt_pack *pack, uint32_t first, uint32_t nr, void *user)
{
	struct release *release = user;

	shunt_bit_clear(&pack->space, SHUNT_BIT_DYING, first);
	pack->nr_dying--;
	pack->chunks_dying -= nr;
	pack->arena->chunks_pending -= nr;
	if (release->nr_over) {
		release->nr_over--;
	} else if (pack->arena->rest.ring && pack->nr_slots == 1 && shunt_pack_generation(pack, first) + 1 != SHUNT_GENERATION_WORN) {
		shunt_pack_next_generation(pack, first);
		lay_to_rest(pack, first, nr, release->many ? pack : NULL);
		return;
	}
	shunt_bit_clear(&pack->space, SHUNT_BIT_BATCH, first);
	give_chunks(pack, first, nr, release->many);
}

static void release_batch(struct shunt_pack *pack)
{
	struct shunt_rest *rest = &pack->arena->rest;
	uint32_t nr = count_batch(pack);
	struct release release = { .many = pack->nr_slots == 1 && nr > MANY };

	if (pack->closing) {
		/* Not block by block: nothing of it is left. */
		pack->arena->chunks_pending -= pack->chunks_dying;
		pack->chunks_dying = 0;
		pack->nr_dying = 0;
		return;
	}
	if (release.many && rest->ring && nr > rest->size) {
		wake_oldest(pack->arena, pack, rest->nr);
		release.nr_over = nr - rest->size;
	}
	each_in_batch(pack, release_block, &release);
	if (release.many)
		shunt_space_give_done(&pack->space);
	if (pack->emptying) {
		pack->emptying = false;
		pack->shelf->nr_emptying--;
	}
	shunt_pack_place(pack);
}

/* May run again in a fork's child that found it half done: the lock makes it all or nothing. */
static void release(struct shunt_grace_item *grace_item)
{
	struct shunt_pack *pack = item_of(grace_item)->pack;
	struct shunt_arena *arena = pack->arena;

	shunt_arena_lock_mutate(arena);
	if (pack->segment != SHUNT_SEGMENT_CODE && !pack->closing)
		fill_batch(pack);
	release_batch(pack);
	item_of(grace_item)->state = SHUNT_ITEM_IDLE;
	if (pack->nr_dying)
		queue_item(pack);
	retire_if_empty(pack);
	shunt_grace_settle();
	pthread_mutex_unlock(&arena->lock);
}

void shunt_pack_item_init(struct shunt_pack *pack)
{
	for (int i = 0; i < 2; i++) {
		struct shunt_pack_item *item = &pack->items[i];

		item->pack = pack;
		item->state = SHUNT_ITEM_IDLE;
		item->item.collect = collect;
		item->item.retire = retire;
		item->item.release = release;
		item->item.restartable = true;
		item->item.code = pack->segment == SHUNT_SEGMENT_CODE;
	}
}

int shunt_arena_drop_rw(struct shunt_arena *arena)
{
	int err = arena ? 0 : shunt_arena_default(&arena);

	if (err)
		return err;
	shunt_arena_lock_mutate(arena);
	if (arena->toggle) {
		pthread_mutex_unlock(&arena->lock);
		return shunt_fail(ENOTSUP, "arena %p has no rw views to take away: finalized code is not writable there", (void *)arena);
	}
	for (uint32_t slot = 0; !err && slot < arena->nr_slots; slot++) {
		struct shunt_pack *pack = arena->slots[slot];

		if (!pack || pack->first_slot != slot || pack->segment == SHUNT_SEGMENT_DATA || pack->frozen || pack->closing)
			continue;
		if (shunt_pack_is_open(pack))
			shunt_pack_close(pack->shelf);
		err = shunt_backing_drop_rw(pack->rw, pack->nr_slots * SHUNT_PACK_SIZE);
		if (err)
			break;
		pack->frozen = true;
		if (pack->nr_slots == 1)
			shunt_room_place(&pack->shelf->room, &pack->room, 0);
	}
	pthread_mutex_unlock(&arena->lock);
	return err ? shunt_fail(-err, "arena %p: taking away the rw view of a pack failed: %s", (void *)arena, strerror(-err)) : 0;
}

/* The block leaves the live ones. */
static void count_gone(struct shunt_pack *pack, uint32_t nr)
{
	pack->nr_live--;
	pack->arena->nr_blocks[pack->segment]--;
	pack->arena->chunks_used[pack->segment] -= nr;
}

/* So many in the time for which a batch gathers are worth gathering on. */
#define FREED_FAST 1024u

int shunt_pack_free(const struct shunt_block *block)
{
	struct shunt_pack_ref ref;
	struct shunt_pack *pack;
	int err = shunt_pack_lock_block("free", block, false, &ref);

	if (err)
		return err;
	pack = ref.pack;
	count_gone(pack, ref.nr);
	shunt_bit_set(&pack->space, SHUNT_BIT_DYING, ref.first);
	pack->nr_dying++;
	pack->chunks_dying += ref.nr;
	ref.arena->chunks_pending += ref.nr;
	queue_item(pack);
	if (++ref.arena->nr_freed % FREED_FAST == 0)
		shunt_grace_grows();
	shunt_names_forget(block->rx);
	pthread_mutex_unlock(&ref.arena->lock);
	return 0;
}

void shunt_pack_take_back(struct shunt_pack *pack, uint32_t first, uint32_t nr)
{
	count_gone(pack, nr);
	give_chunks(pack, first, nr, false);
	shunt_pack_place(pack);
	retire_if_empty(pack);
}

int shunt_pack_abandon(const struct shunt_block *block)
{
	struct shunt_pack_ref ref;
	int err = shunt_pack_lock_block("abandon", block, true, &ref);

	if (err)
		return err;
	shunt_names_forget(block->rx);
	if (shunt_unwind_is_used()) {
		shunt_unwind_forget(block->rx);
		shunt_unwind_settle(ref.pack->rx);
	}
	shunt_pack_fill_unused(ref.pack, ref.first, ref.nr);
	shunt_pack_take_back(ref.pack, ref.first, ref.nr);
	pthread_mutex_unlock(&ref.arena->lock);
	return 0;
}
