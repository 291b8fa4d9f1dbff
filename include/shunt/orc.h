/* SPDX-License-Identifier: MIT */
/*
 * Packs for hosts with a compiler of their own: a layer for their LLJIT, and a loader for finished objects. Those without one use
 * shunt/jit.h.
 */
#ifndef SHUNT_ORC_H
#define SHUNT_ORC_H

#include <llvm-c/Orc.h>
#include <shunt/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

struct shunt_arena;

/*
 * An object linking layer whose code and data lie in packs of arena (a struct shunt_arena *, NULL: the default; outlives the session), with
 * unwind tables registered and, on arm64, calls of what is in reach made direct. It has the type that LLVM's C API wants:
 *
 *	LLVMOrcLLJITBuilderSetObjectLinkingLayerCreator(builder, shunt_orc_object_layer, arena);
 *
 * Give the builder a target machine that is position independent with the small code model: the default calls through registers. Remove
 * trackers and dylibs only when no thread is in their code (after shunt_quiesce), since the layer frees at once what nobody can
 * be in. MT-safe.
 */
SHUNT_API LLVMOrcObjectLayerRef shunt_orc_object_layer(void *arena, LLVMOrcExecutionSessionRef session, const char *triple);

/* The address of a symbol that an object needs, NULL when there is none: then names of shunt/abi.h and stubs of dispatchers are found. */
typedef const void *shunt_resolve_fn(void *user, const char *name);

struct shunt_object;

/*
 * Links an ELF relocatable object for this machine into packs of arena (NULL: the default). bytes are copied. resolve may be NULL. The object
 * is trusted as far as its code goes; a broken file is refused. -EINVAL: not such an object, or one that does not link; -ENOENT: an
 * undefined symbol, named by shunt_error(); -ERANGE: out of direct reach; -ENOMEM, -ENOTSUP. Nothing stays on failure. MT-safe.
 */
SHUNT_API int shunt_load_object(struct shunt_arena *arena, const void *bytes, size_t len, shunt_resolve_fn *resolve, void *user,
				struct shunt_object **out);

/* The address of a global symbol that it defines, or NULL. MT-safe. */
SHUNT_API void *shunt_object_lookup(const struct shunt_object *object, const char *name);

/* Frees it after a grace period; the caller has detached its programs. NULL is allowed. Never waits. MT-safe. */
SHUNT_API void shunt_object_unload(struct shunt_object *object);

#ifdef __cplusplus
}
#endif
#endif
