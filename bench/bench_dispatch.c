/* SPDX-License-Identifier: MIT */
/*
 * What a call through a dispatcher costs, beside the other ways to call a program by its pointer; and what attaching costs.
 *
 * A measurement is one generated loop over a list of pointers that is made anew for it, outside the clock: random lists never repeat, so
 * that no branch predictor learns one by heart. The ways of a row take turns within a round, so that what disturbs the machine
 * disturbs all of them; ratios are taken round by round, and their median counts. A row during which something else took a part of the
 * processor, as its direct calls tell, is measured again. Each loop adds up what the programs return: a call that lands wrong ends the run.
 */
#include "bench/bench_dispatch.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <shunt/dispatcher.h>
#include <shunt/hook.h>
#include <shunt/log.h>
#include <shunt/reader.h>

#include "bench/dispatch_calls.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))
#define NR_OUTSIDE 16u
#define MAX_PROGRAMS 1024u
#define NR_SLICES 16u
/* A row is disturbed when its direct calls take so much longer than the fastest of the run, or half of its rounds are so far apart. */
#define DISTURBED 1.06
#define AGAIN_MAX 12u  /* times for a row */
#define AGAIN_IN_ALL 120u

enum pattern { ONE, TURNS, HOT, RANDOM, MISS_OUTSIDE, MISS_INSIDE, MISS_TURNS, NR_PATTERNS };
static const char *const pattern_names[NR_PATTERNS] = {
	"one target, attached among N",
	"N targets in turn",
	"N targets, one of them in 90 % of the calls, weights given",
	"N targets, uniform random",
	"all miss, one pointer above all attached programs",
	"all miss, one pointer between attached programs",
	"all miss, N pointers between attached programs in turn",
};

static const uint32_t counts[] = { 1, 2, 4, 8, 16, 32, 48, 64, 256, 1024 };

static struct way {
	const char *name;
	enum calls_way calls;
	bool has_plan;
	enum shunt_plan_kind plan;
	enum shunt_miss_kind miss;
	bool only_misses; /* differs from another one in the fallback only */
	bool is_hook;     /* a static hook: one program */
	bool counts;      /* hits */
} ways[] = {
	{ .name = "direct", .calls = CALLS_DIRECT },
	{ .name = "pointer", .calls = CALLS_POINTER },
	{ .name = "retpoline", .calls = CALLS_RETPOLINE },
	{ .name = "kernel", .calls = CALLS_STUB, .has_plan = true, .plan = SHUNT_PLAN_KERNEL },
	{ .name = "default", .calls = CALLS_STUB, .has_plan = true, .plan = SHUNT_PLAN_DEFAULT },
	{ .name = "linear", .calls = CALLS_STUB, .has_plan = true, .plan = SHUNT_PLAN_LINEAR },
	{ .name = "balanced", .calls = CALLS_STUB, .has_plan = true, .plan = SHUNT_PLAN_BALANCED },
	{ .name = "weighted", .calls = CALLS_STUB, .has_plan = true, .plan = SHUNT_PLAN_WEIGHTED },
	{ .name = "hook", .calls = CALLS_STUB, .is_hook = true },
	{ .name = "hits counted", .calls = CALLS_STUB, .has_plan = true, .counts = true },
	{ .name = "empty", .calls = CALLS_STUB, .only_misses = true },
	{ .name = "empty/retp", .calls = CALLS_STUB, .miss = SHUNT_MISS_RETPOLINE, .only_misses = true },
	{ .name = "kernel/retp", .calls = CALLS_STUB, .has_plan = true, .plan = SHUNT_PLAN_KERNEL, .miss = SHUNT_MISS_RETPOLINE,
	  .only_misses = true },
	{ .name = "default/retp", .calls = CALLS_STUB, .has_plan = true, .miss = SHUNT_MISS_RETPOLINE, .only_misses = true },
};
enum { DIRECT, POINTER, RETPOLINE, KERNEL, DEFAULT, LINEAR, BALANCED, WEIGHTED, HOOK, COUNTED, EMPTY, EMPTY_RETPOLINE, KERNEL_RETPOLINE,
       DEFAULT_RETPOLINE, NR_WAYS };
_Static_assert(LENGTH(ways) == NR_WAYS, "a name for every way");

static struct bench_settings settings = { .nr_rounds = 15, .nr_calls = (size_t)1 << 18, .nr_updates = 2000, .seconds = 2 };
static uint32_t only_count;
static int nr_lost;
static double fastest_direct = HUGE_VAL;
static uint32_t nr_again, nr_disturbed;

/* 2 N programs by address, of which the even ones are attached, and some above all of them. */
static const void *programs[2 * MAX_PROGRAMS + NR_OUTSIDE];
static uint32_t ids[2 * MAX_PROGRAMS + NR_OUTSIDE];
static const void **list;
static struct cell {
	double ns[BENCH_MAX_ROUNDS];
	struct bench_spread spread;
	bool measured;
} cells[NR_PATTERNS][LENGTH(counts)][NR_WAYS];
static bool is_disturbed[NR_PATTERNS][LENGTH(counts)];

void bench_die(const char *what)
{
	fprintf(stderr, "bench_dispatch: %s: %s\n", what, shunt_error());
	exit(1);
}

void bench_verdict(const char *what, double value, const char *unit, double limit)
{
	bool holds = value <= limit;

	printf("  %-76s %8.2f %-3s wanted <= %.2f: %s\n", what, value, unit, limit, holds ? "yes" : "NO");
	nr_lost += !holds;
}

static int compare_programs(const void *left, const void *right)
{
	uintptr_t l = (uintptr_t)((const struct shunt_block *)left)->rx, r = (uintptr_t)((const struct shunt_block *)right)->rx;

	return (l > r) - (l < r);
}

static void make_programs(struct shunt_arena *arena)
{
	static struct shunt_block blocks[LENGTH(programs)];

	for (size_t i = 0; i < LENGTH(blocks); i++) {
		if (calls_make_program(arena, (uint32_t)i, &blocks[i]))
			bench_die("making a program");
	}
	qsort(blocks, LENGTH(blocks), sizeof(blocks[0]), compare_programs);
	for (size_t i = 0; i < LENGTH(blocks); i++) {
		programs[i] = blocks[i].rx;
		ids[i] = ((uint32_t (*)(void))(uintptr_t)programs[i])();
	}
}

/* Index of the program that call number i names, nr being attached. Nothing lies between the programs of one: that pointer is above it. */
static size_t pick(enum pattern pattern, uint32_t nr, size_t i, uint64_t *state)
{
	uint32_t hot = nr * 5 / 8; /* neither first, last nor a pivot */

	switch (pattern) {
	case ONE:
		return 2 * hot;
	case TURNS:
		return 2 * (i % nr);
	case HOT:
		return bench_random(state) % 10 ? 2 * hot : 2 * (bench_random(state) % nr);
	case RANDOM:
		return 2 * (bench_random(state) % nr);
	case MISS_OUTSIDE:
		return 2 * MAX_PROGRAMS;
	case MISS_INSIDE:
		return nr > 1 ? 2 * (nr / 2) - 1 : 1;
	default:
		return nr > 1 ? 2 * (i % (nr - 1)) + 1 : 1;
	}
}

static uint64_t fill_list(enum pattern pattern, uint32_t nr)
{
	static uint64_t state = 0x9e3779b97f4a7c15u;
	uint64_t sum = 0;

	for (size_t i = 0; i < settings.nr_calls; i++) {
		size_t at = pick(pattern, nr, i, &state);

		list[i] = programs[at];
		sum += ids[at];
	}
	return sum;
}

struct tried {
	struct shunt_dispatcher *dispatcher;
	struct shunt_hook *hook;
	struct shunt_block loop;
	bool is_there;
};

static const void *attached[MAX_PROGRAMS];

/* Every way with N programs attached. */
static void make_ways(struct shunt_arena *arena, uint32_t nr, struct tried *tried)
{
	for (uint32_t i = 0; i < nr; i++)
		attached[i] = programs[2 * i];
	for (int way = 0; way < NR_WAYS; way++) {
		struct shunt_dispatcher_options options = { .plan = ways[way].plan, .miss = ways[way].miss, .arena = arena };
		const void *dest = programs[2 * (nr * 5 / 8)];
		char name[32];
		int err;

		memset(&tried[way], 0, sizeof(tried[way]));
		if (ways[way].is_hook) {
			if (shunt_hook_create("bench_hook", NULL, &tried[way].hook) || shunt_hook_attach(tried[way].hook, dest, NULL))
				bench_die(ways[way].name);
			dest = shunt_hook_entry(tried[way].hook);
		} else if (ways[way].calls == CALLS_STUB) {
			snprintf(name, sizeof(name), "bench_way%d", way);
			if (shunt_dispatcher_create(name, &options, &tried[way].dispatcher) ||
			    (ways[way].has_plan && shunt_dispatcher_attach_many(tried[way].dispatcher, attached, nr)) ||
			    (ways[way].counts && shunt_dispatcher_count_hits(tried[way].dispatcher, true)))
				bench_die(ways[way].name);
			dest = shunt_dispatcher_stub(tried[way].dispatcher);
		}
		err = calls_make_loop(arena, ways[way].calls, dest, &tried[way].loop);
		if (err && err != -ENOTSUP)
			bench_die(ways[way].name);
		tried[way].is_there = !err;
	}
}

static void set_weights(struct tried *tried, uint32_t nr, bool is_hot)
{
	static uint32_t weights[MAX_PROGRAMS];

	for (uint32_t i = 0; i < nr; i++)
		weights[i] = is_hot ? 1 : 0;
	if (is_hot)
		weights[nr * 5 / 8] = 9 * nr + 1;
	for (int way = 0; way < NR_WAYS; way++)
		if (ways[way].has_plan && ways[way].plan != SHUNT_PLAN_KERNEL &&
		    shunt_dispatcher_set_weights(tried[way].dispatcher, attached, weights, nr))
			bench_die("weights");
	/* Not while something is measured. */
	shunt_quiesce();
}

static void drop_ways(uint32_t nr, struct tried *tried)
{
	for (int way = 0; way < NR_WAYS; way++) {
		if (tried[way].is_there)
			shunt_pack_free(&tried[way].loop);
		if (tried[way].hook && (shunt_hook_detach(tried[way].hook, programs[2 * (nr * 5 / 8)], NULL) || shunt_hook_destroy(tried[way].hook)))
			bench_die("detaching");
		if (!tried[way].dispatcher)
			continue;
		if (ways[way].has_plan && shunt_dispatcher_detach_many(tried[way].dispatcher, attached, nr))
			bench_die("detaching");
		shunt_dispatcher_destroy(tried[way].dispatcher);
	}
	shunt_quiesce();
}

/* The list goes by in slices, and the median slice counts: one that another process interrupted does not. */
static double measure(const struct tried *tried, uint64_t sum)
{
	calls_loop *loop = (calls_loop *)(uintptr_t)tried->loop.rx;
	size_t len = settings.nr_calls / NR_SLICES;
	double slices[NR_SLICES];
	uint64_t got = 0;

	shunt_read_begin();
	for (size_t i = 0; i < NR_SLICES; i++) {
		double start = bench_now_ns();

		got += loop(list + i * len, len);
		slices[i] = (bench_now_ns() - start) / (double)len;
	}
	shunt_read_end();
	if (got != sum) {
		fprintf(stderr, "bench_dispatch: a call landed in the wrong program\n");
		exit(1);
	}
	bench_sort(slices, NR_SLICES);
	return slices[NR_SLICES / 2];
}

static bool applies(int way, enum pattern pattern, uint32_t nr)
{
	if (ways[way].only_misses && pattern < MISS_OUTSIDE)
		return false;
	if (ways[way].is_hook)
		return pattern == ONE;
	if (ways[way].counts)
		return pattern <= TURNS;
	/* Half of 1024 compares a call: that is known. */
	return way != LINEAR || nr <= 256;
}

static void measure_once(const struct tried *tried, enum pattern pattern, size_t count, struct cell *row)
{
	uint64_t sum;

	/* Round 0 warms up and is written over. */
	for (unsigned int round = 0; round <= settings.nr_rounds; round++) {
		for (int way = 0; way < NR_WAYS; way++) {
			if (!tried[way].is_there || !applies(way, pattern, counts[count]))
				continue;
			sum = fill_list(pattern, counts[count]);
			if (way == DIRECT)
				sum = settings.nr_calls * ids[2 * (counts[count] * 5 / 8)];
			row[way].ns[round ? round - 1 : 0] = measure(&tried[way], sum);
			row[way].measured = true;
		}
	}
	for (int way = 0; way < NR_WAYS; way++)
		if (row[way].measured)
			row[way].spread = bench_spread_of(row[way].ns, settings.nr_rounds);
}

static bool was_disturbed(const struct cell *row)
{
	const struct bench_spread *direct = &row[DIRECT].spread;

	return direct->median > fastest_direct * DISTURBED || direct->high > direct->low * DISTURBED;
}

static void measure_row(struct tried *tried, enum pattern pattern, size_t count)
{
	static struct cell again[NR_WAYS];
	struct cell *row = cells[pattern][count];

	set_weights(tried, counts[count], pattern == HOT);
	measure_once(tried, pattern, count, row);
	fastest_direct = row[DIRECT].spread.median < fastest_direct ? row[DIRECT].spread.median : fastest_direct;
	/* The attempt whose direct calls were the fastest is kept, whatever it says of the other ways. */
	for (unsigned int i = 0; i < AGAIN_MAX && nr_again < AGAIN_IN_ALL && was_disturbed(row); i++) {
		memset(again, 0, sizeof(again));
		usleep(20000u << (i < 4 ? i : 4));
		measure_once(tried, pattern, count, again);
		nr_again++;
		if (again[DIRECT].spread.high < row[DIRECT].spread.high)
			memcpy(row, again, sizeof(again));
		fastest_direct = row[DIRECT].spread.median < fastest_direct ? row[DIRECT].spread.median : fastest_direct;
	}
}

/* By what the whole run knows. */
static void find_disturbed(void)
{
	for (int pattern = 0; pattern < NR_PATTERNS; pattern++)
		for (size_t count = 0; count < LENGTH(counts); count++) {
			is_disturbed[pattern][count] = cells[pattern][count][DIRECT].measured && was_disturbed(cells[pattern][count]);
			nr_disturbed += is_disturbed[pattern][count];
		}
}

/* A first idea of how fast direct calls are, from a second or two of them. */
static void find_fastest(const struct tried *tried, uint32_t nr)
{
	fill_list(ONE, 1);
	for (int i = 0; i < 60; i++) {
		double ns = measure(&tried[DIRECT], settings.nr_calls * ids[2 * (nr * 5 / 8)]);

		fastest_direct = ns < fastest_direct ? ns : fastest_direct;
		usleep(20000);
	}
}

/* The median over the rounds of how much longer one way took than another one: what disturbs a round disturbs both. */
static double ratio(const struct cell *row, int way, int to)
{
	return bench_ratio_of(row[way].ns, row[to].ns, settings.nr_rounds).median;
}

static double difference(const struct cell *row, int way, int to)
{
	double differences[BENCH_MAX_ROUNDS];

	for (unsigned int round = 0; round < settings.nr_rounds; round++)
		differences[round] = row[way].ns[round] - row[to].ns[round];
	return bench_spread_of(differences, settings.nr_rounds).median;
}

static void print_pattern(enum pattern pattern)
{
	printf("\n%s\n     N", pattern_names[pattern]);
	for (int way = 0; way < NR_WAYS; way++)
		if (applies(way, pattern, 1))
			printf("  %14s", ways[way].name);
	printf("\n");
	for (size_t count = 0; count < LENGTH(counts); count++) {
		const struct cell *row = cells[pattern][count];

		if (!row[DIRECT].measured)
			continue;
		printf(" %c%4u", is_disturbed[pattern][count] ? '!' : ' ', counts[count]);
		for (int way = 0; way < NR_WAYS; way++) {
			char text[32] = "-";

			if (!applies(way, pattern, 1))
				continue;
			if (row[way].measured)
				snprintf(text, sizeof(text), "%5.2f %5.2f~%.2f", ratio(row, way, DIRECT), row[way].spread.median,
					 (row[way].spread.high - row[way].spread.low) / 2);
			printf("  %14s", text);
		}
		printf("\n");
	}
}

static double median(enum pattern pattern, size_t count, int way)
{
	return cells[pattern][count][way].spread.median;
}

/* The worst cell of a ratio. */
static void judge_worst(const char *what, enum pattern first, enum pattern last, uint32_t max_count, int ours, int theirs, double limit)
{
	double worst = 0;
	char text[160], where[64] = "";

	for (int pattern = (int)first; pattern <= (int)last; pattern++) {
		for (size_t count = 0; count < LENGTH(counts) && counts[count] <= max_count; count++) {
			const struct cell *row = cells[pattern][count];
			double here;

			if (!row[ours].measured || !row[theirs].measured || is_disturbed[pattern][count])
				continue;
			here = ratio(row, ours, theirs);
			if (here > worst) {
				worst = here;
				snprintf(where, sizeof(where), "%.24s, N = %u", pattern_names[pattern], counts[count]);
			}
		}
	}
	if (!worst)
		return;
	snprintf(text, sizeof(text), "%s (worst: %s)", what, where);
	bench_verdict(text, worst, "x", limit);
}

static void list_losses(void)
{
	printf("\nlosses: cells where the default plan takes longer than another way\n");
	for (int pattern = 0; pattern < NR_PATTERNS; pattern++) {
		for (size_t count = 0; count < LENGTH(counts); count++) {
			const struct cell *row = cells[pattern][count];

			for (int way = POINTER; way <= KERNEL; way++)
				if (row[way].measured && !is_disturbed[pattern][count] && ratio(row, DEFAULT, way) > 1.03)
					printf("  %-58s N = %4u  %-9s %6.2f ns, default %6.2f ns (%.2f x)\n", pattern_names[pattern], counts[count],
					       ways[way].name, row[way].spread.median, row[DEFAULT].spread.median,
					       ratio(row, DEFAULT, way));
		}
	}
}

/* What counting hits adds to a call, over all N. */
static void print_cost_of_counting(void)
{
	double least = 1e9, most = 0;

	for (int pattern = ONE; pattern <= TURNS; pattern++) {
		for (size_t count = 0; count < LENGTH(counts); count++) {
			const struct cell *row = cells[pattern][count];
			double cost;

			if (!row[COUNTED].measured)
				continue;
			cost = difference(row, COUNTED, DEFAULT);
			least = cost < least ? cost : least;
			most = cost > most ? cost : most;
		}
	}
	printf("\ncounting hits costs %.2f to %.2f ns a call that hits\n", least, most);
}

static void judge(void)
{
	const struct cell *one = cells[ONE][0];

	print_cost_of_counting();
	printf("\nwanted\n");
	if (one[DIRECT].measured && !is_disturbed[ONE][0]) {
		bench_verdict("static hook above a direct call", difference(one, HOOK, DIRECT), "ns", 0.35);
		bench_verdict("one target of one: default above a direct call", difference(one, DEFAULT, DIRECT), "ns", 0.7);
		if (one[RETPOLINE].measured)
			bench_verdict("one target of one: default / retpoline call", ratio(one, DEFAULT, RETPOLINE), "x", 1 / 3.0);
	}
	for (size_t count = 0; count < LENGTH(counts); count++)
		if (counts[count] == 16 && cells[HOT][count][RETPOLINE].measured && !is_disturbed[HOT][count]) {
			bench_verdict("16 targets, 90 % hot: default / retpoline call",
				      ratio(cells[HOT][count], DEFAULT, RETPOLINE), "x", 1 / 2.5);
			if (one[DIRECT].measured && !is_disturbed[ONE][0])
				printf("    as a call of one program takes %.2f ns, one of another one than the hot takes %.1f\n", median(ONE, 0, DEFAULT),
				       median(ONE, 0, DEFAULT) + (median(HOT, count, DEFAULT) - median(ONE, 0, DEFAULT)) / (0.1 * 15 / 16));
		}
	judge_worst("miss outside: default / empty", MISS_OUTSIDE, MISS_OUTSIDE, 48, DEFAULT, EMPTY, 1.1);
	judge_worst("miss inside: default / empty", MISS_INSIDE, MISS_INSIDE, 48, DEFAULT, EMPTY, 1.25);
	judge_worst("miss outside, retpolines: default / empty", MISS_OUTSIDE, MISS_OUTSIDE, 48, DEFAULT_RETPOLINE, EMPTY_RETPOLINE, 1.1);
	judge_worst("miss inside, retpolines: default / empty", MISS_INSIDE, MISS_INSIDE, 48, DEFAULT_RETPOLINE, EMPTY_RETPOLINE, 1.25);
	judge_worst("default / kernel", ONE, MISS_TURNS, MAX_PROGRAMS, DEFAULT, KERNEL, 1.03);
	judge_worst("default / kernel, retpolines", MISS_OUTSIDE, MISS_TURNS, MAX_PROGRAMS, DEFAULT_RETPOLINE, KERNEL_RETPOLINE, 1.03);
}

static void bench_calls(struct shunt_arena *arena)
{
	struct tried tried[NR_WAYS];

	for (size_t count = 0; count < LENGTH(counts); count++) {
		if (only_count && counts[count] != only_count)
			continue;
		make_ways(arena, counts[count], tried);
		if (fastest_direct == HUGE_VAL)
			find_fastest(tried, counts[count]);
		for (int pattern = 0; pattern < NR_PATTERNS; pattern++)
			measure_row(tried, (enum pattern)pattern, count);
		drop_ways(counts[count], tried);
	}
	find_disturbed();
	for (int pattern = 0; pattern < NR_PATTERNS; pattern++)
		print_pattern((enum pattern)pattern);
	printf("\nrows were measured again %u times, as their direct calls took more than %.2f times the fastest, or were as far apart; %u rows, "
	       "marked !, were disturbed to the last and are not judged\n", nr_again, DISTURBED, nr_disturbed);
	list_losses();
	judge();
}

static int usage(void)
{
	fprintf(stderr, "usage: bench_dispatch [-r ROUNDS] [-n CALLS] [-c COUNT] [-u UPDATES] [-s SECONDS] [calls|attach|disturb]...\n"
			"  -r  rounds, up to %d (15)\n  -n  calls a measurement (262144)\n  -c  only this number of programs\n"
			"  -u  attachments timed (2000)\n  -s  seconds of either half of a disturbance (2)\n", BENCH_MAX_ROUNDS);
	return 2;
}

int main(int argc, char **argv)
{
	struct shunt_arena *arena;
	bool all, calls, attach, disturb;
	int option;

	while ((option = getopt(argc, argv, "r:n:c:u:s:")) != -1) {
		double value = optarg ? atof(optarg) : 0;

		if (option == '?' || value <= 0 || (option == 'r' && value > BENCH_MAX_ROUNDS))
			return usage();
		switch (option) {
		case 'r': settings.nr_rounds = (unsigned int)value; break;
		case 'n': settings.nr_calls = ((size_t)value + NR_SLICES - 1) / NR_SLICES * NR_SLICES; break;
		case 'c': only_count = (uint32_t)value; break;
		case 'u': settings.nr_updates = (unsigned int)value; break;
		case 's': settings.seconds = value; break;
		}
	}
	all = optind == argc;
	calls = attach = disturb = all;
	for (int i = optind; i < argc; i++) {
		calls |= !strcmp(argv[i], "calls");
		attach |= !strcmp(argv[i], "attach");
		disturb |= !strcmp(argv[i], "disturb");
		if (strcmp(argv[i], "calls") && strcmp(argv[i], "attach") && strcmp(argv[i], "disturb"))
			return usage();
	}
	list = malloc(settings.nr_calls * sizeof(*list));
	if (!list || shunt_arena_create(NULL, &arena))
		bench_die("memory");
	bench_print_machine();
	printf("a cell: median of (time / direct call's), median ns ~ half the distance of the quartiles; %zu calls a measurement, %u rounds\n",
	       settings.nr_calls, settings.nr_rounds);
	bench_pin(0);
	if (calls) {
		make_programs(arena);
		bench_calls(arena);
	}
	if (attach)
		bench_attach(&settings);
	if (disturb)
		bench_disturb(&settings);
	printf("\n%d of the wanted figures missed\n", nr_lost);
	free(list);
	return 0;
}
