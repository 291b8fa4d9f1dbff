/* SPDX-License-Identifier: MIT */
/*
 * What a system may lack that some tests are about, each found by trying it. Emulators of the user instruction set lack all of them. A test
 * that cannot run says why: if (lacks_second_views()) cr_skip_test(LACKS_SECOND_VIEWS).
 */
#ifndef TEST_LACKS_H
#define TEST_LACKS_H

#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

#define LACKS_SECOND_VIEWS "this system maps no memory a second time (mremap of length 0 fails, as under qemu-user)"
#define LACKS_ADDRESS_LIMIT "this system does not obey RLIMIT_AS (as qemu-user does not)"
#define LACKS_PROCESS_READ "this system has no process_vm_readv (as qemu-user has not)"
#define LACKS_ADVICE "this system ignores what madvise is told (as qemu-user does)"

static inline bool lacks_second_views(void)
{
	size_t len = (size_t)sysconf(_SC_PAGESIZE);
	void *first = mmap(NULL, len, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	void *second = mremap(first, 0, len, MREMAP_MAYMOVE);

	munmap(first, len);
	if (second != MAP_FAILED)
		munmap(second, len);
	return second == MAP_FAILED;
}

static inline bool lacks_address_limit(void)
{
	struct rlimit old, low; /* C++ includes this, too */
	void *p;

	if (getrlimit(RLIMIT_AS, &old) != 0)
		return true;
	low.rlim_cur = 1 << 20;
	low.rlim_max = old.rlim_max;
	if (setrlimit(RLIMIT_AS, &low) != 0)
		return true;
	p = mmap(NULL, 1 << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p != MAP_FAILED)
		munmap(p, 1 << 30);
	setrlimit(RLIMIT_AS, &old);
	return p != MAP_FAILED;
}

static inline bool lacks_process_read(void)
{
	char from = 1, to = 0;
	struct iovec local = { &to, 1 }, remote = { &from, 1 };

	return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != 1 && errno == ENOSYS;
}

static inline bool lacks_advice(void)
{
	return madvise(NULL, (size_t)sysconf(_SC_PAGESIZE), 0x5eed) == 0;
}

#endif
