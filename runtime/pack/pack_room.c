/* SPDX-License-Identifier: MIT */
/*
 * Classes of longest free runs: exact below 32 chunks (most programs), four to each doubling above. Tightest class first is best fit
 * as far as it pays: long runs stay whole for those who need them.
 */
#include "runtime/pack/pack_room.h"

#include <stddef.h>

/* Packs of the request's own class may be a little too short; so many are looked at before a longer class is taken. */
#define LOOK_MAX 8

static uint32_t class_of(uint32_t nr)
{
	uint32_t log2;

	if (nr < 32)
		return nr;
	log2 = 31 - (uint32_t)__builtin_clz(nr);
	return 32 + (log2 - 5) * 4 + (nr >> (log2 - 2) & 3);
}

void shunt_room_place(struct shunt_room *room, struct shunt_room_link *link, uint32_t longest)
{
	uint32_t to = class_of(longest);

	if (link->back) {
		uint32_t from = class_of(link->longest);

		if (from == to) {
			link->longest = longest;
			return;
		}
		*link->back = link->next;
		if (link->next)
			link->next->back = link->back;
		link->back = NULL;
		if (!room->classes[from])
			room->filled[from / 64] &= ~(UINT64_C(1) << from % 64);
	}
	link->longest = longest;
	if (!longest)
		return;
	link->next = room->classes[to];
	link->back = &room->classes[to];
	if (link->next)
		link->next->back = &link->next;
	room->classes[to] = link;
	room->filled[to / 64] |= UINT64_C(1) << to % 64;
}

static uint32_t next_filled(const struct shunt_room *room, uint32_t from)
{
	for (uint32_t word = from / 64; word < 2; word++) {
		uint64_t left = room->filled[word];

		if (word == from / 64)
			left &= ~UINT64_C(0) << from % 64;
		if (left)
			return word * 64 + (uint32_t)__builtin_ctzll(left);
	}
	return SHUNT_ROOM_CLASSES;
}

struct shunt_room_link *shunt_room_find(const struct shunt_room *room, uint32_t nr)
{
	uint32_t class = class_of(nr);
	struct shunt_room_link *link = room->classes[class];

	for (int looks = 0; link && looks < LOOK_MAX; link = link->next, looks++)
		if (link->longest >= nr)
			return link;
	class = next_filled(room, class + 1);
	return class < SHUNT_ROOM_CLASSES ? room->classes[class] : NULL;
}
