/* SPDX-License-Identifier: MIT */
/* Compiling for another process, and perhaps another machine: objects instead of running code. */
#ifndef LIB_JIT_EMIT_H
#define LIB_JIT_EMIT_H

#include <llvm-c/Types.h>
#include <shunt/jit.h>

/* A compiler for triple (x86-64 or arm64 Linux) that makes objects, with no link to a process. -ENOTSUP: another machine; -ENOMEM. */
int jit_emitter_create(const char *triple, unsigned opt_level, struct shunt_jit **out);
void jit_emitter_destroy(struct shunt_jit *emitter);

/* As shunt_jit_add, but the result is an ELF object: what it leaves undefined is resolved where it is linked. Takes context and module, on
 * failure too. options->symbols is not used. Counts are set on success. */
int jit_emitter_emit(const struct shunt_jit *emitter, LLVMContextRef context, LLVMModuleRef module,
		     const struct shunt_jit_module_options *options, struct shunt_pass_counts *counts, LLVMMemoryBufferRef *object);

/* Loads such an object into packs, as shunt_jit_add loads the one that it made. The bytes are copied. -EINVAL: not an object for this
 * machine. */
int jit_load_object(struct shunt_jit *jit, const void *bytes, size_t len, const struct shunt_jit_module_options *options,
		    struct shunt_jit_module **out);
/* Calls fn with each name that the object leaves undefined, until it returns non-zero, and returns that; -EINVAL for what is no such object. */
int jit_each_undefined(const void *bytes, size_t len, int (*fn)(void *user, const char *name), void *user);

#endif
