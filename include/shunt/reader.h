/* SPDX-License-Identifier: MIT */
/*
 * Readers and reclamation: when may a detached program, an old dispatch tree or a deleted map value be reused.
 *
 * A thread that calls programs or looks at map values does so inside a read section. Sections cover a *batch* of program calls,
 * nest, and cost two library calls (about 10 ns a pair); nothing that was reachable when a section began is reused before it ends.
 *
 * The flavour is chosen when the host is compiled, by SHUNT_READER before this header is included:
 *
 *	SHUNT_READER_BP    default. Threads register themselves on first use, fork works, signal handlers must not begin sections.
 *	SHUNT_READER_QSBR  liburcu's qsbr: sections cost nothing; a thread is inside from shunt_thread_register on, and says when it is
 *	                   not: shunt_quiescent between two batches, shunt_offline and shunt_online around whatever blocks. For threads that
 *	                   run to completion. Link -lurcu-qsbr. A fork's child can only exec.
 *	SHUNT_READER_MEMB  liburcu's memb: sections of two stores without a fence. Link -lurcu-memb. A fork's child can only exec.
 *	SHUNT_READER_HOST  the host's own: define SHUNT_HOST_READ_BEGIN() and SHUNT_HOST_READ_END() too, and pass shunt_reader_use a table.
 *
 * Code for bp may live beside one of the others in a process, as the library itself does: a grace period waits for both. Two of the others
 * may not, registration says so. Liburcu's readers are library calls unless its inline code is asked for (URCU_INLINE_SMALL_FUNCTIONS, or
 * _LGPL_SOURCE by LGPL-compatible hosts).
 */
#ifndef SHUNT_READER_H
#define SHUNT_READER_H

#include <stdbool.h>
#include <shunt/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Begin and end a read section of the calling thread. Sections nest. Never blocks after the thread's first call. MT-safe. */
SHUNT_API void shunt_read_begin(void);
SHUNT_API void shunt_read_end(void);

/* Waits until everything that was detached or freed before the call has been reclaimed: its bytes are traps and may be handed out
 * again. Must not be called inside a read section (-EDEADLK). MT-safe. */
SHUNT_API int shunt_quiesce(void);

/*
 * A token stands for the read sections that are open when it is taken: once it has passed, whatever was detached, unpublished or unlinked
 * before is out of use. For what does not lie in packs: a plug-in to be unloaded, data of a program. take never waits (-ENOMEM); wait
 * as shunt_quiesce (-EDEADLK inside a section). Tokens of one process pass in the order in which they were taken. MT-safe.
 */
SHUNT_API int shunt_token_take(uint64_t *token);
SHUNT_API bool shunt_token_passed(uint64_t token);
SHUNT_API int shunt_token_wait(uint64_t token);

enum shunt_reclaim_mode {
	SHUNT_RECLAIM_WORKER, /* default: one thread of Shunt's own, started on the first deferral */
	SHUNT_RECLAIM_HOST,   /* the host calls shunt_reclaim(); nothing is reclaimed otherwise */
};

/* Names the owner of reclamation. -EBUSY once something has been deferred. MT-safe. */
SHUNT_API int shunt_reclaim_set_mode(enum shunt_reclaim_mode mode);

/* Reclaims what is queued: one grace period for all of it. Returns the number of items reclaimed (0 when none was queued) or a
 * negative errno: -EDEADLK inside a read section. For SHUNT_RECLAIM_HOST; harmless otherwise. MT-safe. */
SHUNT_API int shunt_reclaim(void);

enum shunt_reader_flavour { SHUNT_FLAVOUR_BP, SHUNT_FLAVOUR_QSBR, SHUNT_FLAVOUR_MEMB, SHUNT_FLAVOUR_HOST };

struct shunt_reader_ops {
	enum shunt_reader_flavour flavour;
	void (*synchronize)(void);     /* returns when every section that was open when it was called has ended */
	bool (*is_reading)(void);      /* the calling thread is in a section; NULL: not known */
	/* The calling thread is about to wait for readers and uses nothing meanwhile: true when it was one itself, step_in follows then.
	 * NULL: both. */
	bool (*step_out)(void);
	void (*step_in)(void);
	bool (*after_fork_child)(void); /* true: synchronize works in the child; NULL: it does not, what is freed there stays until exec */
};

/* Names the flavour that readers of this process use beside bp; ops is copied. Before the first section of that flavour. 0, also when the
 * same was named before; -EBUSY: another one was; -EINVAL. MT-safe. */
SHUNT_API int shunt_reader_use(const struct shunt_reader_ops *ops);

struct shunt_reclaim_stats {
	uint64_t nr_deferred;     /* items ever queued */
	uint64_t nr_reclaimed;    /* items ever reclaimed */
	uint64_t nr_batches;      /* grace periods waited for: one covers a batch */
	uint64_t longest_wait_ns; /* longest grace period */
};
SHUNT_API void shunt_reclaim_get_stats(struct shunt_reclaim_stats *out);

#ifdef __cplusplus
}
#endif

#include <shunt/reader_flavours.h>
#endif
