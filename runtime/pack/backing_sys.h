/* SPDX-License-Identifier: MIT */
/*
 * The system calls that packs and arenas are made and freed with, and what they ask of the machine, behind one table: a test makes each of
 * them fail in turn, or shows another machine. Nothing under runtime/pack calls the system past it (test/unit/pack_seam.py looks), but
 * pack_names.c, whose files are for others to read. The library itself never changes the table.
 */
#ifndef RUNTIME_BACKING_SYS_H
#define RUNTIME_BACKING_SYS_H

#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

struct shunt_sys {
	/* memory */
	void *(*mmap)(void *addr, size_t len, int prot, int flags, int fd, off_t offset);
	int (*munmap)(void *addr, size_t len);
	void *(*mremap)(void *old_addr, size_t old_len, size_t new_len, int flags, void *new_addr);
	int (*madvise)(void *addr, size_t len, int advice);
	int (*mprotect)(void *addr, size_t len, int prot);
	/* files of memory, and others */
	int (*memfd_create)(const char *name, unsigned flags);
	int (*ftruncate)(int fd, off_t len);
	int (*fallocate)(int fd, int mode, off_t offset, off_t len);
	int (*add_seals)(int fd, int seals);
	int (*open)(const char *path, int flags);
	ssize_t (*read)(int fd, void *to, size_t len);
	int (*dup_fd)(int fd); /* close-on-exec */
	int (*close)(int fd);
	int (*pipe2)(int fds[2], int flags);
	int (*poll)(struct pollfd *fds, nfds_t nr, int timeout_ms);
	/* the process */
	int (*getrlimit)(int resource, struct rlimit *limit); /* resource: of RLIMIT_* */
	ssize_t (*getrandom)(void *to, size_t len, unsigned flags);
	int (*membarrier)(int cmd);
	int (*thread_create)(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *user); /* a positive errno */
	/* the machine */
	int (*nodes_allowed)(uint64_t *mask);                  /* get_mempolicy: nodes 0 to 63 that this process may have memory on */
	int (*node_here)(void);                                /* getcpu: the node that the calling thread runs on; negative: not known */
	int (*prefer_node)(void *addr, size_t len, int node);  /* mbind */
	size_t (*page_size)(void);
	int (*guard_prot)(void); /* shunt_machine_guard_prot */
};

extern struct shunt_sys shunt_sys;

#endif
