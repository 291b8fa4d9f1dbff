/* SPDX-License-Identifier: MIT */
/* The straight-line forms of shunt/abi.h, built at the pass's builder. */
#ifndef PASSES_PERCPU_H
#define PASSES_PERCPU_H

#include "passes/ir.h"

/* Number of the running CPU, i32; NULL with SHUNT_PASS_CPU_CALL. */
LLVMValueRef shunt_pass_cpu_id(struct shunt_pass *pass);
/* This CPU's copy of p (a pointer). Only where a CPU source is known. */
LLVMValueRef shunt_pass_this_copy(struct shunt_pass *pass, LLVMValueRef p);
/* Whether cpu (i32) is a possible CPU, i1, and its copy of p, which may be used only if it is. */
LLVMValueRef shunt_pass_is_cpu(struct shunt_pass *pass, LLVMValueRef cpu);
LLVMValueRef shunt_pass_copy_of(struct shunt_pass *pass, LLVMValueRef p, LLVMValueRef cpu);

/* glibc's __rseq_offset, i64: of the thread's struct rseq from the thread pointer, where that is not a constant. */
LLVMValueRef shunt_pass_rseq_offset(struct shunt_pass *pass);

/* Whether shunt_pass_is_cpu can be built: the number of CPUs is known, or shunt_nr_cpus can be called. Else a missed remark for
 * call. */
bool shunt_pass_can_count_cpus(struct shunt_pass *pass, LLVMValueRef call, const char *callee);

/* shunt_map_lookup, or with is_of shunt_map_lookup_of, a call of the expected types: inlined by map type, or left with a remark. */
void shunt_pass_lookup(struct shunt_pass *pass, LLVMValueRef call, const char *callee, bool is_of);

/* percpu_global.c: accesses of the variables in section ".percpu", before the calls of shunt-percpu. */
shunt_pass_module_fn shunt_pass_percpu_globals;

#endif
