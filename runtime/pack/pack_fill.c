/* SPDX-License-Identifier: MIT */
/* Bytes that no block has, and pages that change: traps and zeroes, what debuggers wrote, pages of packs with one view. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/pack/arena.h"
#include "runtime/pack/backing_sys.h"
#include "runtime/log.h"
#include "runtime/machine.h"
#include "targets/target.h"

/* Linux 5.18; for hosts that lock all their memory. */
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

int shunt_pack_show_written(struct shunt_pack *pack, uint32_t first, uint32_t nr)
{
	uintptr_t begin, end, mask;

	if (!pack->arena->debug)
		return 0;
	mask = shunt_machine_page_size() - 1;
	begin = (uintptr_t)pack->rx + first * SHUNT_CHUNK_SIZE;
	end = begin + nr * SHUNT_CHUNK_SIZE;
	/* Whole pages only: those that a block has to itself. What a debugger wrote there is gone then; the file's bytes show again. */
	begin = (begin + mask) & ~mask;
	end &= ~mask;
	if (begin >= end || shunt_sys.madvise((void *)begin, end - begin, MADV_DONTNEED) == 0 ||
	    shunt_sys.madvise((void *)begin, end - begin, MADV_DONTNEED_LOCKED) == 0)
		return 0;
	return -errno;
}

int shunt_pack_open_pages(struct shunt_pack *pack, uint32_t first, uint32_t nr)
{
	if (!shunt_pack_toggles(pack))
		return 0;
	return shunt_backing_protect(pack->rx + first * SHUNT_CHUNK_SIZE, nr * SHUNT_CHUNK_SIZE, PROT_READ | PROT_WRITE);
}

int shunt_pack_close_pages(struct shunt_pack *pack, uint32_t first, uint32_t nr)
{
	int prot = PROT_READ | (pack->segment == SHUNT_SEGMENT_CODE ? PROT_EXEC : 0);

	if (!shunt_pack_toggles(pack))
		return 0;
	return shunt_backing_protect(pack->rx + first * SHUNT_CHUNK_SIZE, nr * SHUNT_CHUNK_SIZE, prot);
}

/* Of a pack with one view, where nobody runs anything in these pages. Unused rodata stays writable, as it began. */
static void fill_toggled(struct shunt_pack *pack, uint32_t first, uint32_t nr)
{
	char *p = pack->rx + first * SHUNT_CHUNK_SIZE;
	size_t len = nr * SHUNT_CHUNK_SIZE;
	int err = shunt_pack_open_pages(pack, first, nr);

	if (err) {
		/* What died there can be neither overwritten nor placed over. */
		shunt_logf(SHUNT_LOG_WARN, "pack %p: nothing new is placed in it until all of it was freed: making dead pages writable failed: %s",
			   (void *)pack->rx, strerror(-err));
		if (shunt_pack_is_open(pack))
			shunt_pack_close(pack->shelf);
		pack->frozen = true;
		shunt_room_place(&pack->shelf->room, &pack->room, 0);
		return;
	}
	if (pack->segment != SHUNT_SEGMENT_CODE) {
		memset(p, 0, len);
		return;
	}
	shunt_target_host()->fill_traps(p, len);
	shunt_machine_maintain(p, p, len);
	/* Where this is refused they are not executable, which stops who comes there as well. */
	(void)shunt_pack_close_pages(pack, first, nr);
}

void shunt_pack_fill_unused(struct shunt_pack *pack, uint32_t first, uint32_t nr)
{
	size_t offset = first * SHUNT_CHUNK_SIZE;
	size_t len = nr * SHUNT_CHUNK_SIZE;

	if (pack->frozen)
		return;
	if (shunt_pack_toggles(pack)) {
		fill_toggled(pack, first, nr);
		return;
	}
	if (pack->segment != SHUNT_SEGMENT_CODE) {
		memset(pack->rw + offset, 0, len);
		return;
	}
	shunt_target_host()->fill_traps(pack->rw + offset, len);
	if (shunt_pack_show_written(pack, first, nr) != 0)
		shunt_logf(SHUNT_LOG_WARN, "block %p was freed, and what a debugger wrote there stays: madvise failed: %s",
			   (void *)(pack->rx + offset), strerror(errno));
	shunt_machine_sync_caches(pack->rx + offset, pack->rw + offset, len);
}
