/* SPDX-License-Identifier: MIT */
/* Unwind tables of blocks: which are refused, and how long the process's unwinder knows those that are not. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <shunt/log.h>
#include <shunt/pack.h>
#include <shunt/reader.h>

#include "runtime/grace.h"
#include "runtime/pack/eh_frame.h"
#include "runtime/pack/pack_unwind.h"
#include "test/unit/pack_check.h"
#include "test/unit/pack_test.h"

struct bases {
	void *text, *data, *function;
};
const void *_Unwind_Find_FDE(void *pc, struct bases *bases); /* libgcc's */

static bool is_known(const void *rx)
{
	struct bases bases;

	return _Unwind_Find_FDE((char *)(uintptr_t)rx + 1, &bases) != NULL;
}

static struct shunt_arena *make_arena(void)
{
	struct shunt_arena_options options = { .size = 8 << 20 };
	struct shunt_arena *arena = NULL;

	cr_assert_eq(shunt_arena_create(&options, &arena), 0, "%s", shunt_error());
	return arena;
}

static int set_made(const struct shunt_block *block)
{
	struct shunt_unwind info = { .block = block };

	return shunt_pack_set_unwind(&info, 1);
}

static int set_section(const struct shunt_block *block, const void *section, size_t len)
{
	struct shunt_unwind info = { .block = block, .eh_frame = section, .eh_frame_len = len };

	return shunt_pack_set_unwind(&info, 1);
}

Test(pack_unwind, a_damaged_table_is_refused_wherever_it_is_damaged)
{
	struct shunt_arena *arena = make_arena();
	struct shunt_block block;
	size_t len, nr_refused = 0;
	unsigned char *section, *copy;

	cr_assert(make_tiny(arena, 1, &block));
	section = shunt_eh_frame_make((uintptr_t)block.rx, block.len, NULL, 0, &len);
	cr_assert_not_null(section);
	cr_assert_null(shunt_eh_frame_check(section, len, (uintptr_t)block.rx, block.len));
	for (size_t shorter = 0; shorter < len; shorter++) {
		/* Of exactly that size, so that the address sanitizer sees what is read behind it. */
		copy = malloc(shorter ? shorter : 1);
		memcpy(copy, section, shorter);
		cr_assert_not_null(shunt_eh_frame_check(copy, shorter, (uintptr_t)block.rx, block.len), "%zu of %zu bytes", shorter, len);
		free(copy);
	}
	copy = malloc(len);
	for (size_t at = 0; at < len; at++)
		for (unsigned bit = 0; bit < 8; bit++) {
			memcpy(copy, section, len);
			copy[at] ^= (unsigned char)(1 << bit);
			nr_refused += shunt_eh_frame_check(copy, len, (uintptr_t)block.rx, block.len) != NULL;
		}
	cr_assert(nr_refused > 150, "of %zu flipped bits only %zu were refused", len * 8, nr_refused);
	memcpy(copy, section, len);
	memset(copy, 0, 4);
	cr_assert_eq(set_section(&block, copy, len), -EINVAL, "an empty table was taken");
	free(copy);
	cr_assert_eq(set_section(&block, section, len), 0, "%s", shunt_error());
	cr_assert_eq(shunt_pack_free(&block), 0);
	cr_assert_eq(shunt_quiesce(), 0);
	free(section);
	cr_assert_eq(shunt_arena_destroy(arena), 0);
}

Test(pack_unwind, a_table_for_code_outside_the_block_is_refused)
{
	struct shunt_arena *arena = make_arena();
	struct shunt_block block;
	static const struct {
		long begin, len;
	} cases[] = { { -1, 0 }, { 0, 1 }, { 1, 0 }, { -64, -64 }, { 64, 0 }, { 1, -2 }, { 0, 1L << 40 } };
	size_t len;

	cr_assert(make_tiny(arena, 1, &block));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		void *section = shunt_eh_frame_make((uintptr_t)block.rx + (uintptr_t)cases[i].begin, block.len + (size_t)cases[i].len, "", 0, &len);

		cr_assert_eq(set_section(&block, section, len), i == 5 ? 0 : -EINVAL, "case %zu", i);
		if (i == 5) /* inside */
			cr_assert(is_known((char *)block.rx + 1));
		if (i == 5) {
			cr_assert_eq(shunt_pack_abandon(&block), 0);
			cr_assert(!is_known((char *)block.rx + 1));
			cr_assert(make_tiny(arena, 1, &block));
		}
		free(section);
	}
}

Test(pack_unwind, stale_foreign_and_data_blocks_are_refused_and_a_second_table)
{
	struct shunt_arena *arena = make_arena();
	struct shunt_block block, data, foreign = { .rx = &foreign, .rw = &foreign, .len = 64, .id = 1 };

	cr_assert(make_tiny(arena, 1, &block));
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_RODATA, 64, 0, &data), 0);
	cr_assert_eq(set_made(&foreign), -EINVAL);
	cr_assert_eq(set_made(&data), -EINVAL);
	cr_assert_eq(set_made(&block), 0, "%s", shunt_error());
	cr_assert_eq(set_made(&block), -EINVAL);
	cr_assert_eq(shunt_pack_free(&block), 0);
	cr_assert_eq(set_made(&block), -EINVAL);
}

Test(pack_unwind, many_at_once_are_all_or_none)
{
	struct shunt_arena *arena = make_arena();
	struct shunt_block blocks[50];
	struct shunt_unwind infos[51];

	for (unsigned i = 0; i < 50; i++) {
		cr_assert(make_tiny(arena, i, &blocks[i]));
		infos[i] = (struct shunt_unwind){ .block = &blocks[i] };
	}
	infos[50] = infos[3];
	cr_assert_eq(shunt_pack_set_unwind(infos, 51), -EINVAL, "the same block twice");
	for (unsigned i = 0; i < 50; i++)
		cr_assert(!is_known(blocks[i].rx), "block %u", i);
	cr_assert_eq(shunt_pack_set_unwind(infos, 50), 0, "%s", shunt_error());
	for (unsigned i = 0; i < 50; i++)
		cr_assert(is_known(blocks[i].rx), "block %u", i);
}

Test(pack_unwind, the_unwinder_knows_a_table_until_the_grace_period_is_over_and_not_after)
{
	struct shunt_arena *arena = make_arena();
	struct shunt_block left, freed, section;
	size_t len;
	void *made;

	cr_assert(make_tiny(arena, 1, &left));
	cr_assert(make_tiny(arena, 2, &freed));
	made = shunt_eh_frame_make((uintptr_t)freed.rx, freed.len, NULL, 0, &len);
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_RODATA, len, 0, &section), 0);
	memcpy(section.rw, made, len);
	free(made);
	cr_assert_eq(set_made(&left), 0, "%s", shunt_error());
	cr_assert_eq(set_section(&freed, section.rx, len), 0, "%s", shunt_error());
	shunt_read_begin();
	cr_assert_eq(shunt_pack_free(&freed), 0);
	cr_assert_eq(shunt_pack_free(&section), 0);
	usleep(100000); /* what waits for readers begins after 10 ms */
	cr_assert(is_known(freed.rx), "a reader could be unwinding through it");
	shunt_read_end();
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert(!is_known(freed.rx));
	cr_assert(is_known(left.rx));
	cr_assert_eq(shunt_pack_free(&left), 0);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert(!is_known(left.rx));
	cr_assert_eq(shunt_arena_destroy(arena), 0);
}

/* Looks, on the reclaiming thread, at a table when its pack's turn has come and its code's has not. */
static struct look {
	struct shunt_grace_item grace; /* first */
	const unsigned char *table;
	bool was_whole;
} look;

static void look_now(struct shunt_grace_item *item)
{
	look.was_whole = look.table[0] != 0;
}

static void looked(struct shunt_grace_item *item)
{
}

Test(pack_unwind, a_table_in_memory_that_is_freed_after_its_code_is_whole_until_it_is_forgotten)
{
	struct shunt_arena *arena = make_arena();
	struct shunt_block code, section, other, before;
	size_t len;
	void *made;

	cr_assert(make_tiny(arena, 1, &code));
	cr_assert(make_tiny(arena, 2, &other));
	made = shunt_eh_frame_make((uintptr_t)code.rx, code.len, NULL, 0, &len);
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_RODATA, 64, 0, &before), 0);
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_RODATA, len, 0, &section), 0);
	memcpy(section.rw, made, len);
	free(made);
	cr_assert_eq(set_section(&code, section.rx, len), 0, "%s", shunt_error());
	cr_assert_eq(set_made(&other), 0, "%s", shunt_error());
	cr_assert(is_known(code.rx));
	/* The read-only pack is before the code's in the queue, and we are between them. */
	look.grace = (struct shunt_grace_item){ .retire = look_now, .release = looked };
	look.table = section.rx;
	cr_assert_eq(shunt_pack_free(&before), 0);
	shunt_grace_defer(&look.grace);
	cr_assert_eq(shunt_pack_free(&code), 0);
	cr_assert_eq(shunt_pack_free(&section), 0);
	/* Whoever looks at any time meanwhile finds the one that lives. */
	for (int i = 0; i < 20000; i++)
		cr_assert(is_known(other.rx), "look %d", i);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert(look.was_whole, "the table went before its code");
	cr_assert(is_known(other.rx));
	cr_assert(!is_known(code.rx));
	for (size_t i = 0; i < len; i++)
		cr_assert_eq(((char *)section.rx)[i], 0, "byte %zu of what was freed", i);
}

/* Frees the code and then its table while a batch is being collected. */
struct freer {
	struct shunt_grace_item grace; /* first */
	struct shunt_block code, section;
};

static void free_both(struct shunt_grace_item *item)
{
	struct freer *freer = (struct freer *)item;

	if (!freer->code.id)
		return;
	cr_assert_eq(shunt_pack_free(&freer->code), 0);
	cr_assert_eq(shunt_pack_free(&freer->section), 0);
	freer->code.id = 0;
}

Test(pack_unwind, a_table_that_is_freed_while_a_batch_begins_stays_as_long_as_its_code)
{
	static struct freer freer;
	struct shunt_arena *arena = make_arena();
	struct shunt_block before;
	const char *byte;
	size_t len;
	void *made;

	cr_assert_eq(shunt_reclaim_set_mode(SHUNT_RECLAIM_HOST), 0);
	cr_assert(make_tiny(arena, 1, &freer.code));
	made = shunt_eh_frame_make((uintptr_t)freer.code.rx, freer.code.len, NULL, 0, &len);
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_RODATA, 64, 0, &before), 0);
	cr_assert_eq(shunt_pack_alloc(arena, SHUNT_SEGMENT_RODATA, len, 0, &freer.section), 0);
	memcpy(freer.section.rw, made, len);
	free(made);
	cr_assert_eq(set_section(&freer.code, freer.section.rx, len), 0, "%s", shunt_error());
	/* The queue has the read-only pack, and not the code's. */
	freer.grace = (struct shunt_grace_item){ .collect = free_both, .release = looked };
	shunt_grace_defer(&freer.grace);
	cr_assert_eq(shunt_pack_free(&before), 0);
	byte = freer.section.rx;
	for (int batch = 0; batch < 3; batch++) {
		cr_assert_geq(shunt_reclaim(), 0);
		/* A table of zeroes is one without the code, too: what was told of it counts. */
		cr_assert(*byte || !shunt_unwind_section(freer.code.rx, &len), "batch %d: the table went before its code", batch);
	}
	cr_assert(!*byte, "the table stays");
	cr_assert(!is_known(freer.code.rx));
	cr_assert_eq(shunt_arena_destroy(arena), 0, "%s", shunt_error());
}
