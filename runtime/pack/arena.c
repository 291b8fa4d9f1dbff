/* SPDX-License-Identifier: MIT */
/*
 * Arenas: the registry, creation and destruction. Expected load: one or two arenas a process, a lookup per free.
 */
#include "runtime/pack/arena.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "runtime/dispatch/adopt.h"
#include "runtime/pack/backing_sys.h"
#include "runtime/flush.h"
#include "runtime/log.h"
#include "runtime/machine.h"
#include "runtime/pack/pack.h"
#include "targets/target.h"

#define DEFAULT_SIZE_MIN ((size_t)64 << 20)
/* Of an arena's room, so much rests at most. */
#define REST_PART 16
#define REST_MAX (1u << 20)
/* Costs 1 % of a free and an allocation; random starts cost 3 to 10 and are therefore an option. */
#define REST_DEFAULT 1024u

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct shunt_arena *registry;
static struct shunt_arena *newest;    /* of all that were ever made */
static struct shunt_arena *spare;     /* no more, for the next one */
static struct shunt_arena *leftovers; /* no more, but for their ranges */
/* The one that had the last address looked for outside of the default arena. A hint: to be asked again with its lock. */
static struct shunt_arena *recent;
/* Written once, never destroyed: found without the registry's lock. */
static struct shunt_arena *default_arena;
static pthread_mutex_t default_lock = PTHREAD_MUTEX_INITIALIZER;

static bool arena_has(const struct shunt_arena *arena, const void *addr)
{
	uintptr_t base = (uintptr_t)__atomic_load_n(&arena->base, __ATOMIC_RELAXED);
	uintptr_t rw_base = (uintptr_t)__atomic_load_n(&arena->rw_base, __ATOMIC_RELAXED);
	size_t size = __atomic_load_n(&arena->size, __ATOMIC_RELAXED);

	return (uintptr_t)addr - base < size || (uintptr_t)addr - rw_base < size;
}

struct shunt_arena *shunt_arena_lock_owner(const void *addr)
{
	struct shunt_arena *arena = __atomic_load_n(&default_arena, __ATOMIC_ACQUIRE);

	if (arena && arena_has(arena, addr)) {
		pthread_mutex_lock(&arena->lock);
		return arena;
	}
	arena = __atomic_load_n(&recent, __ATOMIC_ACQUIRE);
	if (arena && arena_has(arena, addr)) {
		pthread_mutex_lock(&arena->lock);
		if (arena_has(arena, addr))
			return arena;
		pthread_mutex_unlock(&arena->lock);
	}
	pthread_mutex_lock(&registry_lock);
	for (arena = registry; arena && !arena_has(arena, addr);)
		arena = arena->next;
	if (arena) {
		pthread_mutex_lock(&arena->lock);
		__atomic_store_n(&recent, arena, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&registry_lock);
	return arena;
}

void shunt_arena_lock_mutate(struct shunt_arena *arena)
{
	for (;;) {
		shunt_fork_wait();
		pthread_mutex_lock(&arena->lock);
		/* A fork takes this lock, so none can begin to copy while it is held. */
		if (!shunt_fork_is_copying())
			return;
		pthread_mutex_unlock(&arena->lock);
	}
}

struct shunt_arena *shunt_arena_lock_owner_mutate(const void *addr)
{
	for (;;) {
		struct shunt_arena *arena;

		shunt_fork_wait();
		arena = shunt_arena_lock_owner(addr);
		if (!arena || !shunt_fork_is_copying())
			return arena;
		pthread_mutex_unlock(&arena->lock);
	}
}

void shunt_arena_lock_all(void)
{
	pthread_mutex_lock(&registry_lock);
	/* Those too that are no more: somebody may be finding that out. */
	for (struct shunt_arena *arena = newest; arena; arena = arena->older)
		pthread_mutex_lock(&arena->lock);
}

void shunt_arena_unlock_all(void)
{
	for (struct shunt_arena *arena = newest; arena; arena = arena->older)
		pthread_mutex_unlock(&arena->lock);
	pthread_mutex_unlock(&registry_lock);
}

struct shunt_arena *shunt_arena_first(void)
{
	return registry;
}

void *shunt_pack_rw(const void *rx)
{
	struct shunt_arena *arena = __atomic_load_n(&default_arena, __ATOMIC_ACQUIRE);
	bool locked = !arena || !arena_has(arena, rx);
	struct shunt_pack *pack;
	uint32_t chunk;
	void *rw = NULL;

	/* A slot does not change while a block lives in it, so only finding another arena needs a lock. */
	if (locked)
		arena = shunt_arena_lock_owner(rx);
	if (!arena)
		return NULL;
	pack = shunt_pack_at(arena, rx, &chunk);
	if (pack)
		rw = pack->rw + ((const char *)rx - pack->rx);
	if (locked)
		pthread_mutex_unlock(&arena->lock);
	return rw;
}

/* Ranges that the system did not take back when their arena went. */
static bool unmap_ranges(struct shunt_arena *arena)
{
	if (arena->left_rw_base && shunt_sys.munmap(arena->left_rw_base, arena->left_size) == 0)
		arena->left_rw_base = NULL;
	if (arena->left_base && shunt_sys.munmap(arena->left_base, arena->left_size) == 0)
		arena->left_base = NULL;
	return !arena->left_rw_base && !arena->left_base;
}

static void set_ranges(struct shunt_arena *arena, char *base, char *rw_base, size_t size)
{
	__atomic_store_n(&arena->base, base, __ATOMIC_RELAXED);
	__atomic_store_n(&arena->rw_base, rw_base, __ATOMIC_RELAXED);
	__atomic_store_n(&arena->size, size, __ATOMIC_RELAXED);
}

/* Nobody finds the arena by an address any more; with its lock, where somebody may have. */
static void leave_ranges(struct shunt_arena *arena)
{
	arena->left_base = arena->base;
	arena->left_rw_base = arena->rw_base;
	arena->left_size = arena->size;
	set_ranges(arena, NULL, NULL, 0);
	free(arena->rest.ring);
	free(arena->shelves);
	arena->rest.ring = NULL;
	free(arena->slots);
	arena->slots = NULL;
}

/* Memory for an arena, zeroed but for what outlives arenas. */
static struct shunt_arena *arena_alloc(void)
{
	size_t kept = offsetof(struct shunt_arena, nr_slots);
	struct shunt_arena *arena;

	pthread_mutex_lock(&registry_lock);
	arena = spare;
	if (arena) {
		spare = arena->next;
		memset((char *)arena + kept, 0, sizeof(*arena) - kept);
	} else {
		arena = calloc(1, sizeof(*arena));
		if (arena) {
			pthread_mutex_init(&arena->lock, NULL);
			arena->older = newest;
			newest = arena;
		}
	}
	pthread_mutex_unlock(&registry_lock);
	return arena;
}

/* Its ranges are left behind. What cannot be unmapped now (a process at its limit of mappings cannot cut one in two) is kept, and
 * tried again when another arena comes or goes. */
static void arena_free(struct shunt_arena *arena)
{
	struct shunt_arena *left;

	pthread_mutex_lock(&registry_lock);
	left = leftovers;
	leftovers = NULL;
	arena->next = left;
	for (left = arena; left;) {
		arena = left;
		left = arena->next;
		if (unmap_ranges(arena)) {
			arena->next = spare;
			spare = arena;
		} else {
			arena->next = leftovers;
			leftovers = arena;
		}
	}
	pthread_mutex_unlock(&registry_lock);
}

/* The nodes that this process may have memory on. Where the system does not say, or there is one: one, and nothing is asked of it later. */
static void find_nodes(struct shunt_arena *arena)
{
	uint64_t mask = 0;

	if (shunt_sys.nodes_allowed(&mask) == 0)
		for (uint8_t node = 0; node < SHUNT_NODES_MAX; node++)
			if (mask >> node & 1)
				arena->nodes[arena->nr_nodes++] = node;
	if (arena->nr_nodes < 2) {
		arena->nr_nodes = 1;
		arena->nodes[0] = mask ? (uint8_t)__builtin_ctzll(mask) : 0;
	}
}

/* 0 or a negative errno without a sentence, since the default arena tries smaller sizes; *step is what failed, NULL: no range is free. */
static int arena_make(const struct shunt_arena_options *options, size_t size, struct shunt_arena **out, const char **step)
{
	struct shunt_arena *arena = arena_alloc();
	const void *near_addr = options->near_addr ? options->near_addr : (const void *)(uintptr_t)&shunt_arena_create;
	char *base = NULL;
	void *p;
	int err;

	*step = "allocating bookkeeping";
	if (!arena)
		return -ENOMEM;
	arena->nr_slots = (uint32_t)(size / SHUNT_PACK_SIZE);
	arena->huge = !options->no_huge;
	arena->hugetlb = options->hugetlb && !options->no_huge;
	arena->anon = options->anon;
	arena->guard = !options->no_guard;
	arena->toggle = options->toggle;
	arena->debug = options->debug && !options->toggle;
	arena->newest = options->toggle ? SHUNT_BACKING_TOGGLE : SHUNT_BACKING_MEMFD_NOEXEC_SEAL;
	arena->random_start = options->random_start;
	/* Of no use to who guesses addresses: the kernel's own, and where there is none the address space's randomness. */
	if (shunt_sys.getrandom(&arena->random_state, sizeof(arena->random_state), GRND_NONBLOCK) != (ssize_t)sizeof(arena->random_state))
		arena->random_state = (uintptr_t)arena;
	arena->random_state |= 1;
	arena->next_serial = 1;
	arena->slots = calloc(arena->nr_slots, sizeof(struct shunt_pack *));
	find_nodes(arena);
	arena->shelves = calloc(arena->nr_nodes * SHUNT_NR_SEGMENTS, sizeof(*arena->shelves));
	err = arena->slots && arena->shelves ? 0 : -ENOMEM;
	if (!err && options->rest != SHUNT_REST_NONE) {
		arena->rest.size = options->rest ? options->rest : REST_DEFAULT;
		arena->rest.max_chunks = (uint64_t)arena->nr_slots * SHUNT_PACK_CHUNKS / REST_PART;
		arena->rest.ring = calloc(arena->rest.size, sizeof(*arena->rest.ring));
		err = arena->rest.ring ? 0 : -ENOMEM;
	}
	if (!err)
		err = shunt_arena_range_reserve(near_addr, size, (uint64_t)shunt_target_host()->branch_reach, &p, step);
	if (!err) {
		base = p;
		*step = "reserving as much for writable views";
		err = shunt_backing_reserve(shunt_machine_far_hint(size), false, size, &p);
	}
	if (err) {
		arena->left_base = base;
		arena->left_size = size;
		free(arena->rest.ring);
		free(arena->shelves);
		free(arena->slots);
		arena_free(arena);
		return err;
	}
	pthread_mutex_lock(&registry_lock);
	pthread_mutex_lock(&arena->lock);
	set_ranges(arena, base, p, size);
	pthread_mutex_unlock(&arena->lock);
	arena->next = registry;
	registry = arena;
	pthread_mutex_unlock(&registry_lock);
	*out = arena;
	return 0;
}

static int fail_range(const char *what, const struct shunt_arena_options *options, size_t size, const char *step, int err)
{
	const void *near_addr = options->near_addr ? options->near_addr : (const void *)(uintptr_t)&shunt_arena_create;

	if (!step)
		return shunt_fail(-err, "%s: no free range of %zu bytes within %" PRId64 " bytes of %p; ask for a smaller one", what, size,
				  shunt_target_host()->branch_reach, near_addr);
	return shunt_fail(-err, "%s: no free range of %zu bytes near %p: %s failed: %s; ask for a smaller one", what, size, near_addr, step,
			  strerror(-err));
}

int shunt_arena_create(const struct shunt_arena_options *options, struct shunt_arena **out)
{
	static const struct shunt_arena_options defaults;
	const struct shunt_target *target = shunt_target_host();
	const char *step;
	size_t size;
	int err;

	if (!options)
		options = &defaults;
	size = options->size ? options->size : (size_t)target->default_arena;
	if (size % SHUNT_PACK_SIZE)
		return shunt_fail(EINVAL, "arena: size %zu is not a multiple of %zu bytes", size, SHUNT_PACK_SIZE);
	if (size > (uint64_t)target->branch_reach / 2)
		return shunt_fail(EINVAL, "arena: size %zu is more than %" PRId64 " bytes, half the reach of a direct branch on %s", size,
				  target->branch_reach / 2, target->name);
	if (options->rest > REST_MAX && options->rest != SHUNT_REST_NONE)
		return shunt_fail(EINVAL, "arena: %u blocks that rest are more than %u", options->rest, REST_MAX);
	shunt_fork_init();
	err = arena_make(options, size, out, &step);
	return err ? fail_range("arena", options, size, step, err) : 0;
}

int shunt_arena_default(struct shunt_arena **out)
{
	/* Beside the image whose stubs jump into it, when the host defines dispatchers in its text; else beside libshunt. */
	struct shunt_arena_options defaults = { .near_addr = shunt_adopt_near_addr() };
	size_t wanted = (size_t)shunt_target_host()->default_arena;
	struct shunt_arena *arena = __atomic_load_n(&default_arena, __ATOMIC_ACQUIRE);
	size_t size = wanted;
	const char *step;
	int err = 0;

	if (arena) {
		*out = arena;
		return 0;
	}
	shunt_fork_init();
	pthread_mutex_lock(&default_lock);
	arena = default_arena;
	while (!arena) {
		err = arena_make(&defaults, size, &arena, &step);
		if (!err || size <= DEFAULT_SIZE_MIN)
			break;
		size /= 2;
	}
	if (!err)
		__atomic_store_n(&default_arena, arena, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&default_lock);
	if (err)
		return fail_range("default arena", &defaults, size, step, err);
	if (size != wanted)
		shunt_logf(SHUNT_LOG_WARN, "default arena: %zu bytes instead of %zu, no larger range is free near the host's stubs or libshunt", size, wanted);
	*out = arena;
	return 0;
}

int shunt_arena_destroy(struct shunt_arena *arena)
{
	struct shunt_arena **link;
	uint64_t nr_live = 0;
	uint64_t pending;
	bool busy = false;

	pthread_mutex_lock(&registry_lock);
	for (link = &registry; *link && *link != arena;)
		link = &(*link)->next;
	if (!*link || arena == default_arena) {
		pthread_mutex_unlock(&registry_lock);
		return shunt_fail(EINVAL, "arena %p is %s", (void *)arena,
				  *link ? "the default arena, which lives as long as the process" : "not an arena, or was destroyed already");
	}
	pthread_mutex_lock(&arena->lock);
	for (int segment = 0; segment < SHUNT_NR_SEGMENTS; segment++)
		nr_live += arena->nr_blocks[segment];
	pending = arena->chunks_pending * SHUNT_CHUNK_SIZE;
	for (uint32_t slot = 0; slot < arena->nr_slots; slot++)
		if (arena->slots[slot] && !shunt_pack_is_idle(arena->slots[slot]))
			busy = true;
	if (nr_live || busy) {
		pthread_mutex_unlock(&arena->lock);
		pthread_mutex_unlock(&registry_lock);
		return shunt_fail(EBUSY,
				  "arena %p still holds %" PRIu64 " live blocks and %" PRIu64
				  " bytes waiting for their grace period; free them and call shunt_quiesce first",
				  (void *)arena, nr_live, pending);
	}
	*link = arena->next;
	pthread_mutex_unlock(&registry_lock);
	/* What they map goes with the arena's two ranges. */
	for (uint32_t slot = 0; slot < arena->nr_slots;) {
		struct shunt_pack *pack = arena->slots[slot];

		slot += pack ? pack->nr_slots : 1;
		if (pack)
			shunt_flush_forget(pack->rx);
		free(pack);
	}
	shunt_pack_dups_forget(arena);
	leave_ranges(arena);
	pthread_mutex_unlock(&arena->lock);
	arena_free(arena);
	return 0;
}
