/* SPDX-License-Identifier: MIT */
/*
 * The system calls that packs and arenas are made with, behind one table, so that a test can make each of them fail in turn. The
 * library itself never changes the table.
 */
#ifndef RUNTIME_BACKING_SYS_H
#define RUNTIME_BACKING_SYS_H

#include <stddef.h>
#include <sys/types.h>

struct shunt_sys {
	void *(*mmap)(void *addr, size_t len, int prot, int flags, int fd, off_t offset);
	int (*munmap)(void *addr, size_t len);
	void *(*mremap)(void *old_addr, size_t old_len, size_t new_len, int flags, void *new_addr);
	int (*memfd_create)(const char *name, unsigned flags);
	int (*ftruncate)(int fd, off_t len);
	int (*fallocate)(int fd, int mode, off_t offset, off_t len);
	int (*madvise)(void *addr, size_t len, int advice);
	int (*mprotect)(void *addr, size_t len, int prot);
	int (*add_seals)(int fd, int seals);
};

extern struct shunt_sys shunt_sys;

#endif
