/* SPDX-License-Identifier: MIT */
/*
 * Per-CPU access: the kernel's three programs (one counter a CPU, per-CPU array, per-CPU hash) in one run, each in the kernel and by us as
 * helper calls, inlined plain and inlined exact, beside hand-written C on thread-local data. The ways take turns within a round, so that
 * what disturbs the machine disturbs all of them; what an empty loop costs is measured the same way, printed and subtracted.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <shunt/bpf.h>
#include <shunt/log.h>
#include <shunt/percpu.h>
#include <shunt/reader.h>

#include "bench/common.h"

#define NR_OPS 1000
#define NR_KEYS 256
#define BARRIER() __asm__ volatile("" ::: "memory")
#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* WAY_NO_PROBE: inlined but for the hash itself. */
enum way { WAY_KERNEL, WAY_CALLS, WAY_NO_PROBE, WAY_PLAIN, WAY_EXACT, WAY_HAND, NR_WAYS };
static const char *const way_names[NR_WAYS] = { "kernel",      "ours, calls", "ours, hash called", "ours, plain",
						"ours, exact", "C, thread-local" };

static unsigned int nr_rounds = 15, nr_runs = 300;

/* ---- hand-written ---------------------------------------------------------------------------------------------- */

static __thread uint64_t local[NR_KEYS];
static void *percpu_counter;

static void hand_loop(void)
{
	for (uint32_t i = 0; i < NR_OPS; i++)
		BARRIER();
}

static void hand_one(void)
{
	for (uint32_t i = 0; i < NR_OPS; i++) {
		local[7]++;
		BARRIER();
	}
}

static void hand_keys(void)
{
	for (uint32_t i = 0; i < NR_OPS; i++) {
		local[i & (NR_KEYS - 1)]++;
		BARRIER();
	}
}

/* As small as a hash table gets: open addressing, one multiplication, no reader or writer beside it. */
static __thread struct {
	uint32_t key, used;
	uint64_t value;
} local_hash[2 * NR_KEYS];

static inline uint64_t *hand_find(uint32_t key)
{
	for (uint32_t at = key * 2654435769u >> 23;; at = (at + 1) % (2 * NR_KEYS)) {
		if (!local_hash[at].used)
			return NULL;
		if (local_hash[at].key == key)
			return &local_hash[at].value;
	}
}

static void hand_hash_fill(void)
{
	for (uint32_t key = 0; key < NR_KEYS; key++) {
		uint32_t at = key * 2654435769u >> 23;

		while (local_hash[at].used)
			at = (at + 1) % (2 * NR_KEYS);
		local_hash[at].key = key;
		local_hash[at].used = 1;
	}
}

static void hand_hash_keys(void)
{
	for (uint32_t i = 0; i < NR_OPS; i++) {
		uint64_t *value = hand_find(i & (NR_KEYS - 1));

		if (value)
			++*value;
		BARRIER();
	}
}

static void hand_hash_const(void)
{
	for (uint32_t i = 0; i < NR_OPS; i++) {
		uint64_t *value = hand_find(7);

		if (value)
			++*value;
		BARRIER();
	}
}

static void hand_lock_add(void)
{
	uint64_t *counter = shunt_percpu_this(percpu_counter);

	for (uint32_t i = 0; i < NR_OPS; i++)
		__atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

static void hand_call_add(void)
{
	for (uint32_t i = 0; i < NR_OPS; i++)
		shunt_percpu_add64(percpu_counter, 1);
}

/* ---- the programs in their ways -------------------------------------------------------------------------------- */

typedef uint32_t entry_fn(struct shunt_xdp_ctx *ctx);

static struct bench {
	const char *program;
	void (*hand)(void);
	int kernel_fd;
	entry_fn *entry[NR_WAYS];
	double ns[NR_WAYS][BENCH_MAX_ROUNDS]; /* an operation, loop included; negative: not measured */
} benches[] = {
	{ .program = "loop", .hand = hand_loop },
	{ .program = "glob_arr_inc", .hand = hand_one },
	{ .program = "arr_inc_keys", .hand = hand_keys },
	{ .program = "arr_inc_const", .hand = hand_one },
	{ .program = "hash_inc_keys", .hand = hand_hash_keys },
	{ .program = "hash_inc_const", .hand = hand_hash_const },
	{ .program = "shared_hash_inc_keys", .hand = hand_hash_keys },
};
enum { LOOP, GLOB, ARR_KEYS, ARR_CONST, HASH_KEYS, HASH_CONST, SHARED_HASH };

static struct bpf_object *kernel_object;
static const char *kernel_missing;
static struct shunt_bpf_object *objects[NR_WAYS];

static void die(const char *what)
{
	fprintf(stderr, "bench_percpu: %s: %s\n", what, shunt_error());
	exit(1);
}

/* Time that this thread ran: the kernel's own test run does not count either while others run. */
static double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int no_printing(enum libbpf_print_level level, const char *format, va_list args)
{
	return 0;
}

/* NULL, or why there is no kernel column. */
static const char *open_kernel(const char *path)
{
	static uint64_t values[4096];

	libbpf_set_print(no_printing);
	kernel_object = bpf_object__open_file(path, NULL);
	if (!kernel_object)
		return "libbpf cannot open the object";
	if (bpf_object__load(kernel_object))
		return errno == EPERM ? "it needs root (CAP_BPF)" : "the kernel does not load the programs";
	for (uint32_t key = 0; key < NR_KEYS; key++) {
		if (bpf_map_update_elem(bpf_object__find_map_fd_by_name(kernel_object, "per_cpu_hash"), &key, values, 0) ||
		    bpf_map_update_elem(bpf_object__find_map_fd_by_name(kernel_object, "shared_hash"), &key, values, 0))
			return "its maps cannot be filled";
	}
	for (size_t i = 0; i < LENGTH(benches); i++)
		benches[i].kernel_fd = bpf_program__fd(bpf_object__find_program_by_name(kernel_object, benches[i].program));
	return NULL;
}

static void open_ours(const char *path, enum way way, const char *pipeline, enum shunt_pass_rmw rmw)
{
	struct shunt_bpf_options options = { .pipeline = pipeline, .rmw = rmw };
	void *values;

	if (shunt_bpf_open_file(path, &options, &objects[way]))
		die("opening the programs");
	values = calloc(shunt_nr_cpus(), 8);
	for (uint32_t key = 0; key < NR_KEYS && values; key++) {
		if (shunt_map_host_update(shunt_bpf_find_map(objects[way], "per_cpu_hash"), &key, values, 0) ||
		    shunt_map_host_update(shunt_bpf_find_map(objects[way], "shared_hash"), &key, values, 0))
			die("filling a map");
	}
	free(values);
	if (shunt_bpf_compile(objects[way]))
		die("compiling the programs");
	for (size_t i = 0; i < LENGTH(benches); i++)
		benches[i].entry[way] =
			(entry_fn *)(uintptr_t)shunt_bpf_program_entry(shunt_bpf_find_program(objects[way], benches[i].program));
}

static double measure_kernel(int fd)
{
	static unsigned char frame[64];
	LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = frame, .data_size_in = sizeof(frame), .repeat = (int)nr_runs);

	return bpf_prog_test_run_opts(fd, &options) ? -1 : (double)options.duration / NR_OPS;
}

static double measure_entry(entry_fn *entry)
{
	static unsigned char frame[SHUNT_XDP_HEADROOM + 64];
	struct shunt_xdp_ctx ctx = { .data = frame + SHUNT_XDP_HEADROOM,
				     .data_end = frame + sizeof(frame),
				     .data_meta = frame + SHUNT_XDP_HEADROOM,
				     .data_hard_start = frame,
				     .data_hard_end = frame + sizeof(frame) };
	double start;

	shunt_read_begin();
	start = now_ns();
	for (unsigned int run = 0; run < nr_runs; run++)
		entry(&ctx);
	start = now_ns() - start;
	shunt_read_end();
	return start / nr_runs / NR_OPS;
}

static double measure_hand(void (*hand)(void))
{
	double start = now_ns();

	for (unsigned int run = 0; run < nr_runs; run++)
		hand();
	return (now_ns() - start) / nr_runs / NR_OPS;
}

static double measure(struct bench *bench, enum way way)
{
	switch (way) {
	case WAY_KERNEL:
		return kernel_missing ? -1 : measure_kernel(bench->kernel_fd);
	case WAY_HAND:
		return measure_hand(bench->hand);
	default:
		/* Our compiler deletes the empty loop: the C loop with a compiler barrier, one cycle round, stands for it. */
		return bench == &benches[LOOP] ? measure_hand(hand_loop) : measure_entry(bench->entry[way]);
	}
}

/* ---- results --------------------------------------------------------------------------------------------------- */

static struct bench_spread spread_of(const double *values)
{
	return bench_spread_of(values, nr_rounds);
}

static double loop_cost(enum way way)
{
	return spread_of(benches[LOOP].ns[way]).median;
}

/* Of a to b, round by round: what disturbs a round disturbs both. Taken off from each: the loop, where net. */
static struct bench_spread ratio_of(const double *a, double loop_a, const double *b, double loop_b)
{
	double ratios[BENCH_MAX_ROUNDS];

	for (unsigned int round = 0; round < nr_rounds; round++)
		ratios[round] = (a[round] - loop_a) / (b[round] - loop_b);
	return spread_of(ratios);
}

static struct bench_spread net_ratio(int bench, enum way a, enum way b)
{
	return ratio_of(benches[bench].ns[a], loop_cost(a), benches[bench].ns[b], loop_cost(b));
}

/* Of a to b, loops included, in turns of some microseconds: for what is nearly equal. */
static struct bench_spread close_ratio(entry_fn *a, entry_fn *b)
{
	enum { NR_TURNS = 4000, RUNS = 20 };
	static double ratios[NR_TURNS];
	unsigned int nr_runs_before = nr_runs;

	nr_runs = RUNS;
	for (unsigned int turn = 0; turn < NR_TURNS; turn++) {
		/* Either goes first as often as the other. */
		double first = measure_entry(turn % 2 ? b : a), second = measure_entry(turn % 2 ? a : b);

		ratios[turn] = turn % 2 ? second / first : first / second;
	}
	nr_runs = nr_runs_before;
	bench_sort(ratios, NR_TURNS);
	return (struct bench_spread){ bench_quantile(ratios, NR_TURNS, 0.25), bench_quantile(ratios, NR_TURNS, 0.5),
				      bench_quantile(ratios, NR_TURNS, 0.75) };
}

static void print_line(const char *name, const double *ns, double loop)
{
	struct bench_spread spread = spread_of(ns);

	if (spread.median < 0)
		printf("  %-22s         -\n", name);
	else
		printf("  %-22s %9.2f   (%.2f - %.2f, loop of %.2f taken off)\n", name, spread.median - loop, spread.low - loop,
		       spread.high - loop, loop);
}

static void print_wanted(const char *what, struct bench_spread ratio, const char *relation, double bound)
{
	bool holds = relation[0] == '<' ? ratio.median <= bound : ratio.median >= bound;

	printf("  %-58s %6.2f (%.2f - %.2f)   wanted %s %.3f: %s\n", what, ratio.median, ratio.low, ratio.high, relation, bound,
	       holds ? "yes" : "NO");
}

static void describe_machine(void)
{
	struct shunt_cpu_index index;

	shunt_cpu_index(&index);
	bench_print_machine();
	printf("index source: %s\n%u operations a run, %u runs a measurement, median (quartiles) of %u rounds, ns an operation\n\n",
	       shunt_cpu_source_name(index.source), NR_OPS, nr_runs, nr_rounds);
}

/* ---- threads --------------------------------------------------------------------------------------------------- */

struct worker {
	entry_fn *entry;
	pthread_t thread;
	double ns;
	int cpu;
};

static void *work(void *arg)
{
	struct worker *worker = arg;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(worker->cpu, &set);
	pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
	worker->ns = 1e9;
	for (unsigned int round = 0; round < nr_rounds; round++) {
		double ns = measure_entry(worker->entry);

		worker->ns = ns < worker->ns ? ns : worker->ns;
	}
	return NULL;
}

static void print_scaling(const char *name, entry_fn *entry)
{
	struct worker workers[2] = { { .entry = entry, .cpu = 0 }, { .entry = entry, .cpu = 1 } };

	printf("  %-22s", name);
	for (unsigned int nr = 1; nr <= 2 && nr <= shunt_nr_cpus(); nr++) {
		for (unsigned int i = 0; i < nr; i++)
			pthread_create(&workers[i].thread, NULL, work, &workers[i]);
		printf("   %u thread%s:", nr, nr > 1 ? "s" : "");
		for (unsigned int i = 0; i < nr; i++) {
			pthread_join(workers[i].thread, NULL);
			printf(" %.1f", 1e3 / workers[i].ns);
		}
	}
	printf("   M/s a thread, loop included, best round\n");
}

/* ---- */

static void print_results(const double *lock_add, const double *call_add)
{
	for (size_t i = 0; i < LENGTH(benches); i++) {
		printf("%s\n", benches[i].program);
		for (int way = 0; way < NR_WAYS; way++)
			print_line(way_names[way], benches[i].ns[way], i == LOOP ? 0 : loop_cost(way));
	}
	printf("one counter, in C\n");
	print_line("lock add", lock_add, loop_cost(WAY_HAND));
	print_line("shunt_percpu_add64", call_add, loop_cost(WAY_HAND));

	printf("\nratios, round by round: median (quartiles); of the operation alone unless it says with loop\n");
	print_wanted("arr-inc: helper calls / inlined, with loop", ratio_of(benches[ARR_KEYS].ns[WAY_CALLS], 0, benches[ARR_KEYS].ns[WAY_PLAIN], 0),
		     ">=", 2.4);
	if (!kernel_missing) {
		print_wanted("arr-inc: inlined / kernel, with loop",
			     ratio_of(benches[ARR_KEYS].ns[WAY_PLAIN], 0, benches[ARR_KEYS].ns[WAY_KERNEL], 0), "<=", 1.1);
		print_wanted("hash-inc: ours exact / kernel", net_ratio(HASH_KEYS, WAY_EXACT, WAY_KERNEL), "<=", 1);
		print_wanted("hash-inc on a shared hash: ours / kernel", net_ratio(SHARED_HASH, WAY_PLAIN, WAY_KERNEL), "<=", 1);
	}
	print_wanted("arr-inc rate / glob-arr-inc rate, with loop", close_ratio(benches[GLOB].entry[WAY_PLAIN], benches[ARR_CONST].entry[WAY_PLAIN]),
		     ">=", 0.98);
	print_wanted("arr-inc: exact / plain, with loop", close_ratio(benches[ARR_KEYS].entry[WAY_EXACT], benches[ARR_KEYS].entry[WAY_PLAIN]),
		     "<=", 1.2);
	print_wanted("arr-inc, one key: exact / plain, with loop",
		     close_ratio(benches[ARR_CONST].entry[WAY_EXACT], benches[ARR_CONST].entry[WAY_PLAIN]), "<=", 1.2);
	print_wanted("lock add / arr-inc exact, with loop", ratio_of(lock_add, 0, benches[ARR_KEYS].ns[WAY_EXACT], 0), ">=", 2);
	print_wanted("hash-inc: helper calls / inlined half", net_ratio(HASH_KEYS, WAY_CALLS, WAY_NO_PROBE), ">=", 1.027);
	print_wanted("hash-inc: hash called / first probe inline", net_ratio(HASH_KEYS, WAY_NO_PROBE, WAY_PLAIN), ">=", 1);
}

int main(int argc, char **argv)
{
	static double lock_add[BENCH_MAX_ROUNDS], call_add[BENCH_MAX_ROUNDS];
	int option;

	while ((option = getopt(argc, argv, "r:n:")) != -1) {
		unsigned long value = optarg ? strtoul(optarg, NULL, 10) : 0;

		if (option == '?' || value == 0 || (option == 'r' && value > BENCH_MAX_ROUNDS)) {
			fprintf(stderr, "usage: bench_percpu [-r ROUNDS (15, at most %d)] [-n RUNS of 1,000 operations (300)]\n", BENCH_MAX_ROUNDS);
			return 2;
		}
		*(option == 'r' ? &nr_rounds : &nr_runs) = (unsigned int)value;
	}
	kernel_missing = open_kernel(BENCH_PERCPU_OBJECT);
	if (kernel_missing)
		printf("no kernel column: %s\n", kernel_missing);
	open_ours(BENCH_PERCPU_OBJECT, WAY_CALLS, "", SHUNT_PASS_RMW_PLAIN);
	open_ours(BENCH_PERCPU_OBJECT, WAY_NO_PROBE, "shunt<hash-calls>", SHUNT_PASS_RMW_PLAIN);
	open_ours(BENCH_PERCPU_OBJECT, WAY_PLAIN, NULL, SHUNT_PASS_RMW_PLAIN);
	open_ours(BENCH_PERCPU_OBJECT, WAY_EXACT, NULL, SHUNT_PASS_RMW_EXACT);
	if (shunt_percpu_alloc(8, 64, &percpu_counter))
		die("allocating a counter");
	hand_hash_fill();
	describe_machine();
	for (unsigned int round = 0; round < nr_rounds; round++) {
		for (size_t i = 0; i < LENGTH(benches); i++) {
			for (int way = 0; way < NR_WAYS; way++)
				benches[i].ns[way][round] = measure(&benches[i], way);
		}
		lock_add[round] = measure_hand(hand_lock_add);
		call_add[round] = measure_hand(hand_call_add);
	}
	print_results(lock_add, call_add);
	printf("\nthreads on CPUs of their own\n");
	print_scaling("arr-inc, exact", benches[ARR_KEYS].entry[WAY_EXACT]);
	print_scaling("hash-inc, exact", benches[HASH_KEYS].entry[WAY_EXACT]);
	for (int way = 0; way < NR_WAYS; way++)
		shunt_bpf_close(objects[way]);
	bpf_object__close(kernel_object);
	shunt_percpu_free(percpu_counter);
	return 0;
}
