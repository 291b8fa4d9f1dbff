/* SPDX-License-Identifier: MIT */
/* Reads descriptions of maps. */
#include "passes/map_text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int refuse(char *why, size_t room, int err, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why, room, format, args);
	va_end(args);
	return -err;
}

static bool parse_number(const char *text, uint64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoull(text, &end, 0);
	return *text >= '0' && *text <= '9' && !*end && !errno;
}

static bool parse_type(const char *text, uint32_t *out)
{
	static const struct {
		const char *name;
		uint32_t type;
	} types[] = {
		{ "array", SHUNT_MAP_ARRAY },       { "percpu_array", SHUNT_MAP_PERCPU_ARRAY },
		{ "hash", SHUNT_MAP_HASH },         { "percpu_hash", SHUNT_MAP_PERCPU_HASH },
		{ "lru_hash", SHUNT_MAP_LRU_HASH }, { "lru_percpu_hash", SHUNT_MAP_LRU_PERCPU_HASH },
	};
	uint64_t number;

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (!strcmp(types[i].name, text)) {
			*out = types[i].type;
			return true;
		}
	if (!parse_number(text, &number) || number > UINT32_MAX)
		return false;
	*out = (uint32_t)number;
	return true;
}

/* A copy of the map called name, which the list has already: the list itself moves as it grows. */
static const struct shunt_pass_map *copy_of(const struct shunt_map_list *list, const char *name)
{
	struct shunt_pass_map *copy = NULL;

	for (size_t i = 0; i < list->nr && !copy; i++) {
		if (!list->maps[i].symbol || strcmp(list->maps[i].symbol, name))
			continue;
		copy = malloc(sizeof(*copy));
		if (copy) {
			*copy = list->maps[i];
			copy->symbol = NULL;
			copy->inner = NULL;
		}
	}
	return copy;
}

/* One "key=value" of a map description. */
static bool parse_field(const struct shunt_map_list *list, struct shunt_pass_map *map, char *field)
{
	char *value = strchr(field, '=');
	uint64_t number;

	if (!value)
		return false;
	*value++ = '\0';
	if (!strcmp(field, "type"))
		return parse_type(value, &map->type);
	if (!strcmp(field, "inner")) {
		free((void *)map->inner);
		map->inner = copy_of(list, value);
		return map->inner;
	}
	if (!parse_number(value, &number))
		return false;
	if (!strcmp(field, "values"))
		map->values = number;
	else if (!strcmp(field, "address"))
		map->address = number;
	else if (!strcmp(field, "handle"))
		map->handle = number, map->has_handle = true;
	else if (number > UINT32_MAX)
		return false;
	else if (!strcmp(field, "key"))
		map->key_size = (uint32_t)number;
	else if (!strcmp(field, "value"))
		map->value_size = (uint32_t)number;
	else if (!strcmp(field, "entries"))
		map->max_entries = (uint32_t)number;
	else if (!strcmp(field, "stride"))
		map->stride = (uint32_t)number;
	else if (!strcmp(field, "mask"))
		map->index_mask = (uint32_t)number;
	else
		return false;
	return true;
}

int shunt_map_list_add(struct shunt_map_list *list, char *text, char *why, size_t room)
{
	struct shunt_pass_map map = { 0 }, *maps;
	char *fields = strchr(text, ':'), *next;

	if (!fields)
		return refuse(why, room, EINVAL, "map '%s': write NAME:type=...,key=...,value=...,entries=...", text);
	*fields++ = '\0';
	for (; fields; fields = next) {
		next = strchr(fields, ',');
		if (next)
			*next++ = '\0';
		if (!parse_field(list, &map, fields)) {
			free((void *)map.inner);
			return refuse(why, room, EINVAL, "map '%s': '%s' is not a field with a value in range; see --help", text, fields);
		}
	}
	if (!map.type) {
		free((void *)map.inner);
		return refuse(why, room, EINVAL, "map '%s' has no type", text);
	}
	maps = realloc(list->maps, (list->nr + 1) * sizeof(*maps));
	if (maps)
		list->maps = maps;
	if (*text)
		map.symbol = strdup(text);
	if (!maps || (*text && !map.symbol)) {
		free((char *)map.symbol);
		free((void *)map.inner);
		return refuse(why, room, ENOMEM, "out of memory");
	}
	maps[list->nr++] = map;
	return 0;
}

int shunt_map_list_add_file(struct shunt_map_list *list, const char *path, char *why, size_t room)
{
	FILE *file = fopen(path, "r");
	char *line = NULL;
	size_t line_room = 0;
	int ret = 0;

	if (!file)
		return refuse(why, room, errno, "%s: %s", path, strerror(errno));
	while (!ret && getline(&line, &line_room, file) >= 0) {
		line[strcspn(line, "#\r\n")] = '\0';
		line[strcspn(line, " \t")] = '\0';
		if (*line)
			ret = shunt_map_list_add(list, line, why, room);
	}
	free(line);
	fclose(file);
	return ret;
}

void shunt_map_list_fini(struct shunt_map_list *list)
{
	for (size_t i = 0; i < list->nr; i++) {
		free((char *)list->maps[i].symbol);
		free((void *)list->maps[i].inner);
	}
	free(list->maps);
	list->maps = NULL;
	list->nr = 0;
}
