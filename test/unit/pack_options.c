/* SPDX-License-Identifier: MIT */
/* What is off until asked for: packs that nobody can write any more, places that nobody can guess, names for debuggers and profilers. */
#include "test/unit/pack_check.h"
#include "test/lacks.h"
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>
#include <shunt/log.h>
#include <shunt/reader.h>

#include "test/unit/pack_test.h"

static struct shunt_arena *make_arena(const struct shunt_arena_options *options)
{
	struct shunt_arena *arena = NULL;

	cr_assert_eq(shunt_arena_create(options, &arena), 0, "%s", shunt_error());
	return arena;
}

static bool can_be_read(const void *p)
{
	char byte;
	struct iovec to = { &byte, 1 }, from = { (void *)p, 1 };

	return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1;
}

Test(pack_options, code_without_its_rw_view_runs_and_is_freed_and_new_code_goes_elsewhere)
{
	struct shunt_arena_options options = { .size = 16 << 20 };
	struct shunt_arena *arena = make_arena(&options);
	struct shunt_block old[3], new;
	struct shunt_pack_stats stats;

	if (lacks_process_read())
		cr_skip_test(LACKS_PROCESS_READ);
	for (uint32_t i = 0; i < 3; i++)
		cr_assert(make_tiny(arena, i, &old[i]));
	cr_assert(can_be_read(old[0].rw));
	cr_assert_eq(shunt_arena_drop_rw(arena), 0, "%s", shunt_error());
	cr_assert(!can_be_read(old[0].rw), "the rw view is still there");
	cr_assert(make_tiny(arena, 9, &new), "%s", shunt_error());
	cr_assert_neq((uintptr_t)new.rx / SHUNT_PACK_SIZE, (uintptr_t)old[0].rx / SHUNT_PACK_SIZE);
	cr_assert_eq(call(new.rx), 9);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(call(old[i].rx), i);
	cr_assert_eq(shunt_pack_shrink(&old[1], 8), 0);
	cr_assert_eq(shunt_pack_free(&old[2]), 0);
	cr_assert_eq(shunt_pack_abandon(&old[1]), 0);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(shunt_pack_free(&old[1]), -EINVAL);
	cr_assert_eq(call(old[0].rx), 0);
	cr_assert_eq(shunt_pack_free(&old[0]), 0);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(shunt_pack_get_stats(arena, &stats), 0);
	cr_assert_eq(stats.nr_packs[SHUNT_SEGMENT_CODE], 1, "the pack did not go when it was empty");
	cr_assert_eq(call(new.rx), 9);
	cr_assert_eq(shunt_pack_free(&new), 0);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(shunt_arena_destroy(arena), 0, "%s", shunt_error());
}

Test(pack_options, random_starts_differ_from_arena_to_arena_and_waste_nothing)
{
	struct shunt_arena_options options = { .size = 4 << 20, .random_start = true };
	uintptr_t offsets[8];
	unsigned nr_equal = 0;

	for (int i = 0; i < 8; i++) {
		struct shunt_arena *arena = make_arena(&options);
		struct shunt_pack_stats stats;
		struct shunt_block block;
		unsigned nr = 0;

		while (shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 2048, 0, &block) == 0) {
			if (!nr++)
				offsets[i] = (uintptr_t)block.rx % SHUNT_PACK_SIZE;
		}
		/* Runs that begin anywhere leave ends too short for a block. */
		cr_assert_geq(nr, 2048 - 128, "%u", nr);
		cr_assert_eq(shunt_pack_get_stats(arena, &stats), 0);
		cr_assert_eq(stats.nr_blocks[SHUNT_SEGMENT_CODE], nr);
		for (int j = 0; j < i; j++)
			nr_equal += offsets[i] == offsets[j];
	}
	cr_assert_leq(nr_equal, 2, "%u of 28 pairs begin at the same place", nr_equal);
}

Test(pack_options, a_pool_of_huge_pages_is_used_when_asked_for_and_done_without_when_empty)
{
	struct shunt_arena_options options = { .size = 4 << 20, .hugetlb = true };
	struct shunt_pack_stats stats;
	struct shunt_arena *arena;
	struct shunt_block block;
	unsigned nr_free = 0;
	FILE *pool = fopen("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "re");

	if (lacks_second_views())
		cr_skip_test(LACKS_SECOND_VIEWS);
	if (pool && fscanf(pool, "%u", &nr_free) != 1)
		nr_free = 0;
	if (pool)
		fclose(pool);
	arena = make_arena(&options);
	cr_assert(make_tiny(arena, 5, &block), "%s", shunt_error());
	cr_assert_eq(call(block.rx), 5);
	write_tiny(block.rw, 6);
	cr_assert_eq(shunt_pack_finalize(&block, 1), 0);
	cr_assert_eq(call(block.rx), 6);
	cr_assert_eq(shunt_pack_get_stats(arena, &stats), 0);
	if (nr_free)
		cr_assert_eq(smaps_field(block.rx, "KernelPageSize"), SHUNT_PACK_SIZE, "%u pages were free, and none was taken", nr_free);
	cr_assert(!nr_free || stats.bytes_huge == SHUNT_PACK_SIZE);
	cr_assert_eq(shunt_pack_free(&block), 0);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(shunt_arena_destroy(arena), 0, "%s", shunt_error());
}

/* ---- names ----------------------------------------------------------------------------------------------------- */

Test(pack_options, names_are_written_where_perf_looks_for_them)
{
	struct shunt_arena_options options = { .size = 4 << 20, .anon = true };
	struct shunt_arena *arena;
	struct shunt_block block;
	char path[64], line[256] = "", expected[256];
	FILE *file;

	if (lacks_second_views())
		cr_skip_test(LACKS_SECOND_VIEWS);
	arena = make_arena(&options);
	cr_assert(make_tiny(arena, 3, &block));
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", (int)getpid());
	cr_assert_eq(shunt_pack_name(&block, "early"), 0);
	cr_assert_neq(access(path, F_OK), 0, "a file was made before anybody asked");
	cr_assert_eq(shunt_names_enable(SHUNT_NAMES_PERF), 0);
	cr_assert_eq(shunt_names_enable(64), -EINVAL);
	cr_assert_eq(shunt_pack_name(&block, "three"), 0, "%s", shunt_error());
	cr_assert_eq(shunt_pack_name(&block, "two\nlines"), -EINVAL);
	file = fopen(path, "re");
	cr_assert(file && fgets(line, sizeof(line), file));
	fclose(file);
	unlink(path);
	snprintf(expected, sizeof(expected), "%lx %zx three\n", (unsigned long)(uintptr_t)block.rx, block.len);
	cr_assert_str_eq(line, expected);
	cr_assert_eq(shunt_pack_free(&block), 0);
	cr_assert_eq(shunt_pack_name(&block, "late"), -EINVAL);
}

Test(pack_options, a_link_laid_for_the_name_file_is_not_followed)
{
	struct shunt_arena_options options = { .size = 4 << 20 };
	struct shunt_arena *arena = make_arena(&options);
	struct shunt_block block;
	char path[64], victim[64];

	cr_assert(make_tiny(arena, 3, &block));
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", (int)getpid());
	snprintf(victim, sizeof(victim), "/tmp/shunt-victim-%d", (int)getpid());
	cr_assert_eq(symlink(victim, path), 0);
	cr_assert_eq(shunt_names_enable(SHUNT_NAMES_PERF), 0);
	cr_assert_eq(shunt_pack_name(&block, "three"), -ELOOP);
	cr_assert_neq(access(victim, F_OK), 0, "the link was followed");
	unlink(path);
}

/* GDB's side of its interface. */
struct entry {
	struct entry *next, *prev;
	const char *symfile;
	uint64_t size;
};
struct descriptor {
	uint32_t version, action;
	struct entry *relevant, *first;
};
extern struct descriptor __jit_debug_descriptor;

static const Elf64_Shdr *section(const struct entry *entry, unsigned n)
{
	const Elf64_Ehdr *header = (const void *)entry->symfile;

	return (const void *)(entry->symfile + header->e_shoff + n * header->e_shentsize);
}

Test(pack_options, gdb_finds_a_name_as_long_as_its_block_lives)
{
	static const char *const names[] = { "one", "two", "three" };
	struct shunt_arena_options options = { .size = 4 << 20 };
	struct shunt_arena *arena = make_arena(&options);
	struct shunt_block blocks[3];
	const Elf64_Sym *symbol;

	cr_assert_eq(shunt_names_enable(SHUNT_NAMES_GDB), 0);
	cr_assert_null(__jit_debug_descriptor.first);
	for (uint32_t i = 0; i < 3; i++) {
		cr_assert(make_tiny(arena, i, &blocks[i]));
		cr_assert_eq(shunt_pack_name(&blocks[i], names[i]), 0, "%s", shunt_error());
		cr_assert_not_null(__jit_debug_descriptor.first);
		cr_assert(!memcmp(__jit_debug_descriptor.first->symfile, ELFMAG, SELFMAG));
		symbol = (const void *)(__jit_debug_descriptor.first->symfile + section(__jit_debug_descriptor.first, 2)->sh_offset);
		cr_assert_eq(section(__jit_debug_descriptor.first, 1)->sh_addr, (uintptr_t)blocks[i].rx);
		cr_assert_str_eq(__jit_debug_descriptor.first->symfile + section(__jit_debug_descriptor.first, 3)->sh_offset + symbol[1].st_name, names[i]);
		cr_assert_eq(symbol[1].st_size, blocks[i].len);
	}
	cr_assert_eq(shunt_pack_free(&blocks[1]), 0);
	cr_assert_eq(section(__jit_debug_descriptor.first, 1)->sh_addr, (uintptr_t)blocks[2].rx);
	cr_assert_eq(section(__jit_debug_descriptor.first->next, 1)->sh_addr, (uintptr_t)blocks[0].rx);
	cr_assert_null(__jit_debug_descriptor.first->next->next);
	cr_assert_eq(shunt_pack_abandon(&blocks[2]), 0);
	cr_assert_eq(shunt_pack_free(&blocks[0]), 0);
	cr_assert_null(__jit_debug_descriptor.first);
}

Test(pack_options, a_debugger_can_write_into_a_private_rx_view_and_rw_still_shows_there)
{
	struct shunt_arena_options options = { .size = 4 << 20, .debug = true };
	struct shunt_arena *arena = make_arena(&options);
	struct shunt_block block;

	if (lacks_second_views())
		cr_skip_test(LACKS_SECOND_VIEWS);
	cr_assert(make_tiny(arena, 3, &block));
	cr_assert_eq(call(block.rx), 3);
	write_tiny(block.rw, 4);
	cr_assert_eq(shunt_pack_finalize(&block, 1), 0);
	cr_assert_eq(call(block.rx), 4);
	cr_assert_eq(mprotect((void *)((uintptr_t)block.rx & ~(uintptr_t)4095), 4096, PROT_READ | PROT_WRITE), 0);
}
