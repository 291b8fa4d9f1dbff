/* SPDX-License-Identifier: MIT */
/* Small steps on LLVM's C API that more than one pass takes. Builders work at the pass's builder, which shunt_ir_at places. */
#ifndef PASSES_IR_H
#define PASSES_IR_H

#include "passes/pass.h"

/* Builds before call from now on, with call's debug location. */
void shunt_ir_at(struct shunt_pass *pass, LLVMValueRef call);

/* Whether a register of type from can stand for one of type to: integers and default-address-space pointers, at most 64 bits. */
bool shunt_ir_can_coerce(LLVMTypeRef from, LLVMTypeRef to);
/* Builds it; wider integers come from narrower ones by sign when is_signed. Only where shunt_ir_can_coerce. */
LLVMValueRef shunt_ir_coerce(struct shunt_pass *pass, LLVMValueRef value, LLVMTypeRef to, bool is_signed);

/* Whether call's result may be replaced by a value of type from: it fits, or the call returns nothing. */
bool shunt_ir_can_return(LLVMValueRef call, LLVMTypeRef from);
/* Gives call's uses and name to value (coerced) and erases call. value may be NULL where call returns nothing. */
void shunt_ir_replace(struct shunt_pass *pass, LLVMValueRef call, LLVMValueRef value, bool is_signed);

/* The function of that name, declared when the module has none yet. NULL: the name is a variable's or an alias's. */
LLVMValueRef shunt_ir_declare_symbol(struct shunt_pass *pass, const char *name, LLVMTypeRef type);
/* The same for a function of libshunt: a new declaration has nounwind and willreturn. */
LLVMValueRef shunt_ir_declare(struct shunt_pass *pass, const char *name, LLVMTypeRef type);
/* The external variable of that name, declared as bytes; NULL: the name is a function's or an alias's. */
LLVMValueRef shunt_ir_declare_variable(struct shunt_pass *pass, const char *name);
void shunt_ir_add_attribute(struct shunt_pass *pass, LLVMValueRef function, LLVMAttributeIndex index, const char *name);

/* Whether the scratch has room for call's arguments, attributes and bundles. */
bool shunt_ir_can_copy(LLVMValueRef call);
/* Adds the attributes that from has at from_index to to, at to_index. */
void shunt_ir_copy_attributes(struct shunt_pass *pass, LLVMValueRef from, LLVMAttributeIndex from_index, LLVMValueRef to,
			      LLVMAttributeIndex to_index);
/* Loads scratch->bundles with call's operand bundles and returns how many; dispose them with shunt_ir_free_bundles. */
unsigned shunt_ir_bundles(struct shunt_pass *pass, LLVMValueRef call);
void shunt_ir_free_bundles(struct shunt_pass *pass, unsigned nr);
/* Whether call has one of these bundles; tags ends with NULL. The scratch must have room for all of them. */
bool shunt_ir_has_bundle(struct shunt_pass *pass, LLVMValueRef call, const char *const *tags);

/* A call of function in the place of call, which can be copied: keeps its bundles, function attributes, !prof, !srcloc and tail-call kind
 * but musttail, whose rules only the old prototype was known to meet. */
LLVMValueRef shunt_ir_call_like(struct shunt_pass *pass, LLVMValueRef call, LLVMTypeRef type, LLVMValueRef function,
				LLVMValueRef *args, unsigned nr_args);

/* The one value that load can give (undefined memory aside): of a constant or never-written local global, or of an alloca with a
 * single store. NULL when it is not provable by looking at all users of the memory. */
LLVMValueRef shunt_ir_loaded_value(LLVMValueRef load);

/* Strips casts between pointers and 64-bit integers, freeze, all-zero GEPs and llvm.bpf.passthrough. */
LLVMValueRef shunt_ir_strip(LLVMValueRef value);

/* Adds the byte offset of a GEP with constant indices to *offset; false when an index is not constant. */
bool shunt_ir_constant_offset(struct shunt_pass *pass, LLVMValueRef gep, unsigned long long *offset);

/* Alignment that pointer certainly has, at most 4 (a key of 4 bytes is what it is for). */
unsigned shunt_ir_alignment(struct shunt_pass *pass, LLVMValueRef pointer);

/* Whether a global value is seen by this module only. */
bool shunt_ir_is_local(LLVMValueRef global);

/* Whether value is a function whose name begins so. */
bool shunt_ir_has_prefix(LLVMValueRef function, const char *prefix);

#endif
