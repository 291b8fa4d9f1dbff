/* SPDX-License-Identifier: MIT */
#include "runtime/pack/names_elf.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

enum { SECTION_NULL, SECTION_TEXT, SECTION_SYMTAB, SECTION_STRTAB, SECTION_EH_FRAME, NR_SECTIONS };

static const char section_names[] = "\0.text\0.symtab\0.strtab\0.eh_frame";
enum { NAME_TEXT = 1, NAME_SYMTAB = 7, NAME_STRTAB = 15, NAME_EH_FRAME = 23 };

/* Where things lie in the object. */
struct layout {
	size_t sections, symbols, eh_frame, strings, len;
};

static void fill_header(Elf64_Ehdr *header, const struct layout *layout)
{
	memcpy(header->e_ident, ELFMAG, SELFMAG);
	header->e_ident[EI_CLASS] = ELFCLASS64;
	header->e_ident[EI_DATA] = ELFDATA2LSB;
	header->e_ident[EI_VERSION] = EV_CURRENT;
	header->e_type = ET_REL;
#if defined(__x86_64__)
	header->e_machine = EM_X86_64;
#else
	header->e_machine = EM_AARCH64;
#endif
	header->e_version = EV_CURRENT;
	header->e_shoff = layout->sections;
	header->e_ehsize = sizeof(Elf64_Ehdr);
	header->e_shentsize = sizeof(Elf64_Shdr);
	header->e_shnum = NR_SECTIONS;
	header->e_shstrndx = SECTION_STRTAB;
}

static void fill_sections(Elf64_Shdr *sections, const struct layout *layout, const struct shunt_block *block, size_t nr_symbols,
			  const void *eh_frame, size_t eh_frame_len)
{
	/* In the process's memory already: an address and a length are all that it needs. */
	sections[SECTION_TEXT] = (Elf64_Shdr){
		.sh_name = NAME_TEXT,
		.sh_type = SHT_NOBITS,
		.sh_flags = SHF_ALLOC | SHF_EXECINSTR,
		.sh_addr = (uintptr_t)block->rx,
		.sh_size = block->len,
		.sh_addralign = SHUNT_CHUNK_SIZE,
	};
	sections[SECTION_SYMTAB] = (Elf64_Shdr){
		.sh_name = NAME_SYMTAB,
		.sh_type = SHT_SYMTAB,
		.sh_offset = layout->symbols,
		.sh_size = nr_symbols * sizeof(Elf64_Sym),
		.sh_link = SECTION_STRTAB,
		.sh_info = 1,
		.sh_addralign = 8,
		.sh_entsize = sizeof(Elf64_Sym),
	};
	sections[SECTION_STRTAB] = (Elf64_Shdr){
		.sh_name = NAME_STRTAB,
		.sh_type = SHT_STRTAB,
		.sh_offset = layout->strings,
		.sh_size = layout->len - layout->strings,
		.sh_addralign = 1,
	};
	/* Its pointers are relative to where it lies, so it says that it lies there. */
	sections[SECTION_EH_FRAME] = (Elf64_Shdr){
		.sh_name = NAME_EH_FRAME,
		.sh_type = SHT_PROGBITS,
		.sh_flags = SHF_ALLOC,
		.sh_addr = (uintptr_t)eh_frame,
		.sh_offset = layout->eh_frame,
		.sh_size = eh_frame_len,
		.sh_addralign = 8,
	};
}

void *shunt_names_elf_make(const struct shunt_block *block, const struct shunt_part *parts, size_t nr, const void *eh_frame,
			   size_t eh_frame_len, size_t *len)
{
	struct layout layout = { .sections = sizeof(Elf64_Ehdr) };
	size_t strings_len = sizeof(section_names);
	Elf64_Sym *symbols;
	char *object, *string;

	if (!eh_frame)
		eh_frame_len = 0;
	for (size_t i = 0; i < nr; i++)
		strings_len += strlen(parts[i].name) + 1;
	layout.symbols = layout.sections + NR_SECTIONS * sizeof(Elf64_Shdr);
	layout.eh_frame = layout.symbols + (nr + 1) * sizeof(Elf64_Sym);
	layout.strings = layout.eh_frame + eh_frame_len;
	layout.len = layout.strings + strings_len;
	object = calloc(1, layout.len);
	if (!object)
		return NULL;
	fill_header((Elf64_Ehdr *)(void *)object, &layout);
	fill_sections((Elf64_Shdr *)(void *)(object + layout.sections), &layout, block, nr + 1, eh_frame, eh_frame_len);
	if (eh_frame_len)
		memcpy(object + layout.eh_frame, eh_frame, eh_frame_len);
	string = object + layout.strings;
	memcpy(string, section_names, sizeof(section_names));
	string += sizeof(section_names);
	symbols = (Elf64_Sym *)(void *)(object + layout.symbols);
	for (size_t i = 0; i < nr; i++) {
		symbols[i + 1] = (Elf64_Sym){
			.st_name = (Elf64_Word)(string - (object + layout.strings)),
			.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
			.st_shndx = SECTION_TEXT,
			.st_value = parts[i].offset,
			.st_size = parts[i].len,
		};
		string = stpcpy(string, parts[i].name) + 1;
	}
	*len = layout.len;
	return object;
}
