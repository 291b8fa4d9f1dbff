/* SPDX-License-Identifier: MIT */
/* The stub and the tree of a dispatcher that does not exist, for either machine: to be looked at, not to be run. */
#ifndef RUNTIME_SAMPLE_TREE_H
#define RUNTIME_SAMPLE_TREE_H

#include <stddef.h>
#include <stdint.h>

#define SHUNT_SAMPLE_STUB_LEN 16u

struct shunt_sample_tree {
	uint64_t tree_addr;     /* where the tree would lie; the stub lies SHUNT_SAMPLE_STUB_LEN before it */
	uint64_t programs_addr; /* the first program */
	size_t tree_len;
	uint8_t stub[SHUNT_SAMPLE_STUB_LEN];
	uint8_t *tree;          /* freed by the caller */
};

/* target: "x86_64" or "arm64"; nr programs, spacing bytes apart. 0; -EINVAL: another target; -ERANGE: out of reach; -ENOMEM. */
int shunt_sample_tree_make(const char *target, uint32_t nr, uint64_t spacing, struct shunt_sample_tree *out);

#endif
