/* SPDX-License-Identifier: MIT */
/* The first probe of a hash in code. */
#ifndef PASSES_HASH_PROBE_H
#define PASSES_HASH_PROBE_H

#include "passes/ir.h"

/* Whether call, a lookup in map, gets one. */
bool shunt_pass_has_probe(const struct shunt_pass *pass, LLVMValueRef call, const struct shunt_pass_map *map);

/* The function to call instead of find, of the same type. The pass's builder is before call, afterwards too. */
LLVMValueRef shunt_pass_hash_probe(struct shunt_pass *pass, LLVMValueRef call, LLVMValueRef find, const struct shunt_pass_map *map);

#endif
