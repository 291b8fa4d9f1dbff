/* SPDX-License-Identifier: MIT */
/* The tree emitter of the x86-64 target. */
#ifndef TARGETS_X86_64_TREE_H
#define TARGETS_X86_64_TREE_H

#include "targets/code.h"
#include "targets/plan.h"

void x86_64_emit_tree(struct shunt_code *code, const struct shunt_plan *plan, enum shunt_fallback fallback);

#endif
