/* SPDX-License-Identifier: MIT */
/* Copies and compares the contents of one of our maps and a kernel map of the same shape. Internal to the oracle. */
#ifndef LIB_REPLAY_KERNEL_MAPS_H
#define LIB_REPLAY_KERNEL_MAPS_H

#include <stdbool.h>
#include "lib/replay/kernel.h"

/* True when contents of this map type mean the same on both sides: PROG_ARRAY, redirect maps and maps of maps hold references. */
bool shunt_replay_kernel_map_is_comparable(const struct shunt_map *map);
/* True when the kernel takes our entries: also device and CPU maps, whose entries decide verdicts. */
bool shunt_replay_kernel_map_is_copied(const struct shunt_map *map);

/* Kernel map fd := contents of map. -EINVAL when the kernel does not take an entry. */
int shunt_replay_kernel_map_copy(struct shunt_map *map, int fd);

/* Adds to check what map and the kernel map fd hold in common and in difference. */
int shunt_replay_kernel_map_compare(struct shunt_map *map, int fd, struct shunt_replay_check *check);

/* Records a difference: the first one's sentence is kept. */
void shunt_replay_check_note(struct shunt_replay_check *check, uint64_t *counter, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
