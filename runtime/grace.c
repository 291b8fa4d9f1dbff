/* SPDX-License-Identifier: MIT */
/*
 * Readers, the queue and its reclaimer. Expected load: sections by the million, deferrals by the thousand a second, one grace period
 * for all that wait.
 *
 *	grace_lock  guards everything static here. Never held across a grace period or a callback.
 *	reclaiming  one batch at a time, by whoever set it: the worker, shunt_reclaim or shunt_quiesce
 *
 * Readers synchronise with the reclaimer through liburcu alone.
 */
#include "runtime/grace.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <urcu/urcu-bp.h>

#include "runtime/log.h"
#include "runtime/pack/backing_sys.h"
#include "runtime/pack/pack.h"
#include "runtime/reader.h"
#include "runtime/tsan.h"

/* A release may defer what it held, and so on; quiesce follows that far. */
#define QUIESCE_ROUNDS_MAX 8
/* The worker lets a batch grow for so long: its two SYNC_COREs and its grace period cost the same for one item and for a thousand.
 * Who waits for reclamation is not kept waiting by it. */
#define GATHER_NS 10000000
/* And so often once more while it grows fast: who unloads programs by the thousand is about to empty whole packs, which go back to the system
 * as they are, while in parts they would be filled first. */
#define GATHER_ROUNDS_MAX 5

/* liburcu is not built with the thread sanitizer, which therefore has to be told what a grace period orders. */
static char sections_ended;

struct item_list {
	struct shunt_grace_item *head;
	struct shunt_grace_item **tail; /* NULL only before the first use */
};

static pthread_mutex_t grace_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work_cond = PTHREAD_COND_INITIALIZER; /* the worker's */
static pthread_cond_t done_cond = PTHREAD_COND_INITIALIZER; /* a batch ended */
static pthread_cond_t fork_cond = PTHREAD_COND_INITIALIZER; /* fork_hold became 0 */

static struct item_list queue;
static struct shunt_grace_item *batch;     /* of the batch in progress, not yet released */
static struct shunt_grace_item *releasing; /* its release is being executed */
static struct shunt_reclaim_stats stats;
static uint64_t nr_chained;                /* items that callbacks queued */
static enum shunt_reclaim_mode mode;
static bool reclaiming;
static bool in_grace;

static pthread_t worker;
static bool worker_runs;
static bool worker_idle;
static bool worker_gathers; /* waits for a batch to grow; it needs no signal for that */
static bool urged;          /* somebody waits for the queue: no gathering */
static bool grows;          /* atomic: shunt_grace_grows was called */
static bool worker_stop;

/* Forking threads that have not come out of fork; while there are, no grace period begins or ends for us. */
static unsigned fork_hold;
/* A forking thread stepped out of its section for the time of the fork: the grace period that runs proves nothing. */
static bool fork_redo;

static _Thread_local bool in_callback;
static _Thread_local unsigned fork_depth;

void shunt_read_begin(void)
{
	urcu_bp_read_lock();
}

void shunt_read_end(void)
{
	SHUNT_TSAN_RELEASE(&sections_ended);
	urcu_bp_read_unlock();
}

static void append(struct item_list *list, struct shunt_grace_item *item)
{
	item->next = NULL;
	if (!list->head)
		list->tail = &list->head;
	*list->tail = item;
	list->tail = &item->next;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Returns when every section that began before has ended; with grace_lock, which it lets go meanwhile. */
static void wait_for_readers(void)
{
	uint64_t start = now_ns();
	uint64_t took;

	while (fork_hold)
		pthread_cond_wait(&fork_cond, &grace_lock);
	in_grace = true;
	do {
		fork_redo = false;
		pthread_mutex_unlock(&grace_lock);
		urcu_bp_synchronize_rcu();
		shunt_reader_synchronize();
		SHUNT_TSAN_ACQUIRE(&sections_ended);
		pthread_mutex_lock(&grace_lock);
		while (fork_hold)
			pthread_cond_wait(&fork_cond, &grace_lock);
	} while (fork_redo);
	in_grace = false;
	took = now_ns() - start;
	if (took > stats.longest_wait_ns)
		stats.longest_wait_ns = took;
	stats.nr_batches++;
}

/* The item whose release was begun is done with. */
static void settle(void)
{
	if (releasing) {
		releasing = NULL;
		stats.nr_reclaimed++;
	}
}

void shunt_grace_settle(void)
{
	pthread_mutex_lock(&grace_lock);
	settle();
	pthread_mutex_unlock(&grace_lock);
}

/* Moves items of code that grow until the batch collects them from the queue to the batch. With grace_lock. */
static void take_queued_code(void)
{
	struct shunt_grace_item **link = &queue.head, **end = &batch;

	while (*end)
		end = &(*end)->next;
	while (*link) {
		struct shunt_grace_item *item = *link;

		if (!item->collect || !item->code) {
			link = &item->next;
			continue;
		}
		*link = item->next;
		item->next = NULL;
		*end = item;
		end = &item->next;
	}
	queue.tail = link;
}

/* Takes all that is queued through the steps that grace.h names. With grace_lock and nobody reclaiming; returns with the lock. */
static int run_batch(void)
{
	struct shunt_grace_item *item;
	bool any_code = false;
	int nr = 0;

	reclaiming = true;
	urged = false;
	batch = queue.head;
	queue.head = NULL;
	pthread_mutex_unlock(&grace_lock);

	in_callback = true;
	for (item = batch; item; item = item->next)
		if (item->collect && !item->code)
			item->collect(item);
	/* What these just took in may be data of code that was freed before it: that is in the batch, too, or in the queue by now. */
	pthread_mutex_lock(&grace_lock);
	take_queued_code();
	pthread_mutex_unlock(&grace_lock);
	for (item = batch; item; item = item->next)
		if (item->collect && item->code)
			item->collect(item);
	/* A failure was reported; the grace period still holds for data, and code stays correct on CPUs that need no SYNC_CORE. */
	(void)shunt_sync_core();
	pthread_mutex_lock(&grace_lock);
	wait_for_readers();
	pthread_mutex_unlock(&grace_lock);
	for (item = batch; item; item = item->next) {
		any_code |= item->code;
		if (item->retire)
			item->retire(item);
	}
	if (any_code)
		(void)shunt_sync_core();

	pthread_mutex_lock(&grace_lock);
	while (batch) {
		item = batch;
		batch = item->next;
		releasing = item;
		pthread_mutex_unlock(&grace_lock);
		item->release(item);
		pthread_mutex_lock(&grace_lock);
		settle();
		nr++;
	}
	in_callback = false;
	reclaiming = false;
	pthread_cond_broadcast(&done_cond);
	if (queue.head)
		pthread_cond_signal(&work_cond);
	return nr;
}

void shunt_grace_grows(void)
{
	__atomic_store_n(&grows, true, __ATOMIC_RELAXED);
}

/* With grace_lock, which it lets go meanwhile. */
static void gather(void)
{
	worker_idle = true;
	worker_gathers = true;
	for (int round = 0; round < GATHER_ROUNDS_MAX; round++) {
		struct timespec until;
		int err = 0;

		__atomic_store_n(&grows, false, __ATOMIC_RELAXED);
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += GATHER_NS;
		if (until.tv_nsec >= 1000000000) {
			until.tv_nsec -= 1000000000;
			until.tv_sec++;
		}
		while (!urged && !worker_stop && !err)
			err = pthread_cond_timedwait(&work_cond, &grace_lock, &until);
		if (urged || worker_stop || !__atomic_load_n(&grows, __ATOMIC_RELAXED))
			break;
	}
	worker_gathers = false;
	worker_idle = false;
}

static void *worker_main(void *unused)
{
	pthread_mutex_lock(&grace_lock);
	while (!worker_stop) {
		if (queue.head && !reclaiming && mode == SHUNT_RECLAIM_WORKER) {
			gather();
			if (queue.head && !reclaiming && !worker_stop)
				run_batch();
			continue;
		}
		worker_idle = true;
		pthread_cond_wait(&work_cond, &grace_lock);
		worker_idle = false;
	}
	pthread_mutex_unlock(&grace_lock);
	return unused;
}

/* The worker must run no handler of the host's. */
static bool worker_start(void)
{
	sigset_t all;
	sigset_t old;
	int err;

	if (mode != SHUNT_RECLAIM_WORKER || worker_stop || shunt_reader_is_lost())
		return false;
	if (worker_runs)
		return true;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = shunt_sys.thread_create(&worker, NULL, worker_main, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err)
		/* Not an error of the caller's: what is queued waits for the next deferral, shunt_reclaim or shunt_quiesce. */
		shunt_logf(SHUNT_LOG_WARN, "the reclaiming thread could not be started: %s", strerror(err));
	else
		worker_runs = true;
	return !err;
}

void shunt_grace_defer(struct shunt_grace_item *item)
{
	shunt_fork_init();
	pthread_mutex_lock(&grace_lock);
	append(&queue, item);
	stats.nr_deferred++;
	if (in_callback)
		nr_chained++;
	if (worker_start() && !worker_gathers)
		pthread_cond_signal(&work_cond);
	pthread_mutex_unlock(&grace_lock);
}

static int check_not_reading(const char *what)
{
	if (in_callback)
		return shunt_fail(EDEADLK, "%s: called by a callback of the reclaimer, which would wait for itself", what);
	if (urcu_bp_read_ongoing() || shunt_reader_is_reading())
		return shunt_fail(EDEADLK, "%s: called inside a read section, which would wait for itself; end the section first", what);
	return shunt_reader_check(what);
}

/* With grace_lock: waits until target items were reclaimed, by others or here. */
static void wait_until(uint64_t target)
{
	while (stats.nr_reclaimed < target) {
		urged = true;
		if (reclaiming || worker_start()) {
			pthread_cond_signal(&work_cond);
			pthread_cond_wait(&done_cond, &grace_lock);
		} else {
			run_batch();
		}
	}
}

int shunt_quiesce(void)
{
	int err = check_not_reading("shunt_quiesce");
	uint64_t chained;
	bool stepped_out;

	if (err)
		return err;
	stepped_out = shunt_reader_step_out();
	pthread_mutex_lock(&grace_lock);
	for (int round = 0; round < QUIESCE_ROUNDS_MAX; round++) {
		chained = nr_chained;
		wait_until(stats.nr_deferred);
		if (nr_chained == chained)
			break;
	}
	pthread_mutex_unlock(&grace_lock);
	shunt_reader_step_in(stepped_out);
	return 0;
}

int shunt_reclaim(void)
{
	int err = check_not_reading("shunt_reclaim");
	bool stepped_out;
	int nr = 0;

	if (err)
		return err;
	stepped_out = shunt_reader_step_out();
	pthread_mutex_lock(&grace_lock);
	while (reclaiming)
		pthread_cond_wait(&done_cond, &grace_lock);
	if (queue.head)
		nr = run_batch();
	pthread_mutex_unlock(&grace_lock);
	shunt_reader_step_in(stepped_out);
	return nr;
}

int shunt_reclaim_set_mode(enum shunt_reclaim_mode new_mode)
{
	int err = 0;

	if (new_mode != SHUNT_RECLAIM_WORKER && new_mode != SHUNT_RECLAIM_HOST)
		return shunt_fail(EINVAL, "reclaim mode %d is none of enum shunt_reclaim_mode", (int)new_mode);
	pthread_mutex_lock(&grace_lock);
	if (stats.nr_deferred && new_mode != mode)
		err = -EBUSY;
	else
		mode = new_mode;
	pthread_mutex_unlock(&grace_lock);
	return err ? shunt_fail(EBUSY, "the owner of reclamation can only be named before anything was freed or detached") : 0;
}

void shunt_reclaim_get_stats(struct shunt_reclaim_stats *out)
{
	pthread_mutex_lock(&grace_lock);
	*out = stats;
	pthread_mutex_unlock(&grace_lock);
}

/* An idle worker is joined, so that no thread of ours runs in a library that is being unloaded; one that waits for readers cannot be:
 * the section may be that of the thread that exits. */
__attribute__((destructor)) static void worker_end(void)
{
	bool join;

	pthread_mutex_lock(&grace_lock);
	worker_stop = true;
	join = worker_runs && worker_idle;
	if (worker_runs && !join)
		pthread_detach(worker);
	worker_runs = false;
	pthread_cond_signal(&work_cond);
	pthread_mutex_unlock(&grace_lock);
	if (join)
		pthread_join(worker, NULL);
}

/*
 * Fork. liburcu holds its lock for a whole grace period, and fork needs that lock; a thread that forks inside a section would wait for
 * itself. It steps out of its section therefore while our reclaimer is stopped from drawing conclusions (fork_hold, fork_redo).
 */
void shunt_grace_fork_readers_prepare(void)
{
	/* Asked first: it may register this thread, under a lock that another forking thread holds when it takes grace_lock. */
	bool reading = urcu_bp_read_ongoing();

	fork_depth = 0;
	pthread_mutex_lock(&grace_lock);
	fork_hold++;
	if (in_grace && reading) {
		fork_redo = true;
		do {
			SHUNT_TSAN_RELEASE(&sections_ended);
			urcu_bp_read_unlock();
			fork_depth++;
		} while (urcu_bp_read_ongoing());
	}
	pthread_mutex_unlock(&grace_lock);
	urcu_bp_before_fork();
}

static void step_back_in(void)
{
	while (fork_depth) {
		urcu_bp_read_lock();
		fork_depth--;
	}
}

void shunt_grace_fork_prepare(void)
{
	shunt_reader_fork_prepare();
	pthread_mutex_lock(&grace_lock);
}

void shunt_grace_fork_parent(void)
{
	pthread_mutex_unlock(&grace_lock);
	shunt_reader_fork_parent();
}

void shunt_grace_fork_readers_parent(void)
{
	urcu_bp_after_fork_parent();
	step_back_in();
	pthread_mutex_lock(&grace_lock);
	if (!--fork_hold)
		pthread_cond_broadcast(&fork_cond);
	pthread_mutex_unlock(&grace_lock);
}

void shunt_grace_fork_child(void)
{
	struct item_list left = { 0 };
	struct shunt_grace_item *item;
	struct shunt_grace_item *next;

	shunt_reader_fork_child();

	/* A forking callback of the reclaimer goes on here; then the batch is this thread's own and goes on too. */
	if (!in_callback) {
		if (releasing && releasing->restartable)
			append(&left, releasing);
		else if (releasing)
			stats.nr_reclaimed++;
		for (item = batch; item; item = next) {
			next = item->next;
			append(&left, item);
		}
		for (item = queue.head; item; item = next) {
			next = item->next;
			append(&left, item);
		}
		queue.head = left.head;
		/* append() sets the tail of an empty list */
		if (left.head)
			queue.tail = left.tail == &left.head ? &queue.head : left.tail;
		batch = NULL;
		releasing = NULL;
		reclaiming = false;
		in_grace = false;
	}
	fork_redo = false;
	worker_runs = false;
	worker_idle = false;
	worker_gathers = false;
	pthread_cond_init(&work_cond, NULL);
	pthread_cond_init(&done_cond, NULL);
	pthread_cond_init(&fork_cond, NULL);
	pthread_mutex_unlock(&grace_lock);
}

void shunt_grace_fork_readers_child(void)
{
	urcu_bp_after_fork_child();
	step_back_in();
	/* The other threads that were forking are not here. */
	pthread_mutex_lock(&grace_lock);
	fork_hold = 0;
	pthread_mutex_unlock(&grace_lock);
}
