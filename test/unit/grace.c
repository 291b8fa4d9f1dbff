/* SPDX-License-Identifier: MIT */
/* Readers, the queue and its reclaimer. */
#include "test/unit/pack_check.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <shunt/log.h>

#include "runtime/grace.h"
#include "runtime/pack/pack.h"

struct probe {
	struct shunt_grace_item item; /* first */
	unsigned nr_collected;
	unsigned nr_retired;
	unsigned nr_released;
	unsigned order;               /* the how-manieth to be released */
	struct probe *chained;        /* queued by release */
};

static unsigned nr_retired_all;
static unsigned nr_released_all;

static struct probe *probe_of(struct shunt_grace_item *item)
{
	return (struct probe *)item;
}

static void probe_collect(struct shunt_grace_item *item)
{
	__atomic_add_fetch(&probe_of(item)->nr_collected, 1, __ATOMIC_SEQ_CST);
}

static void probe_retire(struct shunt_grace_item *item)
{
	__atomic_add_fetch(&probe_of(item)->nr_retired, 1, __ATOMIC_SEQ_CST);
	__atomic_add_fetch(&nr_retired_all, 1, __ATOMIC_SEQ_CST);
}

static void probe_release(struct shunt_grace_item *item)
{
	struct probe *probe = probe_of(item);

	probe->order = __atomic_add_fetch(&nr_released_all, 1, __ATOMIC_SEQ_CST);
	if (probe->chained)
		shunt_grace_defer(&probe->chained->item);
	__atomic_add_fetch(&probe->nr_released, 1, __ATOMIC_SEQ_CST);
}

static void probe_init(struct probe *probe)
{
	memset(probe, 0, sizeof(*probe));
	probe->item.collect = probe_collect;
	probe->item.retire = probe_retire;
	probe->item.release = probe_release;
	probe->item.code = true;
}

static unsigned released(const struct probe *probe)
{
	return __atomic_load_n(&probe->nr_released, __ATOMIC_SEQ_CST);
}

Test(grace, nothing_is_reclaimed_while_a_section_that_could_see_it_is_open)
{
	struct probe probe;

	probe_init(&probe);
	shunt_read_begin();
	shunt_read_begin();
	shunt_grace_defer(&probe.item);
	usleep(50000);
	cr_assert_eq(released(&probe), 0);
	cr_assert_eq(__atomic_load_n(&probe.nr_retired, __ATOMIC_SEQ_CST), 0);
	shunt_read_end();
	usleep(50000);
	cr_assert_eq(released(&probe), 0, "the inner section's end ended the outer one");
	shunt_read_end();
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(probe.nr_collected, 1);
	cr_assert_eq(probe.nr_retired, 1);
	cr_assert_eq(probe.nr_released, 1);
}

Test(grace, quiesce_and_reclaim_are_refused_inside_a_section)
{
	shunt_read_begin();
	cr_assert_eq(shunt_quiesce(), -EDEADLK);
	cr_assert(strstr(shunt_error(), "read section"));
	cr_assert_eq(shunt_reclaim(), -EDEADLK);
	shunt_read_end();
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(shunt_reclaim(), 0);
}

Test(grace, items_are_released_in_order_and_all_retired_before_the_first_release)
{
	enum { NR = 100 };
	static struct probe probes[NR];
	struct shunt_reclaim_stats stats;

	cr_assert_eq(shunt_reclaim_set_mode(SHUNT_RECLAIM_HOST), 0);
	for (int i = 0; i < NR; i++) {
		probe_init(&probes[i]);
		shunt_grace_defer(&probes[i].item);
	}
	usleep(20000);
	cr_assert_eq(nr_retired_all, 0, "host mode reclaimed by itself");
	cr_assert_eq(shunt_reclaim(), NR);
	cr_assert_eq(nr_retired_all, NR);
	for (unsigned i = 0; i < NR; i++)
		cr_assert_eq(probes[i].order, i + 1);
	shunt_reclaim_get_stats(&stats);
	cr_assert_eq(stats.nr_deferred, NR);
	cr_assert_eq(stats.nr_reclaimed, NR);
	cr_assert_eq(stats.nr_batches, 1, "one grace period covers a batch");
	cr_assert_gt(stats.longest_wait_ns, 0);
	cr_assert_eq(shunt_reclaim(), 0);
}

Test(grace, the_owner_of_reclamation_is_named_before_the_first_deferral_or_not_at_all)
{
	static struct probe probe;

	cr_assert_eq(shunt_reclaim_set_mode((enum shunt_reclaim_mode)5), -EINVAL);
	cr_assert_eq(shunt_reclaim_set_mode(SHUNT_RECLAIM_HOST), 0);
	cr_assert_eq(shunt_reclaim_set_mode(SHUNT_RECLAIM_WORKER), 0);
	probe_init(&probe);
	shunt_grace_defer(&probe.item);
	cr_assert_eq(shunt_reclaim_set_mode(SHUNT_RECLAIM_HOST), -EBUSY);
	cr_assert_eq(shunt_reclaim_set_mode(SHUNT_RECLAIM_WORKER), 0);
	cr_assert_eq(shunt_quiesce(), 0);
}

Test(grace, quiesce_follows_what_releases_queue)
{
	static struct probe probes[4];

	for (int i = 0; i < 4; i++) {
		probe_init(&probes[i]);
		probes[i].chained = i < 3 ? &probes[i + 1] : NULL;
	}
	shunt_grace_defer(&probes[0].item);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(released(&probes[3]), 1);
}

Test(grace, quiesce_reclaims_in_host_mode)
{
	static struct probe probe;

	cr_assert_eq(shunt_reclaim_set_mode(SHUNT_RECLAIM_HOST), 0);
	probe_init(&probe);
	shunt_grace_defer(&probe.item);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(released(&probe), 1);
}

static int quiesce_result;

static void quiescing_release(struct shunt_grace_item *item)
{
	quiesce_result = shunt_quiesce();
}

Test(grace, a_callback_that_quiesces_is_refused_instead_of_waiting_for_itself)
{
	static struct shunt_grace_item item = { .release = quiescing_release };

	shunt_grace_defer(&item);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(quiesce_result, -EDEADLK);
}

static sigset_t worker_mask;

static void mask_release(struct shunt_grace_item *item)
{
	pthread_sigmask(SIG_SETMASK, NULL, &worker_mask);
}

Test(grace, the_worker_runs_with_all_signals_blocked)
{
	static struct shunt_grace_item item = { .release = mask_release };

	shunt_grace_defer(&item);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert(sigismember(&worker_mask, SIGINT) && sigismember(&worker_mask, SIGTERM) && sigismember(&worker_mask, SIGUSR1));
}

Test(grace, sync_core_works_again_and_again)
{
	for (int i = 0; i < 3; i++)
		cr_assert_eq(shunt_sync_core(), 0);
}

/* ---- forks ---- */

/* The child's verdict as exit status 0. */
static void expect_child(pid_t pid)
{
	int status = -1;

	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child: status %#x", (unsigned)status);
}

Test(grace, a_child_reclaims_what_its_parent_had_queued, .timeout = 20)
{
	static struct probe probe;
	static struct probe later;
	pid_t pid;

	probe_init(&probe);
	probe_init(&later);
	shunt_read_begin();
	shunt_grace_defer(&probe.item);
	/* The worker is inside its grace period now, which this section holds up; fork must not wait for it. */
	usleep(50000);
	pid = fork();
	if (!pid) {
		alarm(10);
		if (released(&probe))
			_exit(1);
		usleep(20000);
		if (released(&probe))
			_exit(2);
		shunt_read_end();
		shunt_grace_defer(&later.item);
		if (shunt_quiesce() != 0 || released(&probe) != 1 || released(&later) != 1)
			_exit(3);
		_exit(0);
	}
	cr_assert_gt(pid, 0);
	usleep(100000);
	cr_assert_eq(released(&probe), 0, "the fork ended the parent's section");
	shunt_read_end();
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(released(&probe), 1);
	expect_child(pid);
}

static int stop;

static void *read_forever(void *unused)
{
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		shunt_read_begin();
		shunt_read_begin();
		shunt_read_end();
		shunt_read_end();
	}
	return unused;
}

static void *defer_forever(void *unused)
{
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		struct probe probes[8];

		for (int i = 0; i < 8; i++) {
			probe_init(&probes[i]);
			shunt_grace_defer(&probes[i].item);
		}
		shunt_quiesce();
		for (int i = 0; i < 8; i++)
			if (released(&probes[i]) != 1)
				__atomic_store_n(&stop, 2, __ATOMIC_RELAXED);
	}
	return unused;
}

Test(grace, forks_under_readers_and_deferrals_leave_both_sides_working, .timeout = 60)
{
	pthread_t threads[4];

	SKIP_WHERE_MALLOC_DOES_NOT_SURVIVE_FORK();
	for (int i = 0; i < 4; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, i % 2 ? read_forever : defer_forever, NULL), 0);
	for (int i = 0; i < 40; i++) {
		pid_t pid;

		if (i % 2)
			shunt_read_begin();
		pid = fork();
		if (!pid) {
			struct probe probe;

			alarm(20);
			if (i % 2)
				shunt_read_end();
			probe_init(&probe);
			shunt_grace_defer(&probe.item);
			_exit(shunt_quiesce() == 0 && released(&probe) == 1 ? 0 : 1);
		}
		if (i % 2)
			shunt_read_end();
		cr_assert_gt(pid, 0);
		expect_child(pid);
	}
	cr_assert_eq(__atomic_exchange_n(&stop, 1, __ATOMIC_RELAXED), 0, "quiesce returned before an item was released");
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
}
