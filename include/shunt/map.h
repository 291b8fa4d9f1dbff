/* SPDX-License-Identifier: MIT */
/*
 * Maps: the data that programs share with each other and with the host; types, flags and results are the kernel's.
 * The program side (lookup, update, delete) is in shunt/abi.h.
 */
#ifndef SHUNT_MAP_H
#define SHUNT_MAP_H

#include <stdbool.h>
#include <shunt/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Map flags, as in linux/bpf.h. Others are refused (-EINVAL). */
#define SHUNT_MAP_NO_PREALLOC (1u << 0) /* hashes: memory is taken as entries come, not at creation; required for LPM_TRIE */
#define SHUNT_MAP_RDONLY_PROG (1u << 7) /* .rodata: accepted, not enforced */

struct shunt_map_attr {
	uint32_t type; /* enum shunt_map_type */
	uint32_t key_size;
	uint32_t value_size; /* PROG_ARRAY, *_OF_MAPS: 4, as objects say, or 8; host values have 8 */
	uint32_t max_entries;
	uint32_t flags;
	const char *name;                   /* copied; may be NULL */
	const struct shunt_map_attr *inner; /* *_OF_MAPS: the shape that inner maps must have; copied; may be NULL: any */
};

/* Makes a map with one reference. -EINVAL: a shape that the kernel refuses (shunt_error says which rule); -ENOTSUP: a type not in the
 * list; -ENOMEM; -E2BIG. MT-safe. */
SHUNT_API int shunt_map_create(const struct shunt_map_attr *attr, struct shunt_map **out);

/* References: a map dies after a grace period when the last one is put. put(NULL) is allowed. get of a map that was found in a read section
 * (an inner map) gives NULL when its last reference went meanwhile; otherwise map. MT-safe. */
SHUNT_API struct shunt_map *shunt_map_get(struct shunt_map *map);
SHUNT_API void shunt_map_put(struct shunt_map *map);

/* The map's shape and name; valid while a reference is held. MT-safe. */
SHUNT_API const struct shunt_map_abi *shunt_map_abi(const struct shunt_map *map);
SHUNT_API const char *shunt_map_name(const struct shunt_map *map);
SHUNT_API bool shunt_map_is_percpu(const struct shunt_map *map);

/*
 * Host side. Values of per-CPU maps are all CPUs': shunt_nr_cpus() values, `stride` bytes apart (value_size rounded up to 8), as the
 * bpf(2) calls lay them out. These begin their own read sections. PROG_ARRAY values are entry addresses (8 bytes), *_OF_MAPS values
 * struct shunt_map pointers (8 bytes; update takes a reference of the map's own, lookup gives none: look up in a read section and get).
 * 0 or a negative errno as the kernel's: -ENOENT, -EEXIST, -E2BIG, -EINVAL, -ENOMEM; a full LPM_TRIE -ENOSPC; CPUMAP -ENODEV,
 * -EOVERFLOW. Deleting from an array -EINVAL. Only the host may change PROG_ARRAY, *_OF_MAPS and the redirect maps. PERF_EVENT_ARRAY
 * has no listeners and takes none: -ENOTSUP. MT-safe.
 */
SHUNT_API size_t shunt_map_host_value_size(const struct shunt_map *map); /* bytes of a value buffer for the calls below */
SHUNT_API int shunt_map_host_lookup(struct shunt_map *map, const void *key, void *value);
SHUNT_API int shunt_map_host_update(struct shunt_map *map, const void *key, const void *value, uint64_t flags);
SHUNT_API int shunt_map_host_delete(struct shunt_map *map, const void *key);

/* One CPU's value as threads without rseq see it while rseq is the index source (shunt_percpu_unregistered): what they counted is in none of
 * the values above. -ENOENT, -EINVAL for a map that is not per-CPU. MT-safe. */
SHUNT_API int shunt_map_host_lookup_unregistered(struct shunt_map *map, const void *key, void *value);

/*
 * Many at once, in one read section. keys and values are arrays of *nr, key_size and shunt_map_host_value_size() bytes apart; *nr becomes how
 * many were done, also on failure. lookup_batch goes on after `after` (NULL: from the first; a key that was deleted meanwhile: again from
 * the first) and returns -ENOENT when it comes to the end; entries that go meanwhile are left out. The others stop at the first that fails
 * and return its error. MT-safe.
 */
SHUNT_API int shunt_map_host_lookup_batch(struct shunt_map *map, const void *after, void *keys, void *values, uint32_t *nr);
SHUNT_API int shunt_map_host_update_batch(struct shunt_map *map, const void *keys, const void *values, uint32_t *nr, uint64_t flags);
SHUNT_API int shunt_map_host_delete_batch(struct shunt_map *map, const void *keys, uint32_t *nr);

/* The key after `key` (NULL or an absent key: the first). -ENOENT at the end. Under concurrent updates keys may be missed or seen twice,
 * never invented. MT-safe. */
SHUNT_API int shunt_map_next_key(struct shunt_map *map, const void *key, void *next);

/* Number of entries now: hashes and tries the live ones, all others max_entries. MT-safe. */
SHUNT_API uint32_t shunt_map_count(const struct shunt_map *map);

#ifdef __cplusplus
}
#endif
#endif
