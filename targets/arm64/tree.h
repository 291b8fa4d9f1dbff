/* SPDX-License-Identifier: MIT */
/* The tree emitter of the arm64 target. */
#ifndef TARGETS_ARM64_TREE_H
#define TARGETS_ARM64_TREE_H

#include "targets/code.h"
#include "targets/plan.h"

void arm64_emit_tree(struct shunt_code *code, const struct shunt_plan *plan, enum shunt_fallback fallback);

#endif
