/* SPDX-License-Identifier: MIT */
/* Changing a live stub: the one place in Shunt that stores into code which threads may be running, or into data that they jump through. */
#ifndef RUNTIME_PATCH_H
#define RUNTIME_PATCH_H

#include <stdbool.h>
#include <stdint.h>

struct shunt_patch_site {
	uint64_t slot; /* where threads run the stub slot */
	void *rw;      /* the same 16 bytes, writable */
	uint64_t word; /* what its second word holds, as far as the owner knows */
	bool by_data;  /* code has one view: the stub goes where a word of data says, rw is that word */
};

/*
 * Points the stub at dest, whose code is finalized. 0; -ERANGE: out of direct reach of the slot; -EBUSY: the word is not the
 * one that the owner stored last, somebody else wrote there. On failure nothing was stored. Calls for one site are serialised
 * by its owner.
 */
int shunt_patch_stub(struct shunt_patch_site *site, uint64_t dest);

#endif
