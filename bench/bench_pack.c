/* SPDX-License-Identifier: MIT */
/*
 * Packs against the ways that other engines home their code. First table: what a program costs to install, to release and to keep. The
 * peers take turns, each repetition in a process of its own on one CPU, every program is called and its result checked, and releases go in
 * shuffled order. Times are processor time of the process, all threads and the kernel's part included. Further tables: pack_calls.c.
 */
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/common.h"
#include "bench/pack_calls.h"
#include "bench/pack_program.h"
#include "bench/peer.h"

#define MAX_REPEATS 31
#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

#define UNKNOWN (-1e300) /* of a time or a size: the peer did not get that far */

struct result {
	uint32_t nr;          /* programs alive when it stopped */
	double install_ns, release_ns;
	double code_bytes;    /* a program, metadata left out where it is known */
	double metadata_bytes;
	long nr_maps;         /* added */
	bool wrong;           /* a program did not return its number, or a release was refused */
	bool died;            /* its process ended before it was done */
	char note[128];
	char words[160];      /* the first that it wrote to standard error */
};

/* Of the process that measures: where its results go, and when it began to install. */
static struct result *current;
static double install_start;

static const char *only; /* NULL: all peers */
static const struct peer *const peers[] = {
	&peer_shunt,
	&peer_shunt_base,
#ifdef BENCH_ASMJIT
	&peer_asmjit_rwx,
	&peer_asmjit_dual,
#endif
	&peer_page,
#ifdef BENCH_LLVM
	&peer_llvm,
	&peer_llvm_orc,
#endif
};

double pack_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

void pack_shuffle(uint32_t *order, uint32_t nr)
{
	uint64_t state = 88172645463325252u;

	for (uint32_t i = 0; i < nr; i++)
		order[i] = i;
	for (uint32_t i = nr; i > 1; i--) {
		uint32_t other, kept = order[i - 1];

		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		other = (uint32_t)(state % i);
		order[i - 1] = order[other];
		order[other] = kept;
	}
}

/* Of all threads, so that a reclaimer's work counts wherever it is done; and others' work on the machine does not. */
double pack_cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

double pack_median(double *values, int nr)
{
	bench_sort(values, (size_t)nr);
	return nr % 2 ? values[nr / 2] : (values[nr / 2 - 1] + values[nr / 2]) / 2;
}

/* Proportional: a page mapped twice counts once. */
static double memory_in_use(void)
{
	FILE *file = fopen("/proc/self/smaps_rollup", "re");
	char line[256];
	double kib = 0;

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "Pss: %lf", &kib) == 1)
			break;
	if (file)
		fclose(file);
	return kib * 1024;
}

static long count_mappings(void)
{
	FILE *file = fopen("/proc/self/maps", "re");
	long nr = 0;
	int c;

	while (file && (c = fgetc(file)) != EOF)
		nr += c == '\n';
	if (file)
		fclose(file);
	return nr;
}

void pack_pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

static void measure(const struct peer *peer, uint32_t nr, struct result *out)
{
	struct peer_program *programs = aligned_alloc(64, nr * sizeof(*programs));
	uint32_t *order = malloc(nr * sizeof(*order));
	uint8_t code[PROGRAM_LEN];
	double memory, start;
	long nr_maps;
	uint32_t done, nr_released;

	if (!programs || !order || peer->open() != 0) {
		out->wrong = true;
		return;
	}
	memset(programs, 1, nr * sizeof(*programs));
	program_write(code, 0);
	nr_maps = count_mappings();
	memory = memory_in_use();

	install_start = pack_cpu_ns();
	for (done = 0; done < nr; done++) {
		program_number(code, done);
		if (peer->install(code, PROGRAM_LEN, &programs[done]) != 0)
			break;
		out->nr = done + 1; /* should the next one be its end */
	}
	out->install_ns = (pack_cpu_ns() - install_start) / done;
	install_start = 0;
	for (uint32_t i = 0; i < done; i++)
		out->wrong |= program_call(programs[i].rx) != i;
	memory = memory_in_use() - memory;
	out->nr_maps = count_mappings() - nr_maps;
	if (peer->metadata) {
		out->metadata_bytes = (double)peer->metadata() / done;
		memory -= (double)peer->metadata();
	}
	out->code_bytes = memory / done;
	if (peer->note)
		snprintf(out->note, sizeof(out->note), "%s", peer->note());

	pack_shuffle(order, done);
	nr_released = peer->nr_released && peer->nr_released < done ? peer->nr_released : done;
	start = pack_cpu_ns();
	for (uint32_t i = 0; i < nr_released; i++)
		out->wrong |= peer->release(&programs[order[i]]) != 0;
	if (peer->settle)
		out->wrong |= peer->settle() != 0;
	out->release_ns = (pack_cpu_ns() - start) / nr_released;
	free(programs);
	free(order);
}

/* A peer gives up: what installing cost until then is known. */
static void note_end(int signal)
{
	if (install_start > 0 && current->nr)
		current->install_ns = (pack_cpu_ns() - install_start) / current->nr;
	_exit(128 + signal);
}

/* What the file begins with, as one line. */
static void read_words(int fd, char *out, size_t len)
{
	ssize_t got = fd >= 0 ? pread(fd, out, len - 1, 0) : 0;

	out[got > 0 ? got : 0] = '\0';
	out[strcspn(out, "\n")] = '\0';
}

/* In a process of its own, so that no peer finds memory that another one left, and so that one may die. */
static bool measure_alone(const struct peer *peer, uint32_t nr, struct result *out)
{
	struct result *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status = -1;
	int words = memfd_create("words", MFD_CLOEXEC);
	pid_t pid;

	*out = (struct result){ .install_ns = UNKNOWN, .release_ns = UNKNOWN, .code_bytes = UNKNOWN, .metadata_bytes = UNKNOWN, .died = true };
	if (shared == MAP_FAILED) {
		close(words);
		return false;
	}
	*shared = *out;
	fflush(NULL);
	pid = fork();
	if (!pid) {
		if (words >= 0)
			dup2(words, STDERR_FILENO);
		current = shared;
		signal(SIGABRT, note_end);
		signal(SIGSEGV, note_end);
		pack_pin((int)sysconf(_SC_NPROCESSORS_ONLN) - 1);
		measure(peer, nr, shared);
		fflush(stderr);
		_exit(0);
	}
	if (pid > 0)
		waitpid(pid, &status, 0);
	*out = *shared;
	munmap(shared, sizeof(*shared));
	read_words(words, out->words, sizeof(out->words));
	close(words);
	out->died = !(pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return !out->died && !out->wrong && out->nr;
}

/* The median of the repeats that know it. */
static double field(const struct result *results, int nr, size_t offset)
{
	double values[MAX_REPEATS];
	int known = 0;

	for (int i = 0; i < nr; i++) {
		double value = *(const double *)((const char *)&results[i] + offset);

		if (value != UNKNOWN)
			values[known++] = value;
	}
	return known ? pack_median(values, known) : UNKNOWN;
}

static void print_number(const char *before, int width, int digits, double value)
{
	if (value == UNKNOWN)
		printf("%s%*s", before, width, "-");
	else
		printf("%s%*.*f", before, width, digits, value);
}

static double ratio(double own, double other)
{
	return own == UNKNOWN || other == UNKNOWN ? UNKNOWN : own / other;
}

/* How many of the repeats went wrong, and how: a row's last words. */
static void print_end(const struct result *results, int nr)
{
	int nr_died = 0, nr_wrong = 0, last = -1;

	for (int i = 0; i < nr; i++) {
		nr_died += results[i].died;
		nr_wrong += results[i].wrong;
		if (results[i].died || results[i].wrong)
			last = i;
	}
	if (last < 0)
		return;
	if (nr_died)
		printf("   died %d times of %d, at %" PRIu32 " programs", nr_died, nr, results[last].nr);
	if (nr_wrong)
		printf("   WRONG %d times of %d: a program, or a release", nr_wrong, nr);
	if (results[last].words[0])
		printf(": %s", results[last].words);
}

static const struct result *print_row(const struct peer *peer, struct result *results, int nr, const struct result *own, uint32_t wanted)
{
	static struct result median[LENGTH(peers)];
	static size_t next;
	struct result *row = &median[next++ % LENGTH(median)];

	*row = results[0];
	row->install_ns = field(results, nr, offsetof(struct result, install_ns));
	row->release_ns = field(results, nr, offsetof(struct result, release_ns));
	row->code_bytes = field(results, nr, offsetof(struct result, code_bytes));
	row->metadata_bytes = field(results, nr, offsetof(struct result, metadata_bytes));
	printf("%-18s", peer->name);
	print_number(" ", 10, 1, row->install_ns);
	print_number(" ", 10, 1, row->release_ns);
	print_number(" ", 10, 1, row->code_bytes);
	if (peer->metadata)
		print_number(" ", 9, 1, row->metadata_bytes);
	else
		printf(" %9s", "inside");
	if (row->died)
		printf(" %9s", "-");
	else
		printf(" %9ld", row->nr_maps);
	print_number("   ", 7, 2, own ? ratio(own->install_ns, row->install_ns) : 1);
	print_number(" ", 7, 2, own ? ratio(own->release_ns, row->release_ns) : 1);
	if (row->nr < wanted && !row->died)
		printf("   stopped at %" PRIu32 " programs", row->nr);
	if (peer->nr_released && peer->nr_released < row->nr && row->release_ns != UNKNOWN)
		printf("   %" PRIu32 " of them released", peer->nr_released);
	if (row->note[0])
		printf("   %s", row->note);
	print_end(results, nr);
	printf("\n");
	fflush(stdout);
	return row;
}

static bool is_wanted(size_t i, bool all)
{
	return (all || !i) && (!only || strstr(peers[i]->name, only));
}

static bool is_own(const struct peer *peer)
{
	return peer == &peer_shunt || peer == &peer_shunt_base;
}

static bool table_install(uint32_t nr, int nr_repeats, bool all)
{
	static struct result results[LENGTH(peers)][MAX_REPEATS];
	const struct result *own = NULL;
	bool good = true;

	printf("\n%" PRIu32 " programs of %d bytes, median of %d; ratios are ours over theirs: below 1 we are better\n", nr, PROGRAM_LEN, nr_repeats);
	printf("%-18s %10s %10s %10s %9s %9s   %7s %7s\n", "", "install ns", "release ns", "code B", "meta B", "mappings", "install", "release");
	for (int repeat = 0; repeat < nr_repeats; repeat++)
		for (size_t i = 0; i < LENGTH(peers); i++)
			if (is_wanted(i, all)) {
				bool done = measure_alone(peers[i], nr, &results[i][repeat]);

				/* That another peer dies is its own affair, and its row says it; not that it is wrong. */
				good &= done || (!is_own(peers[i]) && results[i][repeat].died && !results[i][repeat].wrong);
			}
	for (size_t i = 0; i < LENGTH(peers); i++) {
		const struct result *row;

		if (!is_wanted(i, all))
			continue;
		row = print_row(peers[i], results[i], nr_repeats, own, nr);

		if (!i)
			own = row;
	}
	printf("code B, meta B: memory of a program, and bookkeeping beside it where the peer tells; mappings: added, of vm.max_map_count\n");
#ifdef BENCH_LLVM
	if (all)
		printf("LLVM sections: SectionMemoryManager alone, one a program. LLVM, C API: the same as C front ends get it, behind LLJIT; adding, parsing\n"
		       "and linking an object and the lookup of its symbol are in it, compilation is not\n");
#endif
	return good;
}

static void describe_machine(void)
{
	bench_print_machine();
	bench_print_file("vm.max_map_count", "/proc/sys/vm/max_map_count");
	bench_print_file("transparent huge pages", "/sys/kernel/mm/transparent_hugepage/enabled");
#ifndef BENCH_ASMJIT
	printf("asmjit is not compared: libasmjit-dev was not there when this was built\n");
#endif
#ifndef BENCH_LLVM
	printf("LLVM is not compared: built without it\n");
#endif
}

int main(int argc, char **argv)
{
	long nr = 100000, nr_repeats = 5, million = 1000000;
	bool good = true, install = true, calls = true, compile = true;
	int option;

	while ((option = getopt(argc, argv, "n:r:m:t:p:h")) != -1) {
		if (option == 'n')
			nr = atol(optarg);
		else if (option == 'r')
			nr_repeats = atol(optarg);
		else if (option == 'm')
			million = atol(optarg);
		else if (option == 'p')
			only = optarg;
		else if (option == 't') {
			install = strchr(optarg, 'i');
			calls = strchr(optarg, 'c');
			compile = strchr(optarg, 's');
		} else {
			printf("usage: bench_pack [-n PROGRAMS] [-r REPEATS] [-m LIVE PROGRAMS, 0: skip] [-p PEERS NAMED SO] "
			       "[-t TABLES: i install, c calls, s stress]\n");
			return option == 'h' ? 0 : 2;
		}
	}
	if (nr < 1 || nr > 4000000 || nr_repeats < 1 || nr_repeats > MAX_REPEATS || million < 0 || million > 4000000)
		return 2;
	describe_machine();
	if (install)
		good = table_install((uint32_t)nr, (int)nr_repeats, true);
	if (good && install && million)
		good = table_install((uint32_t)million, 1, false);
	if (good && calls)
		good = pack_table_calls();
	if (good && compile)
		good = pack_table_stress();
	return good ? 0 : 1;
}
