/* SPDX-License-Identifier: MIT */
/* See bpf_open_build.h. Memory errors end the test program: nothing is worth testing then. */
#include "test/unit/bpf_open_build.h"

#include <linux/btf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void append(struct build_section *section, const void *bytes, size_t len)
{
	if (section->len + len > section->room) {
		section->room = (section->len + len) * 2;
		section->bytes = realloc(section->bytes, section->room);
		if (!section->bytes)
			abort();
	}
	memcpy(section->bytes + section->len, bytes, len);
	section->len += len;
}

uint32_t build_section(struct build *b, const char *name, uint32_t type, uint64_t flags, const void *bytes, size_t len)
{
	struct build_section *section = &b->sections[b->nr_sections];

	if (b->nr_sections == BUILD_MAX)
		abort();
	snprintf(section->name, sizeof(section->name), "%s", name);
	section->type = type;
	section->flags = flags;
	if (bytes && len)
		append(section, bytes, len);
	section->len = len;
	return b->nr_sections++;
}

static uint32_t add_string(struct build_section *strings, const char *string)
{
	uint32_t offset = (uint32_t)strings->len;

	append(strings, string, strlen(string) + 1);
	return offset;
}

void build_init(struct build *b)
{
	memset(b, 0, sizeof(*b));
	b->nr_sections = 1;
	b->strtab = build_section(b, ".strtab", SHT_STRTAB, 0, "", 1);
	b->symtab = build_section(b, ".symtab", SHT_SYMTAB, 0, NULL, 0);
	b->sections[b->symtab].link = b->strtab;
	build_symbol(b, "", 0, 0, 0, STT_NOTYPE, STB_LOCAL);
	b->btf_strings_len = 1;
	b->nr_btf = 1;
}

void build_fini(struct build *b)
{
	for (uint32_t i = 0; i < b->nr_sections; i++)
		free(b->sections[i].bytes);
}

uint32_t build_code(struct build *b, const char *name, const struct bpf_insn *insns, size_t nr)
{
	return build_section(b, name, SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, insns, nr * sizeof(*insns));
}

uint32_t build_symbol(struct build *b, const char *name, uint32_t section, uint64_t value, uint64_t size, uint8_t type, uint8_t bind)
{
	Elf64_Sym symbol = { .st_info = ELF64_ST_INFO(bind, type), .st_shndx = (uint16_t)section, .st_value = value, .st_size = size };

	symbol.st_name = add_string(&b->sections[b->strtab], name);
	append(&b->sections[b->symtab], &symbol, sizeof(symbol));
	return b->nr_symbols++;
}

uint32_t build_func(struct build *b, const char *name, uint32_t section, uint32_t insn, uint32_t nr_insns)
{
	return build_symbol(b, name, section, insn * 8ull, nr_insns * 8ull, STT_FUNC, STB_GLOBAL);
}

void build_reloc(struct build *b, uint32_t section, uint64_t offset, uint32_t type, uint32_t symbol)
{
	Elf64_Rel reloc = { .r_offset = offset, .r_info = ELF64_R_INFO((uint64_t)symbol, type) };
	uint32_t at = 1;

	while (at < b->nr_sections && !(b->sections[at].type == SHT_REL && b->sections[at].info == section))
		at++;
	if (at == b->nr_sections) {
		char name[40];

		snprintf(name, sizeof(name), ".rel%s", b->sections[section].name);
		build_section(b, name, SHT_REL, 0, NULL, 0);
		b->sections[at].link = b->symtab;
		b->sections[at].info = section;
	}
	append(&b->sections[at], &reloc, sizeof(reloc));
}

void build_pass(struct build *b)
{
	const struct bpf_insn insns[] = { INSN_MOV(0, 2), INSN_EXIT };

	build_func(b, "prog", build_code(b, "xdp", insns, 2), 0, 2);
}

uint8_t *build_finish(struct build *b, size_t *len)
{
	Elf64_Ehdr header = { .e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT }, .e_type = ET_REL,
			      .e_machine = 247, .e_version = EV_CURRENT, .e_ehsize = sizeof(header), .e_shentsize = sizeof(Elf64_Shdr) };
	size_t at = sizeof(header);
	Elf64_Shdr *headers;
	uint8_t *bytes;

	for (uint32_t i = 1; i < b->nr_sections; i++)
		add_string(&b->sections[b->strtab], b->sections[i].name);
	for (uint32_t i = 1; i < b->nr_sections; i++)
		at += (b->sections[i].type == SHT_NOBITS ? 0 : b->sections[i].len + 7) & ~7ull;
	*len = at + b->nr_sections * sizeof(Elf64_Shdr);
	bytes = calloc(1, *len);
	if (!bytes)
		abort();
	header.e_shoff = at;
	header.e_shnum = (uint16_t)b->nr_sections;
	header.e_shstrndx = (uint16_t)b->strtab;
	memcpy(bytes, &header, sizeof(header));
	headers = (Elf64_Shdr *)(bytes + at);
	at = sizeof(header);
	for (uint32_t i = 1; i < b->nr_sections; i++) {
		const struct build_section *section = &b->sections[i];
		const struct build_section *strings = &b->sections[b->strtab];
		const char *name = (const char *)strings->bytes + strings->len;

		/* Names were added last, in order. */
		for (uint32_t j = b->nr_sections; j-- > i;)
			name -= strlen(b->sections[j].name) + 1;
		headers[i] = (Elf64_Shdr){ .sh_name = (uint32_t)(name - (const char *)strings->bytes), .sh_type = section->type,
					   .sh_flags = section->flags, .sh_offset = at, .sh_size = section->len, .sh_link = section->link,
					   .sh_info = section->info, .sh_addralign = 8 };
		if (section->type == SHT_NOBITS || !section->len)
			continue;
		memcpy(bytes + at, section->bytes, section->len);
		at += (section->len + 7) & ~7ull;
	}
	return bytes;
}

Elf64_Shdr *build_header(uint8_t *bytes, uint32_t i)
{
	return (Elf64_Shdr *)(bytes + ((Elf64_Ehdr *)bytes)->e_shoff) + i;
}

uint32_t build_btf_string(struct build *b, const char *string)
{
	uint32_t offset = b->btf_strings_len;

	if (!*string)
		return 0;
	if (offset + strlen(string) + 1 > sizeof(b->btf_strings))
		abort();
	strcpy(b->btf_strings + offset, string);
	b->btf_strings_len += (uint32_t)strlen(string) + 1;
	return offset;
}

uint32_t build_btf(struct build *b, const char *name, uint32_t kind, uint32_t vlen, uint32_t size_or_type, const void *extra, size_t extra_len)
{
	struct btf_type type = { .name_off = build_btf_string(b, name), .info = kind << 24 | vlen, .size = size_or_type };

	if (b->btf_types_len + sizeof(type) + extra_len > sizeof(b->btf_types))
		abort();
	memcpy(b->btf_types + b->btf_types_len, &type, sizeof(type));
	if (extra_len)
		memcpy(b->btf_types + b->btf_types_len + sizeof(type), extra, extra_len);
	b->btf_types_len += (uint32_t)(sizeof(type) + extra_len);
	return b->nr_btf++;
}

uint32_t build_btf_int(struct build *b, uint32_t size)
{
	const uint32_t bits = size * 8;

	return build_btf(b, "int", BTF_KIND_INT, 0, size, &bits, 4);
}

uint32_t build_btf_pointer(struct build *b, uint32_t to)
{
	return build_btf(b, "", BTF_KIND_PTR, 0, to, NULL, 0);
}

uint32_t build_btf_array(struct build *b, uint32_t of, uint32_t nr)
{
	const struct btf_array array = { .type = of, .index_type = of, .nelems = nr };

	return build_btf(b, "", BTF_KIND_ARRAY, 0, 0, &array, sizeof(array));
}

uint32_t build_map_struct(struct build *b, const struct build_field *fields, uint32_t nr)
{
	struct btf_member members[8];
	uint32_t number = build_btf_int(b, 4);

	for (uint32_t i = 0; i < nr; i++) {
		members[i] = (struct btf_member){ .name_off = build_btf_string(b, fields[i].name), .offset = i * 64 };
		if (fields[i].raw)
			members[i].type = fields[i].raw;
		else
			members[i].type = build_btf_pointer(b, fields[i].type ? fields[i].type : build_btf_array(b, number, fields[i].number));
	}
	return build_btf(b, "", BTF_KIND_STRUCT, nr, nr * 8, members, nr * sizeof(*members));
}

uint32_t build_map(struct build *b, uint32_t maps, uint64_t at, const char *name, const struct build_field *fields, uint32_t nr)
{
	const uint32_t linkage = 1;
	uint32_t var = build_btf(b, name, BTF_KIND_VAR, 0, build_map_struct(b, fields, nr), &linkage, 4);

	build_btf_datasec(b, ".maps", &var, 1);
	return build_symbol(b, name, maps, at, 32, STT_OBJECT, STB_GLOBAL);
}

void build_btf_datasec(struct build *b, const char *section, const uint32_t *vars, uint32_t nr)
{
	struct btf_var_secinfo infos[8] = { 0 };

	for (uint32_t i = 0; i < nr; i++)
		infos[i].type = vars[i];
	build_btf(b, section, BTF_KIND_DATASEC, nr, 0, infos, nr * sizeof(*infos));
}

void build_btf_end(struct build *b)
{
	struct btf_header header = { .magic = BTF_MAGIC, .version = BTF_VERSION, .hdr_len = sizeof(header), .type_len = b->btf_types_len,
				     .str_off = b->btf_types_len, .str_len = b->btf_strings_len };
	uint32_t section = build_section(b, ".BTF", SHT_PROGBITS, 0, &header, sizeof(header));

	append(&b->sections[section], b->btf_types, b->btf_types_len);
	append(&b->sections[section], b->btf_strings, b->btf_strings_len);
}
