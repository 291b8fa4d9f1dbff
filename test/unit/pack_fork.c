/* SPDX-License-Identifier: MIT */
/* Forks: two processes that once shared their packs and no longer see each other's writes. */
#include "test/unit/pack_check.h"
#include "test/lacks.h"
#include "test/slowness.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <shunt/log.h>
#include <shunt/reader.h>

#include "runtime/pack/backing_sys.h"
#include "runtime/grace.h"
#include "runtime/machine.h"
#include "runtime/pack/pack.h"
#include "test/unit/pack_test.h"

/* In a child a failure is the line it happened at. */
#define CHILD_ASSERT(condition) do { if (!(condition)) _exit_at(__LINE__); } while (0)

static int failure_line[2];

static void _exit_at(int line)
{
	if (write(failure_line[1], &line, sizeof(line)) != sizeof(line))
		_exit(2);
	_exit(1);
}

static pid_t fork_child(void)
{
	pid_t pid = fork();

	cr_assert_geq(pid, 0);
	if (!pid)
		alarm((unsigned)(20 * test_slowness()));
	return pid;
}

static void expect_child(pid_t pid)
{
	int status = -1;
	int line = 0;

	cr_assert_eq(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 1 && read(failure_line[0], &line, sizeof(line)) != sizeof(line))
		line = -1;
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child: status %#x, failed at line %d", (unsigned)status, line);
}

static struct shunt_arena *make_arena(bool anon)
{
	struct shunt_arena_options options = { .size = 16 << 20, .anon = anon };
	struct shunt_arena *arena = NULL;

	cr_assert_eq(pipe(failure_line), 0);
	cr_assert_eq(shunt_arena_create(&options, &arena), 0, "%s", shunt_error());
	return arena;
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Both sides change the same block; each runs its own. */
static void change_both(bool anon)
{
	struct shunt_arena *arena = make_arena(anon);
	struct shunt_block code;
	struct shunt_block rodata;
	struct shunt_block data;
	unsigned fds;
	int ready[2];
	pid_t pid;
	char c = 0;

	cr_assert(make_tiny(arena, 1, &code));
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_RODATA, 64, 0, &rodata), 0);
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_DATA, 64, 0, &data), 0);
	strcpy(rodata.rw, "before");
	strcpy(data.rw, "before");
	cr_assert_eq(pipe(ready), 0);
	fds = count_fds();
	pid = fork_child();
	if (!pid) {
		struct shunt_block block;

		CHILD_ASSERT(count_fds() == fds);
		CHILD_ASSERT(read(ready[0], &c, 1) == 1);
		/* The parent has made its changes. */
		CHILD_ASSERT(call(code.rx) == 1);
		CHILD_ASSERT(!strcmp(rodata.rx, "before") && !strcmp(data.rx, "before"));
		write_tiny(code.rw, 3);
		CHILD_ASSERT(shunt_pack_finalize(&code, 1) == 0);
		CHILD_ASSERT(call(code.rx) == 3);
		strcpy(rodata.rw, "child");
		CHILD_ASSERT(!strcmp(rodata.rx, "child"));
		CHILD_ASSERT(count_maps(is_writable_and_executable) == 0);
		CHILD_ASSERT(is_all_traps((char *)code.rx + 64, SHUNT_PACK_SIZE - 64));
		CHILD_ASSERT(make_tiny(arena, 4, &block) && call(block.rx) == 4);
		CHILD_ASSERT(shunt_pack_free(&block) == 0 && shunt_pack_free(&code) == 0 && shunt_quiesce() == 0);
		CHILD_ASSERT(is_all_traps(code.rx, 64));
		_exit(0);
	}
	shunt_pack_patch_begin();
	write_tiny(code.rw, 2);
	strcpy(rodata.rw, "parent");
	strcpy(data.rw, "parent");
	shunt_pack_patch_end();
	cr_assert_eq(shunt_pack_finalize(&code, 1), 0);
	cr_assert_eq(call(code.rx), 2);
	cr_assert_eq(write(ready[1], &c, 1), 1);
	expect_child(pid);
	cr_assert_eq(call(code.rx), 2, "the child changed its parent's code");
	cr_assert_str_eq(rodata.rx, "parent");
	cr_assert_eq(count_fds(), fds);
}

Test(pack_fork, neither_side_sees_the_others_changes)
{
	change_both(false);
}

Test(pack_fork, neither_side_sees_the_others_changes_without_files_either)
{
	if (lacks_second_views())
		cr_skip_test(LACKS_SECOND_VIEWS);
	change_both(true);
}

Test(pack_fork, a_page_shown_twice_shows_the_childs_own_pack_in_the_child)
{
	struct shunt_arena *arena = make_arena(false);
	struct shunt_block block;
	char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pid_t pid;

	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 4096, 4096, &block), 0);
	cr_assert_eq(shunt_pack_page_dup(&block, page), 0, "%s", shunt_error());
	write_tiny(block.rw, 1);
	cr_assert_eq(shunt_pack_finalize(&block, 1), 0);
	pid = fork_child();
	if (!pid) {
		CHILD_ASSERT(call(page) == 1);
		write_tiny(block.rw, 2);
		CHILD_ASSERT(shunt_pack_finalize(&block, 1) == 0);
		/* Finalizing is for the block's own address; the page is another one, as of a stub in an image. */
		shunt_machine_sync_caches(page, block.rw, TINY_LEN);
		CHILD_ASSERT(call(page) == 2);
		_exit(0);
	}
	expect_child(pid);
	cr_assert_eq(call(page), 1);
}

static pid_t parent_pid;
static double child_delay;
static struct shunt_sys real;

static int slow_memfd_create(const char *name, unsigned flags)
{
	if (getpid() != parent_pid)
		usleep((useconds_t)(child_delay * 1e6));
	return real.memfd_create(name, flags);
}

static void slow_children(double seconds)
{
	parent_pid = getpid();
	child_delay = seconds;
	real = shunt_sys;
	shunt_sys.memfd_create = slow_memfd_create;
}

Test(pack_fork, the_parents_mutators_wait_for_a_copying_child_its_readers_and_further_forks_do_not)
{
	struct shunt_arena *arena = make_arena(false);
	struct shunt_block block;
	struct shunt_block other;
	double start;
	pid_t pids[3];

	cr_assert(make_tiny(arena, 1, &block));
	slow_children(0.4 * test_slowness());
	start = now();
	for (int i = 0; i < 3; i++) {
		pids[i] = fork_child();
		if (!pids[i])
			_exit(call(block.rx) == 1 ? 0 : 1);
	}
	shunt_read_begin();
	cr_assert_eq(call(block.rx), 1);
	shunt_read_end();
	cr_assert_eq(shunt_pack_find(block.rx, &other, NULL), 0);
	cr_assert_eq(shunt_pack_free(&block), 0, "free waits never");
	cr_assert_lt(now() - start, 0.35 * test_slowness(), "a reader, a free or a fork waited");
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 64, 0, &other), 0);
	cr_assert_gt(now() - start, 0.35 * test_slowness(), "an allocation did not wait");
	for (int i = 0; i < 3; i++)
		expect_child(pids[i]);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert(is_all_traps(block.rx, 64));
}

static int poll_error, nr_polls;

static int failing_poll(struct pollfd *fds, nfds_t nr, int timeout_ms)
{
	if (++nr_polls > 3)
		return real.poll(fds, nr, timeout_ms);
	errno = poll_error;
	return -1;
}

Test(pack_fork, a_refusal_to_wait_for_a_copying_child_is_not_taken_for_its_end)
{
	static const int errors[] = { EINTR, ENOMEM, EINVAL };
	struct shunt_arena *arena = make_arena(false);
	struct shunt_block block;
	double start;
	pid_t pid;

	cr_assert(make_tiny(arena, 1, &block));
	slow_children(0.2);
	shunt_sys.poll = failing_poll;
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		poll_error = errors[i];
		nr_polls = 0;
		start = now();
		pid = fork_child();
		if (!pid)
			_exit(call(block.rx) == 1 ? 0 : 1);
		shunt_pack_patch_begin();
		shunt_pack_patch_end();
		cr_assert_gt(now() - start, 0.19, "%s", strerror(errors[i]));
		cr_assert_gt(nr_polls, 0);
		expect_child(pid);
	}
}

Test(pack_fork, a_child_that_dies_while_copying_does_not_hold_up_its_parent)
{
	struct shunt_arena *arena = make_arena(false);
	struct shunt_block block;
	double start;
	pid_t pid;

	cr_assert(make_tiny(arena, 1, &block));
	slow_children(30);
	pid = fork_child();
	if (!pid)
		_exit(0);
	start = now();
	kill(pid, SIGKILL);
	shunt_pack_patch_begin();
	shunt_pack_patch_end();
	cr_assert_lt(now() - start, 10);
	waitpid(pid, NULL, 0);
}

static void *no_shared_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
	if (getpid() != parent_pid && (flags & MAP_SHARED)) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	return real.mmap(addr, len, prot, flags, fd, offset);
}

Test(pack_fork, a_child_without_shared_memory_runs_on_with_packs_that_nobody_changes)
{
	struct shunt_arena *arena = make_arena(false);
	struct shunt_block block;
	int ready[2];
	char c = 0;
	pid_t pid;

	cr_assert(make_tiny(arena, 1, &block));
	cr_assert_eq(pipe(ready), 0);
	real = shunt_sys;
	parent_pid = getpid();
	shunt_sys.mmap = no_shared_mmap;
	pid = fork_child();
	if (!pid) {
		struct shunt_block other;

		CHILD_ASSERT(read(ready[0], &c, 1) == 1);
		CHILD_ASSERT(call(block.rx) == 1);
		CHILD_ASSERT(shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 64, 0, &other) < 0);
		CHILD_ASSERT(count_maps(is_writable_and_executable) == 0);
		shunt_sys = real;
		CHILD_ASSERT(make_tiny(arena, 5, &other) && call(other.rx) == 5);
		CHILD_ASSERT(((uintptr_t)other.rx ^ (uintptr_t)block.rx) >= SHUNT_PACK_SIZE);
		CHILD_ASSERT(call(block.rx) == 1);
		CHILD_ASSERT(shunt_pack_free(&block) == 0 && shunt_quiesce() == 0 && shunt_pack_free(&block) == -EINVAL);
		_exit(0);
	}
	shunt_pack_patch_begin();
	write_tiny(block.rw, 2);
	shunt_pack_patch_end();
	cr_assert_eq(shunt_pack_finalize(&block, 1), 0);
	cr_assert_eq(call(block.rx), 2);
	cr_assert_eq(write(ready[1], &c, 1), 1);
	expect_child(pid);
}

Test(pack_fork, a_grandchild_works_like_a_child)
{
	struct shunt_arena *arena = make_arena(false);
	struct shunt_block block;
	pid_t pid;

	cr_assert(make_tiny(arena, 1, &block));
	pid = fork_child();
	if (!pid) {
		int status = -1;
		pid_t grandchild;

		write_tiny(block.rw, 2);
		CHILD_ASSERT(shunt_pack_finalize(&block, 1) == 0);
		grandchild = fork();
		if (!grandchild) {
			CHILD_ASSERT(call(block.rx) == 2);
			write_tiny(block.rw, 3);
			CHILD_ASSERT(shunt_pack_finalize(&block, 1) == 0);
			CHILD_ASSERT(call(block.rx) == 3);
			_exit(0);
		}
		CHILD_ASSERT(waitpid(grandchild, &status, 0) == grandchild && status == 0);
		CHILD_ASSERT(call(block.rx) == 2);
		_exit(0);
	}
	expect_child(pid);
	cr_assert_eq(call(block.rx), 1);
}

static unsigned hook_order[3];
static unsigned nr_hooks_called;

static void hook_prepare(void)
{
	hook_order[0] = ++nr_hooks_called;
}

static void hook_parent(void)
{
	hook_order[1] = ++nr_hooks_called;
}

static void hook_child(void)
{
	hook_order[2] = ++nr_hooks_called;
	/* The packs are the child's own by now. */
	shunt_pack_patch_begin();
	shunt_pack_patch_end();
}

Test(pack_fork, hooks_of_other_rooms_run_on_both_sides)
{
	static struct shunt_fork_hooks hooks = { .prepare = hook_prepare, .parent = hook_parent, .child = hook_child };
	pid_t pid;

	make_arena(false);
	shunt_fork_register(&hooks);
	pid = fork_child();
	if (!pid) {
		CHILD_ASSERT(hook_order[0] == 1 && hook_order[1] == 0 && hook_order[2] == 2);
		_exit(0);
	}
	cr_assert(hook_order[0] == 1 && hook_order[1] == 2 && hook_order[2] == 0);
	expect_child(pid);
}

static struct shunt_arena *storm_arena;
static int storm_stop;

static void *allocate_forever(void *arg)
{
	uint32_t number = (uint32_t)(uintptr_t)arg;
	void *failed = NULL;

	for (unsigned i = 1; !__atomic_load_n(&storm_stop, __ATOMIC_RELAXED) && !failed; i++) {
		struct shunt_block block;

		/* Faster than any reclaimer otherwise: the arena would be full of what waits. */
		if (i % 1024 == 0)
			shunt_quiesce();

		shunt_read_begin();
		if (!make_tiny(storm_arena, number, &block) || call(block.rx) != (int)number || shunt_pack_free(&block) != 0)
			failed = arg;
		shunt_read_end();
	}
	return failed;
}

Test(pack_fork, forks_in_a_storm_of_allocations_leave_both_sides_working, .timeout = 60)
{
	struct shunt_block keep;
	pthread_t threads[4];
	void *failed;

	SKIP_WHERE_MALLOC_DOES_NOT_SURVIVE_FORK();
	storm_arena = make_arena(false);
	cr_assert(make_tiny(storm_arena, 999, &keep));
	for (uintptr_t i = 0; i < 4; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, allocate_forever, (void *)(i + 1)), 0);
	for (int i = 0; i < 25; i++) {
		pid_t pid;

		if (i % 2)
			shunt_read_begin();
		pid = fork_child();
		if (!pid) {
			struct shunt_pack_stats stats;
			struct shunt_block block;

			CHILD_ASSERT(call(keep.rx) == 999);
			if (i % 2)
				shunt_read_end();
			CHILD_ASSERT(make_tiny(storm_arena, 7, &block) && call(block.rx) == 7);
			CHILD_ASSERT(shunt_pack_free(&block) == 0 && shunt_pack_free(&keep) == 0 && shunt_quiesce() == 0);
			CHILD_ASSERT(shunt_pack_get_stats(storm_arena, &stats) == 0 && stats.bytes_pending == 0);
			_exit(0);
		}
		if (i % 2)
			shunt_read_end();
		expect_child(pid);
		cr_assert_eq(call(keep.rx), 999);
	}
	__atomic_store_n(&storm_stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], &failed);
		cr_assert_null(failed);
	}
}

/* Long enough for a batch to be waiting when the process forks; the fork waits for the section then, not for the batch. */
static void *read_for_a_while(void *unused)
{
	shunt_read_begin();
	usleep((useconds_t)(400000 * test_slowness()));
	shunt_read_end();
	return unused;
}

static void *reclaim_once(void *unused)
{
	shunt_reclaim();
	return unused;
}

static struct shunt_block freed_by_retire;

static void free_in_retire(struct shunt_grace_item *item)
{
	if (freed_by_retire.id && shunt_pack_free(&freed_by_retire) == 0)
		freed_by_retire.id = 0;
}

static void release_nothing(struct shunt_grace_item *item)
{
}

Test(pack_fork, a_child_finishes_the_batch_that_its_parent_was_waiting_for_and_what_came_after)
{
	static struct shunt_grace_item item = { .retire = free_in_retire, .release = release_nothing };
	struct shunt_arena *arena = make_arena(false);
	struct shunt_pack_stats stats;
	struct shunt_block blocks[4];
	struct shunt_block last;
	pthread_t threads[2];
	pid_t pid;

	cr_assert_eq(shunt_reclaim_set_mode(SHUNT_RECLAIM_HOST), 0);
	for (uint32_t i = 0; i < 4; i++)
		cr_assert(make_tiny(arena, i, &blocks[i]));
	/* The first is in a batch that waits for the reader, the second in the queue behind it. */
	cr_assert_eq(pthread_create(&threads[0], NULL, read_for_a_while, NULL), 0);
	usleep((useconds_t)(50000 * test_slowness()));
	cr_assert_eq(shunt_pack_free(&blocks[0]), 0);
	cr_assert_eq(pthread_create(&threads[1], NULL, reclaim_once, NULL), 0);
	usleep((useconds_t)(50000 * test_slowness()));
	cr_assert_eq(shunt_pack_free(&blocks[1]), 0);
	pid = fork_child();
	if (!pid) {
		CHILD_ASSERT(call(blocks[0].rx) == 0 && call(blocks[1].rx) == 1);
		/* Both grace items of the pack are in one batch here; a third free finds none and must not be forgotten. */
		last = freed_by_retire = blocks[2];
		shunt_grace_defer(&item);
		CHILD_ASSERT(shunt_reclaim() == 3);
		CHILD_ASSERT(freed_by_retire.id == 0);
		CHILD_ASSERT(is_all_traps(blocks[0].rx, 64) && is_all_traps(blocks[1].rx, 64));
		CHILD_ASSERT(call(last.rx) == 2);
		CHILD_ASSERT(shunt_quiesce() == 0);
		CHILD_ASSERT(is_all_traps(last.rx, 64));
		CHILD_ASSERT(shunt_pack_get_stats(arena, &stats) == 0 && stats.bytes_pending == 0);
		CHILD_ASSERT(call(blocks[3].rx) == 3);
		_exit(0);
	}
	expect_child(pid);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert(is_all_traps(blocks[0].rx, 128));
	cr_assert_eq(call(blocks[2].rx), 2);
}
