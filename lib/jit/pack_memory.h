/* SPDX-License-Identifier: MIT */
/*
 * The memory of one linked object: a block of a pack for each of its segments. Every choice about it is made here; the C++ memory
 * manager only passes JITLink's wishes on.
 */
#ifndef LIB_JIT_PACK_MEMORY_H
#define LIB_JIT_PACK_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct shunt_arena;
struct jit_memory;

enum { JIT_PROT_READ = 1, JIT_PROT_WRITE = 2, JIT_PROT_EXEC = 4 };

/* arena NULL: the default. -ENOMEM. */
int jit_memory_create(struct shunt_arena *arena, struct jit_memory **out);

/*
 * Adds a segment of size bytes (0 is none) with protection prot: to be written at *rw, generated for *rx. A transient one is needed
 * only until jit_memory_drop_transient. -EINVAL: writable and executable, or aligned above a page; -ENOMEM. On failure the memory is as
 * it was, still to be abandoned.
 */
int jit_memory_add(struct jit_memory *memory, unsigned prot, bool transient, size_t size, size_t align, void **rw, void **rx);

/* A function that the memory will hold, for debuggers and profilers: its name, not terminated, and where it runs. Without memory for it
 * it stays without a name. */
void jit_memory_add_function(struct jit_memory *memory, const char *name, size_t name_len, const void *rx, size_t len);

/* Makes the written code runnable on every CPU and tells the unwinder about its .eh_frame (len 0: it has none), which is in the memory
 * too; names its functions. Errors are those of shunt_pack_finalize and shunt_pack_set_unwind. */
int jit_memory_finalize(struct jit_memory *memory, const void *eh_frame, size_t eh_frame_len);
void jit_memory_drop_transient(struct jit_memory *memory);

/* Frees memory whose code nobody could reach. */
void jit_memory_abandon(struct jit_memory *memory);
/* Frees memory that was in use: reused after a grace period. */
void jit_memory_free(struct jit_memory *memory);

#ifdef __cplusplus
}
#endif
#endif
