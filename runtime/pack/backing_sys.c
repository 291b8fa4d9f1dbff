/* SPDX-License-Identifier: MIT */
/* The table of system calls; a wrapper where the C library's function has another shape. */
#include "runtime/pack/backing_sys.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/machine.h"

static void *sys_mremap(void *old_addr, size_t old_len, size_t new_len, int flags, void *new_addr)
{
	return mremap(old_addr, old_len, new_len, flags, new_addr);
}

static int sys_add_seals(int fd, int seals)
{
	return fcntl(fd, F_ADD_SEALS, seals);
}

static int sys_open(const char *path, int flags)
{
	return open(path, flags);
}

static int sys_dup_fd(int fd)
{
	return fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

/* Its first argument is an enum in the C library's headers, of its own for C++. */
static int sys_getrlimit(int resource, struct rlimit *limit)
{
	return getrlimit((__rlimit_resource_t)resource, limit);
}

static int sys_membarrier(int cmd)
{
	return (int)syscall(SYS_membarrier, cmd, 0, 0);
}

#define NODES_MAX 1024 /* that a kernel is built for */

/* The numbers are those of linux/mempolicy.h, which not all systems have. */
static int sys_nodes_allowed(uint64_t *mask)
{
	unsigned long nodes[NODES_MAX / (8 * sizeof(long))] = { 0 };
	const unsigned long mems_allowed = 4; /* MPOL_F_MEMS_ALLOWED */

	if (syscall(SYS_get_mempolicy, NULL, nodes, (unsigned long)NODES_MAX, NULL, mems_allowed) != 0)
		return -1;
	*mask = nodes[0];
	return 0;
}

static int sys_node_here(void)
{
	unsigned cpu, node;

	return getcpu(&cpu, &node) == 0 ? (int)node : -1;
}

static int sys_prefer_node(void *addr, size_t len, int node)
{
	unsigned long nodes[2] = { 1ul << node };
	const unsigned long preferred = 1; /* MPOL_PREFERRED */

	return (int)syscall(SYS_mbind, addr, len, preferred, nodes, (unsigned long)(8 * sizeof(nodes)), 0);
}

static size_t sys_page_size(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

struct shunt_sys shunt_sys = {
	.mmap = mmap,
	.munmap = munmap,
	.mremap = sys_mremap,
	.madvise = madvise,
	.mprotect = mprotect,
	.memfd_create = memfd_create,
	.ftruncate = ftruncate,
	.fallocate = fallocate,
	.add_seals = sys_add_seals,
	.open = sys_open,
	.read = read,
	.dup_fd = sys_dup_fd,
	.close = close,
	.pipe2 = pipe2,
	.poll = poll,
	.getrlimit = sys_getrlimit,
	.getrandom = getrandom,
	.membarrier = sys_membarrier,
	.thread_create = pthread_create,
	.nodes_allowed = sys_nodes_allowed,
	.node_here = sys_node_here,
	.prefer_node = sys_prefer_node,
	.page_size = sys_page_size,
	.guard_prot = shunt_machine_guard_prot,
};
