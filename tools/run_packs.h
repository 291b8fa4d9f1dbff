/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_RUN_PACKS_H
#define TOOLS_RUN_PACKS_H

#include <stdio.h>
#include "lib/replay/replay.h"

/* Draws the packs of a started replay to out and into the file svg; either may be NULL. 0 or a negative errno. */
int run_packs_draw(const struct shunt_replay *replay, const char *svg, FILE *out);

#endif
