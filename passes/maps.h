/* SPDX-License-Identifier: MIT */
/* Which of the host's maps a call's map operand is. */
#ifndef PASSES_MAPS_H
#define PASSES_MAPS_H

#include "passes/ir.h"

struct shunt_pass_map_operand {
	const struct shunt_pass_map *map; /* NULL: not known, and why says why */
	bool several;                     /* one of several maps of this geometry: only the operand itself tells which */
	bool by_handle;                   /* the operand (or an arm of it) is a handle, not an address */
	const char *why;                  /* the end of a sentence: "the map operand ..." */
};

struct shunt_pass_map_operand shunt_pass_find_map(struct shunt_pass *pass, LLVMValueRef operand);

/* Whether the operand can be made the address of a struct shunt_map; not where all that is known is a handle. */
bool shunt_pass_has_map_pointer(struct shunt_pass *pass, const struct shunt_pass_map_operand *found);
/* Builds it, at the pass's builder. value is what the call has as its operand. */
LLVMValueRef shunt_pass_map_pointer(struct shunt_pass *pass, const struct shunt_pass_map_operand *found, LLVMValueRef value);

#endif
