/* SPDX-License-Identifier: MIT */
/* See bpf_run.h. */
#include <stdio.h>
#include <llvm-c/Core.h>
#include "bpf_run.h"

struct shunt_jit *bpf_run_jit(void)
{
	static struct shunt_jit *jit;

	if (!jit)
		cr_assert_eq(shunt_jit_create(NULL, &jit), 0, "%s", shunt_error());
	return jit;
}

struct shunt_bpf_object *bpf_run_open(const struct bpf_insn *insns, size_t nr_insns, enum shunt_bpf_context context)
{
	struct shunt_bpf_options options = { .jit = bpf_run_jit() };
	struct shunt_bpf_object *object;

	cr_assert_eq(shunt_bpf_open_insns(insns, nr_insns, context, &options, &object), 0, "%s", shunt_error());
	cr_assert_eq(shunt_bpf_compile(object), 0, "%s", shunt_error());
	return object;
}

uint64_t bpf_run_plain(const struct bpf_insn *insns, size_t nr_insns, void *mem, size_t len)
{
	struct shunt_bpf_object *object = bpf_run_open(insns, nr_insns, SHUNT_BPF_CONTEXT_NONE);
	bpf_plain_fn *entry = (bpf_plain_fn *)(uintptr_t)shunt_bpf_program_entry(shunt_bpf_find_program(object, "main"));
	uint64_t result;

	cr_assert_not_null(entry);
	shunt_read_begin();
	result = entry(mem, len);
	shunt_read_end();
	shunt_bpf_close(object);
	return result;
}

const char *bpf_run_refusal(const struct bpf_insn *insns, size_t nr_insns, enum shunt_bpf_context context)
{
	struct shunt_bpf_options options = { .jit = bpf_run_jit() };
	struct shunt_bpf_object *object;
	static char sentence[512];

	sentence[0] = '\0';
	if (shunt_bpf_open_insns(insns, nr_insns, context, &options, &object)) {
		snprintf(sentence, sizeof(sentence), "%s", shunt_error());
		return sentence;
	}
	if (shunt_bpf_compile(object))
		snprintf(sentence, sizeof(sentence), "%s", shunt_error());
	shunt_bpf_close(object);
	return sentence;
}

static bool is_builtin(void *user, uint32_t number)
{
	return bpf_helper_builtin(number);
}

struct bpf_run_unit bpf_run_unit(const struct bpf_unit *unit)
{
	struct shunt_jit_symbol symbols[64];
	char names[64][128];
	struct shunt_jit_module_options options = { .pipeline = "", .symbols = symbols };
	LLVMContextRef context = LLVMContextCreate();
	LLVMModuleRef module;
	struct bpf_run_unit run;
	bool wanted[16];
	uint32_t number;

	for (uint32_t i = 0; i < unit->nr_funcs; i++) {
		wanted[i] = true;
		cr_assert_eq(bpf_check(unit, &unit->funcs[i], is_builtin, NULL), 0, "%s", shunt_error());
	}
	cr_assert_eq(bpf_translate(unit, wanted, context, shunt_jit_triple(bpf_run_jit()), shunt_jit_data_layout(bpf_run_jit()), &module), 0, "%s",
		     shunt_error());
	for (LLVMValueRef f = LLVMGetFirstFunction(module); f; f = LLVMGetNextFunction(f)) {
		const char *name = LLVMGetValueName2(f, &(size_t){ 0 });

		if (!LLVMIsDeclaration(f) || sscanf(name, SHUNT_HELPER_PREFIX "%u", &number) != 1)
			continue;
		snprintf(names[options.nr_symbols], sizeof(names[0]), "%s", name);
		symbols[options.nr_symbols].address = (const void *)(uintptr_t)bpf_helper_builtin(number);
		symbols[options.nr_symbols].name = names[options.nr_symbols];
		options.nr_symbols++;
	}
	for (uint32_t i = 0; i < unit->nr_maps; i++) {
		snprintf(names[options.nr_symbols], sizeof(names[0]), "map.%s", unit->maps[i].name);
		symbols[options.nr_symbols].address = unit->maps[i].map;
		symbols[options.nr_symbols].name = names[options.nr_symbols];
		options.nr_symbols++;
	}
	for (uint32_t i = 0; i < unit->nr_datas; i++) {
		snprintf(names[options.nr_symbols], sizeof(names[0]), "data%s", unit->datas[i].name);
		symbols[options.nr_symbols].address = unit->datas[i].bytes;
		symbols[options.nr_symbols].name = names[options.nr_symbols];
		options.nr_symbols++;
	}
	cr_assert_eq(shunt_jit_add(bpf_run_jit(), context, module, &options, &run.module), 0, "%s", shunt_error());
	return run;
}
