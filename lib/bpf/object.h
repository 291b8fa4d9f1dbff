/* SPDX-License-Identifier: MIT */
/*
 * An open object, and the steps that open it. Internal to the object half of lib/bpf; the translator sees only its struct bpf_unit.
 *
 *	from_ir.c      LLVM IR -> ELF image, in a child process that runs ir_compile.c
 *	object_open.c  ELF image -> functions (object_funcs.c), map definitions (maps_define.c), data sections, references (reloc*.c)
 *	maps_create.c  definitions -> maps, shared ones from the pins (pins.c), initial values
 *	compile.c      the reachable functions -> IR -> code
 *	object.c       the owner of all of it, and the queries
 */
#ifndef LIB_BPF_OBJECT_H
#define LIB_BPF_OBJECT_H

#include "lib/bpf/btf_reader.h"
#include "lib/bpf/elf_image.h"
#include "lib/bpf/unit.h"
#include "runtime/log.h"

struct shunt_jit_module;

#define BPF_MAX_INSNS 1000000u /* of one object, as the kernel's bound of one program */
#define BPF_MAX_MAPS 1024u
#define BPF_MAX_FUNCS 4096u
#define BPF_MAX_VALUES 65536u
#define BPF_MAX_HELPER 4096u   /* helper numbers are below it */

/* What the file says about unit.funcs[i]. */
struct bpf_func_place {
	uint32_t section; /* ELF index */
	uint32_t start;   /* first instruction in the section */
	char *unsupported; /* why it cannot run, NULL when nothing of its own forbids it */
};

struct bpf_map_shape {
	uint32_t type, key_size, value_size, max_entries, flags;
};

/* What the file says about unit.maps[i]. */
struct bpf_map_place {
	uint32_t section;
	uint64_t offset, len;   /* of the definition in the section */
	struct bpf_map_shape shape, inner;
	bool has_inner;         /* inner maps must have the shape `inner` */
	bool pinned;            /* by name */
	bool has_values;        /* initial values may be listed, the first one values_offset bytes into the definition */
	uint64_t values_offset;
	uint32_t first_value, nr_values; /* of object->values */
	bool reused;            /* taken from the pins, with the contents that it has */
	char *unsupported;      /* why there is no map, NULL when there is */
};

/* An initial value: element `element` of maps[map] is maps[target], or the program funcs[target]. */
struct bpf_map_value {
	uint32_t map, element, target;
	bool is_func;
	bool installed; /* of a program: it is in the map and must leave with the object */
};

/* What the file says about unit.datas[i]. */
struct bpf_data_place {
	uint32_t section;
	struct bpf_data_memory *memory;
	char *unsupported; /* why its contents cannot be made, NULL when they can */
};

struct shunt_bpf_program {
	struct shunt_bpf_object *object;
	uint32_t func;
	char *unsupported;
	const void *entry;
};

struct bpf_host_helper {
	uint32_t number;
	shunt_bpf_helper_fn *fn;
};

struct shunt_bpf_object {
	char *name;
	struct shunt_bpf_options options; /* strings are ours */
	char *program, *pipeline;
	uint8_t *image; /* the ELF object that LLVM made of IR; NULL when the file was one */
	size_t image_len;

	struct bpf_unit unit;
	struct bpf_func_place *func_places;
	struct bpf_map_place *map_places;
	struct bpf_data_place *data_places;
	struct bpf_map_value *values;
	uint32_t nr_values;

	struct shunt_bpf_program *programs;
	uint32_t nr_programs;
	struct bpf_host_helper *helpers;
	uint32_t nr_helpers;

	bool compiled;
	struct shunt_jit *own_jit;
	struct shunt_jit_module *module;
	struct shunt_pass_counts counts;
};

/* While a file is being opened. */
struct bpf_opening {
	struct shunt_bpf_object *object;
	struct bpf_elf elf;
	struct bpf_btf btf;
};

/* object.c */
int bpf_object_create(const char *name, const struct shunt_bpf_options *options, struct shunt_bpf_object **out);
/* printf into memory of its own, NULL without memory. */
char *bpf_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Keeps the first reason: sets *slot unless it has one. 0 or -ENOMEM. */
int bpf_reason(char **slot, const char *format, ...) __attribute__((format(printf, 2, 3)));
int bpf_no_memory(const char *object);

/* object_funcs.c: functions and their instructions from the symbols; programs. */
int bpf_open_funcs(struct bpf_opening *opening);
/* The function that holds instruction insn of the section; one that starts there when `start` is set. UINT32_MAX when there is none. */
uint32_t bpf_find_func(const struct shunt_bpf_object *object, uint32_t section, uint64_t insn, bool start);
/* Makes the list of programs, with the reason of each that cannot run: after everything else is known. */
int bpf_list_programs(struct shunt_bpf_object *object);

/* What a program needs: itself, what it calls, the maps and data that those touch, the programs that those maps list. */
struct bpf_reached {
	bool *funcs, *maps, *datas; /* one allocation, funcs owns it */
	uint32_t *stack;
};
int bpf_reached_init(struct bpf_reached *reached, const struct shunt_bpf_object *object);
void bpf_reached_fini(struct bpf_reached *reached);
void bpf_reach(const struct shunt_bpf_object *object, uint32_t func, struct bpf_reached *reached); /* adds */

/* object_data.c */
int bpf_open_datas(struct bpf_opening *opening);
void bpf_free_datas(struct shunt_bpf_object *object);

/* maps_define.c, maps_create.c */
int bpf_open_map_definitions(struct bpf_opening *opening);
int bpf_create_maps(struct shunt_bpf_object *object);
int bpf_install_programs(struct shunt_bpf_object *object);
void bpf_uninstall_programs(struct shunt_bpf_object *object);
uint32_t bpf_find_map(const struct shunt_bpf_object *object, uint32_t section, uint64_t offset);

/* reloc.c: references of the code; reloc_data.c: of data sections and map definitions; reloc_core.c */
int bpf_open_code_relocs(struct bpf_opening *opening);
int bpf_open_data_relocs(struct bpf_opening *opening);
int bpf_open_core_relocs(struct bpf_opening *opening);
int bpf_link_local_calls(struct shunt_bpf_object *object); /* those that need no relocation */

/* compile.c */
void bpf_uncompile(struct shunt_bpf_object *object);

#endif
