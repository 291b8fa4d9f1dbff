/* SPDX-License-Identifier: MIT */
/*
 * Compiled BPF programs count per CPU with the policy `exact`, with more threads than CPUs: nothing may be lost. With `plain` and the load
 * far from the store something must be, or this test would see nothing. Code is freed and its place reused while threads that ran it sleep.
 * SHUNT_EXACT_ADDS: increments a case; 10^8 where SHUNT_STRESS_SECONDS asks for a long run. Argument "thread": numbered threads are the
 * index source. Without Criterion, whose runner does not start under ThreadSanitizer.
 */
#include <shunt/bpf.h>
#include <shunt/log.h>
#include <shunt/percpu.h>
#include <shunt/reader.h>

#include <elf.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/slowness.h"

#define NR_ADDS 1000 /* a run of a program */
#define MAX_THREADS 64

#define MUST(condition)                                                                                                                    \
	do {                                                                                                                               \
		if (!(condition)) {                                                                                                        \
			fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #condition, shunt_error());                        \
			exit(1);                                                                                                           \
		}                                                                                                                          \
	} while (0)

typedef uint32_t entry_fn(struct shunt_xdp_ctx *ctx);

static bool numbered;
static uint64_t nr_adds = 20000000;
static uint32_t nr_missed;

struct job {
	entry_fn *entry;
	uint64_t nr_runs;
	uint32_t number;
};

static void note_remark(void *user, const struct shunt_remark *remark)
{
	if (remark->kind == SHUNT_REMARK_MISSED && !strcmp(remark->name, "InexactUpdate")) {
		fprintf(stderr, "%s: %s\n", remark->function, remark->message);
		nr_missed++;
	}
}

static struct shunt_bpf_object *open_object(enum shunt_pass_rmw rmw, const char *pipeline)
{
	struct shunt_bpf_options options = { .rmw = rmw, .remark = note_remark, .pipeline = pipeline };
	struct shunt_bpf_object *object = NULL;
	const char *path = getenv("SHUNT_EXACT_OBJECT"); /* on another machine than the one that built it */

	MUST(shunt_bpf_open_file(path ? path : EXACT_OBJECT, &options, &object) == 0);
	MUST(shunt_bpf_compile(object) == 0);
	return object;
}

static entry_fn *entry_of(struct shunt_bpf_object *object, const char *program)
{
	entry_fn *entry = (entry_fn *)(uintptr_t)shunt_bpf_program_entry(shunt_bpf_find_program(object, program));

	MUST(entry);
	return entry;
}

static void run(entry_fn *entry, uint64_t nr_runs)
{
	static unsigned char frame[SHUNT_XDP_HEADROOM + 64];
	struct shunt_xdp_ctx ctx = { .data = frame + SHUNT_XDP_HEADROOM,
				     .data_end = frame + sizeof(frame),
				     .data_meta = frame + SHUNT_XDP_HEADROOM,
				     .data_hard_start = frame,
				     .data_hard_end = frame + sizeof(frame) };

	for (uint64_t i = 0; i < nr_runs; i++) {
		if (i % 64 == 0)
			shunt_read_begin();
		MUST(entry(&ctx) == SHUNT_XDP_PASS);
		if (i % 64 == 63 || i + 1 == nr_runs)
			shunt_read_end();
	}
}

static void *run_job(void *arg)
{
	struct job *job = arg;

	if (numbered)
		MUST(shunt_percpu_set_thread(job->number) == 0);
	run(job->entry, job->nr_runs);
	return NULL;
}

/* Returns the number of increments asked for. */
static uint64_t run_threads(entry_fn *entry, unsigned int nr_threads, uint64_t adds)
{
	pthread_t threads[MAX_THREADS];
	struct job jobs[MAX_THREADS];

	for (unsigned int i = 0; i < nr_threads; i++) {
		jobs[i] = (struct job){ entry, adds / NR_ADDS / nr_threads + 1, i % shunt_nr_cpus() };
		MUST(pthread_create(&threads[i], NULL, run_job, &jobs[i]) == 0);
	}
	for (unsigned int i = 0; i < nr_threads; i++)
		pthread_join(threads[i], NULL);
	return (adds / NR_ADDS / nr_threads + 1) * nr_threads * NR_ADDS;
}

/* Sum over keys of the number of `size` bytes at `at` of each value: all CPUs', and what went to no CPU's. */
static uint64_t sum_of(struct shunt_bpf_object *object, const char *name, size_t at, size_t size, uint64_t *elsewhere)
{
	struct shunt_map *map = shunt_bpf_find_map(object, name);
	bool percpu = shunt_map_is_percpu(map);
	size_t len = shunt_map_host_value_size(map), stride = percpu ? shunt_map_abi(map)->stride : len;
	unsigned char key[8], *values = malloc(len + stride);
	uint64_t total = 0, word = 0;

	MUST(values);
	*elsewhere = 0;
	for (int err = shunt_map_next_key(map, NULL, key); !err; err = shunt_map_next_key(map, key, key)) {
		MUST(shunt_map_host_lookup(map, key, values) == 0);
		for (size_t i = 0; i < len; i += stride) {
			memcpy(&word, values + i + at, size);
			total += word;
		}
		if (percpu) {
			MUST(shunt_map_host_lookup_unregistered(map, key, values) == 0);
			memcpy(&word, values + at, size);
			*elsewhere += word;
		}
	}
	free(values);
	return total + *elsewhere;
}

static uint64_t sum(struct shunt_bpf_object *object, const char *name, size_t at)
{
	uint64_t elsewhere;

	return sum_of(object, name, at, 8, &elsewhere);
}

/* What the programs that count in all fields of `array` leave there after nr_adds. */
static void check_array(struct shunt_bpf_object *object, uint64_t nr)
{
	uint64_t elsewhere;

	MUST(sum_of(object, "array", 0, 8, &elsewhere) == nr);
	MUST(sum_of(object, "array", 8, 8, &elsewhere) == nr * 2);
	MUST((uint32_t)sum_of(object, "array", 16, 4, &elsewhere) == (uint32_t)(nr * 3));
	MUST((uint16_t)sum_of(object, "array", 20, 2, &elsewhere) == (uint16_t)(nr * 5));
	MUST((uint8_t)sum_of(object, "array", 22, 1, &elsewhere) == (uint8_t)(nr * 7));
}

/* The updates are one after the other: what the first sees of the second is not fixed, so each is checked as a sum. */
static void count_in_arrays(unsigned int nr_threads)
{
	struct shunt_bpf_object *object = open_object(SHUNT_PASS_RMW_DEFAULT, NULL);
	uint64_t expected = run_threads(entry_of(object, "count_array"), nr_threads, nr_adds);

	check_array(object, expected);
	shunt_bpf_close(object);
}

static void count_in_a_hash_or_an_array(unsigned int nr_threads)
{
	struct shunt_bpf_object *object = open_object(SHUNT_PASS_RMW_DEFAULT, NULL);
	uint64_t *marks = calloc(shunt_nr_cpus(), 8), expected, nr_marks = 0;

	for (uint64_t key = 0; key < 32; key++) {
		for (uint32_t cpu = 0; cpu < shunt_nr_cpus(); cpu++)
			marks[cpu] = 1;
		MUST(shunt_map_host_update(shunt_bpf_find_map(object, "hash"), &key, marks, SHUNT_ANY) == 0);
		nr_marks += shunt_nr_cpus();
	}
	expected = run_threads(entry_of(object, "count_marked"), nr_threads, nr_adds / 4);
	MUST((sum(object, "hash", 0) - nr_marks + sum(object, "array", 0)) / 2 == expected);
	free(marks);
	shunt_bpf_close(object);
}

static uint64_t lost_by(enum shunt_pass_rmw rmw)
{
	struct shunt_bpf_object *object = open_object(rmw, NULL);
	uint64_t expected = run_threads(entry_of(object, "count_slowly"), 8, 4000000), got = sum(object, "array", 0);

	shunt_bpf_close(object);
	return expected - got;
}

static void count_in_shared_values(void)
{
	struct shunt_bpf_object *object = open_object(SHUNT_PASS_RMW_EXACT_SHARED, NULL);
	uint64_t expected = run_threads(entry_of(object, "count_shared"), 8, nr_adds / 4);

	MUST(sum(object, "shared", 0) == expected);
	shunt_bpf_close(object);
}

/* ---- code that goes while threads that ran it sleep ---- */

static struct sleeper {
	pthread_t thread;
	sem_t go, done;
	entry_fn *entry; /* NULL: end */
} sleepers[8];

static void *sleep_and_run(void *arg)
{
	struct sleeper *sleeper = arg;

	if (numbered)
		MUST(shunt_percpu_set_thread((uint32_t)(sleeper - sleepers) % shunt_nr_cpus()) == 0);
	for (;;) {
		while (sem_wait(&sleeper->go))
			continue;
		if (!sleeper->entry)
			return NULL;
		run(sleeper->entry, 20);
		sem_post(&sleeper->done);
	}
}

static void reuse_code_under_sleepers(void)
{
	for (int i = 0; i < 8; i++) {
		sem_init(&sleepers[i].go, 0, 0);
		sem_init(&sleepers[i].done, 0, 0);
		MUST(pthread_create(&sleepers[i].thread, NULL, sleep_and_run, &sleepers[i]) == 0);
	}
	for (int round = 0; round < 12; round++) {
		struct shunt_bpf_object *object = open_object(SHUNT_PASS_RMW_EXACT, NULL);

		for (int i = 0; i < 8; i++) {
			sleepers[i].entry = entry_of(object, round % 2 ? "count_array" : "count_slowly");
			sem_post(&sleepers[i].go);
		}
		for (int i = 0; i < 8; i++)
			sem_wait(&sleepers[i].done);
		MUST(sum(object, "array", 0) == 8 * 20 * NR_ADDS);
		shunt_bpf_close(object);
		MUST(shunt_quiesce() == 0);
	}
	for (int i = 0; i < 8; i++) {
		sleepers[i].entry = NULL;
		sem_post(&sleepers[i].go);
		pthread_join(sleepers[i].thread, NULL);
	}
}

/* ---- a debugger that steps through ---- */

enum { NR_BESIDE_RUNS = 20000, NR_FEW = 4, STEPS_MAX = 2000000 };
static unsigned nr_stepped_runs = 20; /* fewer where a step takes long */

/* The stepped thread and whoever steps it take turns: on one CPU neither waits for another to wake up, which an emulator makes long. */
static void stay_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	MUST(sched_setaffinity(0, sizeof(set), &set) == 0);
}

static void *run_beside(void *entry)
{
	run((entry_fn *)(uintptr_t)entry, NR_BESIDE_RUNS);
	return NULL;
}

/* One thread is stepped through the program while others run it. 0: nothing was lost, and the stepped one's updates went elsewhere, as
 * those of every sequence do that is aborted again and again. */
static int be_stepped(struct shunt_bpf_object *object, int cpu)
{
	entry_fn *entry = entry_of(object, "count_few");
	pthread_t threads[2];
	uint64_t elsewhere;

	for (int i = 0; i < 2; i++)
		MUST(pthread_create(&threads[i], NULL, run_beside, (void *)(uintptr_t)entry) == 0);
	stay_on(cpu);
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	raise(SIGSTOP);
	run(entry, nr_stepped_runs);
	raise(SIGSTOP);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	check_array(object, (nr_stepped_runs + 2 * NR_BESIDE_RUNS) * NR_FEW);
	sum_of(object, "array", 0, 8, &elsewhere);
#ifdef __aarch64__
	MUST(elsewhere); /* one is enough to leave the debugger behind, see there */
#else
	MUST(elsewhere == nr_stepped_runs * NR_FEW);
#endif
	return 0;
}

/*
 * arm64: the exception of a step takes an exclusive load's hold on the address away, so a pair of ldxr and stxr never comes to its end under
 * single steps. Debuggers go over such pairs at once. True where the child is at one: it has given up its sequence and adds elsewhere.
 */
static bool is_at_exclusive_load(pid_t child)
{
#ifdef __aarch64__
	struct user_regs_struct regs;
	struct iovec to = { &regs, sizeof(regs) };

	MUST(ptrace(PTRACE_GETREGSET, child, (void *)NT_PRSTATUS, &to) == 0);
	return (ptrace(PTRACE_PEEKTEXT, child, (void *)regs.pc, NULL) & 0x3fe00000) == 0x08400000;
#else
	(void)child;
	return false;
#endif
}

/*
 * A step inside a sequence sends the thread back to its beginning, so the kernel knows the sequences of generated code. (Counting alone shows
 * little: without a descriptor an update of one instruction is hardly ever lost. A wrong signature kills.) The thread comes through all the
 * same.
 */
static void step_through(void)
{
	struct shunt_bpf_object *object;
	int status, nr_steps = 0, cpu = sched_getcpu();
	bool was_at_pair = false;
	cpu_set_t may;
	pid_t child;

#ifdef __SANITIZE_THREAD__
	printf("skipped: stepping through a program: the thread sanitizer lets a forked child start no threads\n");
	return;
#endif
	object = open_object(SHUNT_PASS_RMW_EXACT, NULL);
	MUST(sched_getaffinity(0, sizeof(may), &may) == 0);
	child = fork();
	MUST(child >= 0);
	if (!child)
		_exit(be_stepped(object, cpu));
	stay_on(cpu);
	MUST(waitpid(child, &status, 0) == child);
	while (WIFSTOPPED(status) && nr_steps < STEPS_MAX && !(nr_steps && WSTOPSIG(status) == SIGSTOP)) {
		was_at_pair = nr_steps && is_at_exclusive_load(child);
		if (ptrace(was_at_pair ? PTRACE_CONT : PTRACE_SINGLESTEP, child, NULL, NULL))
			break;
		MUST(waitpid(child, &status, 0) == child);
		nr_steps++;
	}
	if (!nr_steps && WIFSTOPPED(status)) {
		printf("skipped: this process may not step through its child\n");
		kill(child, SIGKILL);
		waitpid(child, &status, 0);
	} else {
		if (nr_steps == STEPS_MAX)
			kill(child, SIGKILL);
		MUST(nr_steps < STEPS_MAX);
		MUST(WIFSTOPPED(status));
		MUST(ptrace(PTRACE_CONT, child, NULL, NULL) == 0);
		MUST(waitpid(child, &status, 0) == child);
		MUST(WIFEXITED(status) && WEXITSTATUS(status) == 0);
		printf("ok: a program ends and counts exactly while a debugger takes it through %s: %d steps\n",
		       was_at_pair ? "to where single steps cannot lead, and lets it go there" : "every instruction", nr_steps);
	}
	MUST(sched_setaffinity(0, sizeof(may), &may) == 0);
	shunt_bpf_close(object);
}

int main(int argc, char **argv)
{
	static const unsigned int nr_threads[] = { 2, 8, 64 };
	const char *text = getenv("SHUNT_EXACT_ADDS"), *wanted = getenv("SHUNT_TEST_CPU_SOURCE");
	struct shunt_cpu_index index;
	uint64_t lost;

	if (text && strtoull(text, NULL, 10))
		nr_adds = strtoull(text, NULL, 10);
	if (getenv("SHUNT_STRESS_SECONDS"))
		nr_adds = 100000000;
	if (test_slowness() > 1)
		nr_stepped_runs = 2;
	numbered = argc > 1 && !strcmp(argv[1], "thread");
	if (numbered)
		MUST(shunt_percpu_use_threads() == 0);
	shunt_cpu_index(&index);
	printf("index source: %s, %llu increments a case\n", shunt_cpu_source_name(index.source), (unsigned long long)nr_adds);
	if (wanted)
		MUST(!strcmp(wanted, shunt_cpu_source_name(index.source)));
	for (size_t i = 0; i < sizeof(nr_threads) / sizeof(nr_threads[0]); i++) {
		count_in_arrays(nr_threads[i]);
		printf("ok: %u threads lose no update of an array\n", nr_threads[i]);
		count_in_a_hash_or_an_array(nr_threads[i]);
		printf("ok: %u threads lose no update across blocks\n", nr_threads[i]);
	}
	count_in_shared_values();
	printf("ok: shared values are exact when asked for\n");
	MUST(lost_by(SHUNT_PASS_RMW_EXACT) == 0);
	printf("ok: nothing is lost between a load and a store that lie apart\n");
	MUST(nr_missed == 0);
	lost = lost_by(SHUNT_PASS_RMW_PLAIN);
	printf("ok: of 4000000 plain updates %llu are lost\n", (unsigned long long)lost);
	MUST(lost > 0);
	if (index.source == SHUNT_CPU_RSEQ)
		step_through();
	reuse_code_under_sleepers();
	printf("ok: code is reused while threads that ran it sleep\n");
	return 0;
}
