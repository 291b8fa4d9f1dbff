/* SPDX-License-Identifier: MIT */
/*
 * Where an arena may lie. Direct branches must reach from any byte of the arena to any byte of the image it serves and back, so the
 * search knows both ends of both. Runs once an arena; reads /proc/self/maps without stdio, since it may be asked for early in a process.
 */
#include "runtime/pack/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/machine.h"
#include "runtime/pack/backing_sys.h"

#define TRIES_MAX 16
#define LOWEST_ADDR ((uintptr_t)1 << 20)
/* What the program break and the main stack are left to grow into. Where the break begins beside an image that is not position independent,
 * a branch of 128 MiB does not reach past all that room: then it gets less, and malloc goes on with mmap. */
#define HEAP_ROOM ((uintptr_t)256 << 20)
#define HEAP_ROOM_LITTLE ((uintptr_t)32 << 20)
#define STACK_ROOM ((uintptr_t)128 << 20)

struct range {
	uintptr_t start;
	uintptr_t end;
};

struct map_line {
	struct range range;
	uint64_t inode;
	unsigned dev_major;
	unsigned dev_minor;
	bool is_stack;
};

/* All of /proc/self/maps; the caller frees it. NULL with errno. */
static char *read_maps(void)
{
	int err;
	size_t room = 65536;
	size_t len = 0;
	char *text = malloc(room);
	int fd = shunt_sys.open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	ssize_t got = -1;

	while (fd >= 0 && text) {
		got = shunt_sys.read(fd, text + len, room - len - 1);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		len += (size_t)got;
		if (room - len < 4096) {
			char *more = realloc(text, room *= 2);

			if (!more) {
				got = -1;
				break;
			}
			text = more;
		}
	}
	err = errno;
	if (fd >= 0)
		shunt_sys.close(fd);
	if (got != 0) {
		free(text);
		errno = err;
		return NULL;
	}
	text[len] = '\0';
	return text;
}

static const char *parse_line(const char *text, struct map_line *line)
{
	const char *end = strchr(text, '\n');
	char name[16] = "";

	if (sscanf(text, "%" SCNxPTR "-%" SCNxPTR " %*s %*s %x:%x %" SCNu64 " %15[^\n]", &line->range.start, &line->range.end,
		   &line->dev_major, &line->dev_minor, &line->inode, name) < 5)
		return NULL;
	line->is_stack = !strncmp(name, "[stack", 6);
	return end ? end + 1 : text + strlen(text);
}

/* The image around addr: every mapping of its file, else the mapping, else the page. */
static struct range image_of(const char *maps, uintptr_t addr)
{
	uintptr_t mask = shunt_machine_page_size() - 1;
	struct range image = { addr & ~mask, (addr | mask) + ((addr | mask) != UINTPTR_MAX) };
	struct map_line home = { 0 };
	struct map_line line;
	const char *at = maps;

	while (*at && (at = parse_line(at, &line)))
		if (addr >= line.range.start && addr < line.range.end)
			home = line;
	if (!home.range.end)
		return image;
	image = home.range;
	for (at = maps; home.inode && *at && (at = parse_line(at, &line));)
		if (line.inode == home.inode && line.dev_major == home.dev_major && line.dev_minor == home.dev_minor) {
			image.start = line.range.start < image.start ? line.range.start : image.start;
			image.end = line.range.end > image.end ? line.range.end : image.end;
		}
	return image;
}

static uintptr_t distance(struct range image, uintptr_t base, size_t len)
{
	return base >= image.end ? base - image.end : image.start >= base + len ? image.start - base - len : 0;
}

/* Offers the best place for len bytes in a gap; keeps it in *best when it is nearer than what is there. */
static void offer(struct range gap, struct range image, size_t len, uint64_t reach, uintptr_t *best)
{
	uintptr_t mask = SHUNT_PACK_SIZE - 1;
	/* base + len - image.start <= reach and image.end - base <= reach */
	uintptr_t low = image.end > reach ? image.end - reach : 0;
	uintptr_t high = image.start + reach;
	uintptr_t base;

	if (low < gap.start)
		low = gap.start;
	if (high > gap.end || high < image.start)
		high = gap.end;
	if (low >= high) /* out of reach, and no end of the address space to round up beyond */
		return;
	low = (low + mask) & ~mask;
	if (low >= high || high - low < len)
		return;
	base = gap.start >= image.end ? low : (high - len) & ~mask;
	if (base < low)
		return;
	if (!*best || distance(image, base, len) < distance(image, *best, len))
		*best = base;
}

static uintptr_t find_base(const char *maps, struct range image, size_t len, uint64_t reach, uintptr_t heap_room)
{
	uintptr_t page_mask = shunt_machine_page_size() - 1;
	uintptr_t heap = ((uintptr_t)sbrk(0) + page_mask) & ~page_mask;
	struct range gap = { LOWEST_ADDR, 0 };
	uintptr_t best = 0;
	struct map_line line;
	const char *at = maps;

	/* The vsyscall page is among the kernel's addresses. */
	while (*at && (at = parse_line(at, &line)) && (intptr_t)line.range.start >= 0) {
		uintptr_t room = line.is_stack ? STACK_ROOM : 0;

		gap.end = line.range.start > room ? line.range.start - room : 0;
		/* The break grows through the gap that it lies in or at the beginning of. */
		if (heap >= gap.start && heap < line.range.start)
			gap.start = heap + heap_room;
		if (gap.start < gap.end)
			offer(gap, image, len, reach, &best);
		gap.start = line.range.end > LOWEST_ADDR ? line.range.end : LOWEST_ADDR;
	}
	/* Above the main stack, which is the last mapping, nothing may be had; qemu-user has the stack low and opens libraries above all else. */
	gap.end = INTPTR_MAX & ~page_mask;
	if (!best && gap.start < gap.end)
		offer(gap, image, len, reach, &best);
	return best;
}

int shunt_arena_range_reserve(const void *near_addr, size_t len, uint64_t reach, void **out, const char **step)
{
	for (int tries = 0; tries < TRIES_MAX; tries++) {
		char *maps = read_maps();
		struct range image;
		uintptr_t base;
		int err;

		*step = "reading /proc/self/maps";
		if (!maps)
			return -errno;
		*step = NULL;
		image = image_of(maps, (uintptr_t)near_addr);
		base = find_base(maps, image, len, reach, HEAP_ROOM);
		if (!base)
			base = find_base(maps, image, len, reach, HEAP_ROOM_LITTLE);
		free(maps);
		if (!base)
			return -ENOMEM;
		err = shunt_backing_reserve((void *)base, true, len, out);
		/* Another thread mapped something there since: look again. */
		if (err == -EEXIST)
			continue;
		*step = "reserving it";
		return err;
	}
	return -ENOMEM;
}
