/* SPDX-License-Identifier: MIT */
/*
 * Systems that are set up strictly: no executable files of memory, nothing that becomes executable later, no files of any length, few
 * addresses. Packs are made there all the same, or refused with the reason.
 */
#include "test/unit/pack_check.h"
#include "test/lacks.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <shunt/log.h>
#include <shunt/reader.h>

#include "test/unit/pack_test.h"

/* Linux 6.3; older headers lack them. */
#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#define PR_MDWE_REFUSE_EXEC_GAIN 1
#endif

#define SKIPPED 77

static struct shunt_arena *make_arena(bool anon)
{
	struct shunt_arena_options options = { .size = 8 << 20, .anon = anon };
	struct shunt_arena *arena = NULL;

	cr_assert_eq(shunt_arena_create(&options, &arena), 0, "%s", shunt_error());
	return arena;
}

/* The whole life of a program: made, called, freed, traps. */
static void live_and_die(struct shunt_arena *arena)
{
	struct shunt_block anchor, block;

	cr_assert(make_tiny(arena, 1, &anchor), "%s", shunt_error());
	cr_assert(make_tiny(arena, 42, &block), "%s", shunt_error());
	cr_assert_eq(call(block.rx), 42);
	write_tiny(block.rw, 43);
	cr_assert_eq(shunt_pack_finalize(&block, 1), 0);
	cr_assert_eq(call(block.rx), 43);
	cr_assert_eq(shunt_pack_free(&block), 0);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert(is_all_traps(block.rx, block.len));
	cr_assert_eq(shunt_pack_abandon(&anchor), 0);
}

Test(pack_system, packs_work_where_nothing_may_become_executable_later)
{
	struct shunt_block block;
	struct shunt_arena *arena;
	void *p;

	if (lacks_second_views())
		cr_skip_test(LACKS_SECOND_VIEWS);
	if (prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0) != 0)
		cr_skip_test("this kernel has no PR_SET_MDWE (Linux 6.3)");
	/* What it is about: the usual ways of other engines are denied. */
	p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(mprotect(p, 4096, PROT_READ | PROT_EXEC), 0);
	for (int anon = 0; anon < 2; anon++) {
		arena = make_arena(anon);
		live_and_die(arena);
		cr_assert_eq(backing_of(arena) == SHUNT_BACKING_SHARED_ANON, anon, "%s", shunt_backing_name(backing_of(arena)));
		cr_assert(make_tiny(arena, 7, &block));
		p = (void *)((uintptr_t)block.rw & ~(uintptr_t)4095);
		cr_assert_neq(mprotect(p, 4096, PROT_READ | PROT_WRITE | PROT_EXEC), 0, "the rw view could be made executable");
		cr_assert_neq(mprotect(p, 4096, PROT_READ | PROT_EXEC), 0, "the rw view could be made executable");
	}
}

Test(pack_system, packs_need_no_files_where_files_may_have_no_length)
{
	struct rlimit limit = { 0, 0 };
	struct shunt_arena *arena;

	if (lacks_second_views())
		cr_skip_test(LACKS_SECOND_VIEWS);
	/* A memfd would be SIGXFSZ, which ends the process. */
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	arena = make_arena(false);
	live_and_die(arena);
	cr_assert_eq(backing_of(arena), SHUNT_BACKING_SHARED_ANON);
}

Test(pack_system, few_addresses_are_an_error_with_a_sentence_and_a_smaller_arena_still_fits)
{
	struct shunt_arena_options options = { .size = (size_t)shunt_target_host()->default_arena }; /* 64 MiB at least, and as much for rw */
	struct shunt_arena *arena;
	struct rlimit limit;
	size_t pages = 0;
	FILE *file;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	cr_skip_test("sanitizers map more than any limit worth testing");
#endif
	if (lacks_address_limit())
		cr_skip_test(LACKS_ADDRESS_LIMIT);
	file = fopen("/proc/self/statm", "re");
	cr_assert(file && fscanf(file, "%zu", &pages) == 1);
	fclose(file);
	cr_assert_eq(getrlimit(RLIMIT_AS, &limit), 0);
	limit.rlim_cur = pages * (size_t)sysconf(_SC_PAGESIZE) + (96 << 20);
	cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
	cr_assert_eq(shunt_arena_create(&options, &arena), -ENOMEM);
	cr_assert(strstr(shunt_error(), "ask for a smaller one"), "%s", shunt_error());
	live_and_die(make_arena(false));
}

static int without_executable_memfds(void)
{
	int fd = open("/proc/sys/vm/memfd_noexec", O_WRONLY | O_CLOEXEC);
	struct shunt_arena *arena;

	if (fd < 0 || write(fd, "2", 1) != 1)
		return SKIPPED;
	close(fd);
	if (memfd_create("probe", 0x0010U /* MFD_EXEC */) >= 0)
		return SKIPPED;
	arena = make_arena(false);
	live_and_die(arena);
	return backing_of(arena) == SHUNT_BACKING_MEMFD_NOEXEC_SEAL ? 0 : 3;
}

/* Runs fn in a child, and returns what it returned; -1 when it ended otherwise. */
static int in_child(int (*fn)(void))
{
	int status = -1;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (!pid)
		_exit(fn());
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}

/* The sysctl of a process-number space is nobody else's. Only the caller's children are in it. */
static int in_a_space_of_its_own(void)
{
	return unshare(CLONE_NEWPID) == 0 ? in_child(without_executable_memfds) : SKIPPED;
}

Test(pack_system, packs_work_where_executable_memfds_are_forbidden)
{
	int result;

	if (lacks_second_views())
		cr_skip_test(LACKS_SECOND_VIEWS);
	result = in_child(in_a_space_of_its_own);
	if (result == SKIPPED)
		cr_skip_test("no right to make a process-number space, in which alone vm.memfd_noexec may be changed here, or Linux before 6.3");
	cr_assert_eq(result, 0, "%d", result);
}

/* A seal that is put on after both views (as some engines do) leaves the rx view open. */
Test(pack_system, no_new_writable_view_of_a_pack_can_be_had_from_anywhere)
{
	struct shunt_arena *arena = make_arena(false);
	char link[64], target[128], line[512];
	struct shunt_block block;
	unsigned nr_tried = 0;
	FILE *maps;

	cr_assert(make_tiny(arena, 7, &block));
	if (backing_of(arena) == SHUNT_BACKING_SHARED_ANON)
		cr_skip_test("no memfd here, so no seals to test");
	maps = fopen("/proc/self/maps", "re");
	while (fgets(line, sizeof(line), maps)) {
		uintptr_t start, end;
		ssize_t len;
		int fd;

		if (sscanf(line, "%lx-%lx ", &start, &end) != 2 || (uintptr_t)block.rx < start || (uintptr_t)block.rx >= end)
			continue;
		snprintf(link, sizeof(link), "/proc/self/map_files/%lx-%lx", start, end);
		len = readlink(link, target, sizeof(target) - 1);
		if (len < 0)
			break;
		fd = open(link, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			break;
		nr_tried++;
		cr_assert_eq(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED, "a second writable view could be mapped");
		cr_assert_eq(pwrite(fd, "x", 1, 0), -1, "the pack could be written through its file");
		cr_assert_neq(ftruncate(fd, 0), 0, "the pack could be cut short under its programs");
		close(fd);
	}
	fclose(maps);
	if (!nr_tried)
		cr_skip_test("/proc/self/map_files may not be opened here");
}
