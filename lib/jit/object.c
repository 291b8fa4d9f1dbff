/* SPDX-License-Identifier: MIT */
/*
 * Which names an object that LLVM just made defines and needs. Asking the object and not the module finds the calls that code generation
 * adds (memcpy, __divti3), and leaves out declarations that nothing uses. The input is trusted.
 */
#include "lib/jit/jit_internal.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/log.h"

static const Elf64_Shdr *find_symtab(const char *bytes, const Elf64_Ehdr *header)
{
	const Elf64_Shdr *sections = (const void *)(bytes + header->e_shoff);
	size_t nr = header->e_shnum ? header->e_shnum : sections[0].sh_size;

	for (size_t i = 0; i < nr; i++)
		if (sections[i].sh_type == SHT_SYMTAB)
			return &sections[i];
	return NULL;
}

int jit_object_read(const void *object, size_t len, struct jit_object_symbols *out)
{
	const char *bytes = object, *names;
	const Elf64_Ehdr *header = object;
	const Elf64_Shdr *symtab;
	const Elf64_Sym *symbols;
	size_t nr;

	memset(out, 0, sizeof(*out));
	if (len < sizeof(*header) || memcmp(header->e_ident, ELFMAG, SELFMAG) || header->e_ident[EI_CLASS] != ELFCLASS64)
		return shunt_fail(EINVAL, "code generation did not give a 64-bit ELF object: use an x86-64 or arm64 Linux triple");
	symtab = find_symtab(bytes, header);
	if (!symtab)
		return 0;
	symbols = (const void *)(bytes + symtab->sh_offset);
	names = bytes + ((const Elf64_Shdr *)(bytes + header->e_shoff))[symtab->sh_link].sh_offset;
	nr = symtab->sh_size / sizeof(*symbols);

	out->undefined = calloc(nr + 1, sizeof(*out->undefined));
	out->defined = calloc(nr + 1, sizeof(*out->defined));
	if (!out->undefined || !out->defined) {
		jit_object_fini(out);
		return shunt_fail(ENOMEM, "out of memory for the %zu symbols of an object", nr);
	}
	for (size_t i = 1; i < nr; i++) {
		const char *name = names + symbols[i].st_name;

		if (ELF64_ST_BIND(symbols[i].st_info) == STB_LOCAL || !*name)
			continue;
		if (symbols[i].st_shndx != SHN_UNDEF)
			out->defined[out->nr_defined++] = name;
		/* The linker makes the GOT's own symbol. */
		else if (strcmp(name, "_GLOBAL_OFFSET_TABLE_"))
			out->undefined[out->nr_undefined++] = (struct jit_undefined){ name, ELF64_ST_BIND(symbols[i].st_info) == STB_WEAK };
	}
	return 0;
}

void jit_object_fini(struct jit_object_symbols *symbols)
{
	free(symbols->undefined);
	free(symbols->defined);
	memset(symbols, 0, sizeof(*symbols));
}
