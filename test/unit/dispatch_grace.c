/* SPDX-License-Identifier: MIT */
/*
 * Nothing that a reader may still be in is reused. Single threads decide it: while a read section is open, old trees and
 * freed programs must keep their bytes however often the dispatcher changes. The kernel's dispatcher failed this (commit
 * 4121d4481b72): its third tree was written over its first.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <shunt/dispatcher.h>
#include <shunt/log.h>
#include <shunt/reader.h>
#include <string.h>
#include <unistd.h>

#include "targets/target.h"
#include "test/exec/dispatch_programs.h"

#define NR_UPDATES 200

struct update {
	struct shunt_dispatcher *d;
	struct shunt_block program;
	struct shunt_block other;
};

/* Another thread changes the dispatcher while this one's section is open. */
static void *change(void *arg)
{
	struct update *update = arg;

	for (int i = 0; i < NR_UPDATES; i++) {
		if (shunt_dispatcher_attach(update->d, update->other.rx) != 0 ||
		    shunt_dispatcher_detach(update->d, update->other.rx) != 0)
			return (void *)shunt_error();
	}
	if (shunt_dispatcher_detach(update->d, update->program.rx) != 0 || shunt_pack_free(&update->program) != 0)
		return (void *)shunt_error();
	/* Memory that was given back too early would be handed out here. */
	for (int i = 0; i < NR_UPDATES; i++) {
		struct shunt_block block;

		if (make_program(NULL, 0xdead, &block) != 0)
			return (void *)shunt_error();
	}
	/* A reclaimer that does not wait has time to fill traps. */
	usleep(100000);
	return NULL;
}

Test(dispatch_grace, old_trees_and_programs_keep_their_bytes_while_a_section_is_open)
{
	struct update update;
	struct shunt_dispatcher_stats stats;
	unsigned char tree[256], program[PROGRAM_LEN];
	pthread_t thread;
	void *error;

	cr_assert_eq(shunt_dispatcher_create("hook", NULL, &update.d), 0, "%s", shunt_error());
	cr_assert_eq(make_program(NULL, 7, &update.program), 0);
	cr_assert_eq(make_program(NULL, 8, &update.other), 0);
	cr_assert_eq(shunt_dispatcher_attach(update.d, update.program.rx), 0);
	shunt_dispatcher_get_stats(update.d, &stats);
	cr_assert_leq(stats.tree_len, sizeof(tree));
	memcpy(tree, stats.tree, stats.tree_len);
	memcpy(program, update.program.rx, PROGRAM_LEN);

	shunt_read_begin();
	cr_assert_eq(pthread_create(&thread, NULL, change, &update), 0);
	pthread_join(thread, &error);
	cr_assert_null(error, "%s", (char *)error);
	cr_assert_eq(memcmp(tree, stats.tree, stats.tree_len), 0, "a tree was reused under a reader");
	cr_assert_eq(memcmp(program, update.program.rx, PROGRAM_LEN), 0, "a program was reused under a reader");
	cr_assert_eq(call_stub(shunt_dispatcher_stub(update.d), 1, update.program.rx), 8);
	shunt_read_end();

	cr_assert_eq(shunt_quiesce(), 0, "%s", shunt_error());
	cr_assert(shunt_target_host()->is_traps(stats.tree, stats.tree_len), "the old tree is not traps");
	cr_assert(shunt_target_host()->is_traps(update.program.rx, PROGRAM_LEN), "the freed program is not traps");
}

/* Only once every section that was open at the patch has ended, not just some. */
static void *hold(void *arg)
{
	int *state = arg;

	shunt_read_begin();
	__atomic_store_n(state, 1, __ATOMIC_RELEASE);
	while (__atomic_load_n(state, __ATOMIC_ACQUIRE) != 2)
		usleep(100);
	shunt_read_end();
	return NULL;
}

Test(dispatch_grace, the_last_reader_decides)
{
	struct shunt_dispatcher *d;
	struct shunt_dispatcher_stats stats;
	struct shunt_block block;
	unsigned char tree[256];
	pthread_t threads[2];
	int states[2] = { 0 };

	cr_assert_eq(shunt_dispatcher_create("hook", NULL, &d), 0, "%s", shunt_error());
	cr_assert_eq(make_program(NULL, 7, &block), 0);
	cr_assert_eq(shunt_dispatcher_attach(d, block.rx), 0);
	shunt_dispatcher_get_stats(d, &stats);
	memcpy(tree, stats.tree, stats.tree_len);
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(pthread_create(&threads[i], NULL, hold, &states[i]), 0);
		while (!__atomic_load_n(&states[i], __ATOMIC_ACQUIRE))
			usleep(100);
	}
	cr_assert_eq(shunt_dispatcher_detach(d, block.rx), 0);
	__atomic_store_n(&states[0], 2, __ATOMIC_RELEASE);
	pthread_join(threads[0], NULL);
	usleep(100000);
	cr_assert_eq(memcmp(tree, stats.tree, stats.tree_len), 0, "a tree was reused under the second reader");
	__atomic_store_n(&states[1], 2, __ATOMIC_RELEASE);
	pthread_join(threads[1], NULL);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert(shunt_target_host()->is_traps(stats.tree, stats.tree_len));
}
