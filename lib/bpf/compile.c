/* SPDX-License-Identifier: MIT */
/*
 * From bytecode to code: check what the chosen programs reach, translate it to one module, hand that to the JIT with the addresses
 * of maps, data and helpers. A failure leaves the object as it was, so that a host may set a missing helper and try again.
 */
#include "lib/bpf/object.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <llvm-c/Core.h>
#include <shunt/jit.h>
#include <shunt/percpu.h>
#include <shunt/reader.h>
#include "lib/jit/emit.h"

/* Helpers of the host go by names that no pass knows: a pass would put the built-in meaning in their place. */
#define HOST_HELPER_PREFIX "bpf_host_helper."
#define SYMBOL_MAX 48

struct link_table {
	struct shunt_jit_symbol *symbols;
	char **names; /* of symbols */
	size_t nr, capacity;
	struct shunt_pass_map *maps;
	size_t nr_maps;
	struct shunt_pass_map *inners; /* of maps, where they hold maps: inners[i] is maps[i]'s */
};

static shunt_bpf_helper_fn *host_helper(const struct shunt_bpf_object *object, uint32_t number)
{
	for (uint32_t i = 0; i < object->nr_helpers; i++) {
		if (object->helpers[i].number == number)
			return object->helpers[i].fn;
	}
	return NULL;
}

static bool is_known_helper(void *user, uint32_t number)
{
	return host_helper(user, number) || bpf_helper_is_expanded(number) || bpf_helper_builtin(number);
}

static bool is_chosen(const struct shunt_bpf_object *object, const struct shunt_bpf_program *program)
{
	return !program->unsupported && (!object->program || !strcmp(object->program, shunt_bpf_program_name(program)));
}

/* What the programs to compile reach; -ENOTSUP or -ENOENT when there is none. */
static int choose(struct shunt_bpf_object *object, struct bpf_reached *reached)
{
	const struct shunt_bpf_program *refused = NULL;
	bool any = false;

	for (uint32_t i = 0; i < object->nr_programs; i++) {
		const struct shunt_bpf_program *program = &object->programs[i];

		if (is_chosen(object, program)) {
			bpf_reach(object, program->func, reached);
			any = true;
		} else if (!refused && program->unsupported &&
			   (!object->program || !strcmp(object->program, shunt_bpf_program_name(program)))) {
			refused = program;
		}
	}
	if (any)
		return 0;
	if (refused)
		return shunt_fail(ENOTSUP, "%s: program '%s' cannot run here: %s", object->name, shunt_bpf_program_name(refused),
				  refused->unsupported);
	return shunt_fail(ENOENT, "%s: holds no program '%s'; its first one is '%s'", object->name, object->program,
			  shunt_bpf_program_name(&object->programs[0]));
}

static int check(const struct shunt_bpf_object *object, const struct bpf_reached *reached)
{
	for (uint32_t i = 0; i < object->unit.nr_funcs; i++) {
		int err = 0;

		if (reached->funcs[i])
			err = bpf_check(&object->unit, &object->unit.funcs[i], is_known_helper, (void *)object);
		if (err)
			return err;
	}
	return 0;
}

/* What is to be compiled, and may be. */
static int choose_checked(struct shunt_bpf_object *object, struct bpf_reached *reached)
{
	int err = choose(object, reached);

	return err ? err : check(object, reached);
}

static int add_symbol(struct link_table *table, const void *address, const char *prefix, const char *name)
{
	if (table->nr == table->capacity) {
		size_t capacity = table->capacity ? table->capacity * 2 : 32;
		struct shunt_jit_symbol *symbols = realloc(table->symbols, capacity * sizeof(*symbols));
		char **names;

		if (!symbols)
			return -ENOMEM;
		table->symbols = symbols;
		names = realloc(table->names, capacity * sizeof(*names));
		if (!names)
			return -ENOMEM;
		table->names = names;
		table->capacity = capacity;
	}
	table->names[table->nr] = bpf_text("%s%s", prefix, name);
	if (!table->names[table->nr])
		return -ENOMEM;
	table->symbols[table->nr] = (struct shunt_jit_symbol){ table->names[table->nr], address };
	table->nr++;
	return 0;
}

/* What every map that is ever put into a map of maps is like: the outer map takes no other. */
static const struct shunt_pass_map *describe_inner(struct shunt_pass_map *inner, const struct bpf_map_place *place)
{
	if (!place->has_inner)
		return NULL;
	inner->type = place->inner.type;
	inner->key_size = place->inner.key_size;
	inner->value_size = place->inner.value_size;
	inner->max_entries = place->inner.max_entries;
	return inner;
}

static int add_map(struct link_table *table, const struct bpf_unit_map *map, const struct bpf_map_place *place)
{
	const struct shunt_map_abi *abi = shunt_map_abi(map->map);
	int err = add_symbol(table, map->map, "map.", map->name);

	if (err)
		return err;
	table->maps[table->nr_maps] = (struct shunt_pass_map){
		.symbol = table->names[table->nr - 1],
		.address = (uintptr_t)map->map,
		.type = abi->type,
		.key_size = abi->key_size,
		.value_size = abi->value_size,
		.max_entries = abi->max_entries,
		.stride = abi->stride,
		.index_mask = abi->index_mask,
		.values = (uintptr_t)abi->values,
		.inner = describe_inner(&table->inners[table->nr_maps], place),
	};
	table->nr_maps++;
	return 0;
}

/* The helpers that the module declares, from its declarations. */
static int add_helpers(struct link_table *table, const struct shunt_bpf_object *object, LLVMModuleRef module)
{
	LLVMValueRef function = LLVMGetFirstFunction(module);
	int err = 0;

	while (function && !err) {
		LLVMValueRef next = LLVMGetNextFunction(function);
		const char *name = LLVMGetValueName2(function, &(size_t){ 0 });
		shunt_bpf_helper_fn *fn;
		uint32_t number;

		if (LLVMIsDeclaration(function) && sscanf(name, SHUNT_HELPER_PREFIX "%u", &number) == 1) {
			char symbol[SYMBOL_MAX];

			fn = host_helper(object, number);
			snprintf(symbol, sizeof(symbol), "%s%04u", fn ? HOST_HELPER_PREFIX : SHUNT_HELPER_PREFIX, number);
			if (fn)
				LLVMSetValueName2(function, symbol, strlen(symbol));
			else
				fn = bpf_helper_builtin(number);
			if (fn)
				err = add_symbol(table, (const void *)(uintptr_t)fn, "", symbol);
		}
		function = next;
	}
	return err;
}

struct helper_search {
	struct link_table *table;
	const struct shunt_bpf_object *object;
};

/* A name that compiled code leaves undefined. */
static int add_named_helper(void *user, const char *name)
{
	const struct helper_search *search = user;
	shunt_bpf_helper_fn *fn = NULL;
	struct shunt_cpu_index index;
	uint32_t number;

	if (!strcmp(name, "__rseq_offset")) {
		shunt_cpu_index(&index);
		if (index.source != SHUNT_CPU_RSEQ)
			return shunt_fail(ENOTSUP, "%s: the code finds its CPU through rseq, which this process does not have: compile it with "
					  "shunt compile --cpu call", search->object->name);
	}
	if (sscanf(name, SHUNT_HELPER_PREFIX "%u", &number) == 1) {
		fn = host_helper(search->object, number);
		if (!fn)
			fn = bpf_helper_builtin(number);
	}
	return fn ? add_symbol(search->table, (const void *)(uintptr_t)fn, "", name) : 0;
}

/* Maps and data, by the names that the module has for them. */
static int fill_table(struct link_table *table, const struct shunt_bpf_object *object, const struct bpf_reached *reached)
{
	int err = 0;

	table->maps = calloc(object->unit.nr_maps + 1, sizeof(*table->maps));
	table->inners = calloc(object->unit.nr_maps + 1, sizeof(*table->inners));
	if (!table->maps || !table->inners)
		return -ENOMEM;
	/* Pass maps point to the names, which stay where they are when the table grows. */
	for (uint32_t i = 0; i < object->unit.nr_maps && !err; i++) {
		if (reached->maps[i])
			err = add_map(table, &object->unit.maps[i], &object->map_places[i]);
	}
	for (uint32_t i = 0; i < object->unit.nr_datas && !err; i++) {
		if (reached->datas[i])
			err = add_symbol(table, object->unit.datas[i].bytes, "data", object->unit.datas[i].name);
	}
	return err;
}

static void free_table(struct link_table *table)
{
	for (size_t i = 0; i < table->nr; i++)
		free(table->names[i]);
	free(table->names);
	free(table->symbols);
	free(table->maps);
	free(table->inners);
}

/* Code that shunt_bpf_emit made: its names get this process's addresses. */
static int load_code(struct shunt_bpf_object *object, struct shunt_jit *jit, const struct bpf_reached *reached)
{
	struct shunt_jit_module_options options = { 0 };
	struct link_table table = { 0 };
	struct helper_search search = { &table, object };
	int err = fill_table(&table, object, reached);

	if (!err)
		err = jit_each_undefined(object->options.code, object->options.code_len, add_named_helper, &search);
	options.symbols = table.symbols;
	options.nr_symbols = table.nr;
	if (err == -ENOMEM)
		err = bpf_no_memory(object->name);
	else if (!err)
		err = jit_load_object(jit, object->options.code, object->options.code_len, &options, &object->module);
	free_table(&table);
	return err;
}

int shunt_bpf_emit(struct shunt_bpf_object *object, const char *target, enum shunt_pass_cpu cpu, void **bytes, size_t *len)
{
	struct shunt_pass_options passes = { .cpu = cpu,
					     .rmw = object->options.rmw ? object->options.rmw : SHUNT_PASS_RMW_EXACT,
					     .remark = object->options.remark,
					     .remark_user = object->options.remark_user };
	struct shunt_jit_module_options options = { .pipeline = object->pipeline, .passes = &passes };
	struct shunt_jit *emitter = NULL;
	struct link_table table = { 0 };
	struct bpf_reached reached;
	LLVMContextRef context;
	LLVMModuleRef module;
	LLVMMemoryBufferRef buffer = NULL;
	int err;

	if (cpu != SHUNT_PASS_CPU_CALL && cpu != SHUNT_PASS_CPU_RSEQ_AOT)
		return shunt_fail(EINVAL, "%s: code for another process finds the CPU by a call or through glibc's rseq only", object->name);
	err = bpf_reached_init(&reached, object);
	if (err)
		return err;
	err = choose_checked(object, &reached);
	if (!err)
		err = jit_emitter_create(target, 2, &emitter);
	if (err)
		goto out;
	context = LLVMContextCreate();
	err = bpf_translate(&object->unit, reached.funcs, context, shunt_jit_triple(emitter), shunt_jit_data_layout(emitter), &module);
	if (err) {
		LLVMContextDispose(context);
		goto out;
	}
	err = fill_table(&table, object, &reached);
	if (err) {
		LLVMDisposeModule(module);
		LLVMContextDispose(context);
		err = bpf_no_memory(object->name);
		goto out;
	}
	/* Where the maps lie is known when the code is loaded. */
	for (size_t i = 0; i < table.nr_maps; i++)
		table.maps[i].address = table.maps[i].values = 0;
	passes.maps = table.maps;
	passes.nr_maps = table.nr_maps;
	err = jit_emitter_emit(emitter, context, module, &options, &object->counts, &buffer);
	if (err)
		goto out;
	*len = LLVMGetBufferSize(buffer);
	*bytes = malloc(*len);
	if (*bytes)
		memcpy(*bytes, LLVMGetBufferStart(buffer), *len);
	else
		err = bpf_no_memory(object->name);
	LLVMDisposeMemoryBuffer(buffer);
out:
	free_table(&table);
	jit_emitter_destroy(emitter);
	bpf_reached_fini(&reached);
	return err;
}

static int load(struct shunt_bpf_object *object, struct shunt_jit *jit, const struct bpf_reached *reached)
{
	struct shunt_pass_options passes = { .nr_cpus = shunt_nr_cpus(),
					     .rmw = object->options.rmw ? object->options.rmw : SHUNT_PASS_RMW_EXACT,
					     .remark = object->options.remark,
					     .remark_user = object->options.remark_user };
	struct shunt_jit_module_options options = { .pipeline = object->pipeline, .passes = &passes };
	struct link_table table = { 0 };
	LLVMContextRef context = LLVMContextCreate();
	LLVMModuleRef module;
	int err;

	if (object->options.code) {
		LLVMContextDispose(context);
		return load_code(object, jit, reached);
	}
	err = bpf_translate(&object->unit, reached->funcs, context, shunt_jit_triple(jit), shunt_jit_data_layout(jit), &module);
	if (err) {
		LLVMContextDispose(context);
		return err;
	}
	err = fill_table(&table, object, reached);
	if (!err)
		err = add_helpers(&table, object, module);
	if (err) {
		LLVMDisposeModule(module);
		LLVMContextDispose(context);
		err = bpf_no_memory(object->name);
	} else {
		passes.maps = table.maps;
		passes.nr_maps = table.nr_maps;
		options.symbols = table.symbols;
		options.nr_symbols = table.nr;
		/* Takes the context, on failure too. */
		err = shunt_jit_add(jit, context, module, &options, &object->module);
	}
	free_table(&table);
	return err;
}

/* Programs that a map lists were compiled as well and have entries, whether chosen or not. */
static int find_entries(struct shunt_bpf_object *object, const struct bpf_reached *reached)
{
	int err = 0;

	shunt_read_begin();
	for (uint32_t i = 0; i < object->nr_programs && !err; i++) {
		struct shunt_bpf_program *program = &object->programs[i];

		if (!reached->funcs[program->func])
			continue;
		program->entry = shunt_jit_lookup(object->module, shunt_bpf_program_name(program));
		if (!program->entry)
			err = shunt_fail(EINVAL, "%s: program '%s' is missing in its compiled module", object->name,
					 shunt_bpf_program_name(program));
	}
	shunt_read_end();
	return err;
}

static int compile(struct shunt_bpf_object *object, const struct bpf_reached *reached)
{
	const struct shunt_jit_options jit_options = { .opt_level = 2, .keep_ir = object->options.keep_ir };
	struct shunt_jit *jit = object->options.jit;
	int err;

	if (!jit && !object->own_jit) {
		err = shunt_jit_create(&jit_options, &object->own_jit);
		if (err)
			return err;
	}
	if (!jit)
		jit = object->own_jit;
	err = load(object, jit, reached);
	if (err)
		return err;
	/* From here on threads may run it, once they know it: everything of the object dies by grace periods. */
	object->compiled = true;
	object->counts = *shunt_jit_module_counts(object->module);
	err = find_entries(object, reached);
	if (!err)
		err = bpf_install_programs(object);
	if (err)
		bpf_uncompile(object);
	return err;
}

int shunt_bpf_compile(struct shunt_bpf_object *object)
{
	struct bpf_reached reached;
	int err;

	if (object->compiled)
		return shunt_fail(EALREADY, "%s: the object is compiled already", object->name);
	err = bpf_reached_init(&reached, object);
	if (err)
		return err;
	err = choose_checked(object, &reached);
	if (!err)
		err = compile(object, &reached);
	bpf_reached_fini(&reached);
	return err;
}

void bpf_uncompile(struct shunt_bpf_object *object)
{
	bpf_uninstall_programs(object);
	for (uint32_t i = 0; i < object->nr_programs; i++)
		object->programs[i].entry = NULL;
	if (object->module)
		shunt_jit_remove(object->module);
	object->module = NULL;
	shunt_jit_destroy(object->own_jit);
	object->own_jit = NULL;
}
