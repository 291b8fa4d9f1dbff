/* SPDX-License-Identifier: MIT */
/*
 * What one run of the passes carries from call to call, and the entry of each pass. A pass looks at the calls of a module one by
 * one, in module order; it replaces a call by straight-line code at the call's place, or leaves it alone and says why. Nothing else
 * of the module changes.
 */
#ifndef PASSES_PASS_H
#define PASSES_PASS_H

#include <llvm-c/Core.h>
#include <llvm-c/Target.h>
#include <shunt/passes.h>

/* No call that these passes copy is larger; one that is stays. */
#define SHUNT_PASS_MAX_ARGS 1024
#define SHUNT_PASS_MAX_ATTRIBUTES 1024
#define SHUNT_PASS_MAX_BUNDLES 16

/* Room for copying one call; on the heap because it is large, and allocated once so that nothing can fail half way through a
 * rewrite. */
struct shunt_pass_scratch {
	LLVMValueRef args[SHUNT_PASS_MAX_ARGS];
	LLVMTypeRef types[SHUNT_PASS_MAX_ARGS];
	LLVMAttributeRef attributes[SHUNT_PASS_MAX_ATTRIBUTES];
	LLVMOperandBundleRef bundles[SHUNT_PASS_MAX_BUNDLES];
};

struct shunt_pass {
	const char *name; /* of the running pass, as the user writes it */
	LLVMModuleRef module;
	LLVMContextRef context;
	LLVMBuilderRef builder;
	struct shunt_pass_scratch *scratch;
	LLVMTargetDataRef layout; /* the module's; the module owns it */
	const struct shunt_pass_options *options;
	struct shunt_pass_counts *counts;
	bool arm64;        /* else x86-64 */
	bool x18_is_taken; /* arm64: the platform keeps x18 for itself */
	bool changed;      /* the module is not what it was */
	bool failed;       /* out of memory: the module is whole, but not all was done */
	LLVMTypeRef ptr, i8, i32, i64;
	struct shunt_rmw_lookups *lookups; /* rmw_record.c's, while shunt-percpu runs */
	bool has_armed;                    /* rmw_disarm.c's, likewise */
};

/* Each handles one call of the module (call, invoke or callbr); it may erase that call, and no other. */
typedef void shunt_pass_call_fn(struct shunt_pass *pass, LLVMValueRef call);
shunt_pass_call_fn shunt_pass_bpf_helpers, shunt_pass_percpu, shunt_pass_dispatch;

/* These look at the module as a whole, whose nr calls are given in module order. They may erase none of them. */
typedef void shunt_pass_module_fn(struct shunt_pass *pass, const LLVMValueRef *calls, size_t nr);
shunt_pass_module_fn shunt_pass_mark, shunt_pass_targets, shunt_pass_pairs;

/* mark.c: erases the annotations of shunt/mark.h, which keep places in memory and block CSE, once the marks are on the calls. */
void shunt_pass_drop_annotations(struct shunt_pass *pass);

#ifdef __cplusplus
extern "C" {
#endif

/* shunt_passes_run, and whether anything changed (a plugin tells LLVM what is preserved). changed may be NULL. */
int shunt_passes_run_changed(LLVMModuleRef module, const char *pipeline, const struct shunt_pass_options *options,
			     struct shunt_pass_counts *counts, bool *changed, char **error);

/* Remarks. message is a printf format and a whole sentence without its dot. missed also counts the call. Call before call is
 * erased. */
void shunt_pass_passed(struct shunt_pass *pass, LLVMValueRef call, const char *name, const char *callee, const char *message, ...)
	__attribute__((format(printf, 5, 6)));
void shunt_pass_missed(struct shunt_pass *pass, LLVMValueRef call, const char *name, const char *callee, const char *message, ...)
	__attribute__((format(printf, 5, 6)));

#ifdef __cplusplus
}
#endif
#endif
