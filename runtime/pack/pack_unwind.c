/* SPDX-License-Identifier: MIT */
/*
 * Unwind tables of blocks, and the process's unwinder, libgcc's, which exceptions and backtraces go through.
 *
 * Up to GCC 12 libgcc keeps registered tables in a list under a lock: at 10,000 of them every frame that an exception passes costs a walk
 * of 7 us, and the first exception 71 ms. So the blocks of a region of a pack share one registration, an array of their sections, which a
 * longer or a shorter one replaces. Regions are small enough for that to be cheap, and for sorting it at the next exception; large enough
 * for the list to be short. The list is searched such that the newcomer may be there before the old one goes, so no frame is ever without
 * its table. From GCC 13 on it is a tree that is read without a lock: many
 * registrations cost nothing, and one that somebody may be reading must not be taken away. There every block has its own. Which of
 * the two this process has is found out by asking it.
 *
 *	unwind_lock  guards everything here. Always taken inside the lock of the blocks' arena, so that a fork, which takes those, finds it
 *	             free; inside it: the unwinder's lock, malloc's, the grace queue's
 */
#include "runtime/pack/pack_unwind.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <shunt/pack.h>

#include "runtime/grace.h"
#include "runtime/log.h"
#include "runtime/pack/arena.h"
#include "runtime/pack/eh_frame.h"

/* libgcc's, which no header declares. `object` is its memory for as long as the table is registered; 7 words are used of it. */
#define UNWINDER_WORDS 16
struct unwinder_bases {
	void *text, *data, *function;
};
void __register_frame_info(const void *section, void *object);
__attribute__((weak)) void __register_frame_info_table(void *sections, void *object);
void *__deregister_frame_info(const void *begin);
__attribute__((weak)) const void *_Unwind_Find_FDE(void *pc, struct unwinder_bases *bases);

struct record {
	const void *rx;
	const void *section;
	size_t len;
	void *own;    /* section, when it was made here */
	void *object; /* the unwinder's, where every block has its own */
	bool gone;
};

/* What the unwinder knows of a region. A thread that it found a frame for looks into `object` without a lock once more, so that lives until the
 * grace period after it was taken away. */
struct registration {
	struct shunt_grace_item grace;
	void *object[UNWINDER_WORDS];
	const void **sections; /* ends with NULL */
};

/* Of the blocks that begin in a region. Blocks do not overlap, so ranges of tables do not either, which the unwinder relies on. */
struct table {
	struct table *next;
	uintptr_t region;
	struct record *records; /* by rx */
	size_t nr, nr_gone, max;
	struct registration *registration;
	bool changed;
};

#define REGION_SIZE (SHUNT_PACK_SIZE / 8)
#define NR_BUCKETS 1024u

static pthread_mutex_t unwind_lock = PTHREAD_MUTEX_INITIALIZER;
static struct table *buckets[NR_BUCKETS]; /* by region */
static size_t nr_records; /* atomic */
static enum { UNWINDER_UNKNOWN, UNWINDER_NONE, UNWINDER_LIST, UNWINDER_TREE } unwinder;

/* ---- the unwinder ---------------------------------------------------------------------------------------------- */

/* Tables for bytes that nobody runs: one of [16, 32), one of [0, 8) and [40, 48). A list looks for 41 among what it has not seen before, and
 * once it has, stops at the table that begins last before 41. A tree looks at the range that ends first after it, twice the same. */
static void ask_unwinder(void)
{
	static char ground[48];
	static void *objects[2][UNWINDER_WORDS];
	uintptr_t base = (uintptr_t)ground;
	size_t inner_len, low_len, high_len;
	char *inner = shunt_eh_frame_make(base + 16, 16, "", 0, &inner_len);
	char *low = shunt_eh_frame_make(base, 8, "", 0, &low_len);
	char *high = shunt_eh_frame_make(base + 40, 8, "", 0, &high_len);
	char *outer = inner && low && high ? malloc(low_len + high_len) : NULL;
	struct unwinder_bases bases;
	bool first, second;

	unwinder = __register_frame_info_table && _Unwind_Find_FDE ? UNWINDER_TREE : UNWINDER_NONE;
	if (outer && unwinder != UNWINDER_NONE) {
		/* Without the zero word between them. */
		memcpy(outer, low, low_len - 4);
		memcpy(outer + low_len - 4, high, high_len);
		__register_frame_info(inner, objects[0]);
		_Unwind_Find_FDE(ground + 17, &bases);
		__register_frame_info(outer, objects[1]);
		first = _Unwind_Find_FDE(ground + 41, &bases) != NULL;
		second = _Unwind_Find_FDE(ground + 41, &bases) != NULL;
		__deregister_frame_info(outer);
		__deregister_frame_info(inner);
		if (first && !second)
			unwinder = UNWINDER_LIST;
	}
	free(outer);
	free(high);
	free(low);
	free(inner);
}

static void release_registration(struct shunt_grace_item *item)
{
	free(item);
}

static void unregister(struct registration *registration)
{
	if (!registration)
		return;
	__deregister_frame_info(registration->sections);
	free(registration->sections);
	registration->grace.release = release_registration;
	shunt_grace_defer(&registration->grace);
}

#define MORE_SECTIONS 2 /* in an array, than there are records */

/* Live records' sections in an array that ends with NULL. It begins with an empty one: libgcc reads the first four bytes of what it is to
 * forget, here a pointer's low half, and takes 0 for an empty section that it never knew. */
static void list_sections(const struct table *table, const void **sections)
{
	static const uint32_t empty[2];
	size_t nr = 0;

	sections[nr++] = &empty[(uint32_t)(uintptr_t)&empty[0] ? 0 : 1];
	for (size_t i = 0; i < table->nr; i++)
		if (!table->records[i].gone)
			sections[nr++] = table->records[i].section;
	sections[nr] = NULL;
}

/* One registration for the live records, in the place of the one before. -ENOMEM: nothing was changed. */
static int register_all(struct table *table)
{
	struct registration *old = table->registration, *registration = NULL;
	size_t nr = table->nr - table->nr_gone;

	if (nr) {
		registration = calloc(1, sizeof(*registration));
		if (registration)
			registration->sections = malloc((nr + MORE_SECTIONS) * sizeof(*registration->sections));
		if (!registration || !registration->sections) {
			free(registration);
			return -ENOMEM;
		}
		list_sections(table, registration->sections);
		__register_frame_info_table(registration->sections, registration->object);
	}
	table->registration = registration;
	unregister(old);
	return 0;
}

/* The same for dead records where there is no memory for another array. A thread that unwinds through this pack just now may miss its frame;
 * tables of code that is gone would be worse. */
static void register_in_place(struct table *table)
{
	struct registration *registration = table->registration;

	__deregister_frame_info(registration->sections);
	memset(registration->object, 0, sizeof(registration->object));
	list_sections(table, registration->sections);
	__register_frame_info_table(registration->sections, registration->object);
}

/* ---- tables ---------------------------------------------------------------------------------------------------- */

static struct table **link_to(const void *rx)
{
	uintptr_t region = (uintptr_t)rx / REGION_SIZE;
	struct table **link = &buckets[region % NR_BUCKETS];

	while (*link && (*link)->region != region)
		link = &(*link)->next;
	return link;
}

/* Of the first record at or above rx. */
static size_t index_of(const struct table *table, const void *rx)
{
	size_t low = 0, high = table->nr;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if ((uintptr_t)table->records[middle].rx < (uintptr_t)rx)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static struct record *find(const struct table *table, const void *rx)
{
	size_t index = table ? index_of(table, rx) : 0;

	return table && index < table->nr && table->records[index].rx == rx ? &table->records[index] : NULL;
}

static void drop_record(struct record *record)
{
	if (record->object) {
		__deregister_frame_info(record->section);
		free(record->object);
	}
	free(record->own);
	__atomic_fetch_sub(&nr_records, 1, __ATOMIC_RELAXED);
}

/* Takes out what is gone, the registration being without it. */
static void sweep(struct table *table)
{
	size_t kept = 0;

	table->changed = false;
	if (!table->nr_gone)
		return;
	for (size_t i = 0; i < table->nr; i++) {
		if (table->records[i].gone)
			drop_record(&table->records[i]);
		else
			table->records[kept++] = table->records[i];
	}
	table->nr = kept;
	table->nr_gone = 0;
}

static int add_record(struct table *table, const struct record *record)
{
	size_t index = index_of(table, record->rx);

	if (table->nr == table->max) {
		size_t max = table->max ? 2 * table->max : 4;
		struct record *records = realloc(table->records, max * sizeof(*records));

		if (!records)
			return -ENOMEM;
		table->records = records;
		table->max = max;
	}
	memmove(&table->records[index + 1], &table->records[index], (table->nr++ - index) * sizeof(*record));
	table->records[index] = *record;
	if (unwinder == UNWINDER_TREE) {
		table->records[index].object = calloc(UNWINDER_WORDS, sizeof(void *));
		if (!table->records[index].object) {
			memmove(&table->records[index], &table->records[index + 1], (--table->nr - index) * sizeof(*record));
			return -ENOMEM;
		}
		__register_frame_info(record->section, table->records[index].object);
	}
	table->changed = true;
	__atomic_fetch_add(&nr_records, 1, __ATOMIC_RELAXED);
	return 0;
}

/* A table that has nothing left goes. */
static void forget_empty(struct table **link)
{
	struct table *table = *link;

	if (table->nr)
		return;
	*link = table->next;
	free(table->records);
	free(table);
}

bool shunt_unwind_is_used(void)
{
	return __atomic_load_n(&nr_records, __ATOMIC_RELAXED) != 0;
}

void shunt_unwind_forget(const void *rx)
{
	struct table *table;
	struct record *record;

	pthread_mutex_lock(&unwind_lock);
	table = *link_to(rx);
	record = find(table, rx);
	if (record && !record->gone) {
		record->gone = table->changed = true;
		table->nr_gone++;
	}
	pthread_mutex_unlock(&unwind_lock);
}

/* Makes the unwinder know what the table of rx's region has by now. -ENOMEM, only when may_fail: it knows what it knew. */
static int settle(const void *rx, bool may_fail)
{
	struct table **link;
	int err = 0;

	pthread_mutex_lock(&unwind_lock);
	link = link_to(rx);
	if (*link && (*link)->changed) {
		if (unwinder == UNWINDER_LIST)
			err = register_all(*link);
		if (err && !may_fail) {
			register_in_place(*link);
			err = 0;
		}
		if (!err) {
			sweep(*link);
			forget_empty(link);
		}
	}
	pthread_mutex_unlock(&unwind_lock);
	return err;
}

void shunt_unwind_settle(const void *pack_rx)
{
	for (size_t offset = 0; offset < SHUNT_PACK_SIZE; offset += REGION_SIZE)
		settle((const char *)pack_rx + offset, false);
}

const void *shunt_unwind_section(const void *rx, size_t *len)
{
	struct record *record;
	const void *section;

	pthread_mutex_lock(&unwind_lock);
	record = find(*link_to(rx), rx);
	section = record ? record->section : NULL;
	*len = record ? record->len : 0;
	pthread_mutex_unlock(&unwind_lock);
	return section;
}

/* ---- what users call ------------------------------------------------------------------------------------------- */

/* The table of rx's region, made where there is none. */
static struct table *table_of(const void *rx)
{
	struct table **link = link_to(rx);

	if (!*link) {
		*link = calloc(1, sizeof(**link));
		if (*link)
			(*link)->region = (uintptr_t)rx / REGION_SIZE;
	}
	return *link;
}

/* Under unwind_lock. 0, -ENOMEM, or -EEXIST. */
static int add_under_lock(const struct record *record)
{
	struct table *table = table_of(record->rx);
	int err = table ? 0 : -ENOMEM;

	if (table && find(table, record->rx))
		err = -EEXIST;
	if (!err)
		err = add_record(table, record);
	if (table)
		forget_empty(link_to(record->rx));
	return err;
}

/* Records one table, which the unwinder is yet to be told about. */
static int add_one(const struct shunt_unwind *info, const struct shunt_pack *pack)
{
	struct record record = { .rx = info->block->rx, .section = info->eh_frame, .len = info->eh_frame_len };
	const char *why = NULL;
	int err;

	if (pack->segment != SHUNT_SEGMENT_CODE)
		return shunt_fail(EINVAL, "unwind table: block %p holds no code", record.rx);
	if (info->eh_frame)
		why = shunt_eh_frame_check(record.section, record.len, (uintptr_t)record.rx, info->block->len);
	if (why)
		return shunt_fail(EINVAL, "unwind table of block %p %s", record.rx, why);
	if (!info->eh_frame)
		record.section = record.own = shunt_eh_frame_make((uintptr_t)record.rx, info->block->len, info->cfi, info->cfi_len, &record.len);
	if (!record.section)
		return shunt_fail(ENOMEM, "unwind table of block %p: out of memory", record.rx);
	pthread_mutex_lock(&unwind_lock);
	if (unwinder == UNWINDER_UNKNOWN)
		ask_unwinder();
	err = unwinder == UNWINDER_NONE ? -ENOTSUP : add_under_lock(&record);
	pthread_mutex_unlock(&unwind_lock);
	if (!err)
		return 0;
	free(record.own);
	if (err == -EEXIST)
		return shunt_fail(EINVAL, "unwind table of block %p: it has one already", record.rx);
	return shunt_fail(-err, "unwind table of block %p: %s", record.rx,
			  err == -ENOTSUP ? "this process's unwinder is not libgcc's, and has no way to add tables" : "out of memory");
}

enum step { ADD, TELL, UNDO };

static int take_step(const struct shunt_unwind *info, enum step step)
{
	struct shunt_pack_ref ref;
	int err = shunt_pack_lock_block("unwind table", info->block, false, &ref);

	if (err)
		return err;
	if (step == ADD) {
		err = add_one(info, ref.pack);
	} else if (step == TELL) {
		if (settle(info->block->rx, true) != 0)
			err = shunt_fail(ENOMEM, "unwind table of block %p: out of memory", info->block->rx);
	} else {
		shunt_unwind_forget(info->block->rx);
		settle(info->block->rx, false);
	}
	pthread_mutex_unlock(&ref.arena->lock);
	return err;
}

int shunt_pack_set_unwind(const struct shunt_unwind *infos, size_t nr)
{
	size_t added = 0;
	int err = 0;

	while (added < nr && !err) {
		err = take_step(&infos[added], ADD);
		added += !err;
	}
	/* The first of a region tells of all that are in it. */
	for (size_t i = 0; i < nr && !err; i++)
		err = take_step(&infos[i], TELL);
	if (err)
		while (added > 0)
			take_step(&infos[--added], UNDO);
	return err;
}
