/* SPDX-License-Identifier: MIT */
/*
 * A host compiled for one flavour of readers (SHUNT_READER): a program that a thread may be in is not reused before that thread is out, by the
 * flavour's own rules; waiting inside is refused; another flavour is refused; a fork's child says what it cannot do. Exits 0, or 1 after
 * saying what went wrong.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef FLAVOUR_HOST
/* The host's own: as simple as can be, one counter of sections that are open. */
static int host_open;
static __thread int host_depth;
#define SHUNT_READER SHUNT_READER_HOST
#define SHUNT_HOST_READ_BEGIN() ((void)__atomic_add_fetch(&host_open, 1, __ATOMIC_SEQ_CST), (void)host_depth++)
#define SHUNT_HOST_READ_END() ((void)host_depth--, (void)__atomic_sub_fetch(&host_open, 1, __ATOMIC_SEQ_CST))
#endif

#include <shunt/dispatcher.h>
#include <shunt/log.h>
#include <shunt/reader.h>

#include "targets/target.h"
#include "test/exec/dispatch_programs.h"

#define CHECK(condition)                                                                              \
	do {                                                                                          \
		if (!(condition)) {                                                                   \
			fprintf(stderr, "%d: %s (last error: %s)\n", __LINE__, #condition, shunt_error()); \
			return 1;                                                                     \
		}                                                                                     \
	} while (0)

SHUNT_DISPATCHER_DEFINE(flavoured, uint64_t, (uint64_t arg));

#if SHUNT_READER == SHUNT_READER_HOST
static void host_synchronize(void)
{
	while (__atomic_load_n(&host_open, __ATOMIC_SEQ_CST))
		usleep(100);
}

static bool host_is_reading(void)
{
	return host_depth > 0;
}

static const struct shunt_reader_ops host_ops = { .flavour = SHUNT_FLAVOUR_HOST, .synchronize = host_synchronize,
						  .is_reading = host_is_reading };
#endif

static int state;
static const void *program;

static void wait_for(int what)
{
	while (__atomic_load_n(&state, __ATOMIC_ACQUIRE) != what)
		usleep(100);
}

static void go_to(int what)
{
	__atomic_store_n(&state, what, __ATOMIC_RELEASE);
}

static void *reader(void *unused)
{
	const void *mine;

	if (shunt_thread_register())
		return (void *)1;
	shunt_read_begin();
	mine = program;
	go_to(1);
	wait_for(2);
	/* Detached and freed meanwhile. */
	if (flavoured(1, mine) != 8)
		return (void *)2;
	shunt_read_end();
	shunt_quiescent();
	shunt_offline();
	go_to(3);
	wait_for(4);
	shunt_online();
	shunt_thread_unregister();
	return unused;
}

static void never(void)
{
}

static int check_child(void)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		struct shunt_block block;
		int err = make_program(shunt_dispatcher_arena(shunt_dispatcher_flavoured()), 9, &block) || shunt_pack_free(&block);

		/* Detaching and freeing work, nothing comes back; bp and only bp goes on as before. */
		if (!err)
			err = shunt_quiesce() != (SHUNT_READER == SHUNT_READER_BP ? 0 : -ENOTSUP);
		_exit(err);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return 0;
}

int main(void)
{
	struct shunt_dispatcher *d = shunt_dispatcher_flavoured();
	enum shunt_reader_flavour mine = (enum shunt_reader_flavour)SHUNT_READER;
	struct shunt_reader_ops other = { .flavour = mine == SHUNT_FLAVOUR_MEMB ? SHUNT_FLAVOUR_QSBR : SHUNT_FLAVOUR_MEMB, .synchronize = never };
	struct shunt_block block;
	pthread_t thread;
	void *result;

#if SHUNT_READER == SHUNT_READER_HOST
	CHECK(shunt_reader_use(&host_ops) == 0);
#endif
	CHECK(shunt_thread_register() == 0);
	CHECK(make_program(shunt_dispatcher_arena(d), 7, &block) == 0);
	CHECK(shunt_dispatcher_attach(d, block.rx) == 0);
	program = block.rx;
	CHECK(pthread_create(&thread, NULL, reader, NULL) == 0);
	wait_for(1);
	CHECK(shunt_dispatcher_detach(d, block.rx) == 0);
	CHECK(shunt_pack_free(&block) == 0);
	/* A reclaimer that does not know this flavour has time to fill traps. */
	usleep(200000);
	CHECK(!shunt_target_host()->is_traps(block.rx, PROGRAM_LEN));
	go_to(2);
	wait_for(3);
	/* This thread counts as inside under qsbr, and steps out for the wait. */
	CHECK(shunt_quiesce() == 0);
	CHECK(shunt_target_host()->is_traps(block.rx, PROGRAM_LEN));
	go_to(4);
	pthread_join(thread, &result);
	CHECK(result == NULL);
#if SHUNT_READER != SHUNT_READER_QSBR
	shunt_read_begin();
	CHECK(shunt_quiesce() == -EDEADLK);
	shunt_read_end();
#endif
	/* bp lives beside the first that comes; of the others one excludes the rest. */
	if (mine == SHUNT_FLAVOUR_BP)
		CHECK(shunt_reader_use(&(struct shunt_reader_ops){ .flavour = SHUNT_FLAVOUR_BP }) == 0);
	else
		CHECK(shunt_reader_use(&other) == -EBUSY);
	CHECK(shunt_reader_use(&(struct shunt_reader_ops){ .flavour = SHUNT_FLAVOUR_QSBR }) == -EINVAL);
	CHECK(check_child() == 0);
	CHECK(shunt_quiesce() == 0);
	shunt_thread_unregister();
	return 0;
}
