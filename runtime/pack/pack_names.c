/* SPDX-License-Identifier: MIT */
/*
 * Names of blocks. perf reads a text file, a line a function, after the process has ended. GDB stops in a function of ours whenever it
 * is called and reads a list of object files from memory; one of the smallest kind is made here for each name: a section that has an
 * address and a length but no bytes, and one symbol.
 *
 *	names_lock  guards the list, the map file and GDB's descriptor. Always taken inside the lock of the block's arena, so that a fork,
 *	            which takes those, finds it free; a leaf but for malloc
 */
#include "runtime/pack/pack_names.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <shunt/pack.h>

#include "runtime/pack/arena.h"
#include "runtime/log.h"

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

enum { SECTION_NULL, SECTION_TEXT, SECTION_SYMTAB, SECTION_STRTAB, NR_SECTIONS };

struct names_object {
	Elf64_Ehdr header;
	Elf64_Shdr sections[NR_SECTIONS];
	Elf64_Sym symbols[2];
	char strings[]; /* section names, then the symbol's */
};

/* A named block. */
struct name {
	struct name *next;
	const void *rx;
	struct jit_code_entry entry;
	struct names_object object; /* last: it has the name behind it */
};

#define NR_BUCKETS 1024u

static pthread_mutex_t names_lock = PTHREAD_MUTEX_INITIALIZER;
static struct name *buckets[NR_BUCKETS]; /* of GDB's */
static unsigned enabled;                 /* enum shunt_names; atomic */
static uint32_t nr_names;                /* in buckets; atomic */
static FILE *perf_map;
static pid_t perf_pid;

static struct name **bucket_of(const void *rx)
{
	return &buckets[(uintptr_t)rx / SHUNT_CHUNK_SIZE % NR_BUCKETS];
}

int shunt_names_enable(unsigned names)
{
	if (names & ~(unsigned)(SHUNT_NAMES_PERF | SHUNT_NAMES_GDB))
		return shunt_fail(EINVAL, "names %#x: only SHUNT_NAMES_PERF and SHUNT_NAMES_GDB are known", names);
	__atomic_fetch_or(&enabled, names, __ATOMIC_RELAXED);
	return 0;
}

/* ---- perf ------------------------------------------------------------------------------------------------------ */

/* The file of this process, which after a fork is another one. NULL with errno. */
static FILE *open_perf_map(void)
{
	char path[64];
	int fd;

	if (perf_map && perf_pid == getpid())
		return perf_map;
	if (perf_map)
		fclose(perf_map);
	perf_map = NULL;
	perf_pid = getpid();
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", (int)perf_pid);
	/* In a folder that all may write to: no link of somebody else's is followed, and a file of an earlier process is kept from growing. */
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd >= 0)
		perf_map = fdopen(fd, "w");
	if (fd >= 0 && !perf_map)
		close(fd);
	return perf_map;
}

static int add_perf(const struct shunt_block *block, const char *name)
{
	FILE *map = open_perf_map();

	if (map && fprintf(map, "%lx %zx %s\n", (unsigned long)(uintptr_t)block->rx, block->len, name) > 0 && fflush(map) == 0)
		return 0;
	return -(errno ? errno : EIO);
}

/* ---- GDB ------------------------------------------------------------------------------------------------------- */

static const char section_names[] = "\0.text\0.symtab\0.strtab";
enum { NAME_TEXT = 1, NAME_SYMTAB = 7, NAME_STRTAB = 15 };

static void fill_object(struct names_object *object, const struct shunt_block *block, const char *name)
{
	size_t strings_len = sizeof(section_names) + strlen(name) + 1;

	memcpy(object->header.e_ident, ELFMAG, SELFMAG);
	object->header.e_ident[EI_CLASS] = ELFCLASS64;
	object->header.e_ident[EI_DATA] = ELFDATA2LSB;
	object->header.e_ident[EI_VERSION] = EV_CURRENT;
	object->header.e_type = ET_REL;
#if defined(__x86_64__)
	object->header.e_machine = EM_X86_64;
#else
	object->header.e_machine = EM_AARCH64;
#endif
	object->header.e_version = EV_CURRENT;
	object->header.e_shoff = offsetof(struct names_object, sections);
	object->header.e_ehsize = sizeof(Elf64_Ehdr);
	object->header.e_shentsize = sizeof(Elf64_Shdr);
	object->header.e_shnum = NR_SECTIONS;
	object->header.e_shstrndx = SECTION_STRTAB;
	/* In the process's memory already: an address and a length are all that it needs. */
	object->sections[SECTION_TEXT] = (Elf64_Shdr){
		.sh_name = NAME_TEXT,
		.sh_type = SHT_NOBITS,
		.sh_flags = SHF_ALLOC | SHF_EXECINSTR,
		.sh_addr = (uintptr_t)block->rx,
		.sh_size = block->len,
		.sh_addralign = SHUNT_CHUNK_SIZE,
	};
	object->sections[SECTION_SYMTAB] = (Elf64_Shdr){
		.sh_name = NAME_SYMTAB,
		.sh_type = SHT_SYMTAB,
		.sh_offset = offsetof(struct names_object, symbols),
		.sh_size = sizeof(object->symbols),
		.sh_link = SECTION_STRTAB,
		.sh_info = 1,
		.sh_addralign = 8,
		.sh_entsize = sizeof(Elf64_Sym),
	};
	object->sections[SECTION_STRTAB] = (Elf64_Shdr){
		.sh_name = NAME_STRTAB,
		.sh_type = SHT_STRTAB,
		.sh_offset = offsetof(struct names_object, strings),
		.sh_size = strings_len,
		.sh_addralign = 1,
	};
	object->symbols[1] = (Elf64_Sym){
		.st_name = sizeof(section_names),
		.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
		.st_shndx = SECTION_TEXT,
		.st_size = block->len,
	};
	memcpy(object->strings, section_names, sizeof(section_names));
	strcpy(object->strings + sizeof(section_names), name);
}

static void tell_gdb(struct name *name, uint32_t action)
{
	struct jit_code_entry *entry = &name->entry;

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

static int add_gdb(const struct shunt_block *block, const char *text)
{
	size_t object_len = sizeof(struct names_object) + sizeof(section_names) + strlen(text) + 1;
	struct name *name = calloc(1, offsetof(struct name, object) + object_len);
	struct name **bucket = bucket_of(block->rx);

	if (!name)
		return -ENOMEM;
	name->rx = block->rx;
	fill_object(&name->object, block, text);
	name->entry.symfile_addr = (const char *)&name->object;
	name->entry.symfile_size = object_len;
	name->next = *bucket;
	*bucket = name;
	__atomic_fetch_add(&nr_names, 1, __ATOMIC_RELAXED);
	tell_gdb(name, JIT_REGISTER);
	return 0;
}

void shunt_names_forget(const void *rx)
{
	struct name **link;

	if (!__atomic_load_n(&nr_names, __ATOMIC_RELAXED))
		return;
	pthread_mutex_lock(&names_lock);
	link = bucket_of(rx);
	while (*link) {
		struct name *name = *link;

		if (name->rx != rx) {
			link = &name->next;
			continue;
		}
		*link = name->next;
		__atomic_fetch_sub(&nr_names, 1, __ATOMIC_RELAXED);
		tell_gdb(name, JIT_UNREGISTER);
		free(name);
	}
	pthread_mutex_unlock(&names_lock);
}

int shunt_pack_name(const struct shunt_block *block, const char *name)
{
	unsigned names = __atomic_load_n(&enabled, __ATOMIC_RELAXED);
	struct shunt_arena *arena;
	struct shunt_pack *pack;
	const char *why;
	uint32_t first, nr;
	int err = 0;

	if (!names)
		return 0;
	if (!name || !*name || strchr(name, '\n'))
		return shunt_fail(EINVAL, "name of block %p: must be one line of at least a character", block->rx);
	arena = shunt_arena_lock_owner(block->rx);
	why = arena ? shunt_pack_check(arena, block, &pack, &first, &nr) : "lies in no arena";
	if (!why) {
		pthread_mutex_lock(&names_lock);
		if (names & SHUNT_NAMES_PERF)
			err = add_perf(block, name);
		if (!err && (names & SHUNT_NAMES_GDB))
			err = add_gdb(block, name);
		pthread_mutex_unlock(&names_lock);
	}
	if (arena)
		pthread_mutex_unlock(&arena->lock);
	if (why)
		return shunt_fail(EINVAL, "name %s: block %p %s", name, block->rx, why);
	return err ? shunt_fail(-err, "name %s of block %p: %s", name, block->rx, err == -ENOMEM ? "out of memory" : strerror(-err)) : 0;
}
