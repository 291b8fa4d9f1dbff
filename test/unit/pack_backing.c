/* SPDX-License-Identifier: MIT */
/* What packs are made of: every rung, every refusal of the system, and that no page is ever writable and executable. */
#include "test/unit/pack_check.h"
#include "test/lacks.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <shunt/log.h>
#include <shunt/reader.h>

#include "test/unit/pack_inject.h"
#include "test/unit/pack_test.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static const struct shunt_arena_options small = { .size = 8 << 20 };

Test(backing, no_page_is_writable_and_executable_and_none_can_become_so)
{
	struct shunt_arena *arena = create_arena(&small);
	unsigned before = count_maps(is_writable_and_executable);
	struct shunt_block code;
	struct shunt_block rodata;

	cr_assert(make_tiny(arena, 7, &code));
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_RODATA, 64, 0, &rodata), 0);
	cr_assert_eq(count_maps(is_writable_and_executable), before);
	if (backing_of(arena) == SHUNT_BACKING_SHARED_ANON)
		cr_skip_test("no memfd here, so no seals to test");
	for (int i = 0; i < 2; i++) {
		void *rx = (void *)((uintptr_t)(i ? rodata.rx : code.rx) & ~(SHUNT_PACK_SIZE - 1));

		cr_assert_neq(mprotect(rx, 4096, PROT_READ | PROT_WRITE), 0);
		cr_assert_eq(errno, EACCES);
		cr_assert_neq(mprotect(rx, 4096, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
		cr_assert_eq(errno, EACCES);
	}
	cr_assert_eq(call(code.rx), 7);
}

Test(backing, reported_huge_bytes_are_mapped_by_2_mib_entries_in_both_views)
{
	static const struct shunt_arena_options kinds[] = { { .size = 8 << 20 }, { .size = 8 << 20, .anon = true } };
	unsigned nr_huge = 0;

	if (lacks_second_views())
		cr_skip_test(LACKS_SECOND_VIEWS);
	for (int i = 0; i < 2; i++) {
		struct shunt_arena *arena = create_arena(&kinds[i]);
		struct shunt_pack_stats stats;
		struct shunt_block block;

		cr_assert(make_tiny(arena, 7, &block));
		cr_assert_eq(shunt_pack_get_stats(arena, &stats), 0);
		cr_assert_eq(smaps_field(block.rx, "ShmemPmdMapped"), stats.bytes_huge);
		if (!stats.bytes_huge)
			continue;
		nr_huge++;
		cr_assert_eq(stats.bytes_huge, SHUNT_PACK_SIZE);
		cr_assert_eq(smaps_field(block.rw, "ShmemPmdMapped"), SHUNT_PACK_SIZE);
	}
	if (!nr_huge)
		cr_skip_test("this kernel collapses no shared memory into 2 MiB pages");
}

Test(backing, base_pages_are_used_when_asked_for_and_reported)
{
	struct shunt_arena_options options = { .size = 8 << 20, .no_huge = true };
	struct shunt_arena *arena = create_arena(&options);
	struct shunt_pack_stats stats;
	struct shunt_block block;

	cr_assert(make_tiny(arena, 7, &block));
	cr_assert_eq(call(block.rx), 7);
	cr_assert_eq(shunt_pack_get_stats(arena, &stats), 0);
	cr_assert_eq(stats.bytes_huge, 0);
	cr_assert_eq(smaps_field(block.rx, "ShmemPmdMapped"), 0);
	cr_assert(is_all_traps((char *)block.rx + 64, SHUNT_PACK_SIZE - 64));
}

/* The flags are those of Linux 6.3. */
static enum shunt_backing best_rung(void)
{
	int fd = memfd_create("best_rung", MFD_CLOEXEC | 0x0008 /* MFD_NOEXEC_SEAL */);

	if (fd < 0)
		return SHUNT_BACKING_MEMFD;
	close(fd);
	return SHUNT_BACKING_MEMFD_NOEXEC_SEAL;
}

Test(backing, every_rung_runs_code_and_leaves_no_page_writable_and_executable)
{
	unsigned before = count_maps(is_writable_and_executable);

	if (lacks_second_views())
		cr_skip_test(LACKS_SECOND_VIEWS);
	inject_begin();
	for (inject.worst_rung = SHUNT_BACKING_MEMFD_NOEXEC_SEAL; inject.worst_rung <= SHUNT_BACKING_SHARED_ANON; inject.worst_rung++) {
		struct shunt_arena *arena = create_arena(&small);
		struct shunt_block block;

		cr_assert(make_tiny(arena, 5, &block), "%s", shunt_error());
		cr_assert_eq(backing_of(arena), (enum shunt_backing)inject.worst_rung < best_rung() ? best_rung() : (enum shunt_backing)inject.worst_rung, "%s",
			     shunt_backing_name(backing_of(arena)));
		cr_assert_eq(call(block.rx), 5);
		write_tiny(block.rw, 6);
		cr_assert_eq(shunt_pack_finalize(&block, 1), 0);
		cr_assert_eq(call(block.rx), 6);
		cr_assert_eq(count_maps(is_writable_and_executable), before);
	}
}

Test(backing, each_rung_has_a_name)
{
	for (int i = 0; i <= SHUNT_BACKING_TOGGLE; i++)
		for (int j = 0; j < i; j++)
			cr_assert_str_neq(shunt_backing_name((enum shunt_backing)i), shunt_backing_name((enum shunt_backing)j));
	cr_assert_str_eq(shunt_backing_name((enum shunt_backing)9), "unknown");
}

Test(backing, a_file_size_limit_does_not_kill_the_process)
{
	struct rlimit limit;
	struct shunt_arena *arena = create_arena(&small);
	struct shunt_block block;

	if (lacks_second_views())
		cr_skip_test(LACKS_SECOND_VIEWS);
	cr_assert_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = 1 << 20;
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	cr_assert(make_tiny(arena, 9, &block), "%s", shunt_error());
	cr_assert_eq(call(block.rx), 9);
	cr_assert_eq(backing_of(arena), SHUNT_BACKING_SHARED_ANON);
}

Test(backing, the_error_names_the_step_that_no_rung_got_past)
{
	static const struct { enum kind kinds[4]; const char *step; } cases[] = {
		{ { MEMFD_CREATE, MREMAP, NONE, NONE }, "doubling the rx view by mremap" },
		{ { FTRUNCATE, MREMAP, NONE, NONE }, "doubling the rx view by mremap" },
		{ { ADD_SEALS, MPROTECT, NONE, NONE }, "making the rw view writable" },
		{ { MADVISE, NONE, NONE, NONE }, "keeping the rw view from forks" },
		{ { MMAP, NONE, NONE, NONE }, "mapping shared anonymous memory for the rx view" },
	};
	struct shunt_arena *arena = create_arena(&small);
	struct shunt_block block;

	if (lacks_second_views())
		cr_skip_test(LACKS_SECOND_VIEWS);
	inject_begin();
	inject.error = ENOMEM;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		unsigned fds = count_fds();

		memcpy(inject.fail_kinds, cases[i].kinds, sizeof(inject.fail_kinds));
		cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 100, 0, &block), -ENOMEM);
		cr_assert(strstr(shunt_error(), cases[i].step), "%zu: %s", i, shunt_error());
		cr_assert_eq(count_fds(), fds);
	}
	memset(inject.fail_kinds, 0, sizeof(inject.fail_kinds));
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 100, 0, &block), 0, "the arena does not recover: %s", shunt_error());
}

Test(backing, memory_is_reserved_page_by_page_where_collapsing_is_refused)
{
	struct shunt_arena *arena = create_arena(&small);
	struct shunt_block block;

	inject_begin();
	inject.refused_advice = MADV_COLLAPSE;
	cr_assert(make_tiny(arena, 3, &block), "%s", shunt_error());
	cr_assert_eq(call(block.rx), 3);
	cr_assert_eq(backing_of(arena), best_rung());
	cr_assert_eq(smaps_field(block.rx, "ShmemPmdMapped"), 0);
	cr_assert_eq(smaps_field(block.rw, "Rss"), SHUNT_PACK_SIZE);
}

Test(backing, a_pack_that_the_system_does_not_take_back_stays_in_reserve)
{
	struct shunt_arena *arena = create_arena(&small);
	struct shunt_block blocks[3];
	struct shunt_pack_stats stats;

	for (int i = 0; i < 3; i++)
		cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, SHUNT_PACK_SIZE, 0, &blocks[i]), 0);
	inject_begin();
	inject.fail_kinds[0] = MMAP;
	for (int i = 0; i < 3; i++)
		cr_assert_eq(shunt_pack_abandon(&blocks[i]), 0);
	cr_assert_eq(shunt_pack_get_stats(arena, &stats), 0);
	cr_assert_eq(stats.nr_packs[SHUNT_SEGMENT_CODE], 3);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, SHUNT_PACK_SIZE, 0, &blocks[i]), 0, "%s", shunt_error());
}
