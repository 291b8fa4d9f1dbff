/* SPDX-License-Identifier: MIT */
/* shunt doctor: what this machine gives to packs, patching and per-CPU data, and why. It tries things rather than looking at versions. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/membarrier.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/rseq.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <shunt/log.h>
#include <shunt/pack.h>
#include <shunt/percpu.h>
#include "tools/command.h"

/* Linux 6.3; older headers lack them. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif
#ifndef PR_GET_MDWE
#define PR_GET_MDWE 66
#endif

#define THP "/sys/kernel/mm/transparent_hugepage/"
#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

__attribute__((format(printf, 2, 3))) static void line(const char *name, const char *format, ...)
{
	va_list args;

	printf("  %-20s ", name);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
}

static void more(const char *text)
{
	printf("  %-20s %s\n", "", text);
}

/* The first line of a file without its end, or "not there". */
static const char *file_text(const char *path, char *text, size_t size)
{
	FILE *file = fopen(path, "re");

	snprintf(text, size, "not there");
	if (file) {
		if (fgets(text, (int)size, file))
			text[strcspn(text, "\n")] = '\0';
		fclose(file);
	}
	return text;
}

static void limit_line(const char *name, int resource, const char *meaning)
{
	struct rlimit limit;

	if (getrlimit(resource, &limit) != 0)
		return;
	if (limit.rlim_cur == RLIM_INFINITY)
		line(name, "unlimited");
	else
		line(name, "%" PRIu64 " bytes: %s", (uint64_t)limit.rlim_cur, meaning);
}

/* ---- packs ----------------------------------------------------------------------------------------------------- */

static void try_memfd(const char *name, unsigned flags)
{
	int fd = memfd_create("shunt-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
	void *view;

	if (fd < 0) {
		line(name, "refused: %s", strerror(errno));
		return;
	}
	/* An empty file: whether it may be mapped to be executed is asked before how long it is. */
	view = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
	if (view == MAP_FAILED)
		line(name, "made, but may not be executed: %s", strerror(errno));
	else
		line(name, "yes");
	if (view != MAP_FAILED)
		munmap(view, 4096);
	close(fd);
}

static void try_anon(void)
{
	void *first = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	void *second = first == MAP_FAILED ? MAP_FAILED : mremap(first, 0, 4096, MREMAP_MAYMOVE);

	if (second == MAP_FAILED)
		line("  shared anonymous", "no second view: %s", strerror(errno));
	else if (mprotect(second, 4096, PROT_READ | PROT_WRITE) != 0)
		line("  shared anonymous", "its second view may not be written: %s", strerror(errno));
	else
		line("  shared anonymous", "yes");
	if (first != MAP_FAILED)
		munmap(first, 4096);
	if (second != MAP_FAILED)
		munmap(second, 4096);
}

/* Private memory that is written first and run later, never both. */
static void try_toggle(void)
{
	size_t page_size = (size_t)sysconf(_SC_PAGESIZE);
	void *page = mmap(NULL, page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		return;
	if (mprotect(page, page_size, PROT_READ | PROT_EXEC) != 0)
		line("  toggle", "written pages may not become executable: %s", strerror(errno));
	else
		line("  toggle", "yes");
	munmap(page, page_size);
}

static const char *what_seals(enum shunt_backing backing)
{
	switch (backing) {
	case SHUNT_BACKING_SHARED_ANON:
		return "not sealed: code in this process that can call mprotect could make the rx view writable";
	case SHUNT_BACKING_TOGGLE:
		return "one view: a block's own pages are written, then run, never both; not sealed; a page at least for each program";
	default:
		return "sealed: the rx view cannot be made writable any more, by anybody";
	}
}

static const char *not_huge_reason(const struct shunt_pack_stats *stats)
{
	static char text[160];
	struct utsname system;
	unsigned major = 0, minor = 0;

	uname(&system);
	sscanf(system.release, "%u.%u", &major, &minor);
	snprintf(text, sizeof(text), "%zu KiB pages: %s", stats->page_size >> 10,
		 stats->backing == SHUNT_BACKING_TOGGLE ? "programs' pages change one by one" :
		 stats->page_size > 4096		? "huge pages of this machine are longer than a pack" :
		 major < 6 || (major == 6 && minor < 1) ? "this kernel has no MADV_COLLAPSE (Linux 6.1)" :
		 "the kernel collapsed nothing (no free 2 MiB of memory, or built without huge pages for shared memory)");
	return text;
}

/* Makes a pack as an engine would, and says what came of it. */
static bool examine_pack(void)
{
	struct shunt_arena_options options = { .size = SHUNT_PACK_SIZE };
	struct shunt_arena *arena;
	struct shunt_block block;
	struct shunt_pack_stats stats;
	bool made;

	if (shunt_arena_create(&options, &arena) != 0) {
		line("arena", "NONE: %s", shunt_error());
		return false;
	}
	made = shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 64, 0, &block) == 0;
	if (!made)
		line("backing", "NONE: %s", shunt_error());
	if (made && shunt_pack_get_stats(arena, &stats) == 0) {
		line("backing", "%s", shunt_backing_name(stats.backing));
		more(what_seals(stats.backing));
		line("pages", "%s", stats.bytes_huge ? "2 MiB, in both views, by MADV_COLLAPSE" : not_huge_reason(&stats));
		line("NUMA nodes", "%u%s", stats.nr_nodes, stats.nr_nodes > 1 ? ": a block's memory is wanted on that of the thread which allocates it" : "");
		if (stats.backing < SHUNT_BACKING_SHARED_ANON && mprotect(block.rx, 1, PROT_READ | PROT_WRITE) == 0)
			line("seal", "DID NOT HOLD: the rx view could be made writable");
		shunt_pack_abandon(&block);
	}
	shunt_arena_destroy(arena);
	return made;
}

static void examine_packs_around(void)
{
	char text[256];

	line("ladder", "best first; the first that works is taken");
	try_memfd("  memfd noexec-seal", MFD_NOEXEC_SEAL);
	try_memfd("  memfd exec", MFD_EXEC);
	try_memfd("  memfd", 0);
	try_anon();
	try_toggle();
	line("vm.memfd_noexec", "%s", file_text("/proc/sys/vm/memfd_noexec", text, sizeof(text)));
	line("vm.max_map_count", "%s (a pack takes two mappings)", file_text("/proc/sys/vm/max_map_count", text, sizeof(text)));
	line("THP", "%s", file_text(THP "enabled", text, sizeof(text)));
	line("THP shared memory", "%s (collapsing on demand works whatever these say)", file_text(THP "shmem_enabled", text, sizeof(text)));
	line("hugetlb pool", "%s pages of 2 MiB", file_text("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", text, sizeof(text)));
	limit_line("RLIMIT_FSIZE", RLIMIT_FSIZE, "below 2 MiB packs are shared anonymous memory, since a longer memfd would kill the process");
	limit_line("RLIMIT_AS", RLIMIT_AS, "the default arena takes twice 1 GiB of addresses, or less where that is refused");
}

/* ---- who may write or execute ---------------------------------------------------------------------------------- */

static void examine_protection(void)
{
	int mdwe = prctl(PR_GET_MDWE, 0, 0, 0, 0);
	void *both = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (mdwe < 0)
		line("MDWE", "not known to this kernel (Linux 6.3)");
	else
		line("MDWE", mdwe & 1 ? "on: nothing in this process can become executable later" : "off");
	if (mdwe < 0 || !(mdwe & 1)) {
		more("so the host itself could still make a rw view executable (mprotect); Shunt never does. A host that wants it");
		more("impossible calls prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0): packs work under it");
	}
	line("write and execute", both == MAP_FAILED ? "one mapping with both is refused by the system (Shunt needs none)" :
						       "the system would allow one mapping with both (Shunt makes none)");
	if (both != MAP_FAILED)
		munmap(both, 4096);
}

/* ---- patching -------------------------------------------------------------------------------------------------- */

static void examine_patching(void)
{
	static const struct { int command; const char *name; } commands[] = {
		{ MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, "SYNC_CORE" },
		{ MEMBARRIER_CMD_PRIVATE_EXPEDITED, "private expedited" },
		{ MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, "rseq" },
	};
	int supported = (int)syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);

#if defined(__aarch64__)
	line("CPU", "arm64: caches are maintained by hand, other CPUs told by membarrier; a patch is one store of a B");
#else
	line("CPU", "x86-64: caches follow writes; a patch is one aligned 8-byte store");
#endif
	if (supported < 0) {
		line("membarrier", "refused: %s", strerror(errno));
		return;
	}
	for (size_t i = 0; i < LENGTH(commands); i++)
		line(i ? "" : "membarrier", "%s: %s", commands[i].name, supported & commands[i].command ? "yes" : "NO");
}

/* ---- per-CPU --------------------------------------------------------------------------------------------------- */

static void examine_percpu(void)
{
	struct shunt_cpu_index index;

	shunt_cpu_index(&index);
	line("CPU number", "%s", shunt_cpu_source_name(index.source));
	if (index.source == SHUNT_CPU_RSEQ)
		more("glibc registered rseq; generated code reads it by one load, exact updates are rseq sections");
	else if (!__rseq_size)
		more("rseq is not registered: glibc before 2.35, GLIBC_TUNABLES=glibc.pthread.rseq=0, or a kernel or sandbox without it");
	line("CPUs", "%" PRIu32 " possible numbers, this thread runs on %" PRIu32, shunt_nr_cpus(), shunt_cpu_id());
}

/* ---- speculation ----------------------------------------------------------------------------------------------- */

static void examine_speculation(void)
{
	static const char *const names[] = { "spectre_v1", "spectre_v2", "spec_store_bypass", "retbleed", "indirect_target_selection", "spec_rstack_overflow" };
	char path[128], text[256];

	for (size_t i = 0; i < LENGTH(names); i++) {
		snprintf(path, sizeof(path), "/sys/devices/system/cpu/vulnerabilities/%s", names[i]);
		file_text(path, text, sizeof(text));
		if (strcmp(text, "not there") != 0)
			line(names[i], "%.200s", text);
	}
	more("direct calls through a dispatcher are not predicted as indirect branches; its fallback is one, or a retpoline when asked");
}

static void print_usage(FILE *out)
{
	fprintf(out, "usage: shunt doctor\n\n"
		     "Says what this machine gives to packs (backing, page size, limits), to patching (membarrier), to per-CPU data (rseq), which\n"
		     "mitigations are on, and why anything is not the best. Exit status 1: generated code cannot be run here.\n");
}

int shunt_command_doctor(int argc, char **argv)
{
	struct utsname system;
	bool good;

	if (argc > 1) {
		bool help = !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h");

		if (!help)
			fprintf(stderr, "shunt doctor: unexpected argument '%s'\n", argv[1]);
		print_usage(help ? stdout : stderr);
		return help ? SHUNT_EXIT_OK : SHUNT_EXIT_USAGE;
	}
	uname(&system);
	printf("Linux %s on %s, %ld CPUs, pages of %ld bytes\n", system.release, system.machine, sysconf(_SC_NPROCESSORS_ONLN), sysconf(_SC_PAGESIZE));
	printf("\npacks\n");
	good = examine_pack();
	examine_packs_around();
	printf("\nwrite or execute\n");
	examine_protection();
	printf("\npatching\n");
	examine_patching();
	printf("\nper-CPU data\n");
	examine_percpu();
	printf("\nspeculation\n");
	examine_speculation();
	return good ? SHUNT_EXIT_OK : SHUNT_EXIT_FAILED;
}
