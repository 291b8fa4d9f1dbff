/* SPDX-License-Identifier: MIT */
/*
 * Makes a front end's module one for this machine: its triple and data layout, no optnone, and no target attributes that LLVM would print
 * a warning about.
 */
#include "lib/jit/jit_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <llvm-c/Analysis.h>
#include "runtime/log.h"

LLVMTargetMachineRef jit_target_machine(const struct shunt_jit *jit)
{
	static const LLVMCodeGenOptLevel levels[] = {
		LLVMCodeGenLevelNone, LLVMCodeGenLevelLess, LLVMCodeGenLevelDefault, LLVMCodeGenLevelAggressive,
	};
	LLVMTargetRef target;
	char *error = NULL;

	if (LLVMGetTargetFromTriple(jit->triple, &target, &error)) {
		LLVMDisposeMessage(error);
		return NULL;
	}
	/* An arena and what it serves lie within direct reach: LLVM's default for JITs, the large model, would call through registers. */
	return LLVMCreateTargetMachine(target, jit->triple, jit->cpu, jit->features, levels[jit->opt_level], LLVMRelocPIC,
				       LLVMCodeModelSmall);
}

/* Component i of a normalised triple. */
static size_t component(const char *triple, unsigned i, const char **start)
{
	for (; i; i--) {
		const char *dash = strchr(triple, '-');

		triple = dash ? dash + 1 : triple + strlen(triple);
	}
	*start = triple;
	return strcspn(triple, "-");
}

/* The same CPU and system, whatever the vendor is called. */
static bool triples_match(const char *a, const char *b)
{
	char *normal_a = LLVMNormalizeTargetTriple(a), *normal_b = LLVMNormalizeTargetTriple(b);
	static const unsigned compared[] = { 0, 2, 3 };
	bool match = true;

	for (size_t i = 0; i < sizeof(compared) / sizeof(*compared); i++) {
		const char *part_a, *part_b;
		size_t len_a = component(normal_a, compared[i], &part_a), len_b = component(normal_b, compared[i], &part_b);

		match = match && len_a == len_b && !memcmp(part_a, part_b, len_a);
	}
	LLVMDisposeMessage(normal_a);
	LLVMDisposeMessage(normal_b);
	return match;
}

static int check_machine(const struct shunt_jit *jit, LLVMModuleRef module)
{
	const char *triple = LLVMGetTarget(module), *layout = LLVMGetDataLayoutStr(module);

	if (*triple && !triples_match(triple, jit->triple))
		return shunt_fail(EINVAL, "the module is for '%s' and this machine is '%s': build it for shunt_jit_triple()", triple, jit->triple);
	if (*layout && strcmp(layout, jit->data_layout))
		return shunt_fail(EINVAL, "the module's data layout '%s' is not this machine's: use shunt_jit_data_layout()", layout);
	LLVMSetTarget(module, jit->triple);
	LLVMSetDataLayout(module, jit->data_layout);
	return 0;
}

static const char *string_attribute(LLVMValueRef function, const char *kind, unsigned *len)
{
	LLVMAttributeRef attribute = LLVMGetStringAttributeAtIndex(function, LLVMAttributeFunctionIndex, kind, strlen(kind));

	return attribute ? LLVMGetStringAttributeValue(attribute, len) : NULL;
}

static void remove_unknown_cpu(LLVMTargetMachineRef machine, LLVMValueRef function, const char *kind)
{
	unsigned len;
	const char *value = string_attribute(function, kind, &len);
	char *cpu = value ? strndup(value, len) : NULL;

	if (value && (!cpu || !jit_target_knows_cpu(machine, cpu)))
		LLVMRemoveStringAttributeAtIndex(function, LLVMAttributeFunctionIndex, kind, strlen(kind));
	free(cpu);
}

/* LLVM ignores features that a CPU does not have, and prints so: the same without the printing. */
static void remove_unknown_features(LLVMTargetMachineRef machine, LLVMContextRef context, LLVMValueRef function)
{
	static const char kind[] = "target-features";
	unsigned len;
	const char *value = string_attribute(function, kind, &len), *end;
	char *known;
	size_t known_len = 0;

	if (!value)
		return;
	known = malloc(len + 1);
	for (end = value + len; known && value < end;) {
		const char *comma = memchr(value, ',', end - value);
		size_t item = (comma ? comma : end) - value;

		if (item > 1 && jit_target_knows_feature(machine, value + 1, item - 1)) {
			if (known_len)
				known[known_len++] = ',';
			memcpy(known + known_len, value, item);
			known_len += item;
		}
		value += item + 1;
	}
	LLVMRemoveStringAttributeAtIndex(function, LLVMAttributeFunctionIndex, kind, strlen(kind));
	if (known_len)
		LLVMAddAttributeAtIndex(function, LLVMAttributeFunctionIndex,
					LLVMCreateStringAttribute(context, kind, strlen(kind), known, known_len));
	free(known);
}

/* Packs are mapped so that indirect branches must land on landing pads, where an arm64 machine has them; `bti` does nothing elsewhere. */
static void add_landing_pads(LLVMValueRef function)
{
	static const char kind[] = "branch-target-enforcement", value[] = "true";

	LLVMAddAttributeAtIndex(function, LLVMAttributeFunctionIndex,
				LLVMCreateStringAttribute(LLVMGetModuleContext(LLVMGetGlobalParent(function)), kind, strlen(kind), value, strlen(value)));
}

int jit_prepare(const struct shunt_jit *jit, LLVMTargetMachineRef machine, LLVMModuleRef module)
{
	const unsigned optnone = LLVMGetEnumAttributeKindForName("optnone", strlen("optnone"));
	char *message = NULL;
	int err = check_machine(jit, module);

	if (err)
		return err;
	if (LLVMVerifyModule(module, LLVMReturnStatusAction, &message))
		err = shunt_fail(EINVAL, "the module is not valid IR: %s", message);
	LLVMDisposeMessage(message);
	if (!err)
		err = jit_check(jit, module);
	for (LLVMValueRef function = LLVMGetFirstFunction(module); function && !err; function = LLVMGetNextFunction(function)) {
		/* mem2reg and our passes leave such functions alone; a module that is compiled to run is to be fast. */
		LLVMRemoveEnumAttributeAtIndex(function, LLVMAttributeFunctionIndex, optnone);
		remove_unknown_cpu(machine, function, "target-cpu");
		remove_unknown_cpu(machine, function, "tune-cpu");
		remove_unknown_features(machine, LLVMGetModuleContext(module), function);
		if (!strncmp(jit->triple, "aarch64", strlen("aarch64")))
			add_landing_pads(function);
	}
	return err;
}
