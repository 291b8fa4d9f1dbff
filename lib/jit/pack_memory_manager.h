/* SPDX-License-Identifier: MIT */
/* The C side of the C++ shim: what LLVM 19's C API cannot say about JITLink. */
#ifndef LIB_JIT_PACK_MEMORY_MANAGER_H
#define LIB_JIT_PACK_MEMORY_MANAGER_H

#include <stdbool.h>
#include <stddef.h>
#include <llvm-c/Orc.h>
#include <llvm-c/TargetMachine.h>

#ifdef __cplusplus
extern "C" {
#endif

struct shunt_arena;

/* What the linking layer tells its owner, on the thread that links. */
struct jit_linking_layer {
	struct shunt_arena *arena; /* NULL: the default */
	void *user;
	/* A named symbol that the object defines, at its final address. name is not terminated. */
	void (*symbol)(void *user, const char *name, size_t name_len, void *address, size_t size);
	/* A call into packs failed with negative errno err; shunt_error() has the sentence. */
	void (*failed)(void *user, int err);
};

/* An object linking layer whose memory are packs. Has the type of LLVMOrcLLJITBuilderSetObjectLinkingLayerCreator's function; layer is a
 * struct jit_linking_layer that outlives the session. */
LLVMOrcObjectLayerRef jit_create_linking_layer(void *layer, LLVMOrcExecutionSessionRef session, const char *triple);

/* Removes dylib, all it holds, and its name from session. The error is the caller's to consume. */
LLVMErrorRef jit_remove_dylib(LLVMOrcExecutionSessionRef session, LLVMOrcJITDylibRef dylib);

/* Would LLVM accept this value of "target-cpu", this name in "target-features"? (It prints a warning for each that it does not.) */
bool jit_target_knows_cpu(LLVMTargetMachineRef machine, const char *cpu);
bool jit_target_knows_feature(LLVMTargetMachineRef machine, const char *name, size_t len);

#ifdef __cplusplus
}
#endif
#endif
