/* SPDX-License-Identifier: MIT */
/* What the files of lib/jit share: a module's way from IR (prepare, check, compile) to an object (object, symbols) to packs (link). */
#ifndef LIB_JIT_INTERNAL_H
#define LIB_JIT_INTERNAL_H

#include <pthread.h>
#include <llvm-c/Core.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Orc.h>
#include <llvm-c/TargetMachine.h>
#include <shunt/jit.h>
#include "lib/jit/pack_memory_manager.h"
#include "runtime/grace.h"

struct jit_symbol {
	char *name;
	void *address;
	size_t size;
};

/*
 * Who synchronises with whom: link_mutex serialises links and guards `link`; it is held across ORC and pack calls, so the reclaimer never
 * takes it. list_mutex guards modules and refs and is a leaf. The rest is constant after shunt_jit_create.
 */
struct shunt_jit {
	LLVMOrcLLJITRef lljit;
	LLVMOrcExecutionSessionRef session;
	struct jit_linking_layer layer;
	unsigned opt_level;
	bool keep_ir;
	bool elsewhere; /* emit.c: its code runs in another process, nothing of this one may be in it */
	char *triple, *data_layout, *cpu, *features;

	pthread_mutex_t link_mutex;
	struct jit_link *link;
	uint64_t nr_links;

	pthread_mutex_t list_mutex;
	struct shunt_jit_module *modules;
	size_t refs; /* the owner, and each module until its code is released */
};

/* Constant from the end of the link until the grace period after its removal. */
struct shunt_jit_module {
	struct shunt_grace_item grace;
	struct shunt_jit *jit;
	struct shunt_jit_module *next, **pprev;
	LLVMOrcJITDylibRef dylib;
	struct jit_symbol *symbols; /* sorted by name */
	size_t nr_symbols, max_symbols;
	struct shunt_pass_counts counts;
	char *ir;
};

/* prepare.c: a target machine for this process, position independent in the small code model; NULL when LLVM has none. */
LLVMTargetMachineRef jit_target_machine(const struct shunt_jit *jit);
/* Verifies and checks module and makes it one for this machine. 0 or -EINVAL. */
int jit_prepare(const struct shunt_jit *jit, LLVMTargetMachineRef machine, LLVMModuleRef module);

/* check.c: 0, or -EINVAL for a valid module that LLVM would answer by ending the process. */
int jit_check(const struct shunt_jit *jit, LLVMModuleRef module);

/* What LLVM said about a context's modules. */
struct jit_diagnostics {
	unsigned nr_errors;
	char first[512];
};

/* compile.c: passes, optimisation, code generation. Fills counts and ir of out. The caller disposes of context and module. */
int jit_compile(const struct shunt_jit *jit, LLVMContextRef context, LLVMModuleRef module, const struct shunt_jit_module_options *options,
		struct shunt_jit_module *out, LLVMMemoryBufferRef *object);

/* object.c: global symbols of an ELF relocatable object made by LLVM; names point into it. */
struct jit_undefined {
	const char *name;
	bool weak; /* may stay undefined: its address is then 0 */
};
struct jit_object_symbols {
	struct jit_undefined *undefined;
	const char **defined;
	size_t nr_undefined, nr_defined;
};
int jit_object_read(const void *object, size_t len, struct jit_object_symbols *out);
void jit_object_fini(struct jit_object_symbols *symbols);

/* symbols.c: the address that generated code uses for name. 0, or -ENOENT with a sentence. */
int jit_symbol_resolve(const char *name, const struct shunt_jit_symbol *symbols, size_t nr_symbols, uint64_t *address);
/* The functions that code generation may call by itself and those of shunt/abi.h. NULL: none of that name. */
const void *jit_symbol_builtin(const char *name);

/* link.c: links object into packs as module, whose dylib and symbols it fills. Consumes object. On failure nothing of it stays. */
int jit_link(struct shunt_jit *jit, LLVMMemoryBufferRef object, const struct shunt_jit_symbol *symbols, size_t nr_symbols,
	     struct shunt_jit_module *module);
void jit_link_symbol(void *jit, const char *name, size_t name_len, void *address, size_t size);
void jit_link_failed(void *jit, int err);
void jit_link_report(void *jit, LLVMErrorRef error);
/* jit.c: links object as a module of jit's. Consumes object. */
int jit_add_object(struct shunt_jit *jit, LLVMMemoryBufferRef object, const struct shunt_jit_module_options *options,
		   struct shunt_jit_module **out);
/* Frees module's code (nobody runs it any more) and the module. Not the reference on its jit. */
void jit_module_release(struct shunt_jit_module *module);

#endif
