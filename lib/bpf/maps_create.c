/* SPDX-License-Identifier: MIT */
/* Makes an object's maps from their definitions, and puts in what their definitions list: inner maps at once, programs once
 * compiled. */
#include "lib/bpf/pins.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct shunt_map_attr attr_of(const struct bpf_map_shape *shape)
{
	return (struct shunt_map_attr){
		.type = shape->type,
		.key_size = shape->key_size,
		.value_size = shape->value_size,
		.max_entries = shape->max_entries,
		.flags = shape->flags,
	};
}

static const char *type_name(uint32_t type)
{
	static const char *const names[] = { [7] = "STACK_TRACE",
					     [8] = "CGROUP_ARRAY",
					     [15] = "SOCKMAP",
					     [18] = "SOCKHASH",
					     [19] = "CGROUP_STORAGE",
					     [20] = "REUSEPORT_SOCKARRAY",
					     [21] = "PERCPU_CGROUP_STORAGE",
					     [22] = "QUEUE",
					     [23] = "STACK",
					     [24] = "SK_STORAGE",
					     [26] = "STRUCT_OPS",
					     [27] = "RINGBUF",
					     [28] = "INODE_STORAGE",
					     [29] = "TASK_STORAGE",
					     [30] = "BLOOM_FILTER",
					     [31] = "USER_RINGBUF",
					     [32] = "CGRP_STORAGE",
					     [33] = "ARENA" };
	const char *name = type < sizeof(names) / sizeof(names[0]) ? names[type] : NULL;

	return name ? name : "unknown";
}

static int create_map(struct shunt_bpf_object *object, uint32_t index)
{
	struct bpf_map_place *place = &object->map_places[index];
	struct bpf_unit_map *map = &object->unit.maps[index];
	struct shunt_map_attr attr = attr_of(&place->shape), inner = attr_of(&place->inner);
	int err;

	attr.name = map->name;
	if (place->has_inner)
		attr.inner = &inner;
	err = shunt_map_create(&attr, &map->map);
	if (err == -ENOTSUP)
		return bpf_reason(&place->unsupported, "map '%s' is of the type %s (%u), which is not supported", map->name,
				  type_name(attr.type), attr.type);
	return err ? shunt_fail(-err, "%s: %s", object->name, shunt_error()) : 0;
}

static int take_or_create(struct shunt_bpf_object *object, uint32_t index)
{
	struct shunt_bpf_pins *pins = object->options.pins;
	struct bpf_map_place *place = &object->map_places[index];
	struct bpf_unit_map *map = &object->unit.maps[index];
	int err;

	if (place->unsupported)
		return 0;
	if (!place->pinned || !pins)
		return create_map(object, index);
	err = bpf_pins_find(pins, object->name, map->name, place, &map->map);
	if (err || map->map) {
		place->reused = !err;
		return err;
	}
	err = create_map(object, index);
	if (!err && map->map)
		err = bpf_pins_add(pins, object->name, map->name, place, map->map);
	return err;
}

static int install_maps(struct shunt_bpf_object *object)
{
	for (uint32_t i = 0; i < object->nr_values; i++) {
		const struct bpf_map_value *value = &object->values[i];
		struct shunt_map *map = object->unit.maps[value->map].map, *inner;
		int err;

		if (value->is_func || !map || object->map_places[value->map].reused)
			continue;
		inner = object->unit.maps[value->target].map;
		if (!inner) {
			err = bpf_reason(&object->map_places[value->map].unsupported,
					 "map '%s' lists an inner map that is not supported: %s",
					 object->unit.maps[value->map].name, object->map_places[value->target].unsupported);
			if (err)
				return err;
			continue;
		}
		err = shunt_map_host_update(map, &value->element, &inner, SHUNT_ANY);
		if (err)
			return shunt_fail(-err, "%s: map '%s' cannot hold map '%s' as element %u: %s", object->name,
					  object->unit.maps[value->map].name, object->unit.maps[value->target].name, value->element,
					  shunt_error());
	}
	return 0;
}

/* The last step of opening that can fail: what it adds to the pins it takes out again. */
int bpf_create_maps(struct shunt_bpf_object *object)
{
	struct shunt_bpf_pins *pins = object->options.pins;
	size_t before = 0;
	int err = 0;

	if (pins) {
		bpf_pins_lock(pins);
		before = bpf_pins_count(pins);
	}
	for (uint32_t i = 0; i < object->unit.nr_maps && !err; i++)
		err = take_or_create(object, i);
	if (!err)
		err = install_maps(object);
	if (!err)
		err = bpf_list_programs(object);
	if (pins) {
		if (err)
			bpf_pins_truncate(pins, before);
		bpf_pins_unlock(pins);
	}
	return err;
}

static const void *entry_of(const struct shunt_bpf_object *object, uint32_t func)
{
	for (uint32_t i = 0; i < object->nr_programs; i++) {
		if (object->programs[i].func == func)
			return object->programs[i].entry;
	}
	return NULL;
}

int bpf_install_programs(struct shunt_bpf_object *object)
{
	for (uint32_t i = 0; i < object->nr_values; i++) {
		struct bpf_map_value *value = &object->values[i];
		struct shunt_map *map = object->unit.maps[value->map].map;
		const void *entry = value->is_func ? entry_of(object, value->target) : NULL;
		int err;

		if (!entry || !map)
			continue;
		err = shunt_map_host_update(map, &value->element, &entry, SHUNT_ANY);
		if (err)
			return shunt_fail(-err, "%s: map '%s' cannot hold program '%s' as element %u: %s", object->name,
					  object->unit.maps[value->map].name, object->unit.funcs[value->target].name,
					  value->element, shunt_error());
		value->installed = true;
	}
	return 0;
}

/* The map may live on in the pins or with the host; it must not name code that goes away. */
void bpf_uninstall_programs(struct shunt_bpf_object *object)
{
	for (uint32_t i = 0; i < object->nr_values; i++) {
		struct bpf_map_value *value = &object->values[i];
		const void *entry = NULL;

		if (!value->installed)
			continue;
		value->installed = false;
		if (!shunt_map_host_lookup(object->unit.maps[value->map].map, &value->element, &entry) &&
		    entry == entry_of(object, value->target))
			shunt_map_host_delete(object->unit.maps[value->map].map, &value->element);
	}
}
