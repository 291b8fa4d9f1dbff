/* SPDX-License-Identifier: MIT */
/* Broken objects: each is refused with a sentence that names the place. */
#include "test/unit/bpf_open_build.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <linux/btf.h>
#include <shunt/bpf.h>
#include <shunt/log.h>

/* Opens, with stderr in a file that must stay empty: neither the library nor one below it prints. */
static int open_quietly(const void *bytes, size_t len, struct shunt_bpf_object **object)
{
	int file = memfd_create("stderr", 0), saved = dup(STDERR_FILENO), got;
	char printed[256] = "";

	cr_assert(file >= 0 && saved >= 0 && dup2(file, STDERR_FILENO) >= 0);
	got = shunt_bpf_open_memory(bytes, len, "test.o", NULL, object);
	cr_assert(dup2(saved, STDERR_FILENO) >= 0);
	cr_assert_eq(pread(file, printed, sizeof(printed) - 1, 0), 0, "printed: %s", printed);
	close(file);
	close(saved);
	return got;
}

/* Refused, with a sentence that begins with the object's name and holds `part`. */
static void refuse_bytes(const void *bytes, size_t len, int err, const char *part)
{
	struct shunt_bpf_object *object = NULL;
	/* In memory of its exact size: a sanitizer sees a byte read behind it. */
	void *copy = malloc(len ? len : 1);
	int got;

	cr_assert_not_null(copy);
	memcpy(copy, bytes, len);
	got = open_quietly(copy, len, &object);
	cr_assert_eq(got, -err, "%d (%s) instead of %d", got, shunt_error(), -err);
	cr_assert_null(object);
	cr_assert_eq(strncmp(shunt_error(), "test.o: ", 8), 0, "'%s' does not name the object", shunt_error());
	cr_assert_not_null(strstr(shunt_error(), part), "'%s' does not say '%s'", shunt_error(), part);
	free(copy);
}

static void refuse(struct build *b, int err, const char *part)
{
	size_t len;
	uint8_t *bytes = build_finish(b, &len);

	refuse_bytes(bytes, len, err, part);
	free(bytes);
	build_fini(b);
}

static struct shunt_bpf_object *accept(struct build *b)
{
	struct shunt_bpf_object *object = NULL;
	size_t len;
	uint8_t *bytes = build_finish(b, &len);
	int err = shunt_bpf_open_memory(bytes, len, "test.o", NULL, &object);

	cr_assert_eq(err, 0, "%d %s", err, shunt_error());
	free(bytes);
	build_fini(b);
	return object;
}

/* A good object to spoil. */
static uint8_t *good(size_t *len)
{
	struct build b;
	uint8_t *bytes;

	build_init(&b);
	build_pass(&b);
	bytes = build_finish(&b, len);
	build_fini(&b);
	return bytes;
}

Test(bpf_open_broken, the_good_object_that_these_tests_spoil_opens)
{
	struct shunt_bpf_object *object;
	struct build b;

	build_init(&b);
	build_pass(&b);
	object = accept(&b);
	cr_expect_str_eq(shunt_bpf_program_name(shunt_bpf_next_program(object, NULL)), "prog");
	shunt_bpf_close(object);
}

Test(bpf_open_broken, what_is_no_bpf_object_is_refused_by_what_it_is)
{
	size_t len;
	uint8_t *bytes = good(&len);
	Elf64_Ehdr *header = (Elf64_Ehdr *)bytes;

	refuse_bytes("", 0, EINVAL, "neither an ELF file nor LLVM IR");
	refuse_bytes("#!/bin/sh\nexit 0\n", 17, EINVAL, "neither an ELF file nor LLVM IR");
	refuse_bytes(bytes, 63, EINVAL, "neither an ELF file nor LLVM IR");
	header->e_ident[EI_CLASS] = ELFCLASS32;
	refuse_bytes(bytes, len, EINVAL, "class 1");
	header->e_ident[EI_CLASS] = ELFCLASS64;
	header->e_ident[EI_VERSION] = 7;
	refuse_bytes(bytes, len, EINVAL, "version 7");
	header->e_ident[EI_VERSION] = EV_CURRENT;
	header->e_ident[EI_DATA] = ELFDATA2MSB;
	refuse_bytes(bytes, len, ENOTSUP, "bpfel");
	header->e_ident[EI_DATA] = ELFDATA2LSB;
	header->e_machine = EM_X86_64;
	refuse_bytes(bytes, len, EINVAL, "machine 62");
	header->e_machine = 247;
	header->e_type = ET_EXEC;
	refuse_bytes(bytes, len, EINVAL, "ELF type 2");
	free(bytes);
}

Test(bpf_open_broken, every_truncation_of_an_object_is_refused)
{
	size_t len;
	uint8_t *bytes = good(&len);

	for (size_t cut = 0; cut < len; cut++)
		refuse_bytes(bytes, cut, EINVAL, "");
	free(bytes);
}

Test(bpf_open_broken, section_headers_outside_the_file_are_refused)
{
	size_t len;
	uint8_t *bytes = good(&len);
	Elf64_Ehdr *header = (Elf64_Ehdr *)bytes;
	uint64_t offset = header->e_shoff;

	header->e_shoff = len - 8;
	refuse_bytes(bytes, len, EINVAL, "section headers");
	header->e_shoff = UINT64_MAX - 32;
	refuse_bytes(bytes, len, EINVAL, "section headers");
	header->e_shoff = offset;
	header->e_shnum = 0;
	refuse_bytes(bytes, len, EINVAL, "0 section headers");
	header->e_shnum = 0xffff;
	refuse_bytes(bytes, len, EINVAL, "65535 section headers");
	header->e_shnum = 4;
	header->e_shstrndx = 4;
	refuse_bytes(bytes, len, EINVAL, "the name of section 0 does not end in the string table within 4096 bytes (offset 0 of section 4)");
	header->e_shentsize = 40;
	refuse_bytes(bytes, len, EINVAL, "of 40 bytes");
	free(bytes);
}

Test(bpf_open_broken, sections_outside_the_file_are_refused_even_when_their_end_wraps_around)
{
	size_t len;
	uint8_t *bytes = good(&len);
	Elf64_Shdr *code = build_header(bytes, 3);

	code->sh_size = len;
	refuse_bytes(bytes, len, EINVAL, "section 3");
	code->sh_size = 16;
	code->sh_offset = UINT64_MAX - 7;
	refuse_bytes(bytes, len, EINVAL, "section 3");
	code->sh_offset = 64;
	code->sh_size = UINT64_MAX - 32;
	refuse_bytes(bytes, len, EINVAL, "section 3");
	free(bytes);
}

Test(bpf_open_broken, names_outside_the_string_table_are_refused)
{
	size_t len;
	uint8_t *bytes = good(&len);
	Elf64_Shdr *strings = build_header(bytes, 1), *code = build_header(bytes, 3);
	uint32_t name = code->sh_name;

	code->sh_name = (uint32_t)strings->sh_size;
	refuse_bytes(bytes, len, EINVAL, "the name of section 3");
	code->sh_name = name;
	/* The last name loses its NUL. */
	bytes[strings->sh_offset + strings->sh_size - 1] = 'x';
	refuse_bytes(bytes, len, EINVAL, "the name of section 3");
	free(bytes);
}

Test(bpf_open_broken, a_name_of_4096_bytes_is_too_long)
{
	struct shunt_bpf_object *object;
	char name[4097] = "";
	struct build b;

	memset(name, 'x', 4096);
	build_init(&b);
	build_pass(&b);
	build_symbol(&b, name, 3, 0, 0, STT_NOTYPE, STB_LOCAL);
	refuse(&b, EINVAL, "the name of symbol 2");
	name[4095] = 0;
	build_init(&b);
	build_pass(&b);
	build_symbol(&b, name, 3, 0, 0, STT_NOTYPE, STB_LOCAL);
	object = accept(&b);
	shunt_bpf_close(object);
}

Test(bpf_open_broken, an_object_without_symbols_or_programs_is_refused)
{
	struct build b;
	size_t len;
	uint8_t *bytes = good(&len);

	build_header(bytes, 2)->sh_type = SHT_PROGBITS;
	refuse_bytes(bytes, len, EINVAL, "no symbol table");
	free(bytes);
	build_init(&b);
	refuse(&b, EINVAL, "holds no program");
}

Test(bpf_open_broken, symbols_outside_their_section_are_refused)
{
	struct build b;

	build_init(&b);
	build_pass(&b);
	build_symbol(&b, "far", 3, 8, 16, STT_OBJECT, STB_GLOBAL);
	refuse(&b, EINVAL, "symbol 'far'");
	build_init(&b);
	build_pass(&b);
	build_symbol(&b, "lost", 99, 0, 0, STT_OBJECT, STB_GLOBAL);
	refuse(&b, EINVAL, "symbol 'lost' is in section 99");
}

Test(bpf_open_broken, functions_that_overlap_or_hold_half_an_instruction_are_refused)
{
	const struct bpf_insn insns[] = { INSN_MOV(0, 2), INSN_EXIT };
	struct build b;
	uint32_t code;

	build_init(&b);
	code = build_code(&b, "xdp", insns, 2);
	build_func(&b, "one", code, 0, 2);
	build_func(&b, "two", code, 1, 1);
	refuse(&b, EINVAL, "functions 'one' and 'two' overlap");
	build_init(&b);
	code = build_code(&b, "xdp", insns, 2);
	build_symbol(&b, "half", code, 0, 12, STT_FUNC, STB_GLOBAL);
	refuse(&b, EINVAL, "function 'half'");
	build_init(&b);
	code = build_code(&b, "xdp", insns, 2);
	build_symbol(&b, "odd", code, 4, 8, STT_FUNC, STB_GLOBAL);
	refuse(&b, EINVAL, "function 'odd'");
}

Test(bpf_open_broken, two_programs_of_one_name_and_names_with_a_meaning_are_refused)
{
	const struct bpf_insn insns[] = { INSN_MOV(0, 2), INSN_EXIT, INSN_MOV(0, 2), INSN_EXIT };
	struct build b;
	uint32_t code;

	build_init(&b);
	code = build_code(&b, "xdp", insns, 4);
	build_func(&b, "same", code, 0, 2);
	build_func(&b, "same", code, 2, 2);
	refuse(&b, EINVAL, "two programs are named 'same'");
	build_init(&b);
	build_func(&b, "shunt_map_lookup", build_code(&b, "xdp", insns, 2), 0, 2);
	refuse(&b, EINVAL, "'shunt_map_lookup' of section 'xdp' has a name that is reserved");
}

Test(bpf_open_broken, a_function_without_a_size_reaches_to_the_next_one)
{
	const struct bpf_insn insns[] = { INSN_MOV(0, 2), INSN_EXIT, INSN_MOV(0, 1), INSN_MOV(0, 2), INSN_EXIT };
	struct shunt_bpf_object *object;
	struct build b;
	uint32_t code;

	build_init(&b);
	code = build_code(&b, "xdp", insns, 5);
	build_func(&b, "second", code, 2, 0);
	build_func(&b, "first", code, 0, 0);
	object = accept(&b);
	cr_expect_eq(shunt_bpf_program_nr_insns(shunt_bpf_find_program(object, "first")), 2);
	cr_expect_eq(shunt_bpf_program_nr_insns(shunt_bpf_find_program(object, "second")), 3);
	shunt_bpf_close(object);
}

/* One program with a 64-bit load of a constant and a call, and one relocation of it. */
static void build_related(struct build *b, uint64_t offset, uint32_t type, uint32_t symbol)
{
	const struct bpf_insn insns[] = { INSN_LD64(1, 0), INSN_CALL_LOCAL(-1), INSN_MOV(0, 2), INSN_EXIT };
	const struct bpf_insn sub[] = { INSN_MOV(0, 2), INSN_EXIT };
	uint32_t code, text, data;

	build_init(b);
	code = build_code(b, "xdp", insns, 5);
	text = build_code(b, ".text", sub, 2);
	data = build_section(b, ".data", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, "12345678", 8);
	build_func(b, "prog", code, 0, 5);                                       /* symbol 1 */
	build_func(b, "sub", text, 0, 2);                                        /* 2 */
	build_symbol(b, "word", data, 4, 4, STT_OBJECT, STB_GLOBAL);             /* 3 */
	build_symbol(b, "absolute", SHN_ABS, 4, 4, STT_OBJECT, STB_GLOBAL);      /* 4 */
	build_symbol(b, "missing", SHN_UNDEF, 0, 0, STT_NOTYPE, STB_GLOBAL);     /* 5 */
	build_symbol(b, "inside", text, 8, 0, STT_NOTYPE, STB_LOCAL);            /* 6 */
	if (offset != 16)
		build_reloc(b, code, 16, 10, 2);
	build_reloc(b, code, offset, type, symbol);
}

Test(bpf_open_broken, relocations_of_the_wrong_kind_or_place_are_refused)
{
	struct build b;

	build_related(&b, 0, 1, 99);
	refuse(&b, EINVAL, "symbol 99");
	build_related(&b, 400, 1, 3);
	refuse(&b, EINVAL, "offset 400");
	build_related(&b, 4, 1, 3);
	refuse(&b, EINVAL, "offset 4 of section 'xdp' is for no instruction");
	build_related(&b, 0, 10, 2);
	refuse(&b, EINVAL, "which is for calls");
	build_related(&b, 16, 1, 3);
	refuse(&b, EINVAL, "which is for 64-bit loads");
	build_related(&b, 24, 1, 3);
	refuse(&b, EINVAL, "instruction 3 (opcode 0xb7)");
	build_related(&b, 0, 2, 3);
	refuse(&b, ENOTSUP, "unknown type 2");
	build_related(&b, 0, 77, 3);
	refuse(&b, ENOTSUP, "unknown type 77");
	build_related(&b, 16, 10, 6);
	refuse(&b, EINVAL, "calls offset 8 of section '.text', where no function begins");
	build_related(&b, 16, 10, 3);
	refuse(&b, EINVAL, "calls offset 4 of section '.data'");
	build_related(&b, 0, 1, 6);
	refuse(&b, EINVAL, "takes the address of offset 8");
	build_related(&b, 0, 1, 3);
	build_reloc(&b, 3, 0, 1, 3);
	refuse(&b, EINVAL, "instruction 0 of function 'prog' has two relocations");
	build_related(&b, 16, 10, 2);
	/* Three of the one kind are as long as two of the other. */
	build_reloc(&b, 3, 0, 1, 3);
	build_reloc(&b, 3, 0, 1, 3);
	b.sections[b.nr_sections - 1].type = SHT_RELA;
	refuse(&b, ENOTSUP, "relocations with addends");
	build_related(&b, 16, 10, 2);
	b.sections[b.nr_sections - 1].flags = SHF_COMPRESSED;
	refuse(&b, EINVAL, "the relocations, section 6 cannot be read");
}

Test(bpf_open_broken, a_load_at_the_end_of_a_function_cannot_be_relocated)
{
	const struct bpf_insn insns[] = { { .code = 0x18 } };
	struct build b;
	uint32_t code;

	build_init(&b);
	code = build_code(&b, "xdp", insns, 1);
	build_func(&b, "prog", code, 0, 1);
	build_reloc(&b, code, 0, 1, 1);
	refuse(&b, EINVAL, "instruction 0 (opcode 0x18)");
}

Test(bpf_open_broken, references_that_are_not_supported_mark_the_program_only)
{
	static const struct {
		uint32_t symbol;
		const char *part;
	} cases[] = { { 4, "'absolute' is in no section" }, { 5, "'missing' is a symbol of a kernel" } };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct shunt_bpf_object *object;
		const char *why;
		struct build b;

		build_related(&b, 0, 1, cases[i].symbol);
		object = accept(&b);
		why = shunt_bpf_program_unsupported(shunt_bpf_next_program(object, NULL));
		cr_expect(why && strstr(why, cases[i].part), "'%s' does not say '%s'", why ? why : "supported", cases[i].part);
		shunt_bpf_close(object);
	}
}

Test(bpf_open_broken, what_a_subprogram_needs_is_told_by_the_program_that_calls_it_and_no_other)
{
	const struct bpf_insn insns[] = { INSN_CALL_LOCAL(-1), INSN_EXIT, INSN_MOV(0, 2), INSN_EXIT };
	const struct bpf_insn sub[] = { INSN_LD64(0, 0), INSN_EXIT };
	struct shunt_bpf_object *object;
	struct build b;
	uint32_t code, text;
	const char *why;

	build_init(&b);
	code = build_code(&b, "xdp", insns, 4);
	text = build_code(&b, ".text", sub, 3);
	build_func(&b, "caller", code, 0, 2);
	build_func(&b, "other", code, 2, 2);
	build_reloc(&b, code, 0, 10, build_func(&b, "sub", text, 0, 3));
	build_reloc(&b, text, 0, 1, build_symbol(&b, "missing", SHN_UNDEF, 0, 0, STT_NOTYPE, STB_GLOBAL));
	object = accept(&b);
	why = shunt_bpf_program_unsupported(shunt_bpf_find_program(object, "caller"));
	cr_expect(why && strstr(why, "function 'sub': instruction 0: 'missing'"), "%s", why ? why : "supported");
	cr_expect_null(shunt_bpf_program_unsupported(shunt_bpf_find_program(object, "other")));
	shunt_bpf_close(object);
}

Test(bpf_open_broken, addresses_beyond_a_data_section_are_refused)
{
	const struct bpf_insn insns[] = { INSN_LD64(1, 9), INSN_MOV(0, 2), INSN_EXIT };
	struct build b;
	uint32_t code, data;

	build_init(&b);
	code = build_code(&b, "xdp", insns, 4);
	data = build_section(&b, ".data", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, "12345678", 8);
	build_func(&b, "prog", code, 0, 4);
	build_reloc(&b, code, 0, 1, build_symbol(&b, ".data", data, 0, 0, STT_SECTION, STB_LOCAL));
	refuse(&b, EINVAL, "offset 9 of the 8 bytes of section '.data'");
}

Test(bpf_open_broken, a_function_pointer_in_data_is_refused_for_the_programs_that_use_that_data)
{
	struct shunt_bpf_object *object;
	const char *why;
	struct build b;

	build_related(&b, 0, 1, 3);
	build_reloc(&b, 5, 0, 2, 2);
	object = accept(&b);
	why = shunt_bpf_program_unsupported(shunt_bpf_next_program(object, NULL));
	cr_expect(why && strstr(why, "section '.data' holds the address of 'sub'"), "%s", why ? why : "supported");
	shunt_bpf_close(object);
	/* The same pointer does not matter when nobody looks at it. */
	build_related(&b, 16, 10, 2);
	build_reloc(&b, 5, 0, 2, 2);
	object = accept(&b);
	why = shunt_bpf_program_unsupported(shunt_bpf_next_program(object, NULL));
	cr_expect_null(why, "%s", why);
	shunt_bpf_close(object);
}

Test(bpf_open_broken, a_local_call_into_the_middle_of_a_function_is_refused)
{
	const struct bpf_insn insns[] = { INSN_CALL_LOCAL(0), INSN_MOV(0, 2), INSN_EXIT };
	struct build b;

	build_init(&b);
	build_func(&b, "prog", build_code(&b, "xdp", insns, 3), 0, 3);
	refuse(&b, EINVAL, "instruction 0 of function 'prog' calls instruction 1 of section 'xdp'");
}

Test(bpf_open_broken, a_data_section_larger_than_any_object_is_refused_before_it_is_allocated)
{
	struct build b;

	build_init(&b);
	build_pass(&b);
	b.sections[build_section(&b, ".bss", SHT_NOBITS, SHF_ALLOC | SHF_WRITE, NULL, 0)].len = 1ull << 62;
	refuse(&b, EFBIG, "section '.bss'");
	build_init(&b);
	build_pass(&b);
	build_section(&b, ".data", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, "1", 1);
	build_section(&b, ".data", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, "1", 1);
	refuse(&b, EINVAL, "two sections are named '.data'");
}

static void refuse_btf(const void *bytes, size_t len, int err, const char *part)
{
	struct build b;

	build_init(&b);
	build_pass(&b);
	build_section(&b, ".BTF", SHT_PROGBITS, 0, bytes, len);
	refuse(&b, err, part);
}

Test(bpf_open_broken, broken_btf_is_refused)
{
	struct {
		struct btf_header header;
		uint32_t types[3];
		char strings[4];
	} btf = { .header = { .magic = BTF_MAGIC, .version = 1, .hdr_len = sizeof(btf.header), .type_len = 12, .str_off = 12, .str_len = 4 } };

	refuse_btf(&btf, 10, EINVAL, "no room for its header");
	btf.types[1] = (uint32_t)BTF_KIND_STRUCT << 24 | 3;
	refuse_btf(&btf, sizeof(btf), EINVAL, "BTF type 1 (kind 4, 3 members) is cut off");
	btf.types[1] = 0;
	refuse_btf(&btf, sizeof(btf), ENOTSUP, "unknown kind 0");
	btf.types[1] = (uint32_t)BTF_KIND_PTR << 24;
	btf.types[0] = 4;
	refuse_btf(&btf, sizeof(btf), EINVAL, "the name of BTF type 1");
	btf.types[0] = 0;
	btf.strings[3] = 'x';
	refuse_btf(&btf, sizeof(btf), EINVAL, "section '.BTF' of 40 bytes is refused by libbpf");
	btf.strings[3] = 0;
	btf.header.type_len = 8;
	refuse_btf(&btf, sizeof(btf), EINVAL, "BTF type 1 is cut off");
	btf.header.type_len = UINT32_MAX;
	refuse_btf(&btf, sizeof(btf), EINVAL, "lie outside");
	btf.header.type_len = 12;
	btf.header.hdr_len = 4096;
	refuse_btf(&btf, sizeof(btf), EINVAL, "a header of 4096");
	btf.header.hdr_len = sizeof(btf.header);
	btf.header.magic = 0x9feb;
	refuse_btf(&btf, sizeof(btf), EINVAL, "magic 0x9feb");
}

Test(bpf_open_broken, broken_lists_of_core_relocations_are_refused)
{
	/* Header, record size, one section's name and number, one record. */
	uint32_t ext[8 + 1 + 2 + 4] = { BTF_MAGIC | 1u << 16, 32, 0, 0, 0, 0, 0, 28, 16, 0, 1, 0, 0, 0, 0 };
	static const struct {
		unsigned word;
		uint32_t value;
		const char *part;
	} cases[] = { { 0, 0, "magic 0x0" },
		      { 0, 0x9feb | 1u << 16, "magic 0x9feb" },
		      { 1, 4096, "of 60 bytes is refused by libbpf" },
		      { 6, 4096, "of 60 bytes is refused by libbpf" },
		      { 7, 4096, "of 60 bytes is refused by libbpf" },
		      { 8, 4, "of 60 bytes is refused by libbpf" },
		      { 9, 4096, "a section without a name (4096)" },
		      { 10, 0x10000001, "of 60 bytes is refused by libbpf" } };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint32_t spoiled[15];
		struct build b;

		memcpy(spoiled, ext, sizeof(ext));
		spoiled[cases[i].word] = cases[i].value;
		build_init(&b);
		build_pass(&b);
		build_btf_int(&b, 4);
		build_btf_end(&b);
		build_section(&b, ".BTF.ext", SHT_PROGBITS, 0, spoiled, sizeof(spoiled));
		refuse(&b, EINVAL, cases[i].part);
	}
}
