/* SPDX-License-Identifier: MIT */
/* Maps shared by name. Internal side of struct shunt_bpf_pins: an object that opens takes and adds its maps in one locked step. */
#ifndef LIB_BPF_PINS_H
#define LIB_BPF_PINS_H

#include "lib/bpf/object.h"

void bpf_pins_lock(struct shunt_bpf_pins *pins);
void bpf_pins_unlock(struct shunt_bpf_pins *pins);

/* All below: locked. find: *map with a reference of the caller's, or NULL when nobody pinned that name; -EINVAL: it has another shape. */
int bpf_pins_find(struct shunt_bpf_pins *pins, const char *object, const char *name, const struct bpf_map_place *place, struct shunt_map **map);
/* Takes a reference of its own. 0 or -ENOMEM. */
int bpf_pins_add(struct shunt_bpf_pins *pins, const char *object, const char *name, const struct bpf_map_place *place, struct shunt_map *map);
/* Number of pins now; truncate undoes the additions since. */
size_t bpf_pins_count(const struct shunt_bpf_pins *pins);
void bpf_pins_truncate(struct shunt_bpf_pins *pins, size_t count);

#endif
