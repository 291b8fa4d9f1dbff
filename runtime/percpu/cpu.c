/* SPDX-License-Identifier: MIT */
/*
 * The CPU number and its source. Expected load: shunt_cpu_id() from every program that no pass rewrote; the rest once.
 */
#include "runtime/percpu/cpu.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "runtime/log.h"

#define UNDECIDED (-1)
#define MAX_CPUS 65536u

/* Both are written once, by compare-and-swap. */
int shunt_cpu_chosen = UNDECIDED;
static uint32_t nr_cpus;

/* The thread's own number, for SHUNT_CPU_THREAD; -1 makes an unnumbered thread use the unit of unregistered ones. Initial-exec: its
 * offset from the thread pointer is the same in all threads, and generated code folds it. */
static _Thread_local int32_t thread_number __attribute__((tls_model("initial-exec"))) = -1;

/* SHUNT_CPU_HOST: where the host's variable is, from the thread pointer. Written before the choice is published. */
static int64_t host_offset;

/* Static TLS lies beside the thread pointer; blocks of dynamic TLS come from the heap. */
#define STATIC_TLS_MAX (INT64_C(1) << 20)

bool shunt_cpu_parse_list(const char *text, uint32_t *highest)
{
	uint32_t top = 0;

	for (;;) {
		char *end;
		unsigned long first, last;

		if (*text < '0' || *text > '9')
			return false;
		first = last = strtoul(text, &end, 10);
		if (*end == '-') {
			text = end + 1;
			if (*text < '0' || *text > '9')
				return false;
			last = strtoul(text, &end, 10);
		}
		if (last < first || last >= MAX_CPUS)
			return false;
		if (last > top)
			top = (uint32_t)last;
		if (*end == '\n' || *end == '\0')
			break;
		if (*end != ',')
			return false;
		text = end + 1;
	}
	*highest = top;
	return true;
}

bool shunt_cpu_rseq_is_broken(const char *machine, const char *release)
{
	unsigned int major, minor, patch = 0;

	/* arm64 from 6.19 on loses restarts; mended in 7.0.14 and 7.1. */
	if (strcmp(machine, "aarch64"))
		return false;
	if (sscanf(release, "%u.%u.%u", &major, &minor, &patch) < 2)
		return false;
	if (major == 6)
		return minor >= 19;
	return major == 7 && minor == 0 && patch < 14;
}

static bool rseq_works(void)
{
	struct utsname name;

	/* glibc says 20 or 32 for the same area, newer ones the kernel's feature size; 0 means not registered. cpu_id and rseq_cs, all
	 * that is used here, lie within the first 16 bytes of any of them. */
	if (__rseq_size < CPU_RSEQ_RSEQ_CS + 8)
		return false;
	if (uname(&name))
		return true;
	return !shunt_cpu_rseq_is_broken(name.machine, name.release);
}

static enum shunt_cpu_source decide(enum shunt_cpu_source wanted)
{
	int expected = UNDECIDED;

	if (__atomic_compare_exchange_n(&shunt_cpu_chosen, &expected, (int)wanted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		return wanted;
	return (enum shunt_cpu_source)expected;
}

enum shunt_cpu_source shunt_cpu_choose(void)
{
	return decide(rseq_works() ? SHUNT_CPU_RSEQ : SHUNT_CPU_GETCPU);
}

static uint32_t count_cpus(void)
{
	/* What sysfs says may be absent or masked in a container; where this thread may run is the kernel's own word. */
	unsigned char mask[MAX_CPUS / 8] __attribute__((aligned(8)));
	char text[4096];
	uint32_t highest, count = 0;
	long conf, len;
	int fd = open("/sys/devices/system/cpu/possible", O_RDONLY | O_CLOEXEC);

	if (fd >= 0) {
		ssize_t got = read(fd, text, sizeof(text) - 1);

		close(fd);
		if (got > 0) {
			text[got] = '\0';
			if (shunt_cpu_parse_list(text, &highest))
				count = highest + 1;
		}
	}
	if (!count) {
		conf = sysconf(_SC_NPROCESSORS_CONF);
		count = conf > 0 && conf < (long)MAX_CPUS ? (uint32_t)conf : 1;
	}
	len = syscall(SYS_sched_getaffinity, 0, sizeof(mask), mask);
	for (long bit = len * 8 - 1; len > 0 && bit >= (long)count; bit--) {
		if (mask[bit / 8] & (1u << (bit % 8))) {
			count = (uint32_t)bit + 1;
			break;
		}
	}
	return count;
}

uint32_t shunt_nr_cpus(void)
{
	uint32_t count = __atomic_load_n(&nr_cpus, __ATOMIC_RELAXED);

	if (__builtin_expect(count == 0, 0)) {
		uint32_t expected = 0;

		/* Racing first callers may see different affinity masks: the first answer is everybody's. */
		count = count_cpus();
		if (!__atomic_compare_exchange_n(&nr_cpus, &expected, count, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			count = expected;
	}
	return count;
}

uint32_t shunt_cpu_other_number(enum shunt_cpu_source source)
{
	unsigned int cpu;

	if (source == SHUNT_CPU_THREAD)
		return (uint32_t)thread_number;
	if (source == SHUNT_CPU_HOST)
		return __atomic_load_n((uint32_t *)(shunt_cpu_thread_pointer() + host_offset), __ATOMIC_RELAXED);
	/* Not sched_getcpu, which reads the rseq area that was found missing or broken. */
	if (getcpu(&cpu, NULL))
		return (uint32_t)-1;
	return cpu;
}

uint32_t shunt_cpu_id(void)
{
	return shunt_cpu_number();
}

void shunt_cpu_index(struct shunt_cpu_index *out)
{
	out->source = shunt_cpu_source();
	switch (out->source) {
	case SHUNT_CPU_RSEQ:
		out->tp_offset = __rseq_offset + CPU_RSEQ_CPU_ID;
		break;
	case SHUNT_CPU_THREAD:
		out->tp_offset = (char *)&thread_number - shunt_cpu_thread_pointer();
		break;
	case SHUNT_CPU_GETCPU:
		out->tp_offset = 0;
		break;
	case SHUNT_CPU_HOST:
		out->tp_offset = host_offset;
		break;
	}
}

int shunt_percpu_use_threads(void)
{
	enum shunt_cpu_source source = decide(SHUNT_CPU_THREAD);

	if (source != SHUNT_CPU_THREAD)
		return shunt_fail(EBUSY, "per-CPU source is already %s: choose thread numbers before the first per-CPU call",
				  shunt_cpu_source_name(source));
	return 0;
}

int shunt_percpu_use_variable(const void *number, uint32_t nr)
{
	int64_t offset = (const char *)number - shunt_cpu_thread_pointer();
	int undecided = UNDECIDED;
	uint32_t none = 0;

	if (!nr || nr > MAX_CPUS)
		return shunt_fail(EINVAL, "per-CPU source: %u units; name 1 to %u", nr, MAX_CPUS);
	if ((uintptr_t)number % 4 || offset < -STATIC_TLS_MAX || offset > STATIC_TLS_MAX)
		return shunt_fail(EINVAL, "per-CPU source: %p is not an aligned variable in static thread-local storage", number);
	if (__atomic_load_n(&shunt_cpu_chosen, __ATOMIC_RELAXED) >= 0 ||
	    !__atomic_compare_exchange_n(&nr_cpus, &none, nr, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		goto busy;
	host_offset = offset;
	if (__atomic_compare_exchange_n(&shunt_cpu_chosen, &undecided, SHUNT_CPU_HOST, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		return 0;
busy:
	return shunt_fail(EBUSY, "per-CPU source and number of units are in use already: choose the variable before the first per-CPU call");
}

int shunt_percpu_set_thread(uint32_t number)
{
	if (__atomic_load_n(&shunt_cpu_chosen, __ATOMIC_RELAXED) == SHUNT_CPU_HOST)
		return shunt_fail(EINVAL, "thread numbers are in the host's variable: set that");
	if (number >= shunt_nr_cpus())
		return shunt_fail(EINVAL, "thread number %u is not below the %u per-CPU units", number, shunt_nr_cpus());
	thread_number = (int32_t)number;
	return 0;
}

const char *shunt_cpu_source_name(enum shunt_cpu_source source)
{
	switch (source) {
	case SHUNT_CPU_RSEQ:
		return "rseq";
	case SHUNT_CPU_THREAD:
		return "thread";
	case SHUNT_CPU_GETCPU:
		return "getcpu";
	case SHUNT_CPU_HOST:
		return "host";
	}
	return "unknown";
}
