/* SPDX-License-Identifier: MIT */
/* What both forms of the report need: maps walked, keys and numbers in words. */
#include "tools/report.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

const char *const report_verdict_names[SHUNT_REPLAY_NR_VERDICTS] = { "aborted", "drop", "pass", "tx", "redirect", "other" };

size_t report_count_maps(const struct shunt_replay *replay)
{
	size_t nr = 0;

	for (size_t q = 0; q < replay->nr_queues; q++)
		nr += shunt_bpf_nr_maps(replay->queues[q].object);
	return nr;
}

size_t report_collect_maps(const struct shunt_replay *replay, struct shunt_map **maps, size_t max)
{
	size_t nr = 0;

	for (size_t q = 0; q < replay->nr_queues; q++) {
		for (size_t i = 0; i < shunt_bpf_nr_maps(replay->queues[q].object); i++) {
			struct shunt_map *map = shunt_bpf_map(replay->queues[q].object, i);
			size_t known = 0;

			while (known < nr && maps[known] != map)
				known++;
			if (map && known == nr && nr < max)
				maps[nr++] = map;
		}
	}
	return nr;
}

int report_each_entry(struct shunt_map *map, bool all, report_entry_fn *fn, void *user)
{
	size_t key_size = shunt_map_abi(map)->key_size, value_size = shunt_map_host_value_size(map);
	uint8_t *key = calloc(1, 2 * key_size + value_size), *next = key + key_size, *value = next + key_size;
	const void *previous = NULL;

	if (!key)
		return -1;
	while (!shunt_map_next_key(map, previous, next)) {
		bool is_zero = true;

		memcpy(key, next, key_size);
		previous = key;
		if (shunt_map_host_lookup(map, key, value))
			continue;
		for (size_t i = 0; i < value_size && is_zero; i++)
			is_zero = !value[i];
		if ((all || !is_zero) && !fn(user, map, key, value))
			break;
	}
	free(key);
	return 0;
}

uint64_t report_word(const uint8_t *value, size_t size, size_t word)
{
	size_t left = size - word * 8;
	uint64_t result = 0;

	memcpy(&result, value + word * 8, left < 8 ? left : 8);
	return result;
}

const char *report_number(uint64_t number)
{
	static _Thread_local char texts[8][28];
	static _Thread_local unsigned turn;
	char *text = texts[turn++ % 8];
	char digits[24];
	int len = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)number);
	char *out = text;

	for (int i = 0; i < len; i++) {
		if (i && (len - i) % 3 == 0)
			*out++ = ',';
		*out++ = digits[i];
	}
	*out = 0;
	return text;
}

const char *report_key(const struct shunt_map *map, const uint8_t *key, char *text, size_t size)
{
	const struct shunt_map_abi *abi = shunt_map_abi(map);
	bool is_hash = abi->type == SHUNT_MAP_HASH || abi->type == SHUNT_MAP_PERCPU_HASH || abi->type == SHUNT_MAP_LRU_HASH ||
		       abi->type == SHUNT_MAP_LRU_PERCPU_HASH;
	size_t used = 0;
	uint32_t index;

	if (is_hash && abi->key_size == 4) {
		/* Nothing says whether it is an address or a number: both. */
		memcpy(&index, key, 4);
		snprintf(text, size, "%u.%u.%u.%u or %u", key[0], key[1], key[2], key[3], index);
		return text;
	}
	if (is_hash && abi->key_size == 16)
		return inet_ntop(AF_INET6, key, text, (socklen_t)size);
	if (!is_hash && abi->key_size == 4) {
		memcpy(&index, key, 4);
		snprintf(text, size, "%u", index);
		return text;
	}
	for (size_t i = 0; i < abi->key_size && used + 3 < size; i++)
		used += snprintf(text + used, size - used, "%s%02x", i && abi->key_size == 6 ? ":" : "", key[i]);
	return text;
}

const char *report_map_type(uint32_t type)
{
	switch (type) {
	case SHUNT_MAP_HASH: return "HASH";
	case SHUNT_MAP_ARRAY: return "ARRAY";
	case SHUNT_MAP_PROG_ARRAY: return "PROG_ARRAY";
	case SHUNT_MAP_PERF_EVENT_ARRAY: return "PERF_EVENT_ARRAY";
	case SHUNT_MAP_PERCPU_HASH: return "PERCPU_HASH";
	case SHUNT_MAP_PERCPU_ARRAY: return "PERCPU_ARRAY";
	case SHUNT_MAP_LRU_HASH: return "LRU_HASH";
	case SHUNT_MAP_LRU_PERCPU_HASH: return "LRU_PERCPU_HASH";
	case SHUNT_MAP_LPM_TRIE: return "LPM_TRIE";
	case SHUNT_MAP_ARRAY_OF_MAPS: return "ARRAY_OF_MAPS";
	case SHUNT_MAP_HASH_OF_MAPS: return "HASH_OF_MAPS";
	case SHUNT_MAP_DEVMAP: return "DEVMAP";
	case SHUNT_MAP_DEVMAP_HASH: return "DEVMAP_HASH";
	case SHUNT_MAP_CPUMAP: return "CPUMAP";
	case SHUNT_MAP_XSKMAP: return "XSKMAP";
	default: return "unknown type";
	}
}
