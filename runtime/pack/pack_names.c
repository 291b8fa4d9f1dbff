/* SPDX-License-Identifier: MIT */
/*
 * Names of blocks. perf reads a text file, a line a function, after the process has ended; a fork's child has a file of its own, with the names
 * that live in it. GDB stops in a function of ours whenever it is called and reads a list of object files from memory, one for each block.
 *
 *	names_lock  guards the list, the map file and GDB's descriptor. Always taken inside the lock of the block's arena, so that a fork,
 *	            which takes those, finds it free; inside it: unwind_lock, malloc's
 */
#include "runtime/pack/pack_names.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <shunt/pack.h>

#include "runtime/log.h"
#include "runtime/pack/arena.h"
#include "runtime/pack/names_elf.h"
#include "runtime/pack/pack.h"
#include "runtime/pack/pack_unwind.h"

/* GDB's manual, "JIT Compilation Interface": names and layout are its. */
struct jit_code_entry {
	struct jit_code_entry *next_entry;
	struct jit_code_entry *prev_entry;
	const char *symfile_addr;
	uint64_t symfile_size;
};

struct jit_descriptor {
	uint32_t version;
	uint32_t action_flag;
	struct jit_code_entry *relevant_entry;
	struct jit_code_entry *first_entry;
};

enum { JIT_NOACTION, JIT_REGISTER, JIT_UNREGISTER };

/* Weak: LLVM brings the same two, and a program with both has one of them, which is enough. */
void __jit_debug_register_code(void);
__attribute__((noinline, weak, used, visibility("default"))) void __jit_debug_register_code(void)
{
	__asm__ volatile("" : : : "memory");
}
extern struct jit_descriptor __jit_debug_descriptor;
__attribute__((weak, used, visibility("default"))) struct jit_descriptor __jit_debug_descriptor = { .version = 1 };

/* A named block. */
struct names {
	struct names *next;
	struct shunt_block block;
	unsigned who;                /* enum shunt_names: who was told */
	struct jit_code_entry entry; /* GDB's */
	size_t nr_parts;
	struct shunt_part parts[];   /* their names lie behind them */
};

#define NR_BUCKETS 65536u

static pthread_mutex_t names_lock = PTHREAD_MUTEX_INITIALIZER;
static struct names **buckets; /* made for the first name */
static unsigned enabled;       /* enum shunt_names; atomic */
static uint32_t nr_names;      /* in buckets; atomic */
static FILE *perf_map;

static struct names **bucket_of(const void *rx)
{
	return &buckets[(uintptr_t)rx / SHUNT_CHUNK_SIZE % NR_BUCKETS];
}

/* ---- perf ------------------------------------------------------------------------------------------------------ */

/* The file of this process. NULL with errno. */
static FILE *open_perf_map(void)
{
	char path[64];
	int fd;

	if (perf_map)
		return perf_map;
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", (int)getpid());
	/* In a folder that all may write to: no link of somebody else's is followed, and a file of an earlier process is kept from growing. */
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd >= 0)
		perf_map = fdopen(fd, "w");
	if (fd >= 0 && !perf_map)
		close(fd);
	return perf_map;
}

static int write_perf(const struct names *names)
{
	FILE *map = open_perf_map();

	for (size_t i = 0; map && i < names->nr_parts; i++)
		if (fprintf(map, "%lx %zx %s\n", (unsigned long)(uintptr_t)names->block.rx + names->parts[i].offset, names->parts[i].len,
			    names->parts[i].name) <= 0)
			return -(errno ? errno : EIO);
	return map ? 0 : -errno;
}

static int flush_perf(void)
{
	return fflush(perf_map) == 0 ? 0 : -(errno ? errno : EIO);
}

static void leave_alone(void)
{
}

/* The parent's file is the parent's. perf looks for the child's by the child's number, and the child may never name anything itself. */
static void begin_perf_of_child(void)
{
	int err = 0;

	if (!perf_map)
		return;
	fclose(perf_map); /* nothing is buffered in it */
	perf_map = NULL;
	for (size_t i = 0; i < NR_BUCKETS && !err; i++)
		for (struct names *names = buckets[i]; names && !err; names = names->next)
			if (names->who & SHUNT_NAMES_PERF)
				err = write_perf(names);
	if (!err && perf_map)
		err = flush_perf();
	if (err)
		shunt_logf(SHUNT_LOG_WARN, "fork: perf will not find the names of generated code in the child: its map file: %s", strerror(-err));
}

static void install_fork_hooks(void)
{
	static struct shunt_fork_hooks hooks = { .prepare = leave_alone, .parent = leave_alone, .child = begin_perf_of_child };

	shunt_fork_register(&hooks);
}

int shunt_names_enable(unsigned names)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	if (names & ~(unsigned)(SHUNT_NAMES_PERF | SHUNT_NAMES_GDB))
		return shunt_fail(EINVAL, "names %#x: only SHUNT_NAMES_PERF and SHUNT_NAMES_GDB are known", names);
	if (names & SHUNT_NAMES_PERF)
		pthread_once(&once, install_fork_hooks);
	__atomic_fetch_or(&enabled, names, __ATOMIC_RELAXED);
	return 0;
}

/* ---- GDB ------------------------------------------------------------------------------------------------------- */

static void tell_gdb(struct names *names, uint32_t action)
{
	struct jit_code_entry *entry = &names->entry;

	if (action == JIT_REGISTER) {
		entry->next_entry = __jit_debug_descriptor.first_entry;
		if (entry->next_entry)
			entry->next_entry->prev_entry = entry;
		__jit_debug_descriptor.first_entry = entry;
	} else {
		if (entry->prev_entry)
			entry->prev_entry->next_entry = entry->next_entry;
		else
			__jit_debug_descriptor.first_entry = entry->next_entry;
		if (entry->next_entry)
			entry->next_entry->prev_entry = entry->prev_entry;
	}
	__jit_debug_descriptor.relevant_entry = entry;
	__jit_debug_descriptor.action_flag = action;
	__jit_debug_register_code();
	__jit_debug_descriptor.action_flag = JIT_NOACTION;
	__jit_debug_descriptor.relevant_entry = NULL;
}

static int add_gdb(struct names *names)
{
	size_t object_len, eh_frame_len;
	const void *eh_frame = shunt_unwind_section(names->block.rx, &eh_frame_len);
	void *object = shunt_names_elf_make(&names->block, names->parts, names->nr_parts, eh_frame, eh_frame_len, &object_len);

	if (!object)
		return -ENOMEM;
	names->entry.symfile_addr = object;
	names->entry.symfile_size = object_len;
	tell_gdb(names, JIT_REGISTER);
	return 0;
}

/* ---- both ------------------------------------------------------------------------------------------------------ */

static void destroy(struct names *names)
{
	if (names->entry.symfile_addr) {
		tell_gdb(names, JIT_UNREGISTER);
		free((void *)(uintptr_t)names->entry.symfile_addr);
	}
	free(names);
}

/* With copies of the parts, and of their names behind them. */
static struct names *create(const struct shunt_block *block, const struct shunt_part *parts, size_t nr)
{
	size_t len = sizeof(struct names) + nr * sizeof(*parts);
	struct names *names;
	char *text;

	for (size_t i = 0; i < nr; i++)
		len += strlen(parts[i].name) + 1;
	names = calloc(1, len);
	if (!names)
		return NULL;
	names->block = *block;
	names->nr_parts = nr;
	text = (char *)&names->parts[nr];
	for (size_t i = 0; i < nr; i++) {
		names->parts[i] = (struct shunt_part){ parts[i].offset, parts[i].len, text };
		text = stpcpy(text, parts[i].name) + 1;
	}
	return names;
}

void shunt_names_forget(const void *rx)
{
	struct names **link;

	if (!__atomic_load_n(&nr_names, __ATOMIC_RELAXED))
		return;
	pthread_mutex_lock(&names_lock);
	link = bucket_of(rx);
	while (*link) {
		struct names *names = *link;

		if (names->block.rx != rx) {
			link = &names->next;
			continue;
		}
		*link = names->next;
		__atomic_fetch_sub(&nr_names, 1, __ATOMIC_RELAXED);
		destroy(names);
	}
	pthread_mutex_unlock(&names_lock);
}

/* Under names_lock. */
static int add(const struct shunt_block *block, const struct shunt_part *parts, size_t nr, unsigned who)
{
	struct names *names, **bucket;
	int err = 0;

	if (!buckets)
		buckets = calloc(NR_BUCKETS, sizeof(struct names *));
	names = buckets ? create(block, parts, nr) : NULL;
	if (!names)
		return -ENOMEM;
	names->who = who;
	if (who & SHUNT_NAMES_PERF)
		err = write_perf(names);
	if (!err && (who & SHUNT_NAMES_PERF))
		err = flush_perf();
	if (!err && (who & SHUNT_NAMES_GDB))
		err = add_gdb(names);
	if (err) {
		destroy(names);
		return err;
	}
	bucket = bucket_of(block->rx);
	names->next = *bucket;
	*bucket = names;
	__atomic_fetch_add(&nr_names, 1, __ATOMIC_RELAXED);
	return 0;
}

static const char *check_part(const struct shunt_block *block, const struct shunt_part *part)
{
	if (!part->name || !*part->name || strchr(part->name, '\n'))
		return "must be one line of at least a character";
	if (!part->len || part->offset >= block->len || part->len > block->len - part->offset)
		return "is for bytes outside the block";
	return NULL;
}

int shunt_pack_name_parts(const struct shunt_block *block, const struct shunt_part *parts, size_t nr)
{
	unsigned who = __atomic_load_n(&enabled, __ATOMIC_RELAXED);
	struct shunt_pack_ref ref;
	int err;

	if (!who || !nr)
		return 0;
	for (size_t i = 0; i < nr; i++) {
		const char *why = check_part(block, &parts[i]);

		if (why)
			return shunt_fail(EINVAL, "name %zu of block %p %s", i, block->rx, why);
	}
	err = shunt_pack_lock_block("name", block, false, &ref);
	if (err)
		return err;
	pthread_mutex_lock(&names_lock);
	err = add(block, parts, nr, who);
	pthread_mutex_unlock(&names_lock);
	pthread_mutex_unlock(&ref.arena->lock);
	return err ? shunt_fail(-err, "name %s of block %p: %s", parts[0].name, block->rx, strerror(-err)) : 0;
}

int shunt_pack_name(const struct shunt_block *block, const char *name)
{
	struct shunt_part all = { 0, block->len, name };

	return shunt_pack_name_parts(block, &all, 1);
}
