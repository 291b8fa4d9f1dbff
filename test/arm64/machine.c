/* SPDX-License-Identifier: MIT */
/*
 * What Shunt relies on of an arm64 machine and its kernel, each tried: code written through one view runs through the other, replaced code is
 * replaced for threads that run it, restartable sequences restart, indirect branches land on landing pads only, unused bytes trap.
 * A line a check; those that the machine cannot show say why. Exit status 1 when one failed; with the argument `all` also when one could
 * not be shown.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>
#include <shunt/log.h>
#include <shunt/pack.h>
#include <shunt/percpu.h>
#include <shunt/reader.h>

#include "runtime/machine.h"

#define BTI_C 0xd503245fu
#define BTI_J 0xd503249fu
#define NOP 0xd503201fu
#define RET 0xd65f03c0u
#define MOV_W0(imm) (0x52800000u | (imm) << 5)

static unsigned nr_failed;
static bool must_all; /* nothing may be left unchecked */

static void report(const char *check, const char *why_not)
{
	printf("%s: %s\n", check, why_not ? why_not : "ok");
	nr_failed += why_not != NULL;
}

static int call(const void *rx)
{
	return ((int (*)(void))(uintptr_t)rx)();
}

/* A block of these instructions in arena, ready to run; no return on failure. */
static struct shunt_block place(struct shunt_arena *arena, const uint32_t *code, size_t len)
{
	struct shunt_block block;

	if (shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, len, 0, &block) != 0) {
		printf("no code can be placed: %s\n", shunt_error());
		exit(1);
	}
	memcpy(block.rw, code, len);
	if (shunt_pack_finalize(&block, 1) != 0) {
		printf("code cannot be published: %s\n", shunt_error());
		exit(1);
	}
	return block;
}

/* 0 when calling rx returns, else the signal that it ends with. */
static int signal_of(const void *rx)
{
	pid_t pid = fork();
	int status = -1;

	if (pid == 0) {
		call(rx);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

static void check_views(void)
{
	static const uint32_t code[] = { BTI_C, MOV_W0(0), RET };
	struct shunt_block block = place(NULL, code, sizeof(code));
	const char *why_not = block.rx == block.rw ? "one view only" : NULL;

	for (uint32_t i = 0; i < 500 && !why_not; i++) {
		((uint32_t *)block.rw)[1] = MOV_W0(i);
		if (shunt_pack_finalize(&block, 1) != 0)
			why_not = shunt_error();
		else if (call(block.rx) != (int)i)
			why_not = "code that was replaced through the rw view still runs";
	}
	report("code written at rw runs at rx, replaced 500 times", why_not);
	shunt_pack_free(&block);
}

struct runner {
	const void *rx;
	int wanted;
	int seen;
};

static void *run_until_seen(void *data)
{
	struct runner *runner = data;

	for (;;) {
		int wanted = __atomic_load_n(&runner->wanted, __ATOMIC_ACQUIRE);

		if (wanted < 0)
			return NULL;
		/* Wanted is stored after the code was published: an older result is a failure. */
		if (call(__atomic_load_n(&runner->rx, __ATOMIC_ACQUIRE)) < wanted) {
			__atomic_store_n(&runner->seen, -1, __ATOMIC_RELEASE);
			return NULL;
		}
		__atomic_store_n(&runner->seen, wanted, __ATOMIC_RELEASE);
	}
}

static void check_other_threads(void)
{
	static const uint32_t code[] = { BTI_C, MOV_W0(0), RET };
	struct runner runner = { 0 };
	const char *why_not = NULL;
	struct shunt_block blocks[64];
	pthread_t thread;

	/* A block each time: an instruction under execution may only be replaced if it is of a few kinds, mov is none of them. */
	for (int i = 0; i < 64; i++)
		blocks[i] = place(NULL, code, sizeof(code));
	runner.rx = blocks[0].rx;
	if (pthread_create(&thread, NULL, run_until_seen, &runner) != 0)
		why_not = "no second thread";
	for (int i = 1; i < 64 && !why_not; i++) {
		((uint32_t *)blocks[i].rw)[1] = MOV_W0((uint32_t)i);
		if (shunt_pack_finalize(&blocks[i], 1) != 0)
			why_not = shunt_error();
		__atomic_store_n(&runner.rx, blocks[i].rx, __ATOMIC_RELEASE);
		__atomic_store_n(&runner.wanted, i, __ATOMIC_RELEASE);
		for (int seen = 0; seen != i && !why_not; seen = __atomic_load_n(&runner.seen, __ATOMIC_ACQUIRE))
			if (seen < 0)
				why_not = "another thread ran code from before it was published";
	}
	__atomic_store_n(&runner.wanted, -1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	report("published code is what another thread runs", why_not);
}

#define NR_THREADS 4
#define NR_ADDS 200000

static void *add(void *counter)
{
	for (int i = 0; i < NR_ADDS; i++) {
		shunt_percpu_add64(counter, 1);
		/* Migrations in the middle of sequences. */
		if (i % 1000 == 0) {
			cpu_set_t cpu;

			CPU_ZERO(&cpu);
			CPU_SET((unsigned)(i / 1000) % shunt_nr_cpus(), &cpu);
			sched_setaffinity(0, sizeof(cpu), &cpu);
		}
	}
	return NULL;
}

static void check_rseq(void)
{
	struct shunt_cpu_index index;
	pthread_t threads[NR_THREADS];
	const char *why_not = NULL;
	uint64_t sum = 0;
	void *counter;

	shunt_cpu_index(&index);
	printf("per-CPU numbers come from %s, %u CPUs\n", index.source == SHUNT_CPU_RSEQ ? "rseq" : "getcpu", shunt_nr_cpus());
	if (shunt_percpu_alloc(sizeof(uint64_t), 0, &counter) != 0) {
		report("restartable sequences count exactly", shunt_error());
		return;
	}
	if (must_all)
		report("per-CPU numbers come from rseq", index.source == SHUNT_CPU_RSEQ ? NULL : "this machine has no rseq");
	for (int i = 0; i < NR_THREADS; i++)
		if (pthread_create(&threads[i], NULL, add, counter) != 0)
			exit(1);
	for (int i = 0; i < NR_THREADS; i++)
		pthread_join(threads[i], NULL);
	for (uint32_t cpu = 0; cpu < shunt_nr_cpus(); cpu++)
		sum += *(uint64_t *)shunt_percpu_of(counter, cpu);
	/* Threads that rseq does not know count in the units below CPU 0's. */
	for (int64_t unit = -2; unit < 0 && index.source == SHUNT_CPU_RSEQ; unit++)
		sum += *(uint64_t *)((char *)counter + unit * ((int64_t)1 << SHUNT_PERCPU_SHIFT));
	if (sum != (uint64_t)NR_THREADS * NR_ADDS)
		why_not = "counts were lost";
	report("per-CPU additions are exact under migration", why_not);
}

static void check_landing_pads(void)
{
	static const uint32_t padded[] = { BTI_C, MOV_W0(1), RET };
	static const uint32_t bare[] = { MOV_W0(2), RET };
	static const uint32_t jump_pad[] = { BTI_J, MOV_W0(3), RET };
	/* bti c; b to the second next word; a trap; mov; ret: a direct branch needs no pad. */
	static const uint32_t direct[] = { BTI_C, 0x14000002u, 0, MOV_W0(4), RET };
	struct shunt_arena_options options = { .size = 2 * SHUNT_PACK_SIZE, .no_guard = true };
	struct shunt_arena *open_arena;
	const char *why_not = NULL;
	struct shunt_block block;

	if (!shunt_machine_guard_prot()) {
		printf("landing pads: not checked, this CPU or kernel has no BTI\n");
		nr_failed += must_all;
		return;
	}
	block = place(NULL, padded, sizeof(padded));
	if (signal_of(block.rx) != 0)
		why_not = "code with `bti c` faults";
	block = place(NULL, direct, sizeof(direct));
	if (!why_not && signal_of(block.rx) != 0)
		why_not = "a direct branch to code without a pad faults";
	block = place(NULL, bare, sizeof(bare));
	if (!why_not && signal_of(block.rx) != SIGILL)
		why_not = "a call by pointer of code without a landing pad does not fault: the rx view is not guarded";
	block = place(NULL, jump_pad, sizeof(jump_pad));
	if (!why_not && signal_of(block.rx) != SIGILL)
		why_not = "a call by pointer of a pad for jumps (`bti j`) does not fault";
	if (!why_not && shunt_arena_create(&options, &open_arena) != 0)
		why_not = shunt_error();
	if (!why_not) {
		block = place(open_arena, bare, sizeof(bare));
		if (signal_of(block.rx) != 0)
			why_not = "code without landing pads faults in an arena without guard";
	}
	report("indirect branches land on the right landing pads only", why_not);
}

static void check_traps(void)
{
	static const uint32_t code[] = { BTI_C, MOV_W0(1), RET };
	struct shunt_block block = place(NULL, code, sizeof(code));
	const char *rx = block.rx;

	report("unused bytes trap", signal_of(rx + sizeof(code)) == SIGILL ? NULL : "running into unused bytes does not end with SIGILL");
	if (shunt_pack_free(&block) != 0 || shunt_quiesce() != 0)
		report("freed code traps", shunt_error());
	else
		report("freed code traps", signal_of(rx) == SIGILL ? NULL : "a freed function still runs");
}

int main(int argc, char **argv)
{
	struct shunt_pack_stats stats;
#if defined(__aarch64__)
	uint64_t ctr;

	__asm__("mrs %0, ctr_el0" : "=r"(ctr));
	printf("ctr_el0 %#llx: IDC %d, DIC %d, lines of %d bytes (data) and %d (instructions)\n", (unsigned long long)ctr, (int)(ctr >> 28 & 1),
	       (int)(ctr >> 29 & 1), 4 << (ctr >> 16 & 15), 4 << (ctr & 15));
#endif
	setvbuf(stdout, NULL, _IOLBF, 0);
	must_all = argc > 1 && strcmp(argv[1], "all") == 0;
	check_views();
	check_other_threads();
	check_rseq();
	check_landing_pads();
	check_traps();
	if (shunt_pack_get_stats(NULL, &stats) != 0)
		return 1;
	printf("packs: %s, page size %zu, %llu bytes of code mapped by 2 MiB entries\n", shunt_backing_name(stats.backing),
	       shunt_machine_page_size(), (unsigned long long)stats.bytes_huge);
	if (must_all)
		report("packs are mapped by 2 MiB entries", stats.bytes_huge ? NULL : "the kernel collapsed nothing");
	return nr_failed != 0;
}
