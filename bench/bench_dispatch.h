/* SPDX-License-Identifier: MIT */
/* What the files of bench_dispatch share: settings, clocks, and the verdicts on what was wanted. */
#ifndef BENCH_DISPATCH_H
#define BENCH_DISPATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench/common.h"

struct bench_settings {
	unsigned int nr_rounds;
	size_t nr_calls;    /* a measurement */
	unsigned int nr_updates; /* latencies measured */
	double seconds;     /* of each half of a disturbance */
};

double bench_now_ns(void);
void bench_pin(unsigned int cpu);
unsigned int bench_nr_cpus(void);
/* Prints what was wanted and whether it holds; counts the losses. */
void bench_verdict(const char *what, double value, const char *unit, double limit);
/* Prints shunt_error() and exits. */
void bench_die(const char *what) __attribute__((noreturn));

/* bench_dispatch_change.c: what attaching costs, alone and to others. */
void bench_attach(const struct bench_settings *settings);
void bench_disturb(const struct bench_settings *settings);

#endif
