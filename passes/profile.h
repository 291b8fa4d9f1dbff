/* SPDX-License-Identifier: MIT */
/* Value profiles of indirect calls: !prof !{!"VP", i32 0, i64 total, i64 hash, i64 count, ...}. */
#ifndef PASSES_PROFILE_H
#define PASSES_PROFILE_H

#include "passes/pass.h"

/* LLVM keeps up to 24 targets of a call; more are not read. */
#define SHUNT_PROFILE_MAX 64

struct shunt_profile {
	uint64_t total; /* calls counted, of the targets below and of others */
	unsigned nr;
	struct {
		uint64_t hash, count;
	} targets[SHUNT_PROFILE_MAX];
};

/* Reads call's value profile; false when it has none. */
bool shunt_profile_read(struct shunt_pass *pass, LLVMValueRef call, struct shunt_profile *out);

/* Takes function's count out of profile; 0 when it has none. */
uint64_t shunt_profile_take(struct shunt_pass *pass, struct shunt_profile *profile, LLVMValueRef function);

/* Gives call what is left as its value profile, or none. */
void shunt_profile_write(struct shunt_pass *pass, LLVMValueRef call, const struct shunt_profile *profile);

/* Gives instruction !prof branch_weights, scaled to the 32 bits that they have. nr is 1 or 2. */
void shunt_profile_weigh(struct shunt_pass *pass, LLVMValueRef instruction, const uint64_t *weights, unsigned nr);

/* The first 8 bytes of name's MD5, by which LLVM's profiles name functions. */
uint64_t shunt_profile_hash(const char *name, size_t len);

#endif
