/* SPDX-License-Identifier: MIT */
/*
 * One view only: what is left where a system denies memory a second one. No page is ever writable and executable, none that holds a live
 * block changes its protection, and all that packs promise holds but for the sharing of pages.
 */
#include "test/unit/pack_check.h"
#include <sys/wait.h>
#include <unistd.h>
#include <shunt/dispatcher.h>
#include <shunt/log.h>
#include <shunt/reader.h>

#include "runtime/pack/pack.h"
#include "test/deny_views.h"
#include "test/exec/dispatch_programs.h"
#include "test/unit/pack_inject.h"
#include "test/unit/pack_test.h"

static const struct shunt_arena_options toggle = { .size = 16 << 20, .toggle = true, .rest = SHUNT_REST_NONE };

/* "rw-p" and the like of the page that addr is in. */
static void prot_of(const void *addr, char out[5])
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];

	strcpy(out, "none");
	while (maps && fgets(line, sizeof(line), maps)) {
		uintptr_t start, end;
		char prot[5];

		if (sscanf(line, "%lx-%lx %4s", &start, &end, prot) == 3 && (uintptr_t)addr >= start && (uintptr_t)addr < end)
			strcpy(out, prot);
	}
	if (maps)
		fclose(maps);
}

#define expect_prot(addr, expected)                                              \
	do {                                                                     \
		char prot_[5];                                                   \
		prot_of(addr, prot_);                                            \
		cr_assert_str_eq(prot_, expected, "%s, not %s", prot_, expected);\
	} while (0)

Test(pack_toggle, a_block_is_written_then_run_then_traps_and_never_both_writable_and_executable)
{
	struct shunt_arena *arena = create_arena(&toggle);
	size_t page_size = (size_t)sysconf(_SC_PAGESIZE);
	struct shunt_block first, block;

	cr_assert_eq(backing_of(arena), SHUNT_BACKING_TOGGLE);
	cr_assert_str_eq(shunt_backing_name(backing_of(arena)), "toggle");
	cr_assert(make_tiny(arena, 1, &first), "%s", shunt_error());
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 100, 0, &block), 0);
	cr_assert_eq(block.rx, block.rw);
	cr_assert_eq(block.len, page_size);
	cr_assert_eq((uintptr_t)block.rx % page_size, 0);
	cr_assert(is_all_traps(block.rx, block.len));
	expect_prot(block.rx, "rw-p");
	expect_prot(first.rx, "r-xp");
	write_tiny(block.rw, 7);
	cr_assert_eq(shunt_pack_finalize(&block, 1), 0, "%s", shunt_error());
	expect_prot(block.rx, "r-xp");
	cr_assert_eq(call(block.rx), 7);
	cr_assert_eq(call(first.rx), 1);
	cr_assert_eq(shunt_pack_free(&block), 0);
	cr_assert_eq(call(block.rx), 7, "before its grace period");
	cr_assert_eq(shunt_quiesce(), 0);
	expect_prot(block.rx, "r-xp");
	cr_assert(is_all_traps(block.rx, block.len));
	cr_assert_eq(shunt_pack_free(&block), -EINVAL);
	cr_assert_eq(count_maps(is_writable_and_executable), 0);
	cr_assert_eq(shunt_arena_drop_rw(arena), -ENOTSUP);
	cr_assert_eq(shunt_pack_abandon(&first), 0);
	cr_assert_eq(shunt_arena_destroy(arena), 0, "%s", shunt_error());
}

/* What is live: a count of owners a page. */
static char *live_base;
static uint8_t live[16 << 20 >> 12];
static const char *wrong;

static int watching_mprotect(void *addr, size_t len, int prot)
{
	size_t first = ((char *)addr - live_base) >> 12;

	if (prot & PROT_WRITE && prot & PROT_EXEC)
		wrong = "a page was made writable and executable";
	for (size_t page = first; page < first + (len >> 12); page++)
		if ((char *)addr >= live_base && page < sizeof(live) && live[page])
			wrong = "a page with a live block changed its protection";
	return real.mprotect(addr, len, prot);
}

static void set_live(const struct shunt_block *block, uint8_t is_live)
{
	for (size_t offset = 0; offset < block->len; offset += 4096)
		live[((char *)block->rx + offset - live_base) >> 12] = is_live;
}

Test(pack_toggle, no_page_with_a_live_block_changes_its_protection)
{
	struct shunt_arena *arena = create_arena(&toggle);
	static struct shunt_block blocks[200];
	struct shunt_pack_stats stats;
	unsigned seed = 5;

	cr_assert_eq(shunt_pack_get_stats(arena, &stats), 0);
	live_base = (char *)stats.arena_base;
	real = shunt_sys;
	shunt_sys.mprotect = watching_mprotect;
	for (int i = 0; i < 4000 && !wrong; i++) {
		struct shunt_block *block = &blocks[rand_r(&seed) % 200];

		if (block->id) {
			cr_assert_eq(call(block->rx), (int)(block - blocks));
			set_live(block, 0);
			cr_assert_eq(shunt_pack_free(block), 0, "%s", shunt_error());
			block->id = 0;
			if (i % 32 == 0)
				cr_assert_eq(shunt_quiesce(), 0);
			continue;
		}
		cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 1 + (size_t)rand_r(&seed) % 12000, 0, block), 0, "%s", shunt_error());
		cr_assert(is_all_traps(block->rx, block->len));
		cr_assert_eq(shunt_pack_shrink(block, block->len / 2 + 1), 0);
		write_tiny(block->rw, (uint32_t)(block - blocks));
		cr_assert_eq(shunt_pack_finalize(block, 1), 0, "%s", shunt_error());
		set_live(block, 1);
	}
	cr_assert_null(wrong, "%s", wrong);
}

Test(pack_toggle, rodata_becomes_read_only_when_it_is_finalized_and_data_stays_what_it_was)
{
	struct shunt_arena *arena = create_arena(&toggle);
	struct shunt_block rodata, data, again;

	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_RODATA, 100, 0, &rodata), 0);
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_DATA, 100, 0, &data), 0);
	strcpy(rodata.rw, "text");
	cr_assert_eq(shunt_pack_finalize(&rodata, 1), 0);
	expect_prot(rodata.rx, "r--p");
	expect_prot(data.rx, "rw-p");
	cr_assert_str_eq(rodata.rx, "text");
	cr_assert_eq(shunt_pack_free(&rodata), 0);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_RODATA, 100, 0, &again), 0);
	cr_assert_eq(again.rx, rodata.rx);
	cr_assert_eq(*(char *)again.rw, 0);
	strcpy(again.rw, "writable again");
}

Test(pack_toggle, blocks_larger_than_a_pack_and_host_pages_work_too)
{
	size_t page_size = (size_t)sysconf(_SC_PAGESIZE);
	struct shunt_arena *arena = create_arena(&toggle);
	struct shunt_block large, page;
	void *host_page = mmap(NULL, page_size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, SHUNT_PACK_SIZE + 1, 0, &large), 0, "%s", shunt_error());
	write_tiny((char *)large.rw + SHUNT_PACK_SIZE, 9);
	cr_assert_eq(shunt_pack_finalize(&large, 1), 0);
	cr_assert_eq(call((char *)large.rx + SHUNT_PACK_SIZE), 9);
	cr_assert(make_tiny(arena, 3, &page));
	cr_assert_eq(shunt_pack_page_dup(&page, host_page), 0, "%s", shunt_error());
	cr_assert_eq(call(host_page), 3);
	expect_prot(host_page, "r-xp");
	cr_assert_eq(shunt_pack_page_undup(host_page), 0);
	cr_assert_eq(shunt_pack_free(&large), 0);
	cr_assert_eq(shunt_quiesce(), 0);
}

Test(pack_toggle, dead_pages_that_cannot_be_made_writable_are_not_placed_over)
{
	struct shunt_arena *arena = create_arena(&toggle);
	struct shunt_block anchor, block, next;

	cr_assert(make_tiny(arena, 1, &anchor));
	cr_assert(make_tiny(arena, 2, &block));
	cr_assert_eq(shunt_pack_free(&block), 0);
	inject_begin();
	inject.fail_kinds[0] = MPROTECT;
	cr_assert_eq(shunt_quiesce(), 0);
	inject.fail_kinds[0] = NONE;
	cr_assert(make_tiny(arena, 3, &next), "%s", shunt_error());
	cr_assert_neq((uintptr_t)next.rx / SHUNT_PACK_SIZE, (uintptr_t)block.rx / SHUNT_PACK_SIZE);
	cr_assert_eq(call(anchor.rx), 1);
	cr_assert_eq(call(next.rx), 3);
	cr_assert_eq(shunt_pack_free(&anchor), 0);
	cr_assert_eq(shunt_pack_free(&next), 0);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(shunt_arena_destroy(arena), 0, "%s", shunt_error());
}

Test(pack_toggle, a_forks_child_has_its_own_and_neither_side_sees_the_others_changes)
{
	struct shunt_arena *arena = create_arena(&toggle);
	struct shunt_block block, other;
	int status = -1;
	pid_t pid;

	cr_assert(make_tiny(arena, 1, &block));
	pid = fork();
	if (!pid) {
		if (call(block.rx) != 1 || !make_tiny(arena, 2, &other) || call(other.rx) != 2)
			_exit(1);
		if (shunt_pack_free(&block) != 0 || shunt_quiesce() != 0 || !is_all_traps(block.rx, block.len))
			_exit(2);
		_exit(0);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert_eq(status, 0, "%#x", (unsigned)status);
	cr_assert_eq(call(block.rx), 1);
	cr_assert(make_tiny(arena, 5, &other));
	cr_assert_eq(call(other.rx), 5);
}

/* ---- denied, not asked for --------------------------------------------------------------------------------------- */

Test(pack_toggle, want_of_memory_is_no_denial)
{
	static const struct shunt_arena_options options = { .size = 8 << 20 };
	struct shunt_arena *arena = create_arena(&options);
	struct shunt_block block;

	inject_begin();
	inject.error = ENOMEM;
	inject.fail_kinds[0] = MEMFD_CREATE;
	inject.fail_kinds[1] = MREMAP;
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 100, 0, &block), -ENOMEM);
	cr_assert(strstr(shunt_error(), "doubling the rx view by mremap failed"), "%s", shunt_error());
	memset(inject.fail_kinds, 0, sizeof(inject.fail_kinds));
	cr_assert(make_tiny(arena, 1, &block), "%s", shunt_error());
	cr_assert_neq(block.rx, block.rw);
}

Test(pack_toggle, the_default_arena_has_one_view_where_the_system_denies_two)
{
	struct shunt_block block;

	if (!deny_second_views())
		cr_skip_test("this system takes no seccomp filter");
	cr_assert(make_tiny(NULL, 6, &block), "%s", shunt_error());
	cr_assert_eq(block.rx, block.rw);
	cr_assert_eq(call(block.rx), 6);
	cr_assert_eq(backing_of(NULL), SHUNT_BACKING_TOGGLE);
	cr_assert_eq(shunt_pack_free(&block), 0);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert(is_all_traps(block.rx, block.len));
}

/* ---- dispatchers ------------------------------------------------------------------------------------------------- */

SHUNT_DISPATCHER_DEFINE(toggle_image, uint64_t, (uint64_t arg));

/* Through all that a dispatcher goes through; call is how one calls it. */
static void dispatch_all(struct shunt_dispatcher *d, struct shunt_arena *arena, uint64_t (*call_it)(const struct shunt_dispatcher *d, uint64_t arg, const void *prog))
{
	struct shunt_block programs[20];

	for (uint32_t i = 0; i < 20; i++)
		cr_assert_eq(make_program(arena, i, &programs[i]), 0, "%s", shunt_error());
	for (uint32_t i = 0; i < 20; i++) {
		cr_assert_eq(shunt_dispatcher_attach(d, programs[i].rx), 0, "%s", shunt_error());
		for (uint32_t j = 0; j < 20; j++)
			cr_assert_eq(call_it(d, 100, programs[j].rx), 100 + j);
		cr_assert_eq(count_maps(is_writable_and_executable), 0);
	}
	for (uint32_t i = 0; i < 20; i++) {
		cr_assert_eq(shunt_dispatcher_detach(d, programs[i].rx), 0, "%s", shunt_error());
		cr_assert_eq(call_it(d, 100, programs[i].rx), 100 + i);
	}
	for (uint32_t i = 0; i < 20; i++)
		cr_assert_eq(shunt_pack_free(&programs[i]), 0);
	cr_assert_eq(shunt_quiesce(), 0);
}

static uint64_t call_nest(const struct shunt_dispatcher *d, uint64_t arg, const void *prog)
{
	return call_stub(shunt_dispatcher_stub(d), arg, prog);
}

static uint64_t call_image(const struct shunt_dispatcher *d, uint64_t arg, const void *prog)
{
	(void)d;
	return toggle_image(arg, prog);
}

Test(pack_toggle, a_dispatcher_jumps_through_a_word_of_data)
{
	struct shunt_arena *arena = create_arena(&toggle);
	struct shunt_dispatcher_options options = { .arena = arena };
	struct shunt_dispatcher *d;

	cr_assert_eq(shunt_dispatcher_create("toggled", &options, &d), 0, "%s", shunt_error());
	live_base = (char *)shunt_dispatcher_stub(d) - (uintptr_t)shunt_dispatcher_stub(d) % 4096;
	live[0] = 1;
	real = shunt_sys;
	shunt_sys.mprotect = watching_mprotect;
	dispatch_all(d, arena, call_nest);
	cr_assert_null(wrong, "%s", wrong);
	cr_assert_eq(shunt_dispatcher_destroy(d), 0, "%s", shunt_error());
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(shunt_arena_destroy(arena), 0, "nothing is left of the dispatcher: %s", shunt_error());
}

Test(pack_toggle, a_stub_in_the_hosts_image_does_too)
{
	struct shunt_dispatcher *d;

	if (!deny_second_views())
		cr_skip_test("this system takes no seccomp filter");
	d = shunt_dispatcher_toggle_image();
	cr_assert_not_null(d, "%s", shunt_error());
	dispatch_all(d, NULL, call_image);
	cr_assert_eq(backing_of(NULL), SHUNT_BACKING_TOGGLE);
	dispatch_all(d, NULL, call_nest);
}

Test(pack_toggle, a_dispatcher_in_a_forks_child_is_its_own)
{
	struct shunt_arena *arena = create_arena(&toggle);
	struct shunt_dispatcher_options options = { .arena = arena };
	struct shunt_dispatcher_stats stats;
	struct shunt_dispatcher *d;
	struct shunt_block p, q;
	const void *tree;
	int status = -1;
	pid_t pid;

	cr_assert_eq(shunt_dispatcher_create("toggled", &options, &d), 0, "%s", shunt_error());
	cr_assert_eq(make_program(arena, 1, &p), 0);
	cr_assert_eq(make_program(arena, 2, &q), 0);
	cr_assert_eq(shunt_dispatcher_attach(d, p.rx), 0);
	shunt_dispatcher_get_stats(d, &stats);
	tree = stats.tree;
	pid = fork();
	if (!pid) {
		if (shunt_dispatcher_attach(d, q.rx) != 0 || shunt_dispatcher_detach(d, p.rx) != 0)
			_exit(1);
		if (shunt_quiesce() != 0 || call_nest(d, 5, p.rx) != 6 || call_nest(d, 5, q.rx) != 7)
			_exit(2);
		_exit(0);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert_eq(status, 0, "%#x", (unsigned)status);
	shunt_dispatcher_get_stats(d, &stats);
	cr_assert_eq(stats.tree, tree);
	cr_assert_eq(call_nest(d, 5, p.rx), 6);
	cr_assert_eq(call_nest(d, 5, q.rx), 7);
}

Test(pack_toggle, a_dispatcher_that_cannot_have_its_word_is_refused_and_leaves_nothing)
{
	struct shunt_arena *arena = create_arena(&toggle);
	struct shunt_dispatcher_options options = { .arena = arena };
	struct shunt_dispatcher *d;

	inject_begin();
	inject.error = ENOMEM;
	for (unsigned point = 1;; point++) {
		int err;

		inject.nr_calls = 0;
		inject.fail_at = point;
		err = shunt_dispatcher_create("toggled", &options, &d);
		inject.fail_at = 0;
		if (!err)
			break;
		/* A CPU that must be told of new code has one call more, whose refusal is a sentence of its own. */
		cr_assert(err == -ENOMEM || strstr(shunt_error(), "membarrier"), "%d: %s", err, shunt_error());
		cr_assert_lt(point, 1000, "still refused, without a failing call: %s", shunt_error());
	}
	cr_assert_eq(shunt_dispatcher_destroy(d), 0);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(shunt_arena_destroy(arena), 0, "%s", shunt_error());
}
