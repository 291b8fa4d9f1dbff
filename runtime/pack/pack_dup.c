/* SPDX-License-Identifier: MIT */
/* Pages of code blocks that are shown a second time in a host image. Expected load: one a dispatcher-bearing image. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/pack/arena.h"
#include "runtime/pack/backing_sys.h"
#include "runtime/flush.h"
#include "runtime/log.h"
#include "runtime/machine.h"
#include "runtime/pack/pack.h"

struct shunt_pack_dup {
	struct shunt_pack_dup *next;
	const char *rx;
	char *fixed_addr;
	size_t len;
};

/* In two steps: all that can be refused (memory, number of mappings) is refused before anything at fixed_addr is touched. */
static int map_dup(const char *rx, char *fixed_addr, size_t len)
{
	void *p = shunt_sys.mremap((void *)rx, 0, len, MREMAP_MAYMOVE, NULL);
	int err;

	if (p == MAP_FAILED) {
		err = -errno;
		return shunt_flush_show(rx, fixed_addr, len) == 0 ? 0 : err;
	}
	if (shunt_sys.mremap(p, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, fixed_addr) == MAP_FAILED) {
		err = -errno;
		shunt_sys.munmap(p, len);
		return err;
	}
	return 0;
}

/* A block with one view does not change while it lives, so a copy shows it as well, and to a fork's child too. */
static int map_copy(const char *rx, char *fixed_addr, size_t len)
{
	void *p = shunt_sys.mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int err;

	if (p == MAP_FAILED)
		return -errno;
	memcpy(p, rx, len);
	err = shunt_backing_protect(p, len, PROT_READ | PROT_EXEC);
	if (!err) {
		shunt_machine_maintain(p, p, len);
		if (shunt_sys.mremap(p, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, fixed_addr) != MAP_FAILED)
			return 0;
		err = -errno;
	}
	shunt_sys.munmap(p, len);
	return err;
}

int shunt_pack_page_dup(const struct shunt_block *page_block, void *fixed_addr)
{
	size_t page_size = shunt_machine_page_size();
	struct shunt_pack_dup *dup = malloc(sizeof(*dup));
	const char *why = NULL;
	struct shunt_pack_ref ref;
	int err;

	if (!dup)
		return shunt_fail(ENOMEM, "page at %p: out of memory", fixed_addr);
	err = shunt_pack_lock_block("showing a page again", page_block, true, &ref);
	if (err) {
		free(dup);
		return err;
	}
	if (ref.pack->segment != SHUNT_SEGMENT_CODE)
		why = "holds no code";
	else if (ref.arena->debug)
		why = "lies in an arena for debuggers, whose pages are private and can be shown once only";
	else if ((uintptr_t)page_block->rx % page_size || (uintptr_t)fixed_addr % page_size || !fixed_addr)
		why = "or the place to show it at is not page-aligned";
	if (why) {
		pthread_mutex_unlock(&ref.arena->lock);
		free(dup);
		return shunt_fail(EINVAL, "page at %p: block %p %s", fixed_addr, page_block->rx, why);
	}
	dup->rx = page_block->rx;
	dup->fixed_addr = fixed_addr;
	dup->len = (ref.nr * SHUNT_CHUNK_SIZE + page_size - 1) & ~(page_size - 1);
	err = shunt_pack_toggles(ref.pack) ? map_copy(dup->rx, dup->fixed_addr, dup->len) : map_dup(dup->rx, dup->fixed_addr, dup->len);
	if (!err) {
		dup->next = ref.arena->dups;
		ref.arena->dups = dup;
	}
	pthread_mutex_unlock(&ref.arena->lock);
	if (err) {
		free(dup);
		return shunt_fail(-err, "page at %p: showing block %p there by mremap failed: %s", fixed_addr, page_block->rx, strerror(-err));
	}
	return 0;
}

static bool forget(struct shunt_arena *arena, const void *fixed_addr)
{
	struct shunt_pack_dup **link = &arena->dups;
	struct shunt_pack_dup *dup;

	while (*link && (*link)->fixed_addr != fixed_addr)
		link = &(*link)->next;
	dup = *link;
	if (!dup)
		return false;
	*link = dup->next;
	shunt_flush_forget(dup->fixed_addr);
	free(dup);
	return true;
}

int shunt_pack_page_undup(void *fixed_addr)
{
	bool found = false;

	shunt_arena_lock_all();
	for (struct shunt_arena *arena = shunt_arena_first(); arena && !found; arena = arena->next)
		found = forget(arena, fixed_addr);
	shunt_arena_unlock_all();
	return found ? 0 : shunt_fail(ENOENT, "no page of a pack is shown at %p", fixed_addr);
}

/* In a fork's child, after the packs' rx views were replaced: the pages still show the parent's. */
void shunt_pack_dups_remake(struct shunt_arena *arena)
{
	if (arena->toggle)
		return;
	for (struct shunt_pack_dup *dup = arena->dups; dup; dup = dup->next) {
		int err = map_dup(dup->rx, dup->fixed_addr, dup->len);

		if (err)
			shunt_logf(SHUNT_LOG_ERROR, "fork: the page at %p still is the parent's: %s", (void *)dup->fixed_addr, strerror(-err));
	}
}

void shunt_pack_dups_forget(struct shunt_arena *arena)
{
	while (arena->dups)
		forget(arena, arena->dups->fixed_addr);
}

uint64_t shunt_pack_dups_bytes(const struct shunt_arena *arena)
{
	uint64_t bytes = 0;

	for (const struct shunt_pack_dup *dup = arena->dups; dup; dup = dup->next)
		bytes += sizeof(*dup);
	return bytes;
}
