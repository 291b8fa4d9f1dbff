/* SPDX-License-Identifier: MIT */
/*
 * Fork. A pack is shared memory, so a child would run what the parent writes later. The child's first act therefore is to put a copy
 * of its own over each rx view and make a new rw view; until it has done so, or died, the parent changes no live bytes: its mutators
 * (not its readers, and not a further fork) wait for the end of a close-on-exec pipe that only the child holds open.
 *
 * A fork takes every lock in the order: readers' registry, hooks of other rooms, patch lock, arenas, grace queue, list of children.
 */
#include "runtime/pack/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/pack/arena.h"
#include "runtime/pack/backing_sys.h"
#include "runtime/flush.h"
#include "runtime/grace.h"
#include "runtime/log.h"
#include "runtime/machine.h"

/* A child that may still copy. */
struct copier {
	struct copier *next;
	int fd;
	unsigned nr_waiters;
	bool done;
};

static pthread_once_t init_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t hooks_lock = PTHREAD_MUTEX_INITIALIZER;
static struct shunt_fork_hooks *hooks_list; /* newest first */
static pthread_mutex_t patch_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t copiers_lock = PTHREAD_MUTEX_INITIALIZER;
static struct copier *copiers;
/* copiers != NULL, readable without its lock. Set while a fork holds all locks. */
static bool copying;
/* Of the fork in progress. */
static struct copier *forking;
static int forking_fd = -1;

bool shunt_fork_is_copying(void)
{
	return __atomic_load_n(&copying, __ATOMIC_ACQUIRE);
}

static void poll_for_end(int fd)
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN };

	/* Nothing is ever written. Any event is the end: the child closed it, or somebody closed ours. A refusal to wait is not: where poll
	 * has no memory it will have some, and a host that may have no descriptors (EINVAL) may read from those it has. */
	while (shunt_sys.poll(&poll_fd, 1, -1) < 0) {
		char byte;

		if (errno == EINVAL && (shunt_sys.read(fd, &byte, 1) == 0 || errno == EBADF))
			return;
	}
}

static void unlink_copier(struct copier *copier)
{
	struct copier **link = &copiers;

	while (*link != copier)
		link = &(*link)->next;
	*link = copier->next;
	__atomic_store_n(&copying, copiers != NULL, __ATOMIC_RELEASE);
}

void shunt_fork_wait(void)
{
	while (shunt_fork_is_copying()) {
		struct copier *copier;

		pthread_mutex_lock(&copiers_lock);
		copier = copiers;
		if (copier)
			copier->nr_waiters++;
		pthread_mutex_unlock(&copiers_lock);
		if (!copier)
			return;
		poll_for_end(copier->fd);
		pthread_mutex_lock(&copiers_lock);
		if (!copier->done) {
			copier->done = true;
			unlink_copier(copier);
		}
		/* The descriptor's number stays taken until the last waiter has left it. */
		if (--copier->nr_waiters == 0) {
			shunt_sys.close(copier->fd);
			free(copier);
		}
		pthread_mutex_unlock(&copiers_lock);
	}
}

void shunt_pack_patch_begin(void)
{
	shunt_fork_init();
	for (;;) {
		shunt_fork_wait();
		pthread_mutex_lock(&patch_lock);
		if (!shunt_fork_is_copying())
			return;
		pthread_mutex_unlock(&patch_lock);
	}
}

void shunt_pack_patch_end(void)
{
	pthread_mutex_unlock(&patch_lock);
}

static bool has_shared_packs(void)
{
	for (struct shunt_arena *arena = shunt_arena_first(); arena; arena = arena->next)
		if (!arena->toggle && arena->nr_packs[SHUNT_SEGMENT_CODE] + arena->nr_packs[SHUNT_SEGMENT_RODATA])
			return true;
	return false;
}

static void each_shared_pack(void (*fn)(struct shunt_pack *pack, size_t len))
{
	for (struct shunt_arena *arena = shunt_arena_first(); arena; arena = arena->next)
		for (uint32_t slot = 0; slot < arena->nr_slots; slot++) {
			struct shunt_pack *pack = arena->slots[slot];

			/* A frozen pack is private already, or nobody writes there. */
			if (pack && pack->first_slot == slot && pack->rw != pack->rx && !pack->frozen)
				fn(pack, pack->nr_slots * SHUNT_PACK_SIZE);
		}
}

static void take_snapshot(struct shunt_pack *pack, size_t len)
{
	void *copy = shunt_sys.mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (copy == MAP_FAILED) {
		shunt_logf(SHUNT_LOG_WARN, "fork: no pipe and no memory for a copy of pack %p (%s): what the parent changes there at once may be changed in the child too",
			   (void *)pack->rx, strerror(errno));
		return;
	}
	memcpy(copy, pack->rx, len);
	pack->snapshot = copy;
}

static void drop_snapshot(struct shunt_pack *pack, size_t len)
{
	if (pack->snapshot)
		shunt_sys.munmap(pack->snapshot, len);
	pack->snapshot = NULL;
}

static void fork_prepare(void)
{
	int fds[2];

	shunt_grace_fork_readers_prepare();
	pthread_mutex_lock(&hooks_lock);
	for (struct shunt_fork_hooks *hooks = hooks_list; hooks; hooks = hooks->next)
		hooks->prepare();
	pthread_mutex_lock(&patch_lock);
	shunt_arena_lock_all();
	shunt_grace_fork_prepare();
	pthread_mutex_lock(&copiers_lock);
	if (!has_shared_packs())
		return;
	forking = calloc(1, sizeof(*forking));
	if (forking && shunt_sys.pipe2(fds, O_CLOEXEC) == 0) {
		forking->fd = fds[0];
		forking_fd = fds[1];
		return;
	}
	free(forking);
	forking = NULL;
	/* Nothing would keep the parent from changing what the child still copies: it copies now. */
	each_shared_pack(take_snapshot);
}

static void fork_prepare_all(void)
{
	fork_prepare();
	shunt_flush_fork_prepare();
}

static void hooks_backwards(struct shunt_fork_hooks *hooks, bool child)
{
	if (!hooks)
		return;
	hooks_backwards(hooks->next, child);
	if (child)
		hooks->child();
	else
		hooks->parent();
}

static void fork_parent(void)
{
	shunt_flush_fork_done();
	if (forking) {
		shunt_sys.close(forking_fd);
		forking_fd = -1;
		forking->next = copiers;
		copiers = forking;
		forking = NULL;
		__atomic_store_n(&copying, true, __ATOMIC_RELEASE);
	}
	each_shared_pack(drop_snapshot);
	pthread_mutex_unlock(&copiers_lock);
	shunt_grace_fork_parent();
	shunt_arena_unlock_all();
	pthread_mutex_unlock(&patch_lock);
	hooks_backwards(hooks_list, false);
	pthread_mutex_unlock(&hooks_lock);
	shunt_grace_fork_readers_parent();
}

/* When no shared memory can be had: private pages that are first written, then executable, never both. The blocks run on, and
 * nothing in the pack is changed or reused any more. */
static int freeze(struct shunt_pack *pack, size_t len)
{
	int guard = pack->arena->guard ? shunt_sys.guard_prot() : 0;
	int prot = PROT_READ | (pack->segment == SHUNT_SEGMENT_CODE ? PROT_EXEC | guard : 0);
	void *copy = shunt_sys.mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int err;

	if (shunt_pack_is_open(pack))
		shunt_pack_close(pack->shelf);
	pack->frozen = true;
	pack->made.bytes_huge = 0;
	shunt_room_place(&pack->shelf->room, &pack->room, 0);
	if (copy == MAP_FAILED)
		return -errno;
	memcpy(copy, pack->snapshot ? pack->snapshot : pack->rx, len);
	if (shunt_sys.mprotect(copy, len, prot) == 0 &&
	    shunt_sys.mremap(copy, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, pack->rx) != MAP_FAILED)
		return 0;
	err = -errno;
	shunt_sys.munmap(copy, len);
	return err;
}

static void remake(struct shunt_pack *pack, size_t len)
{
	struct shunt_backing_failure failure = { 0 };
	struct shunt_backing_spec spec = {
		.rx = pack->rx,
		.rw = pack->rw,
		.len = len,
		.exec = pack->segment == SHUNT_SEGMENT_CODE,
		.huge = pack->arena->huge,
		.hugetlb = pack->arena->hugetlb,
		.anon = pack->arena->anon,
		.guard = pack->arena->guard,
		.debug = pack->arena->debug,
		.node = pack->arena->nr_nodes > 1 ? pack->arena->nodes[pack->node] : SHUNT_NODE_ANY,
		.copy_from = pack->snapshot ? pack->snapshot : pack->rx,
	};
	void *hole;
	int err;

	/* Where the advice not to keep it over a fork went unheard, the parent's rw view is in the place of ours. */
	if (shunt_advice_is_ignored())
		shunt_sys.munmap(pack->rw, len);
	err = shunt_backing_reserve(pack->rw, true, len, &hole);
	if (err) {
		failure.step = "reserving the rw view";
		failure.err = -err;
	} else {
		err = shunt_backing_make(&spec, &pack->made, &failure);
	}
	if (!err)
		return;
	shunt_logf(SHUNT_LOG_WARN, "fork: pack %p stays as it is in the child, nothing new is placed in it: %s failed: %s", (void *)pack->rx,
		   failure.step, strerror(failure.err));
	err = freeze(pack, len);
	if (err)
		shunt_logf(SHUNT_LOG_ERROR, "fork: the child shares pack %p with its parent, whose changes it will run: %s", (void *)pack->rx,
			   strerror(-err));
}

static void remake_in_child(struct shunt_pack *pack, size_t len)
{
	remake(pack, len);
	drop_snapshot(pack, len);
}

static void forget_copiers(void)
{
	while (copiers) {
		struct copier *copier = copiers;

		copiers = copier->next;
		shunt_sys.close(copier->fd);
		free(copier);
	}
	__atomic_store_n(&copying, false, __ATOMIC_RELEASE);
}

static void fork_child(void)
{
	shunt_flush_fork_done();
	forget_copiers();
	each_shared_pack(remake_in_child);
	for (struct shunt_arena *arena = shunt_arena_first(); arena; arena = arena->next)
		shunt_pack_dups_remake(arena);
	if (forking) {
		shunt_sys.close(forking->fd);
		shunt_sys.close(forking_fd);
		free(forking);
		forking = NULL;
		forking_fd = -1;
	}
	pthread_mutex_unlock(&copiers_lock);
	shunt_grace_fork_child();
	shunt_arena_unlock_all();
	pthread_mutex_unlock(&patch_lock);
	hooks_backwards(hooks_list, true);
	pthread_mutex_unlock(&hooks_lock);
	shunt_grace_fork_readers_child();
}

void shunt_fork_register(struct shunt_fork_hooks *hooks)
{
	shunt_fork_init();
	pthread_mutex_lock(&hooks_lock);
	hooks->next = hooks_list;
	hooks_list = hooks;
	pthread_mutex_unlock(&hooks_lock);
}

static void install(void)
{
	if (pthread_atfork(fork_prepare_all, fork_parent, fork_child) != 0)
		shunt_logf(SHUNT_LOG_ERROR, "pthread_atfork failed: forks of this process share their code with it");
}

void shunt_fork_init(void)
{
	pthread_once(&init_once, install);
}
