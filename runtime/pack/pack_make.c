/* SPDX-License-Identifier: MIT */
/* The packs in an arena's slots: made, kept empty in reserve, given back. Expected load: one per some thousands of programs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/pack/arena.h"
#include "runtime/flush.h"
#include "runtime/log.h"
#include "runtime/machine.h"
#include "targets/target.h"

/* First fit over the slots; a pack a some thousand programs, so a scan is nothing. */
static uint32_t find_slots(const struct shunt_arena *arena, uint32_t nr)
{
	uint32_t run = 0;

	for (uint32_t slot = 0; slot < arena->nr_slots; slot++) {
		run = arena->slots[slot] ? 0 : run + 1;
		if (run == nr)
			return slot + 1 - nr;
	}
	return UINT32_MAX;
}

static void unmake(struct shunt_pack *pack);

/* Gives back the empty packs in reserve: others want their slots. */
static void unmake_reserve(struct shunt_arena *arena)
{
	for (uint32_t slot = 0; slot < arena->nr_slots; slot++) {
		struct shunt_pack *pack = arena->slots[slot];

		if (pack && !pack->nr_live && !pack->nr_dying && shunt_pack_is_idle(pack))
			unmake(pack);
	}
}

/* Two views are denied for good, and none were had before: the arena's packs have one from now on. */
static bool toggle_from_now_on(struct shunt_arena *arena, const struct shunt_backing_failure *failure)
{
	static const int denials[] = { EPERM, EACCES, ENOSYS, EINVAL, EOPNOTSUPP, ENODEV };
	bool is_denied = false;

	for (size_t i = 0; i < sizeof(denials) / sizeof(denials[0]); i++)
		is_denied |= failure->err == denials[i];
	if (!is_denied || arena->toggle || arena->nr_packs[SHUNT_SEGMENT_CODE] || arena->nr_packs[SHUNT_SEGMENT_RODATA])
		return false;
	shunt_logf(SHUNT_LOG_WARN, "arena %p: this system denies memory a second view (%s failed: %s); every block has pages of its own, writable until it is finalized",
		   (void *)arena, failure->step, strerror(failure->err));
	arena->toggle = true;
	arena->debug = false;
	return true;
}

/* Unused bytes of a new pack. */
static int fill_new(struct shunt_pack *pack, struct shunt_backing_failure *failure)
{
	size_t len = pack->nr_slots * SHUNT_PACK_SIZE;
	int err;

	if (pack->segment != SHUNT_SEGMENT_CODE)
		return 0;
	shunt_target_host()->fill_traps(pack->rw, len);
	if (!shunt_pack_toggles(pack)) {
		shunt_machine_sync_caches(pack->rx, pack->rw, len);
		return 0;
	}
	shunt_machine_maintain(pack->rx, pack->rx, len);
	err = shunt_pack_close_pages(pack, 0, pack->nr_slots * SHUNT_PACK_CHUNKS);
	if (err) {
		failure->step = "making a new pack's pages executable";
		failure->err = -err;
	}
	return err;
}

int shunt_pack_make(struct shunt_arena *arena, enum shunt_segment segment, uint32_t node, uint32_t nr_slots, struct shunt_pack **out,
		    struct shunt_backing_failure *failure)
{
	uint32_t first = find_slots(arena, nr_slots);
	struct shunt_backing_spec spec = { 0 };
	struct shunt_pack *pack;
	int err;

	failure->step = NULL;
	if (first == UINT32_MAX) {
		unmake_reserve(arena);
		first = find_slots(arena, nr_slots);
	}
	if (first == UINT32_MAX)
		return -ENOMEM;
	pack = calloc(1, sizeof(*pack));
	if (!pack) {
		failure->step = "allocating bookkeeping";
		failure->err = ENOMEM;
		return -ENOMEM;
	}
	spec.rx = arena->base + first * SHUNT_PACK_SIZE;
	spec.rw = segment == SHUNT_SEGMENT_DATA || arena->toggle ? spec.rx : arena->rw_base + first * SHUNT_PACK_SIZE;
	spec.len = nr_slots * SHUNT_PACK_SIZE;
	spec.exec = segment == SHUNT_SEGMENT_CODE;
	spec.huge = arena->huge;
	spec.hugetlb = arena->hugetlb;
	spec.anon = arena->anon;
	spec.guard = arena->guard;
	spec.debug = arena->debug;
	spec.toggle = arena->toggle;
	spec.node = arena->nr_nodes > 1 ? arena->nodes[node] : SHUNT_NODE_ANY;
	err = shunt_backing_make(&spec, &pack->made, failure);
	if (err) {
		free(pack);
		/* The caller sees that the arena toggles now, and asks again for whole pages. */
		if (segment != SHUNT_SEGMENT_DATA)
			toggle_from_now_on(arena, failure);
		return err;
	}
	pack->arena = arena;
	pack->segment = segment;
	pack->node = node;
	pack->shelf = shunt_shelf_of(arena, node, segment);
	pack->first_slot = first;
	pack->nr_slots = nr_slots;
	pack->rx = spec.rx;
	pack->rw = spec.rw;
	pack->serial = arena->next_serial++;
	shunt_pack_item_init(pack);
	err = fill_new(pack, failure);
	if (err) {
		/* Where it cannot be unmapped either, it is mapped over by the next pack. */
		shunt_backing_unmake(pack->rx, pack->rw, spec.len);
		free(pack);
		return err;
	}
	shunt_space_init(&pack->space);
	for (uint32_t slot = first; slot < first + nr_slots; slot++)
		arena->slots[slot] = pack;
	arena->nr_packs[segment]++;
	arena->nr_slots_used[segment] += nr_slots;
	pack->shelf->nr_empty++;
	if (segment != SHUNT_SEGMENT_DATA)
		arena->newest = pack->made.backing;
	if (nr_slots == 1)
		shunt_room_place(&pack->shelf->room, &pack->room, SHUNT_PACK_CHUNKS);
	*out = pack;
	return 0;
}

/* Nothing refers to a pack without blocks, so a new serial makes all its generations new. */
static void make_new(struct shunt_pack *pack)
{
	struct shunt_arena *arena = pack->arena;

	if (shunt_pack_is_open(pack))
		shunt_pack_close(pack->shelf);
	pack->serial = arena->next_serial++;
	pack->nr_worn = 0;
	pack->large_chunks = 0;
	memset(pack->generation, 0, sizeof(pack->generation));
	shunt_space_init(&pack->space);
	if (pack->nr_slots == 1 && !pack->frozen)
		shunt_room_place(&pack->shelf->room, &pack->room, SHUNT_PACK_CHUNKS);
}

/* The pack was to go unfilled, and stays. */
static void keep_closing(struct shunt_pack *pack)
{
	if (!pack->closing)
		return;
	pack->closing = false;
	shunt_pack_fill_unused(pack, 0, pack->nr_slots * SHUNT_PACK_CHUNKS);
	/* A failure was reported; CPUs that have to be told of new code cannot have run any here then. */
	(void)shunt_sync_core();
	make_new(pack);
}

static void unmake(struct shunt_pack *pack)
{
	struct shunt_arena *arena = pack->arena;

	if (shunt_pack_is_open(pack))
		shunt_pack_close(pack->shelf);
	/* Where the system refuses to give a mapping back, the pack stays as an empty one. */
	if (shunt_backing_unmake(pack->rx, pack->rw, pack->nr_slots * SHUNT_PACK_SIZE) != 0) {
		keep_closing(pack);
		return;
	}
	shunt_room_place(&pack->shelf->room, &pack->room, 0);
	for (uint32_t slot = pack->first_slot; slot < pack->first_slot + pack->nr_slots; slot++)
		arena->slots[slot] = NULL;
	arena->nr_packs[pack->segment]--;
	arena->nr_slots_used[pack->segment] -= pack->nr_slots;
	pack->shelf->nr_empty--;
	free(pack);
}

void shunt_pack_retire_empty(struct shunt_pack *pack)
{
	pack->shelf->nr_empty++;
	if (pack->nr_slots > 1 || pack->frozen || pack->closing || pack->shelf->nr_empty > 1) {
		unmake(pack);
		return;
	}
	if (pack->nr_worn)
		make_new(pack);
}
