/* SPDX-License-Identifier: MIT */
/*
 * Per-CPU objects: one copy a possible CPU, at a fixed distance (shunt/abi.h), in one reserved range that is populated on demand.
 */
#ifndef SHUNT_PERCPU_H
#define SHUNT_PERCPU_H

#include <shunt/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A per-CPU global. In code that shunt-percpu has seen, every access is to this CPU's copy, without a call, and the functions of this
 * header that take a per-CPU pointer are given its address: SHUNT_PERCPU uint64_t hits; ... hits++; ... shunt_percpu_sum64(&hits).
 * Copies begin with the initial value. Do not take its address in another variable's initial value. Its updates are as exact as the
 * pass's policy makes them. Without the pass it is an ordinary variable.
 */
#define SHUNT_PERCPU __attribute__((section(".percpu")))

/* For generated code: makes the copies of an image's per-CPU globals [start, stop), unless *delta is set already, and sets it to the
 * distance in bytes of the per-CPU pointers from the image's own. 0, -ENOMEM. For constructors, which run one at a time. */
SHUNT_API int shunt_percpu_image(const void *start, const void *stop, int64_t *delta);

/* Allocates size bytes a CPU, aligned to align (0: 8; a power of two up to 4096), zeroed in every copy; objects of 64 bytes or more
 * start on a cache line. *out is CPU 0's copy: the per-CPU pointer. -ENOMEM, -EINVAL. MT-safe. */
SHUNT_API int shunt_percpu_alloc(size_t size, size_t align, void **out);

/* Frees what shunt_percpu_alloc gave; NULL is allowed. At once: defer it yourself where readers may still use it. MT-safe. */
SHUNT_API void shunt_percpu_free(void *p);

/* The copy that threads without rseq use while rseq is the index source (unit -1). Sums include it. MT-safe. */
SHUNT_API void *shunt_percpu_unregistered(void *p);

/* Sum of the 64-bit counter p over all CPUs and the unregistered units. Each copy is read once; not a snapshot. MT-safe. */
SHUNT_API uint64_t shunt_percpu_sum64(const void *p);

/*
 * Exact operations on this CPU's copy of the 64-bit word p, whatever migrates or preempts, like shunt_percpu_add64 (shunt/abi.h), which is
 * the cheapest. All return what the word was. The result belongs to the CPU that the thread ran on at that moment. MT-safe,
 * async-signal-safe.
 */
SHUNT_API uint64_t shunt_percpu_xchg64(void *p, uint64_t v);
SHUNT_API uint64_t shunt_percpu_cmpxchg64(void *p, uint64_t expected, uint64_t v); /* stores v where it finds expected */
SHUNT_API uint64_t shunt_percpu_or64(void *p, uint64_t v);
SHUNT_API uint64_t shunt_percpu_max64(void *p, uint64_t v); /* unsigned */

/*
 * Per-CPU stacks of nodes, as free lists are: head is a per-CPU pointer to a pointer, NULL at first; the first word of a node is its link.
 * pop gives a node of this CPU's stack, or NULL, even where other CPUs' stacks hold some. A node that was popped may be freed at once.
 * MT-safe; not in signal handlers where the thread has no rseq (a lock is taken there).
 */
SHUNT_API void shunt_percpu_push(void *head, void *node);
SHUNT_API void *shunt_percpu_pop(void *head);

/* Where the CPU number comes from. Chosen once, at the first use: rseq where glibc registered it and the kernel's works, else getcpu. */
enum shunt_cpu_source {
	SHUNT_CPU_RSEQ,   /* rseq cpu_id: one load at a constant offset from the thread pointer */
	SHUNT_CPU_THREAD, /* a slot of the thread's own, see shunt_percpu_set_thread */
	SHUNT_CPU_GETCPU, /* getcpu(2) through the vDSO */
	SHUNT_CPU_HOST,   /* a thread-local variable of the host's, see shunt_percpu_use_variable */
};

/* How generated code gets it: offset is from the thread pointer to a 32-bit number; unused for SHUNT_CPU_GETCPU, where code calls
 * shunt_cpu_id. MT-safe. */
struct shunt_cpu_index {
	enum shunt_cpu_source source;
	int64_t tp_offset;
};
SHUNT_API void shunt_cpu_index(struct shunt_cpu_index *out);

/* Chooses the thread slot as the process's source, before anything else in this header ran (-EBUSY afterwards): for pinned workers. */
SHUNT_API int shunt_percpu_use_threads(void);
/* This thread's number, below shunt_nr_cpus() (-EINVAL otherwise, and where a variable of the host is the source); no two running threads may share one. */
SHUNT_API int shunt_percpu_set_thread(uint32_t number);

/* Chooses a variable that the host keeps in thread-local storage (a DPDK lcore id, say): number is its address in the calling thread. It is
 * -1 in threads without a number, else below nr, and no two running threads share one; shunt_nr_cpus() becomes nr. The variable is in
 * static TLS (of the program, or of a library with the initial-exec model; -EINVAL where it is seen not to be). Before anything else in
 * this header ran (-EBUSY afterwards). */
SHUNT_API int shunt_percpu_use_variable(const void *number, uint32_t nr);

SHUNT_API const char *shunt_cpu_source_name(enum shunt_cpu_source source);

#ifdef __cplusplus
}
#endif
#endif
