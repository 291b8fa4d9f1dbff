/* SPDX-License-Identifier: MIT */
/* What LLVM makes of our bytes: its disassembler the text of each instruction, its assembler of that text the same bytes, and of whole trees
 * instructions without a gap. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>
#include <llvm-c/Core.h>
#include <llvm-c/Disassembler.h>
#include <llvm-c/Object.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>

#include "encodings.h"
#include "shapes.h"
#include "targets/target.h"

#define TREE_ADDR UINT64_C(0x10100000)
#define TREE_MAX (UINT64_C(1) << 20)

static LLVMDisasmContextRef disassembler;
static unsigned nr_checked;

static void close_disassembler(void)
{
	if (disassembler)
		LLVMDisasmDispose(disassembler);
	disassembler = NULL;
}

TestSuite(llvm, .fini = close_disassembler);

static void open_disassembler(const char *triple, const char *features)
{
	LLVMInitializeX86TargetInfo();
	LLVMInitializeX86TargetMC();
	LLVMInitializeX86Disassembler();
	LLVMInitializeAArch64TargetInfo();
	LLVMInitializeAArch64TargetMC();
	LLVMInitializeAArch64Disassembler();
	disassembler = LLVMCreateDisasmCPUFeatures(triple, "", features, NULL, 0, NULL, NULL);
	if (!disassembler)
		cr_skip_test("this LLVM has no disassembler for the target");
	LLVMSetDisasmOptions(disassembler, LLVMDisassembler_Option_AsmPrinterVariant); /* Intel syntax */
}

static void open_x86_64(void)
{
	open_disassembler("x86_64-unknown-linux-gnu", "");
}

static void open_arm64(void)
{
	open_disassembler("aarch64-unknown-linux-gnu", "+bti");
}

/* One instruction as one line with single spaces; its length, 0 if there is none. */
static size_t disassemble(const uint8_t *bytes, size_t len, uint64_t addr, char text[128])
{
	uint8_t copy[32];
	char raw[128];
	size_t got, out = 0;

	memcpy(copy, bytes, len < sizeof(copy) ? len : sizeof(copy));
	got = LLVMDisasmInstruction(disassembler, copy, len < sizeof(copy) ? len : sizeof(copy), addr, raw, sizeof(raw));
	for (const char *in = raw; got && *in; in++) {
		bool is_space = *in == ' ' || *in == '\t';

		if (!is_space || (out && text[out - 1] != ' '))
			text[out++] = is_space ? ' ' : *in;
	}
	text[out] = 0;
	return got;
}

static void check_text(const char *text, const char *hex, const struct shunt_code *code)
{
	char got[128];

	cr_expect_eq(disassemble(code->bytes, code->len, ENCODING_ADDR, got), code->len, "%s: length", text);
	cr_expect_str_eq(got, text);
	nr_checked++;
}

Test(llvm, reads_every_x86_64_instruction_as_it_was_meant)
{
	open_x86_64();
	x86_64_for_each_encoding(check_text);
	cr_expect_geq(nr_checked, 50);
}

Test(llvm, reads_every_arm64_instruction_as_it_was_meant)
{
	open_arm64();
	arm64_for_each_encoding(check_text);
	cr_expect_geq(nr_checked, 35);
	printf("%u arm64 instructions: LLVM's disassembler reads them as they were meant\n", nr_checked);
}

/* ---- the way back: text to bytes ------------------------------------------------------------------------------------- */

static struct {
	char text[16384];
	size_t text_len;
	uint8_t bytes[1024];
	size_t len;
	const char *lines[256];
	unsigned nr;
} listing;

static void list_text(const char *text, const char *hex, const struct shunt_code *code)
{
	cr_assert_lt(listing.nr, 256);
	cr_assert_eq(code->len, 4, "%s", text);
	listing.lines[listing.nr++] = text;
	memcpy(listing.bytes + listing.len, code->bytes, code->len);
	listing.len += code->len;
	listing.text_len += (size_t)snprintf(listing.text + listing.text_len, sizeof(listing.text) - listing.text_len, "%s\n", text);
	cr_assert_lt(listing.text_len, sizeof(listing.text));
}

/* The text section of what LLVM assembles from text; the caller frees it. */
static uint8_t *assemble(const char *triple, const char *features, const char *text, size_t text_len, size_t *len)
{
	LLVMContextRef context = LLVMContextCreate();
	LLVMModuleRef module = LLVMModuleCreateWithNameInContext("listing", context);
	LLVMTargetMachineRef machine;
	LLVMMemoryBufferRef object;
	LLVMSectionIteratorRef section;
	LLVMBinaryRef binary;
	LLVMTargetRef target;
	char *error = NULL;
	uint8_t *bytes = NULL;

	LLVMInitializeAArch64TargetInfo();
	LLVMInitializeAArch64Target();
	LLVMInitializeAArch64TargetMC();
	LLVMInitializeAArch64AsmPrinter();
	LLVMInitializeAArch64AsmParser();
	cr_assert_eq(LLVMGetTargetFromTriple(triple, &target, &error), 0, "%s", error);
	machine = LLVMCreateTargetMachine(target, triple, "", features, LLVMCodeGenLevelNone, LLVMRelocPIC, LLVMCodeModelDefault);
	LLVMSetTarget(module, triple);
	LLVMSetModuleInlineAsm2(module, text, text_len);
	cr_assert_eq(LLVMTargetMachineEmitToMemoryBuffer(machine, module, LLVMObjectFile, &error, &object), 0, "%s", error);
	binary = LLVMCreateBinary(object, context, &error);
	cr_assert_not_null(binary, "%s", error);
	section = LLVMObjectFileCopySectionIterator(binary);
	for (; !LLVMObjectFileIsSectionIteratorAtEnd(binary, section); LLVMMoveToNextSection(section)) {
		const char *name = LLVMGetSectionName(section);

		if (!name || strcmp(name, ".text"))
			continue;
		*len = LLVMGetSectionSize(section);
		bytes = malloc(*len + 1);
		memcpy(bytes, LLVMGetSectionContents(section), *len);
	}
	LLVMDisposeSectionIterator(section);
	LLVMDisposeBinary(binary);
	LLVMDisposeMemoryBuffer(object);
	LLVMDisposeTargetMachine(machine);
	LLVMDisposeModule(module);
	LLVMContextDispose(context);
	return bytes;
}

Test(llvm, assembles_every_arm64_instruction_to_our_bytes)
{
	size_t len = 0;
	uint8_t *bytes;

	arm64_for_each_encoding(list_text);
	cr_expect_geq(listing.nr, 50u);
	bytes = assemble("aarch64-unknown-linux-gnu", "+bti", listing.text, listing.text_len, &len);
	cr_assert_not_null(bytes);
	cr_assert_eq(len, listing.len);
	for (unsigned i = 0; i < listing.nr; i++)
		cr_expect_eq(memcmp(bytes + i * 4, listing.bytes + i * 4, 4), 0, "%s: LLVM makes %02x%02x%02x%02x of it", listing.lines[i], bytes[i * 4],
			     bytes[i * 4 + 1], bytes[i * 4 + 2], bytes[i * 4 + 3]);
	printf("%u arm64 instructions: LLVM's assembler makes our bytes of their text\n", listing.nr);
	free(bytes);
}

/* Walks a piece of code; every instruction must be one of `allowed`, and the last one must end where the code does. */
static void check_code(const uint8_t *bytes, size_t len, const char *const *allowed)
{
	char text[128];

	for (size_t at = 0; at < len;) {
		size_t step = disassemble(bytes + at, len - at, TREE_ADDR + at, text);
		size_t i = 0;

		cr_assert_neq(step, 0, "no instruction at %#zx", at);
		while (allowed[i] && strncmp(text, allowed[i], strlen(allowed[i])))
			i++;
		cr_assert_not_null(allowed[i], "%s at %#zx", text, at);
		at += step;
	}
}

static void check_random_trees(const struct shunt_target *target, uint64_t seed, const char *const *allowed)
{
	uint8_t *bytes = malloc(TREE_MAX);
	uint64_t programs[200];

	for (unsigned i = 0; i < 120; i++) {
		uint32_t nr = (uint32_t)(shape_random(&seed) % 200);
		struct shunt_plan plan;
		struct shunt_code code;

		shape_programs(&seed, TREE_ADDR + TREE_MAX, i % 2 ? UINT64_C(1) << 16 : UINT64_C(100) << 20, i % 3 ? 64 : 4, programs, nr);
		shape_plan(shape_any(&seed), programs, nr, &plan);
		shunt_code_init(&code, bytes, TREE_MAX, TREE_ADDR);
		target->emit_tree(&code, &plan, (enum shunt_fallback)(i % 3));
		cr_assert_eq(code.error, 0);
		check_code(bytes, code.len, allowed);
		free((void *)plan.nodes);
	}
	free(bytes);
}

Test(llvm, finds_nothing_but_the_instructions_of_a_tree_in_x86_64_trees)
{
	static const char *const allowed[] = { "lea r11, [rip ", "sub r11, r10", "cmp r11, ", "cmp r10, r11", "je ",  "ja ",    "jb ", "jbe ", "jl ", "jmp ",
					       "call 7",         "pause",        "lfence",    "ret",          "nop", "int3",
					       "mov qword ptr [rsp], r10", NULL };

	open_x86_64();
	check_random_trees(&shunt_target_x86_64, 11, allowed);
}

Test(llvm, finds_nothing_but_the_instructions_of_a_tree_in_arm64_trees)
{
	static const char *const allowed[] = { "adrp x16, ", "add x16, x16, #", "sub x16, x16, x18", "ror x16, x16, #6", "cmp x16, ",
					       "cmp x17, #", "cmp x18, x16", "sub x17, x16, #", "mov x17, #", "movk x17, #", "b.ne #8",
					       "b.lt ", "b.ls #", "b.hi #", "b #", "mov x16, x18", "br x16", "nop", NULL };

	open_arm64();
	check_random_trees(&shunt_target_arm64, 12, allowed);
}

Test(llvm, reads_slots_entries_and_veneers)
{
	static const char *const x86_64[] = { "endbr64", "nop dword ptr [rax]", "jmp ", "int3", "mov r10, ", "movabs r11, ", NULL };
	static const char *const arm64[] = { "bti c", "nop", "b #", "udf #", "mov x18, x", NULL };
	uint8_t bytes[256];
	struct shunt_code code;

	open_x86_64();
	shunt_code_init(&code, bytes, sizeof(bytes), TREE_ADDR);
	shunt_target_x86_64.emit_stub(&code, TREE_ADDR + 0x1000);
	for (unsigned n = 0; n <= shunt_target_x86_64.max_c_args; n++)
		shunt_target_x86_64.emit_c_entry(&code, n, TREE_ADDR);
	shunt_target_x86_64.emit_veneer(&code, UINT64_MAX);
	cr_assert_eq(code.error, 0);
	check_code(bytes, code.len, x86_64);
	close_disassembler();

	open_arm64();
	shunt_code_init(&code, bytes, sizeof(bytes), TREE_ADDR);
	shunt_target_arm64.emit_stub(&code, TREE_ADDR + 0x1000);
	for (unsigned n = 0; n <= shunt_target_arm64.max_c_args; n++)
		shunt_target_arm64.emit_c_entry(&code, n, TREE_ADDR);
	cr_assert_eq(code.error, 0);
	check_code(bytes, code.len, arm64);
}
