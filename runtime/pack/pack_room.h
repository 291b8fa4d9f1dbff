/* SPDX-License-Identifier: MIT */
/* Packs with room, ordered by their longest free run, so that an allocation looks at a pack or a few, never at all. */
#ifndef RUNTIME_PACK_ROOM_H
#define RUNTIME_PACK_ROOM_H

#include <stdint.h>

#define SHUNT_ROOM_CLASSES 73u

struct shunt_room_link {
	struct shunt_room_link *next;
	struct shunt_room_link **back; /* the pointer that points here; NULL: in no class */
	uint32_t longest;
};

struct shunt_room {
	struct shunt_room_link *classes[SHUNT_ROOM_CLASSES];
	uint64_t filled[2]; /* bits of classes that are not empty */
};

/* Puts link where longest says (0: nowhere). */
void shunt_room_place(struct shunt_room *room, struct shunt_room_link *link, uint32_t longest);

/* A pack with a run of nr chunks at least, from the tightest class that has one; or NULL. */
struct shunt_room_link *shunt_room_find(const struct shunt_room *room, uint32_t nr);

#endif
