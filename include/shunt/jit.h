/* SPDX-License-Identifier: MIT */
/*
 * LLVM ORC on packs: compiles modules into an arena, with direct calls of helpers and stubs.
 */
#ifndef SHUNT_JIT_H
#define SHUNT_JIT_H

#include <stdbool.h>
#include <llvm-c/Types.h>
#include <shunt/abi.h>
#include <shunt/passes.h>

#ifdef __cplusplus
extern "C" {
#endif

struct shunt_jit;
struct shunt_jit_module;
struct shunt_arena;

struct shunt_jit_options {
	struct shunt_arena *arena; /* NULL: the default; outlives the JIT */
	unsigned opt_level;        /* 0 to 3: LLVM's default<On> before code generation; 0 runs none */
	bool keep_ir;              /* keep each module's final IR as text: shunt_jit_module_ir */
};

/* A compiler for this process's machine. options may be NULL (opt_level 2). -ENOMEM, -ENOTSUP. MT-safe. */
SHUNT_API int shunt_jit_create(const struct shunt_jit_options *options, struct shunt_jit **out);
/* Removes every module still there (after a grace period), then itself. NULL is allowed. */
SHUNT_API void shunt_jit_destroy(struct shunt_jit *jit);

/* Triple and data layout that modules for this JIT must have; valid while it lives. */
SHUNT_API const char *shunt_jit_triple(const struct shunt_jit *jit);
SHUNT_API const char *shunt_jit_data_layout(const struct shunt_jit *jit);

/* A name that generated code may use besides those of shunt/abi.h and the stubs of all dispatchers (found by themselves). */
struct shunt_jit_symbol {
	const char *name;
	const void *address; /* of a host function or object; outlives the module */
};

struct shunt_jit_module_options {
	const char *pipeline;                    /* passes to run; NULL: "shunt"; "" none */
	const struct shunt_pass_options *passes; /* NULL: no maps. cpu is filled in from shunt_cpu_index() when it is SHUNT_PASS_CPU_CALL */
	const struct shunt_jit_symbol *symbols;  /* this module's; copied */
	size_t nr_symbols;
};

/*
 * Compiles module: runs the passes, verifies, optimises, generates code into the arena. Takes `context` and the module in it, on
 * failure too. options may be NULL. Each module has its own namespace: equal symbol names in two modules do not clash. Besides the names
 * above there are the few of libc, libm and libgcc that code generation calls by itself (memcpy, fmod, __divti3, ...), and no others.
 * -EINVAL: the module does not verify, is for another machine, or holds what cannot be compiled here (thread-local globals, constructors,
 * ifuncs, bad inline assembly, intrinsics and types of other CPUs); -ENOENT: an undefined symbol, named by shunt_error(); -ERANGE: code
 * out of reach; -ENOTSUP: LLVM lacks this CPU; -ENOMEM. Nothing of a failed module stays. MT-safe.
 */
SHUNT_API int shunt_jit_add(struct shunt_jit *jit, LLVMContextRef context, LLVMModuleRef module,
			    const struct shunt_jit_module_options *options, struct shunt_jit_module **out);

/* Address of a function or object of the module, NULL when it defines no such symbol. Call it inside a read section. MT-safe. */
SHUNT_API void *shunt_jit_lookup(struct shunt_jit_module *module, const char *symbol);

/* What the passes did to it. */
SHUNT_API const struct shunt_pass_counts *shunt_jit_module_counts(const struct shunt_jit_module *module);
/* Final IR as text (keep_ir), else NULL; valid while the module lives. */
SHUNT_API const char *shunt_jit_module_ir(const struct shunt_jit_module *module);

/* Bytes and place of a function's code, 0 or -ENOENT; for disassembly. */
SHUNT_API int shunt_jit_module_code(const struct shunt_jit_module *module, const char *symbol, const void **code, size_t *len);

/* Removes the module: the caller has detached its programs; the code is freed after a grace period. Never waits. MT-safe. */
SHUNT_API void shunt_jit_remove(struct shunt_jit_module *module);

#ifdef __cplusplus
}
#endif
#endif
