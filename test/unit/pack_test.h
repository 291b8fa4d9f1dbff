/* SPDX-License-Identifier: MIT */
/* For the tests of packs: tiny functions as bytes of the machine that the test runs on, and what a process has mapped and open. */
#ifndef TEST_UNIT_PACK_TEST_H
#define TEST_UNIT_PACK_TEST_H

#include <dirent.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <shunt/log.h>
#include <shunt/pack.h>

#include "targets/target.h"
#include "test/unit/pack_check.h"

#define TINY_LEN 12u

/* Writes "return number" (below 65536) of TINY_LEN bytes. */
static inline void write_tiny(void *to, uint32_t number)
{
#if defined(__x86_64__)
	uint8_t code[TINY_LEN] = { 0xb8, (uint8_t)number, (uint8_t)(number >> 8), 0, 0, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc }; /* mov eax, imm32; ret */
#else
	uint32_t code[3] = { 0xd503245fu, 0x52800000u | number << 5, 0xd65f03c0u }; /* bti c; movz w0, #imm16; ret */
#endif
	memcpy(to, code, TINY_LEN);
}

static inline int call(const void *rx)
{
	int (*fn)(void) = (int (*)(void))(uintptr_t)rx;

	return fn();
}

/* Tests that say in how many packs their blocks lie stay on one NUMA node, where there are several: each has packs of its own. */
static inline void stay_on_one_node(void)
{
	unsigned long allowed[1024 / (8 * sizeof(long))] = { 0 };
	cpu_set_t before, one, same_node;
	unsigned home, node;

	if (syscall(SYS_get_mempolicy, NULL, allowed, 1024ul, NULL, 4ul) != 0 || !(allowed[0] & (allowed[0] - 1)))
		return;
	if (sched_getaffinity(0, sizeof(before), &before) != 0 || getcpu(NULL, &home) != 0)
		return;
	CPU_ZERO(&same_node);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &before))
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		if (sched_setaffinity(0, sizeof(one), &one) == 0 && getcpu(NULL, &node) == 0 && node == home)
			CPU_SET(cpu, &same_node);
	}
	sched_setaffinity(0, sizeof(same_node), &same_node);
}

static inline struct shunt_arena *create_arena(const struct shunt_arena_options *options)
{
	struct shunt_arena *arena = NULL;

	stay_on_one_node();
	cr_assert_eq(shunt_arena_create(options, &arena), 0, "%s", shunt_error());
	return arena;
}

static inline enum shunt_backing backing_of(struct shunt_arena *arena)
{
	struct shunt_pack_stats stats;

	cr_assert_eq(shunt_pack_get_stats(arena, &stats), 0);
	return stats.backing;
}

/* A block in arena that returns number; false when one of the calls failed. */
static inline bool make_tiny(struct shunt_arena *arena, uint32_t number, struct shunt_block *out)
{
	if (shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, TINY_LEN, 0, out) != 0)
		return false;
	write_tiny(out->rw, number);
	return shunt_pack_finalize(out, 1) == 0;
}

static inline bool is_all_traps(const void *p, size_t len)
{
	return shunt_target_host()->is_traps(p, len) != 0;
}

/* Lines of /proc/self/maps for which match is true. */
static inline unsigned count_maps(bool (*match)(const char *line))
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	unsigned nr = 0;

	while (maps && fgets(line, sizeof(line), maps))
		nr += match(line);
	if (maps)
		fclose(maps);
	return nr;
}

static inline bool is_writable_and_executable(const char *line)
{
	const char *prot = strchr(line, ' ');

	return prot && prot[2] == 'w' && prot[3] == 'x';
}

/* Shared memory and reservations, which are what packs and arenas are made of; sanitizers map much else meanwhile, and the thread
 * sanitizer's shadow comes and goes with our reservations. */
static inline bool is_shared_or_reserved(const char *line)
{
	const char *prot = strchr(line, ' ');

#ifdef __SANITIZE_THREAD__
	return prot && prot[4] == 's';
#else
	return prot && (prot[4] == 's' || !strncmp(prot + 1, "---", 3));
#endif
}

static inline unsigned count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned nr = 0;

	while (dir && readdir(dir))
		nr++;
	if (dir)
		closedir(dir);
	return nr;
}

/* A field, in bytes, of the /proc/self/smaps entry that begins at addr; 0 when there is none. */
static inline size_t smaps_field(const void *addr, const char *field)
{
	FILE *smaps = fopen("/proc/self/smaps", "re");
	char line[512];
	bool here = false;
	size_t kib = 0;

	while (smaps && fgets(line, sizeof(line), smaps)) {
		uintptr_t start;
		uintptr_t end;

		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			here = (uintptr_t)addr >= start && (uintptr_t)addr < end;
		else if (here && !strncmp(line, field, strlen(field)) && sscanf(line + strlen(field), ": %zu kB", &kib) == 1)
			break;
	}
	if (smaps)
		fclose(smaps);
	return kib * 1024;
}

#endif
