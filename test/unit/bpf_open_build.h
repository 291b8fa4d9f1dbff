/* SPDX-License-Identifier: MIT */
/* Builds small BPF objects in memory for tests, right or wrong ones: sections, symbols, relocations and BTF, without a compiler. */
#ifndef TEST_UNIT_BPF_OPEN_BUILD_H
#define TEST_UNIT_BPF_OPEN_BUILD_H

#include <elf.h>
#include <linux/bpf.h>
#include <stddef.h>
#include <stdint.h>

#define BUILD_MAX 32u

struct build_section {
	char name[48];
	uint32_t type, link, info;
	uint64_t flags, len;
	uint8_t *bytes;
	size_t room;
};

struct build {
	struct build_section sections[BUILD_MAX]; /* [0] is the null section */
	uint32_t nr_sections;
	uint32_t symtab, strtab;
	uint32_t nr_symbols;
	uint8_t btf_types[4096];
	char btf_strings[4096];
	uint32_t btf_types_len, btf_strings_len, nr_btf;
};

void build_init(struct build *b);
void build_fini(struct build *b);
uint32_t build_section(struct build *b, const char *name, uint32_t type, uint64_t flags, const void *bytes, size_t len);
uint32_t build_code(struct build *b, const char *name, const struct bpf_insn *insns, size_t nr);
uint32_t build_symbol(struct build *b, const char *name, uint32_t section, uint64_t value, uint64_t size, uint8_t type, uint8_t bind);
uint32_t build_func(struct build *b, const char *name, uint32_t section, uint32_t insn, uint32_t nr_insns);
void build_reloc(struct build *b, uint32_t section, uint64_t offset, uint32_t type, uint32_t symbol);
/* A program "prog" of section "xdp" that returns XDP_PASS. */
void build_pass(struct build *b);
/* The file; free() it. */
uint8_t *build_finish(struct build *b, size_t *len);
/* Header i of a finished file. */
Elf64_Shdr *build_header(uint8_t *bytes, uint32_t i);

/* BTF; each returns the id of the new type. */
uint32_t build_btf(struct build *b, const char *name, uint32_t kind, uint32_t vlen, uint32_t size_or_type, const void *extra, size_t extra_len);
uint32_t build_btf_int(struct build *b, uint32_t size);
uint32_t build_btf_pointer(struct build *b, uint32_t to);
uint32_t build_btf_array(struct build *b, uint32_t of, uint32_t nr);
uint32_t build_btf_string(struct build *b, const char *string);
struct build_field {
	const char *name;
	uint32_t number; /* __uint */
	uint32_t type;   /* __type, when not 0 */
	uint32_t raw;    /* the member's type itself, when not 0 */
};
/* Map `name` of the section `maps` at offset `at` (32 bytes) with those fields; its symbol's index. Call build_btf_end afterwards. */
uint32_t build_map(struct build *b, uint32_t maps, uint64_t at, const char *name, const struct build_field *fields, uint32_t nr);
uint32_t build_map_struct(struct build *b, const struct build_field *fields, uint32_t nr);
void build_btf_datasec(struct build *b, const char *section, const uint32_t *vars, uint32_t nr);
void build_btf_end(struct build *b); /* writes section .BTF */

#define INSN_MOV(reg, value) ((struct bpf_insn){ .code = 0xb7, .dst_reg = (reg), .imm = (value) })
#define INSN_EXIT ((struct bpf_insn){ .code = 0x95 })
#define INSN_CALL(value) ((struct bpf_insn){ .code = 0x85, .imm = (value) })
#define INSN_CALL_LOCAL(distance) ((struct bpf_insn){ .code = 0x85, .src_reg = 1, .imm = (distance) })
#define INSN_LD64(reg, value) { .code = 0x18, .dst_reg = (reg), .imm = (value) }, { 0 }

#endif
