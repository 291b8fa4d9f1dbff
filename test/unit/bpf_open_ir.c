/* SPDX-License-Identifier: MIT */
/* The child process that compiles IR, when it cannot get on and when there can be none. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <shunt/bpf.h>
#include <shunt/log.h>

static const char module[] = "target triple = \"bpf\"\n"
			     "define i32 @pass(ptr %ctx) section \"xdp\" {\n"
			     "  ret i32 2\n"
			     "}\n";

static int forks, stopped_forks;

static void count_fork(void)
{
	forks++;
}

/* What a lock does to a child whose owner is another thread of the parent. */
static void stop_in_child(void)
{
	if (forks <= stopped_forks)
		for (;;)
			pause();
}

static int open_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = 0;

	cr_assert_not_null(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

static void no_child_is_left(void)
{
	cr_assert_eq(waitpid(-1, NULL, WNOHANG), -1);
	cr_assert_eq(errno, ECHILD);
}

Test(bpf_open_ir, a_child_that_another_threads_lock_stops_is_replaced, .timeout = 120)
{
	struct shunt_bpf_object *object = NULL;
	int descriptors = open_descriptors();

	stopped_forks = 1;
	cr_assert_eq(pthread_atfork(count_fork, NULL, stop_in_child), 0);
	cr_assert_eq(shunt_bpf_open_memory(module, sizeof(module) - 1, "pass.ll", NULL, &object), 0, "%s", shunt_error());
	cr_assert_eq(forks, 2, "%d children", forks);
	cr_assert_not_null(shunt_bpf_next_program(object, NULL));
	shunt_bpf_close(object);
	cr_assert_eq(open_descriptors(), descriptors);
	no_child_is_left();
}

Test(bpf_open_ir, without_a_descriptor_for_the_child_there_is_a_sentence)
{
	struct shunt_bpf_object *object = NULL;
	struct rlimit limit;
	rlim_t first = (rlim_t)dup(0); /* the lowest that is free */

	close((int)first);
	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	for (rlim_t room = 0; room < 3; room++) {
		limit.rlim_cur = first + room;
		cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
		cr_assert_eq(shunt_bpf_open_memory(module, sizeof(module) - 1, "pass.ll", NULL, &object), -EMFILE);
		cr_assert_eq(strncmp(shunt_error(), "pass.ll: ", 9), 0, "'%s' does not name the module", shunt_error());
		cr_assert_null(object);
		cr_assert_eq(dup(0), room ? (int)first : -1, "a descriptor is left open");
		close((int)first);
	}
	no_child_is_left();
}
