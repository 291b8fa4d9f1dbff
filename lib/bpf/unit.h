/* SPDX-License-Identifier: MIT */
/*
 * What the object opener hands to the translator: functions with their instructions, and every reference resolved to an index. Internal to
 * lib/bpf; made by open*.c, checked and translated by check.c and translate*.c.
 */
#ifndef LIB_BPF_UNIT_H
#define LIB_BPF_UNIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <linux/bpf.h>
#include <llvm-c/Types.h>
#include <shunt/bpf.h>

enum bpf_ref_kind {
	BPF_REF_MAP,       /* ld_imm64: address of maps[index] */
	BPF_REF_DATA,      /* ld_imm64: address of datas[index] + addend */
	BPF_REF_MAP_VALUE, /* ld_imm64: address of the value 0 of the ARRAY maps[index] + addend */
	BPF_REF_FUNC,      /* ld_imm64: address of funcs[index], a callback */
	BPF_REF_CALL,      /* call: funcs[index] */
};

struct bpf_ref {
	uint32_t insn; /* index of the instruction; refs are sorted by it */
	enum bpf_ref_kind kind;
	uint32_t index;
	int64_t addend;
};

struct bpf_func {
	char *name;
	char *section;
	bool is_program;              /* an entry; else a subprogram or callback */
	enum shunt_bpf_context context; /* of a program */
	struct bpf_insn *insns;       /* as in the file but for the fields that refs replace */
	uint32_t nr_insns;
	struct bpf_ref *refs;
	uint32_t nr_refs;
};

struct bpf_unit_map {
	char *name;            /* IR symbol: "map." name */
	struct shunt_map *map;
};

struct bpf_unit_data {
	char *name; /* section, IR symbol: "data" name (".rodata" -> "data.rodata") */
	void *bytes;
	size_t len;
};

struct bpf_unit {
	const char *name; /* of the object, for messages and the module's identifier */
	struct bpf_func *funcs;
	uint32_t nr_funcs;
	struct bpf_unit_map *maps;
	uint32_t nr_maps;
	struct bpf_unit_data *datas;
	uint32_t nr_datas;
};

/* Which helpers exist: true when number may be called (built in, or set by the host). */
typedef bool bpf_helper_known_fn(void *user, uint32_t number);

/*
 * Checks func's bytecode: opcodes, registers, branch targets, ld_imm64 pairs, falls off the end, helper numbers, calls. 0, or -EINVAL /
 * -ENOTSUP with program, instruction number and reason in shunt_error(). Everything translate relies on is checked here.
 */
int bpf_check(const struct bpf_unit *unit, const struct bpf_func *func, bpf_helper_known_fn *known, void *user);

/*
 * Translates those functions of unit for which wanted[i] is true (checked before, closed under references) to a module in context, for
 * triple and data_layout. Program i is the external function with its name; subprograms are internal. Maps and datas are external
 * globals, helpers external functions (SHUNT_HELPER_PREFIX). 0, or -EINVAL with the instruction that cannot be resolved (a context
 * access of an unknown form). On failure nothing is left in context.
 */
int bpf_translate(const struct bpf_unit *unit, const bool *wanted, LLVMContextRef context, const char *triple, const char *data_layout,
		  LLVMModuleRef *out);

/* The built-in helper of that number (helpers*.c), NULL when there is none. Helpers that the translator expands itself (12 tail_call,
 * 164 for_each_map_elem, 181 loop) are known without having a function here when bpf_helper_is_expanded. */
shunt_bpf_helper_fn *bpf_helper_builtin(uint32_t number);
bool bpf_helper_is_expanded(uint32_t number);
/* "map_lookup_elem" for 1; NULL when the number is not known at all. */
const char *bpf_helper_name(uint32_t number);

#endif
