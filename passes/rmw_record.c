/* SPDX-License-Identifier: MIT */
/*
 * What shunt-percpu knows of the pointers in the code that it built, found again by pointer: a list, and two hash tables of places in it. A
 * module may have as many as it has lookups, and every store asks.
 */
#include <stdlib.h>
#include "passes/rmw.h"

/* Open addressing, at most half full; a slot holds an item's place plus one, 0 is free. */
struct table {
	uint32_t *slots;
	size_t nr_slots; /* a power of two, or 0 */
};

struct shunt_rmw_lookups {
	struct shunt_rmw_lookup *items;
	size_t nr, capacity;
	struct table by_value, by_object; /* the first item of each */
};

static LLVMValueRef key_of(const struct shunt_rmw_lookup *lookup, bool by_object)
{
	return by_object ? lookup->object : lookup->value;
}

/* The slot that key has, or where it would be put. */
static uint32_t *find_slot(const struct shunt_rmw_lookups *lookups, LLVMValueRef key, bool by_object)
{
	const struct table *table = by_object ? &lookups->by_object : &lookups->by_value;
	size_t slot = (size_t)((uintptr_t)key * UINT64_C(0x9e3779b97f4a7c15) >> 20);

	for (;; slot++) {
		uint32_t *at = &table->slots[slot & (table->nr_slots - 1)];

		if (!*at || key_of(&lookups->items[*at - 1], by_object) == key)
			return at;
	}
}

static void enter(struct shunt_rmw_lookups *lookups, size_t item, bool by_object)
{
	LLVMValueRef key = key_of(&lookups->items[item], by_object);
	uint32_t *slot = key ? find_slot(lookups, key, by_object) : NULL;

	if (slot && !*slot)
		*slot = (uint32_t)(item + 1);
}

/* Room for one more. */
static bool grow(struct shunt_rmw_lookups *lookups)
{
	size_t capacity = lookups->capacity ? lookups->capacity * 2 : 64, nr_slots = capacity * 2;
	struct shunt_rmw_lookup *items;
	uint32_t *values, *objects;

	if (lookups->nr < lookups->capacity)
		return true;
	items = realloc(lookups->items, capacity * sizeof(*items));
	if (!items)
		return false;
	lookups->items = items;
	values = calloc(nr_slots, sizeof(*values));
	objects = calloc(nr_slots, sizeof(*objects));
	if (!values || !objects) {
		free(values);
		free(objects);
		return false;
	}
	free(lookups->by_value.slots);
	free(lookups->by_object.slots);
	lookups->by_value = (struct table){ values, nr_slots };
	lookups->by_object = (struct table){ objects, nr_slots };
	lookups->capacity = capacity;
	for (size_t i = 0; i < lookups->nr; i++) {
		enter(lookups, i, false);
		enter(lookups, i, true);
	}
	return true;
}

void shunt_rmw_record(struct shunt_pass *pass, const struct shunt_rmw_lookup *lookup)
{
	if (!shunt_rmw_is_exact(pass))
		return;
	if (!pass->lookups)
		pass->lookups = calloc(1, sizeof(*pass->lookups));
	if (!pass->lookups || pass->lookups->nr == UINT32_MAX - 1 || !grow(pass->lookups)) {
		pass->failed = true;
		return;
	}
	pass->lookups->items[pass->lookups->nr] = *lookup;
	enter(pass->lookups, pass->lookups->nr, false);
	enter(pass->lookups, pass->lookups->nr, true);
	pass->lookups->nr++;
}

static const struct shunt_rmw_lookup *find(const struct shunt_pass *pass, LLVMValueRef key, bool by_object)
{
	uint32_t place = pass->lookups && pass->lookups->nr && key ? *find_slot(pass->lookups, key, by_object) : 0;

	return place ? &pass->lookups->items[place - 1] : NULL;
}

const struct shunt_rmw_lookup *shunt_rmw_find(const struct shunt_pass *pass, LLVMValueRef base)
{
	return find(pass, base, false);
}

const struct shunt_rmw_lookup *shunt_rmw_first_of(const struct shunt_pass *pass, LLVMValueRef object)
{
	return find(pass, object, true);
}

void shunt_rmw_forget(struct shunt_pass *pass)
{
	if (!pass->lookups)
		return;
	free(pass->lookups->items);
	free(pass->lookups->by_value.slots);
	free(pass->lookups->by_object.slots);
	free(pass->lookups);
	pass->lookups = NULL;
}
