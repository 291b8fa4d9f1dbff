/* SPDX-License-Identifier: MIT */
/*
 * Stubs that host images define (SHUNT_DISPATCHER_DEFINE): how they become patchable without host text ever being writable.
 *
 * The image gives a stub a page of its own whose code works as linked: every call takes the fallback. On first use (the first
 * attach) we generate the same page for the same address in a pack and map that pack's rx view over the image's page. Threads
 * may be running through it meanwhile: the kernel replaces the mapping under the address space's lock, and both pages hold
 * the same instructions at the same offsets (SHUNT_DISPATCHER_LAYOUT names the layout, a test compares the bytes), so it does
 * not matter on which a thread is. The bytes are generated, never copied: a copy would take a debugger's breakpoint along.
 * From then on a patch is a store through the pack's rw view, as for every stub.
 *
 * Reach: trees live in the default arena when the whole of it is in direct reach of the page, else in an arena near the
 * image, shared by all its dispatchers.
 *
 * Unloading: a page may still be called after its destructor (other threads of a process that exits), and is gone after
 * dlclose. Its block is therefore kept until no loaded object covers the page, or until the same page is adopted again, by
 * the library loaded there anew (the block is mapped nowhere then) or by a dispatcher used after its destructor (the same
 * bytes are written again).
 */
#include "runtime/dispatch/dispatcher.h"

#include <errno.h>
#include <link.h>
#include <stdlib.h>

#include "runtime/dispatch/adopt.h"
#include "runtime/log.h"
#include "runtime/machine.h"
#include "runtime/pack/pack.h"

/* How far displacements inside the page and the arena's guard may eat into the reach. */
#define REACH_MARGIN (INT64_C(1) << 20)
/* shunt_pack_alloc's limit. */
#define BLOCK_ALIGN_MAX 4096u

struct image_arena {
	struct image_arena *next;
	struct shunt_arena *arena;
};

struct orphan {
	struct orphan *next;
	struct shunt_block block;
	struct shunt_block word; /* id 0: none */
	struct shunt_arena *arena;
	uint64_t page;
};

/* Guards the two lists; innermost of the module's locks. */
static pthread_mutex_t image_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct image_arena *image_arenas;
static struct orphan *orphans;
/* A stub page of the first image that registered one and is still loaded; NULL: none did. */
static const void *first_page;

const void *shunt_adopt_near_addr(void)
{
	return __atomic_load_n(&first_page, __ATOMIC_ACQUIRE);
}

void shunt_adopt_lock(void)
{
	pthread_mutex_lock(&image_mutex);
}

void shunt_adopt_unlock(void)
{
	pthread_mutex_unlock(&image_mutex);
}

static bool is_near(struct shunt_arena *arena, uint64_t page)
{
	struct shunt_pack_stats stats;
	int64_t reach = shunt_target_host()->branch_reach - REACH_MARGIN;
	int64_t first, last;

	if (shunt_pack_get_stats(arena, &stats) < 0)
		return false;
	first = (int64_t)((uint64_t)(uintptr_t)stats.arena_base - page);
	last = first + (int64_t)stats.arena_size;
	return first > -reach && first < reach && last > -reach && last < reach;
}

static int choose_arena(const struct shunt_dispatcher *d, struct shunt_arena **out)
{
	struct shunt_arena_options options = { .near_addr = (const void *)(uintptr_t)d->slot };
	struct image_arena *made;
	int err = 0;

	if (shunt_arena_default(out) == 0 && is_near(*out, d->slot))
		return 0;
	pthread_mutex_lock(&image_mutex);
	for (made = image_arenas; made; made = made->next) {
		if (is_near(made->arena, d->slot))
			goto out;
	}
	made = malloc(sizeof(*made));
	if (!made) {
		err = shunt_fail(ENOMEM, "dispatcher '%s': no memory for an arena beside its image", d->name);
		goto out;
	}
	err = shunt_arena_create(&options, &made->arena);
	if (err) {
		free(made);
		goto out;
	}
	made->next = image_arenas;
	image_arenas = made;
out:
	if (!err)
		*out = made->arena;
	pthread_mutex_unlock(&image_mutex);
	return err;
}

static int check_page(const struct shunt_dispatcher *d, size_t page_size)
{
	const struct shunt_dispatcher_record *record = d->record;
	const struct shunt_target *target = shunt_target_host();
	const char *page = record->page;
	const char *after_jump = page + SHUNT_DISPATCHER_JUMP_OFFSET + SHUNT_STUB_LEN;

	if (d->slot % page_size || record->page_len < page_size)
		return shunt_fail(EINVAL, "dispatcher '%s': its stub at %p does not have a %zu-byte page to itself, link the image "
				  "with that page size", d->name, record->page, page_size);
	/* Whatever else were there would be lost. Where code has one view, an earlier adoption of this page has left its jump. */
	if (!target->is_traps(page + SHUNT_DISPATCHER_PAGE_USED, SHUNT_DISPATCHER_JUMP_OFFSET - SHUNT_DISPATCHER_PAGE_USED) ||
	    !target->is_traps(after_jump, page_size - (size_t)(after_jump - page)))
		return shunt_fail(EINVAL, "dispatcher '%s': other code shares the page of its stub at %p, keep section "
				  ".shunt.stubs as it is when linking", d->name, record->page);
	return 0;
}

/*
 * A block that is a page of this machine, aligned as one. Packs align blocks to 4 KiB at most; where pages are larger (arm64
 * with 16 or 64 KiB) we take an empty pack, which begins aligned, and give all but the first page back.
 */
static int alloc_page(struct shunt_dispatcher *d, size_t page_size)
{
	int err;

	if (page_size <= BLOCK_ALIGN_MAX)
		return shunt_pack_alloc(d->arena, SHUNT_SEGMENT_CODE, page_size, page_size, &d->stub);
	err = shunt_pack_alloc(d->arena, SHUNT_SEGMENT_CODE, SHUNT_PACK_SIZE, 0, &d->stub);
	if (err)
		return err;
	err = shunt_pack_shrink(&d->stub, page_size);
	if (err)
		shunt_pack_abandon(&d->stub);
	return err;
}

/* Without memory for the note the block stays allocated, which is harmless. */
static void keep_orphan(const struct shunt_dispatcher *d)
{
	struct orphan *orphan = malloc(sizeof(*orphan));

	if (!orphan)
		return;
	*orphan = (struct orphan){ .block = d->stub, .word = d->word, .arena = d->arena, .page = d->slot };
	pthread_mutex_lock(&image_mutex);
	orphan->next = orphans;
	orphans = orphan;
	pthread_mutex_unlock(&image_mutex);
}

/* The block that an earlier dispatcher had for the same page. */
static bool take_orphan(struct shunt_dispatcher *d)
{
	struct orphan *orphan = NULL;

	pthread_mutex_lock(&image_mutex);
	for (struct orphan **link = &orphans; *link; link = &(*link)->next) {
		if ((*link)->page == d->slot) {
			orphan = *link;
			*link = orphan->next;
			break;
		}
	}
	pthread_mutex_unlock(&image_mutex);
	if (!orphan)
		return false;
	d->stub = orphan->block;
	d->word = orphan->word;
	d->arena = orphan->arena;
	free(orphan);
	return true;
}

static void free_stub(const struct shunt_block *stub, const struct shunt_block *word)
{
	shunt_pack_free(stub);
	if (word->id)
		shunt_pack_free(word);
}

/* A block of d's own for its page, in an arena that it reaches. */
static int make_page(struct shunt_dispatcher *d, size_t page_size)
{
	int err = d->arena ? 0 : choose_arena(d, &d->arena);

	if (!err)
		err = alloc_page(d, page_size);
	if (err)
		return err;
	err = shunt_dispatcher_make_word(d);
	if (err)
		shunt_pack_abandon(&d->stub);
	return err;
}

static int adopt(struct shunt_dispatcher *d)
{
	size_t page_size = shunt_machine_page_size();
	struct shunt_block old_stub = { 0 }, old_word = { 0 };
	bool was_orphan;
	uint32_t idle_len;
	int err = check_page(d, page_size);

	if (err)
		return err;
	was_orphan = take_orphan(d);
	/* Where code has one view it cannot be written again: the page and its word are made anew, and the old go after that. */
	if (was_orphan && d->word.id) {
		old_stub = d->stub;
		old_word = d->word;
	}
	err = was_orphan && !old_stub.id ? 0 : make_page(d, page_size);
	if (!err) {
		err = shunt_dispatcher_emit_stub(d, d->stub.rw, d->stub.len, d->slot, (int)d->record->nr_args, &idle_len);
		if (!err)
			err = shunt_pack_finalize(&d->stub, 1);
		if (!err)
			err = shunt_pack_page_dup(&d->stub, (void *)(uintptr_t)d->slot);
		if (err && (!was_orphan || old_stub.id)) {
			shunt_pack_abandon(&d->stub);
			if (d->word.id)
				shunt_pack_abandon(&d->word);
		}
	}
	if (err) {
		if (old_stub.id) {
			d->stub = old_stub;
			d->word = old_word;
		}
		if (was_orphan)
			keep_orphan(d);
		d->stub.id = 0;
		d->word.id = 0;
		return err;
	}
	if (old_stub.id)
		free_stub(&old_stub, &old_word);
	return shunt_dispatcher_set_ready(d, idle_len);
}

int shunt_dispatcher_adopt(struct shunt_dispatcher *dispatcher)
{
	int err;

	if (dispatcher->is_ready)
		return 0;
	err = adopt(dispatcher);
	if (err)
		return shunt_fail(-err, "dispatcher '%s' cannot be patched, its calls stay indirect: %s", dispatcher->name,
				  shunt_error());
	return 0;
}

struct covers {
	uint64_t addr;
	bool found;
};

static int covers_addr(struct dl_phdr_info *info, size_t size, void *data)
{
	struct covers *covers = data;

	(void)size;
	for (unsigned int i = 0; i < info->dlpi_phnum && !covers->found; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];

		covers->found = segment->p_type == PT_LOAD &&
				covers->addr - (info->dlpi_addr + segment->p_vaddr) < segment->p_memsz;
	}
	return covers->found;
}

/* Frees the pages of images that were unloaded. */
static void sweep_orphans(void)
{
	pthread_mutex_lock(&image_mutex);
	for (struct orphan **link = &orphans; *link;) {
		struct orphan *orphan = *link;
		struct covers covers = { .addr = orphan->page };

		dl_iterate_phdr(covers_addr, &covers);
		if (covers.found) {
			link = &orphan->next;
			continue;
		}
		*link = orphan->next;
		free_stub(&orphan->block, &orphan->word);
		free(orphan);
	}
	pthread_mutex_unlock(&image_mutex);
}

int shunt_dispatcher_enrol(struct shunt_dispatcher *d, struct shunt_dispatcher_record *record)
{
	const void *none = NULL;
	int err;

	sweep_orphans();
	d->record = record;
	d->slot = (uint64_t)(uintptr_t)record->page;
	d->idle_len = SHUNT_DISPATCHER_PAGE_USED - SHUNT_DISPATCHER_IDLE_OFFSET;
	err = shunt_dispatcher_enter(d, record->name);
	if (err) {
		shunt_dispatcher_delete(d);
		/* Another thread was faster with the same record. */
		return __atomic_load_n(&record->dispatcher, __ATOMIC_ACQUIRE) ? 0 : err;
	}
	__atomic_compare_exchange_n(&first_page, &none, record->page, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
	return 0;
}

int shunt_dispatcher_register(struct shunt_dispatcher_record *record)
{
	struct shunt_dispatcher *d;

	if (record->layout != SHUNT_DISPATCHER_LAYOUT || record->nr_args > shunt_target_host()->max_c_args)
		return shunt_fail(EINVAL, "dispatcher '%s': stub layout %u for %u arguments is not known here, build the image "
				  "with this library's headers", record->name, record->layout, record->nr_args);
	if (__atomic_load_n(&record->dispatcher, __ATOMIC_ACQUIRE))
		return 0;
	d = shunt_dispatcher_new(NULL);
	if (!d)
		return shunt_fail(ENOMEM, "no memory for dispatcher '%s'", record->name);
	return shunt_dispatcher_enrol(d, record);
}

struct shunt_dispatcher *shunt_dispatcher_of(struct shunt_dispatcher_record *record)
{
	struct shunt_dispatcher *d = __atomic_load_n(&record->dispatcher, __ATOMIC_ACQUIRE);

	if (!d && shunt_dispatcher_register(record) == 0)
		d = __atomic_load_n(&record->dispatcher, __ATOMIC_ACQUIRE);
	return d;
}

void shunt_dispatcher_unregister(struct shunt_dispatcher_record *record)
{
	struct shunt_dispatcher *d = __atomic_load_n(&record->dispatcher, __ATOMIC_ACQUIRE);

	const void *page = record->page;

	if (!d)
		return;
	__atomic_compare_exchange_n(&first_page, &page, NULL, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
	shunt_dispatcher_leave(d);
	pthread_mutex_lock(&d->mutex);
	if (d->is_ready) {
		/* On failure the stub keeps its tree, which then is never freed. */
		shunt_dispatcher_clear(d);
		shunt_pack_page_undup((void *)(uintptr_t)d->slot);
		keep_orphan(d);
	}
	pthread_mutex_unlock(&d->mutex);
	shunt_dispatcher_delete(d);
}
