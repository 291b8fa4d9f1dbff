/* SPDX-License-Identifier: MIT */
/*
 * The names that Shunt's passes know, and the memory layouts that inlined code relies on.
 *
 * This is the one list: every function here exists out of line in libshunt with the meaning given here, and a pass may
 * replace a call of it by the straight-line code described beside it. A module therefore works before and after the passes.
 * The header is plain C11 (and C++11) without dependencies, so that host programs and generated code share it.
 */
#ifndef SHUNT_ABI_H
#define SHUNT_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SHUNT_API __attribute__((visibility("default")))
#else
#define SHUNT_API
#endif

/* ---- per-CPU -------------------------------------------------------------------------------------------------- */

/*
 * A per-CPU pointer is the address of the object in CPU 0's unit; CPU n's copy lies n << SHUNT_PERCPU_SHIFT bytes above.
 * The index is signed: a thread that the kernel did not register for rseq reads cpu_id -1 (RSEQ_CPU_ID_UNINITIALIZED) or
 * -2 (RSEQ_CPU_ID_REGISTRATION_FAILED), see linux/rseq.h, and these two have units of their own *below* CPU 0's. Straight-
 * line code therefore never leaves the reserved range, whatever thread runs it, and never shares a copy with a registered
 * thread.
 */
#define SHUNT_PERCPU_SHIFT 30

/* The CPU number of the calling thread; (uint32_t)-1 or -2 in a thread without rseq when rseq is the index source.
 * A snapshot: the thread may migrate at once. MT-safe, async-signal-safe. Becomes one TLS load. */
SHUNT_API uint32_t shunt_cpu_id(void);

/* This CPU's copy of the per-CPU object p: p + ((int64_t)(int32_t)shunt_cpu_id() << SHUNT_PERCPU_SHIFT).
 * MT-safe. Becomes load, shift, add. */
SHUNT_API void *shunt_percpu_this(void *p);

/* CPU cpu's copy of p, or NULL when cpu >= shunt_nr_cpus(). MT-safe. Becomes compare, shift, add, select. */
SHUNT_API void *shunt_percpu_of(void *p, uint32_t cpu);

/* Number of possible CPUs (not of online ones), at least 1; constant for the life of the process. MT-safe. */
SHUNT_API uint32_t shunt_nr_cpus(void);

/* Add v to this CPU's copy of the naturally aligned counter p: exact whatever migrates or preempts. MT-safe. */
SHUNT_API void shunt_percpu_add64(void *p, uint64_t v);
SHUNT_API void shunt_percpu_add32(void *p, uint32_t v);
SHUNT_API void shunt_percpu_add16(void *p, uint16_t v);
SHUNT_API void shunt_percpu_add8(void *p, uint8_t v);

/* ---- maps ----------------------------------------------------------------------------------------------------- */

/* Map types; the numbers are those of enum bpf_map_type in linux/bpf.h (uapi), as BPF objects carry them. */
enum shunt_map_type {
	SHUNT_MAP_HASH = 1,
	SHUNT_MAP_ARRAY = 2,
	SHUNT_MAP_PROG_ARRAY = 3,
	SHUNT_MAP_PERF_EVENT_ARRAY = 4,
	SHUNT_MAP_PERCPU_HASH = 5,
	SHUNT_MAP_PERCPU_ARRAY = 6,
	SHUNT_MAP_LRU_HASH = 9,
	SHUNT_MAP_LRU_PERCPU_HASH = 10,
	SHUNT_MAP_LPM_TRIE = 11,
	SHUNT_MAP_ARRAY_OF_MAPS = 12,
	SHUNT_MAP_HASH_OF_MAPS = 13,
	SHUNT_MAP_DEVMAP = 14,
	SHUNT_MAP_CPUMAP = 16,
	SHUNT_MAP_XSKMAP = 17,
	SHUNT_MAP_DEVMAP_HASH = 25,
};

/*
 * What inlined code may read of a map; the first member of struct shunt_map. All but `values` is constant for the map's life.
 * ARRAY and PERCPU_ARRAY: value i lies at values + i * stride (PERCPU_ARRAY: CPU 0's copy, add the CPU as above);
 * i must be below max_entries. The memory behind it is max_entries rounded up to a power of two, minus nothing: index_mask is
 * that power minus one, so a masked index never leaves the allocation even under mis-speculation.
 */
struct shunt_map_abi {
	uint32_t type;        /* enum shunt_map_type */
	uint32_t key_size;    /* bytes */
	uint32_t value_size;  /* bytes, of one CPU's value */
	uint32_t max_entries;
	uint32_t stride;      /* bytes from one value to the next: value_size rounded up to 8 */
	uint32_t index_mask;
	void *values;         /* arrays; NULL for other types */

	/*
	 * HASH and PERCPU_HASH, constant too, for the first probe of a lookup with keys of 4, 8 or 16 bytes: bucket_mask + 1 words, each the
	 * address of an element or NULL, loaded with acquire. The bucket of a key is that of its XXH3_64bits_withSeed; hash_key is what XXH3
	 * makes of the seed for a key of this size. An element's key lies at SHUNT_MAP_ELEM_KEY, behind it, rounded up to 8 bytes, the value
	 * or the per-CPU pointer. An element that was found stays as it is until the read section ends. Where the first is not the key's,
	 * shunt_map_find_hash or shunt_map_find_percpu goes on.
	 */
	void *buckets;
	uint64_t bucket_mask;
	uint64_t hash_key[2];
};
#define SHUNT_MAP_ELEM_KEY 32

struct shunt_map;

/*
 * The address of the value of key in map (of this CPU's value for the per-CPU types), or NULL when there is none. The
 * address stays valid until the calling thread's read section ends (shunt/reader.h). For ARRAY_OF_MAPS and HASH_OF_MAPS the
 * result is the inner struct shunt_map. MT-safe, lock-free. Call inside a read section. Becomes, by type: ARRAY and PERCPU_ARRAY
 * wholly inline; PERCPU_HASH and LRU_PERCPU_HASH a direct call of shunt_map_find_percpu and an inline this-CPU step; HASH and LRU_HASH
 * a direct call of shunt_map_find_hash; of HASH and PERCPU_HASH with keys of 4, 8 or 16 bytes the first probe is inline too.
 */
SHUNT_API void *shunt_map_lookup(struct shunt_map *map, const void *key);

/* CPU cpu's value of a per-CPU map, NULL when there is none or cpu >= shunt_nr_cpus(). Otherwise as shunt_map_lookup. */
SHUNT_API void *shunt_map_lookup_of(struct shunt_map *map, const void *key, uint32_t cpu);

/* The call half of inlined lookups. find_percpu: CPU 0's copy of the value, for PERCPU_HASH and LRU_PERCPU_HASH only;
 * find_hash: the value, for HASH and LRU_HASH only. NULL when the key is absent. Rules of shunt_map_lookup. */
SHUNT_API void *shunt_map_find_percpu(struct shunt_map *map, const void *key);
SHUNT_API void *shunt_map_find_hash(struct shunt_map *map, const void *key);

/* Program-side update and delete, for this CPU's value where the map is per-CPU. Flags are those of BPF_MAP_UPDATE_ELEM.
 * 0 or a negative errno as the kernel returns it: -EEXIST, -ENOENT, -E2BIG, -EINVAL, -ENOMEM. MT-safe. Never inlined. */
SHUNT_API int shunt_map_update(struct shunt_map *map, const void *key, const void *value, uint64_t flags);
SHUNT_API int shunt_map_delete(struct shunt_map *map, const void *key);

#define SHUNT_ANY 0u     /* create or replace */
#define SHUNT_NOEXIST 1u /* create only */
#define SHUNT_EXIST 2u   /* replace only */

/* ---- program calls -------------------------------------------------------------------------------------------- */

/*
 * An indirect call with metadata `!shunt.dispatch !{!"NAME"}` calls the program that the pointer names. shunt-dispatch turns it into
 * a direct call of the stub symbol SHUNT_STUB_PREFIX NAME with the program pointer in the `nest` register, appended after the last
 * fixed parameter.
 */
#define SHUNT_DISPATCH_MD "shunt.dispatch"
#define SHUNT_STUB_PREFIX "shunt_stub."

/*
 * An indirect call with metadata `!shunt.targets !{ptr @a, ptr @b}` mostly calls one of these functions. shunt-targets puts a compare
 * and a direct call of each before it, hot ones first by !prof, or by the i64 that may stand behind each target.
 */
#define SHUNT_TARGETS_MD "shunt.targets"

/* A helper that a BPF program calls by number and that no pass rewrote is the symbol SHUNT_HELPER_PREFIX and four digits,
 * taking and returning 64-bit registers: uint64_t f(uint64_t r1, ..., uint64_t r5). */
#define SHUNT_HELPER_PREFIX "_bpf_helper_ext_"

#ifdef __cplusplus
}
#endif
#endif
