/* SPDX-License-Identifier: MIT */
/* Shunt's packs, and what many engines do instead: a page for every program. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <shunt/log.h>
#include <shunt/reader.h>

#include "bench/peer.h"

static struct shunt_arena *arena;
static size_t page_size;

static int open_arena(bool no_huge)
{
	struct shunt_arena_options options = { .no_huge = no_huge };

	if (shunt_arena_create(&options, &arena) == 0)
		return 0;
	fprintf(stderr, "shunt: %s\n", shunt_error());
	return -1;
}

static int open_huge(void)
{
	return open_arena(false);
}

static int open_base(void)
{
	return open_arena(true);
}

static int pack_install(const void *code, size_t len, struct peer_program *out)
{
	if (shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, len, 0, &out->block) != 0)
		return -1;
	memcpy(out->block.rw, code, len);
	out->rx = out->block.rx;
	return shunt_pack_finalize(&out->block, 1);
}

static int pack_release(struct peer_program *program)
{
	return shunt_pack_free(&program->block);
}

static size_t pack_metadata(void)
{
	struct shunt_pack_stats stats;

	return shunt_pack_get_stats(arena, &stats) == 0 ? stats.bytes_metadata : 0;
}

static const char *pack_note(void)
{
	static char note[128];
	struct shunt_pack_stats stats;

	if (shunt_pack_get_stats(arena, &stats) != 0)
		return "";
	snprintf(note, sizeof(note), "%s, %llu of %llu MiB on 2 MiB pages, %.1f B of a program's are room for more", shunt_backing_name(stats.backing),
		 (unsigned long long)stats.bytes_huge >> 20, (unsigned long long)stats.bytes_mapped[SHUNT_SEGMENT_CODE] >> 20,
		 (double)(stats.bytes_mapped[SHUNT_SEGMENT_CODE] - stats.bytes_used[SHUNT_SEGMENT_CODE]) / (double)stats.nr_blocks[SHUNT_SEGMENT_CODE]);
	return note;
}

static int page_open(void)
{
	page_size = (size_t)sysconf(_SC_PAGESIZE);
	return 0;
}

static int page_install(const void *code, size_t len, struct peer_program *out)
{
	void *p = mmap(NULL, page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return -1;
	memcpy(p, code, len);
	if (mprotect(p, page_size, PROT_READ | PROT_EXEC) != 0) {
		munmap(p, page_size);
		return -1;
	}
	__builtin___clear_cache(p, (char *)p + len);
	out->rx = p;
	return 0;
}

static int page_release(struct peer_program *program)
{
	return munmap(program->rx, page_size);
}

const struct peer peer_shunt = { "Shunt", open_huge, pack_install, pack_release, shunt_quiesce, pack_metadata, pack_note, 0 };
const struct peer peer_shunt_base = { "Shunt, base pages", open_base, pack_install, pack_release, shunt_quiesce, pack_metadata, pack_note, 0 };
const struct peer peer_page = { "page per program", page_open, page_install, page_release, NULL, NULL, NULL, 0 };
