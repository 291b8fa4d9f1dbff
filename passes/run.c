/* SPDX-License-Identifier: MIT */
/* shunt_passes_run: reads the list of passes, checks the module's machine, and shows every call of the module to each pass. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "passes/pass.h"

struct entry {
	const char *name;
	shunt_pass_call_fn *run;
};

/* In the order of the pipeline "shunt": helpers become lookups, lookups become inline code. */
static const struct entry entries[] = {
	{ "shunt-bpf-helpers", shunt_pass_bpf_helpers },
	{ "shunt-percpu", shunt_pass_percpu },
	{ "shunt-dispatch", shunt_pass_dispatch },
};
enum { NR_ENTRIES = sizeof(entries) / sizeof(entries[0]) };

static int refuse(char **error, const char *format, ...)
{
	va_list args;

	if (!error)
		return -EINVAL;
	va_start(args, format);
	if (vasprintf(error, format, args) < 0)
		*error = NULL;
	va_end(args);
	return -EINVAL;
}

static bool is_arch(const char *triple, const char *arch)
{
	size_t len = strlen(arch);

	return !strncmp(triple, arch, len) && (triple[len] == '-' || triple[len] == '\0');
}

static int check_triple(struct shunt_pass *pass, char **error)
{
	/* Where x18 is the platform's register, LLVM writes the nest parameter over it without an error. */
	static const char *const x18_owners[] = { "android", "apple", "darwin",  "macos", "ios",
						  "windows", "win32", "fuchsia", "ohos" };
	const char *triple = LLVMGetTarget(pass->module);

	if (is_arch(triple, "aarch64") || is_arch(triple, "arm64"))
		pass->arm64 = true;
	else if (!is_arch(triple, "x86_64") && !is_arch(triple, "amd64"))
		return refuse(error,
			      "the module's target triple '%s' is neither x86-64 nor arm64: set it (and the data layout) to the "
			      "machine that will run the code",
			      triple);
	if (strstr(triple, "gnux32") || strstr(triple, "muslx32") || strstr(triple, "ilp32"))
		return refuse(error, "the module's target triple '%s' has 32-bit pointers: use the 64-bit ABI of that machine",
			      triple);
	for (size_t i = 0; i < sizeof(x18_owners) / sizeof(x18_owners[0]); i++)
		if (pass->arm64 && strstr(triple, x18_owners[i]))
			pass->x18_is_taken = true;
	return 0;
}

/* Lists the passes in the order that the user wrote. */
static int parse_pipeline(const char *pipeline, const struct entry **list, size_t *nr, size_t room, char **error)
{
	*nr = 0;
	if (!pipeline)
		return refuse(error, "no pipeline: name \"shunt\" or a comma-separated list of shunt-bpf-helpers, shunt-percpu and "
				     "shunt-dispatch");
	for (const char *at = pipeline; *at; at += *at == ',') {
		size_t len = strcspn(at, ","), before = *nr;
		bool is_all = len == 5 && !memcmp(at, "shunt", 5);

		for (size_t i = 0; i < NR_ENTRIES; i++) {
			if (!is_all && (strlen(entries[i].name) != len || memcmp(entries[i].name, at, len)))
				continue;
			if (*nr == room)
				return refuse(error,
					      "the pipeline names more than %zu passes: every pass is idempotent, name each once",
					      room);
			list[(*nr)++] = &entries[i];
		}
		if (*nr == before)
			return refuse(error,
				      "unknown pass '%.*s': the passes are shunt-bpf-helpers, shunt-percpu, shunt-dispatch, and "
				      "shunt for all three",
				      (int)len, at);
		at += len;
	}
	return 0;
}

static bool is_call(LLVMValueRef instruction)
{
	LLVMOpcode opcode = LLVMGetInstructionOpcode(instruction);

	return opcode == LLVMCall || opcode == LLVMInvoke || opcode == LLVMCallBr;
}

/* Counts the calls of the module, and lists them where list is not NULL. */
static size_t list_calls(LLVMModuleRef module, LLVMValueRef *list)
{
	size_t nr = 0;

	for (LLVMValueRef f = LLVMGetFirstFunction(module); f; f = LLVMGetNextFunction(f))
		for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(f); b; b = LLVMGetNextBasicBlock(b))
			for (LLVMValueRef i = LLVMGetFirstInstruction(b); i; i = LLVMGetNextInstruction(i))
				if (is_call(i)) {
					if (list)
						list[nr] = i;
					nr++;
				}
	return nr;
}

/* The list is taken first: a pass erases the call it is shown and adds new ones. */
static int run_pass(struct shunt_pass *pass, const struct entry *entry)
{
	size_t nr = list_calls(pass->module, NULL);
	LLVMValueRef *calls = calloc(nr + 1, sizeof(*calls));

	if (!calls)
		return -ENOMEM;
	list_calls(pass->module, calls);
	pass->name = entry->name;
	for (size_t i = 0; i < nr; i++)
		entry->run(pass, calls[i]);
	free(calls);
	return 0;
}

int shunt_passes_run_changed(LLVMModuleRef module, const char *pipeline, const struct shunt_pass_options *options,
			     struct shunt_pass_counts *counts, bool *changed, char **error)
{
	static const struct shunt_pass_options no_options;
	struct shunt_pass_counts no_counts = { 0 };
	const struct entry *list[16];
	struct shunt_pass pass = {
		.module = module,
		.options = options ? options : &no_options,
		.counts = counts ? counts : &no_counts,
	};
	size_t nr;
	int ret;

	if (error)
		*error = NULL;
	if (changed)
		*changed = false;
	if (!module)
		return refuse(error, "no module to run the passes over");
	ret = parse_pipeline(pipeline, list, &nr, sizeof(list) / sizeof(list[0]), error);
	if (!ret)
		ret = check_triple(&pass, error);
	if (ret)
		return ret;
	pass.context = LLVMGetModuleContext(module);
	pass.layout = LLVMGetModuleDataLayout(module);
	pass.ptr = LLVMPointerTypeInContext(pass.context, 0);
	pass.i8 = LLVMInt8TypeInContext(pass.context);
	pass.i32 = LLVMInt32TypeInContext(pass.context);
	pass.i64 = LLVMInt64TypeInContext(pass.context);
	pass.scratch = malloc(sizeof(*pass.scratch));
	if (!pass.scratch)
		return -ENOMEM;
	pass.builder = LLVMCreateBuilderInContext(pass.context);
	for (size_t i = 0; i < nr && !ret; i++)
		ret = run_pass(&pass, list[i]);
	LLVMDisposeBuilder(pass.builder);
	free(pass.scratch);
	if (changed)
		*changed = pass.changed;
	return ret;
}

int shunt_passes_run(LLVMModuleRef module, const char *pipeline, const struct shunt_pass_options *options,
		     struct shunt_pass_counts *counts, char **error)
{
	return shunt_passes_run_changed(module, pipeline, options, counts, NULL, error);
}
