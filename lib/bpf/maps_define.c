/* SPDX-License-Identifier: MIT */
/*
 * Map definitions: BTF-described ones in section .maps (__uint, __type, __array), and the older struct bpf_map_def in section maps.
 * A map's variable is found by its symbol: objects that no linker touched have BTF sections of size 0 with all offsets 0.
 */
#include "lib/bpf/object.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Flags that change where or for whom the kernel keeps a map, not what programs see: NO_COMMON_LRU, NUMA_NODE, RDONLY and WRONLY
 * (for system calls), ZERO_SEED, MMAPABLE, PRESERVE_ELEMS, INNER_MAP. */
#define MEANINGLESS_FLAGS ((1u << 1) | (1u << 2) | (1u << 3) | (1u << 4) | (1u << 6) | (1u << 10) | (1u << 11) | (1u << 12))

#define PINNING_NONE 0u
#define PINNING_BY_NAME 1u

struct legacy_def {
	uint32_t type, key_size, value_size, max_entries, flags;
};

struct symbol_at {
	const struct bpf_elf_symbol *symbol;
};

static int by_offset(const void *left, const void *right)
{
	const struct bpf_elf_symbol *a = ((const struct symbol_at *)left)->symbol, *b = ((const struct symbol_at *)right)->symbol;

	if (a->value != b->value)
		return a->value < b->value ? -1 : 1;
	return a < b ? -1 : a > b;
}

/* __uint(name, n) is a pointer to an array of n. */
static bool read_uint(const struct bpf_btf *btf, const struct btf_member *member, uint32_t *value)
{
	struct bpf_btf_type pointer, array;

	if (!bpf_btf_skip(btf, member->type, &pointer) || pointer.kind != BTF_KIND_PTR)
		return false;
	if (!bpf_btf_type(btf, pointer.size_or_type, &array) || array.kind != BTF_KIND_ARRAY)
		return false;
	*value = bpf_btf_array(&array).nelems;
	return true;
}

/* __type(name, T) is a pointer to T. */
static bool read_type_size(const struct bpf_btf *btf, const struct btf_member *member, uint32_t *size)
{
	struct bpf_btf_type pointer;

	if (!bpf_btf_skip(btf, member->type, &pointer) || pointer.kind != BTF_KIND_PTR)
		return false;
	return bpf_btf_size(btf, pointer.size_or_type, size);
}

/* A size that is given twice must be the same. */
static int set_size(const char *object, const char *map, const char *what, uint32_t *slot, uint32_t size)
{
	if (*slot && *slot != size)
		return shunt_fail(EINVAL, "%s: map '%s': %s is given as %u and as %u", object, map, what, *slot, size);
	*slot = size;
	return 0;
}

/* __array(values, T) is an array of pointers to T: T is a map definition, or a function (PROG_ARRAY). */
static bool read_values(const struct bpf_btf *btf, const struct btf_member *member, struct bpf_btf_type *element)
{
	struct bpf_btf_type array, pointer;

	if (!bpf_btf_skip(btf, member->type, &array) || array.kind != BTF_KIND_ARRAY)
		return false;
	if (!bpf_btf_skip(btf, bpf_btf_array(&array).type, &pointer) || pointer.kind != BTF_KIND_PTR)
		return false;
	return bpf_btf_skip(btf, pointer.size_or_type, element);
}

struct definition {
	const struct bpf_btf *btf;
	const char *object, *map;
	struct bpf_map_place *place;
	struct bpf_map_shape *shape; /* place->shape, or place->inner for the template of inner maps */
	bool inner;
};

static int read_fields(const struct definition *def, const struct bpf_btf_type *type);

static int read_values_field(const struct definition *def, const struct btf_member *member)
{
	struct bpf_map_place *place = def->place;
	struct definition inner = *def;
	struct bpf_btf_type element;
	int err;

	if (def->inner)
		return bpf_reason(&place->unsupported, "map '%s' holds maps that hold maps, which the kernel refuses too",
				  def->map);
	if (!read_values(def->btf, member, &element))
		return shunt_fail(EINVAL, "%s: map '%s': 'values' is not an array of pointers; use __array", def->object, def->map);
	place->has_values = true;
	place->values_offset = member->offset / 8;
	err = set_size(def->object, def->map, "value_size", &def->shape->value_size, 4);
	if (err || element.kind != BTF_KIND_STRUCT)
		return err;
	place->has_inner = true;
	inner.inner = true;
	inner.shape = &place->inner;
	return read_fields(&inner, &element);
}

static int read_field(const struct definition *def, const struct btf_member *member, const char *name)
{
	static const char *const ignored[] = { "numa_node", "map_extra" };
	struct bpf_map_shape *shape = def->shape;
	uint32_t number;

	if (!strcmp(name, "values"))
		return read_values_field(def, member);
	if (!strcmp(name, "key") || !strcmp(name, "value")) {
		bool key = name[0] == 'k';

		if (!read_type_size(def->btf, member, &number))
			return shunt_fail(EINVAL, "%s: map '%s': '%s' is not a type with a size; use __type", def->object, def->map,
					  name);
		return set_size(def->object, def->map, key ? "key_size" : "value_size", key ? &shape->key_size : &shape->value_size,
				number);
	}
	if (!read_uint(def->btf, member, &number))
		return shunt_fail(EINVAL, "%s: map '%s': '%s' is not a number; use __uint", def->object, def->map, name);
	if (!strcmp(name, "key_size"))
		return set_size(def->object, def->map, name, &shape->key_size, number);
	if (!strcmp(name, "value_size"))
		return set_size(def->object, def->map, name, &shape->value_size, number);
	if (!strcmp(name, "type")) {
		shape->type = number;
	} else if (!strcmp(name, "max_entries")) {
		shape->max_entries = number;
	} else if (!strcmp(name, "map_flags")) {
		shape->flags = number;
	} else if (!strcmp(name, "pinning")) {
		if (number != PINNING_NONE && number != PINNING_BY_NAME)
			return shunt_fail(EINVAL, "%s: map '%s': pinning %u is neither none (0) nor by name (1)", def->object,
					  def->map, number);
		if (!def->inner)
			def->place->pinned = number == PINNING_BY_NAME;
	} else {
		for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++) {
			if (!strcmp(name, ignored[i]))
				return 0;
		}
		return bpf_reason(&def->place->unsupported, "map '%s' has the unknown field '%s'", def->map, name);
	}
	return 0;
}

static int read_fields(const struct definition *def, const struct bpf_btf_type *type)
{
	for (uint32_t i = 0; i < type->vlen; i++) {
		struct btf_member member = bpf_btf_member(type, i);
		const char *name = bpf_btf_string(def->btf, member.name_off);
		int err;

		if (!name)
			return shunt_fail(EINVAL, "%s: map '%s': the name of field %u lies outside the BTF strings", def->object,
					  def->map, i);
		err = read_field(def, &member, name);
		if (err)
			return err;
	}
	return 0;
}

static struct bpf_map_shape shape_of(const struct shunt_pass_map *map)
{
	return (struct bpf_map_shape){ .type = map->type, .key_size = map->key_size, .value_size = map->value_size, .max_entries = map->max_entries };
}

/* From the caller's list, where the file says nothing. */
static bool define_listed_map(const struct shunt_bpf_options *options, const char *name, struct bpf_map_place *place)
{
	for (size_t i = 0; i < options->nr_maps; i++) {
		const struct shunt_pass_map *map = &options->maps[i];

		if (!map->symbol || strcmp(map->symbol, name))
			continue;
		place->shape = shape_of(map);
		place->has_inner = map->inner;
		if (map->inner)
			place->inner = shape_of(map->inner);
		return true;
	}
	return false;
}

static int define_btf_map(struct bpf_opening *opening, const struct bpf_elf_symbol *symbol, struct bpf_map_place *place)
{
	struct definition def = { &opening->btf, opening->object->name, symbol->name, place, &place->shape, false };
	struct bpf_btf_type var, type;

	if (!bpf_btf_find(&opening->btf, ".maps", symbol->name, &var)) {
		if (define_listed_map(&opening->object->options, symbol->name, place))
			return 0;
		return shunt_fail(EINVAL, "%s: map '%s' of section '.maps' is not described by BTF; compile with -g, or describe it with --map",
				  opening->object->name, symbol->name);
	}
	if (!bpf_btf_skip(&opening->btf, var.size_or_type, &type) || type.kind != BTF_KIND_STRUCT)
		return shunt_fail(EINVAL, "%s: map '%s' of section '.maps' is not a struct", opening->object->name, symbol->name);
	return read_fields(&def, &type);
}

static int define_legacy_map(struct bpf_opening *opening, const struct bpf_elf_symbol *symbol, struct bpf_map_place *place)
{
	const struct bpf_elf_section *section = &opening->elf.sections[symbol->section];
	struct legacy_def def;

	if (!section->bytes || place->len < sizeof(def))
		return shunt_fail(EINVAL, "%s: map '%s' of section 'maps' has %llu bytes, struct bpf_map_def has %zu",
				  opening->object->name, symbol->name, (unsigned long long)place->len, sizeof(def));
	memcpy(&def, section->bytes + symbol->value, sizeof(def));
	for (uint64_t i = sizeof(def); i < place->len; i++) {
		if (section->bytes[symbol->value + i])
			return bpf_reason(&place->unsupported,
					  "map '%s' uses fields beyond struct bpf_map_def; define it in section '.maps'",
					  symbol->name);
	}
	place->shape = (struct bpf_map_shape){ def.type, def.key_size, def.value_size, def.max_entries, def.flags };
	return 0;
}

static int add_map(struct bpf_opening *opening, const struct bpf_elf_symbol *symbol, uint64_t len, bool legacy)
{
	struct shunt_bpf_object *object = opening->object;
	struct bpf_map_place *place = &object->map_places[object->unit.nr_maps];
	struct bpf_unit_map *map = &object->unit.maps[object->unit.nr_maps];
	int err;

	if (!*symbol->name)
		return shunt_fail(EINVAL, "%s: a map at offset %llu of section '%s' has no name", object->name,
				  (unsigned long long)symbol->value, opening->elf.sections[symbol->section].name);
	for (uint32_t i = 0; i < object->unit.nr_maps; i++) {
		if (!strcmp(object->unit.maps[i].name, symbol->name))
			return shunt_fail(EINVAL, "%s: two maps are named '%s'", object->name, symbol->name);
	}
	map->name = strdup(symbol->name);
	if (!map->name)
		return bpf_no_memory(object->name);
	object->unit.nr_maps++;
	place->section = symbol->section;
	place->offset = symbol->value;
	place->len = len;
	err = legacy ? define_legacy_map(opening, symbol, place) : define_btf_map(opening, symbol, place);
	/* Without a number it has one entry per CPU, as with libbpf. */
	if (place->shape.type == SHUNT_MAP_PERF_EVENT_ARRAY && !place->shape.max_entries)
		place->shape.max_entries = shunt_nr_cpus();
	place->shape.flags &= ~MEANINGLESS_FLAGS;
	place->inner.flags &= ~MEANINGLESS_FLAGS;
	return err;
}

static int define_section(struct bpf_opening *opening, uint32_t index, bool legacy)
{
	struct shunt_bpf_object *object = opening->object;
	const struct bpf_elf *elf = &opening->elf;
	struct symbol_at *order = calloc(elf->nr_symbols + 1, sizeof(*order));
	uint32_t nr = 0;
	int err = 0;

	if (!order)
		return bpf_no_memory(object->name);
	for (uint32_t i = 0; i < elf->nr_symbols; i++) {
		const struct bpf_elf_symbol *symbol = &elf->symbols[i];

		if (symbol->section == index &&
		    (symbol->type == STT_OBJECT || (legacy && symbol->type == STT_NOTYPE && symbol->bind == STB_GLOBAL)))
			order[nr++].symbol = symbol;
	}
	qsort(order, nr, sizeof(*order), by_offset);
	if (object->unit.nr_maps + nr > BPF_MAX_MAPS)
		err = shunt_fail(EFBIG, "%s: %u maps are more than %u", object->name, object->unit.nr_maps + nr, BPF_MAX_MAPS);
	for (uint32_t i = 0; i < nr && !err; i++) {
		uint64_t end = i + 1 < nr ? order[i + 1].symbol->value : elf->sections[index].len;
		uint64_t len = end - order[i].symbol->value;

		if (order[i].symbol->size && order[i].symbol->size < len)
			len = order[i].symbol->size;
		err = add_map(opening, order[i].symbol, len, legacy);
	}
	free(order);
	return err;
}

int bpf_open_map_definitions(struct bpf_opening *opening)
{
	struct shunt_bpf_object *object = opening->object;
	uint32_t btf_maps = bpf_elf_find(&opening->elf, ".maps"), legacy = bpf_elf_find(&opening->elf, "maps");
	int err = 0;

	object->unit.maps = calloc(BPF_MAX_MAPS, sizeof(*object->unit.maps));
	object->map_places = calloc(BPF_MAX_MAPS, sizeof(*object->map_places));
	if (!object->unit.maps || !object->map_places)
		return bpf_no_memory(object->name);
	if (btf_maps)
		err = define_section(opening, btf_maps, false);
	if (!err && legacy)
		err = define_section(opening, legacy, true);
	return err;
}

uint32_t bpf_find_map(const struct shunt_bpf_object *object, uint32_t section, uint64_t offset)
{
	for (uint32_t i = 0; i < object->unit.nr_maps; i++) {
		if (object->map_places[i].section == section && object->map_places[i].offset == offset)
			return i;
	}
	return UINT32_MAX;
}
