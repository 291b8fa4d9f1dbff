/* SPDX-License-Identifier: MIT */
/* Map contents as a person writes them: MAP[KEY]=VALUE. */
#ifndef LIB_REPLAY_SETTING_H
#define LIB_REPLAY_SETTING_H

#include <stddef.h>

struct shunt_map;
struct shunt_bpf_object;

/*
 * Applies "MAP[KEY]=VALUE" to the map of that name in object. A per-CPU map gets the value on every CPU. KEY and VALUE are filled up with
 * zero bytes to the map's size, and are one of
 *   123, 0x7f, -1          an integer in this machine's byte order
 *   port:53                a 16-bit integer in network byte order
 *   192.0.2.1              an IPv4 address       192.0.2.0/24    an LPM trie's key
 *   2001:db8::1            an IPv6 address       2001:db8::/32   an LPM trie's key
 *   02:00:00:00:00:01      a MAC address
 *   hex:00ff12             bytes
 * -EINVAL: not of this form, or too long for the map; -ENOENT: the object has no such map; else as shunt_map_host_update.
 */
int shunt_replay_set(struct shunt_bpf_object *object, const char *setting);

/* Parses one KEY or VALUE into size bytes at out. what names it in errors. */
int shunt_replay_parse_bytes(const char *text, const char *what, void *out, size_t size);

#endif
