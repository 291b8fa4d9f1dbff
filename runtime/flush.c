/* SPDX-License-Identifier: MIT */
/*
 * qemu-user up to 8.0 translates code page by page and keeps the translation until somebody writes to the page through the same
 * address, or maps it anew. A write through the other view of a pack is neither, and `ic ivau` does nothing there: a program that
 * replaced a freed one would never run. Mapping the same memory over itself changes nothing for whoever runs in it, and makes that
 * emulator drop its translations; mremap in place would leave a moment without any mapping in its books. It takes the memory's
 * descriptor, which therefore stays open on such a machine only. The same descriptor shows a page a second time, where mremap cannot.
 *
 * Whether this is needed is tried, not guessed from a version: two functions at one place, the second written through an alias.
 */
#include "runtime/flush.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include "runtime/grace.h"
#include "runtime/log.h"
#include "runtime/machine.h"
#include "runtime/pack/backing_sys.h"

static pthread_once_t advice_once = PTHREAD_ONCE_INIT;
static bool advice_is_ignored;

static void probe_advice(void)
{
	size_t page_size = shunt_machine_page_size();
	void *page = shunt_sys.mmap(NULL, page_size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		return;
	/* No advice has this number: a kernel says EINVAL. */
	advice_is_ignored = shunt_sys.madvise(page, page_size, 0x5eed) == 0;
	shunt_sys.munmap(page, page_size);
}

bool shunt_advice_is_ignored(void)
{
	pthread_once(&advice_once, probe_advice);
	return advice_is_ignored;
}

#if defined(__aarch64__)

static pthread_once_t stale_once = PTHREAD_ONCE_INIT;
static bool keeps_stale_code;

/* Memory with an executable view at rx; guarded by views_lock, which is a leaf. */
struct view {
	struct view *next;
	char *rx;
	size_t len;
	off_t offset;
	int fd;
	int prot;
};

static pthread_mutex_t views_lock = PTHREAD_MUTEX_INITIALIZER;
static struct view *views;

static struct view *view_at(const void *rx)
{
	struct view *view = views;

	while (view && (uintptr_t)rx - (uintptr_t)view->rx >= view->len)
		view = view->next;
	return view;
}

static bool map_again(const struct view *view, const void *rx, size_t len)
{
	size_t page_size = shunt_machine_page_size();
	uintptr_t first = (uintptr_t)rx & ~(page_size - 1);
	uintptr_t end = ((uintptr_t)rx + len + page_size - 1) & ~(page_size - 1);

	return shunt_sys.mmap((void *)first, end - first, view->prot, MAP_SHARED | MAP_FIXED, view->fd,
		    view->offset + (off_t)(first - (uintptr_t)view->rx)) != MAP_FAILED;
}

static void forget(const void *rx)
{
	struct view **link = &views;
	struct view *view;

	while (*link && (*link)->rx != rx)
		link = &(*link)->next;
	view = *link;
	if (!view)
		return;
	*link = view->next;
	shunt_sys.close(view->fd);
	free(view);
}

/* Takes fd. */
static int keep(const struct view *wanted)
{
	struct view *view = malloc(sizeof(*view));

	if (!view) {
		shunt_sys.close(wanted->fd);
		return -ENOMEM;
	}
	/* A fork's child, or a stub that is adopted again: a new view in the place of an old one. */
	forget(wanted->rx);
	*view = *wanted;
	view->next = views;
	views = view;
	return 0;
}

static void write_return(uint32_t *to, uint32_t number)
{
	to[0] = 0xd503245fu;               /* bti c */
	to[1] = 0x52800000u | number << 5; /* mov w0, number */
	to[2] = 0xd65f03c0u;               /* ret */
}

static bool runs_after_write(const uint32_t *rx, uint32_t *rw, uint32_t number, const struct view *again)
{
	write_return(rw, number);
	shunt_machine_maintain(rx, rw, 3 * sizeof(*rw));
	if (again && !map_again(again, rx, 3 * sizeof(*rx)))
		return false;
	return ((uint32_t (*)(void))(uintptr_t)rx)() == number;
}

static void probe_pages(uint32_t *rx, uint32_t *rw, size_t len, int fd)
{
	const struct view view = { .rx = (char *)rx, .len = len, .fd = fd, .prot = PROT_READ | PROT_EXEC };

	keeps_stale_code = runs_after_write(rx, rw, 1, NULL) && !runs_after_write(rx, rw, 2, NULL);
	if (keeps_stale_code && !runs_after_write(rx, rw, 3, &view))
		shunt_logf(SHUNT_LOG_ERROR, "this machine goes on running code that was replaced; no way was found to stop it");
}

static void probe_stale_code(void)
{
	size_t page_size = shunt_machine_page_size();
	struct rlimit limit;
	void *rx, *rw;
	int fd;

	/* Without a memfd nothing is found out, and the emulator in question cannot make a pack either. A limit makes ftruncate kill. */
	if (shunt_sys.getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur < page_size)
		return;
	fd = shunt_sys.memfd_create("shunt-probe", MFD_CLOEXEC);
	if (fd < 0)
		return;
	if (shunt_sys.ftruncate(fd, (off_t)page_size) == 0) {
		rw = shunt_sys.mmap(NULL, page_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		rx = shunt_sys.mmap(NULL, page_size, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
		if (rw != MAP_FAILED && rx != MAP_FAILED)
			probe_pages(rx, rw, page_size, fd);
		if (rw != MAP_FAILED)
			shunt_sys.munmap(rw, page_size);
		if (rx != MAP_FAILED)
			shunt_sys.munmap(rx, page_size);
	}
	shunt_sys.close(fd);
}

/*
 * A QEMU that emulates a machine (7.2 was tried), a host thread for each CPU: a store to translated code drops the translation first and
 * stores then. A CPU that comes along in between translates the old bytes again and keeps that, since `ic ivau` does nothing: it goes
 * on jumping to a tree that a grace period later is gone. A second store of the same bytes drops that translation too, once whoever is
 * just translating has come to its end, which a SYNC_CORE makes certain. The architecture does not count a store of equal bytes as a
 * modification. QEMU's own CPU says that nobody made it: implementer 0.
 */
static bool is_cpu_of_qemu(void)
{
	static int answer; /* 0: not asked yet, 1: no, 2: yes */
	uint64_t midr;
	int known = __atomic_load_n(&answer, __ATOMIC_RELAXED);

	if (!known) {
		known = 1;
		if (getauxval(AT_HWCAP) & HWCAP_CPUID) {
			__asm__("mrs %0, midr_el1" : "=r"(midr));
			known += (midr >> 24 & 0xff) == 0;
		}
		__atomic_store_n(&answer, known, __ATOMIC_RELAXED);
	}
	return known == 2;
}

void shunt_flush_patched(uint64_t *live, uint64_t word)
{
	uint64_t expected = word;

	if (is_cpu_of_qemu())
		(void)shunt_sync_core();
	/* Not if a debugger stored something else meanwhile. */
	(void)__atomic_compare_exchange_n(live, &expected, word, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

bool shunt_stale_code_is_kept(void)
{
	pthread_once(&stale_once, probe_stale_code);
	return keeps_stale_code;
}

void shunt_flush(const void *rx, size_t len)
{
	const struct view *view;

	if (!shunt_stale_code_is_kept() || !len)
		return;
	pthread_mutex_lock(&views_lock);
	view = view_at(rx);
	if (!view || !map_again(view, rx, len))
		shunt_logf(SHUNT_LOG_ERROR, "code at %p: this emulator may run what was there before, mapping it anew failed: %s", rx,
			   view ? strerror(errno) : "its memory has no file");
	pthread_mutex_unlock(&views_lock);
}

int shunt_flush_take_fd(void *rx, size_t len, int fd, int prot)
{
	struct view view = { .rx = rx, .len = len, .fd = fd, .prot = prot };
	int err;

	if (!(prot & PROT_EXEC) || !shunt_stale_code_is_kept()) {
		shunt_sys.close(fd);
		return 0;
	}
	pthread_mutex_lock(&views_lock);
	err = keep(&view);
	pthread_mutex_unlock(&views_lock);
	return err;
}

void shunt_flush_forget(const void *rx)
{
	pthread_mutex_lock(&views_lock);
	forget(rx);
	pthread_mutex_unlock(&views_lock);
}

int shunt_flush_show(const void *rx, void *fixed_addr, size_t len)
{
	const struct view *view;
	struct view shown = { .rx = fixed_addr, .len = len };
	int err = -ENOTSUP;

	pthread_mutex_lock(&views_lock);
	view = view_at(rx);
	if (view) {
		shown.prot = view->prot;
		shown.offset = view->offset + ((const char *)rx - view->rx);
		shown.fd = shunt_sys.dup_fd(view->fd);
		err = shown.fd < 0 ? -errno : keep(&shown);
		if (!err && !map_again(&shown, fixed_addr, len)) {
			err = -errno;
			forget(fixed_addr);
		}
	}
	pthread_mutex_unlock(&views_lock);
	return err;
}

void shunt_flush_fork_prepare(void)
{
	pthread_mutex_lock(&views_lock);
}

void shunt_flush_fork_done(void)
{
	pthread_mutex_unlock(&views_lock);
}

#else

/* x86-64 keeps no stale code anywhere: its rules for self-modifying code are by physical address, and emulators follow them. */
void shunt_flush(const void *rx, size_t len)
{
	(void)rx;
	(void)len;
}

void shunt_flush_patched(uint64_t *live, uint64_t word)
{
	(void)live;
	(void)word;
}

bool shunt_stale_code_is_kept(void)
{
	return false;
}

int shunt_flush_take_fd(void *rx, size_t len, int fd, int prot)
{
	(void)rx;
	(void)len;
	(void)prot;
	shunt_sys.close(fd);
	return 0;
}

void shunt_flush_forget(const void *rx)
{
	(void)rx;
}

int shunt_flush_show(const void *rx, void *fixed_addr, size_t len)
{
	(void)rx;
	(void)fixed_addr;
	(void)len;
	return -ENOTSUP;
}

void shunt_flush_fork_prepare(void)
{
}

void shunt_flush_fork_done(void)
{
}

#endif
