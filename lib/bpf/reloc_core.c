/* SPDX-License-Identifier: MIT */
/*
 * CO-RE: the compiler left fields of kernel structs for the loader to fix. There is no running kernel whose structs matter here, so
 * a function that needs one is not supported. What is fixed by a protocol or the user ABI (packet headers, struct xdp_md) already
 * has its right offsets in the instructions; objects built on a generated vmlinux.h mark those too.
 */
#include "lib/bpf/object.h"

#include <errno.h>
#include <string.h>

/* enum bpf_core_relo_kind: 0 to 5 are about fields, 6 is the id of a type in the object's own BTF. */
#define KIND_LAST_FIELD 5u
#define KIND_TYPE_ID_LOCAL 6u

static bool has_fixed_layout(const char *type)
{
	static const char *const fixed[] = { "xdp_md",	 "ethhdr",	"vlan_hdr",	  "vlan_ethhdr",   "arphdr",
					     "iphdr",	 "ipv6hdr",	"ipv6_opt_hdr",	  "frag_hdr",	   "in_addr",
					     "in6_addr", "ip_auth_hdr", "ip_esp_hdr",	  "tcphdr",	   "udphdr",
					     "icmphdr",	 "icmp6hdr",	"sctphdr",	  "igmphdr",	   "gre_base_hdr",
					     "vxlanhdr", "mpls_label",	"bpf_fib_lookup", "bpf_sock_tuple" };

	for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++) {
		if (!strcmp(type, fixed[i]))
			return true;
	}
	return false;
}

static int on_core(void *user, const struct bpf_core_record *record)
{
	struct bpf_opening *opening = user;
	struct shunt_bpf_object *object = opening->object;
	uint32_t section = bpf_elf_find(&opening->elf, record->section), func;
	struct bpf_btf_type type;

	func = section ? bpf_find_func(object, section, record->offset / sizeof(struct bpf_insn), false) : UINT32_MAX;
	if (func == UINT32_MAX || record->offset % sizeof(struct bpf_insn))
		return shunt_fail(EINVAL,
				  "%s: the CO-RE relocation at offset %u of section '%s' is for no instruction of a function",
				  object->name, record->offset, record->section);
	if (!bpf_btf_skip(&opening->btf, record->type, &type))
		return shunt_fail(EINVAL, "%s: the CO-RE relocation at offset %u of section '%s' is against the missing type %u",
				  object->name, record->offset, record->section, record->type);
	if (record->kind == KIND_TYPE_ID_LOCAL || (record->kind <= KIND_LAST_FIELD && has_fixed_layout(type.name)))
		return 0;
	return bpf_reason(&object->func_places[func].unsupported,
			  "instruction %u: a CO-RE relocation against '%s', a type of a kernel, and there is none here",
			  record->offset / (uint32_t)sizeof(struct bpf_insn) - object->func_places[func].start, type.name);
}

int bpf_open_core_relocs(struct bpf_opening *opening)
{
	uint32_t index = bpf_elf_find(&opening->elf, ".BTF.ext");
	const struct bpf_elf_section *section = &opening->elf.sections[index];

	if (!index || !section->bytes || !section->len)
		return 0;
	return bpf_btf_each_core(&opening->btf, section->bytes, section->len, on_core, opening);
}
