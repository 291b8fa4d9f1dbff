/* SPDX-License-Identifier: MIT */
/*
 * Every system call and every allocation of memory, from an arena's creation to its end, fails once. The test finds the points itself: it
 * lives a life without failures, counts, and lives it again for each. A step that fails says which one failed and leaves everything as it
 * was, so the same step then works; after the arena's end nothing is mapped or open that was not before. A second sweep lets everything
 * fail from a point on, until the step is over.
 */
#define PACK_INJECT_ALLOC
#include "test/unit/pack_check.h"
#include "test/lacks.h"
#include <sys/wait.h>
#include <unistd.h>
#include <shunt/log.h>
#include <shunt/reader.h>

#include "runtime/pack/pack.h"
#include "test/unit/pack_inject.h"
#include "test/unit/pack_test.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define NR_SMALL 2

struct life {
	const struct shunt_arena_options *options;
	struct shunt_arena *arena;
	struct shunt_block code[NR_SMALL]; /* returns its index */
	uint32_t nr_code;
	struct shunt_block rodata, data, second, large, page, later;
	void *host_page;
};

/* Sanitizers take many times as long for a life: they see each fourth point, another one in each kind of life. */
#ifdef __SANITIZE_ADDRESS__
#define STRIDE 4
#else
#define STRIDE 1
#endif

static unsigned nr_points, nr_reported;
static unsigned at_point;
static bool sweep_on; /* the second sweep */

/* ---- a life's steps: 0, or the negative errno of the call that failed ------------------------------------------ */

static int create(struct life *life)
{
	return shunt_arena_create(life->options, &life->arena);
}

static int alloc_code(struct life *life)
{
	struct shunt_block *block = &life->code[life->nr_code];
	int err = shunt_pack_alloc(life->arena, SHUNT_SEGMENT_CODE, 100, 0, block);

	if (err)
		return err;
	write_tiny(block->rw, life->nr_code);
	err = shunt_pack_finalize(block, 1);
	if (err) {
		cr_assert_eq(shunt_pack_abandon(block), 0, "point %u: %s", at_point, shunt_error());
		return err;
	}
	life->nr_code++;
	return 0;
}

static int alloc_rodata(struct life *life)
{
	return shunt_pack_alloc(life->arena, SHUNT_SEGMENT_RODATA, 300, 0, &life->rodata);
}

static int alloc_data(struct life *life)
{
	return shunt_pack_alloc(life->arena, SHUNT_SEGMENT_DATA, 300, 0, &life->data);
}

static int alloc_second(struct life *life)
{
	return shunt_pack_alloc(life->arena, SHUNT_SEGMENT_CODE, SHUNT_PACK_SIZE - 65536, 0, &life->second);
}

static int alloc_large(struct life *life)
{
	return shunt_pack_alloc(life->arena, SHUNT_SEGMENT_CODE, SHUNT_PACK_SIZE + 1, 0, &life->large);
}

static int shrink(struct life *life)
{
	return shunt_pack_shrink(&life->second, 100);
}

static int alloc_page(struct life *life)
{
	size_t page_size = (size_t)sysconf(_SC_PAGESIZE);
	int err = shunt_pack_alloc(life->arena, SHUNT_SEGMENT_CODE, page_size, page_size > 4096 ? 0 : page_size, &life->page);

	if (!err && (uintptr_t)life->page.rx % page_size) {
		/* Pages that are larger than the largest alignment: a pack's first. */
		cr_assert_eq(shunt_pack_abandon(&life->page), 0);
		err = shunt_pack_alloc(life->arena, SHUNT_SEGMENT_CODE, SHUNT_PACK_SIZE, 0, &life->page);
	}
	if (err)
		return err;
	write_tiny(life->page.rw, 77);
	err = shunt_pack_finalize(&life->page, 1);
	if (err)
		cr_assert_eq(shunt_pack_abandon(&life->page), 0);
	return err;
}

static int show_page(struct life *life)
{
	return shunt_pack_page_dup(&life->page, life->host_page);
}

static int hide_page(struct life *life)
{
	return shunt_pack_page_undup(life->host_page);
}

static int free_all(struct life *life)
{
	struct shunt_block *blocks[] = { &life->rodata, &life->data, &life->second, &life->large, &life->page, &life->later };
	int err = 0;

	for (uint32_t i = 0; i < life->nr_code && !err; i++)
		err = shunt_pack_free(&life->code[i]);
	for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]) && !err; i++)
		if (blocks[i]->id)
			err = shunt_pack_free(blocks[i]);
	life->nr_code = 0;
	return err;
}

static int quiesce(struct life *life)
{
	(void)life;
	return shunt_quiesce();
}

static int drop_rw(struct life *life)
{
	return shunt_arena_drop_rw(life->arena);
}

static int alloc_later(struct life *life)
{
	return shunt_pack_alloc(life->arena, SHUNT_SEGMENT_CODE, 100, 0, &life->later);
}

static int destroy(struct life *life)
{
	return shunt_arena_destroy(life->arena);
}

/* ---- one step, with what must hold after its failure ------------------------------------------------------------ */

struct state {
	struct shunt_pack_stats stats;
	unsigned nr_maps, nr_fds;
};

static void look(const struct life *life, struct state *out)
{
	struct state state = { .nr_maps = count_maps(is_shared_or_reserved), .nr_fds = count_fds() };

	if (life->arena)
		cr_assert_eq(shunt_pack_get_stats(life->arena, &state.stats), 0);
	/* Which rung the newest pack is on, and where empty packs wait, is no state that anybody relies on. */
	*out = state;
}

static void check_unchanged(const struct life *life, const struct state *before, bool is_partial)
{
	struct state now;

	look(life, &now);
	cr_assert_eq(now.nr_fds, before->nr_fds, "point %u: a descriptor is left over", at_point);
	for (int i = 0; i < SHUNT_NR_SEGMENTS; i++) {
		cr_assert_eq(now.stats.nr_blocks[i], before->stats.nr_blocks[i], "point %u", at_point);
		cr_assert_eq(now.stats.bytes_used[i], before->stats.bytes_used[i], "point %u", at_point);
	}
	cr_assert_eq(now.stats.bytes_pending, before->stats.bytes_pending, "point %u", at_point);
	/* An empty pack may wait for the next try; its two views are no leak. Where undoing fails too, the arena's end does it. */
	if (!sweep_on && !is_partial && now.stats.bytes_mapped[SHUNT_SEGMENT_CODE] == before->stats.bytes_mapped[SHUNT_SEGMENT_CODE])
		cr_assert_eq(now.nr_maps, before->nr_maps, "point %u: a mapping is left over", at_point);
	for (uint32_t i = 0; i < life->nr_code; i++)
		cr_assert_eq(call(life->code[i].rx), (int)i, "point %u", at_point);
}

static const char *const step_words[] = { " failed: ", "out of memory", "no free range" };

static void check_sentence(int err)
{
	bool named = false;

	for (size_t i = 0; i < sizeof(step_words) / sizeof(step_words[0]); i++)
		named |= strstr(shunt_error(), step_words[i]) != NULL;
	cr_assert_eq(err, -ENOMEM, "point %u: %d %s", at_point, err, shunt_error());
	cr_assert(named, "point %u: %s", at_point, shunt_error());
}

static void step(struct life *life, int (*fn)(struct life *life))
{
	struct state before;
	unsigned fail_at = inject.fail_at, nr_calls;
	int err;

	inject.fail_at = 0;
	nr_calls = inject.nr_calls;
	look(life, &before);
	inject.nr_calls = nr_calls;
	/* What these two map is not known to anybody yet who could later undo what undoing did not. */
	inject.fail_on = sweep_on && fn != create && fn != show_page;
	inject.fail_at = fail_at;
	err = fn(life);
	inject.fail_on = false;
	inject.fail_at = 0;
	nr_calls = inject.nr_calls;
	if (err) {
		cr_assert(fail_at && nr_calls >= fail_at, "%s", shunt_error());
		nr_reported++;
		check_sentence(err);
		/* Packs that lost their rw view before the one that failed do not get it back. */
		check_unchanged(life, &before, fn == drop_rw);
		err = fn(life);
		cr_assert_eq(err, 0, "point %u: a second try fails: %s", at_point, shunt_error());
	}
	inject.nr_calls = nr_calls;
	inject.fail_at = nr_calls < fail_at ? fail_at : 0;
}

static void check_called(const struct life *life)
{
	for (uint32_t i = 0; i < life->nr_code; i++)
		cr_assert_eq(call(life->code[i].rx), (int)i, "point %u", at_point);
	if (life->host_page)
		cr_assert_eq(call(life->host_page), 77, "point %u", at_point);
	cr_assert_eq(count_maps(is_writable_and_executable), 0, "point %u", at_point);
}

/* All that an arena can be asked for. */
static void live_fully(const struct shunt_arena_options *options)
{
	size_t page_size = (size_t)sysconf(_SC_PAGESIZE);
	struct life life = { .options = options };

	step(&life, create);
	for (int i = 0; i < NR_SMALL; i++)
		step(&life, alloc_code);
	step(&life, alloc_rodata);
	step(&life, alloc_data);
	step(&life, alloc_second);
	step(&life, alloc_large);
	step(&life, shrink);
	step(&life, alloc_page);
	if (!options->debug) {
		life.host_page = real.mmap(NULL, page_size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		step(&life, show_page);
	}
	check_called(&life);
	if (life.host_page) {
		step(&life, hide_page);
		real.munmap(life.host_page, page_size);
		life.host_page = NULL;
	}
	step(&life, free_all);
	step(&life, quiesce);
	step(&life, destroy);
}

static void live_without_rw(const struct shunt_arena_options *options)
{
	struct life life = { .options = options };

	step(&life, create);
	for (int i = 0; i < 2; i++)
		step(&life, alloc_code);
	step(&life, alloc_rodata);
	step(&life, alloc_large);
	step(&life, drop_rw);
	check_called(&life);
	step(&life, alloc_later);
	step(&life, free_all);
	step(&life, quiesce);
	step(&life, destroy);
}

/* What failed to be unmapped at an arena's end goes with the next one. */
static void sweep_up(void)
{
	struct life life = { .options = &(struct shunt_arena_options){ .size = 2 << 20 } };

	cr_assert_eq(create(&life), 0);
	cr_assert_eq(destroy(&life), 0);
}

static unsigned fail_each(void (*live)(const struct shunt_arena_options *options), const struct shunt_arena_options *options)
{
	unsigned nr;

	inject.fail_at = 0;
	live(options); /* what is done once a process, and what the C library keeps */
	inject.nr_calls = 0;
	live(options);
	nr = inject.nr_calls;
	for (at_point = 1 + nr_points % STRIDE; at_point <= nr; at_point += STRIDE) {
		unsigned nr_maps = count_maps(is_shared_or_reserved), nr_fds = count_fds();

		inject.nr_calls = 0;
		inject.fail_at = at_point;
		live(options);
		inject.fail_at = 0;
		sweep_up();
		cr_assert_eq(count_maps(is_shared_or_reserved), nr_maps, "point %u: a mapping is left over", at_point);
		cr_assert_eq(count_fds(), nr_fds, "point %u: a descriptor is left over", at_point);
	}
	return nr;
}

/* Of a fork alone, of the reclaiming thread, and of flushing under an emulator. */
static const enum kind elsewhere[] = { PIPE2, POLL, THREAD_CREATE, DUP_FD };

static void print_covered(const char *what)
{
	printf("%s: %u injection points, %s failed once, %u came to the caller; calls failed:", what, nr_points,
	       STRIDE == 1 ? "all of them" : "each fourth of them (sanitizer)", nr_reported);
	for (int kind = MMAP; kind < NR_KINDS; kind++) {
		bool expected = true;

		if (inject.nr_failed[kind])
			printf(" %s %u", kind_names[kind], inject.nr_failed[kind]);
		expected &= !sweep_on || kind < NODE_HERE || kind > PREFER_NODE; /* of the first sweep only */
		for (size_t i = 0; i < sizeof(elsewhere) / sizeof(elsewhere[0]); i++)
			expected &= elsewhere[i] != (enum kind)kind;
		cr_assert(!expected || STRIDE > 1 || inject.nr_failed[kind], "%s never failed", kind_names[kind]);
	}
	printf("\n");
	fflush(stdout);
}

static const struct shunt_arena_options kinds[] = {
	{ .size = 16 << 20 },
	{ .size = 16 << 20, .anon = true },
	{ .size = 16 << 20, .no_huge = true },
	{ .size = 16 << 20, .hugetlb = true },
	{ .size = 16 << 20, .debug = true },
	{ .size = 16 << 20, .debug = true, .anon = true },
	{ .size = 16 << 20, .random_start = true },
	{ .size = 16 << 20, .toggle = true },
};
#define NR_ARENA_KINDS (sizeof(kinds) / sizeof(kinds[0]))

static void sweep_all(void)
{
	inject_begin();
	inject.error = ENOMEM;
	cr_assert_eq(shunt_reclaim_set_mode(SHUNT_RECLAIM_HOST), 0); /* so that calls come in one order */
	for (size_t i = 0; i < (sweep_on ? 2 : NR_ARENA_KINDS); i++)
		nr_points += fail_each(live_fully, &kinds[i]);
	for (size_t i = 0; i < 2; i++)
		nr_points += fail_each(live_without_rw, &kinds[i]);
	if (sweep_on)
		return;
	inject.nodes = 5;
	inject.here = 2;
	nr_points += fail_each(live_fully, &kinds[0]);
	inject.nodes = 0;
	/* Kernels without these, and a pool without pages. */
	inject.worst_rung = SHUNT_BACKING_MEMFD;
	nr_points += fail_each(live_fully, &kinds[0]);
	inject.worst_rung = 0;
	inject.refused_advice = MADV_COLLAPSE;
	nr_points += fail_each(live_fully, &kinds[0]);
	nr_points += fail_each(live_fully, &kinds[1]);
	inject.refused_advice = 0;
	inject.no_pool = true;
	nr_points += fail_each(live_fully, &kinds[3]);
}

Test(pack_faults, each_call_that_fails_is_named_and_leaves_everything_as_it_was)
{
	if (lacks_second_views())
		cr_skip_test(LACKS_SECOND_VIEWS);
	sweep_all();
	print_covered("one failure");
}

Test(pack_faults, a_system_that_fails_from_a_call_on_leaves_an_arena_that_works_again)
{
	if (lacks_second_views())
		cr_skip_test(LACKS_SECOND_VIEWS);
	sweep_on = true;
	sweep_all();
	print_covered("failing on");
}

/* ---- the reclaiming thread -------------------------------------------------------------------------------------- */

Test(pack_faults, what_is_freed_is_reclaimed_where_no_thread_can_be_started)
{
	struct life life = { .options = &kinds[0] };

	if (lacks_second_views())
		cr_skip_test(LACKS_SECOND_VIEWS);
	inject_begin();
	inject.error = EAGAIN;
	inject.fail_kinds[0] = THREAD_CREATE;
	cr_assert_eq(create(&life), 0);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(alloc_code(&life), 0);
	cr_assert_eq(shunt_pack_free(&life.code[1]), 0);
	cr_assert_eq(shunt_quiesce(), 0, "%s", shunt_error());
	cr_assert(is_all_traps(life.code[1].rx, life.code[1].len));
	inject.fail_kinds[0] = NONE;
	cr_assert_eq(shunt_pack_free(&life.code[0]), 0);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(destroy(&life), 0, "%s", shunt_error());
}

/* ---- unwind tables ---------------------------------------------------------------------------------------------- */

const void *_Unwind_Find_FDE(void *pc, void *bases); /* libgcc's */

static bool is_known(const struct shunt_block *block)
{
	void *bases[3];

	return _Unwind_Find_FDE((char *)block->rx + 1, bases) != NULL;
}

Test(pack_faults, tables_of_code_that_is_gone_go_without_memory_too)
{
	struct life life = { .options = &kinds[0] };
	struct shunt_unwind infos[NR_SMALL];

	if (lacks_second_views())
		cr_skip_test(LACKS_SECOND_VIEWS);
	inject_begin();
	cr_assert_eq(create(&life), 0);
	for (int i = 0; i < NR_SMALL; i++) {
		cr_assert_eq(alloc_code(&life), 0);
		infos[i] = (struct shunt_unwind){ .block = &life.code[i] };
	}
	cr_assert_eq(shunt_pack_set_unwind(infos, NR_SMALL), 0, "%s", shunt_error());
	for (int i = 0; i < NR_SMALL; i++)
		cr_assert(is_known(&life.code[i]));
	/* The first one's neighbour keeps its own: two in a registration become one, then none. */
	for (int i = 0; i < NR_SMALL; i++) {
		cr_assert_eq(shunt_pack_free(&life.code[i]), 0);
		inject.error = ENOMEM;
		inject.fail_kinds[0] = ALLOC;
		cr_assert_eq(shunt_quiesce(), 0, "%s", shunt_error());
		inject.fail_kinds[0] = NONE;
		for (int k = 0; k < NR_SMALL; k++)
			cr_assert_eq(is_known(&life.code[k]), k > i, "%d after %d was freed", k, i);
	}
	/* And with memory a table is taken again. */
	life.nr_code = 0;
	cr_assert_eq(alloc_code(&life), 0);
	infos[0].block = &life.code[0];
	cr_assert_eq(shunt_pack_set_unwind(infos, 1), 0, "%s", shunt_error());
	cr_assert(is_known(&life.code[0]));
	cr_assert_eq(shunt_pack_free(&life.code[0]), 0);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(destroy(&life), 0, "%s", shunt_error());
}

/* ---- fork ------------------------------------------------------------------------------------------------------- */

struct fork_report {
	unsigned nr_parent;   /* calls until fork returns there */
	unsigned nr_child;    /* calls until fork returns there */
	bool is_shared;       /* the child said that it shares a pack */
};

static bool said_shared;

static void hear(void *user, enum shunt_log_level level, const char *message)
{
	(void)user;
	(void)level;
	said_shared |= strstr(message, "shares pack") != NULL;
}

/* What a child checks of itself; 0, or the number of what was wrong. */
static int check_child(struct life *life, unsigned nr_fds, int from_parent)
{
	struct shunt_block block;
	char byte;

	if (count_fds() != nr_fds)
		return 2;
	/* Then it runs what the parent changes, as it said. */
	if (said_shared)
		return 0;
	if (call(life->code[0].rx) != 0 || call(life->code[1].rx) != 1 || call(life->host_page) != 77)
		return 3;
	/* The parent changes its code now. */
	if (read(from_parent, &byte, 1) != 1 || call(life->code[0].rx) != 0)
		return 4;
	if (shunt_pack_alloc(life->arena, SHUNT_SEGMENT_CODE, 100, 0, &block) != 0)
		return 5;
	write_tiny(block.rw, 9);
	if (shunt_pack_finalize(&block, 1) != 0 || call(block.rx) != 9)
		return 6;
	if (shunt_pack_free(&life->code[1]) != 0 || shunt_quiesce() != 0 || call(life->code[0].rx) != 0)
		return 7;
	return count_maps(is_writable_and_executable) ? 8 : 0;
}

static void fork_once(unsigned point, bool no_memory, struct fork_report *out)
{
	struct fork_report *report = real.mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	size_t page_size = (size_t)sysconf(_SC_PAGESIZE);
	struct life life = { .options = &kinds[0] };
	unsigned nr_fds = count_fds();
	int status, fds[2];
	pid_t pid;

	inject.fail_at = 0;
	cr_assert_eq(create(&life), 0);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(alloc_code(&life), 0, "%s", shunt_error());
	cr_assert_eq(alloc_large(&life), 0);
	cr_assert_eq(alloc_page(&life), 0);
	life.host_page = real.mmap(NULL, page_size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cr_assert_eq(show_page(&life), 0, "%s", shunt_error());
	cr_assert_eq(pipe(fds), 0);
	fflush(NULL);
	inject.nr_calls = 0;
	inject.no_doubling = no_memory;
	inject.worst_rung = no_memory ? SHUNT_BACKING_SHARED_ANON : 0;
	inject.fail_at = point;
	pid = fork();
	inject.no_doubling = false;
	inject.worst_rung = 0;
	if (!pid) {
		inject.fail_at = 0;
		report->nr_child = inject.nr_calls;
		report->is_shared = said_shared;
		_exit(check_child(&life, nr_fds + 2, fds[0]));
	}
	inject.fail_at = 0;
	report->nr_parent = inject.nr_calls;
	cr_assert_gt(pid, 0);
	shunt_pack_patch_begin();
	write_tiny(life.code[0].rw, 5);
	shunt_pack_patch_end();
	cr_assert_eq(write(fds[1], "", 1), 1);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "point %u: the child's check %d, status %#x", point, WEXITSTATUS(status), (unsigned)status);
	*out = *report;
	close(fds[0]);
	close(fds[1]);
	cr_assert_eq(hide_page(&life), 0);
	real.munmap(life.host_page, page_size);
	real.munmap(report, 4096);
	cr_assert_eq(free_all(&life), 0);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(destroy(&life), 0, "%s", shunt_error());
	cr_assert_eq(count_fds(), nr_fds, "point %u: a descriptor is left over", point);
}

/* Calls of the parent, and of the child, fail in one sweep: the numbers before the child exists are the same in both. */
static void fork_each(bool no_memory, unsigned *nr, unsigned *nr_shared)
{
	struct fork_report clean, report;

	fork_once(0, no_memory, &clean);
	for (unsigned point = 1; point <= clean.nr_child || point <= clean.nr_parent; point++) {
		fork_once(point, no_memory, &report);
		*nr_shared += report.is_shared;
		++*nr;
	}
}

Test(pack_faults, each_call_of_a_fork_that_fails_leaves_parent_and_child_with_code_that_runs)
{
	unsigned nr = 0, nr_shared = 0;

	if (lacks_second_views())
		cr_skip_test(LACKS_SECOND_VIEWS);
	inject_begin();
	inject.error = ENOMEM;
	cr_assert_eq(shunt_reclaim_set_mode(SHUNT_RECLAIM_HOST), 0);
	shunt_set_log(hear, NULL, SHUNT_LOG_WARN);
	fork_each(false, &nr, &nr_shared);
	cr_assert_eq(nr_shared, 0, "one failure must not make a child share its parent's code");
	/* Where the child has private memory only, and of that one call fails. */
	fork_each(true, &nr, &nr_shared);
	printf("fork: %u injection points, all of them failed once, after %u the child said that it shares a pack\n", nr, nr_shared);
	fflush(stdout);
}
