/* SPDX-License-Identifier: MIT */
/* What the files of bench_dispatch share: settings, clocks, medians, and the verdicts on what was wanted. */
#ifndef BENCH_DISPATCH_H
#define BENCH_DISPATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_MAX_ROUNDS 101

struct bench_settings {
	unsigned int nr_rounds;
	size_t nr_calls;    /* a measurement */
	unsigned int nr_updates; /* latencies measured */
	double seconds;     /* of each half of a disturbance */
};

struct bench_spread {
	double low, median, high; /* quartiles around the median */
};

double bench_now_ns(void);
struct bench_spread bench_spread_of(const double *values, size_t nr); /* copies, then sorts */
/* The value below which `part` of the values lie; values are sorted. */
double bench_quantile(const double *sorted, size_t nr, double part);
void bench_sort(double *values, size_t nr);
void bench_pin(unsigned int cpu);
unsigned int bench_nr_cpus(void);
/* Prints what was wanted and whether it holds; counts the losses. */
void bench_verdict(const char *what, double value, const char *unit, double limit);
/* Prints shunt_error() and exits. */
void bench_die(const char *what) __attribute__((noreturn));
uint64_t bench_random(uint64_t *state);

/* bench_dispatch_change.c: what attaching costs, alone and to others. */
void bench_attach(const struct bench_settings *settings);
void bench_disturb(const struct bench_settings *settings);

#endif
