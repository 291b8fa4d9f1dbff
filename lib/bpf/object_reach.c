/* SPDX-License-Identifier: MIT */
/* What each program needs, and which programs cannot run because something that they need is not supported. */
#include "lib/bpf/object.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int bpf_reached_init(struct bpf_reached *reached, const struct shunt_bpf_object *object)
{
	const struct bpf_unit *unit = &object->unit;
	bool *flags = calloc((size_t)unit->nr_funcs + unit->nr_maps + unit->nr_datas + 1, sizeof(*flags));

	reached->stack = malloc((unit->nr_funcs + 1) * sizeof(*reached->stack));
	if (!flags || !reached->stack) {
		free(flags);
		free(reached->stack);
		return bpf_no_memory(object->name);
	}
	reached->funcs = flags;
	reached->maps = flags + unit->nr_funcs;
	reached->datas = reached->maps + unit->nr_maps;
	return 0;
}

void bpf_reached_fini(struct bpf_reached *reached)
{
	free(reached->funcs);
	free(reached->stack);
}

/* Each function is pushed once, so the stack of nr_funcs entries suffices. */
static void push(struct bpf_reached *reached, uint32_t *depth, uint32_t func)
{
	if (reached->funcs[func])
		return;
	reached->funcs[func] = true;
	reached->stack[(*depth)++] = func;
}

static void reach_map(const struct shunt_bpf_object *object, struct bpf_reached *reached, uint32_t *depth, uint32_t map)
{
	const struct bpf_map_place *place = &object->map_places[map];

	/* Maps nest two deep at most: a map of maps has initial values that are maps without such. */
	if (reached->maps[map])
		return;
	reached->maps[map] = true;
	for (uint32_t i = place->first_value; i < place->first_value + place->nr_values; i++) {
		const struct bpf_map_value *value = &object->values[i];

		if (value->is_func)
			push(reached, depth, value->target);
		else if (!reached->maps[value->target])
			reach_map(object, reached, depth, value->target);
	}
}

void bpf_reach(const struct shunt_bpf_object *object, uint32_t func, struct bpf_reached *reached)
{
	uint32_t depth = 0;

	push(reached, &depth, func);
	while (depth) {
		const struct bpf_func *at = &object->unit.funcs[reached->stack[--depth]];

		for (uint32_t i = 0; i < at->nr_refs; i++) {
			const struct bpf_ref *ref = &at->refs[i];

			switch (ref->kind) {
			case BPF_REF_MAP:
			case BPF_REF_MAP_VALUE:
				reach_map(object, reached, &depth, ref->index);
				break;
			case BPF_REF_DATA:
				reached->datas[ref->index] = true;
				break;
			case BPF_REF_FUNC:
			case BPF_REF_CALL:
				push(reached, &depth, ref->index);
				break;
			}
		}
	}
}

/* The first reason against anything reached; its own goes before others'. */
static int find_reason(struct shunt_bpf_object *object, uint32_t func, const struct bpf_reached *reached, char **reason)
{
	const struct bpf_unit *unit = &object->unit;
	int err = 0;

	if (object->func_places[func].unsupported)
		return bpf_reason(reason, "%s", object->func_places[func].unsupported);
	for (uint32_t i = 0; i < unit->nr_funcs && !err && !*reason; i++) {
		if (reached->funcs[i] && object->func_places[i].unsupported)
			err = bpf_reason(reason, "function '%s': %s", unit->funcs[i].name, object->func_places[i].unsupported);
	}
	for (uint32_t i = 0; i < unit->nr_maps && !err && !*reason; i++) {
		if (reached->maps[i] && object->map_places[i].unsupported)
			err = bpf_reason(reason, "%s", object->map_places[i].unsupported);
	}
	for (uint32_t i = 0; i < unit->nr_datas && !err && !*reason; i++) {
		if (reached->datas[i] && object->data_places[i].unsupported)
			err = bpf_reason(reason, "%s", object->data_places[i].unsupported);
	}
	return err;
}

static int by_name(const void *left, const void *right)
{
	return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* Programs are found by name. */
static int check_names(const struct shunt_bpf_object *object)
{
	const char **names = calloc(object->nr_programs + 1, sizeof(*names));
	int err = 0;

	if (!names)
		return bpf_no_memory(object->name);
	for (uint32_t i = 0; i < object->nr_programs; i++)
		names[i] = object->unit.funcs[object->programs[i].func].name;
	qsort(names, object->nr_programs, sizeof(*names), by_name);
	for (uint32_t i = 1; i < object->nr_programs && !err; i++) {
		if (!strcmp(names[i - 1], names[i]))
			err = shunt_fail(EINVAL, "%s: two programs are named '%s'", object->name, names[i]);
	}
	free(names);
	return err;
}

int bpf_list_programs(struct shunt_bpf_object *object)
{
	const struct bpf_unit *unit = &object->unit;
	struct bpf_reached reached;
	int err;

	object->programs = calloc(unit->nr_funcs + 1, sizeof(*object->programs));
	if (!object->programs)
		return bpf_no_memory(object->name);
	for (uint32_t i = 0; i < unit->nr_funcs; i++) {
		if (unit->funcs[i].is_program)
			object->programs[object->nr_programs++] = (struct shunt_bpf_program){ .object = object, .func = i };
	}
	if (!object->nr_programs)
		return shunt_fail(EINVAL, "%s: holds no program; put a global function into a section like 'xdp' (SEC(\"xdp\"))",
				  object->name);
	err = check_names(object);
	if (!err)
		err = bpf_reached_init(&reached, object);
	if (err)
		return err;
	for (uint32_t i = 0; i < object->nr_programs && !err; i++) {
		struct shunt_bpf_program *program = &object->programs[i];

		memset(reached.funcs, 0, unit->nr_funcs + unit->nr_maps + unit->nr_datas);
		bpf_reach(object, program->func, &reached);
		err = find_reason(object, program->func, &reached, &program->unsupported);
	}
	bpf_reached_fini(&reached);
	return err;
}
