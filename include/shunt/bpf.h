/* SPDX-License-Identifier: MIT */
/*
 * BPF objects as a front end: opens ELF objects (or LLVM IR, or raw instructions), makes their maps, translates the bytecode to LLVM IR, runs the passes and
 * loads the code into packs. Input is untrusted: a bad object gives one sentence in shunt_error(), never a crash. It does not verify programs
 * as the kernel does: what the program does with memory is the program's (load only programs you trust to run).
 *
 *	shunt_bpf_open_file("prog.o", NULL, &obj) -> set map contents, helpers -> shunt_bpf_compile(obj) -> shunt_bpf_program_entry(prog)
 */
#ifndef SHUNT_BPF_H
#define SHUNT_BPF_H

#include <stdbool.h>
#include <shunt/abi.h>
#include <shunt/map.h>
#include <shunt/passes.h>
#include <shunt/xdp.h>

#ifdef __cplusplus
extern "C" {
#endif

struct shunt_bpf_object;
struct shunt_bpf_program;
struct shunt_jit;

enum shunt_bpf_context {
	SHUNT_BPF_CONTEXT_NONE, /* R1 = pointer, R2 = length: uint64_t entry(void *mem, size_t len) */
	SHUNT_BPF_CONTEXT_XDP,  /* R1 = struct xdp_md: uint32_t entry(struct shunt_xdp_ctx *ctx) */
};

/* Maps that several objects share by name, as a bpf file system's pins do. */
struct shunt_bpf_pins;
SHUNT_API int shunt_bpf_pins_create(struct shunt_bpf_pins **out);
SHUNT_API void shunt_bpf_pins_destroy(struct shunt_bpf_pins *pins); /* puts its references; NULL allowed */

struct shunt_bpf_options {
	struct shunt_jit *jit;       /* NULL: one of the object's own */
	struct shunt_bpf_pins *pins; /* a map pinned by name is taken from here when there is one of the same shape (-EINVAL: another shape),
	                                else made and added; NULL: every map is private */
	const char *program;         /* only this program is compiled; NULL: all that are supported */
	const char *pipeline;        /* passes to run, NULL: "shunt"; "" runs none */
	bool keep_ir;                /* shunt_bpf_program_ir gives the final IR */
	shunt_remark_fn *remark;     /* what the passes did and left */
	void *remark_user;
	enum shunt_pass_rmw rmw;     /* updates of map values; default: exact */
	const void *code;            /* loaded instead of compiling: what shunt_bpf_emit made of the same object for this machine; the caller's
	                                until compile. NULL: compile */
	size_t code_len;
	const struct shunt_pass_map *maps; /* what maps of section .maps are that the file does not describe, as it was built without -g: symbol, type,
	                                sizes, entries and inner are looked at; the caller's until the object is open */
	size_t nr_maps;
};

/* Opens an object: an ELF file, or LLVM IR of clang -target bpf -emit-llvm (bitcode or text, any -O). IR is compiled in a forked child process, so
 * that a module over which LLVM ends its process is an -EINVAL, too. A child that another thread's lock stops is replaced by another after two
 * seconds; over two minutes in all are -ETIMEDOUT. options may be NULL, are copied (strings too, maps not). The object holds its maps.
 * -EINVAL: not a BPF object, or a broken one (section, symbol or instruction in shunt_error()), or a map that the kernel would refuse too;
 * -ENOTSUP: a feature not supported (a feature that only some program needs does not fail the opening: shunt_bpf_program_unsupported);
 * -EFBIG, -E2BIG: above a limit; -ENOMEM; -ENOENT, -EACCES...: the file. Nothing is kept on failure.
 * from_memory: name is for messages, and one that ends in .ll is that of IR as text; the bytes may go when it returns. MT-safe; one object is for
 * one thread at a time until compiled. */
SHUNT_API int shunt_bpf_open_file(const char *path, const struct shunt_bpf_options *options, struct shunt_bpf_object **out);
SHUNT_API int shunt_bpf_open_memory(const void *bytes, size_t len, const char *name, const struct shunt_bpf_options *options,
				    struct shunt_bpf_object **out);

/* One program "main" from nr_insns 8-byte instructions (struct bpf_insn layout, copied), no maps. Targets of BPF-to-BPF calls begin functions. */
SHUNT_API int shunt_bpf_open_insns(const void *insns, size_t nr_insns, enum shunt_bpf_context context,
				   const struct shunt_bpf_options *options, struct shunt_bpf_object **out);

/* Frees the object, its code after a grace period. The caller has detached its programs. NULL allowed. Never waits. */
SHUNT_API void shunt_bpf_close(struct shunt_bpf_object *object);

/* Programs in the order of the object's sections; prev NULL gives the first, NULL the end. By name, else by section (its first program): NULL
 * when absent. */
SHUNT_API struct shunt_bpf_program *shunt_bpf_next_program(struct shunt_bpf_object *object, struct shunt_bpf_program *prev);
SHUNT_API struct shunt_bpf_program *shunt_bpf_find_program(struct shunt_bpf_object *object, const char *name);
SHUNT_API const char *shunt_bpf_program_name(const struct shunt_bpf_program *program);
SHUNT_API const char *shunt_bpf_program_section(const struct shunt_bpf_program *program);
SHUNT_API size_t shunt_bpf_program_nr_insns(const struct shunt_bpf_program *program);
/* NULL when the program can be compiled, else why not ("fentry programs need a kernel to attach to"). */
SHUNT_API const char *shunt_bpf_program_unsupported(const struct shunt_bpf_program *program);

/* Maps in the order of the object: the reference stays the object's. Internal maps (.rodata, .data, .bss) are not among them, nor are maps of
 * types that are not supported (the programs that use one say so). */
SHUNT_API size_t shunt_bpf_nr_maps(const struct shunt_bpf_object *object);
SHUNT_API struct shunt_map *shunt_bpf_map(struct shunt_bpf_object *object, size_t i);
SHUNT_API struct shunt_map *shunt_bpf_find_map(struct shunt_bpf_object *object, const char *name);

/* Bytes of the object's .data, .bss or .rodata ("initialised before compile, live afterwards"), NULL and 0 when absent. */
SHUNT_API void *shunt_bpf_section_data(struct shunt_bpf_object *object, const char *section, size_t *len);

/* Helper `number` (1 to 4095) for this object: uint64_t fn(uint64_t r1, r2, r3, r4, r5); replaces a built-in of that number, which then gets as
 * many arguments as the built-in has, the others are 0. -EINVAL: the number, or a helper that is expanded in place (tail_call, loop,
 * for_each_map_elem). Before compile (-EBUSY). */
typedef uint64_t shunt_bpf_helper_fn(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5);
SHUNT_API int shunt_bpf_set_helper(struct shunt_bpf_object *object, unsigned number, shunt_bpf_helper_fn *fn);

/* Translates and compiles the programs. -EINVAL: bad bytecode (program, instruction, reason in shunt_error()); -ENOTSUP: an unknown helper or a
 * program type not supported; -ENOENT: options->program is not in the object; -ENOMEM. -EALREADY the second time. After another failure it
 * may be tried again, say with a helper set. Programs that a PROG_ARRAY lists in the object are compiled with the programs that use it, and
 * are in the map from then until the object is closed. */
SHUNT_API int shunt_bpf_compile(struct shunt_bpf_object *object);

/*
 * Compiles for another process, and perhaps another machine: target is x86_64-linux-gnu or aarch64-linux-gnu, the result an ELF object
 * (relocatable) that the caller frees. It leaves undefined "map.NAME" (the struct shunt_map), "data" SECTION, functions of shunt/abi.h and
 * helpers (SHUNT_HELPER_PREFIX). cpu: SHUNT_PASS_CPU_RSEQ_AOT, or SHUNT_PASS_CPU_CALL for a process without glibc's rseq. Errors are those of
 * shunt_bpf_compile, and -ENOTSUP for another target. The object stays as it was.
 */
SHUNT_API int shunt_bpf_emit(struct shunt_bpf_object *object, const char *target, enum shunt_pass_cpu cpu, void **bytes, size_t *len);

/* Entry address, NULL before compile or for a program that was not compiled. Attach it to a dispatcher; call it in a read section. */
SHUNT_API const void *shunt_bpf_program_entry(const struct shunt_bpf_program *program);
SHUNT_API const char *shunt_bpf_program_ir(const struct shunt_bpf_program *program); /* keep_ir; the module's whole IR */
SHUNT_API int shunt_bpf_program_code(const struct shunt_bpf_program *program, const void **code, size_t *len);
SHUNT_API const struct shunt_pass_counts *shunt_bpf_counts(const struct shunt_bpf_object *object); /* valid after compile */

#ifdef __cplusplus
}
#endif
#endif
