/* SPDX-License-Identifier: MIT */
/* Changing a live stub: the one place in Shunt that stores into code which threads may be running. */
#ifndef RUNTIME_PATCH_H
#define RUNTIME_PATCH_H

#include <stdint.h>

struct shunt_patch_site {
	uint64_t slot; /* where threads run the stub slot */
	void *rw;      /* the same 16 bytes, writable */
	uint64_t word; /* what its second word holds, as far as the owner knows */
};

/*
 * Points the stub at dest, whose code is finalized. 0; -ERANGE: out of direct reach of the slot; -EBUSY: the word is not the
 * one that the owner stored last, somebody else wrote there. On failure nothing was stored. Calls for one site are serialised
 * by its owner.
 */
int shunt_patch_stub(struct shunt_patch_site *site, uint64_t dest);

#endif
