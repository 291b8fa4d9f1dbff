/* SPDX-License-Identifier: MIT */
/* What was generated, for reading: final IR, machine code of the programs, the dispatcher's stub and tree, its picture, its counters. */
#ifndef TOOLS_DUMP_H
#define TOOLS_DUMP_H

#include <stdbool.h>
#include <stdio.h>
#include "lib/replay/replay.h"

struct dump_selection {
	bool ir, code, tree, dot, hits;
};

/* Parses "ir", "code", "tree", "dot", "hits" or "all" (of the first three), adds to selection; -1 for another word. hits are there when the
 * dispatcher counts them. */
int dump_parse(const char *word, struct dump_selection *selection);
void dump_print(const struct shunt_replay *replay, const struct dump_selection *selection, FILE *out);

#endif
