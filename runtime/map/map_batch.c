/* SPDX-License-Identifier: MIT */
/* The host's calls for many entries at once. One read section a call: what is saved is the section, and what the host sees in one call was
 * not reused meanwhile. */
#include <errno.h>

#include "runtime/map/map.h"

int shunt_map_host_lookup_batch(struct shunt_map *map, const void *after, void *keys, void *values, uint32_t *nr)
{
	const size_t key_size = map->abi.key_size, value_size = shunt_map_host_value_size(map);
	uint32_t wanted = *nr, got = 0;
	char *key = keys;
	int err = 0;

	shunt_read_begin();
	while (got < wanted) {
		/* Into the next place of keys, from which the one after goes on even where this entry is gone when it is read. */
		err = map->ops->next_key(map, after, key);
		if (err)
			break;
		after = key;
		if (map->ops->host_lookup(map, key, (char *)values + got * value_size))
			continue;
		got++;
		key += key_size;
	}
	shunt_read_end();
	*nr = got;
	return err;
}

int shunt_map_host_update_batch(struct shunt_map *map, const void *keys, const void *values, uint32_t *nr, uint64_t flags)
{
	const size_t key_size = map->abi.key_size, value_size = shunt_map_host_value_size(map);
	uint32_t wanted = *nr, done = 0;
	int err = 0;

	*nr = 0;
	if (flags > SHUNT_EXIST)
		return -EINVAL;
	shunt_read_begin();
	for (; done < wanted; done++) {
		err = (map->ops->host_update ? map->ops->host_update : map->ops->update)(map, (const char *)keys + done * key_size,
											(const char *)values + done * value_size, flags);
		if (err)
			break;
	}
	shunt_read_end();
	*nr = done;
	return err;
}

int shunt_map_host_delete_batch(struct shunt_map *map, const void *keys, uint32_t *nr)
{
	uint32_t wanted = *nr, done = 0;
	int err = 0;

	shunt_read_begin();
	for (; done < wanted; done++) {
		err = map->ops->delete(map, (const char *)keys + (size_t)done * map->abi.key_size);
		if (err)
			break;
	}
	shunt_read_end();
	*nr = done;
	return err;
}
