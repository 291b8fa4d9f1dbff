/* SPDX-License-Identifier: MIT */
/* Which fallback SHUNT_MISS_AUTO is on this machine. */
#ifndef RUNTIME_MISS_H
#define RUNTIME_MISS_H

#include <stdbool.h>
#include <shunt/dispatcher.h>
#include "targets/plan.h"

/* A public kind as what targets emit; AUTO is found out on the first call. */
enum shunt_fallback shunt_miss_resolve(enum shunt_miss_kind kind);

/* What the kernel's line on spectre_v2 asks for; NULL: there is none. */
enum shunt_fallback shunt_miss_parse(const char *line, bool has_shadow_stack);

#endif
