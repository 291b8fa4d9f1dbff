/* SPDX-License-Identifier: MIT */
/* The pack benchmark's tables about running programs, and what they share with the first one. */
#ifndef BENCH_PACK_CALLS_H
#define BENCH_PACK_CALLS_H

#include <stdbool.h>
#include <stdint.h>

double pack_now_ns(void);
double pack_cpu_ns(void); /* of this process */
double pack_median(double *values, int nr);
void pack_shuffle(uint32_t *order, uint32_t nr);
void pack_pin(int cpu);

/* Each false when a program returned something wrong or could not be made. */
bool pack_table_calls(void);
bool pack_table_stress(void);

#endif
