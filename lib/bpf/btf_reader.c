/* SPDX-License-Identifier: MIT */
/*
 * BTF, read as the kernel's Documentation/bpf/btf.rst lays it out: a header, a packed list of types, a string table. libbpf reads
 * it too, but writes to stderr when it is broken and trusts ids inside types; the library must do neither.
 */
#include "lib/bpf/btf_reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/log.h"

/* Kinds that older installed headers may lack. */
#define KIND_DECL_TAG 17
#define KIND_TYPE_TAG 18
#define KIND_ENUM64 19

#define MAX_DEPTH 32 /* typedefs and arrays around a type; C headers stay below 10 */

/* Bytes behind struct btf_type, -1 for a kind that we do not know. */
static int64_t extra_len(uint32_t kind, uint32_t vlen)
{
	switch (kind) {
	case BTF_KIND_PTR:
	case BTF_KIND_FWD:
	case BTF_KIND_TYPEDEF:
	case BTF_KIND_VOLATILE:
	case BTF_KIND_CONST:
	case BTF_KIND_RESTRICT:
	case BTF_KIND_FUNC:
	case BTF_KIND_FLOAT:
	case KIND_TYPE_TAG:
		return 0;
	case BTF_KIND_INT:
	case BTF_KIND_VAR:
	case KIND_DECL_TAG:
		return 4;
	case BTF_KIND_ARRAY:
		return sizeof(struct btf_array);
	case BTF_KIND_STRUCT:
	case BTF_KIND_UNION:
		return (int64_t)vlen * sizeof(struct btf_member);
	case BTF_KIND_ENUM:
		return (int64_t)vlen * sizeof(struct btf_enum);
	case BTF_KIND_FUNC_PROTO:
		return (int64_t)vlen * sizeof(struct btf_param);
	case BTF_KIND_DATASEC:
	case KIND_ENUM64:
		return (int64_t)vlen * 12;
	}
	return -1;
}

const char *bpf_btf_string(const struct bpf_btf *btf, uint32_t offset)
{
	return offset < btf->strings_len ? btf->strings + offset : NULL;
}

/* Finds where each type starts. */
static int index_types(struct bpf_btf *btf, uint32_t len)
{
	uint32_t capacity = len / sizeof(struct btf_type) + 1;
	uint32_t at = 0;

	btf->offsets = malloc(capacity * sizeof(*btf->offsets));
	if (!btf->offsets)
		return shunt_fail(ENOMEM, "%s: no memory for %u BTF types", btf->object, capacity);
	btf->nr_types = 1;
	while (at < len) {
		struct btf_type raw;
		int64_t extra;

		if (len - at < sizeof(raw))
			return shunt_fail(EINVAL, "%s: BTF type %u is cut off", btf->object, btf->nr_types);
		memcpy(&raw, btf->types + at, sizeof(raw));
		extra = extra_len(BTF_INFO_KIND(raw.info), BTF_INFO_VLEN(raw.info));
		if (extra < 0)
			return shunt_fail(ENOTSUP,
					  "%s: BTF type %u is of the unknown kind %u; compile with an older clang or report it",
					  btf->object, btf->nr_types, BTF_INFO_KIND(raw.info));
		if (extra > (int64_t)(len - at - sizeof(raw)))
			return shunt_fail(EINVAL, "%s: BTF type %u (kind %u, %u members) is cut off", btf->object, btf->nr_types,
					  BTF_INFO_KIND(raw.info), BTF_INFO_VLEN(raw.info));
		if (!bpf_btf_string(btf, raw.name_off))
			return shunt_fail(EINVAL, "%s: the name of BTF type %u (offset %u) lies outside its strings", btf->object,
					  btf->nr_types, raw.name_off);
		btf->offsets[btf->nr_types++] = at;
		at += sizeof(raw) + (uint32_t)extra;
	}
	return 0;
}

int bpf_btf_init(struct bpf_btf *btf, const uint8_t *bytes, size_t len, const char *object)
{
	struct btf_header header;
	uint64_t body;
	int err;

	memset(btf, 0, sizeof(*btf));
	btf->object = object;
	btf->nr_types = 1;
	if (!len)
		return 0;
	if (len < sizeof(header))
		return shunt_fail(EINVAL, "%s: section '.BTF' of %zu bytes has no room for its header", object, len);
	memcpy(&header, bytes, sizeof(header));
	if (header.magic != BTF_MAGIC || header.version != BTF_VERSION)
		return shunt_fail(EINVAL, "%s: section '.BTF' has magic 0x%x version %u instead of 0x%x version %u", object,
				  header.magic, header.version, BTF_MAGIC, BTF_VERSION);
	if (header.hdr_len < sizeof(header) || header.hdr_len > len)
		return shunt_fail(EINVAL, "%s: section '.BTF' of %zu bytes has a header of %u", object, len, header.hdr_len);
	body = len - header.hdr_len;
	if (header.type_off > body || header.type_len > body - header.type_off || header.str_off > body ||
	    header.str_len > body - header.str_off)
		return shunt_fail(EINVAL, "%s: the types or strings of section '.BTF' lie outside its %zu bytes", object, len);
	btf->types = bytes + header.hdr_len + header.type_off;
	btf->strings = (const char *)bytes + header.hdr_len + header.str_off;
	btf->strings_len = header.str_len;
	if (!header.str_len || btf->strings[0] || btf->strings[header.str_len - 1])
		return shunt_fail(EINVAL, "%s: the strings of section '.BTF' do not begin and end with a NUL", object);
	err = index_types(btf, header.type_len);
	if (err)
		bpf_btf_fini(btf);
	return err;
}

void bpf_btf_fini(struct bpf_btf *btf)
{
	free(btf->offsets);
	btf->offsets = NULL;
	btf->nr_types = 1;
}

bool bpf_btf_type(const struct bpf_btf *btf, uint32_t id, struct bpf_btf_type *type)
{
	struct btf_type raw;

	if (!id || id >= btf->nr_types)
		return false;
	memcpy(&raw, btf->types + btf->offsets[id], sizeof(raw));
	type->name = bpf_btf_string(btf, raw.name_off);
	type->kind = BTF_INFO_KIND(raw.info);
	type->vlen = BTF_INFO_VLEN(raw.info);
	type->size_or_type = raw.size;
	type->extra = btf->types + btf->offsets[id] + sizeof(raw);
	return true;
}

bool bpf_btf_skip(const struct bpf_btf *btf, uint32_t id, struct bpf_btf_type *type)
{
	for (int depth = 0; depth < MAX_DEPTH; depth++) {
		if (!bpf_btf_type(btf, id, type))
			return false;
		switch (type->kind) {
		case BTF_KIND_TYPEDEF:
		case BTF_KIND_CONST:
		case BTF_KIND_VOLATILE:
		case BTF_KIND_RESTRICT:
		case KIND_TYPE_TAG:
			id = type->size_or_type;
			continue;
		}
		return true;
	}
	return false;
}

bool bpf_btf_size(const struct bpf_btf *btf, uint32_t id, uint32_t *size)
{
	uint64_t times = 1;

	for (int depth = 0; depth < MAX_DEPTH; depth++) {
		struct bpf_btf_type type;

		if (!bpf_btf_skip(btf, id, &type))
			return false;
		switch (type.kind) {
		case BTF_KIND_ARRAY:
			/* times stays below 2^32, so this product does not overflow. */
			times *= bpf_btf_array(&type).nelems;
			if (times > UINT32_MAX)
				return false;
			id = bpf_btf_array(&type).type;
			continue;
		case BTF_KIND_PTR:
			times *= 8;
			break;
		case BTF_KIND_INT:
		case BTF_KIND_STRUCT:
		case BTF_KIND_UNION:
		case BTF_KIND_ENUM:
		case BTF_KIND_FLOAT:
		case KIND_ENUM64:
			times *= type.size_or_type;
			break;
		default:
			return false;
		}
		*size = (uint32_t)times;
		return times <= UINT32_MAX;
	}
	return false;
}

struct btf_member bpf_btf_member(const struct bpf_btf_type *type, uint32_t i)
{
	struct btf_member member;

	memcpy(&member, type->extra + i * sizeof(member), sizeof(member));
	return member;
}

struct btf_var_secinfo bpf_btf_secinfo(const struct bpf_btf_type *type, uint32_t i)
{
	struct btf_var_secinfo info;

	memcpy(&info, type->extra + i * sizeof(info), sizeof(info));
	return info;
}

struct btf_array bpf_btf_array(const struct bpf_btf_type *type)
{
	struct btf_array array;

	memcpy(&array, type->extra, sizeof(array));
	return array;
}

bool bpf_btf_find(const struct bpf_btf *btf, const char *section, const char *name, struct bpf_btf_type *var)
{
	for (uint32_t id = 1; id < btf->nr_types; id++) {
		struct bpf_btf_type datasec;

		if (!bpf_btf_type(btf, id, &datasec) || datasec.kind != BTF_KIND_DATASEC || strcmp(datasec.name, section))
			continue;
		for (uint32_t i = 0; i < datasec.vlen; i++) {
			if (bpf_btf_type(btf, bpf_btf_secinfo(&datasec, i).type, var) && !strcmp(var->name, name) &&
			    (var->kind == BTF_KIND_VAR || var->kind == BTF_KIND_FUNC))
				return true;
		}
	}
	return false;
}

/* struct btf_ext_header as far as its CO-RE part; it is not in the uapi headers. */
struct ext_header {
	uint16_t magic;
	uint8_t version, flags;
	uint32_t hdr_len;
	uint32_t func_info_off, func_info_len;
	uint32_t line_info_off, line_info_len;
	uint32_t core_off, core_len; /* present when hdr_len reaches over them */
};

struct core_record {
	uint32_t insn_off, type_id, access_str_off, kind;
};

static int each_core_of_section(const char *section, const uint8_t *records, uint32_t nr, uint32_t record_size, bpf_core_fn *fn,
				void *user)
{
	for (uint32_t i = 0; i < nr; i++) {
		struct bpf_core_record record = { .section = section };
		struct core_record raw;
		int err;

		memcpy(&raw, records + (size_t)i * record_size, sizeof(raw));
		record.offset = raw.insn_off;
		record.type = raw.type_id;
		record.kind = raw.kind;
		err = fn(user, &record);
		if (err)
			return err;
	}
	return 0;
}

int bpf_btf_each_core(const struct bpf_btf *btf, const uint8_t *bytes, size_t len, bpf_core_fn *fn, void *user)
{
	struct ext_header header = { 0 };
	const uint8_t *at, *end;
	uint32_t record_size;

	if (len < offsetof(struct ext_header, core_off))
		return shunt_fail(EINVAL, "%s: section '.BTF.ext' of %zu bytes has no room for its header", btf->object, len);
	memcpy(&header, bytes, offsetof(struct ext_header, core_off));
	if (header.magic != BTF_MAGIC || header.version != BTF_VERSION || header.hdr_len > len)
		return shunt_fail(EINVAL, "%s: section '.BTF.ext' of %zu bytes has magic 0x%x, version %u and a header of %u bytes",
				  btf->object, len, header.magic, header.version, header.hdr_len);
	if (header.hdr_len < sizeof(header))
		return 0;
	memcpy(&header, bytes, sizeof(header));
	if (!header.core_len)
		return 0;
	if (header.core_off > len - header.hdr_len || header.core_len > len - header.hdr_len - header.core_off ||
	    header.core_len < 4)
		return shunt_fail(EINVAL, "%s: the CO-RE relocations lie outside the %zu bytes of section '.BTF.ext'", btf->object,
				  len);
	at = bytes + header.hdr_len + header.core_off;
	end = at + header.core_len;
	memcpy(&record_size, at, 4);
	at += 4;
	if (record_size < sizeof(struct core_record))
		return shunt_fail(EINVAL, "%s: CO-RE relocations of %u bytes in section '.BTF.ext'", btf->object, record_size);
	while (at < end) {
		uint32_t name, nr;
		int err;

		if (end - at < 8)
			return shunt_fail(EINVAL, "%s: the CO-RE relocations of section '.BTF.ext' are cut off", btf->object);
		memcpy(&name, at, 4);
		memcpy(&nr, at + 4, 4);
		at += 8;
		if (!bpf_btf_string(btf, name) || (uint64_t)nr * record_size > (uint64_t)(end - at))
			return shunt_fail(EINVAL, "%s: %u CO-RE relocations of section '.BTF.ext' (name at %u) are cut off",
					  btf->object, nr, name);
		err = each_core_of_section(bpf_btf_string(btf, name), at, nr, record_size, fn, user);
		if (err)
			return err;
		at += (size_t)nr * record_size;
	}
	return 0;
}
