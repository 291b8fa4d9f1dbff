/* SPDX-License-Identifier: MIT */
/*
 * BTF type information, read by libbpf, for map definitions, externs and the list of CO-RE relocations. The bytes are untrusted: type
 * ids, string offsets and lengths are checked, chains of types are followed to a bounded depth. Nothing is ever printed.
 */
#ifndef LIB_BPF_BTF_READER_H
#define LIB_BPF_BTF_READER_H

#include <linux/btf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct btf; /* libbpf's */

struct bpf_btf {
	const char *object; /* for messages */
	struct btf *types;
	uint32_t *datasecs; /* ids of the DATASECs, a handful among many thousand types */
	uint32_t nr_datasecs;
};

struct bpf_btf_type {
	const char *name;
	uint32_t kind, vlen;
	uint32_t size_or_type;
	const void *extra; /* what follows the type, as long as kind and vlen say */
};

/* 0, or -EINVAL / -ENOTSUP / -ENOMEM with a sentence. The bytes are copied. An empty reader (len 0) has no types. */
int bpf_btf_init(struct bpf_btf *btf, const uint8_t *bytes, size_t len, const char *object);
void bpf_btf_fini(struct bpf_btf *btf);

/* False when there is no such type (id 0 is void and has none). */
bool bpf_btf_type(const struct bpf_btf *btf, uint32_t id, struct bpf_btf_type *type);
/* The string, NULL when the offset is wrong. */
const char *bpf_btf_string(const struct bpf_btf *btf, uint32_t offset);
/* The type behind typedefs, const, volatile, restrict and tags; false when the chain is broken or does not end. */
bool bpf_btf_skip(const struct bpf_btf *btf, uint32_t id, struct bpf_btf_type *type);
/* Bytes of a value of the type; false when it has no size or one above 4 GiB. */
bool bpf_btf_size(const struct bpf_btf *btf, uint32_t id, uint32_t *size);
/* Member i of a struct or union, element i of a DATASEC, the ARRAY. i must be below vlen. */
struct btf_member bpf_btf_member(const struct bpf_btf_type *type, uint32_t i);
struct btf_var_secinfo bpf_btf_secinfo(const struct bpf_btf_type *type, uint32_t i);
struct btf_array bpf_btf_array(const struct bpf_btf_type *type);

/* The variable or function `name` of DATASEC `section`: its type is that of the VAR. False when there is none. */
bool bpf_btf_find(const struct bpf_btf *btf, const char *section, const char *name, struct bpf_btf_type *var);

/* One CO-RE relocation of .BTF.ext; the strings are checked, type may be any id. */
struct bpf_core_record {
	const char *section;
	uint32_t offset; /* bytes into the section */
	uint32_t type, kind;
};
typedef int bpf_core_fn(void *user, const struct bpf_core_record *record);
/* Calls fn for each one in the bytes of .BTF.ext; stops at a result that is not 0. -EINVAL when the bytes are broken. */
int bpf_btf_each_core(const struct bpf_btf *btf, const uint8_t *bytes, size_t len, bpf_core_fn *fn, void *user);

#endif
