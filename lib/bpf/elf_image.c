/* SPDX-License-Identifier: MIT */
/*
 * Reads ELF headers with every offset checked before it is followed. There is no library below it on purpose: this is the parser
 * that stands between the process and foreign bytes, so all of it is ours to fuzz. The image may lie at any alignment.
 */
#include "lib/bpf/elf_image.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/log.h"

#ifndef EM_BPF
#define EM_BPF 247
#endif

#define MAX_SECTIONS 8192u /* bounds work that grows with sections times sections; real objects have below 100 */

struct image {
	const uint8_t *bytes;
	size_t len;
};

static bool holds(const struct image *image, uint64_t offset, uint64_t len)
{
	return offset <= image->len && len <= image->len - offset;
}

/* The string at offset of a string section, NULL when it does not end inside. */
static const char *string_at(const struct bpf_elf_section *strings, uint64_t offset)
{
	if (!strings->bytes || offset >= strings->len)
		return NULL;
	if (!memchr(strings->bytes + offset, 0, strings->len - offset))
		return NULL;
	return (const char *)strings->bytes + offset;
}

static int check_header(const struct image *image, Elf64_Ehdr *header, const char *object)
{
	if (image->len > BPF_OBJECT_MAX_BYTES)
		return shunt_fail(EFBIG, "%s: %zu bytes are more than the %zu that a BPF object may have", object, image->len,
				  BPF_OBJECT_MAX_BYTES);
	if (image->len < sizeof(*header) || memcmp(image->bytes, ELFMAG, SELFMAG))
		return shunt_fail(EINVAL, "%s: not an ELF file; give a BPF object made by clang -target bpf -c", object);
	memcpy(header, image->bytes, sizeof(*header));
	if (header->e_ident[EI_CLASS] != ELFCLASS64)
		return shunt_fail(EINVAL, "%s: an ELF file of class %u, BPF objects are 64-bit (class 2)", object,
				  header->e_ident[EI_CLASS]);
	if (header->e_ident[EI_DATA] != ELFDATA2LSB)
		return shunt_fail(ENOTSUP, "%s: not little-endian; compile it with -target bpfel", object);
	if (header->e_machine != EM_BPF && header->e_machine != EM_NONE)
		return shunt_fail(EINVAL, "%s: an ELF file for machine %u, not for BPF (%u); compile it with clang -target bpf",
				  object, header->e_machine, EM_BPF);
	if (header->e_type != ET_REL)
		return shunt_fail(EINVAL, "%s: ELF type %u, BPF objects are relocatable files (type 1); compile with -c", object,
				  header->e_type);
	if (header->e_shentsize != sizeof(Elf64_Shdr))
		return shunt_fail(EINVAL, "%s: section headers of %u bytes instead of %zu", object, header->e_shentsize,
				  sizeof(Elf64_Shdr));
	if (!header->e_shnum || header->e_shnum > MAX_SECTIONS)
		return shunt_fail(EINVAL, "%s: %u section headers; an object has 1 to %u", object, header->e_shnum, MAX_SECTIONS);
	if (!holds(image, header->e_shoff, (uint64_t)header->e_shnum * sizeof(Elf64_Shdr)))
		return shunt_fail(EINVAL, "%s: the section headers (offset %llu) lie outside the file of %zu bytes", object,
				  (unsigned long long)header->e_shoff, image->len);
	if (header->e_shstrndx >= header->e_shnum)
		return shunt_fail(EINVAL, "%s: section names are in section %u of %u", object, header->e_shstrndx, header->e_shnum);
	return 0;
}

static int read_section(struct bpf_elf *elf, const struct image *image, const Elf64_Ehdr *header, uint32_t index, uint32_t *name)
{
	struct bpf_elf_section *section = &elf->sections[index];
	Elf64_Shdr raw;

	memcpy(&raw, image->bytes + header->e_shoff + index * sizeof(raw), sizeof(raw));
	*name = raw.sh_name;
	section->type = raw.sh_type;
	section->link = raw.sh_link;
	section->info = raw.sh_info;
	section->flags = raw.sh_flags;
	section->len = raw.sh_size;
	if (raw.sh_type == SHT_NULL) {
		section->len = 0;
		return 0;
	}
	if (raw.sh_type == SHT_NOBITS)
		return 0;
	if (!holds(image, raw.sh_offset, raw.sh_size))
		return shunt_fail(EINVAL, "%s: section %u (offset %llu, %llu bytes) lies outside the file of %zu bytes",
				  elf->object, index, (unsigned long long)raw.sh_offset, (unsigned long long)raw.sh_size,
				  image->len);
	section->bytes = image->bytes + raw.sh_offset;
	return 0;
}

static int read_sections(struct bpf_elf *elf, const struct image *image, const Elf64_Ehdr *header)
{
	uint32_t *names = calloc(header->e_shnum, sizeof(*names));
	int err = 0;

	elf->sections = calloc(header->e_shnum, sizeof(*elf->sections));
	elf->nr_sections = header->e_shnum;
	if (!elf->sections || !names) {
		free(names);
		return shunt_fail(ENOMEM, "%s: no memory for %u sections", elf->object, header->e_shnum);
	}
	for (uint32_t i = 0; i < elf->nr_sections && !err; i++)
		err = read_section(elf, image, header, i, &names[i]);
	for (uint32_t i = 0; i < elf->nr_sections && !err; i++) {
		struct bpf_elf_section *section = &elf->sections[i];

		section->name = section->type == SHT_NULL ? "" : string_at(&elf->sections[header->e_shstrndx], names[i]);
		if (!section->name)
			err = shunt_fail(EINVAL, "%s: the name of section %u (offset %u) lies outside the string table",
					 elf->object, i, names[i]);
	}
	free(names);
	return err;
}

static int read_symbol(struct bpf_elf *elf, const struct bpf_elf_section *table, uint32_t index)
{
	struct bpf_elf_symbol *symbol = &elf->symbols[index];
	Elf64_Sym raw;

	memcpy(&raw, table->bytes + (size_t)index * sizeof(raw), sizeof(raw));
	symbol->value = raw.st_value;
	symbol->size = raw.st_size;
	symbol->section = raw.st_shndx;
	symbol->type = ELF64_ST_TYPE(raw.st_info);
	symbol->bind = ELF64_ST_BIND(raw.st_info);
	symbol->name = string_at(&elf->sections[table->link], raw.st_name);
	if (!symbol->name)
		return shunt_fail(EINVAL, "%s: the name of symbol %u (offset %u) lies outside the string table", elf->object, index,
				  raw.st_name);
	if (raw.st_shndx >= SHN_LORESERVE) {
		if (raw.st_shndx != SHN_ABS && raw.st_shndx != SHN_COMMON)
			return shunt_fail(EINVAL, "%s: symbol '%s' is in the reserved section 0x%x", elf->object, symbol->name,
					  raw.st_shndx);
		return 0;
	}
	if (raw.st_shndx >= elf->nr_sections)
		return shunt_fail(EINVAL, "%s: symbol '%s' is in section %u of %u", elf->object, symbol->name, raw.st_shndx,
				  elf->nr_sections);
	if (symbol->type == STT_SECTION)
		symbol->name = elf->sections[raw.st_shndx].name;
	if (raw.st_shndx != SHN_UNDEF) {
		const struct bpf_elf_section *section = &elf->sections[raw.st_shndx];

		if (raw.st_value > section->len || raw.st_size > section->len - raw.st_value)
			return shunt_fail(EINVAL,
					  "%s: symbol '%s' (offset %llu, %llu bytes) lies outside section '%s' of %llu bytes",
					  elf->object, symbol->name, (unsigned long long)raw.st_value,
					  (unsigned long long)raw.st_size, section->name, (unsigned long long)section->len);
	}
	return 0;
}

static int read_symbols(struct bpf_elf *elf)
{
	const struct bpf_elf_section *table = NULL;
	int err = 0;

	for (uint32_t i = 0; i < elf->nr_sections; i++) {
		if (elf->sections[i].type != SHT_SYMTAB)
			continue;
		if (table)
			return shunt_fail(EINVAL, "%s: two symbol tables ('%s' and '%s')", elf->object, table->name,
					  elf->sections[i].name);
		table = &elf->sections[i];
	}
	if (!table)
		return shunt_fail(EINVAL, "%s: no symbol table, so no program can be found; do not strip BPF objects with -s",
				  elf->object);
	if (table->len % sizeof(Elf64_Sym) || table->link >= elf->nr_sections)
		return shunt_fail(EINVAL, "%s: the symbol table '%s' has %llu bytes and its names in section %u of %u", elf->object,
				  table->name, (unsigned long long)table->len, table->link, elf->nr_sections);
	elf->nr_symbols = table->len / sizeof(Elf64_Sym);
	elf->symbols = calloc(elf->nr_symbols + 1, sizeof(*elf->symbols));
	if (!elf->symbols)
		return shunt_fail(ENOMEM, "%s: no memory for %u symbols", elf->object, elf->nr_symbols);
	for (uint32_t i = 0; i < elf->nr_symbols && !err; i++)
		err = read_symbol(elf, table, i);
	return err;
}

int bpf_elf_init(struct bpf_elf *elf, const void *bytes, size_t len, const char *object)
{
	const struct image image = { bytes, len };
	Elf64_Ehdr header;
	int err;

	memset(elf, 0, sizeof(*elf));
	elf->object = object;
	err = check_header(&image, &header, object);
	if (!err)
		err = read_sections(elf, &image, &header);
	if (!err)
		err = read_symbols(elf);
	if (err)
		bpf_elf_fini(elf);
	return err;
}

void bpf_elf_fini(struct bpf_elf *elf)
{
	free(elf->sections);
	free(elf->symbols);
	memset(elf, 0, sizeof(*elf));
}

uint32_t bpf_elf_find(const struct bpf_elf *elf, const char *name)
{
	for (uint32_t i = 1; i < elf->nr_sections; i++) {
		if (elf->sections[i].type != SHT_NULL && !strcmp(elf->sections[i].name, name))
			return i;
	}
	return 0;
}

static int each_in_table(const struct bpf_elf *elf, const struct bpf_elf_section *table, const struct bpf_elf_section *target,
			 bpf_elf_reloc_fn *fn, void *user)
{
	if (table->len % sizeof(Elf64_Rel))
		return shunt_fail(EINVAL, "%s: the relocations '%s' have %llu bytes, not a multiple of %zu", elf->object,
				  table->name, (unsigned long long)table->len, sizeof(Elf64_Rel));
	for (uint64_t at = 0; at < table->len; at += sizeof(Elf64_Rel)) {
		struct bpf_elf_reloc reloc;
		Elf64_Rel raw;
		int err;

		memcpy(&raw, table->bytes + at, sizeof(raw));
		reloc.offset = raw.r_offset;
		reloc.type = ELF64_R_TYPE(raw.r_info);
		reloc.symbol = ELF64_R_SYM(raw.r_info);
		if (reloc.offset >= target->len)
			return shunt_fail(EINVAL, "%s: a relocation of '%s' is for offset %llu of its %llu bytes", elf->object,
					  target->name, (unsigned long long)reloc.offset, (unsigned long long)target->len);
		if (reloc.symbol >= elf->nr_symbols)
			return shunt_fail(EINVAL, "%s: a relocation of '%s' is for symbol %u of %u", elf->object, target->name,
					  reloc.symbol, elf->nr_symbols);
		err = fn(user, &reloc);
		if (err)
			return err;
	}
	return 0;
}

int bpf_elf_each_reloc(const struct bpf_elf *elf, uint32_t target, bpf_elf_reloc_fn *fn, void *user)
{
	for (uint32_t i = 1; i < elf->nr_sections; i++) {
		const struct bpf_elf_section *table = &elf->sections[i];
		int err;

		if ((table->type != SHT_REL && table->type != SHT_RELA) || table->info != target)
			continue;
		if (table->type == SHT_RELA)
			return shunt_fail(ENOTSUP, "%s: '%s' has relocations with addends, which BPF compilers do not write",
					  elf->object, table->name);
		err = each_in_table(elf, table, &elf->sections[target], fn, user);
		if (err)
			return err;
	}
	return 0;
}
