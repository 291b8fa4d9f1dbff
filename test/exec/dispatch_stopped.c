/* SPDX-License-Identifier: MIT */
/*
 * A thread that is stopped for a second inside a tree, and one inside a program: what a debugger or a busy machine does. Meanwhile the program
 * is detached and freed, and the dispatcher and the packs are used as hard as can be: neither tree nor program may change a byte before
 * the thread has gone on and left its read section.
 *
 * The test's child has the threads; the test itself is the debugger, which steps the reader until it stands where it is wanted.
 */
#include <errno.h>
#include <elf.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <shunt/dispatcher.h>
#include <shunt/log.h>
#include <shunt/reader.h>

#include "targets/target.h"
#include "test/exec/dispatch_programs.h"

#define SKIP 77
#define NR_UPDATES 2000
#define MAX_STEPS 1000000

SHUNT_DISPATCHER_DEFINE(stopped, uint64_t, (uint64_t arg));

enum { STARTING, RUNNING, STOPPED, CHECKED, FAILED };

/* What debugger and child share. */
static struct shared {
	int state;
	pid_t reader;
	uint64_t tree, tree_len, program;
} *shared;

static void go_to(int state)
{
	__atomic_store_n(&shared->state, state, __ATOMIC_RELEASE);
}

static void wait_for(int state)
{
	while (__atomic_load_n(&shared->state, __ATOMIC_ACQUIRE) < state)
		usleep(1000);
}

/* ---- the child ----------------------------------------------------------------------------------------------------- */

static int stop;

static void *reader(void *program)
{
	uint64_t bad = 0;

	shared->reader = (pid_t)syscall(SYS_gettid);
	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		shunt_read_begin();
		/* Before the state is looked at: who has seen that it is over does not use the program any more. */
		if (__atomic_load_n(&shared->state, __ATOMIC_ACQUIRE) <= RUNNING)
			bad += stopped(1, program) != 8;
		shunt_read_end();
	}
	return (void *)(uintptr_t)bad;
}

static int fail(const char *what)
{
	fprintf(stderr, "%s (last error: %s)\n", what, shunt_error());
	return 1;
}

static int run_child(bool in_tree)
{
	struct shunt_dispatcher *d = shunt_dispatcher_stopped();
	struct shunt_dispatcher_stats stats;
	struct shunt_block program, others[8];
	struct shunt_reclaim_stats before, after;
	unsigned char tree_bytes[1024], program_bytes[PROGRAM_LEN];
	struct timespec start, now;
	bool is_tree_same, is_program_same;
	pthread_t thread;
	void *bad;

	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	if (make_program(shunt_dispatcher_arena(d), 7, &program))
		return fail("program");
	for (uint32_t i = 0; i < 8; i++)
		if (make_program(shunt_dispatcher_arena(d), 100 + i, &others[i]) || shunt_dispatcher_attach(d, others[i].rx))
			return fail("program");
	if (shunt_dispatcher_attach(d, program.rx))
		return fail("attach");
	shunt_dispatcher_get_stats(d, &stats);
	if (stats.tree_len > sizeof(tree_bytes))
		return fail("the tree is longer than expected");
	memcpy(tree_bytes, stats.tree, stats.tree_len);
	memcpy(program_bytes, program.rx, PROGRAM_LEN);
	shared->tree = (uint64_t)(uintptr_t)stats.tree;
	shared->tree_len = stats.tree_len;
	shared->program = (uint64_t)(uintptr_t)program.rx;
	if (pthread_create(&thread, NULL, reader, program.rx))
		return fail("thread");
	while (!__atomic_load_n(&shared->reader, __ATOMIC_ACQUIRE))
		usleep(1000);
	go_to(RUNNING);
	wait_for(STOPPED);

	clock_gettime(CLOCK_MONOTONIC, &start);
	if (shunt_dispatcher_detach(d, program.rx) || shunt_pack_free(&program))
		return fail("detach");
	shunt_reclaim_get_stats(&before);
	for (int i = 0; i < NR_UPDATES; i++) {
		struct shunt_block block;

		if (shunt_dispatcher_detach(d, others[i % 8].rx) || shunt_dispatcher_attach(d, others[i % 8].rx) ||
		    make_program(shunt_dispatcher_arena(d), 0xdead, &block) || shunt_pack_free(&block))
			return fail("updating");
	}
	do {
		usleep(10000);
		is_tree_same = memcmp(tree_bytes, stats.tree, stats.tree_len) == 0;
		is_program_same = memcmp(program_bytes, program.rx, PROGRAM_LEN) == 0;
		/* What the reader stands in first. */
		if (in_tree && !is_tree_same)
			return fail("the tree changed under a reader that is stopped in it");
		if (!is_program_same)
			return fail(in_tree ? "the program changed under a reader that is stopped in the tree before it"
					    : "the program changed under a reader that is stopped in it");
		if (!is_tree_same)
			return fail("the tree changed under a reader that is stopped in a program");
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec - start.tv_sec < 1 || (now.tv_sec - start.tv_sec == 1 && now.tv_nsec < start.tv_nsec));
	go_to(CHECKED);
	/* The reader goes on now, through what it stood in, and out. */
	if (shunt_quiesce())
		return fail("quiesce");
	shunt_reclaim_get_stats(&after);
	if (after.nr_reclaimed <= before.nr_reclaimed)
		return fail("nothing came back");
	if (!shunt_target_host()->is_traps(stats.tree, stats.tree_len) || !shunt_target_host()->is_traps(program.rx, PROGRAM_LEN))
		return fail("tree or program is not traps after the reader left");
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	pthread_join(thread, &bad);
	return bad ? fail("calls landed wrong") : 0;
}

/* ---- the debugger -------------------------------------------------------------------------------------------------- */

static int read_pc(pid_t tid, uint64_t *pc)
{
	struct user_regs_struct regs;
	struct iovec to = { &regs, sizeof(regs) };

	if (ptrace(PTRACE_GETREGSET, tid, (void *)(uintptr_t)NT_PRSTATUS, &to))
		return -1;
#if defined(__x86_64__)
	*pc = regs.rip;
#else
	*pc = regs.pc;
#endif
	return 0;
}

/* Steps the reader until it stands behind the first instruction of [start, start + len); 0, or -1 where that cannot be. */
static int stop_inside(pid_t tid, uint64_t start, uint64_t len)
{
	int status;
	uint64_t pc;

	if (ptrace(PTRACE_ATTACH, tid, NULL, NULL) || waitpid(tid, &status, __WALL) != tid)
		return -1;
	for (int i = 0; i < MAX_STEPS; i++) {
		if (read_pc(tid, &pc))
			return -1;
		if (pc - start - 1 < len - 1)
			return 0;
		if (ptrace(PTRACE_SINGLESTEP, tid, NULL, NULL) || waitpid(tid, &status, __WALL) != tid || !WIFSTOPPED(status))
			return -1;
	}
	return -1;
}

/* 0, 1, or SKIP. */
static int check(bool in_tree)
{
	int status, err = 0;
	pid_t child;

	memset(shared, 0, sizeof(*shared));
	child = fork();
	if (child == 0) {
		err = run_child(in_tree);
		/* A process with a thread that a debugger holds does not end by itself. */
		if (err)
			go_to(FAILED);
		_exit(err);
	}
	if (child < 0)
		return fail("fork");
	wait_for(RUNNING);
	if (stop_inside(shared->reader, in_tree ? shared->tree : shared->program, in_tree ? shared->tree_len : 12)) {
		printf("skipped: a thread cannot be stepped here: %s\n", strerror(errno));
		err = SKIP;
	} else {
		go_to(STOPPED);
		wait_for(CHECKED);
		if (ptrace(PTRACE_DETACH, shared->reader, NULL, NULL))
			err = fail("letting the reader go");
	}
	if (err) {
		kill(child, SIGKILL);
		/* The thread's end is its debugger's to take note of, the process's comes after. */
		waitpid(shared->reader, &status, __WALL);
	}
	if (waitpid(child, &status, 0) != child)
		return 1;
	if (!err && (!WIFEXITED(status) || WEXITSTATUS(status)))
		err = 1;
	return err;
}

int main(void)
{
	int err, in_program;

	alarm(100);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return fail("shared memory");
	/* Both in any case: what one says does not hide the other. */
	err = check(true);
	in_program = check(false);
	return err ? err : in_program;
}
