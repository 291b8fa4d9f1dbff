/* SPDX-License-Identifier: MIT */
/* What a pack is made of: memory seen at two addresses, from the best rung of the ladder that this machine allows. */
#ifndef RUNTIME_BACKING_H
#define RUNTIME_BACKING_H

#include <stdbool.h>
#include <stddef.h>
#include <shunt/pack.h>

#define SHUNT_NODE_ANY (-1)

/* What to make. Both ranges are reservations (PROT_NONE) of ours, but in a fork's child (copy_from), where rx is the view shared
 * with the parent and rw is a hole. */
struct shunt_backing_spec {
	void *rx;
	void *rw;              /* == rx: private anonymous memory */
	size_t len;            /* a multiple of SHUNT_PACK_SIZE */
	bool exec;             /* the rx view may be executed; else it may only be read */
	bool guard;            /* with exec: indirect branches must land on landing pads, where the machine can see to it */
	bool debug;            /* the rx view is private: a debugger may write there */
	bool huge;             /* try for 2 MiB pages */
	bool hugetlb;          /* before all else from the pool of them */
	bool anon;             /* no memfd */
	int node;              /* where its pages are wanted, or SHUNT_NODE_ANY */
	bool toggle;           /* rx == rw all the same: private memory, writable at first */
	const void *copy_from; /* len bytes that the new memory begins with before it takes the place of rx; NULL: zeroes */
};

struct shunt_backing_made {
	enum shunt_backing backing;
	size_t bytes_huge;     /* of the rx view */
};

/* Which step failed, for the sentence that the caller reports after it has let go of its locks. */
struct shunt_backing_failure {
	const char *step;
	int err;               /* positive */
};

/* Makes both views. 0, or a negative errno with *failure filled and both ranges as they were. */
int shunt_backing_make(const struct shunt_backing_spec *spec, struct shunt_backing_made *made, struct shunt_backing_failure *failure);

/* Turns both views back into reservations and gives their memory to the system. 0 or a negative errno (then the rx view still
 * is what it was). */
int shunt_backing_unmake(void *rx, void *rw, size_t len);

/* mprotect: 0 or a negative errno. */
int shunt_backing_protect(void *addr, size_t len, int prot);

/* Turns the rw view back into a reservation. 0 or a negative errno. */
int shunt_backing_drop_rw(void *rw, size_t len);

/* Reserves len bytes at addr (fixed: exactly there, only if free; else a hint, or NULL), aligned to SHUNT_PACK_SIZE. 0 or a negative errno. */
int shunt_backing_reserve(void *addr, bool fixed, size_t len, void **out);

#endif
