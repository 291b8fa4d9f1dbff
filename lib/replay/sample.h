/* SPDX-License-Identifier: MIT */
/* Lists the stub and the tree that a dispatcher would have, for either machine. */
#ifndef LIB_REPLAY_SAMPLE_H
#define LIB_REPLAY_SAMPLE_H

#include <stdint.h>
#include <stdio.h>

/* target: "x86_64", "arm64", or NULL: this machine. 0, or an error of shunt_sample_tree_make or of the disassembler. */
int shunt_replay_list_sample(const char *target, uint32_t nr_programs, uint64_t spacing, FILE *out);

#endif
