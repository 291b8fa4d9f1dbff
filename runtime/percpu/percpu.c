/* SPDX-License-Identifier: MIT */
/*
 * The per-CPU area: nr_cpus + 2 units of 1 << SHUNT_PERCPU_SHIFT bytes in one reservation, units -2 and -1 below CPU 0's. An object has
 * the same offset in every unit.
 *
 * Expected load: a few allocations a map or a program, some of them megabytes; so one mutex and a first fit over bins of free extents, all
 * bookkeeping out of band. Free memory is zero in every unit (scrubbed at free), so allocation never touches the pages: a unit whose CPU
 * never runs the program costs nothing. Pages become accessible from the bottom of the units up, the same prefix in all of them: two
 * mappings a unit, whatever happens.
 */
#include <shunt/percpu.h>

#include <errno.h>
#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/percpu/cpu.h"
#include "runtime/log.h"
#include "runtime/machine.h"
#include "runtime/pack/pack.h"
#include "runtime/percpu/percpu.h"

#define UNIT_SIZE ((uint64_t)1 << SHUNT_PERCPU_SHIFT)
#define FIRST_UNIT (-2)
#define MIN_ALIGN 8u
#define MAX_ALIGN 4096u
#define LINE 64u
#define GROW_STEP ((uint64_t)256 << 10)
#define NR_BINS (SHUNT_PERCPU_SHIFT + 1)

/* A piece of the unit's address range [0, top): free (in a bin) or in use (in the tree by offset). The list is in address order, without
 * holes, and no two free neighbours: that is what coalescing keeps. */
struct extent {
	struct extent *below, *above;
	struct extent *bin_prev, *bin_next;
	uint64_t offset;
	uint64_t size;
	bool is_free;
};

static pthread_mutex_t area_mutex = PTHREAD_MUTEX_INITIALIZER;
static char *unit0;            /* CPU 0's unit; NULL until reserved. Written once under the mutex */
static uint64_t accessible;    /* bytes from the bottom of each unit that are mapped read-write */
static uint64_t top;           /* bytes that extents cover */
static struct extent *highest; /* the extent that ends at top */
static struct extent *bins[NR_BINS];
static void *in_use; /* tsearch tree */

static int compare_offsets(const void *left, const void *right)
{
	uint64_t a = ((const struct extent *)left)->offset, b = ((const struct extent *)right)->offset;

	return a < b ? -1 : a > b;
}

static int bin_of(uint64_t size)
{
	return 63 - __builtin_clzll(size);
}

static void bin_add(struct extent *extent)
{
	struct extent **bin = &bins[bin_of(extent->size)];

	extent->is_free = true;
	extent->bin_prev = NULL;
	extent->bin_next = *bin;
	if (*bin)
		(*bin)->bin_prev = extent;
	*bin = extent;
}

static void bin_remove(struct extent *extent)
{
	if (extent->bin_prev)
		extent->bin_prev->bin_next = extent->bin_next;
	else
		bins[bin_of(extent->size)] = extent->bin_next;
	if (extent->bin_next)
		extent->bin_next->bin_prev = extent->bin_prev;
	extent->is_free = false;
}

static char *unit_at(int unit, uint64_t offset)
{
	return unit0 + ((int64_t)unit * (int64_t)UNIT_SIZE) + offset;
}

static void fork_prepare(void)
{
	pthread_mutex_lock(&area_mutex);
	shunt_percpu_lock_lists();
}

static void fork_done(void)
{
	shunt_percpu_unlock_lists();
	pthread_mutex_unlock(&area_mutex);
}

static struct shunt_fork_hooks fork_hooks = {.prepare = fork_prepare, .parent = fork_done, .child = fork_done};

static void register_hooks(void)
{
	shunt_fork_register(&fork_hooks);
}

static int reserve_area(void)
{
	uint64_t len = ((uint64_t)shunt_nr_cpus() - FIRST_UNIT) << SHUNT_PERCPU_SHIFT;
	char *area;

	if (unit0)
		return 0;
	area = mmap(shunt_machine_far_hint(len), len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (area == MAP_FAILED)
		return shunt_fail(ENOMEM,
				  "per-CPU area: no %llu GiB of address space (reserved, not used) for %u CPUs: %s; raise RLIMIT_AS (ulimit -v)",
				  (unsigned long long)(len >> 30), shunt_nr_cpus(), strerror(errno));
	unit0 = area - (int64_t)FIRST_UNIT * (int64_t)UNIT_SIZE;
	return 0;
}

/* Makes [0, end) accessible in every unit. After a failure some units may have more than `accessible`: harmless, the next call repeats. */
static int populate(uint64_t end)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), step = page > GROW_STEP ? page : GROW_STEP;
	uint64_t wanted = (end + step - 1) & ~(step - 1);

	if (end <= accessible)
		return 0;
	for (int unit = FIRST_UNIT; unit < (int)shunt_nr_cpus(); unit++) {
		if (mprotect(unit_at(unit, accessible), wanted - accessible, PROT_READ | PROT_WRITE))
			return shunt_fail(ENOMEM, "per-CPU area: the kernel refuses %llu more KiB a CPU: %s",
					  (unsigned long long)((wanted - accessible) >> 10), strerror(errno));
	}
	accessible = wanted;
	return 0;
}

static uint64_t align_up(uint64_t value, uint64_t align)
{
	return (value + align - 1) & ~(align - 1);
}

static struct extent *find_fit(uint64_t size, uint64_t align)
{
	for (int bin = bin_of(size); bin < NR_BINS; bin++) {
		for (struct extent *extent = bins[bin]; extent; extent = extent->bin_next) {
			if (align_up(extent->offset, align) + size <= extent->offset + extent->size)
				return extent;
		}
	}
	return NULL;
}

static struct extent *extend_top(uint64_t size, uint64_t align)
{
	uint64_t start = highest && highest->is_free ? highest->offset : top;
	uint64_t end = align_up(start, align) + size;
	struct extent *extent;

	/* Written so that a size near 2^64 cannot wrap. */
	if (size > UNIT_SIZE || end > UNIT_SIZE) {
		shunt_fail(ENOMEM, "per-CPU area: %llu bytes a CPU do not fit into what is left of a unit of %llu MiB",
			   (unsigned long long)size, (unsigned long long)(UNIT_SIZE >> 20));
		return NULL;
	}
	if (populate(end))
		return NULL;
	if (highest && highest->is_free) {
		bin_remove(highest);
		highest->size = end - highest->offset;
		bin_add(highest);
		top = end;
		return highest;
	}
	extent = calloc(1, sizeof(*extent));
	if (!extent) {
		shunt_fail(ENOMEM, "per-CPU area: no memory for bookkeeping");
		return NULL;
	}
	extent->offset = top;
	extent->size = end - top;
	extent->below = highest;
	if (highest)
		highest->above = extent;
	highest = extent;
	top = end;
	bin_add(extent);
	return extent;
}

/* Links piece, which takes [at, end of extent) away from the upper end of extent; both keep their state. */
static void cut(struct extent *extent, struct extent *piece, uint64_t at)
{
	piece->offset = at;
	piece->size = extent->offset + extent->size - at;
	extent->size = at - extent->offset;
	piece->below = extent;
	piece->above = extent->above;
	if (extent->above)
		extent->above->below = piece;
	else
		highest = piece;
	extent->above = piece;
}

/* Takes away extent, merging its range into the neighbour below. */
static void merge_into_below(struct extent *extent)
{
	struct extent *below = extent->below;

	below->size += extent->size;
	below->above = extent->above;
	if (extent->above)
		extent->above->below = below;
	else
		highest = below;
	free(extent);
}

static void give_back(struct extent *extent)
{
	if (extent->above && extent->above->is_free) {
		bin_remove(extent->above);
		merge_into_below(extent->above);
	}
	if (extent->below && extent->below->is_free) {
		struct extent *below = extent->below;

		bin_remove(below);
		merge_into_below(extent);
		extent = below;
	}
	bin_add(extent);
}

static int alloc_locked(uint64_t size, uint64_t align, void **out)
{
	struct extent *head = calloc(1, sizeof(*head)), *tail = calloc(1, sizeof(*tail)), *extent, *taken;
	uint64_t at;
	int err;

	/* Both possible cuts are provided for first, so that nothing can fail half way. */
	if (!head || !tail) {
		err = shunt_fail(ENOMEM, "per-CPU area: no memory for bookkeeping");
		goto out_free;
	}
	err = reserve_area();
	if (err)
		goto out_free;
	extent = find_fit(size, align);
	if (!extent)
		extent = extend_top(size, align);
	if (!extent) {
		err = -ENOMEM;
		goto out_free;
	}
	bin_remove(extent);
	at = align_up(extent->offset, align);
	taken = extent;
	if (at > extent->offset) {
		taken = head;
		head = NULL;
		cut(extent, taken, at);
		bin_add(extent);
	}
	if (taken->size > size) {
		cut(taken, tail, at + size);
		bin_add(tail);
		tail = NULL;
	}
	if (!tsearch(taken, &in_use, compare_offsets)) {
		give_back(taken);
		err = shunt_fail(ENOMEM, "per-CPU area: no memory for bookkeeping");
		goto out_free;
	}
	*out = unit0 + at;
out_free:
	free(head);
	free(tail);
	return err;
}

int shunt_percpu_alloc(size_t size, size_t align, void **out)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int err;

	if (!size)
		return shunt_fail(EINVAL, "per-CPU area: an object of 0 bytes");
	if (!align)
		align = MIN_ALIGN;
	if ((align & (align - 1)) || align > MAX_ALIGN)
		return shunt_fail(EINVAL, "per-CPU area: alignment %zu is not a power of two up to %u", align, MAX_ALIGN);
	if (align < MIN_ALIGN)
		align = MIN_ALIGN;
	if (size >= LINE && align < LINE)
		align = LINE;
	if (size > UNIT_SIZE)
		return shunt_fail(ENOMEM, "per-CPU area: %zu bytes a CPU exceed the unit of %llu MiB", size,
				  (unsigned long long)(UNIT_SIZE >> 20));
	pthread_once(&once, register_hooks);
	/* From here on the choice of the index source is made: units would be mixed up otherwise. */
	shunt_cpu_source();
	pthread_mutex_lock(&area_mutex);
	err = alloc_locked(align_up(size, MIN_ALIGN), align, out);
	pthread_mutex_unlock(&area_mutex);
	return err;
}

/* Zeroes words that are not: reading an untouched page maps the shared zero page, writing one would take memory on that CPU's behalf. */
static void zero_words(char *from, char *to)
{
	for (uint64_t *word = (uint64_t *)from; word < (uint64_t *)to; word++) {
		if (__atomic_load_n(word, __ATOMIC_RELAXED))
			__atomic_store_n(word, 0, __ATOMIC_RELAXED);
	}
}

static void scrub(char *from, char *to, uint64_t page)
{
	char *first_page = (char *)align_up((uint64_t)from, page), *end_page = (char *)((uint64_t)to & ~(page - 1));

	if (first_page < end_page && !madvise(first_page, (size_t)(end_page - first_page), MADV_DONTNEED)) {
		zero_words(from, first_page);
		zero_words(end_page, to);
		return;
	}
	/* No whole page, or pages locked in memory. */
	zero_words(from, to);
}

void shunt_percpu_free(void *p)
{
	struct extent key = {0}, *extent;
	struct extent *const *found;
	uint64_t page;

	if (!p)
		return;
	pthread_mutex_lock(&area_mutex);
	key.offset = (uint64_t)((char *)p - unit0);
	found = tfind(&key, &in_use, compare_offsets);
	extent = found ? *found : NULL;
	if (extent)
		tdelete(extent, &in_use, compare_offsets);
	pthread_mutex_unlock(&area_mutex);
	if (!extent) {
		shunt_logf(SHUNT_LOG_ERROR, "per-CPU area: free of %p, which is not the address of a live object", p);
		return;
	}
	/* Neither in the tree nor in a bin: ours alone, so the slow part needs no lock. */
	page = (uint64_t)sysconf(_SC_PAGESIZE);
	for (int unit = FIRST_UNIT; unit < (int)shunt_nr_cpus(); unit++)
		scrub(unit_at(unit, extent->offset), unit_at(unit, extent->offset + extent->size), page);
	pthread_mutex_lock(&area_mutex);
	give_back(extent);
	pthread_mutex_unlock(&area_mutex);
}

int shunt_percpu_image(const void *start, const void *stop, int64_t *delta)
{
	size_t len = (size_t)((const char *)stop - (const char *)start), align = (uintptr_t)start & -(uintptr_t)start;
	void *p;
	int err;

	/* Constructors of one image run one after the other. */
	if (*delta || !len)
		return 0;
	err = shunt_percpu_alloc(len, align > MAX_ALIGN ? MAX_ALIGN : align, &p);
	if (err) {
		shunt_logf(SHUNT_LOG_ERROR, "per-CPU globals of %zu bytes have no copies and cannot be used: %s", len, shunt_error());
		return err;
	}
	for (int unit = FIRST_UNIT; unit < (int)shunt_nr_cpus(); unit++)
		memcpy(shunt_cpu_copy(p, unit), start, len);
	*delta = (const char *)p - (const char *)start;
	return 0;
}

void *shunt_percpu_this(void *p)
{
	return shunt_cpu_this(p);
}

void *shunt_percpu_of(void *p, uint32_t cpu)
{
	return cpu < shunt_nr_cpus() ? shunt_cpu_copy(p, (int32_t)cpu) : NULL;
}

void *shunt_percpu_unregistered(void *p)
{
	return shunt_cpu_copy(p, -1);
}

uint64_t shunt_percpu_sum64(const void *p)
{
	uint64_t sum = 0;

	for (int32_t unit = FIRST_UNIT; unit < (int32_t)shunt_nr_cpus(); unit++)
		sum += __atomic_load_n((uint64_t *)shunt_cpu_copy((void *)(uintptr_t)p, unit), __ATOMIC_RELAXED);
	return sum;
}
