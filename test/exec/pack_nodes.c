/* SPDX-License-Identifier: MIT */
/*
 * Memory of packs really lies on the node of the thread that allocates: asked of the kernel, page by page and view by view, on a machine
 * with several NUMA nodes. On one with a single node, or where the kernel does not say: skipped (77).
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <shunt/log.h>
#include <shunt/pack.h>
#include <shunt/reader.h>

#define MAX_NODES 64
#define NR_LARGE 3 /* slots of a block larger than a pack */

static int nr_wrong;
static int cpu_of[MAX_NODES]; /* one of each node; -1: none that this process may run on */

static void wrong(const char *what, int node, const char *why)
{
	printf("WRONG: node %d: %s: %s\n", node, what, why);
	nr_wrong++;
}

/* What is mapped there, page by page, lies on the node. */
static void check_pages(const char *what, int node, char *addr, size_t len)
{
	size_t page_size = (size_t)sysconf(_SC_PAGESIZE);
	size_t nr = len / page_size, nr_elsewhere = 0;
	void **pages = calloc(nr, sizeof(*pages));
	int *status = calloc(nr, sizeof(*status));
	char text[128];

	for (size_t i = 0; i < nr; i++) {
		pages[i] = addr + i * page_size;
		(void)*(volatile char *)pages[i];
	}
	if (syscall(SYS_move_pages, 0, nr, pages, NULL, status, 0) != 0) {
		wrong(what, node, strerror(errno));
	} else {
		for (size_t i = 0; i < nr; i++)
			nr_elsewhere += status[i] != node;
		snprintf(text, sizeof(text), "%zu of %zu pages do not lie there (the first: %d)", nr_elsewhere, nr, status[0]);
		if (nr_elsewhere)
			wrong(what, node, text);
	}
	free(status);
	free(pages);
}

static void check_block(const char *what, int node, const struct shunt_block *block)
{
	if (shunt_pack_node(block) != node)
		wrong(what, node, "shunt_pack_node says something else");
	check_pages(what, node, block->rx, block->len);
	if (block->rw != block->rx)
		check_pages(what, node, block->rw, block->len);
}

struct job {
	pthread_t id;
	int node;
	struct shunt_arena *arena;
	struct shunt_block code, rodata, data, large;
};

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set) != 0)
		printf("cannot run on CPU %d: %s\n", cpu, strerror(errno));
}

static void allocate(struct job *job, enum shunt_segment segment, size_t size, struct shunt_block *out)
{
	if (shunt_pack_alloc(job->arena, segment, size, 0, out) != 0)
		wrong("allocation", job->node, shunt_error());
	else
		memset(out->rw, 0, size);
}

static void *allocate_there(void *arg)
{
	struct job *job = arg;

	pin(cpu_of[job->node]);
	allocate(job, SHUNT_SEGMENT_CODE, SHUNT_PACK_SIZE, &job->code);
	allocate(job, SHUNT_SEGMENT_RODATA, SHUNT_PACK_SIZE, &job->rodata);
	allocate(job, SHUNT_SEGMENT_DATA, SHUNT_PACK_SIZE, &job->data);
	allocate(job, SHUNT_SEGMENT_CODE, NR_LARGE * SHUNT_PACK_SIZE, &job->large);
	return NULL;
}

static void check_job(struct job *job, const char *pages)
{
	char what[64];

	snprintf(what, sizeof(what), "code on %s", pages);
	check_block(what, job->node, &job->code);
	snprintf(what, sizeof(what), "rodata on %s", pages);
	check_block(what, job->node, &job->rodata);
	snprintf(what, sizeof(what), "data on %s", pages);
	check_block(what, job->node, &job->data);
	snprintf(what, sizeof(what), "%d packs on %s", NR_LARGE, pages);
	check_block(what, job->node, &job->large);
}

/* All nodes' packs copied by a child that runs on the first: each stays where it is wanted. */
static void check_child(struct job *jobs, int nr, const char *pages)
{
	int status = -1;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		nr_wrong = 0;
		for (int i = 0; i < nr; i++)
			if (cpu_of[jobs[i].node] >= 0)
				check_job(&jobs[i], pages);
		fflush(stdout);
		_exit(nr_wrong != 0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
		wrong("a fork's child", jobs[0].node, "its packs lie elsewhere, see above");
}

static void check_arena(const struct shunt_arena_options *options, const int *nodes, int nr, const char *pages)
{
	struct shunt_pack_stats stats;
	struct job jobs[MAX_NODES] = { 0 };

	for (int i = 0; i < nr; i++) {
		jobs[i].node = nodes[i];
		jobs[i].arena = i ? jobs[0].arena : NULL;
		if (!i && shunt_arena_create(options, &jobs[0].arena) != 0) {
			wrong("arena", nodes[0], shunt_error());
			return;
		}
		/* A node of memory alone is nobody's to allocate on. */
		if (cpu_of[nodes[i]] < 0)
			continue;
		if (pthread_create(&jobs[i].id, NULL, allocate_there, &jobs[i]) != 0)
			exit(1);
		pthread_join(jobs[i].id, NULL);
		check_job(&jobs[i], pages);
	}
	shunt_pack_get_stats(jobs[0].arena, &stats);
	for (int i = 0; i < nr; i++) {
		uint64_t expected = cpu_of[nodes[i]] < 0 ? 0 : (3 + NR_LARGE) * SHUNT_PACK_SIZE;

		if (stats.bytes_by_node[nodes[i]] != expected)
			wrong("statistics", nodes[i], "have other bytes there");
	}
	printf("%d nodes, %s, %s: %llu KiB of code on 2 MiB pages\n", nr, shunt_backing_name(stats.backing), pages,
	       (unsigned long long)stats.bytes_huge >> 10);
	check_child(jobs, nr, pages);
	for (int i = 0; i < nr; i++)
		if (cpu_of[nodes[i]] >= 0 && (shunt_pack_free(&jobs[i].code) != 0 || shunt_pack_free(&jobs[i].rodata) != 0 ||
					      shunt_pack_free(&jobs[i].data) != 0 || shunt_pack_free(&jobs[i].large) != 0))
			wrong("free", nodes[i], shunt_error());
	if (shunt_quiesce() != 0 || shunt_arena_destroy(jobs[0].arena) != 0)
		wrong("arena", nodes[0], shunt_error());
}

int main(void)
{
	struct shunt_arena_options base = { .size = 64 << 20, .no_huge = true }, huge = { .size = 64 << 20 }, anon = { .size = 64 << 20, .anon = true };
	unsigned long allowed[16] = { 0 };
	int nodes[MAX_NODES], nr = 0, nr_with_cpus = 0;

	if (syscall(SYS_get_mempolicy, NULL, allowed, 1024ul, NULL, 4ul) != 0) {
		printf("skipped: this kernel does not say which nodes there are: %s\n", strerror(errno));
		return 77;
	}
	for (int node = 0; node < MAX_NODES; node++) {
		cpu_of[node] = -1;
		if (allowed[0] >> node & 1)
			nodes[nr++] = node;
	}
	for (int cpu = 0; cpu < (int)sysconf(_SC_NPROCESSORS_CONF); cpu++) {
		unsigned node, here;

		pin(cpu);
		if (getcpu(&here, &node) == 0 && here == (unsigned)cpu && node < MAX_NODES)
			cpu_of[node] = cpu;
	}
	for (int i = 0; i < nr; i++)
		nr_with_cpus += cpu_of[nodes[i]] >= 0;
	if (nr_with_cpus < 2) {
		printf("skipped: one NUMA node\n");
		return 77;
	}
	pin(cpu_of[nodes[0]]);
	check_arena(&base, nodes, nr, "base pages");
	check_arena(&huge, nodes, nr, "huge pages where there are any");
	check_arena(&anon, nodes, nr, "shared anonymous memory");
	return nr_wrong != 0;
}
