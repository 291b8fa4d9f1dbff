/* SPDX-License-Identifier: MIT */
/* The JIT's parts by themselves: where segments go, how a name gets its address, what an object says of its symbols. */
#include <criterion/criterion.h>
#include <elf.h>
#include <errno.h>
#include <string.h>
#include <shunt/dispatcher.h>
#include <shunt/log.h>
#include <shunt/pack.h>
#include <shunt/reader.h>
#include "lib/jit/jit_internal.h"
#include "lib/jit/pack_memory.h"

static struct shunt_pack_stats stats(void)
{
	struct shunt_pack_stats s;

	cr_assert(shunt_pack_get_stats(NULL, &s) == 0);
	return s;
}

Test(jit_memory, each_protection_has_its_segment)
{
	struct jit_memory *memory;
	void *rw, *rx;

	cr_assert(jit_memory_create(NULL, &memory) == 0);
	cr_assert(jit_memory_add(memory, JIT_PROT_READ | JIT_PROT_EXEC, false, 100, 16, &rw, &rx) == 0);
	cr_expect(rw != rx);
	cr_assert(jit_memory_add(memory, JIT_PROT_READ, false, 100, 16, &rw, &rx) == 0);
	cr_expect(rw != rx);
	cr_assert(jit_memory_add(memory, JIT_PROT_READ | JIT_PROT_WRITE, false, 100, 4096, &rw, &rx) == 0);
	cr_expect(rw == rx && (uintptr_t)rx % 4096 == 0);
	for (int s = 0; s < SHUNT_NR_SEGMENTS; s++)
		cr_expect(stats().nr_blocks[s] == 1);
	cr_expect(jit_memory_finalize(memory, NULL, 0) == 0);
	jit_memory_free(memory);
	cr_assert(shunt_quiesce() == 0);
	for (int s = 0; s < SHUNT_NR_SEGMENTS; s++)
		cr_expect(stats().nr_blocks[s] == 0);
}

Test(jit_memory, what_is_needed_only_for_linking_goes_before_the_rest)
{
	struct jit_memory *memory;
	void *rw, *rx;

	cr_assert(jit_memory_create(NULL, &memory) == 0);
	cr_assert(jit_memory_add(memory, JIT_PROT_READ, true, 100, 16, &rw, &rx) == 0);
	cr_assert(jit_memory_add(memory, JIT_PROT_READ | JIT_PROT_EXEC, false, 100, 16, &rw, &rx) == 0);
	cr_assert(jit_memory_add(memory, JIT_PROT_READ | JIT_PROT_EXEC, true, 100, 16, &rw, &rx) == 0);
	cr_expect(jit_memory_finalize(memory, NULL, 0) == 0);
	jit_memory_drop_transient(memory);
	cr_expect(stats().nr_blocks[SHUNT_SEGMENT_RODATA] == 0);
	cr_expect(stats().nr_blocks[SHUNT_SEGMENT_CODE] == 1);
	jit_memory_abandon(memory);
	cr_expect(stats().nr_blocks[SHUNT_SEGMENT_CODE] == 0);
}

Test(jit_memory, a_refused_segment_leaves_the_others_to_be_abandoned)
{
	struct jit_memory *memory;
	void *rw, *rx;

	cr_assert(jit_memory_create(NULL, &memory) == 0);
	cr_assert(jit_memory_add(memory, JIT_PROT_READ, false, 0, 16, &rw, &rx) == 0);
	cr_expect(rw == NULL && rx == NULL);
	cr_assert(jit_memory_add(memory, JIT_PROT_READ, false, 1, 16, &rw, &rx) == 0);
	cr_expect(jit_memory_add(memory, JIT_PROT_READ | JIT_PROT_WRITE | JIT_PROT_EXEC, false, 1, 16, &rw, &rx) == -EINVAL);
	cr_expect(jit_memory_add(memory, JIT_PROT_READ, false, 1, 65536, &rw, &rx) == -EINVAL);
	cr_expect(stats().nr_blocks[SHUNT_SEGMENT_RODATA] == 1);
	jit_memory_abandon(memory);
	cr_expect(stats().nr_blocks[SHUNT_SEGMENT_RODATA] == 0);
}

Test(jit_symbols, a_front_ends_own_symbol_comes_before_ours)
{
	static char mine;
	const struct shunt_jit_symbol symbols[] = { { "memcpy", &mine }, { SHUNT_STUB_PREFIX "hook", &mine } };
	uint64_t address = 0;

	cr_assert(jit_symbol_resolve("memcpy", symbols, 2, &address) == 0);
	cr_expect(address == (uintptr_t)&mine);
	cr_assert(jit_symbol_resolve(SHUNT_STUB_PREFIX "hook", symbols, 2, &address) == 0);
	cr_expect(address == (uintptr_t)&mine);
	cr_assert(jit_symbol_resolve("memmove", symbols, 2, &address) == 0);
	cr_expect(address == (uintptr_t)memmove);
}

Test(jit_symbols, every_function_of_the_abi_has_an_address)
{
	static const char *const names[] = {
		"shunt_cpu_id", "shunt_percpu_this", "shunt_percpu_of", "shunt_nr_cpus", "shunt_percpu_add64", "shunt_percpu_add32",
		"shunt_percpu_add16", "shunt_percpu_add8",
		"shunt_map_lookup", "shunt_map_lookup_of", "shunt_map_find_percpu", "shunt_map_find_hash", "shunt_map_update", "shunt_map_delete",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		cr_expect(jit_symbol_builtin(names[i]) != NULL, "%s", names[i]);
	cr_expect(jit_symbol_builtin("shunt_map_look") == NULL);
}

Test(jit_symbols, a_stub_is_that_of_the_dispatcher_of_its_name)
{
	struct shunt_dispatcher *dispatcher;
	uint64_t address = 0;

	cr_assert(shunt_dispatcher_create("unit", NULL, &dispatcher) == 0);
	cr_assert(jit_symbol_resolve(SHUNT_STUB_PREFIX "unit", NULL, 0, &address) == 0);
	cr_expect(address == (uintptr_t)shunt_dispatcher_stub(dispatcher));
	cr_assert(shunt_dispatcher_destroy(dispatcher) == 0);
	cr_expect(jit_symbol_resolve(SHUNT_STUB_PREFIX "unit", NULL, 0, &address) == -ENOENT);
	cr_expect(strstr(shunt_error(), "'unit'") != NULL);
}

Test(jit_object, what_is_no_object_is_refused)
{
	static const char text[128] = "#!/bin/sh";
	struct jit_object_symbols symbols;

	cr_expect(jit_object_read(text, sizeof(text), &symbols) == -EINVAL);
	cr_expect(jit_object_read(text, 3, &symbols) == -EINVAL);
}

Test(jit_object, an_object_tells_defined_needed_and_weak_names)
{
	static const char names[] = "\0local\0defined\0needed\0weak\0_GLOBAL_OFFSET_TABLE_";
	static struct {
		Elf64_Ehdr header;
		Elf64_Shdr sections[3];
		Elf64_Sym symbols[6];
		char names[sizeof(names)];
	} object = {
		.header = { .e_ident = ELFMAG "\2\1\1", .e_shoff = sizeof(Elf64_Ehdr), .e_shnum = 3 },
		.sections[1] = { .sh_type = SHT_SYMTAB, .sh_link = 2 },
		.sections[2] = { .sh_type = SHT_STRTAB },
		.symbols = {
			[1] = { .st_name = 1, .st_info = ELF64_ST_INFO(STB_LOCAL, STT_FUNC), .st_shndx = 1 },
			[2] = { .st_name = 7, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), .st_shndx = 1 },
			[3] = { .st_name = 15, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_NOTYPE) },
			[4] = { .st_name = 22, .st_info = ELF64_ST_INFO(STB_WEAK, STT_NOTYPE) },
			[5] = { .st_name = 27, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_NOTYPE) },
		},
	};
	struct jit_object_symbols symbols;

	object.sections[1].sh_offset = (char *)object.symbols - (char *)&object;
	object.sections[1].sh_size = sizeof(object.symbols);
	object.sections[2].sh_offset = (char *)object.names - (char *)&object;
	memcpy(object.names, names, sizeof(names));
	cr_assert(jit_object_read(&object, sizeof(object), &symbols) == 0);
	cr_assert(symbols.nr_defined == 1 && symbols.nr_undefined == 2);
	cr_expect(!strcmp(symbols.defined[0], "defined"));
	cr_expect(!strcmp(symbols.undefined[0].name, "needed") && !symbols.undefined[0].weak);
	cr_expect(!strcmp(symbols.undefined[1].name, "weak") && symbols.undefined[1].weak);
	jit_object_fini(&symbols);
}
