/* SPDX-License-Identifier: MIT */
/* The tree emitter of the arm64 target. */
#ifndef TARGETS_ARM64_TREE_H
#define TARGETS_ARM64_TREE_H

#include "targets/code.h"
#include "targets/plan.h"
#include "targets/tree.h"

void arm64_emit_tree(struct shunt_code *code, const struct shunt_plan *plan, enum shunt_fallback fallback);
int arm64_lay_out_tree(struct shunt_tree *tree, const struct shunt_plan *plan, enum shunt_fallback fallback, uint64_t addr);

#endif
