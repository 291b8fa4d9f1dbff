/* SPDX-License-Identifier: MIT */
/*
 * libbpf reads BTF and answers by id and by name. It checks an id or an offset when it is asked about it, and the list of types when it
 * takes the section; only, about a list that does not add up it writes to stderr. To redirect that output would change a setting
 * of the whole process under the host's other threads. So the list is walked here first, and libbpf is given nothing to warn about.
 */
#include "lib/bpf/btf_reader.h"

#include <bpf/btf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/log.h"

#define MAX_NAME 4096u /* of bytes with the NUL; names are copied */

/* Bytes behind struct btf_type: `fixed`, and `each` per member. Known kinds that are not named here have none. */
static const struct {
	uint8_t fixed, each;
} tails[] = {
	[BTF_KIND_INT] = { 4, 0 },
	[BTF_KIND_ARRAY] = { sizeof(struct btf_array), 0 },
	[BTF_KIND_STRUCT] = { 0, sizeof(struct btf_member) },
	[BTF_KIND_UNION] = { 0, sizeof(struct btf_member) },
	[BTF_KIND_ENUM] = { 0, sizeof(struct btf_enum) },
	[BTF_KIND_FUNC_PROTO] = { 0, sizeof(struct btf_param) },
	[BTF_KIND_VAR] = { sizeof(struct btf_var), 0 },
	[BTF_KIND_DATASEC] = { 0, sizeof(struct btf_var_secinfo) },
	[BTF_KIND_DECL_TAG] = { sizeof(struct btf_decl_tag), 0 },
	[BTF_KIND_ENUM64] = { 0, sizeof(struct btf_enum64) }, /* the last kind that this reader knows */
};

static int check_types(const uint8_t *bytes, uint32_t len, const char *object)
{
	uint32_t id = 1, at = 0;

	while (at < len) {
		struct btf_type type;
		uint32_t kind, vlen, extra;

		if (len - at < sizeof(type))
			return shunt_fail(EINVAL, "%s: BTF type %u is cut off", object, id);
		memcpy(&type, bytes + at, sizeof(type));
		at += sizeof(type);
		kind = BTF_INFO_KIND(type.info);
		vlen = BTF_INFO_VLEN(type.info);
		if (kind == BTF_KIND_UNKN || kind >= sizeof(tails) / sizeof(tails[0]))
			return shunt_fail(ENOTSUP, "%s: BTF type %u is of the unknown kind %u; compile with an older clang or report it",
					  object, id, kind);
		extra = tails[kind].fixed + vlen * tails[kind].each;
		if (extra > len - at)
			return shunt_fail(EINVAL, "%s: BTF type %u (kind %u, %u members) is cut off", object, id, kind, vlen);
		at += extra;
		id++;
	}
	return 0;
}

static int check_section(const uint8_t *bytes, size_t len, const char *object)
{
	struct btf_header header;
	size_t body;

	if (len < sizeof(header))
		return shunt_fail(EINVAL, "%s: section '.BTF' of %zu bytes has no room for its header", object, len);
	memcpy(&header, bytes, sizeof(header));
	if (header.magic != BTF_MAGIC || header.version != BTF_VERSION)
		return shunt_fail(EINVAL, "%s: section '.BTF' has magic 0x%x version %u instead of 0x%x version %u", object,
				  header.magic, header.version, BTF_MAGIC, BTF_VERSION);
	/* A multiple of 4, so that types lie at an address that their fields may have. */
	if (header.hdr_len < sizeof(header) || header.hdr_len > len || header.hdr_len % 4)
		return shunt_fail(EINVAL, "%s: section '.BTF' of %zu bytes has a header of %u", object, len, header.hdr_len);
	body = len - header.hdr_len;
	if (header.type_off > body || header.type_len > body - header.type_off || header.str_off > body ||
	    header.str_len > body - header.str_off)
		return shunt_fail(EINVAL, "%s: the types or strings of section '.BTF' lie outside its %zu bytes", object, len);
	return check_types(bytes + header.hdr_len + header.type_off, header.type_len, object);
}

static int check_names(const struct bpf_btf *btf)
{
	for (uint32_t id = 1; id < btf__type_cnt(btf->types); id++) {
		uint32_t offset = btf__type_by_id(btf->types, id)->name_off;
		const char *name = bpf_btf_string(btf, offset);

		if (!name || strnlen(name, MAX_NAME) == MAX_NAME)
			return shunt_fail(EINVAL, "%s: the name of BTF type %u (offset %u) does not end in its strings within %u bytes",
					  btf->object, id, offset, MAX_NAME);
	}
	return 0;
}

static int list_datasecs(struct bpf_btf *btf)
{
	uint32_t capacity = 0;

	for (uint32_t id = 1; id < btf__type_cnt(btf->types); id++) {
		if (btf_kind(btf__type_by_id(btf->types, id)) != BTF_KIND_DATASEC)
			continue;
		if (btf->nr_datasecs == capacity) {
			uint32_t *more = realloc(btf->datasecs, (capacity = 2 * capacity + 8) * sizeof(*more));

			if (!more)
				return shunt_fail(ENOMEM, "%s: no memory for a list of %u BTF sections", btf->object, capacity);
			btf->datasecs = more;
		}
		btf->datasecs[btf->nr_datasecs++] = id;
	}
	return 0;
}

int bpf_btf_init(struct bpf_btf *btf, const uint8_t *bytes, size_t len, const char *object)
{
	int err = len ? check_section(bytes, len, object) : 0;

	*btf = (struct bpf_btf){ .object = object };
	if (err)
		return err;
	btf->types = len ? btf__new(bytes, (uint32_t)len) : btf__new_empty();
	if (!btf->types)
		return shunt_fail(errno, "%s: section '.BTF' of %zu bytes is refused by libbpf: %s", object, len, strerror(errno));
	/* Else it is guessed, from types that the file may call what it likes. */
	btf__set_pointer_size(btf->types, 8);
	err = check_names(btf);
	if (!err)
		err = list_datasecs(btf);
	if (err)
		bpf_btf_fini(btf);
	return err;
}

void bpf_btf_fini(struct bpf_btf *btf)
{
	btf__free(btf->types);
	btf->types = NULL;
	free(btf->datasecs);
	btf->datasecs = NULL;
	btf->nr_datasecs = 0;
}

const char *bpf_btf_string(const struct bpf_btf *btf, uint32_t offset)
{
	return btf__name_by_offset(btf->types, offset);
}

bool bpf_btf_type(const struct bpf_btf *btf, uint32_t id, struct bpf_btf_type *type)
{
	const struct btf_type *raw = id ? btf__type_by_id(btf->types, id) : NULL;

	if (!raw)
		return false;
	*type = (struct bpf_btf_type){ .name = bpf_btf_string(btf, raw->name_off), .kind = btf_kind(raw), .vlen = btf_vlen(raw),
				       .size_or_type = raw->size, .extra = raw + 1 };
	return true;
}

bool bpf_btf_skip(const struct bpf_btf *btf, uint32_t id, struct bpf_btf_type *type)
{
	int last = btf__resolve_type(btf->types, id);

	return last > 0 && bpf_btf_type(btf, (uint32_t)last, type);
}

bool bpf_btf_size(const struct bpf_btf *btf, uint32_t id, uint32_t *size)
{
	int64_t bytes = btf__resolve_size(btf->types, id);

	*size = (uint32_t)bytes;
	return bytes >= 0 && bytes <= UINT32_MAX;
}

struct btf_member bpf_btf_member(const struct bpf_btf_type *type, uint32_t i)
{
	return ((const struct btf_member *)type->extra)[i];
}

struct btf_var_secinfo bpf_btf_secinfo(const struct bpf_btf_type *type, uint32_t i)
{
	return ((const struct btf_var_secinfo *)type->extra)[i];
}

struct btf_array bpf_btf_array(const struct bpf_btf_type *type)
{
	return *(const struct btf_array *)type->extra;
}

bool bpf_btf_find(const struct bpf_btf *btf, const char *section, const char *name, struct bpf_btf_type *var)
{
	for (uint32_t d = 0; d < btf->nr_datasecs; d++) {
		struct bpf_btf_type datasec;

		if (!bpf_btf_type(btf, btf->datasecs[d], &datasec) || strcmp(datasec.name, section))
			continue;
		for (uint32_t i = 0; i < datasec.vlen; i++) {
			if (bpf_btf_type(btf, bpf_btf_secinfo(&datasec, i).type, var) && !strcmp(var->name, name) &&
			    (var->kind == BTF_KIND_VAR || var->kind == BTF_KIND_FUNC))
				return true;
		}
	}
	return false;
}

/* libbpf checks .BTF.ext, but shows no CO-RE relocation. This is struct btf_ext_header as far as them; it is in no public header. */
struct ext_header {
	uint16_t magic;
	uint8_t version, flags;
	uint32_t hdr_len;
	uint32_t func_info_off, func_info_len;
	uint32_t line_info_off, line_info_len;
	uint32_t core_off, core_len; /* present when hdr_len reaches over them */
};

/* A size of records, then for each section its name, their number, and they. All of them lie inside the len bytes. */
static int each_core(const struct bpf_btf *btf, const uint8_t *at, uint32_t len, bpf_core_fn *fn, void *user)
{
	const uint8_t *end = at + len;
	uint32_t record_size;

	memcpy(&record_size, at, sizeof(record_size));
	at += sizeof(record_size);
	while (at < end) {
		struct {
			uint32_t name, nr_records;
		} head;
		struct bpf_core_record record = { 0 };

		memcpy(&head, at, sizeof(head));
		at += sizeof(head);
		record.section = bpf_btf_string(btf, head.name);
		if (!record.section)
			return shunt_fail(EINVAL, "%s: CO-RE relocations of section '.BTF.ext' are for a section without a name (%u)",
					  btf->object, head.name);
		for (uint32_t i = 0; i < head.nr_records; i++, at += record_size) {
			struct bpf_core_relo raw;
			int err;

			memcpy(&raw, at, sizeof(raw));
			record.offset = raw.insn_off;
			record.type = raw.type_id;
			record.kind = raw.kind;
			err = fn(user, &record);
			if (err)
				return err;
		}
	}
	return 0;
}

int bpf_btf_each_core(const struct bpf_btf *btf, const uint8_t *bytes, size_t len, bpf_core_fn *fn, void *user)
{
	struct ext_header header = { 0 };
	struct btf_ext *checked;

	memcpy(&header, bytes, len < sizeof(header) ? len : sizeof(header));
	/* About the magic of the other byte order libbpf would warn. */
	if (header.magic != BTF_MAGIC)
		return shunt_fail(EINVAL, "%s: section '.BTF.ext' has magic 0x%x instead of 0x%x", btf->object, header.magic, BTF_MAGIC);
	checked = btf_ext__new(bytes, (uint32_t)len);
	if (!checked)
		return shunt_fail(errno, "%s: section '.BTF.ext' of %zu bytes is refused by libbpf: %s", btf->object, len,
				  strerror(errno));
	btf_ext__free(checked);
	if (header.hdr_len < sizeof(header) || !header.core_len)
		return 0;
	return each_core(btf, bytes + header.hdr_len + header.core_off, header.core_len, fn, user);
}
