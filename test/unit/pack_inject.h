/* SPDX-License-Identifier: MIT */
/*
 * Another system under the packs: each call of runtime/pack/backing_sys.h is counted and can be made to fail, by its number, by its kind, or
 * from a number on. Where a test is linked with the allocator's functions wrapped (PACK_INJECT_ALLOC), these count too.
 */
#ifndef TEST_UNIT_PACK_INJECT_H
#define TEST_UNIT_PACK_INJECT_H

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "runtime/pack/backing_sys.h"
#include <shunt/pack.h>

enum kind {
	NONE, MMAP, MUNMAP, MREMAP, MADVISE, MPROTECT, MEMFD_CREATE, FTRUNCATE, FALLOCATE, ADD_SEALS, OPEN, READ, DUP_FD, CLOSE, PIPE2, POLL,
	GETRLIMIT, GETRANDOM, MEMBARRIER, THREAD_CREATE, NODES_ALLOWED, NODE_HERE, PREFER_NODE, ALLOC, NR_KINDS
};
static const char *const kind_names[NR_KINDS] = {
	"none", "mmap", "munmap", "mremap", "madvise", "mprotect", "memfd_create", "ftruncate", "fallocate", "add_seals", "open", "read", "dup_fd",
	"close", "pipe2", "poll", "getrlimit", "getrandom", "membarrier", "thread_create", "nodes_allowed", "node_here",
	"prefer_node", "alloc"
};

static struct {
	unsigned nr_calls;             /* so far */
	unsigned fail_at;              /* the number of the call that fails; 0: none */
	bool fail_on;                  /* and all that come after it */
	enum kind fail_kinds[4];       /* all calls of these fail */
	bool no_doubling;              /* mremap of length 0 fails */
	int worst_rung;                /* better memfds are refused */
	int refused_advice;            /* of madvise */
	size_t page_size;              /* this machine has such pages; 0: what it has. A multiple of those */
	const char *misaligned;        /* a call that such a machine would refuse */
	int guard_prot;                /* what guards indirect branches there */
	unsigned nr_guarded;           /* executable mappings with that */
	unsigned nr_unguarded;         /* and without */
	uint64_t nodes;                /* this machine has these; 0: what it has */
	int here;                      /* the calling thread's */
	int preferred[64];             /* of how many views each was asked for */
	bool no_pool;                  /* the pool of 2 MiB pages is empty; else base pages play it */
	int error;                     /* what failing calls say; 0: EACCES */
	unsigned nr_failed[NR_KINDS];  /* by the number */
} inject;
static struct shunt_sys real;

static inline bool inject_fails(enum kind kind)
{
	unsigned number = __atomic_add_fetch(&inject.nr_calls, 1, __ATOMIC_RELAXED);
	bool now = inject.fail_at && (number == inject.fail_at || (inject.fail_on && number > inject.fail_at));

	if (now)
		inject.nr_failed[kind]++;
	for (int i = 0; i < 4; i++)
		now |= inject.fail_kinds[i] == kind;
	if (now)
		errno = inject.error ? inject.error : EACCES;
	return now;
}

/* As a machine with the played pages sees it; the system below has smaller ones. */
static inline bool inject_refuses(const char *name, const void *addr, size_t len)
{
	if (!inject.page_size || !(((uintptr_t)addr | len) & (inject.page_size - 1)))
		return false;
	inject.misaligned = name;
	errno = EINVAL;
	return true;
}

/* A free place as that machine gives it; NULL where this one's will do. */
static inline void *inject_place(size_t len)
{
	char *p = inject.page_size ? real.mmap(NULL, len + inject.page_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) : NULL;
	size_t head = -(uintptr_t)p & (inject.page_size - 1);

	if (!p || p == MAP_FAILED)
		return NULL;
	if (head)
		real.munmap(p, head);
	real.munmap(p + head + len, inject.page_size - head);
	return p + head;
}

static inline int inject_prot(int prot)
{
	if (prot & PROT_EXEC) {
		if (inject.guard_prot && prot & inject.guard_prot)
			inject.nr_guarded++;
		else
			inject.nr_unguarded++;
	}
	return prot & ~inject.guard_prot;
}

static inline size_t inject_page_size(void)
{
	return inject.page_size ? inject.page_size : real.page_size();
}

static inline int inject_guard_prot(void)
{
	return inject.guard_prot ? inject.guard_prot : real.guard_prot();
}

static inline void *inject_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
	if (inject_refuses("mmap", flags & (MAP_FIXED | 0x100000) ? addr : NULL, len | (size_t)offset))
		return MAP_FAILED;
	prot = inject_prot(prot);
	if (inject_fails(MMAP))
		return MAP_FAILED;
	if (inject.page_size && !(flags & (MAP_FIXED | 0x100000))) {
		addr = inject_place(len);
		flags |= MAP_FIXED;
	}
	return real.mmap(addr, len, prot, flags, fd, offset);
}

static inline int inject_munmap(void *addr, size_t len)
{
	if (inject_refuses("munmap", addr, len))
		return -1;
	return inject_fails(MUNMAP) ? -1 : real.munmap(addr, len);
}

static inline void *inject_mremap(void *old_addr, size_t old_len, size_t new_len, int flags, void *new_addr)
{
	if (inject_refuses("mremap", flags & MREMAP_FIXED ? (void *)((uintptr_t)old_addr | (uintptr_t)new_addr) : old_addr, old_len | new_len))
		return MAP_FAILED;
	if (inject_fails(MREMAP))
		return MAP_FAILED;
	if (inject.no_doubling && !old_len) {
		errno = EPERM;
		return MAP_FAILED;
	}
	if (inject.page_size && !(flags & MREMAP_FIXED)) {
		new_addr = inject_place(new_len);
		flags |= MREMAP_FIXED;
	}
	return real.mremap(old_addr, old_len, new_len, flags, new_addr);
}

static inline int inject_madvise(void *addr, size_t len, int advice)
{
	if (inject_refuses("madvise", addr, len))
		return -1;
	if (inject_fails(MADVISE))
		return -1;
	if (inject.refused_advice && advice == inject.refused_advice) {
		errno = EINVAL;
		return -1;
	}
	return real.madvise(addr, len, advice);
}

static inline int inject_mprotect(void *addr, size_t len, int prot)
{
	if (inject_refuses("mprotect", addr, len))
		return -1;
	prot = inject_prot(prot);
	return inject_fails(MPROTECT) ? -1 : real.mprotect(addr, len, prot);
}

static inline int inject_memfd_create(const char *name, unsigned flags)
{
	int rung = flags & 0x8 ? SHUNT_BACKING_MEMFD_NOEXEC_SEAL : flags & 0x10 ? SHUNT_BACKING_MEMFD_EXEC : SHUNT_BACKING_MEMFD;
	unsigned pool = 0x4 /* MFD_HUGETLB */ | 21u << 26;

	if (inject_fails(MEMFD_CREATE))
		return -1;
	if (rung < inject.worst_rung || (flags & 0x4 && inject.no_pool)) {
		errno = EINVAL;
		return -1;
	}
	return real.memfd_create(name, flags & 0x4 ? flags & ~pool : flags);
}

static inline int inject_ftruncate(int fd, off_t len)
{
	return inject_fails(FTRUNCATE) ? -1 : real.ftruncate(fd, len);
}

static inline int inject_fallocate(int fd, int mode, off_t offset, off_t len)
{
	return inject_fails(FALLOCATE) ? -1 : real.fallocate(fd, mode, offset, len);
}

static inline int inject_add_seals(int fd, int seals)
{
	return inject_fails(ADD_SEALS) ? -1 : real.add_seals(fd, seals);
}

static inline int inject_open(const char *path, int flags)
{
	return inject_fails(OPEN) ? -1 : real.open(path, flags);
}

static inline ssize_t inject_read(int fd, void *to, size_t len)
{
	return inject_fails(READ) ? -1 : real.read(fd, to, len);
}

static inline int inject_dup_fd(int fd)
{
	return inject_fails(DUP_FD) ? -1 : real.dup_fd(fd);
}

/* Linux closes whatever it says. */
static inline int inject_close(int fd)
{
	bool fails = inject_fails(CLOSE);
	int err = real.close(fd);

	return fails ? -1 : err;
}

static inline int inject_pipe2(int fds[2], int flags)
{
	return inject_fails(PIPE2) ? -1 : real.pipe2(fds, flags);
}

static inline int inject_poll(struct pollfd *fds, nfds_t nr, int timeout_ms)
{
	return inject_fails(POLL) ? -1 : real.poll(fds, nr, timeout_ms);
}

static inline int inject_getrlimit(int resource, struct rlimit *limit)
{
	return inject_fails(GETRLIMIT) ? -1 : real.getrlimit(resource, limit);
}

static inline ssize_t inject_getrandom(void *to, size_t len, unsigned flags)
{
	return inject_fails(GETRANDOM) ? -1 : real.getrandom(to, len, flags);
}

static inline int inject_membarrier(int cmd)
{
	return inject_fails(MEMBARRIER) ? -1 : real.membarrier(cmd);
}

static inline int inject_thread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *user)
{
	return inject_fails(THREAD_CREATE) ? errno : real.thread_create(thread, attr, start, user);
}

static inline int inject_nodes_allowed(uint64_t *mask)
{
	if (inject_fails(NODES_ALLOWED))
		return -1;
	*mask = inject.nodes;
	return inject.nodes ? 0 : real.nodes_allowed(mask);
}

static inline int inject_node_here(void)
{
	return inject_fails(NODE_HERE) ? -1 : inject.nodes ? inject.here : real.node_here();
}

static inline int inject_prefer_node(void *addr, size_t len, int node)
{
	if (inject_fails(PREFER_NODE))
		return -1;
	inject.preferred[node]++;
	return inject.nodes ? 0 : real.prefer_node(addr, len, node);
}

static inline void inject_begin(void)
{
	real = shunt_sys;
	shunt_sys.mmap = inject_mmap;
	shunt_sys.munmap = inject_munmap;
	shunt_sys.mremap = inject_mremap;
	shunt_sys.madvise = inject_madvise;
	shunt_sys.mprotect = inject_mprotect;
	shunt_sys.memfd_create = inject_memfd_create;
	shunt_sys.ftruncate = inject_ftruncate;
	shunt_sys.fallocate = inject_fallocate;
	shunt_sys.add_seals = inject_add_seals;
	shunt_sys.open = inject_open;
	shunt_sys.read = inject_read;
	shunt_sys.dup_fd = inject_dup_fd;
	shunt_sys.close = inject_close;
	shunt_sys.pipe2 = inject_pipe2;
	shunt_sys.poll = inject_poll;
	shunt_sys.getrlimit = inject_getrlimit;
	shunt_sys.getrandom = inject_getrandom;
	shunt_sys.membarrier = inject_membarrier;
	shunt_sys.thread_create = inject_thread_create;
	shunt_sys.page_size = inject_page_size;
	shunt_sys.guard_prot = inject_guard_prot;
	shunt_sys.nodes_allowed = inject_nodes_allowed;
	shunt_sys.node_here = inject_node_here;
	shunt_sys.prefer_node = inject_prefer_node;
}

#ifdef PACK_INJECT_ALLOC
void *__real_malloc(size_t len);
void *__real_calloc(size_t nr, size_t len);
void *__real_realloc(void *old, size_t len);
void *__wrap_malloc(size_t len);
void *__wrap_calloc(size_t nr, size_t len);
void *__wrap_realloc(void *old, size_t len);

void *__wrap_malloc(size_t len)
{
	return real.mmap && inject_fails(ALLOC) ? NULL : __real_malloc(len);
}

void *__wrap_calloc(size_t nr, size_t len)
{
	return real.mmap && inject_fails(ALLOC) ? NULL : __real_calloc(nr, len);
}

void *__wrap_realloc(void *old, size_t len)
{
	return real.mmap && inject_fails(ALLOC) ? NULL : __real_realloc(old, len);
}
#endif

#endif
