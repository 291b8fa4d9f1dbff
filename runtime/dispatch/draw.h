/* SPDX-License-Identifier: MIT */
/* Pictures of plans. */
#ifndef RUNTIME_DRAW_H
#define RUNTIME_DRAW_H

#include "runtime/dispatch/plan.h"

/* Writes plan as a Graphviz graph. weights and name may be NULL; fallback is a word for it. -EIO. */
int shunt_plan_draw(const char *title, const struct shunt_plan *plan, const uint32_t *weights, const char *fallback, shunt_name_fn *name,
		    void *user, FILE *out);

#endif
