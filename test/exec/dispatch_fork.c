/* SPDX-License-Identifier: MIT */
/*
 * Fork while a thread attaches and detaches: the child's calls land right, its dispatchers can be changed, and what the
 * parent does to its stubs afterwards never shows in the child (a stub that jumps to a tree which only the parent has would
 * crash it).
 */
#include <pthread.h>
#include <shunt/dispatcher.h>
#include <shunt/log.h>
#include <shunt/reader.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "targets/target.h"
#include "test/exec/dispatch_programs.h"

#define NR_PROGRAMS 8u
#define NR_FORKS 25

SHUNT_DISPATCHER_DEFINE(fork_image, uint64_t, (uint64_t arg));

static struct shunt_dispatcher *hooks[2];
static struct shunt_block programs[NR_PROGRAMS];
static int stop;
static int mutator_failed;

static void *mutate(void *arg)
{
	for (uint32_t i = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++) {
		const void *program = programs[i % NR_PROGRAMS].rx;

		for (int h = 0; h < 2; h++)
			if (shunt_dispatcher_attach(hooks[h], program) || (i % 3 && shunt_dispatcher_detach(hooks[h], program)))
				mutator_failed = 1;
		if (i % 3 == 0)
			for (int h = 0; h < 2; h++)
				if (shunt_dispatcher_detach(hooks[h], program))
					mutator_failed = 1;
	}
	return NULL;
}

static int check_calls(void)
{
	for (uint32_t i = 0; i < NR_PROGRAMS; i++) {
		shunt_read_begin();
		if (fork_image(500, programs[i].rx) != 500 + i ||
		    call_stub(shunt_dispatcher_stub(hooks[1]), 500, programs[i].rx) != 500 + i) {
			shunt_read_end();
			return 1;
		}
		shunt_read_end();
	}
	return 0;
}

/* Both stubs jump where this process last pointed them. */
static int check_stubs(void)
{
	for (int h = 0; h < 2; h++) {
		struct shunt_dispatcher_stats stats;
		uint64_t word, dest;

		shunt_dispatcher_get_stats(hooks[h], &stats);
		memcpy(&word, (const char *)stats.stub + SHUNT_STUB_WORD, sizeof(word));
		if (shunt_target_host()->decode_stub_word((uint64_t)(uintptr_t)stats.stub, word, &dest) ||
		    dest != (uint64_t)(uintptr_t)stats.tree)
			return 1;
	}
	return 0;
}

static int run_child(void)
{
	for (int round = 0; round < 30; round++) {
		if (check_stubs())
			return 2;
		if (check_calls())
			return 3;
		for (int h = 0; h < 2; h++)
			if (shunt_dispatcher_attach(hooks[h], programs[round % NR_PROGRAMS].rx))
				return 4;
		if (check_stubs() || check_calls())
			return 5;
		for (int h = 0; h < 2; h++)
			if (shunt_dispatcher_detach(hooks[h], programs[round % NR_PROGRAMS].rx))
				return 6;
	}
	return shunt_quiesce() ? 7 : 0;
}

int main(void)
{
	struct shunt_arena *arena;
	pthread_t thread;
	int failed = 0;

	hooks[0] = shunt_dispatcher_fork_image();
	arena = shunt_dispatcher_arena(hooks[0]);
	if (!arena || shunt_dispatcher_create("fork_made", NULL, &hooks[1])) {
		fprintf(stderr, "%s\n", shunt_error());
		return 1;
	}
	for (uint32_t i = 0; i < NR_PROGRAMS; i++)
		if (make_program(arena, i, &programs[i]))
			return 1;
	if (pthread_create(&thread, NULL, mutate, NULL))
		return 1;
	for (int i = 0; i < NR_FORKS && !failed; i++) {
		pid_t child = fork();
		int status;

		if (child == 0)
			_exit(run_child());
		failed = child < 0 || check_calls() || waitpid(child, &status, 0) != child || status;
		if (failed)
			fprintf(stderr, "fork %d: child ended with %#x\n", i, (unsigned int)status);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	if (mutator_failed)
		fprintf(stderr, "the parent's mutator failed: %s\n", shunt_error());
	return failed || mutator_failed || check_calls();
}
