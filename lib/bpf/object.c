/* SPDX-License-Identifier: MIT */
/* The owner of an open object's memory, and the queries about it. */
#include "lib/bpf/object.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <shunt/jit.h>

int bpf_no_memory(const char *object)
{
	return shunt_fail(ENOMEM, "%s: no memory to open the object", object);
}

char *bpf_text(const char *format, ...)
{
	char *text = NULL;
	va_list args;
	int len;

	va_start(args, format);
	len = vasprintf(&text, format, args);
	va_end(args);
	return len < 0 ? NULL : text;
}

int bpf_reason(char **slot, const char *format, ...)
{
	va_list args;
	int len;

	if (*slot)
		return 0;
	va_start(args, format);
	len = vasprintf(slot, format, args);
	va_end(args);
	if (len >= 0)
		return 0;
	*slot = NULL;
	return shunt_fail(ENOMEM, "no memory for a message");
}

static int copy_string(char **slot, const char *string)
{
	*slot = string ? strdup(string) : NULL;
	return string && !*slot ? -ENOMEM : 0;
}

int bpf_object_create(const char *name, const struct shunt_bpf_options *options, struct shunt_bpf_object **out)
{
	struct shunt_bpf_object *object = calloc(1, sizeof(*object));

	if (!object)
		return bpf_no_memory(name);
	if (options)
		object->options = *options;
	if (copy_string(&object->name, name) || copy_string(&object->program, object->options.program) ||
	    copy_string(&object->pipeline, object->options.pipeline)) {
		shunt_bpf_close(object);
		return bpf_no_memory(name);
	}
	object->options.program = object->program;
	object->options.pipeline = object->pipeline;
	object->unit.name = object->name;
	*out = object;
	return 0;
}

static void free_funcs(struct shunt_bpf_object *object)
{
	for (uint32_t i = 0; i < object->unit.nr_funcs; i++) {
		struct bpf_func *func = &object->unit.funcs[i];

		free(func->name);
		free(func->section);
		free(func->insns);
		free(func->refs);
		free(object->func_places[i].unsupported);
	}
	free(object->unit.funcs);
	free(object->func_places);
}

static void free_maps(struct shunt_bpf_object *object)
{
	for (uint32_t i = 0; i < object->unit.nr_maps; i++) {
		shunt_map_put(object->unit.maps[i].map);
		free(object->unit.maps[i].name);
		free(object->map_places[i].unsupported);
	}
	free(object->unit.maps);
	free(object->map_places);
	free(object->values);
}

void shunt_bpf_close(struct shunt_bpf_object *object)
{
	if (!object)
		return;
	/* Code first: what it uses must not start to die before it. */
	bpf_uncompile(object);
	for (uint32_t i = 0; i < object->nr_programs; i++)
		free(object->programs[i].unsupported);
	free(object->programs);
	free_maps(object);
	bpf_free_datas(object);
	free_funcs(object);
	free(object->helpers);
	free(object->program);
	free(object->pipeline);
	free(object->image);
	free(object->name);
	free(object);
}

struct shunt_bpf_program *shunt_bpf_next_program(struct shunt_bpf_object *object, struct shunt_bpf_program *prev)
{
	size_t next = prev ? (size_t)(prev - object->programs) + 1 : 0;

	return next < object->nr_programs ? &object->programs[next] : NULL;
}

struct shunt_bpf_program *shunt_bpf_find_program(struct shunt_bpf_object *object, const char *name)
{
	for (uint32_t i = 0; i < object->nr_programs; i++) {
		if (!strcmp(shunt_bpf_program_name(&object->programs[i]), name))
			return &object->programs[i];
	}
	for (uint32_t i = 0; i < object->nr_programs; i++) {
		if (!strcmp(shunt_bpf_program_section(&object->programs[i]), name))
			return &object->programs[i];
	}
	return NULL;
}

const char *shunt_bpf_program_name(const struct shunt_bpf_program *program)
{
	return program->object->unit.funcs[program->func].name;
}

const char *shunt_bpf_program_section(const struct shunt_bpf_program *program)
{
	return program->object->unit.funcs[program->func].section;
}

size_t shunt_bpf_program_nr_insns(const struct shunt_bpf_program *program)
{
	return program->object->unit.funcs[program->func].nr_insns;
}

const char *shunt_bpf_program_unsupported(const struct shunt_bpf_program *program)
{
	return program->unsupported;
}

size_t shunt_bpf_nr_maps(const struct shunt_bpf_object *object)
{
	size_t nr = 0;

	for (uint32_t i = 0; i < object->unit.nr_maps; i++)
		nr += object->unit.maps[i].map != NULL;
	return nr;
}

struct shunt_map *shunt_bpf_map(struct shunt_bpf_object *object, size_t i)
{
	for (uint32_t at = 0; at < object->unit.nr_maps; at++) {
		if (object->unit.maps[at].map && !i--)
			return object->unit.maps[at].map;
	}
	return NULL;
}

struct shunt_map *shunt_bpf_find_map(struct shunt_bpf_object *object, const char *name)
{
	for (uint32_t i = 0; i < object->unit.nr_maps; i++) {
		if (!strcmp(object->unit.maps[i].name, name))
			return object->unit.maps[i].map;
	}
	return NULL;
}

void *shunt_bpf_section_data(struct shunt_bpf_object *object, const char *section, size_t *len)
{
	for (uint32_t i = 0; i < object->unit.nr_datas; i++) {
		if (!strcmp(object->unit.datas[i].name, section)) {
			*len = object->unit.datas[i].len;
			return object->unit.datas[i].bytes;
		}
	}
	*len = 0;
	return NULL;
}

int shunt_bpf_set_helper(struct shunt_bpf_object *object, unsigned number, shunt_bpf_helper_fn *fn)
{
	struct bpf_host_helper *bigger;

	if (object->compiled)
		return shunt_fail(EBUSY, "%s: helper %u cannot be set after the object was compiled", object->name, number);
	if (!fn || !number || number >= BPF_MAX_HELPER)
		return shunt_fail(EINVAL, "%s: helper %u %s", object->name, number,
				  fn ? "is out of range, numbers are 1 to 4095" : "has no function");
	if (bpf_helper_is_expanded(number))
		return shunt_fail(EINVAL, "%s: helper %u (%s) is expanded in place and cannot be replaced", object->name, number,
				  bpf_helper_name(number));
	for (uint32_t i = 0; i < object->nr_helpers; i++) {
		if (object->helpers[i].number == number) {
			object->helpers[i].fn = fn;
			return 0;
		}
	}
	bigger = realloc(object->helpers, (object->nr_helpers + 1) * sizeof(*bigger));
	if (!bigger)
		return bpf_no_memory(object->name);
	object->helpers = bigger;
	object->helpers[object->nr_helpers++] = (struct bpf_host_helper){ number, fn };
	return 0;
}

const void *shunt_bpf_program_entry(const struct shunt_bpf_program *program)
{
	return program->entry;
}

const char *shunt_bpf_program_ir(const struct shunt_bpf_program *program)
{
	return program->entry ? shunt_jit_module_ir(program->object->module) : NULL;
}

int shunt_bpf_program_code(const struct shunt_bpf_program *program, const void **code, size_t *len)
{
	if (!program->entry)
		return shunt_fail(ENOENT, "%s: program '%s' was not compiled", program->object->name,
				  shunt_bpf_program_name(program));
	return shunt_jit_module_code(program->object->module, shunt_bpf_program_name(program), code, len);
}

const struct shunt_pass_counts *shunt_bpf_counts(const struct shunt_bpf_object *object)
{
	return &object->counts;
}
