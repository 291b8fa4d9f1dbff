/* SPDX-License-Identifier: MIT */
/*
 * Machines with pages of 16 and 64 KiB, whose huge pages are 32 and 512 MiB: played by the table of system calls, which refuses what such a
 * machine's system would refuse.
 */
#include "test/unit/pack_check.h"
#include "test/lacks.h"
#include <sys/wait.h>
#include <unistd.h>
#include <shunt/dispatcher.h>
#include <shunt/log.h>
#include <shunt/reader.h>

#include "runtime/flush.h"
#include "runtime/pack/pack.h"
#include "test/exec/dispatch_programs.h"
#include "test/unit/pack_inject.h"
#include "test/unit/pack_test.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#define FAKE_GUARD 0x10

static const size_t page_sizes[] = { 16384, 65536 };
#define FOR_EACH_PAGE_SIZE(size) for (size_t i_ = 0, size; i_ < 2 && (size = page_sizes[i_]); i_++)

static struct shunt_arena *make_arena(size_t page_size, struct shunt_arena_options options)
{
	struct shunt_arena *arena = NULL;

	options.size = 16 << 20;
	options.rest = SHUNT_REST_NONE;
	if (!real.mmap)
		inject_begin();
	inject.page_size = page_size;
	cr_assert_eq(shunt_arena_create(&options, &arena), 0, "%s", shunt_error());
	return arena;
}

static void check_aligned(size_t page_size)
{
	cr_assert_null(inject.misaligned, "%s was called with what is no multiple of %zu bytes", inject.misaligned, page_size);
}

static struct shunt_pack_stats stats_of(struct shunt_arena *arena)
{
	struct shunt_pack_stats stats;

	cr_assert_eq(shunt_pack_get_stats(arena, &stats), 0);
	return stats;
}

/* A whole life, with blocks of a page, above a pack, shrunk, in all segments. */
static void live(struct shunt_arena *arena, size_t page_size, bool whole_pages)
{
	struct shunt_block tiny[3], large, rodata, data;

	for (int i = 0; i < 3; i++) {
		cr_assert(make_tiny(arena, (uint32_t)i, &tiny[i]), "%s", shunt_error());
		if (whole_pages) {
			cr_assert_eq(tiny[i].len, page_size);
			cr_assert_eq((uintptr_t)tiny[i].rx % page_size, 0);
		}
	}
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, SHUNT_PACK_SIZE + 1, 0, &large), 0, "%s", shunt_error());
	cr_assert_eq(shunt_pack_shrink(&large, page_size + 1), 0, "%s", shunt_error());
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_RODATA, 5000, 4096, &rodata), 0);
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_DATA, 5000, 4096, &data), 0);
	cr_assert_eq(shunt_pack_finalize(&rodata, 1), 0);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(call(tiny[i].rx), i);
	cr_assert_eq(shunt_pack_free(&tiny[1]), 0);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert(is_all_traps(tiny[1].rx, tiny[1].len));
	for (int i = 0; i < 3; i += 2) {
		cr_assert_eq(call(tiny[i].rx), i);
		cr_assert_eq(shunt_pack_free(&tiny[i]), 0);
	}
	cr_assert_eq(shunt_pack_free(&large), 0);
	cr_assert_eq(shunt_pack_free(&rodata), 0);
	cr_assert_eq(shunt_pack_free(&data), 0);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(shunt_arena_destroy(arena), 0, "%s", shunt_error());
	check_aligned(page_size);
}

Test(pack_pages, arenas_of_every_kind_live_with_pages_of_any_size)
{
	static const struct shunt_arena_options kinds[] = { { 0 }, { .anon = true }, { .random_start = true } };

	if (lacks_second_views())
		cr_skip_test(LACKS_SECOND_VIEWS);
	FOR_EACH_PAGE_SIZE(page_size) {
		for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
			live(make_arena(page_size, kinds[i]), page_size, false);
		live(make_arena(page_size, (struct shunt_arena_options){ .debug = true }), page_size, true);
		live(make_arena(page_size, (struct shunt_arena_options){ .toggle = true }), page_size, true);
	}
}

static unsigned nr_collapses;
static int (*next_madvise)(void *addr, size_t len, int advice);

static int counting_madvise(void *addr, size_t len, int advice)
{
	nr_collapses += advice == MADV_COLLAPSE;
	return next_madvise(addr, len, advice);
}

Test(pack_pages, huge_pages_that_are_longer_than_a_pack_are_neither_asked_for_nor_reported)
{
	struct shunt_block block;

	FOR_EACH_PAGE_SIZE(page_size) {
		struct shunt_arena *arena = make_arena(page_size, (struct shunt_arena_options){ 0 });

		next_madvise = inject_madvise;
		shunt_sys.madvise = counting_madvise;
		cr_assert(make_tiny(arena, 1, &block), "%s", shunt_error());
		cr_assert_eq(nr_collapses, 0);
		cr_assert_eq(stats_of(arena).bytes_huge, 0);
		cr_assert_eq(stats_of(arena).page_size, page_size);
		/* All of its memory is there nonetheless: a write to a page that the system cannot give would be SIGBUS. */
		if (stats_of(arena).backing < SHUNT_BACKING_SHARED_ANON)
			cr_assert_eq(smaps_field(block.rw, "Rss"), SHUNT_PACK_SIZE);
	}
}

Test(pack_pages, a_host_page_is_shown_as_a_whole_or_refused)
{
	if (lacks_second_views())
		cr_skip_test(LACKS_SECOND_VIEWS);
	FOR_EACH_PAGE_SIZE(page_size) {
		struct shunt_arena *arena = make_arena(page_size, (struct shunt_arena_options){ 0 });
		char *reserved = mmap(NULL, 3 * page_size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		char *host_page = (char *)(((uintptr_t)reserved + page_size - 1) & ~(page_size - 1));
		struct shunt_block first, second;

		cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, SHUNT_PACK_SIZE, 0, &first), 0);
		cr_assert_eq(shunt_pack_shrink(&first, page_size - 64), 0);
		cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 4096, 4096, &second), 0);
		for (struct shunt_block *block = &first; block; block = block == &first ? &second : NULL) {
			write_tiny(block->rw, 6);
			cr_assert_eq(shunt_pack_finalize(block, 1), 0);
		}
		cr_assert_eq(shunt_pack_page_dup(&first, host_page + 4096), -EINVAL);
		if ((uintptr_t)second.rx % page_size)
			cr_assert_eq(shunt_pack_page_dup(&second, host_page), -EINVAL);
		cr_assert_eq(shunt_pack_page_dup(&first, host_page), 0, "%s", shunt_error());
		cr_assert_eq(call(host_page), 6);
		cr_assert(is_all_traps(host_page + TINY_LEN, page_size - 64 - TINY_LEN), "the page is not shown to its end");
		cr_assert_eq(shunt_pack_page_undup(host_page), 0);
		check_aligned(page_size);
	}
}

Test(pack_pages, rw_views_are_dropped_and_forks_copy)
{
	if (lacks_second_views())
		cr_skip_test(LACKS_SECOND_VIEWS);
	FOR_EACH_PAGE_SIZE(page_size) {
		struct shunt_arena *arena = make_arena(page_size, (struct shunt_arena_options){ 0 });
		struct shunt_block block, later;
		int status = -1;
		pid_t pid;

		cr_assert(make_tiny(arena, 3, &block));
		cr_assert_eq(shunt_arena_drop_rw(arena), 0, "%s", shunt_error());
		cr_assert(make_tiny(arena, 4, &later), "%s", shunt_error());
		pid = fork();
		if (!pid)
			_exit(!inject.misaligned && call(block.rx) == 3 && call(later.rx) == 4 && make_tiny(arena, 5, &block) ? 0 : 1);
		cr_assert_eq(waitpid(pid, &status, 0), pid);
		cr_assert_eq(status, 0);
		cr_assert_eq(call(block.rx), 3);
		check_aligned(page_size);
	}
}

Test(pack_pages, a_dispatcher_with_one_view_has_a_page_of_that_size)
{
	FOR_EACH_PAGE_SIZE(page_size) {
		struct shunt_arena *arena = make_arena(page_size, (struct shunt_arena_options){ .toggle = true });
		struct shunt_dispatcher_options options = { .arena = arena };
		struct shunt_dispatcher *d;
		struct shunt_block program;

		cr_assert_eq(shunt_dispatcher_create(page_size > 16384 ? "a" : "b", &options, &d), 0, "%s", shunt_error());
		cr_assert_eq(make_program(arena, 4, &program), 0);
		cr_assert_eq(shunt_dispatcher_attach(d, program.rx), 0, "%s", shunt_error());
		cr_assert_eq(call_stub(shunt_dispatcher_stub(d), 1, program.rx), 5);
		check_aligned(page_size);
	}
}

/* ---- landing pads ------------------------------------------------------------------------------------------------- */

static void count_guards(struct shunt_arena_options options, unsigned nr_guarded, unsigned nr_unguarded)
{
	struct shunt_arena *arena;
	struct shunt_block code, rodata;
	void *host_page;

	if (!real.mmap)
		inject_begin();
	inject.guard_prot = FAKE_GUARD;
	arena = make_arena(0, options);
	inject.nr_guarded = inject.nr_unguarded = 0;
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_RODATA, 100, 0, &rodata), 0);
	cr_assert_eq(inject.nr_guarded + inject.nr_unguarded, 0, "rodata is not executable");
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 4096, 4096, &code), 0);
	write_tiny(code.rw, 1);
	cr_assert_eq(shunt_pack_finalize(&code, 1), 0);
	/* An emulator that keeps stale code is shown it anew, as often as it changes. */
	if (!shunt_stale_code_is_kept()) {
		cr_assert_eq(inject.nr_guarded, nr_guarded);
		cr_assert_eq(inject.nr_unguarded, nr_unguarded);
	} else {
		cr_assert_eq(inject.nr_guarded != 0, nr_guarded != 0);
	}
	/* A page in a host image is guarded as the block is that it shows: nothing changes its protection. */
	host_page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	inject.nr_guarded = inject.nr_unguarded = 0;
	if ((uintptr_t)code.rx % (size_t)sysconf(_SC_PAGESIZE) == 0 && !options.toggle && !lacks_second_views()) {
		cr_assert_eq(shunt_pack_page_dup(&code, host_page), 0, "%s", shunt_error());
		cr_assert_eq(inject.nr_guarded + inject.nr_unguarded, 0);
		cr_assert_eq(shunt_pack_page_undup(host_page), 0);
	}
}

Test(pack_pages, code_is_guarded_unless_the_arena_is_not_and_a_host_page_like_its_block)
{
	if (sysconf(_SC_PAGESIZE) > 4096)
		cr_skip_test("blocks are aligned to 4 KiB at most, and pages are larger here");
	count_guards((struct shunt_arena_options){ 0 }, 1, 0);
	count_guards((struct shunt_arena_options){ .no_guard = true }, 0, 1);
	if (!lacks_second_views()) {
		count_guards((struct shunt_arena_options){ .anon = true }, 1, 0);
		count_guards((struct shunt_arena_options){ .anon = true, .no_guard = true }, 0, 1);
	}
	/* Where pages toggle the stubs jump to trees without pads: the new pack's pages, and the block's. */
	count_guards((struct shunt_arena_options){ .toggle = true }, 0, 2);
}
