/* SPDX-License-Identifier: MIT */
/* The table of system calls; a wrapper where the C library's function has another shape. */
#include "runtime/pack/backing_sys.h"

#include <fcntl.h>
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
	.page_size = sys_page_size,
	.guard_prot = shunt_machine_guard_prot,
};
