/* SPDX-License-Identifier: MIT */
/* Functions that the x86-64 target makes for hooks. See targets/target.h. */
#ifndef TARGETS_X86_64_CHAIN_H
#define TARGETS_X86_64_CHAIN_H

#include "targets/chain.h"
#include "targets/code.h"

void x86_64_emit_return(struct shunt_code *code, uint64_t value);
void x86_64_emit_chain(struct shunt_code *code, const struct shunt_chain *chain);

#endif
