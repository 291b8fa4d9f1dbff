/* SPDX-License-Identifier: MIT */
/* What emulators of arm64 need besides the architecture's cache maintenance; nothing on real machines. */
#ifndef RUNTIME_FLUSH_H
#define RUNTIME_FLUSH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Makes the machine forget what it keeps of code at rx, where cache maintenance by instructions does not: see flush.c. Found out by a
 * probe on the first call; afterwards one load on machines that need nothing. MT-safe. */
void shunt_flush(const void *rx, size_t len);

/* After word was stored at live, the rw address of an instruction that threads are running: makes an emulated machine with several CPUs run
 * it, see flush.c. One more store of the same bytes elsewhere on arm64, nothing on x86-64. */
void shunt_flush_patched(uint64_t *live, uint64_t word);

/* True on an emulator that shunt_flush is for. MT-safe. */
bool shunt_stale_code_is_kept(void);

/* Takes the descriptor of memory that is mapped at rx with prot: closes it, or on such an emulator keeps it for the flushes of rx until
 * shunt_flush_forget. 0 or -ENOMEM; fd is gone on failure too. */
int shunt_flush_take_fd(void *rx, size_t len, int fd, int prot);
void shunt_flush_forget(const void *rx);
/* Maps len bytes at rx over fixed_addr as well, by a descriptor that was kept; -ENOTSUP when none was. */
int shunt_flush_show(const void *rx, void *fixed_addr, size_t len);
/* Around fork, after all other locks; done is called in the parent and in the child. */
void shunt_flush_fork_prepare(void);
void shunt_flush_fork_done(void);

/* True when the system accepts any advice to madvise: what it answers to a useful one says nothing then. MT-safe. */
bool shunt_advice_is_ignored(void);

#endif
