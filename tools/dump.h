/* SPDX-License-Identifier: MIT */
/* What was generated, for reading: final IR, machine code of the programs, the dispatcher's stub and tree. */
#ifndef TOOLS_DUMP_H
#define TOOLS_DUMP_H

#include <stdbool.h>
#include <stdio.h>
#include "lib/replay/replay.h"

struct dump_selection {
	bool ir, code, tree;
};

/* Parses "ir", "code", "tree" or "all", adds to selection; -1 for another word. */
int dump_parse(const char *word, struct dump_selection *selection);
void dump_print(const struct shunt_replay *replay, const struct dump_selection *selection, FILE *out);

#endif
