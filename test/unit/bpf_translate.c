/* SPDX-License-Identifier: MIT */
/* The IR that translation makes: what Shunt's passes find in it, what it never holds, and that it verifies whatever the bytecode was. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <criterion/criterion.h>
#include <llvm-c/Analysis.h>
#include <llvm-c/Core.h>
#include <shunt/log.h>
#include "lib/bpf/unit.h"
#include "test/exec/bpf_run.h"

#define NR(array) (sizeof(array) / sizeof((array)[0]))
#define TRIPLE "x86_64-pc-linux-gnu"
#define LAYOUT "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
#define ARM_TRIPLE "aarch64-unknown-linux-gnu"
#define ARM_LAYOUT "e-m:e-i8:8:32-i16:16:32-i64:64-i128:128-n32:64-S128-Fn32"

static bool is_builtin(void *user, uint32_t number)
{
	return bpf_helper_builtin(number) || number == 3000;
}

/* The module's text, to free with LLVMDisposeMessage; NULL when it was refused. Verified. */
static char *ir_of(const struct bpf_unit *unit, const char *triple, const char *layout)
{
	LLVMContextRef context = LLVMContextCreate();
	LLVMModuleRef module;
	bool wanted[8];
	char *text = NULL, *error = NULL;

	for (uint32_t i = 0; i < unit->nr_funcs; i++) {
		wanted[i] = true;
		cr_assert_eq(bpf_check(unit, &unit->funcs[i], is_builtin, NULL), 0, "%s", shunt_error());
	}
	if (!bpf_translate(unit, wanted, context, triple, layout, &module)) {
		cr_assert_eq(LLVMVerifyModule(module, LLVMReturnStatusAction, &error), 0, "%s", error);
		LLVMDisposeMessage(error);
		text = LLVMPrintModuleToString(module);
		LLVMDisposeModule(module);
	} else {
		cr_expect_null(module);
	}
	LLVMContextDispose(context);
	return text;
}

static bool holds(const struct bpf_unit *unit, const char *text)
{
	char *ir = ir_of(unit, TRIPLE, LAYOUT);
	bool found;

	cr_assert_not_null(ir, "%s", shunt_error());
	found = strstr(ir, text);
	if (!found)
		fprintf(stderr, "%s\n", ir);
	LLVMDisposeMessage(ir);
	return found;
}

static struct bpf_unit_map maps[] = { { .name = "counts" } };
static struct bpf_unit_data datas[] = { { .name = ".rodata" } };

static struct bpf_unit unit_of(struct bpf_func *funcs, uint32_t nr_funcs)
{
	return (struct bpf_unit){ .name = "test", .funcs = funcs, .nr_funcs = nr_funcs, .maps = maps, .nr_maps = 1, .datas = datas, .nr_datas = 1 };
}

#define FUNC(n, i, r) { .name = n, .is_program = true, .insns = i, .nr_insns = NR(i), .refs = r, .nr_refs = NR(r) }

Test(bpf_translate, a_map_is_a_direct_operand_of_its_lookup_whatever_registers_it_went_through)
{
	/* r6 = map; r1 = r6 on both ways to the call; key on the stack. */
	struct bpf_insn insns[] = {
		LOAD_IMM64(6, 0), STORE_IMM(BPF_W, 10, -4, 1), MOV_REG(2, 10), ALU64_IMM(BPF_ADD, 2, -4), CALL(5),
		MOV_REG(1, 6), JUMP_IMM(BPF_JGT, 0, 5, 2), MOV_REG(7, 1), MOV_REG(1, 7), MOV_REG(2, 10), ALU64_IMM(BPF_ADD, 2, -4), CALL(1), MOV_IMM(0, 0),
		EXIT(),
	};
	struct bpf_ref refs[] = { { .insn = 0, .kind = BPF_REF_MAP } };
	struct bpf_func func = FUNC("prog", insns, refs);
	struct bpf_unit unit = unit_of(&func, 1);

	cr_expect(holds(&unit, "@_bpf_helper_ext_0001(i64 ptrtoint (ptr @map.counts to i64), i64 %"));
	cr_expect(holds(&unit, "@map.counts = external global i8"));
	cr_expect(holds(&unit, "call i64 @_bpf_helper_ext_0005(i64 0, i64 0, i64 0, i64 0, i64 0)"), "helpers get no more than they read");
}

Test(bpf_translate, data_is_the_section_s_symbol_and_an_addend)
{
	struct bpf_insn insns[] = { LOAD_IMM64(1, 0), LOAD(BPF_DW, 0, 1, 0), EXIT() };
	struct bpf_ref refs[] = { { .insn = 0, .kind = BPF_REF_DATA, .addend = 24 } };
	struct bpf_func func = FUNC("prog", insns, refs);
	struct bpf_unit unit = unit_of(&func, 1);

	cr_expect(holds(&unit, "@data.rodata = external global i8"));
	cr_expect(holds(&unit, "i64 24"));
}

Test(bpf_translate, values_of_arrays_are_addresses_of_this_process)
{
	struct shunt_map_attr attr = { .type = SHUNT_MAP_ARRAY, .key_size = 4, .value_size = 64, .max_entries = 1, .name = "globals" };
	struct bpf_insn insns[] = { LOAD_IMM64(0, 0), EXIT() };
	struct bpf_ref refs[] = { { .insn = 0, .kind = BPF_REF_MAP_VALUE, .addend = 8 } };
	struct bpf_func func = FUNC("prog", insns, refs);
	struct bpf_unit_map map = { .name = "globals" };
	struct bpf_unit unit = { .name = "test", .funcs = &func, .nr_funcs = 1, .maps = &map, .nr_maps = 1 };
	char constant[64];

	cr_assert_eq(shunt_map_create(&attr, &map.map), 0, "%s", shunt_error());
	snprintf(constant, sizeof(constant), "ret i64 %llu", (unsigned long long)(uintptr_t)shunt_map_abi(map.map)->values + 8);
	cr_expect(holds(&unit, constant));
	shunt_map_put(map.map);
}

Test(bpf_translate, programs_are_external_and_subprograms_internal_whatever_their_names)
{
	struct bpf_insn caller[] = { INSN(BPF_JMP | BPF_CALL, 0, 1, 0, 0), CALL(5), EXIT() }, callee[] = { CALL(3000), EXIT() };
	struct bpf_ref refs[] = { { .insn = 0, .kind = BPF_REF_CALL, .index = 1 } };
	struct bpf_func funcs[] = {
		FUNC("a b\"\\\xff", caller, refs),
		{ .name = "llvm.trap", .insns = callee, .nr_insns = NR(callee) },
	};
	struct bpf_unit unit = unit_of(funcs, 2);

	cr_expect(holds(&unit, "define i64 @\"a b\\22\\\\\\FF\"(ptr %0, i64 %1)"));
	cr_expect(holds(&unit, "define internal i64 @sub.1.llvm.trap("));
	funcs[0].context = SHUNT_BPF_CONTEXT_XDP;
	cr_expect(holds(&unit, "define i32 @\"a b"));
}

Test(bpf_translate, programs_of_one_name_and_units_not_closed_are_refused)
{
	struct bpf_insn caller[] = { INSN(BPF_JMP | BPF_CALL, 0, 1, 0, 0), EXIT() }, body[] = { EXIT() };
	struct bpf_ref refs[] = { { .insn = 0, .kind = BPF_REF_CALL, .index = 1 } };
	struct bpf_func twins[] = { { .name = "p", .is_program = true, .insns = body, .nr_insns = 1 },
				    { .name = "p", .is_program = true, .insns = body, .nr_insns = 1 } };
	struct bpf_func open[] = { FUNC("p", caller, refs), { .name = "s", .insns = body, .nr_insns = 1 } };
	struct bpf_unit unit = unit_of(twins, 2);
	LLVMContextRef context = LLVMContextCreate();
	LLVMModuleRef module;

	cr_expect_null(ir_of(&unit, TRIPLE, LAYOUT));
	cr_expect(strstr(shunt_error(), "two programs are called 'p'"), "%s", shunt_error());
	unit = unit_of(open, 2);
	cr_expect_eq(bpf_translate(&unit, (bool[]){ true, false }, context, TRIPLE, LAYOUT, &module), -EINVAL);
	cr_expect(strstr(shunt_error(), "'s', which was not chosen"), "%s", shunt_error());
	LLVMContextDispose(context);
}

Test(bpf_translate, shifts_and_divisions_leave_no_poison_or_trap_to_llvm)
{
	/* Everything is constant: were a shift count or divisor passed on as it is, the result would be poison or the block unreachable. */
	struct bpf_insn insns[] = {
		MOV_IMM(0, 1), ALU64_IMM(BPF_LSH, 0, 65), ALU64_IMM(BPF_DIV, 0, 0), ALU64_IMM(BPF_ADD, 0, 3), ALU64_IMM(BPF_MOD, 0, 0), EXIT(),
	};
	struct bpf_func func = { .name = "prog", .is_program = true, .insns = insns, .nr_insns = NR(insns) };
	struct bpf_unit unit = unit_of(&func, 1);

	cr_expect(holds(&unit, "ret i64 3"));
}

Test(bpf_translate, stack_that_was_never_written_is_some_value_and_not_undef)
{
	struct bpf_insn insns[] = { LOAD(BPF_DW, 0, 10, -8), JUMP_IMM(BPF_JGT, 0, 7, 0), EXIT() };
	struct bpf_func func = { .name = "prog", .is_program = true, .insns = insns, .nr_insns = NR(insns) };
	struct bpf_unit unit = unit_of(&func, 1);
	char *ir = ir_of(&unit, TRIPLE, LAYOUT);

	cr_expect(ir && !strstr(ir, " undef") && !strstr(ir, "poison") && !strstr(ir, "unreachable"), "%s", ir);
	LLVMDisposeMessage(ir);
}

Test(bpf_translate, arm64_modules_verify_too)
{
	struct bpf_insn insns[] = { ATOMIC(BPF_DW, BPF_CMPXCHG, 1, 2, 0), LOAD(BPF_DW, 0, 1, 3), INSN(BPF_ALU64 | BPF_END, 0, 0, 0, 64), EXIT() };
	struct bpf_func func = { .name = "prog", .is_program = true, .insns = insns, .nr_insns = NR(insns) };
	struct bpf_unit unit = unit_of(&func, 1);
	char *ir = ir_of(&unit, ARM_TRIPLE, ARM_LAYOUT);

	cr_expect(ir && strstr(ir, ARM_TRIPLE));
	LLVMDisposeMessage(ir);
}

/* ---- random bytecode ------------------------------------------------------------------------------------------ */

static void randomise(struct bpf_insn *insns, uint32_t nr)
{
	static const uint8_t codes[] = {
		0xb7, 0xbf, 0xbc, 0x07, 0x0f, 0x17, 0x1f, 0x1c, 0x0c, 0x67, 0x9f, 0x3f, 0x61, 0x61, 0x79, 0x79, 0x69, 0x71, 0x81, 0x63, 0x7b, 0x7b, 0x72,
		0x7a, 0xdb, 0xc3, 0x05, 0x15, 0x1d, 0x2d, 0x2e, 0x25, 0x85, 0x85, 0x95, 0x18, 0xd4, 0xdc, 0xd7, 0x87, 0x06,
	};
	static const int32_t imms[] = { 0, 1, 5, 8, 16, 32, -8, -16, 12, 51, 181, 3000, 0xf1, 0xe1 };

	for (uint32_t i = 0; i < nr; i++) {
		insns[i] = INSN(codes[(uint32_t)rand() % NR(codes)], (uint8_t)(rand() % 8), (uint8_t)(rand() % 11), (int16_t)(rand() % 8),
				imms[(uint32_t)rand() % NR(imms)]);
		if (rand() % 8 == 0)
			insns[i].dst_reg = 10;
		if ((insns[i].code & 7) == 5 || (insns[i].code & 7) == 6)
			insns[i].off = (int16_t)(rand() % 6 - 2);
		else if (rand() % 2)
			insns[i].off = (int16_t)(-8 * (rand() % 4));
		if (insns[i].code == 0x85)
			insns[i].src_reg = insns[i].off = insns[i].dst_reg = 0;
	}
	insns[nr - 1] = (struct bpf_insn)EXIT();
}

/* Fields that must be zero are, most of the time. */
static void clean(struct bpf_insn *insn)
{
	uint8_t class = insn->code & 7;

	if (insn->code == 0x95 || insn->code == 0x05)
		insn->dst_reg = insn->src_reg = 0, insn->imm = 0;
	if (insn->code == 0x06)
		insn->dst_reg = insn->src_reg = 0, insn->imm = insn->off, insn->off = 0;
	if (insn->code == 0x95)
		insn->off = 0;
	if (class == 4 || class == 7)
		insn->off = 0;
	if ((class >= 4) && !(insn->code & 8) && insn->code != 0x85)
		insn->src_reg = 0;
	if ((class >= 4 && (insn->code & 8) && insn->code >> 4 != 0xd) || class == 1 || (class == 3 && insn->code >> 5 == 3) || insn->code == 0x87)
		insn->imm = 0;
	if (class == 2)
		insn->src_reg = 0;
	if (insn->code >> 4 == 0xd && (class == 4 || class == 7))
		insn->imm = 16 << rand() % 3, insn->src_reg = 0;
}

Test(bpf_translate, whatever_the_check_accepts_becomes_a_valid_module_or_a_refusal)
{
	struct bpf_ref call[1], callback[1];
	struct bpf_insn bodies[3][24];
	struct bpf_func funcs[3] = { { .name = "prog", .is_program = true }, { .name = "sub" }, { .name = "callback" } };
	unsigned translated = 0, refused = 0;

	srand(7);
	for (int round = 0; round < 250000 && translated < 1200; round++) {
		struct bpf_unit unit = unit_of(funcs, 3);
		bool accepted = true;

		for (int f = 0; f < 3; f++) {
			uint32_t nr = 4 + (uint32_t)rand() % 16;

			randomise(bodies[f], nr);
			for (uint32_t i = 0; i < nr; i++)
				clean(&bodies[f][i]);
			for (uint32_t i = 0; i + 1 < nr; i++)
				if (bodies[f][i].code == 0x18) {
					bodies[f][i].src_reg = 0;
					bodies[f][++i] = (struct bpf_insn)INSN(0, 0, 0, 0, 0);
				}
			bodies[f][nr - 1] = (struct bpf_insn)EXIT();
			funcs[f].insns = bodies[f];
			funcs[f].nr_insns = nr;
			funcs[f].nr_refs = 0;
		}
		funcs[0].context = rand() % 4 ? SHUNT_BPF_CONTEXT_XDP : SHUNT_BPF_CONTEXT_NONE;
		bodies[0][rand() % 2] = (struct bpf_insn)INSN(BPF_JMP | BPF_CALL, 0, 1, 0, 0);
		for (uint32_t i = 0; i < 2; i++)
			if (bodies[0][i].src_reg == 1 && bodies[0][i].code == 0x85) {
				call[0] = (struct bpf_ref){ .insn = i, .kind = BPF_REF_CALL, .index = 1 };
				funcs[0].refs = call;
				funcs[0].nr_refs = 1;
			}
		if (funcs[1].nr_insns > 6) {
			bodies[1][0] = (struct bpf_insn)INSN(BPF_LD | BPF_IMM | BPF_DW, 2, 0, 0, 0);
			bodies[1][1] = (struct bpf_insn)INSN(0, 0, 0, 0, 0);
			bodies[1][2] = (struct bpf_insn)CALL(181);
			callback[0] = (struct bpf_ref){ .insn = 0, .kind = BPF_REF_FUNC, .index = 2 };
			funcs[1].refs = callback;
			funcs[1].nr_refs = 1;
		}
		for (int f = 0; f < 3 && accepted; f++)
			accepted = !bpf_check(&unit, &funcs[f], is_builtin, NULL);
		if (accepted) {
			char *ir = ir_of(&unit, TRIPLE, LAYOUT);

			translated += ir != NULL;
			refused += ir == NULL;
			if (ir)
				LLVMDisposeMessage(ir);
			else
				cr_assert(strstr(shunt_error(), "program '"), "%s", shunt_error());
		}
	}
	cr_expect_gt(translated, 500u, "only %u were translated (%u refused), the test says little", translated, refused);
	cr_expect_gt(refused, 100u);
}
