/* SPDX-License-Identifier: MIT */
/* The stub and the tree of a dispatcher that does not exist, for either machine: to be looked at, not to be run. */
#ifndef RUNTIME_SAMPLE_TREE_H
#define RUNTIME_SAMPLE_TREE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <shunt/dispatcher.h>

#define SHUNT_SAMPLE_STUB_LEN 16u

struct shunt_sample {
	const char *target;         /* "x86_64" or "arm64" */
	uint32_t nr_programs;
	uint64_t spacing;           /* bytes from one program to the next */
	enum shunt_plan_kind plan;
	enum shunt_miss_kind miss;  /* not SHUNT_MISS_AUTO, which is this machine's */
	uint32_t nr_hot;            /* the first so many weigh ten times as much as each of the others together */
	bool counts_hits;
};

struct shunt_sample_tree {
	uint64_t tree_addr;     /* where the tree would lie; the stub lies SHUNT_SAMPLE_STUB_LEN before it */
	uint64_t programs_addr; /* the first program */
	uint64_t counts_addr;   /* counters, where hits are counted */
	uint32_t depth;         /* compares on the longest path */
	size_t tree_len;
	uint8_t stub[SHUNT_SAMPLE_STUB_LEN];
	uint8_t *tree;          /* freed by the caller */
};

/* In one piece, whatever a dispatcher would do. 0; -EINVAL: another target; -ERANGE: out of reach; -ENOMEM. */
int shunt_sample_tree_make(const struct shunt_sample *sample, struct shunt_sample_tree *out);
/* As shunt_dispatcher_draw. */
int shunt_sample_tree_draw(const struct shunt_sample *sample, shunt_name_fn *name, void *user, FILE *out);

#endif
