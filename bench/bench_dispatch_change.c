/* SPDX-License-Identifier: MIT */
/*
 * What changing a dispatcher costs: the latency of attach and detach, and how much calls suffer that run meanwhile, through the same
 * dispatcher or through another one. One thread calls flat out in batches, one changes; each on a CPU of its own where there are two.
 */
#include "bench/bench_dispatch.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <shunt/dispatcher.h>
#include <shunt/reader.h>

#include "bench/dispatch_calls.h"

#define MAX_ATTACHED 1024u
#define BATCH 256u
#define MAX_SAMPLES 65536u

static struct shunt_block programs[MAX_ATTACHED + 1];
static const void *attached[MAX_ATTACHED];

double bench_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* What the process was started with: pinning changes what can be asked later. */
static cpu_set_t allowed;

unsigned int bench_nr_cpus(void)
{
	if (!CPU_COUNT(&allowed) && sched_getaffinity(0, sizeof(allowed), &allowed))
		return 1;
	return (unsigned int)CPU_COUNT(&allowed);
}

/* To the cpu-th CPU that this process may use; where there are fewer, nothing. */
void bench_pin(unsigned int cpu)
{
	cpu_set_t set;

	if (cpu >= bench_nr_cpus())
		return;
	for (unsigned int i = 0; i < CPU_SETSIZE; i++) {
		if (!CPU_ISSET(i, &allowed) || cpu--)
			continue;
		CPU_ZERO(&set);
		CPU_SET(i, &set);
		pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
		return;
	}
}

/* ---- the thread that calls --------------------------------------------------------------------------------------- */

static struct caller {
	pthread_t thread;
	calls_loop *loop;
	const void *list[BATCH];
	bool stop;
	bool records;           /* what follows is filled while this holds */
	size_t nr_samples, nr_batches;
	double rates[MAX_SAMPLES]; /* calls a millisecond, one each millisecond */
	double longest[MAX_SAMPLES]; /* ns of the slowest batch of each millisecond */
} caller;

static void *call(void *arg)
{
	struct caller *c = arg;
	double begin = 0, last = 0, slowest = 0;
	size_t nr_calls = 0;

	bench_pin(1);
	while (!__atomic_load_n(&c->stop, __ATOMIC_RELAXED)) {
		double now;

		shunt_read_begin();
		c->loop(c->list, BATCH);
		shunt_read_end();
		now = bench_now_ns();
		if (!__atomic_load_n(&c->records, __ATOMIC_ACQUIRE)) {
			begin = 0;
			continue;
		}
		if (!begin) {
			begin = last = now;
			nr_calls = 0;
			slowest = 0;
			continue;
		}
		nr_calls += BATCH;
		slowest = now - last > slowest ? now - last : slowest;
		last = now;
		if (now - begin >= 1e6) {
			if (c->nr_samples < MAX_SAMPLES) {
				c->rates[c->nr_samples] = (double)nr_calls / (now - begin) * 1e6;
				c->longest[c->nr_samples++] = slowest;
			}
			begin = now;
			nr_calls = 0;
			slowest = 0;
		}
	}
	return NULL;
}

static void start_caller(calls_loop *loop, const void *const *pointers, uint32_t nr)
{
	caller.loop = loop;
	for (uint32_t i = 0; i < BATCH; i++)
		caller.list[i] = pointers[i % nr];
	caller.stop = caller.records = false;
	if (pthread_create(&caller.thread, NULL, call, &caller))
		bench_die("starting a thread");
}

static void stop_caller(void)
{
	__atomic_store_n(&caller.stop, true, __ATOMIC_RELAXED);
	pthread_join(caller.thread, NULL);
}

/* ---- latency ------------------------------------------------------------------------------------------------------ */

static void make_programs(void)
{
	if (programs[0].id)
		return;
	for (uint32_t i = 0; i <= MAX_ATTACHED; i++) {
		if (calls_make_program(NULL, i, &programs[i]))
			bench_die("making a program");
		if (i < MAX_ATTACHED)
			attached[i] = programs[i].rx;
	}
}

static void print_latencies(const char *what, uint32_t nr, int nr_threads, double *ns, size_t nr_ns)
{
	bench_sort(ns, nr_ns);
	printf("  %-7s N = %4u  %d threads  p50 %8.2f  p99 %8.2f  max %8.2f us\n", what, nr, nr_threads, bench_quantile(ns, nr_ns, 0.5) / 1e3,
	       bench_quantile(ns, nr_ns, 0.99) / 1e3, ns[nr_ns - 1] / 1e3);
}

/* Attaches and detaches one program more, N others being attached. */
static double attach_row(const struct bench_settings *settings, uint32_t nr, int nr_threads)
{
	static double attach_ns[MAX_SAMPLES], detach_ns[MAX_SAMPLES];
	struct shunt_dispatcher *d;
	struct shunt_block loop;
	size_t nr_updates = settings->nr_updates < MAX_SAMPLES ? settings->nr_updates : MAX_SAMPLES;

	if (shunt_dispatcher_create("bench_attach", NULL, &d) || shunt_dispatcher_attach_many(d, attached, nr) ||
	    calls_make_loop(NULL, CALLS_STUB, shunt_dispatcher_stub(d), &loop))
		bench_die("attaching");
	if (nr_threads)
		start_caller((calls_loop *)(uintptr_t)loop.rx, attached, nr);
	for (size_t i = 0; i < nr_updates; i++) {
		double start = bench_now_ns(), middle;

		if (shunt_dispatcher_attach(d, programs[MAX_ATTACHED].rx))
			bench_die("attach");
		middle = bench_now_ns();
		if (shunt_dispatcher_detach(d, programs[MAX_ATTACHED].rx))
			bench_die("detach");
		attach_ns[i] = middle - start;
		detach_ns[i] = bench_now_ns() - middle;
	}
	if (nr_threads)
		stop_caller();
	shunt_dispatcher_detach_many(d, attached, nr);
	shunt_pack_free(&loop);
	shunt_quiesce();
	shunt_dispatcher_destroy(d);
	print_latencies("attach", nr, nr_threads, attach_ns, nr_updates);
	print_latencies("detach", nr, nr_threads, detach_ns, nr_updates);
	return bench_quantile(attach_ns, nr_updates, 0.5) / 1e3;
}

void bench_attach(const struct bench_settings *settings)
{
	static const uint32_t counts[] = { 1, 16, 48, 1024 };
	double p50[2 * sizeof(counts) / sizeof(counts[0])];
	size_t nr = 0;

	make_programs();
	printf("\nattach and detach of one program more, %u times, threads calling flat out beside\n", settings->nr_updates);
	for (int nr_threads = 0; nr_threads <= 1; nr_threads++)
		for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
			p50[nr++] = attach_row(settings, counts[i], nr_threads);
	printf("\nwanted\n");
	nr = 0;
	for (int nr_threads = 0; nr_threads <= 1; nr_threads++) {
		for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
			char what[64];

			snprintf(what, sizeof(what), "attach p50, N = %u, %d threads", counts[i], nr_threads);
			bench_verdict(what, p50[nr++], "us", 5);
		}
	}
}

/* ---- disturbance -------------------------------------------------------------------------------------------------- */

struct phase {
	double rate;      /* median of calls a millisecond */
	double longest;   /* median over the milliseconds of their slowest batch, us */
	double worst;     /* 99th percentile of the same */
	uint64_t nr_updates;
};

static void sleep_until(struct timespec *at, long ns)
{
	at->tv_nsec += ns;
	if (at->tv_nsec >= 1000000000) {
		at->tv_nsec -= 1000000000;
		at->tv_sec++;
	}
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, at, NULL);
}

/*
 * Samples the caller for some seconds while updated, unless NULL, gets 1,000 updates a second. Without updates this thread does the same but
 * for them: it wakes as often, or (is_busy) looks at the clock all the time.
 */
static struct phase run_phase(double seconds, struct shunt_dispatcher *updated, bool is_busy)
{
	struct phase phase = { 0 };
	double next = bench_now_ns(), end = next + seconds * 1e9;
	bool is_attached = false;
	struct timespec at;
	size_t first = caller.nr_samples, nr;

	clock_gettime(CLOCK_MONOTONIC, &at);
	__atomic_store_n(&caller.records, true, __ATOMIC_RELEASE);
	while (bench_now_ns() < end) {
		if (!is_busy)
			sleep_until(&at, 1000000);
		for (next += 1e6; is_busy && bench_now_ns() < next;)
			;
		if (!updated)
			continue;
		if (is_attached ? shunt_dispatcher_detach(updated, programs[MAX_ATTACHED].rx)
				: shunt_dispatcher_attach(updated, programs[MAX_ATTACHED].rx))
			bench_die("updating");
		is_attached = !is_attached;
		phase.nr_updates++;
	}
	__atomic_store_n(&caller.records, false, __ATOMIC_RELEASE);
	clock_gettime(CLOCK_MONOTONIC, &at);
	sleep_until(&at, 2000000);
	if (is_attached && shunt_dispatcher_detach(updated, programs[MAX_ATTACHED].rx))
		bench_die("updating");
	shunt_quiesce();
	nr = caller.nr_samples - first;
	if (!nr)
		return phase;
	bench_sort(caller.rates + first, nr);
	bench_sort(caller.longest + first, nr);
	phase.rate = bench_quantile(caller.rates + first, nr, 0.5);
	phase.longest = bench_quantile(caller.longest + first, nr, 0.5) / 1e3;
	phase.worst = bench_quantile(caller.longest + first, nr, 0.99) / 1e3;
	return phase;
}

/*
 * Quiet and disturbed parts of a tenth of a second take turns, now the one first, now the other; the dip is the median of each pair's: what
 * else the machine does lasts longer or is in few of them.
 */
static double disturb(const char *what, const struct bench_settings *settings, struct shunt_dispatcher *updated, bool is_busy)
{
	enum { MAX_PAIRS = BENCH_MAX_ROUNDS };
	double dips[MAX_PAIRS], rates[2][MAX_PAIRS], longest[2][MAX_PAIRS], worst[2][MAX_PAIRS];
	unsigned int nr_pairs = (unsigned int)(settings->seconds * 10 + 0.5);
	struct bench_spread dip;

	nr_pairs = nr_pairs < 4 ? 4 : nr_pairs > MAX_PAIRS ? MAX_PAIRS : nr_pairs;
	caller.nr_samples = 0;
	for (unsigned int i = 0; i < nr_pairs; i++) {
		for (unsigned int half = 0; half < 2; half++) {
			bool is_loud = (half + i) % 2;
			struct phase phase = run_phase(0.1, is_loud ? updated : NULL, is_busy);

			rates[is_loud][i] = phase.rate;
			longest[is_loud][i] = phase.longest;
			worst[is_loud][i] = phase.worst;
		}
		dips[i] = (1 - rates[1][i] / rates[0][i]) * 100;
	}
	dip = bench_spread_of(dips, nr_pairs);
	printf("  %-32s %8.0f -> %8.0f calls/ms, dip %6.2f %% (quartiles %.2f .. %.2f, %u pairs)\n", what, bench_spread_of(rates[0], nr_pairs).median,
	       bench_spread_of(rates[1], nr_pairs).median, dip.median, dip.low, dip.high, nr_pairs);
	printf("  %-32s slowest batch of %u calls in a ms: median %.2f -> %.2f us, p99 %.2f -> %.2f us\n", "", BATCH,
	       bench_spread_of(longest[0], nr_pairs).median, bench_spread_of(longest[1], nr_pairs).median, bench_spread_of(worst[0], nr_pairs).median,
	       bench_spread_of(worst[1], nr_pairs).median);
	return dip.median;
}

void bench_disturb(const struct bench_settings *settings)
{
	struct shunt_dispatcher *running, *other;
	struct shunt_block loop;
	double dip_other, dip_same;

	make_programs();
	if (bench_nr_cpus() < 2) {
		printf("\ndisturbance is not measured: it needs two CPUs\n");
		return;
	}
	if (shunt_dispatcher_create("bench_running", NULL, &running) || shunt_dispatcher_create("bench_other", NULL, &other) ||
	    shunt_dispatcher_attach_many(running, attached, 16) || shunt_dispatcher_attach_many(other, attached, 16) ||
	    calls_make_loop(NULL, CALLS_STUB, shunt_dispatcher_stub(running), &loop))
		bench_die("attaching");
	printf("\none thread calls 16 programs in turn through a dispatcher, another one updates 1,000 times a second\n");
	start_caller((calls_loop *)(uintptr_t)loop.rx, attached, 16);
	dip_other = disturb("(a) another dispatcher updated", settings, other, false);
	dip_same = disturb("(b) this dispatcher updated", settings, running, false);
	printf("\nthe same, the updating thread looking at the clock all the time in place of sleeping\n");
	disturb("(a) another dispatcher updated", settings, other, true);
	disturb("(b) this dispatcher updated", settings, running, true);
	stop_caller();
	printf("\nwanted\n");
	bench_verdict("throughput dip while another dispatcher is updated", dip_other, "%", 1);
	bench_verdict("throughput dip while this dispatcher is updated", dip_same, "%", 5);
	shunt_dispatcher_detach_many(running, attached, 16);
	shunt_dispatcher_detach_many(other, attached, 16);
	shunt_pack_free(&loop);
	shunt_quiesce();
	shunt_dispatcher_destroy(running);
	shunt_dispatcher_destroy(other);
}
