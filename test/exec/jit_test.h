/* SPDX-License-Identifier: MIT */
/* What the JIT's tests share: modules from IR text, and a look at this process's mappings. */
#ifndef TEST_JIT_TEST_H
#define TEST_JIT_TEST_H

#include <stdio.h>
#include <string.h>
#include <llvm-c/Core.h>
#include <llvm-c/IRReader.h>
#include <criterion/criterion.h>
#include <shunt/jit.h>
#include <shunt/log.h>
#include <shunt/pack.h>
#include <shunt/reader.h>

static inline LLVMModuleRef jit_test_parse(LLVMContextRef context, const char *text)
{
	LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(text, strlen(text), "test");
	LLVMModuleRef module = NULL;
	char *message = NULL;

	if (LLVMParseIRInContext(context, buffer, &module, &message))
		cr_assert_fail("the test's own IR does not parse: %s", message);
	return module;
}

static inline int jit_test_add(struct shunt_jit *jit, const char *text, const struct shunt_jit_module_options *options,
			       struct shunt_jit_module **out)
{
	LLVMContextRef context = LLVMContextCreate();

	return shunt_jit_add(jit, context, jit_test_parse(context, text), options, out);
}

static inline struct shunt_jit *jit_test_create(void)
{
	struct shunt_jit *jit = NULL;

	if (shunt_jit_create(NULL, &jit))
		cr_assert_fail("%s", shunt_error());
	return jit;
}

static inline struct shunt_jit_module *jit_test_must_add(struct shunt_jit *jit, const char *text,
							 const struct shunt_jit_module_options *options)
{
	struct shunt_jit_module *module = NULL;

	if (jit_test_add(jit, text, options, &module))
		cr_assert_fail("%s", shunt_error());
	return module;
}

/* Calls fn for each mapping of this process. */
static inline void jit_test_walk_maps(void (*fn)(void *user, uintptr_t start, uintptr_t end, const char *prot), void *user)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512], prot[8];
	unsigned long start, end;

	cr_assert(maps);
	while (fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx %4s", &start, &end, prot) == 3)
			fn(user, start, end, prot);
	fclose(maps);
}

#endif
