/* SPDX-License-Identifier: MIT */
/*
 * The relocatable 64-bit little-endian ELF files that BPF compilers write, read by libelf. The bytes are untrusted: everything that the
 * structs below point to has been checked to lie inside the image, every string to end there. Names and bytes live as long as the
 * struct bpf_elf, which keeps a copy of the file.
 */
#ifndef LIB_BPF_ELF_IMAGE_H
#define LIB_BPF_ELF_IMAGE_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct Elf; /* libelf's */

#define BPF_OBJECT_MAX_BYTES ((size_t)64 << 20) /* of a file, and of one data section */

/* Relocation types of EM_BPF (the psABI of LLVM's BPF target). */
#define BPF_RELOC_64_64 1u     /* ld_imm64 */
#define BPF_RELOC_64_ABS64 2u
#define BPF_RELOC_64_ABS32 3u
#define BPF_RELOC_64_NODYLD32 4u
#define BPF_RELOC_64_32 10u    /* call */

struct bpf_elf_section {
	const char *name;
	uint32_t type, link, info;
	uint64_t flags;
	const uint8_t *bytes; /* NULL for SHT_NOBITS and for len 0, else len bytes */
	uint64_t len;
};

struct bpf_elf_symbol {
	const char *name; /* of a section symbol: the section's */
	uint64_t value, size;
	uint32_t section; /* index, or SHN_UNDEF, SHN_ABS, SHN_COMMON */
	uint8_t type, bind;
};

struct bpf_elf_reloc {
	uint64_t offset; /* below the target section's len */
	uint32_t type;
	uint32_t symbol; /* a valid index */
};

struct bpf_elf {
	const char *object; /* for messages */
	void *image;
	struct Elf *file;
	struct bpf_elf_section *sections;
	uint32_t nr_sections;
	struct bpf_elf_symbol *symbols;
	uint32_t nr_symbols;
};

/* 0, or -EINVAL / -ENOTSUP / -EFBIG / -ENOMEM with a sentence; nothing to free on failure. */
int bpf_elf_init(struct bpf_elf *elf, const void *bytes, size_t len, const char *object);
void bpf_elf_fini(struct bpf_elf *elf);

/* Is the section code, as far as the ELF header knows? */
static inline bool bpf_elf_is_code(const struct bpf_elf_section *section)
{
	return section->type == SHT_PROGBITS && (section->flags & SHF_EXECINSTR);
}

/* The first section of that name, 0 when there is none. */
uint32_t bpf_elf_find(const struct bpf_elf *elf, const char *name);

/* Calls fn for each relocation that applies to section `target`; stops at the first result that is not 0 and returns it. */
typedef int bpf_elf_reloc_fn(void *user, const struct bpf_elf_reloc *reloc);
int bpf_elf_each_reloc(const struct bpf_elf *elf, uint32_t target, bpf_elf_reloc_fn *fn, void *user);

#endif
