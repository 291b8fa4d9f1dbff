/* SPDX-License-Identifier: MIT */
/*
 * Compiled BPF programs count per CPU with the policy `exact`, with more threads than CPUs: nothing may be lost. With `plain` and the load
 * far from the store something must be, or this test would see nothing. Code is freed and its place reused while threads that ran it sleep.
 * SHUNT_EXACT_ADDS: increments a case. Argument "thread": numbered threads are the index source. Without Criterion, whose runner does not
 * start under ThreadSanitizer.
 */
#include <shunt/bpf.h>
#include <shunt/log.h>
#include <shunt/percpu.h>
#include <shunt/reader.h>

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

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

	MUST(shunt_bpf_open_file(EXACT_OBJECT, &options, &object) == 0);
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

/* Sum over keys and CPUs of the 64-bit word at `at` of each value. */
static uint64_t sum(struct shunt_bpf_object *object, const char *name, size_t at)
{
	struct shunt_map *map = shunt_bpf_find_map(object, name);
	size_t len = shunt_map_host_value_size(map), stride = shunt_map_is_percpu(map) ? shunt_map_abi(map)->stride : len;
	unsigned char key[8], *values = malloc(len);
	uint64_t total = 0, word;

	MUST(values);
	for (int err = shunt_map_next_key(map, NULL, key); !err; err = shunt_map_next_key(map, key, key)) {
		MUST(shunt_map_host_lookup(map, key, values) == 0);
		for (size_t i = 0; i < len; i += stride) {
			memcpy(&word, values + i + at, 8);
			total += word;
		}
	}
	free(values);
	return total;
}

/* The updates are one after the other: what the first sees of the second is not fixed, so each is checked as a sum. */
static void count_in_arrays(unsigned int nr_threads)
{
	struct shunt_bpf_object *object = open_object(SHUNT_PASS_RMW_DEFAULT, NULL);
	uint64_t expected = run_threads(entry_of(object, "count_array"), nr_threads, nr_adds);

	MUST(sum(object, "array", 0) == expected);
	MUST(sum(object, "array", 8) == expected * 2);
	MUST((uint32_t)sum(object, "array", 16) == (uint32_t)(expected * 3));
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

/*
 * Whether the kernel knows the sequences in generated code: a step inside one sends the thread back to its beginning, so that a program
 * which is stepped through never ends, and ends well when let go. (A sequence whose descriptor the kernel never saw would lose so few
 * updates on x86-64, where the update is one instruction, that counting shows nothing; a wrong signature kills.)
 */
static void step_through(void)
{
	struct shunt_bpf_object *object = open_object(SHUNT_PASS_RMW_EXACT, NULL);
	entry_fn *entry = entry_of(object, "count_array");
	int status, nr_steps = 0;
	pid_t child = fork();

	MUST(child >= 0);
	if (!child) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGSTOP);
		run(entry, 1);
		_exit(sum(object, "array", 0) != NR_ADDS);
	}
	MUST(waitpid(child, &status, 0) == child);
	while (WIFSTOPPED(status) && nr_steps++ < 100000 && !ptrace(PTRACE_SINGLESTEP, child, NULL, NULL))
		MUST(waitpid(child, &status, 0) == child);
	if (nr_steps == 1) {
		printf("skipped: this process may not step through its child\n");
		kill(child, SIGKILL);
		waitpid(child, &status, 0);
	} else {
		MUST(WIFSTOPPED(status));
		MUST(ptrace(PTRACE_CONT, child, NULL, NULL) == 0);
		MUST(waitpid(child, &status, 0) == child);
		MUST(WIFEXITED(status) && WEXITSTATUS(status) == 0);
		printf("ok: a step inside a sequence sends the program back to its beginning\n");
	}
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
