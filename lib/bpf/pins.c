/* SPDX-License-Identifier: MIT */
/* Maps that objects share by name. A handful of names: a list, one mutex, held while an object makes its maps. */
#include "lib/bpf/pins.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct pin {
	char *name;
	struct bpf_map_shape shape, inner;
	bool has_inner;
	struct shunt_map *map;
};

struct shunt_bpf_pins {
	pthread_mutex_t mutex; /* guards the list; the pins themselves do not change */
	struct pin *pins;
	size_t nr, capacity;
};

int shunt_bpf_pins_create(struct shunt_bpf_pins **out)
{
	struct shunt_bpf_pins *pins = calloc(1, sizeof(*pins));

	if (!pins)
		return shunt_fail(ENOMEM, "no memory for a list of pinned maps");
	pthread_mutex_init(&pins->mutex, NULL);
	*out = pins;
	return 0;
}

void shunt_bpf_pins_destroy(struct shunt_bpf_pins *pins)
{
	if (!pins)
		return;
	bpf_pins_truncate(pins, 0);
	free(pins->pins);
	pthread_mutex_destroy(&pins->mutex);
	free(pins);
}

void bpf_pins_lock(struct shunt_bpf_pins *pins)
{
	pthread_mutex_lock(&pins->mutex);
}

void bpf_pins_unlock(struct shunt_bpf_pins *pins)
{
	pthread_mutex_unlock(&pins->mutex);
}

static bool same_shape(const struct bpf_map_shape *a, const struct bpf_map_shape *b)
{
	return a->type == b->type && a->key_size == b->key_size && a->value_size == b->value_size &&
	       a->max_entries == b->max_entries && a->flags == b->flags;
}

int bpf_pins_find(struct shunt_bpf_pins *pins, const char *object, const char *name, const struct bpf_map_place *place,
		  struct shunt_map **map)
{
	const struct bpf_map_shape *want = &place->shape;

	*map = NULL;
	for (size_t i = 0; i < pins->nr; i++) {
		const struct pin *pin = &pins->pins[i];
		const struct bpf_map_shape *have = &pin->shape;

		if (strcmp(pin->name, name))
			continue;
		if (!same_shape(have, want))
			return shunt_fail(
				EINVAL,
				"%s: map '%s' is pinned with another shape: type %u, key %u, value %u, %u entries, flags 0x%x instead of "
				"type %u, key %u, value %u, %u entries, flags 0x%x; rename it or open the object without these pins",
				object, name, have->type, have->key_size, have->value_size, have->max_entries, have->flags,
				want->type, want->key_size, want->value_size, want->max_entries, want->flags);
		if (pin->has_inner != place->has_inner || (pin->has_inner && !same_shape(&pin->inner, &place->inner)))
			return shunt_fail(
				EINVAL,
				"%s: map '%s' is pinned with inner maps of another shape; rename it or open the object without "
				"these pins",
				object, name);
		*map = shunt_map_get(pin->map);
		return 0;
	}
	return 0;
}

int bpf_pins_add(struct shunt_bpf_pins *pins, const char *object, const char *name, const struct bpf_map_place *place,
		 struct shunt_map *map)
{
	char *copy;

	if (pins->nr == pins->capacity) {
		size_t capacity = pins->capacity ? pins->capacity * 2 : 16;
		struct pin *bigger = realloc(pins->pins, capacity * sizeof(*bigger));

		if (!bigger)
			return bpf_no_memory(object);
		pins->pins = bigger;
		pins->capacity = capacity;
	}
	copy = strdup(name);
	if (!copy)
		return bpf_no_memory(object);
	pins->pins[pins->nr++] = (struct pin){ copy, place->shape, place->inner, place->has_inner, shunt_map_get(map) };
	return 0;
}

size_t bpf_pins_count(const struct shunt_bpf_pins *pins)
{
	return pins->nr;
}

void bpf_pins_truncate(struct shunt_bpf_pins *pins, size_t count)
{
	while (pins->nr > count) {
		pins->nr--;
		shunt_map_put(pins->pins[pins->nr].map);
		free(pins->pins[pins->nr].name);
	}
}
