/* SPDX-License-Identifier: MIT */
/* Parses MAP[KEY]=VALUE: command-line input, so every form is checked for size and for leftovers. */
#include "lib/replay/setting.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <shunt/bpf.h>
#include "runtime/log.h"

static int fail_form(const char *text, const char *what)
{
	return shunt_fail(EINVAL, "%s '%s': write an integer, port:N, an IPv4 or IPv6 address (with /LEN for an LPM trie), a MAC address or "
				  "hex:BYTES", what, text);
}

static int fail_size(const char *text, const char *what, size_t need, size_t size)
{
	return shunt_fail(EINVAL, "%s '%s' needs %zu bytes, the map has %zu", what, text, need, size);
}

static int put(const char *text, const char *what, void *out, size_t size, const void *bytes, size_t len)
{
	if (len > size)
		return fail_size(text, what, len, size);
	memcpy(out, bytes, len);
	return 0;
}

/* Parses the whole of text as an unsigned number up to max. */
static bool parse_unsigned(const char *text, unsigned long long max, unsigned long long *out)
{
	char *end;

	if (!isdigit((unsigned char)*text))
		return false;
	errno = 0;
	/* No octal: nobody who writes port 010 means 8. */
	*out = strtoull(text, &end, text[0] == '0' && (text[1] == 'x' || text[1] == 'X') ? 16 : 10);
	return !errno && !*end && *out <= max;
}

/* An address fills its place: four bytes of an IPv6 key would be another address. */
static int put_address(const char *text, const char *what, void *out, size_t size, const void *bytes, size_t len)
{
	if (len != size)
		return shunt_fail(EINVAL, "%s '%s' is an address of %zu bytes, the map has %zu; hex: writes any bytes", what, text, len, size);
	return put(text, what, out, size, bytes, len);
}

static int parse_integer(const char *text, const char *what, void *out, size_t size)
{
	bool is_negative = *text == '-';
	unsigned long long number, max;
	size_t len = size < sizeof(number) ? size : sizeof(number);

	if (!parse_unsigned(text + is_negative, is_negative ? 1ull << 63 : ~0ull, &number))
		return fail_form(text, what);
	max = is_negative ? 1ull << (len * 8 - 1) : ~0ull >> (64 - len * 8);
	if (number > max)
		return fail_size(text, what, sizeof(number), size);
	if (is_negative)
		number = -number;
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the low bytes of an integer are its first bytes on both of our targets"
#endif
	memcpy(out, &number, len);
	return 0;
}

static int parse_hex(const char *text, const char *digits, const char *what, uint8_t *out, size_t size)
{
	size_t len = strlen(digits);

	if (!len || len % 2 || strspn(digits, "0123456789abcdefABCDEF") != len)
		return shunt_fail(EINVAL, "%s '%s': hex: takes pairs of hexadecimal digits", what, text);
	if (len / 2 > size)
		return fail_size(text, what, len / 2, size);
	for (size_t i = 0; i < len / 2; i++) {
		char pair[3] = { digits[2 * i], digits[2 * i + 1], 0 };

		out[i] = (uint8_t)strtoul(pair, NULL, 16);
	}
	return 0;
}

static bool parse_mac(const char *text, uint8_t mac[6])
{
	for (int i = 0; i < 6; i++) {
		if (!isxdigit((unsigned char)text[0]) || !isxdigit((unsigned char)text[1]) || text[2] != (i < 5 ? ':' : '\0'))
			return false;
		mac[i] = (uint8_t)strtoul((char[]){ text[0], text[1], 0 }, NULL, 16);
		text += i < 5 ? 3 : 2;
	}
	return true;
}

/* An LPM trie's key: the prefix length as a 32-bit integer, then the address. */
static int parse_prefix(const char *text, const char *what, void *out, size_t size)
{
	char address[INET6_ADDRSTRLEN];
	const char *slash = strchr(text, '/');
	struct {
		uint32_t prefix_len;
		uint8_t address[16];
	} key = { 0 };
	unsigned long long prefix_len;
	size_t address_len;

	if ((size_t)(slash - text) >= sizeof(address))
		return fail_form(text, what);
	memcpy(address, text, slash - text);
	address[slash - text] = 0;
	address_len = inet_pton(AF_INET, address, key.address) == 1 ? 4 : inet_pton(AF_INET6, address, key.address) == 1 ? 16 : 0;
	if (!address_len || !parse_unsigned(slash + 1, address_len * 8, &prefix_len))
		return fail_form(text, what);
	key.prefix_len = (uint32_t)prefix_len;
	return put(text, what, out, size, &key, sizeof(key.prefix_len) + address_len);
}

int shunt_replay_parse_bytes(const char *text, const char *what, void *out, size_t size)
{
	unsigned long long port;
	uint8_t bytes[16];

	memset(out, 0, size);
	if (!strncmp(text, "hex:", 4))
		return parse_hex(text, text + 4, what, out, size);
	if (!strncmp(text, "port:", 5)) {
		if (!parse_unsigned(text + 5, 0xffff, &port))
			return shunt_fail(EINVAL, "%s '%s': port: takes a number from 0 to 65535", what, text);
		return put(text, what, out, size, &(uint16_t){ htons((uint16_t)port) }, 2);
	}
	if (strchr(text, '/'))
		return parse_prefix(text, what, out, size);
	if (parse_mac(text, bytes))
		return put(text, what, out, size, bytes, 6);
	if (inet_pton(AF_INET, text, bytes) == 1)
		return put_address(text, what, out, size, bytes, 4);
	if (inet_pton(AF_INET6, text, bytes) == 1)
		return put_address(text, what, out, size, bytes, 16);
	return parse_integer(text, what, out, size);
}

/* Values of a per-CPU map: the same on every CPU. */
static void spread(uint8_t *value, size_t stride, size_t size)
{
	for (size_t offset = stride; offset + stride <= size; offset += stride)
		memcpy(value + offset, value, stride);
}

/* Maps whose values are addresses of this process: no number that a person writes is one. */
static bool holds_references(const struct shunt_map *map)
{
	uint32_t type = shunt_map_abi(map)->type;

	return type == SHUNT_MAP_PROG_ARRAY || type == SHUNT_MAP_ARRAY_OF_MAPS || type == SHUNT_MAP_HASH_OF_MAPS;
}

static int fail_update(const struct shunt_map *map, const char *key_text, int err)
{
	return shunt_fail(-err, "map '%s': key '%s': %s", shunt_map_name(map), key_text,
			  err == -E2BIG ? "beyond the map's max_entries, or the map is full" : strerror(-err));
}

static int apply(struct shunt_map *map, char *key_text, char *value_text)
{
	const struct shunt_map_abi *abi = shunt_map_abi(map);
	size_t value_size = shunt_map_host_value_size(map);
	uint8_t *key = calloc(1, abi->key_size);
	uint8_t *value = calloc(1, value_size);
	int err = key && value ? 0 : shunt_fail(ENOMEM, "no memory for a map entry");

	if (!err && holds_references(map))
		err = shunt_fail(ENOTSUP, "map '%s' holds programs or maps, which cannot be written as numbers", shunt_map_name(map));
	if (!err)
		err = shunt_replay_parse_bytes(key_text, "key", key, abi->key_size);
	if (!err)
		err = shunt_replay_parse_bytes(value_text, "value", value, abi->value_size);
	if (!err) {
		if (shunt_map_is_percpu(map))
			spread(value, abi->stride, value_size);
		err = shunt_map_host_update(map, key, value, SHUNT_ANY);
		if (err)
			fail_update(map, key_text, err);
	}
	free(key);
	free(value);
	return err;
}

int shunt_replay_set(struct shunt_bpf_object *object, const char *setting)
{
	char *copy = strdup(setting);
	char *open, *close, *name, *key;
	struct shunt_map *map;
	int err;

	if (!copy)
		return shunt_fail(ENOMEM, "no memory for '%s'", setting);
	name = copy;
	open = strchr(copy, '[');
	close = open ? strstr(open, "]=") : NULL;
	if (!close || open == copy || close == open + 1 || !close[2]) {
		err = shunt_fail(EINVAL, "'%s' is not of the form MAP[KEY]=VALUE", setting);
		goto out;
	}
	*open = 0;
	*close = 0;
	key = open + 1;
	map = shunt_bpf_find_map(object, name);
	err = map ? apply(map, key, close + 2) : shunt_fail(ENOENT, "no map '%s' in this object", name);
out:
	free(copy);
	return err;
}
