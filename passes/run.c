/* SPDX-License-Identifier: MIT */
/* shunt_passes_run: reads the list of passes, checks the module's machine, and shows every call of the module to each pass. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "passes/map_text.h"
#include "passes/parameters.h"
#include "passes/pass.h"
#include "passes/percpu.h"
#include "passes/rmw.h"

struct entry {
	const char *name;
	shunt_pass_call_fn *run; /* one of the two, or the second before the first */
	shunt_pass_module_fn *run_module;
	void (*finish)(struct shunt_pass *pass); /* after all calls, or NULL */
};

/* In the order of the pipeline "shunt": marks first; helpers become lookups, lookups become inline code; the indirect call that static
 * targets leave may be a dispatch. Pairs of updates once more after LLVM's own passes. */
static const struct entry entries[] = {
	{ "shunt-mark", NULL, shunt_pass_mark, NULL },
	{ "shunt-bpf-helpers", shunt_pass_bpf_helpers, NULL, NULL },
	{ "shunt-percpu", shunt_pass_percpu, shunt_pass_percpu_globals, shunt_pass_rmw },
	{ "shunt-targets", NULL, shunt_pass_targets, NULL },
	{ "shunt-dispatch", shunt_pass_dispatch, NULL, shunt_pass_drop_annotations },
	{ "shunt-pairs", NULL, shunt_pass_pairs, NULL },
};
enum { NR_ENTRIES = sizeof(entries) / sizeof(entries[0]) };

/* One pass of a run. */
struct step {
	const struct entry *entry;
	struct shunt_pass_options options; /* the host's, and the parameters of the pass */
	const struct shunt_pass_map *host_maps; /* other maps in options are the step's own */
};

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

/* Bytes of one pass in pipeline, up to the next comma outside angle brackets. */
static size_t element_len(const char *at)
{
	size_t len = 0;

	for (bool inside = false; at[len] && (inside || at[len] != ','); len++)
		inside = at[len] == '<' || (inside && at[len] != '>');
	return len;
}

/* Adds the passes that element names. */
static int parse_element(const char *element, size_t len, struct step *steps, size_t *nr, size_t room, char **error)
{
	const char *open = memchr(element, '<', len);
	size_t name_len = open ? (size_t)(open - element) : len, before = *nr;
	bool is_all = name_len == 5 && !memcmp(element, "shunt", 5);
	char why[256];

	for (size_t i = 0; i < NR_ENTRIES; i++) {
		if (!is_all && (strlen(entries[i].name) != name_len || memcmp(entries[i].name, element, name_len)))
			continue;
		if (*nr == room)
			return refuse(error, "the pipeline names more than %zu passes: every pass is idempotent, name each once", room);
		steps[*nr].entry = &entries[i];
		steps[*nr].options = steps[room].options;
		if (open && element[len - 1] != '>')
			return refuse(error, "the parameters of '%.*s' have no closing '>'", (int)len, element);
		steps[*nr].host_maps = steps[room].options.maps;
		++*nr; /* whatever the parameters come to, it is there to be freed */
		if (open && shunt_pass_set_parameters(is_all ? "shunt" : entries[i].name, open + 1, len - name_len - 2,
						      &steps[*nr - 1].options, why, sizeof(why)))
			return refuse(error, "%s", why);
	}
	if (*nr > before)
		return 0;
	return refuse(error,
		      "unknown pass '%.*s': the passes are shunt-mark, shunt-bpf-helpers, shunt-percpu, shunt-targets, shunt-dispatch, "
		      "shunt-pairs, and shunt for all of them",
		      (int)len, element);
}

/* Lists the passes in the order that the user wrote. steps[room] has the options to begin with. */
static int parse_pipeline(const char *pipeline, struct step *steps, size_t *nr, size_t room, char **error)
{
	*nr = 0;
	if (!pipeline)
		return refuse(error, "no pipeline: name \"shunt\" or a comma-separated list of shunt-mark, shunt-bpf-helpers, "
				     "shunt-percpu, shunt-targets, shunt-dispatch and shunt-pairs");
	for (const char *at = pipeline; *at; at += *at == ',') {
		size_t len = element_len(at);
		int ret = parse_element(at, len, steps, nr, room, error);

		if (ret)
			return ret;
		at += len;
	}
	return 0;
}

static bool is_call(LLVMValueRef instruction)
{
	LLVMOpcode opcode = LLVMGetInstructionOpcode(instruction);

	return opcode == LLVMCall || opcode == LLVMInvoke || opcode == LLVMCallBr;
}

/* The calls of the module, to free(); NULL: out of memory. */
static LLVMValueRef *list_calls(LLVMModuleRef module, size_t *nr)
{
	size_t room = 1024;
	LLVMValueRef *list = malloc(room * sizeof(*list)), *larger;

	*nr = 0;
	for (LLVMValueRef f = LLVMGetFirstFunction(module); f && list; f = LLVMGetNextFunction(f))
		for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(f); b; b = LLVMGetNextBasicBlock(b))
			for (LLVMValueRef i = LLVMGetFirstInstruction(b); i; i = LLVMGetNextInstruction(i)) {
				if (!is_call(i))
					continue;
				if (*nr == room) {
					larger = realloc(list, 2 * room * sizeof(*list));
					if (!larger) {
						free(list);
						return NULL;
					}
					list = larger;
					room *= 2;
				}
				list[(*nr)++] = i;
			}
	return list;
}

static void fini_steps(struct step *steps, size_t nr)
{
	for (size_t i = 0; i < nr; i++) {
		struct shunt_map_list list = { (struct shunt_pass_map *)steps[i].options.maps, steps[i].options.nr_maps };

		if (steps[i].options.maps != steps[i].host_maps)
			shunt_map_list_fini(&list);
	}
}

/* The calls of the module, as long as no pass has changed it: walking over all instructions is most of what a pass costs. */
struct call_list {
	LLVMValueRef *calls; /* NULL: not known */
	size_t nr;
};

/* The list is taken first: a pass erases the call it is shown and adds new ones. */
static int run_step(struct shunt_pass *pass, const struct step *step, struct call_list *list)
{
	const LLVMValueRef *calls;
	size_t nr;

	if (!list->calls)
		list->calls = list_calls(pass->module, &list->nr);
	if (!list->calls)
		return -ENOMEM;
	calls = list->calls;
	nr = list->nr;
	pass->changed = false;
	pass->name = step->entry->name;
	pass->options = &step->options;
	if (step->entry->run_module)
		step->entry->run_module(pass, calls, nr);
	for (size_t i = 0; step->entry->run && i < nr; i++)
		step->entry->run(pass, calls[i]);
	if (step->entry->finish)
		step->entry->finish(pass);
	if (pass->changed) {
		free(list->calls);
		list->calls = NULL;
	}
	return pass->failed ? -ENOMEM : 0;
}

int shunt_passes_run_changed(LLVMModuleRef module, const char *pipeline, const struct shunt_pass_options *options,
			     struct shunt_pass_counts *counts, bool *changed, char **error)
{
	struct shunt_pass_counts no_counts = { 0 };
	enum { MAX_STEPS = 16 };
	struct step steps[MAX_STEPS + 1];
	struct call_list list = { 0 };
	bool any_change = false;
	struct shunt_pass pass = {
		.module = module,
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
	memset(&steps[MAX_STEPS], 0, sizeof(steps[MAX_STEPS]));
	if (options)
		steps[MAX_STEPS].options = *options;
	ret = parse_pipeline(pipeline, steps, &nr, MAX_STEPS, error);
	if (!ret)
		ret = check_triple(&pass, error);
	if (ret)
		goto out;
	pass.context = LLVMGetModuleContext(module);
	pass.layout = LLVMGetModuleDataLayout(module);
	pass.ptr = LLVMPointerTypeInContext(pass.context, 0);
	pass.i8 = LLVMInt8TypeInContext(pass.context);
	pass.i32 = LLVMInt32TypeInContext(pass.context);
	pass.i64 = LLVMInt64TypeInContext(pass.context);
	pass.scratch = malloc(sizeof(*pass.scratch));
	if (!pass.scratch) {
		ret = -ENOMEM;
		goto out;
	}
	pass.builder = LLVMCreateBuilderInContext(pass.context);
	for (size_t i = 0; i < nr && !ret; i++) {
		ret = run_step(&pass, &steps[i], &list);
		any_change |= pass.changed;
	}
	LLVMDisposeBuilder(pass.builder);
	free(list.calls);
	free(pass.scratch);
	if (changed)
		*changed = any_change;
out:
	fini_steps(steps, nr);
	return ret;
}

int shunt_passes_run(LLVMModuleRef module, const char *pipeline, const struct shunt_pass_options *options,
		     struct shunt_pass_counts *counts, char **error)
{
	return shunt_passes_run_changed(module, pipeline, options, counts, NULL, error);
}
