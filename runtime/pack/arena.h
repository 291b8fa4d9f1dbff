/* SPDX-License-Identifier: MIT */
/*
 * Arenas and packs inside the runtime.
 *
 *	registry lock   guards the list of arenas; held only to find one and take its lock
 *	arena->lock     guards everything of an arena and its packs, bytes of dying and free chunks included
 *	order           patch lock -> registry lock -> arena locks in list order -> the grace queue's
 *
 * Live blocks' bytes belong to their users. A fork takes all of these locks (pack_fork.c).
 */
#ifndef RUNTIME_ARENA_H
#define RUNTIME_ARENA_H

#include <pthread.h>
#include <shunt/pack.h>

#include "runtime/pack/backing.h"
#include "runtime/grace.h"
#include "runtime/pack/pack_room.h"
#include "runtime/pack/pack_space.h"

/* A grace item of a pack. Two a pack: one may be in the batch that waits for readers while the other collects later frees. */
struct shunt_pack_item {
	struct shunt_grace_item item;
	struct shunt_pack *pack;
	enum { SHUNT_ITEM_IDLE, SHUNT_ITEM_QUEUED, SHUNT_ITEM_BATCH } state;
};

struct shunt_pack {
	struct shunt_arena *arena;
	enum shunt_segment segment;
	uint32_t node;         /* index into the arena's */
	struct shunt_shelf *shelf;
	uint32_t first_slot;
	uint32_t nr_slots;     /* above 1: one block larger than a pack */
	char *rx;
	char *rw;
	struct shunt_backing_made made;
	char *snapshot;        /* pack_fork.c's: what the rx view held when the fork in progress began; NULL: it holds that itself */
	bool frozen;           /* lost its rw view in a fork's child: blocks run and may be freed, nothing is written or reused */
	uint64_t serial;       /* part of every id; never used twice in an arena */
	uint32_t nr_live;
	uint32_t nr_dying;     /* freed, not yet released */
	uint32_t chunks_dying;
	uint32_t nr_worn;      /* chunks whose generations are used up */
	bool emptying;         /* is counted in nr_emptying */
	bool closing;          /* all of it is dead, and it goes back to the system unfilled: nothing is allocated in it */
	uint32_t large_chunks; /* length of the block when nr_slots > 1 and it is live or dying */
	struct shunt_room_link room;
	struct shunt_pack_item items[2];
	struct shunt_pack_space space;
	/* Of the block that begins here, live or next: with the serial it makes an id unique. WORN: never again. Read by shunt_pack_generation. */
	uint16_t generation[SHUNT_PACK_CHUNKS];
};
#define SHUNT_GENERATION_WORN UINT16_MAX

/* Most blocks are the first at their place: then one line of bits says all, and none of the 64 KiB of generations is touched. */
static inline uint16_t shunt_pack_generation(const struct shunt_pack *pack, uint32_t first)
{
	return shunt_bit_is_set(&pack->space, SHUNT_BIT_REUSED, first) ? pack->generation[first] : 0;
}

/* The id of the block that began here is not given out again. */
static inline uint16_t shunt_pack_next_generation(struct shunt_pack *pack, uint32_t first)
{
	shunt_bit_set(&pack->space, SHUNT_BIT_REUSED, first);
	return ++pack->generation[first];
}

struct shunt_pack_dup;

/* A free run that small blocks are cut from in turn, so that most allocations touch no tree of free runs. Its chunks are marked used,
 * and are nobody's. One a shelf. */
struct shunt_pack_open {
	struct shunt_pack *pack; /* NULL: none */
	uint32_t next;
	uint32_t end;
};

/* The packs of a segment on a node. */
struct shunt_shelf {
	struct shunt_room room;
	struct shunt_pack_open open;
	uint32_t nr_empty;
	uint32_t nr_emptying; /* will be empty when the batch in progress is released, if nothing is allocated there */
};

/* A block that was freed and filled, and is not handed out again yet. */
struct shunt_rest_entry {
	uint64_t serial; /* of its pack; another one is there now when it differs */
	uint32_t slot;
	uint16_t first;
	uint16_t nr;     /* chunks, at most a pack of them */
};

/* First in, first out; as many as there is room for, and no more chunks than max_chunks. */
struct shunt_rest {
	struct shunt_rest_entry *ring; /* NULL: nothing rests */
	uint32_t size;
	uint32_t head; /* the oldest */
	uint32_t nr;
	uint64_t chunks;
	uint64_t max_chunks;
};

struct shunt_arena {
	/* These six outlive the arena: its memory is kept for another one, so that who looks for an address may look at it without a lock.
	 * Both ranges are written with atomic stores; who has the lock sees an arena that is there, or one without ranges. */
	struct shunt_arena *next;  /* registry's, or of those that are no more */
	struct shunt_arena *older; /* made before this one; constant */
	pthread_mutex_t lock;
	char *base;
	char *rw_base;             /* the rw view of an rx address lies at the same offset here */
	size_t size;

	uint32_t nr_slots;
	bool huge;
	bool hugetlb;
	bool anon;
	bool guard;
	bool debug;
	bool toggle;              /* changes once, before the arena's first pack, when the system denies two views */
	bool random_start;
	uint64_t random_state;
	struct shunt_pack **slots; /* owner of each 2 MiB, by range; all slots of a large block name its pack */
	struct shunt_shelf *shelves; /* of each node, one for each segment */
	uint32_t nr_nodes;           /* 1 where the process may have memory on one only */
	uint8_t nodes[SHUNT_NODES_MAX]; /* the system's numbers */
	uint64_t next_serial;
	uint64_t nr_packs[SHUNT_NR_SEGMENTS];
	uint64_t nr_slots_used[SHUNT_NR_SEGMENTS];
	uint64_t nr_blocks[SHUNT_NR_SEGMENTS];
	uint64_t chunks_used[SHUNT_NR_SEGMENTS];
	uint64_t chunks_pending;
	uint32_t nr_freed;         /* ever; wraps */
	struct shunt_rest rest;
	enum shunt_backing newest;
	struct shunt_pack_dup *dups; /* pack_dup.c */
	/* Of an arena that is no more, until the system takes them back. */
	char *left_base;
	char *left_rw_base;
	size_t left_size;
};

/* A free range of len bytes from which every byte of the image around near_addr is within reach, nearest first; 0 and *out, which
 * is reserved, or a negative errno and what failed in *step: -ENOMEM and NULL when there is no such range. */
int shunt_arena_range_reserve(const void *near_addr, size_t len, uint64_t reach, void **out, const char **step);

/* The arena that has addr in either view, locked; NULL when none has. */
struct shunt_arena *shunt_arena_lock_owner(const void *addr);
/* Takes arena's lock for changing bytes that a fork's child may still be copying: waits for such children first. */
void shunt_arena_lock_mutate(struct shunt_arena *arena);
/* As shunt_arena_lock_owner, and as shunt_arena_lock_mutate. */
struct shunt_arena *shunt_arena_lock_owner_mutate(const void *addr);

/* For forks: the registry's lock, then every arena's; and the list while they are held. */
void shunt_arena_lock_all(void);
void shunt_arena_unlock_all(void);
struct shunt_arena *shunt_arena_first(void);

/* The rest is called with the arena's lock held. */

static inline struct shunt_shelf *shunt_shelf_of(struct shunt_arena *arena, uint32_t node, enum shunt_segment segment)
{
	return &arena->shelves[node * SHUNT_NR_SEGMENTS + segment];
}

/* Puts the pack on its shelf where its longest free run says, after that changed. */
void shunt_pack_place(struct shunt_pack *pack);
/* Gives back what is left of the open run. */
void shunt_pack_close(struct shunt_shelf *shelf);
/* Gives nr chunks before the beginning of the pack's open run, from first, back to it. */
void shunt_pack_uncut(struct shunt_pack *pack, uint32_t first, uint32_t nr);
static inline bool shunt_pack_is_open(const struct shunt_pack *pack)
{
	return pack->shelf->open.pack == pack;
}

/* Makes a pack of nr_slots contiguous slots, with its memory on a node. 0, -ENOMEM with failure->step NULL when no slots are free, or backing's error. */
int shunt_pack_make(struct shunt_arena *arena, enum shunt_segment segment, uint32_t node, uint32_t nr_slots, struct shunt_pack **out,
		    struct shunt_backing_failure *failure);
/* For a pack that just became empty: gives it back to the system, or keeps it as the one in reserve. */
void shunt_pack_retire_empty(struct shunt_pack *pack);

/* Every block of code or rodata has pages of its own. */
static inline bool shunt_arena_has_whole_pages(const struct shunt_arena *arena)
{
	return arena->debug || arena->toggle;
}
/* Its code and rodata have one view, in pages that are written first and run later. */
static inline bool shunt_pack_toggles(const struct shunt_pack *pack)
{
	return pack->made.backing == SHUNT_BACKING_TOGGLE && pack->segment != SHUNT_SEGMENT_DATA;
}
/* Makes the pages of a block that nobody runs writable, or those of a written one what its segment is. 0, or mprotect's error. Without
 * effect where there are two views. */
int shunt_pack_open_pages(struct shunt_pack *pack, uint32_t first, uint32_t nr);
int shunt_pack_close_pages(struct shunt_pack *pack, uint32_t first, uint32_t nr);
/* All blocks that rest become free: there is no other room. True when there were any. */
bool shunt_pack_rest_end(struct shunt_arena *arena);
/* A live block becomes free at once, its bytes as they are. */
void shunt_pack_take_back(struct shunt_pack *pack, uint32_t first, uint32_t nr);

/* Fills chunks with what unused bytes are: traps, or zeroes; with cache maintenance for code. */
void shunt_pack_fill_unused(struct shunt_pack *pack, uint32_t first, uint32_t nr);
/* In an arena for debuggers: pages that they wrote to show again what was written at rw. 0, or madvise's error. */
int shunt_pack_show_written(struct shunt_pack *pack, uint32_t first, uint32_t nr);
void shunt_pack_item_init(struct shunt_pack *pack);
/* No grace item of the pack is on its way. */
bool shunt_pack_is_idle(const struct shunt_pack *pack);

/* The pack and chunk that addr (either view) is in; NULL when none. */
struct shunt_pack *shunt_pack_at(struct shunt_arena *arena, const void *addr, uint32_t *chunk);
/* The block that chunk is in, if it is neither free nor worn out; *dying says whether it was freed. */
bool shunt_pack_block_at(const struct shunt_pack *pack, uint32_t chunk, uint32_t *first, uint32_t *nr, bool *dying);
void shunt_pack_describe(const struct shunt_pack *pack, uint32_t first, uint32_t nr, struct shunt_block *out);

/* A live block, by its handle. */
struct shunt_pack_ref {
	struct shunt_arena *arena;
	struct shunt_pack *pack;
	uint32_t first;
	uint32_t nr;
};

/* Finds block and takes its arena's lock, as shunt_arena_lock_mutate does when it is to change (mutate). 0, or -EINVAL with the sentence
 * "VERB: block ADDR ..." and no lock. Called without locks. */
int shunt_pack_lock_block(const char *verb, const struct shunt_block *block, bool mutate, struct shunt_pack_ref *out);

/* Finds a block by its handle. NULL, or why the handle is refused: the end of a sentence "block ADDR ...". */
const char *shunt_pack_check(struct shunt_arena *arena, const struct shunt_block *block, struct shunt_pack **pack, uint32_t *first,
			     uint32_t *nr);

/* pack_dup.c */
void shunt_pack_dups_remake(struct shunt_arena *arena);
void shunt_pack_dups_forget(struct shunt_arena *arena);
uint64_t shunt_pack_dups_bytes(const struct shunt_arena *arena);

#endif
