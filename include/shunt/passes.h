/* SPDX-License-Identifier: MIT */
/*
 * The passes, for hosts that hold an LLVM module. A pass only makes things faster: the module means the same before and after.
 *
 *	shunt-mark         clang's annotations of shunt/mark.h -> metadata of the calls
 *	shunt-bpf-helpers  BPF helper calls in every dialect -> the names of shunt/abi.h
 *	shunt-percpu       CPU id, this/of, per-CPU globals, array, per-CPU array and per-CPU hash lookups -> inline code; exact updates
 *	shunt-targets      indirect calls with known targets -> compares and direct calls, hot first
 *	shunt-dispatch     marked indirect calls -> direct calls of the dispatcher's stub
 *	shunt-pairs        two exact updates that follow each other -> one restartable sequence; best after LLVM's own passes
 *	shunt              all of them, in this order
 *
 * A name may carry parameters for that pass alone, which override the options: shunt-percpu<spectre-v1;cpu=call;nr-cpus=8>.
 */
#ifndef SHUNT_PASSES_H
#define SHUNT_PASSES_H

#include <stdbool.h>
#include <llvm-c/Types.h>
#include <shunt/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a pass must know of a map. A call's map operand is matched by symbol (a global of that name), or by value (an integer constant equal
 * to address or handle). Unknown maps stay calls, with a remark. */
struct shunt_pass_map {
	const char *symbol;    /* NULL: not matched by name */
	uint64_t address;      /* of the struct shunt_map, 0: not matched by address */
	uint64_t handle;       /* front ends with integer handles (a map fd); matched only when has_handle */
	bool has_handle;
	uint32_t type, key_size, value_size, max_entries, stride, index_mask;
	uint64_t values;       /* address of value 0 when code is made for this process; 0: load it from the map object */
	const struct shunt_pass_map *inner; /* of a map of maps: what all its maps are like; NULL: not known. Its names and addresses are
	                                       not looked at */
};

enum shunt_pass_cpu {
	SHUNT_PASS_CPU_CALL,     /* shunt_cpu_id stays a call: no index source is known (AOT without rseq) */
	SHUNT_PASS_CPU_TP,       /* 32-bit load at cpu_offset from the thread pointer: JIT, from shunt_cpu_index() */
	SHUNT_PASS_CPU_RSEQ,     /* as TP, where cpu_offset is that of cpu_id in the thread's struct rseq: exact updates are inline too */
	SHUNT_PASS_CPU_RSEQ_AOT, /* load __rseq_offset (glibc), add the thread pointer, load cpu_id at +4 */
};

/*
 * What becomes of a load, an operation and a store through a per-CPU pointer. The thread may migrate, or another take its place, between
 * load and store; as written, such an update can be lost.
 */
enum shunt_pass_rmw {
	SHUNT_PASS_RMW_DEFAULT,      /* plain in shunt_passes_run; exact where lib/bpf calls it */
	SHUNT_PASS_RMW_PLAIN,        /* as written */
	SHUNT_PASS_RMW_EXACT,        /* one restartable operation; what is not recognised stays as written, with a remark */
	SHUNT_PASS_RMW_EXACT_SHARED, /* the same, and updates of ARRAY and HASH values become atomic */
};

enum shunt_remark_kind { SHUNT_REMARK_PASSED, SHUNT_REMARK_MISSED };

/* What became of one call. Strings live until the callback returns. */
struct shunt_remark {
	enum shunt_remark_kind kind;
	const char *pass;     /* "shunt-percpu" */
	const char *name;     /* stable CamelCase id: "InlinedPercpuArrayLookup", "UnknownMap" */
	const char *function; /* the function that holds the call */
	const char *callee;   /* what was called: "shunt_map_lookup", the dispatcher's name, ... */
	const char *message;  /* a sentence: what was done, or why it was left alone */
	const char *file;     /* debug location, NULL when there is none */
	uint32_t line, column;
};
typedef void shunt_remark_fn(void *user, const struct shunt_remark *remark);

struct shunt_pass_options {
	const struct shunt_pass_map *maps;
	size_t nr_maps;
	enum shunt_pass_cpu cpu;
	int64_t cpu_offset;
	uint32_t nr_cpus;      /* for shunt_percpu_of; 0: not known, loaded by a call */
	bool spectre_v1;       /* mask array indices */
	bool hash_calls;       /* no inline first probe of hashes: smaller code, and maps whose struct shunt_map_abi lacks buckets */
	enum shunt_pass_rmw rmw;
	shunt_remark_fn *remark;
	void *remark_user;
};

/* What the passes did to a module; add up over modules. */
struct shunt_pass_counts {
	uint32_t cpu_ids, percpu_this, percpu_of, array_lookups, percpu_array_lookups, percpu_hash_lookups, hash_lookups, dispatches;
	uint32_t marked;       /* calls that got metadata from an annotation */
	uint32_t static_calls; /* indirect calls that became compares and direct calls */
	uint32_t percpu_globals; /* variables in section ".percpu" whose accesses became this CPU's */
	uint32_t exact_updates; /* read-modify-writes made exact */
	uint32_t helpers; /* BPF helper calls that became names of abi.h */
	uint32_t missed;  /* calls left alone, each with a remark */
};

/* Runs pipeline ("shunt", or a comma-separated list of the names above) over module. options and counts may be NULL. 0; -EINVAL: an unknown
 * pass name, or the module's target triple is neither x86-64 nor arm64; *error, unless error is NULL, is then a sentence to
 * free(). -ENOMEM.
 * Never aborts on IR that LLVM's verifier accepts. Not MT-safe per LLVMContext, as LLVM. */
SHUNT_API int shunt_passes_run(LLVMModuleRef module, const char *pipeline, const struct shunt_pass_options *options,
			       struct shunt_pass_counts *counts, char **error);

/*
 * Makes what `clang -target bpf -emit-llvm` gave a module for triple and data_layout (of an LLVM target machine, or of
 * shunt_jit_triple() and shunt_jit_data_layout()): drops BPF's target attributes and llvm.bpf.passthrough, lowers llvm.bpf.compare, and takes the
 * section names off that would clash. A program's section (its type) is then the function's string attribute
 * SHUNT_SECTION_ATTRIBUTE; .maps, .ksyms and .kconfig stay. Run it before the passes. Does nothing where triple is the module's already.
 * -EINVAL, module unchanged: not a little-endian BPF module, or one that holds inline BPF assembly, CO-RE relocations that nobody has
 * resolved, or intrinsics of BPF loaders; *error, unless error is NULL, is then a sentence that names it, to free().
 */
#define SHUNT_SECTION_ATTRIBUTE "shunt-section"
SHUNT_API int shunt_module_retarget(LLVMModuleRef module, const char *triple, const char *data_layout, char **error);

#ifdef __cplusplus
}
#endif
#endif
