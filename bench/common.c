/* SPDX-License-Identifier: MIT */
#include "bench/common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

static int compare_doubles(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

void bench_sort(double *values, size_t nr)
{
	qsort(values, nr, sizeof(*values), compare_doubles);
}

double bench_quantile(const double *sorted, size_t nr, double part)
{
	size_t at = (size_t)(part * (double)nr);

	return sorted[at < nr ? at : nr - 1];
}

struct bench_spread bench_spread_of(const double *from, size_t nr)
{
	double values[BENCH_MAX_ROUNDS];

	memcpy(values, from, nr * sizeof(values[0]));
	bench_sort(values, nr);
	return (struct bench_spread){ values[nr / 4], values[nr / 2], values[nr * 3 / 4] };
}

struct bench_spread bench_ratio_of(const double *one, const double *other, size_t nr)
{
	double ratios[BENCH_MAX_ROUNDS];

	for (size_t i = 0; i < nr; i++)
		ratios[i] = one[i] / other[i];
	return bench_spread_of(ratios, nr);
}

uint64_t bench_random(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

void bench_print_file(const char *what, const char *path)
{
	FILE *file = fopen(path, "re");
	char line[256];

	if (file && fgets(line, sizeof(line), file))
		printf("%s: %s", what, line);
	if (file)
		fclose(file);
}

void bench_print_machine(void)
{
	FILE *file = fopen("/proc/cpuinfo", "re");
	char line[256], model[200] = "unknown CPU";
	struct utsname name;

	while (file && fgets(line, sizeof(line), file) && sscanf(line, "model name : %199[^\n]", model) != 1)
		;
	if (file)
		fclose(file);
	uname(&name);
	printf("%s, %ld CPUs, %s %s %s\n", model, sysconf(_SC_NPROCESSORS_ONLN), name.sysname, name.release, name.machine);
	bench_print_file("spectre_v2", "/sys/devices/system/cpu/vulnerabilities/spectre_v2");
	bench_print_file("load when started", "/proc/loadavg");
}
