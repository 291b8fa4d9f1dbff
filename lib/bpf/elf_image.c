/* SPDX-License-Identifier: MIT */
/*
 * libelf finds the sections, strings, symbols and relocations of a file and stays inside its bytes. What stands here around it is
 * what it takes from the file on trust: that this is a BPF object, the size of the section table, what symbols and relocations
 * say about other parts of the file, and everything that a hostile file could make large. libelf may write to the image that it is given, so
 * that is a copy.
 */
#include "lib/bpf/elf_image.h"

#include <errno.h>
#include <gelf.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/log.h"

#ifndef EM_BPF
#define EM_BPF 247
#endif

#define MAX_SECTIONS 8192u /* bounds work that grows with sections times sections; real objects have below 100 */
#define MAX_NAME 4096u     /* of bytes with the NUL; names are copied, and mangled ones stay below a few hundred */

static int check_header(const Elf64_Ehdr *header, size_t len, const char *object)
{
	if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_VERSION] != EV_CURRENT)
		return shunt_fail(EINVAL, "%s: an ELF file of class %u and version %u, BPF objects are 64-bit (class 2) of version 1",
				  object, header->e_ident[EI_CLASS], header->e_ident[EI_VERSION]);
	if (header->e_ident[EI_DATA] != ELFDATA2LSB)
		return shunt_fail(ENOTSUP, "%s: not little-endian; compile it with -target bpfel", object);
	if (header->e_machine != EM_BPF && header->e_machine != EM_NONE)
		return shunt_fail(EINVAL, "%s: an ELF file for machine %u, not for BPF (%u); compile it with clang -target bpf",
				  object, header->e_machine, EM_BPF);
	if (header->e_type != ET_REL)
		return shunt_fail(EINVAL, "%s: ELF type %u, BPF objects are relocatable files (type 1); compile with -c", object,
				  header->e_type);
	if (header->e_shentsize != sizeof(Elf64_Shdr) || !header->e_shnum || header->e_shnum > MAX_SECTIONS ||
	    header->e_shoff > len || header->e_shnum * sizeof(Elf64_Shdr) > len - header->e_shoff)
		return shunt_fail(EINVAL, "%s: %u section headers of %u bytes at offset %llu; a file of %zu bytes has 1 to %u of %zu inside",
				  object, header->e_shnum, header->e_shentsize, (unsigned long long)header->e_shoff, len,
				  MAX_SECTIONS, sizeof(Elf64_Shdr));
	return 0;
}

static int open_image(struct bpf_elf *elf, const void *bytes, size_t len)
{
	Elf64_Ehdr header;
	int err;

	if (len > BPF_OBJECT_MAX_BYTES)
		return shunt_fail(EFBIG, "%s: %zu bytes are more than the %zu that a BPF object may have", elf->object, len,
				  BPF_OBJECT_MAX_BYTES);
	if (len < sizeof(header) || memcmp(bytes, ELFMAG, SELFMAG))
		return shunt_fail(EINVAL, "%s: neither an ELF file nor LLVM IR; give a BPF object made by clang -target bpf -c, or -emit-llvm", elf->object);
	memcpy(&header, bytes, sizeof(header));
	err = check_header(&header, len, elf->object);
	if (err)
		return err;
	elf->image = malloc(len);
	elf->sections = calloc(header.e_shnum, sizeof(*elf->sections));
	if (!elf->image || !elf->sections)
		return shunt_fail(ENOMEM, "%s: no memory for %zu bytes in %u sections", elf->object, len, header.e_shnum);
	memcpy(elf->image, bytes, len);
	elf->nr_sections = header.e_shnum;
	elf_version(EV_CURRENT);
	elf->file = elf_memory(elf->image, len);
	if (!elf->file)
		return shunt_fail(EINVAL, "%s: cannot be read as ELF: %s", elf->object, elf_errmsg(-1));
	return 0;
}

static int unreadable(const struct bpf_elf *elf, const char *what, uint32_t index)
{
	return shunt_fail(EINVAL, "%s: %s %u cannot be read: %s", elf->object, what, index, elf_errmsg(-1));
}

/* NULL when it does not end inside, or is too long. Not elf_strptr: that one unpacks a compressed table to whatever size it claims to have. */
static const char *string_at(const struct bpf_elf *elf, uint32_t table, uint32_t offset)
{
	const Elf_Data *data = elf_rawdata(elf_getscn(elf->file, table), NULL);
	const char *string;
	size_t room;

	if (!data || !data->d_buf || offset >= data->d_size)
		return NULL;
	string = (const char *)data->d_buf + offset;
	room = data->d_size - offset;
	return memchr(string, 0, room < MAX_NAME ? room : MAX_NAME) ? string : NULL;
}

static int read_section(struct bpf_elf *elf, uint32_t names, uint32_t index)
{
	Elf_Scn *scn = elf_getscn(elf->file, index);
	Elf_Data *data = elf_rawdata(scn, NULL);
	GElf_Shdr header;
	const char *name;

	if (!data || !gelf_getshdr(scn, &header))
		return unreadable(elf, "section", index);
	name = string_at(elf, names, header.sh_name);
	if (!name)
		return shunt_fail(EINVAL, "%s: the name of section %u does not end in the string table within %u bytes (offset %u of section %u)",
				  elf->object, index, MAX_NAME, header.sh_name, names);
	elf->sections[index] = (struct bpf_elf_section){ .name = name, .type = header.sh_type, .link = header.sh_link,
							 .info = header.sh_info, .flags = header.sh_flags,
							 .bytes = header.sh_type == SHT_NOBITS ? NULL : data->d_buf,
							 .len = data->d_size };
	return 0;
}

static int read_sections(struct bpf_elf *elf)
{
	size_t names;
	int err = 0;

	if (elf_getshdrstrndx(elf->file, &names))
		return unreadable(elf, "the index of the names of", elf->nr_sections);
	for (uint32_t i = 0; i < elf->nr_sections && !err; i++)
		err = read_section(elf, (uint32_t)names, i);
	return err;
}

static int read_symbol(struct bpf_elf *elf, Elf_Data *table, uint32_t strings, uint32_t index)
{
	struct bpf_elf_symbol *symbol = &elf->symbols[index];
	const struct bpf_elf_section *section;
	GElf_Sym raw;

	if (!gelf_getsym(table, (int)index, &raw))
		return unreadable(elf, "symbol", index);
	*symbol = (struct bpf_elf_symbol){ .name = string_at(elf, strings, raw.st_name), .value = raw.st_value, .size = raw.st_size,
					   .section = raw.st_shndx, .type = GELF_ST_TYPE(raw.st_info),
					   .bind = GELF_ST_BIND(raw.st_info) };
	if (!symbol->name)
		return shunt_fail(EINVAL, "%s: the name of symbol %u does not end in the string table within %u bytes (offset %u of section %u)",
				  elf->object, index, MAX_NAME, raw.st_name, strings);
	if (raw.st_shndx == SHN_UNDEF || raw.st_shndx == SHN_ABS || raw.st_shndx == SHN_COMMON)
		return 0;
	if (raw.st_shndx >= elf->nr_sections)
		return shunt_fail(EINVAL, "%s: symbol '%s' is in section %u of %u", elf->object, symbol->name, raw.st_shndx,
				  elf->nr_sections);
	section = &elf->sections[raw.st_shndx];
	if (symbol->type == STT_SECTION)
		symbol->name = section->name;
	if (raw.st_value > section->len || raw.st_size > section->len - raw.st_value)
		return shunt_fail(EINVAL, "%s: symbol '%s' (offset %llu, %llu bytes) lies outside section '%s' of %llu bytes",
				  elf->object, symbol->name, (unsigned long long)raw.st_value, (unsigned long long)raw.st_size,
				  section->name, (unsigned long long)section->len);
	return 0;
}

static int read_symbols(struct bpf_elf *elf)
{
	uint32_t table = 0;
	Elf_Data *data;
	int err = 0;

	for (uint32_t i = 0; i < elf->nr_sections; i++) {
		if (elf->sections[i].type != SHT_SYMTAB)
			continue;
		if (table)
			return shunt_fail(EINVAL, "%s: two symbol tables ('%s' and '%s')", elf->object, elf->sections[table].name,
					  elf->sections[i].name);
		table = i;
	}
	if (!table)
		return shunt_fail(EINVAL, "%s: no symbol table, so no program can be found; do not strip BPF objects with -s",
				  elf->object);
	data = elf_getdata(elf_getscn(elf->file, table), NULL);
	if (!data)
		return unreadable(elf, "the symbol table, section", table);
	elf->nr_symbols = (uint32_t)(data->d_size / sizeof(Elf64_Sym));
	elf->symbols = calloc(elf->nr_symbols + 1, sizeof(*elf->symbols));
	if (!elf->symbols)
		return shunt_fail(ENOMEM, "%s: no memory for %u symbols", elf->object, elf->nr_symbols);
	for (uint32_t i = 0; i < elf->nr_symbols && !err; i++)
		err = read_symbol(elf, data, elf->sections[table].link, i);
	return err;
}

int bpf_elf_init(struct bpf_elf *elf, const void *bytes, size_t len, const char *object)
{
	int err;

	memset(elf, 0, sizeof(*elf));
	elf->object = object;
	err = open_image(elf, bytes, len);
	if (!err)
		err = read_sections(elf);
	if (!err)
		err = read_symbols(elf);
	if (err)
		bpf_elf_fini(elf);
	return err;
}

void bpf_elf_fini(struct bpf_elf *elf)
{
	elf_end(elf->file);
	free(elf->image);
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

static int each_in_table(const struct bpf_elf *elf, uint32_t table, const struct bpf_elf_section *target, bpf_elf_reloc_fn *fn,
			 void *user)
{
	Elf_Data *data = elf_getdata(elf_getscn(elf->file, table), NULL);
	int err = 0;

	if (!data)
		return unreadable(elf, "the relocations, section", table);
	for (size_t i = 0; i < data->d_size / sizeof(Elf64_Rel) && !err; i++) {
		struct bpf_elf_reloc reloc;
		GElf_Rel raw;

		/* It does not read a table that is marked as compressed. */
		if (!gelf_getrel(data, (int)i, &raw))
			return unreadable(elf, "the relocations, section", table);
		reloc = (struct bpf_elf_reloc){ raw.r_offset, GELF_R_TYPE(raw.r_info), GELF_R_SYM(raw.r_info) };
		if (reloc.offset >= target->len)
			return shunt_fail(EINVAL, "%s: a relocation of '%s' is for offset %llu of its %llu bytes", elf->object,
					  target->name, (unsigned long long)reloc.offset, (unsigned long long)target->len);
		if (reloc.symbol >= elf->nr_symbols)
			return shunt_fail(EINVAL, "%s: a relocation of '%s' is for symbol %u of %u", elf->object, target->name,
					  reloc.symbol, elf->nr_symbols);
		err = fn(user, &reloc);
	}
	return err;
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
		err = each_in_table(elf, i, &elf->sections[target], fn, user);
		if (err)
			return err;
	}
	return 0;
}
