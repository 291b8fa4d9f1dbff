/* SPDX-License-Identifier: MIT */
/*
 * The backing ladder. A pack is made once and lives long (it costs 0.1 to 1 ms), so every step is checked and undone one by one
 * rather than made fast.
 *
 * Order of a memfd rung: map rw, seal against further writable views, collapse into 2 MiB pages while the memory is still empty, and
 * only where that fails populate base pages; then map rx and collapse that view. No page is ever writable and executable: after the
 * seal even this process cannot make the rx view writable.
 */
#include "runtime/pack/backing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/pack/backing_sys.h"
#include "runtime/flush.h"
#include "runtime/machine.h"

/* Linux 6.1 and 6.3; older C library headers lack them, older kernels answer EINVAL. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif
#ifndef MFD_HUGETLB
#define MFD_HUGETLB 0x0004U
#endif
#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21U << 26)
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

static const unsigned memfd_flags[] = {
	[SHUNT_BACKING_MEMFD_NOEXEC_SEAL] = MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL,
	[SHUNT_BACKING_MEMFD_EXEC] = MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC,
	[SHUNT_BACKING_MEMFD] = MFD_CLOEXEC | MFD_ALLOW_SEALING,
};

static int failed(struct shunt_backing_failure *failure, const char *step)
{
	failure->step = step;
	failure->err = errno ? errno : EIO;
	return -failure->err;
}

/* Puts a reservation where a view is; in one call, so that no other thread's mmap can take the range in between. */
static int vacate(void *addr, size_t len)
{
	void *p = shunt_sys.mmap(addr, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);

	return p == MAP_FAILED ? -errno : 0;
}

/* The same where nobody could be told of a failure: what stays mapped can at least not be reached, and is mapped over by the next pack here. */
static void vacate_or_close(void *addr, size_t len)
{
	if (vacate(addr, len) != 0)
		shunt_sys.mprotect(addr, len, PROT_NONE);
}

static int give_up_range(void *addr, size_t len)
{
	int err = -errno;

	shunt_sys.munmap(addr, len);
	return err;
}

int shunt_backing_reserve(void *addr, bool fixed, size_t len, void **out)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	char *aligned;
	char *p;
	size_t head;

	if (fixed) {
		p = shunt_sys.mmap(addr, len, PROT_NONE, flags | MAP_FIXED_NOREPLACE, -1, 0);
		if (p == MAP_FAILED)
			return -errno;
		if (p != addr) { /* a kernel before 4.17 takes the address for a hint */
			shunt_sys.munmap(p, len);
			return -EEXIST;
		}
		*out = p;
		return 0;
	}
	p = shunt_sys.mmap(addr, len + SHUNT_PACK_SIZE, PROT_NONE, flags, -1, 0);
	if (p == MAP_FAILED)
		return -errno;
	head = -(uintptr_t)p & (SHUNT_PACK_SIZE - 1);
	aligned = p + head;
	/* What was unmapped may be another thread's by now, so only the rest is when the second call fails. */
	if (head && shunt_sys.munmap(p, head) != 0)
		return give_up_range(p, len + SHUNT_PACK_SIZE);
	if (shunt_sys.munmap(aligned + len, SHUNT_PACK_SIZE - head) != 0)
		return give_up_range(aligned, len + SHUNT_PACK_SIZE - head);
	*out = aligned;
	return 0;
}

int shunt_backing_unmake(void *rx, void *rw, size_t len)
{
	int err = vacate(rx, len);

	if (err || rw == rx)
		return err;
	shunt_flush_forget(rx);
	/* The rx view is gone: what is left of rw is memory nobody can reach, so a refusal here is not worth failing for; the next
	 * pack at this place maps over it. */
	vacate_or_close(rw, len);
	return 0;
}

int shunt_backing_protect(void *addr, size_t len, int prot)
{
	return shunt_sys.mprotect(addr, len, prot) == 0 ? 0 : -errno;
}

int shunt_backing_drop_rw(void *rw, size_t len)
{
	return vacate(rw, len);
}

/* What one entry of the level above base pages maps: 2 MiB of 4 KiB pages, 32 MiB of 16 KiB pages, 512 MiB of 64 KiB pages. */
static size_t huge_size(void)
{
	size_t page_size = shunt_machine_page_size();

	return page_size * (page_size / sizeof(uint64_t));
}

/* Makes a view of 2 MiB pages; cheapest while the memory behind it is empty but for one page, or of such pages already. */
static bool collapse(const struct shunt_backing_spec *spec, void *view)
{
	/* An emulator that takes any advice for good has collapsed nothing. */
	if (!spec->huge || shunt_advice_is_ignored())
		return false;
	/* A view that holds no huge page as a whole is collapsed with success and without effect where it ends at the boundary of one. */
	if (spec->len % huge_size())
		return false;
	(void)*(volatile const char *)view;
	/* Only a hint for khugepaged; COLLAPSE is what counts. */
	shunt_sys.madvise(view, spec->len, MADV_HUGEPAGE);
	return shunt_sys.madvise(view, spec->len, MADV_COLLAPSE) == 0;
}

/* Pages of the view are wanted on a node. Where that may not be said (a container's filter) the first touch decides, and that is made by a
 * thread on the node. Said of one view of shared memory it holds for the memory, before any of it is there. */
static void prefer_node(const struct shunt_backing_spec *spec, void *view)
{
	if (spec->node != SHUNT_NODE_ANY)
		(void)shunt_sys.prefer_node(view, spec->len, spec->node);
}

static int make_private(const struct shunt_backing_spec *spec, struct shunt_backing_made *made, struct shunt_backing_failure *failure)
{
	void *p = shunt_sys.mmap(spec->rx, spec->len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

	if (p == MAP_FAILED)
		return failed(failure, "mapping private memory");
	prefer_node(spec, spec->rx);
	made->backing = spec->toggle ? SHUNT_BACKING_TOGGLE : SHUNT_BACKING_SHARED_ANON;
	made->bytes_huge = 0;
	return 0;
}

/* What a failed attempt mapped becomes a reservation again; mapping rx is the last step that can fail. In a fork's child rw was
 * a reservation too, made for this. */
static int undo(const struct shunt_backing_spec *spec, bool rw_taken, int fd, int err)
{
	if (rw_taken)
		vacate_or_close(spec->rw, spec->len);
	shunt_sys.close(fd);
	return err;
}

static int rx_prot_of(const struct shunt_backing_spec *spec)
{
	return PROT_READ | (spec->exec ? PROT_EXEC | (spec->guard ? shunt_sys.guard_prot() : 0) : 0);
}

static int make_memfd(const struct shunt_backing_spec *spec, enum shunt_backing backing, struct shunt_backing_made *made,
		      struct shunt_backing_failure *failure)
{
	int rx_prot = rx_prot_of(spec);
	bool is_huge;
	void *p;
	int fd = shunt_sys.memfd_create("shunt", memfd_flags[backing] | (spec->hugetlb ? MFD_HUGETLB | MFD_HUGE_2MB : 0));

	if (fd < 0)
		return failed(failure, "memfd_create");
	if (shunt_sys.ftruncate(fd, (off_t)spec->len) != 0)
		return undo(spec, false, fd, failed(failure, "sizing the memfd"));
	p = shunt_sys.mmap(spec->rw, spec->len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	if (p == MAP_FAILED)
		return undo(spec, false, fd, failed(failure, "mapping the rw view"));
	if (shunt_sys.madvise(spec->rw, spec->len, MADV_DONTFORK) != 0)
		return undo(spec, true, fd, failed(failure, "keeping the rw view from forks"));
	if (shunt_sys.add_seals(fd, F_SEAL_FUTURE_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0)
		return undo(spec, true, fd, failed(failure, "sealing the memfd"));
	prefer_node(spec, spec->rw);
	is_huge = !spec->hugetlb && collapse(spec, spec->rw);
	/* Base pages are reserved at once: a write into a memfd beyond what the system can give is SIGBUS. */
	if (!is_huge && shunt_sys.fallocate(fd, 0, 0, (off_t)spec->len) != 0)
		return undo(spec, true, fd, failed(failure, "reserving memory for the memfd"));
	if (spec->copy_from)
		memcpy(spec->rw, spec->copy_from, spec->len);
	p = shunt_sys.mmap(spec->rx, spec->len, rx_prot, (spec->debug ? MAP_PRIVATE : MAP_SHARED) | MAP_FIXED, fd, 0);
	if (p == MAP_FAILED)
		return undo(spec, true, fd, failed(failure, "mapping the rx view"));
	made->backing = backing;
	made->bytes_huge = spec->hugetlb || (is_huge && collapse(spec, spec->rx)) ? spec->len : 0;
	errno = -shunt_flush_take_fd(spec->rx, spec->len, fd, rx_prot);
	if (!errno)
		return 0;
	failed(failure, "noting the memfd");
	vacate_or_close(spec->rx, spec->len);
	vacate_or_close(spec->rw, spec->len);
	return -failure->err;
}

/* Without a file: memory that was never writable where it is executable, seen a second time by mremap of length 0, made writable
 * there. Works under RLIMIT_FSIZE, without memfd_create and where becoming executable after writing is denied. */
static int make_anon(const struct shunt_backing_spec *spec, struct shunt_backing_made *made, struct shunt_backing_failure *failure)
{
	int rx_prot = rx_prot_of(spec);
	int flags = MAP_SHARED | MAP_ANONYMOUS;
	void *rx = spec->rx;
	bool is_huge;
	void *p;
	int err;

	if (!spec->copy_from) {
		p = shunt_sys.mmap(rx, spec->len, rx_prot, flags | MAP_FIXED, -1, 0);
		if (p == MAP_FAILED)
			return failed(failure, "mapping shared anonymous memory for the rx view");
	} else {
		err = shunt_backing_reserve(NULL, false, spec->len, &rx);
		if (err) {
			errno = -err;
			return failed(failure, "finding room for the new rx view");
		}
		p = shunt_sys.mmap(rx, spec->len, rx_prot, flags | MAP_FIXED, -1, 0);
		if (p == MAP_FAILED) {
			failed(failure, "mapping shared anonymous memory for the rx view");
			goto fail;
		}
	}
	p = shunt_sys.mremap(rx, 0, spec->len, MREMAP_MAYMOVE | MREMAP_FIXED, spec->rw);
	if (p == MAP_FAILED) {
		failed(failure, "doubling the rx view by mremap");
		/* mremap may have unmapped its target before it failed */
		vacate_or_close(spec->rw, spec->len);
		goto fail;
	}
	if (shunt_sys.mprotect(spec->rw, spec->len, PROT_READ | PROT_WRITE) != 0) {
		failed(failure, "making the rw view writable");
		goto fail_rw;
	}
	if (shunt_sys.madvise(spec->rw, spec->len, MADV_DONTFORK) != 0) {
		failed(failure, "keeping the rw view from forks");
		goto fail_rw;
	}
	made->backing = SHUNT_BACKING_SHARED_ANON;
	prefer_node(spec, spec->rw);
	is_huge = collapse(spec, spec->rw);
	/* Before Linux 5.14 (EINVAL) the first touch populates instead. */
	if (!is_huge && shunt_sys.madvise(spec->rw, spec->len, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) {
		failed(failure, "reserving memory");
		goto fail_rw;
	}
	if (spec->copy_from) {
		memcpy(spec->rw, spec->copy_from, spec->len);
		p = shunt_sys.mremap(rx, spec->len, spec->len, MREMAP_MAYMOVE | MREMAP_FIXED, spec->rx);
		if (p == MAP_FAILED) {
			failed(failure, "putting the new rx view in place");
			goto fail_rw;
		}
	}
	made->bytes_huge = is_huge && collapse(spec, spec->rx) ? spec->len : 0;
	return 0;
fail_rw:
	vacate_or_close(spec->rw, spec->len);
fail:
	if (spec->copy_from)
		shunt_sys.munmap(rx, spec->len);
	else
		vacate_or_close(rx, spec->len);
	return -failure->err;
}

/* True when a memfd of that size would raise SIGXFSZ, which kills the process, instead of failing. */
static bool file_size_is_limited(size_t len)
{
	struct rlimit limit;

	/* Where the question fails there may be one. */
	return shunt_sys.getrlimit(RLIMIT_FSIZE, &limit) != 0 || (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < len);
}

int shunt_backing_make(const struct shunt_backing_spec *spec, struct shunt_backing_made *made, struct shunt_backing_failure *failure)
{
	static const enum shunt_backing ladder[] = {
		SHUNT_BACKING_MEMFD_NOEXEC_SEAL,
		SHUNT_BACKING_MEMFD_EXEC,
		SHUNT_BACKING_MEMFD,
	};

	if (spec->rx == spec->rw)
		return make_private(spec, made, failure);
	if (!spec->anon && !file_size_is_limited(spec->len)) {
		for (size_t i = 0; i < sizeof(ladder) / sizeof(ladder[0]); i++) {
			if (make_memfd(spec, ladder[i], made, failure) == 0)
				return 0;
		}
	}
	if (spec->hugetlb) {
		/* The pool is empty, or there is none: all the way again without it. */
		struct shunt_backing_spec without = *spec;

		without.hugetlb = false;
		return shunt_backing_make(&without, made, failure);
	}
	return make_anon(spec, made, failure);
}
