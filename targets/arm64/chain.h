/* SPDX-License-Identifier: MIT */
/* Functions that the arm64 target makes for hooks. See targets/target.h. */
#ifndef TARGETS_ARM64_CHAIN_H
#define TARGETS_ARM64_CHAIN_H

#include "targets/chain.h"
#include "targets/code.h"

void arm64_emit_return(struct shunt_code *code, uint64_t value);
void arm64_emit_chain(struct shunt_code *code, const struct shunt_chain *chain);

#endif
