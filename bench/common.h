/* SPDX-License-Identifier: MIT */
/* What the benchmarks share: medians with their spread, random numbers, and what the machine is. */
#ifndef BENCH_COMMON_H
#define BENCH_COMMON_H

#include <stddef.h>
#include <stdint.h>

#define BENCH_MAX_ROUNDS 101

struct bench_spread {
	double low, median, high; /* quartiles around the median */
};

void bench_sort(double *values, size_t nr);
/* The value below which `part` of the values lie; values are sorted. */
double bench_quantile(const double *sorted, size_t nr, double part);
struct bench_spread bench_spread_of(const double *values, size_t nr); /* copies, then sorts; at most BENCH_MAX_ROUNDS */
/* Of two measurements of the same rounds: one / other, round by round. What slows the machine for a round slows both. */
struct bench_spread bench_ratio_of(const double *one, const double *other, size_t nr);

uint64_t bench_random(uint64_t *state);

/* CPU, kernel, mitigation of indirect branches, load: a line each on stdout. */
void bench_print_machine(void);
/* "what: " and the first line of a file, where there is one. */
void bench_print_file(const char *what, const char *path);

#endif
