/* SPDX-License-Identifier: MIT */
/* Map contents across the border: both sides lay out per-CPU values alike, all possible CPUs' in 8-byte steps. */
#include "lib/replay/kernel_maps.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/log.h"

struct entry_buffers {
	size_t key_size, value_size;
	uint8_t *key, *next, *ours, *theirs;
};

static int buffers_init(struct entry_buffers *b, const struct shunt_map *map)
{
	b->key_size = shunt_map_abi(map)->key_size;
	b->value_size = shunt_map_host_value_size(map);
	b->key = calloc(1, 2 * b->key_size + 2 * b->value_size);
	if (!b->key)
		return shunt_fail(ENOMEM, "no memory to compare map '%s'", shunt_map_name(map));
	b->next = b->key + b->key_size;
	b->ours = b->next + b->key_size;
	b->theirs = b->ours + b->value_size;
	return 0;
}

bool shunt_replay_kernel_map_is_comparable(const struct shunt_map *map)
{
	switch (shunt_map_abi(map)->type) {
	case SHUNT_MAP_HASH:
	case SHUNT_MAP_ARRAY:
	case SHUNT_MAP_PERCPU_HASH:
	case SHUNT_MAP_PERCPU_ARRAY:
	case SHUNT_MAP_LRU_HASH:
	case SHUNT_MAP_LRU_PERCPU_HASH:
	case SHUNT_MAP_LPM_TRIE:
		return true;
	default:
		return false;
	}
}

bool shunt_replay_kernel_map_is_copied(const struct shunt_map *map)
{
	uint32_t type = shunt_map_abi(map)->type;

	return shunt_replay_kernel_map_is_comparable(map) || type == SHUNT_MAP_DEVMAP || type == SHUNT_MAP_DEVMAP_HASH ||
	       type == SHUNT_MAP_CPUMAP || type == SHUNT_MAP_XSKMAP;
}

void shunt_replay_check_note(struct shunt_replay_check *check, uint64_t *counter, const char *format, ...)
{
	va_list args;

	(*counter)++;
	if (check->first_diff[0])
		return;
	va_start(args, format);
	vsnprintf(check->first_diff, sizeof(check->first_diff), format, args);
	va_end(args);
}

static bool is_array(const struct shunt_map *map)
{
	uint32_t type = shunt_map_abi(map)->type;

	return type == SHUNT_MAP_ARRAY || type == SHUNT_MAP_PERCPU_ARRAY;
}

static bool is_zero(const uint8_t *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (bytes[i])
			return false;
	return true;
}

int shunt_replay_kernel_map_copy(struct shunt_map *map, int fd)
{
	struct entry_buffers b;
	const void *previous = NULL;
	int err = buffers_init(&b, map);

	while (!err && !shunt_map_next_key(map, previous, b.next)) {
		memcpy(b.key, b.next, b.key_size);
		previous = b.key;
		/* A key deleted meanwhile is no error; arrays start as zeros there too. */
		if (shunt_map_host_lookup(map, b.key, b.ours) || (is_array(map) && is_zero(b.ours, b.value_size)))
			continue;
		if (bpf_map_update_elem(fd, b.key, b.ours, BPF_ANY))
			err = shunt_fail(EINVAL, "map '%s': the kernel does not take an entry: %s", shunt_map_name(map), strerror(errno));
	}
	free(b.key);
	return err;
}

/* "0a000001..." of at most 16 bytes. */
static const char *hex(const uint8_t *bytes, size_t len, char text[36])
{
	size_t shown = len < 16 ? len : 16;

	for (size_t i = 0; i < shown; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
	strcpy(text + 2 * shown, len > shown ? ".." : "");
	return text;
}

static void compare_entry(struct shunt_map *map, const struct entry_buffers *b, struct shunt_replay_check *check)
{
	const struct shunt_map_abi *abi = shunt_map_abi(map);
	size_t step = shunt_map_is_percpu(map) ? abi->stride : b->value_size;
	char key[36], ours[36], theirs[36];

	for (size_t offset = 0; offset < b->value_size; offset += step) {
		size_t len = shunt_map_is_percpu(map) ? abi->value_size : b->value_size;

		check->nr_map_values++;
		if (memcmp(b->ours + offset, b->theirs + offset, len))
			shunt_replay_check_note(check, &check->nr_map_diffs, "map '%s', key %s, CPU %zu: %s here, %s in the kernel",
						shunt_map_name(map), hex(b->key, b->key_size, key), offset / step,
						hex(b->ours + offset, len, ours), hex(b->theirs + offset, len, theirs));
	}
}

/* Every key of ours must be in the kernel with the same value. */
static void compare_ours(struct shunt_map *map, int fd, struct entry_buffers *b, struct shunt_replay_check *check)
{
	const void *previous = NULL;
	char key[36];

	while (!shunt_map_next_key(map, previous, b->next)) {
		memcpy(b->key, b->next, b->key_size);
		previous = b->key;
		if (shunt_map_host_lookup(map, b->key, b->ours))
			continue;
		if (bpf_map_lookup_elem(fd, b->key, b->theirs))
			shunt_replay_check_note(check, &check->nr_map_diffs, "map '%s', key %s: here, but not in the kernel",
						shunt_map_name(map), hex(b->key, b->key_size, key));
		else
			compare_entry(map, b, check);
	}
}

/* And every key of the kernel's here. */
static void compare_theirs(struct shunt_map *map, int fd, struct entry_buffers *b, struct shunt_replay_check *check)
{
	const void *previous = NULL;
	char key[36];

	while (!bpf_map_get_next_key(fd, previous, b->next)) {
		memcpy(b->key, b->next, b->key_size);
		previous = b->key;
		if (shunt_map_host_lookup(map, b->key, b->ours))
			shunt_replay_check_note(check, &check->nr_map_diffs, "map '%s', key %s: in the kernel, but not here",
						shunt_map_name(map), hex(b->key, b->key_size, key));
	}
}

int shunt_replay_kernel_map_compare(struct shunt_map *map, int fd, struct shunt_replay_check *check)
{
	struct entry_buffers b;
	int err = buffers_init(&b, map);

	if (err)
		return err;
	compare_ours(map, fd, &b, check);
	if (!is_array(map))
		compare_theirs(map, fd, &b, check);
	free(b.key);
	return 0;
}
