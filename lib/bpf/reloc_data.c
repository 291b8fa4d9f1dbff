/* SPDX-License-Identifier: MIT */
/*
 * Pointers in data: initial values of maps (inner maps, programs), and pointers from one data section to another, which get their
 * final values here. Pointers to functions or maps in data have no meaning for a BPF program; the section is then unsupported.
 */
#include "lib/bpf/object.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct reloc_user {
	struct bpf_opening *opening;
	uint32_t section;
	uint32_t data; /* of unit.datas */
};

static uint32_t find_data(const struct shunt_bpf_object *object, uint32_t section)
{
	for (uint32_t i = 0; i < object->unit.nr_datas; i++) {
		if (object->data_places[i].section == section)
			return i;
	}
	return UINT32_MAX;
}

static int on_data_reloc(void *user, const struct bpf_elf_reloc *reloc)
{
	struct reloc_user *at = user;
	struct shunt_bpf_object *object = at->opening->object;
	const struct bpf_elf_symbol *symbol = &at->opening->elf.symbols[reloc->symbol];
	struct bpf_unit_data *data = &object->unit.datas[at->data];
	char **unsupported = &object->data_places[at->data].unsupported;
	uint32_t to = symbol->section == SHN_UNDEF ? UINT32_MAX : find_data(object, symbol->section);
	uint64_t value;

	if (to == UINT32_MAX)
		return bpf_reason(
			unsupported,
			"section '%s' holds the address of '%s' at offset %llu; only addresses of data are supported there",
			data->name, symbol->name, (unsigned long long)reloc->offset);
	if (reloc->type != BPF_RELOC_64_ABS64)
		return bpf_reason(unsupported, "section '%s' has a relocation of the unknown type %u at offset %llu", data->name,
				  reloc->type, (unsigned long long)reloc->offset);
	if (data->len < sizeof(value) || reloc->offset > data->len - sizeof(value))
		return shunt_fail(EINVAL, "%s: the relocation at offset %llu reaches over the end of section '%s'", object->name,
				  (unsigned long long)reloc->offset, data->name);
	memcpy(&value, (uint8_t *)data->bytes + reloc->offset, sizeof(value));
	value += symbol->value;
	if (value > object->unit.datas[to].len)
		return shunt_fail(EINVAL, "%s: section '%s' points to offset %llu of the %zu bytes of section '%s'", object->name,
				  data->name, (unsigned long long)value, object->unit.datas[to].len, object->unit.datas[to].name);
	value += (uintptr_t)object->unit.datas[to].bytes;
	memcpy((uint8_t *)data->bytes + reloc->offset, &value, sizeof(value));
	return 0;
}

static uint32_t map_around(const struct shunt_bpf_object *object, uint32_t section, uint64_t offset)
{
	for (uint32_t i = 0; i < object->unit.nr_maps; i++) {
		const struct bpf_map_place *place = &object->map_places[i];

		if (place->section == section && offset >= place->offset && offset - place->offset < place->len)
			return i;
	}
	return UINT32_MAX;
}

static int add_value(struct shunt_bpf_object *object, const struct bpf_map_value *value)
{
	if (object->nr_values == BPF_MAX_VALUES)
		return shunt_fail(EFBIG, "%s: maps list more than %u initial values", object->name, BPF_MAX_VALUES);
	if (!object->values) {
		object->values = malloc(BPF_MAX_VALUES * sizeof(*object->values));
		if (!object->values)
			return bpf_no_memory(object->name);
	}
	object->values[object->nr_values++] = *value;
	return 0;
}

static int on_map_reloc(void *user, const struct bpf_elf_reloc *reloc)
{
	struct reloc_user *at = user;
	struct shunt_bpf_object *object = at->opening->object;
	const struct bpf_elf_symbol *symbol = &at->opening->elf.symbols[reloc->symbol];
	struct bpf_map_value value = { .map = map_around(object, at->section, reloc->offset) };
	const struct bpf_map_place *place;
	const char *name;
	uint64_t into;

	if (value.map == UINT32_MAX)
		return shunt_fail(EINVAL, "%s: the relocation at offset %llu of section '.maps' is in no map", object->name,
				  (unsigned long long)reloc->offset);
	place = &object->map_places[value.map];
	name = object->unit.maps[value.map].name;
	into = reloc->offset - place->offset;
	if (!place->has_values || into < place->values_offset || (into - place->values_offset) % 8)
		return shunt_fail(EINVAL, "%s: map '%s' has a relocation %llu bytes into its definition, where no initial value is",
				  object->name, name, (unsigned long long)into);
	if (place->shape.key_size != 4)
		return shunt_fail(EINVAL, "%s: map '%s' lists initial values, so its key must have 4 bytes, not %u", object->name,
				  name, place->shape.key_size);
	value.element = (uint32_t)((into - place->values_offset) / 8);
	value.is_func = place->shape.type == SHUNT_MAP_PROG_ARRAY;
	if (symbol->section == SHN_UNDEF || symbol->section >= at->opening->elf.nr_sections)
		value.target = UINT32_MAX;
	else if (value.is_func)
		value.target = symbol->value % sizeof(struct bpf_insn)
				       ? UINT32_MAX
				       : bpf_find_func(object, symbol->section, symbol->value / sizeof(struct bpf_insn), true);
	else
		value.target = place->has_inner ? bpf_find_map(object, symbol->section, symbol->value) : UINT32_MAX;
	if (value.target == UINT32_MAX || (value.is_func && !object->unit.funcs[value.target].is_program))
		return shunt_fail(EINVAL, "%s: map '%s' lists '%s' as element %u, which is no %s", object->name, name, symbol->name,
				  value.element, value.is_func ? "program" : "map that it could hold");
	if (!value.is_func && object->map_places[value.target].has_inner)
		return shunt_fail(EINVAL, "%s: map '%s' lists '%s', which holds maps itself", object->name, name, symbol->name);
	return add_value(object, &value);
}

static int by_map(const void *left, const void *right)
{
	const struct bpf_map_value *a = left, *b = right;

	if (a->map != b->map)
		return a->map < b->map ? -1 : 1;
	return a->element < b->element ? -1 : a->element > b->element;
}

static void index_values(struct shunt_bpf_object *object)
{
	if (object->nr_values)
		qsort(object->values, object->nr_values, sizeof(*object->values), by_map);
	for (uint32_t i = 0; i < object->nr_values; i++) {
		struct bpf_map_place *place = &object->map_places[object->values[i].map];

		if (!place->nr_values++)
			place->first_value = i;
	}
}

int bpf_open_data_relocs(struct bpf_opening *opening)
{
	struct shunt_bpf_object *object = opening->object;
	struct reloc_user user = { .opening = opening, .section = bpf_elf_find(&opening->elf, ".maps") };
	int err = 0;

	if (user.section)
		err = bpf_elf_each_reloc(&opening->elf, user.section, on_map_reloc, &user);
	index_values(object);
	for (user.data = 0; user.data < object->unit.nr_datas && !err; user.data++) {
		user.section = object->data_places[user.data].section;
		err = bpf_elf_each_reloc(&opening->elf, user.section, on_data_reloc, &user);
	}
	return err;
}
