/* SPDX-License-Identifier: MIT */
/* Cache maintenance and membarrier(SYNC_CORE). Called once per batch of blocks, so the calls themselves need not be fast. */
#include "runtime/machine.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <stdint.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include "runtime/flush.h"
#include "runtime/grace.h"
#include "runtime/log.h"
#include "runtime/pack/backing_sys.h"

size_t shunt_machine_page_size(void)
{
	return shunt_sys.page_size();
}

#if defined(__aarch64__)

/* Linux 5.8; older C library headers lack them. */
#ifndef HWCAP2_BTI
#define HWCAP2_BTI (1 << 17)
#endif
#ifndef PROT_BTI
#define PROT_BTI 0x10
#endif

int shunt_machine_guard_prot(void)
{
	return getauxval(AT_HWCAP2) & HWCAP2_BTI ? PROT_BTI : 0;
}

bool shunt_machine_needs_finalize(void)
{
	return true;
}

/* Arm ARM B2.4.4: clean by the address that was written, invalidate by the address that is fetched; both views share a physical
 * line, but an instruction cache may be indexed by virtual address. CTR_EL0.IDC: data need not be cleaned; DIC: no invalidation. */
void shunt_machine_maintain(const void *rx, const void *rw, size_t len)
{
	uint64_t ctr;
	uintptr_t line_len;
	uintptr_t addr;

	if (!len)
		return;
	__asm__ volatile("mrs %0, ctr_el0" : "=r"(ctr));
	if (!(ctr >> 28 & 1)) {
		line_len = (uintptr_t)4 << (ctr >> 16 & 15);
		for (addr = (uintptr_t)rw & ~(line_len - 1); addr < (uintptr_t)rw + len; addr += line_len)
			__asm__ volatile("dc cvau, %0" : : "r"(addr) : "memory");
	}
	__asm__ volatile("dsb ish" : : : "memory");
	if (!(ctr >> 29 & 1)) {
		line_len = (uintptr_t)4 << (ctr & 15);
		for (addr = (uintptr_t)rx & ~(line_len - 1); addr < (uintptr_t)rx + len; addr += line_len)
			__asm__ volatile("ic ivau, %0" : : "r"(addr) : "memory");
		__asm__ volatile("dsb ish" : : : "memory");
	}
	__asm__ volatile("isb" : : : "memory");
}

#elif defined(__x86_64__)

/* Linux offers programs no guard of their indirect branches. */
int shunt_machine_guard_prot(void)
{
	return 0;
}

bool shunt_machine_needs_finalize(void)
{
	return false;
}

/* x86-64 detects self-modifying code by physical address: writes at rw reach fetches at rx. */
void shunt_machine_maintain(const void *rx, const void *rw, size_t len)
{
	(void)rx;
	(void)rw;
	(void)len;
}

#else
#error "Shunt runs on x86-64 and arm64"
#endif

void shunt_machine_sync_caches(const void *rx, const void *rw, size_t len)
{
	shunt_machine_maintain(rx, rw, len);
	shunt_flush(rx, len);
}

enum { SYNC_CORE_UNKNOWN, SYNC_CORE_READY, SYNC_CORE_MISSING };
static int sync_core_state;

/* Registration is of the process and idempotent, so threads may race here. One for which the kernel had no memory is asked for again next time. */
static int sync_core_register(void)
{
	int state = SYNC_CORE_MISSING;
	int supported;

	errno = 0;
	supported = shunt_sys.membarrier(MEMBARRIER_CMD_QUERY);
	if (supported > 0 && (supported & MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE) &&
	    shunt_sys.membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE) == 0)
		state = SYNC_CORE_READY;
	else if (errno == ENOMEM)
		return SYNC_CORE_UNKNOWN;
	if (state == SYNC_CORE_MISSING)
		shunt_logf(SHUNT_LOG_WARN, "membarrier(SYNC_CORE) is not available on this kernel: %s",
			   shunt_machine_needs_finalize() ? "generated code cannot be published on this CPU" :
							    "freed code is reused after a grace period only");
	__atomic_store_n(&sync_core_state, state, __ATOMIC_RELEASE);
	return state;
}

int shunt_sync_core(void)
{
	int state = __atomic_load_n(&sync_core_state, __ATOMIC_ACQUIRE);

	if (state == SYNC_CORE_UNKNOWN)
		state = sync_core_register();
	if (state == SYNC_CORE_READY) {
		if (shunt_sys.membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE) == 0)
			return 0;
		/* A process that lost its registration (an exec'ed image starts with fresh data, so only a kernel that does not
		 * inherit it across fork) gets one more try. */
		if (errno == EPERM && sync_core_register() == SYNC_CORE_READY &&
		    shunt_sys.membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE) == 0)
			return 0;
		return shunt_fail(errno, "membarrier(SYNC_CORE) failed although the kernel offers it; other CPUs may fetch old code");
	}
	if (state == SYNC_CORE_UNKNOWN)
		return shunt_fail(ENOMEM, "membarrier(SYNC_CORE) was not registered: the kernel has no memory for it; try again");
	if (!shunt_machine_needs_finalize())
		return 0;
	return shunt_fail(ENOSYS, "membarrier(SYNC_CORE) is missing: this CPU needs it before other threads may run new code; use Linux 4.16 or newer");
}

/* Well past what direct branches reach on any target, and small in any address space. */
#define FAR ((uintptr_t)16 << 30)
#define FAR_ALIGN ((uintptr_t)2 << 20)

void *shunt_machine_far_hint(size_t len)
{
	static uintptr_t used;
	uintptr_t here = (uintptr_t)&shunt_machine_far_hint & ~(FAR_ALIGN - 1);
	uintptr_t room = (len + 2 * FAR_ALIGN - 1) & ~(FAR_ALIGN - 1);
	uintptr_t end = __atomic_add_fetch(&used, room, __ATOMIC_RELAXED);

	/* Below a shared library, above a program that lies low. */
	if (here > 2 * FAR + end)
		return (void *)(here - FAR - end);
	return end < FAR ? (void *)(here + FAR + end - room) : NULL;
}
