/* SPDX-License-Identifier: MIT */
/* Shows the stub and the tree that a dispatcher would have, for either machine. */
#ifndef LIB_REPLAY_SAMPLE_H
#define LIB_REPLAY_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <shunt/dispatcher.h>

struct shunt_replay_sample {
	const char *target; /* "x86_64", "arm64", or NULL: this machine */
	uint32_t nr_programs;
	uint64_t spacing;   /* bytes from one program to the next */
	enum shunt_plan_kind plan;
	enum shunt_miss_kind miss; /* not SHUNT_MISS_AUTO */
	uint32_t nr_hot;    /* the first so many are called much more often than all others */
	bool counts_hits;
};

/* Plan and instructions. 0, or an error of shunt_sample_tree_make or of the disassembler. */
int shunt_replay_list_sample(const struct shunt_replay_sample *sample, FILE *out);
/* A picture in Graphviz's dot language. */
int shunt_replay_draw_sample(const struct shunt_replay_sample *sample, FILE *out);

#endif
