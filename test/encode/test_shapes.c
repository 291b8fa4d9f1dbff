/* SPDX-License-Identifier: MIT */
/* What trees look like: the kernel's branch structure, their sizes, their fallbacks, and the plans that no tree is made of. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "shapes.h"
#include "targets/target.h"

#define TREE_ADDR UINT64_C(0x7f0000100000)
#define LINES_MAX 128u

/* One branch-structure line: what, and for which program, or to which line. */
struct line {
	enum { COMPARE, ABOVE, EQUAL, FALLBACK } op;
	unsigned program; /* COMPARE, EQUAL */
	uint64_t dest;    /* ABOVE: offset */
	uint64_t offset;
};

struct listing {
	struct line lines[LINES_MAX];
	unsigned nr;
};

static struct line *add_line(struct listing *listing, int op, uint64_t offset)
{
	struct line *line = &listing->lines[listing->nr];

	cr_assert_lt(listing->nr++, LINES_MAX);
	*line = (struct line){ .op = op, .offset = offset };
	return line;
}

static void read_kernel_tree(struct listing *listing)
{
	FILE *file = fopen(SHUNT_TEST_DATA "/kernel_tree_16.txt", "r");
	char text[256], op[16], operand[32];
	unsigned offset;

	cr_assert_not_null(file);
	while (fgets(text, sizeof(text), file)) {
		operand[0] = 0;
		if (text[0] == '#' || sscanf(text, "%x %15s %31s", &offset, op, operand) < 2 || !strcmp(op, "nop"))
			continue;
		if (!strcmp(op, "cmp"))
			add_line(listing, COMPARE, offset)->program = (unsigned)atoi(operand + strlen("program"));
		else if (!strcmp(op, "je"))
			add_line(listing, EQUAL, offset)->program = (unsigned)atoi(operand + strlen("program"));
		else if (!strcmp(op, "jg"))
			add_line(listing, ABOVE, offset)->dest = strtoul(operand, NULL, 16);
		else if (!strcmp(op, "jmp"))
			add_line(listing, FALLBACK, offset);
		else
			cr_assert_fail("unknown line: %s", text);
	}
	fclose(file);
}

static unsigned program_at(const struct shunt_plan *plan, uint64_t addr)
{
	for (unsigned i = 0; i < plan->nr_programs; i++)
		if (plan->programs[i] == addr)
			return i;
	cr_assert_fail("%#lx is no program", (unsigned long)addr);
	return 0;
}

static int32_t int32_at(const uint8_t *bytes)
{
	int32_t value;

	memcpy(&value, bytes, 4);
	return value;
}

static size_t nop_len(const uint8_t *b)
{
	static const struct { const char *prefix; size_t prefix_len, len; } nops[] = {
		{ "\x90", 1, 1 },         { "\x66\x90", 2, 2 },     { "\x0f\x1f\x00", 3, 3 },     { "\x0f\x1f\x40", 3, 4 },
		{ "\x0f\x1f\x44", 3, 5 }, { "\x66\x0f\x1f", 3, 6 }, { "\x0f\x1f\x80", 3, 7 },     { "\x0f\x1f\x84", 3, 8 },
	};

	for (size_t i = 0; i < sizeof(nops) / sizeof(nops[0]); i++)
		if (!memcmp(b, nops[i].prefix, nops[i].prefix_len))
			return nops[i].len;
	return 0;
}

/* Reads an x86-64 tree back. Its own decoder: it shares nothing with the encoders. */
static void read_x86_64(struct listing *listing, const struct shunt_plan *plan, const uint8_t *bytes, size_t len)
{
	uint64_t last = plan->programs[plan->nr_programs - 1], lea = 0;

	for (size_t at = 0; at < len;) {
		const uint8_t *b = bytes + at;

		if (!memcmp(b, "\x4c\x8d\x1d", 3)) { /* lea r11, [rip + n] */
			lea = TREE_ADDR + at + 7 + (uint64_t)(int64_t)int32_at(b + 3);
			at += 7;
		} else if (!memcmp(b, "\x4d\x39\xda", 3)) { /* cmp r10, r11 */
			add_line(listing, COMPARE, at - 7)->program = program_at(plan, lea);
			at += 3;
		} else if (!memcmp(b, "\x4d\x29\xd3", 3)) { /* sub r11, r10 */
			cr_assert_eq(lea, last);
			at += 3;
		} else if (!memcmp(b, "\x49\x83\xfb", 3)) { /* cmp r11, imm8 */
			add_line(listing, COMPARE, at)->program = program_at(plan, last - b[3]);
			at += 4;
		} else if (!memcmp(b, "\x49\x81\xfb", 3)) { /* cmp r11, imm32 */
			add_line(listing, COMPARE, at)->program = program_at(plan, last - (uint32_t)int32_at(b + 3));
			at += 7;
		} else if (b[0] == 0x77 || b[0] == 0x7c) { /* ja, jl */
			add_line(listing, ABOVE, at)->dest = at + 2 + b[1];
			at += 2;
		} else if (b[0] == 0x0f && (b[1] == 0x87 || b[1] == 0x8c)) {
			add_line(listing, ABOVE, at)->dest = at + 6 + (uint64_t)int32_at(b + 2);
			at += 6;
		} else if (b[0] == 0x0f && b[1] == 0x84) { /* je */
			uint64_t dest = TREE_ADDR + at + 6 + (uint64_t)(int64_t)int32_at(b + 2);

			add_line(listing, EQUAL, at)->program = program_at(plan, dest);
			at += 6;
		} else if (!memcmp(b, "\x41\xff\xe2\xcc", 4)) { /* jmp r10; int3 */
			add_line(listing, FALLBACK, at);
			at += 4;
			while (at % 16 && at < len && nop_len(bytes + at)) /* padding */
				at += nop_len(bytes + at);
		} else {
			cr_assert_fail("unknown bytes at %#zx: %02x %02x %02x", at, b[0], b[1], b[2]);
		}
	}
}

/* The same for arm64, in words. */
static void read_arm64(struct listing *listing, const struct shunt_plan *plan, const uint8_t *bytes, size_t len)
{
	uint64_t high = 0;
	bool is_head = true;

	for (size_t at = 0; at < len; at += 4) {
		uint32_t word = (uint32_t)int32_at(bytes + at);

		if (is_head) { /* adrp, add, sub, ror */
			is_head = (word & 0xffe00000) != 0x93c00000;
		} else if ((word & 0xff80001f) == 0xf100001f) { /* cmp */
			uint64_t chunk = (uint64_t)(word >> 10 & 0xfff) << (word >> 22 & 1 ? 12 : 0);

			add_line(listing, COMPARE, at)->program = program_at(plan, plan->programs[plan->nr_programs - 1] - (high + chunk) * 64);
			high = 0;
		} else if ((word & 0xffc003ff) == 0xd1400211) { /* sub x17, x16, #n, lsl #12 */
			high = (uint64_t)(word >> 10 & 0xfff) << 12;
		} else if ((word & 0xff00001f) == 0x5400000b) { /* b.lt */
			add_line(listing, ABOVE, at)->dest = at + (word >> 5 & 0x7ffff) * 4;
		} else if (word >> 26 == 0x05) { /* b, behind a b.ne over it */
			uint64_t dest = TREE_ADDR + at + (uint64_t)((int64_t)((uint64_t)word << 38) >> 36);

			cr_assert_eq((uint32_t)int32_at(bytes + at - 4), 0x54000041);
			add_line(listing, EQUAL, at)->program = program_at(plan, dest);
		} else if (word == 0xd61f0200) { /* br x16 */
			add_line(listing, FALLBACK, at);
		} else if (word != 0x54000041 && word != 0xaa1203f0 && word != 0xd503201f) { /* b.ne .+8; mov x16, x18; nop */
			cr_assert_fail("unknown word at %#zx: %08x", at, word);
		}
	}
}

static unsigned line_at(const struct listing *listing, uint64_t offset)
{
	for (unsigned i = 0; i < listing->nr; i++)
		if (listing->lines[i].offset >= offset)
			return i; /* padding belongs to what it leads to */
	cr_assert_fail("nothing is at %#lx", (unsigned long)offset);
	return 0;
}

static void expect_same_structure(const struct listing *got, const struct listing *wanted)
{
	cr_assert_eq(got->nr, wanted->nr, "%u lines for %u", got->nr, wanted->nr);
	for (unsigned i = 0; i < got->nr; i++) {
		cr_assert_eq(got->lines[i].op, wanted->lines[i].op, "line %u", i);
		if (got->lines[i].op == ABOVE) {
			cr_expect_eq(line_at(got, got->lines[i].dest), line_at(wanted, wanted->lines[i].dest), "line %u", i);
			cr_expect_eq(got->lines[i].dest % 16, 0, "line %u", i);
		} else {
			cr_expect_eq(got->lines[i].program, wanted->lines[i].program, "line %u", i);
		}
	}
}

static size_t emit(const struct shunt_target *target, const struct shunt_plan *plan, enum shunt_fallback fallback,
		   uint8_t *bytes, size_t capacity)
{
	struct shunt_code code;

	shunt_code_init(&code, bytes, capacity, TREE_ADDR);
	target->emit_tree(&code, plan, fallback);
	cr_assert_eq(code.error, 0, "%d", code.error);
	return code.len;
}

/* nr programs in a row, some chunks apart, as programs of a few hundred bytes lie in a pack. */
static void make_plan(struct shunt_plan *plan, uint64_t *programs, uint32_t nr, uint64_t distance, enum shunt_plan_op head,
		      bool align16, uint32_t leaf_max)
{
	for (uint32_t i = 0; i < nr; i++)
		programs[i] = TREE_ADDR + 0x200000 + i * distance;
	shape_plan((struct shape){ .head = head, .leaf_max = leaf_max, .align16 = align16 }, programs, nr, plan);
}

Test(shapes, of_16_programs_in_the_kernel_s_form_branch_as_the_kernel_s_tree)
{
	static const enum shunt_plan_op heads[] = { SHUNT_PLAN_OP_ANCHOR, SHUNT_PLAN_OP_FALLBACK };
	uint64_t programs[16];
	uint8_t bytes[2048];

	for (unsigned i = 0; i < 2; i++) {
		struct listing wanted = { .nr = 0 }, got = { .nr = 0 };
		struct shunt_plan plan;

		read_kernel_tree(&wanted);
		cr_assert_eq(wanted.nr, 15 * 2 + 16 * 3);
		make_plan(&plan, programs, 16, 512, heads[i], true, 1);
		read_x86_64(&got, &plan, bytes, emit(&shunt_target_x86_64, &plan, SHUNT_FALLBACK_JUMP, bytes, sizeof(bytes)));
		expect_same_structure(&got, &wanted);
		free((void *)plan.nodes);
	}
	for (uint64_t distance = 64; distance <= 4 << 20; distance *= 256) {
		struct listing wanted = { .nr = 0 }, got = { .nr = 0 };
		struct shunt_plan plan;

		read_kernel_tree(&wanted);
		make_plan(&plan, programs, 16, distance, SHUNT_PLAN_OP_ANCHOR, true, 1);
		read_arm64(&got, &plan, bytes, emit(&shunt_target_arm64, &plan, SHUNT_FALLBACK_JUMP, bytes, sizeof(bytes)));
		expect_same_structure(&got, &wanted);
		free((void *)plan.nodes);
	}
}

Test(shapes, on_x86_64_are_no_larger_than_their_budgets)
{
	static const struct { uint32_t nr; enum shunt_plan_op head; uint32_t leaf_max; size_t budget; } cases[] = {
		{ 16, SHUNT_PLAN_OP_RANGE, 1, 461 },    { 48, SHUNT_PLAN_OP_RANGE, 1, 1389 },
		{ 16, SHUNT_PLAN_OP_RANGE, 4, 461 },    { 48, SHUNT_PLAN_OP_RANGE, 4, 1389 },
		{ 16, SHUNT_PLAN_OP_FALLBACK, 1, 496 }, { 48, SHUNT_PLAN_OP_FALLBACK, 1, 1504 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t programs[48];
		uint8_t bytes[2048];
		struct shunt_plan plan;
		size_t len;

		make_plan(&plan, programs, cases[i].nr, 4096, cases[i].head, false, cases[i].leaf_max);
		len = emit(&shunt_target_x86_64, &plan, SHUNT_FALLBACK_JUMP, bytes, sizeof(bytes));
		cr_expect_leq(len, cases[i].budget, "case %zu: %zu", i, len);
		free((void *)plan.nodes);
	}
}

Test(shapes, of_a_bare_fallback_are_one_indirect_jump_in_the_form_asked_for)
{
	static const struct { const struct shunt_target *target; enum shunt_fallback fallback; const char *bytes; size_t len; } cases[] = {
		{ &shunt_target_x86_64, SHUNT_FALLBACK_JUMP, "\x41\xff\xe2\xcc", 4 },
		{ &shunt_target_x86_64, SHUNT_FALLBACK_LFENCE, "\x0f\xae\xe8\x41\xff\xe2\xcc", 7 },
		{ &shunt_target_x86_64, SHUNT_FALLBACK_RETPOLINE,
		  "\xe8\x07\x00\x00\x00\xf3\x90\x0f\xae\xe8\xeb\xf9\x4c\x89\x14\x24\xc3\xcc", 18 },
		{ &shunt_target_arm64, SHUNT_FALLBACK_JUMP, "\xf0\x03\x12\xaa\x00\x02\x1f\xd6", 8 },
		{ &shunt_target_arm64, SHUNT_FALLBACK_LFENCE, "\xf0\x03\x12\xaa\x00\x02\x1f\xd6", 8 },
		{ &shunt_target_arm64, SHUNT_FALLBACK_RETPOLINE, "\xf0\x03\x12\xaa\x00\x02\x1f\xd6", 8 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct shunt_plan_node node = { .op = SHUNT_PLAN_OP_FALLBACK };
		const struct shunt_plan plan = { .nodes = &node, .nr_nodes = 1 };
		uint8_t bytes[32];

		cr_assert_eq(emit(cases[i].target, &plan, cases[i].fallback, bytes, sizeof(bytes)), cases[i].len, "case %zu", i);
		cr_expect_arr_eq(bytes, cases[i].bytes, cases[i].len, "case %zu", i);
	}
}

Test(shapes, with_retpolines_have_two_and_jump_to_one)
{
	uint64_t programs[48];
	uint8_t bytes[4096];
	struct shunt_plan plan;
	size_t jump, retpoline;

	make_plan(&plan, programs, 48, 4096, SHUNT_PLAN_OP_RANGE, false, 1);
	jump = emit(&shunt_target_x86_64, &plan, SHUNT_FALLBACK_JUMP, bytes, sizeof(bytes));
	retpoline = emit(&shunt_target_x86_64, &plan, SHUNT_FALLBACK_RETPOLINE, bytes, sizeof(bytes));
	cr_expect_leq(retpoline, jump + 48 + 2 * 14 + 8 + 63, "%zu for %zu", retpoline, jump);
	/* The first one lies in one cache line: call, pause, lfence, jmp, mov, ret. */
	for (size_t at = 0, first = 0; at + 18 <= retpoline && !first; at++) {
		if (memcmp(bytes + at, "\xe8\x07\x00\x00\x00\xf3\x90", 7) != 0)
			continue;
		cr_expect_eq((TREE_ADDR + at) % 64, 0);
		first = at;
	}
	free((void *)plan.nodes);
}

/* A conditional jump over lower leaves: 127 bytes are short, 128 are not. */
Test(shapes, take_the_short_jump_exactly_as_long_as_it_reaches)
{
	for (unsigned nr_equal = 0; nr_equal < 24; nr_equal++) {
		uint64_t programs[] = { TREE_ADDR + 0x1000, TREE_ADDR + 0x2000 };
		struct shunt_plan_node nodes[32] = { { .op = SHUNT_PLAN_OP_ABOVE } };
		struct shunt_plan plan = { .programs = programs, .nr_programs = 2, .nodes = nodes, .nr_nodes = 1 };
		uint8_t bytes[512];
		size_t skipped;

		for (unsigned i = 0; i < nr_equal; i++)
			nodes[plan.nr_nodes++] = (struct shunt_plan_node){ .op = SHUNT_PLAN_OP_EQUAL, .program = 1 };
		nodes[plan.nr_nodes++].op = SHUNT_PLAN_OP_FALLBACK;
		nodes[0].node = plan.nr_nodes;
		nodes[plan.nr_nodes++].op = SHUNT_PLAN_OP_FALLBACK;
		/* Retpolines have padding before them, which the next test looks at. */
		for (enum shunt_fallback fallback = SHUNT_FALLBACK_JUMP; fallback <= SHUNT_FALLBACK_LFENCE; fallback += 2) {
			emit(&shunt_target_x86_64, &plan, fallback, bytes, sizeof(bytes));
			skipped = nr_equal * 16 + (fallback == SHUNT_FALLBACK_JUMP ? 4 : 7);
			if (skipped <= 127)
				cr_expect(bytes[10] == 0x77 && bytes[11] == skipped, "%zu", skipped);
			else
				cr_expect(bytes[10] == 0x0f && int32_at(bytes + 12) == (int32_t)skipped, "%zu", skipped);
		}
	}
}

Test(plans, that_break_the_rules_are_refused)
{
	static const uint64_t ascending[] = { 0x10000000, 0x10000040 }, twice[] = { 0x10000000, 0x10000000 },
			      descending[] = { 0x10000040, 0x10000000 };
	static const struct shunt_plan_node
		no_end[] = { { .op = SHUNT_PLAN_OP_EQUAL } },
		back[] = { { .op = SHUNT_PLAN_OP_EQUAL }, { .op = SHUNT_PLAN_OP_ABOVE, .node = 1 }, { .op = SHUNT_PLAN_OP_FALLBACK } },
		beyond[] = { { .op = SHUNT_PLAN_OP_ABOVE, .node = 2 }, { .op = SHUNT_PLAN_OP_FALLBACK } },
		stranger[] = { { .op = SHUNT_PLAN_OP_EQUAL, .program = 2 }, { .op = SHUNT_PLAN_OP_FALLBACK } },
		late[] = { { .op = SHUNT_PLAN_OP_EQUAL }, { .op = SHUNT_PLAN_OP_ANCHOR }, { .op = SHUNT_PLAN_OP_FALLBACK } },
		late_range[] = { { .op = SHUNT_PLAN_OP_EQUAL }, { .op = SHUNT_PLAN_OP_RANGE }, { .op = SHUNT_PLAN_OP_FALLBACK } },
		anchored_range[] = { { .op = SHUNT_PLAN_OP_ANCHOR }, { .op = SHUNT_PLAN_OP_RANGE }, { .op = SHUNT_PLAN_OP_FALLBACK } },
		no_parts[] = { { .op = SHUNT_PLAN_OP_PART }, { .op = SHUNT_PLAN_OP_FALLBACK } },
		unknown[] = { { .op = (enum shunt_plan_op)77 }, { .op = SHUNT_PLAN_OP_FALLBACK } },
		fine[] = { { .op = SHUNT_PLAN_OP_RANGE }, { .op = SHUNT_PLAN_OP_EQUAL }, { .op = SHUNT_PLAN_OP_FALLBACK } };
	const struct { struct shunt_plan plan; int error; } cases[] = {
		{ { .programs = ascending, .nr_programs = 2, .nodes = fine, .nr_nodes = 3, .depth = 1 }, 0 },
		{ { .programs = twice, .nr_programs = 2, .nodes = fine, .nr_nodes = 3, .depth = 1 }, -EINVAL },
		{ { .programs = descending, .nr_programs = 2, .nodes = fine, .nr_nodes = 3, .depth = 1 }, -EINVAL },
		{ { .programs = NULL, .nr_programs = 0, .nodes = fine, .nr_nodes = 3, .depth = 1 }, -EINVAL },
		{ { .programs = ascending, .nr_programs = 2, .nodes = fine, .nr_nodes = 0, .depth = 1 }, -EINVAL },
		{ { .programs = ascending, .nr_programs = 2, .nodes = no_end, .nr_nodes = 1, .depth = 1 }, -EINVAL },
		{ { .programs = ascending, .nr_programs = 2, .nodes = back, .nr_nodes = 3, .depth = 1 }, -EINVAL },
		{ { .programs = ascending, .nr_programs = 2, .nodes = beyond, .nr_nodes = 2, .depth = 1 }, -EINVAL },
		{ { .programs = ascending, .nr_programs = 2, .nodes = stranger, .nr_nodes = 2, .depth = 1 }, -EINVAL },
		{ { .programs = ascending, .nr_programs = 2, .nodes = late, .nr_nodes = 3, .depth = 1 }, -EINVAL },
		{ { .programs = ascending, .nr_programs = 2, .nodes = late_range, .nr_nodes = 3, .depth = 1 }, -EINVAL },
		{ { .programs = ascending, .nr_programs = 2, .nodes = anchored_range, .nr_nodes = 3, .depth = 1 }, 0 },
		{ { .programs = ascending, .nr_programs = 2, .nodes = unknown, .nr_nodes = 2, .depth = 1 }, -EINVAL },
	};
	/* One byte too narrow on either side, and parts where there are none. */
	const struct { struct shunt_plan plan; int error; } part_cases[] = {
		{ { .programs = ascending, .nr_programs = 2, .nodes = fine, .nr_nodes = 3, .low = 0x10000000, .high = 0x10000040 }, 0 },
		{ { .programs = ascending, .nr_programs = 2, .nodes = fine, .nr_nodes = 3, .low = 0x10000001, .high = 0x10000040 }, -EINVAL },
		{ { .programs = ascending, .nr_programs = 2, .nodes = fine, .nr_nodes = 3, .low = 0x10000000, .high = 0x1000003f }, -EINVAL },
		{ { .programs = ascending, .nr_programs = 2, .nodes = fine, .nr_nodes = 3, .is_part = true }, -EINVAL },
		{ { .programs = ascending, .nr_programs = 2, .nodes = no_parts, .nr_nodes = 2 }, -EINVAL },
	};
	static const struct shunt_target *const targets[] = { &shunt_target_x86_64, &shunt_target_arm64 };

	for (size_t i = 0; i < 2 * sizeof(part_cases) / sizeof(part_cases[0]); i++) {
		uint8_t bytes[256];
		struct shunt_code code;

		shunt_code_init(&code, bytes, sizeof(bytes), 0x10001000);
		targets[i % 2]->emit_tree(&code, &part_cases[i / 2].plan, SHUNT_FALLBACK_JUMP);
		cr_expect_eq(code.error, part_cases[i / 2].error, "part case %zu: %d", i, code.error);
	}
	for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
		uint8_t bytes[256];
		struct shunt_code code;

		shunt_code_init(&code, bytes, sizeof(bytes), 0x10001000);
		targets[i % 2]->emit_tree(&code, &cases[i / 2].plan, SHUNT_FALLBACK_JUMP);
		cr_expect_eq(code.error, cases[i / 2].error, "case %zu", i / 2);
		if (code.error)
			cr_expect_eq(code.len, 0);
	}
}

Test(plans, that_do_not_fit_the_buffer_say_so)
{
	static const struct shunt_target *const targets[] = { &shunt_target_x86_64, &shunt_target_arm64 };
	uint64_t programs[16];
	uint8_t bytes[2048];
	struct shunt_plan plan;

	make_plan(&plan, programs, 16, 4096, SHUNT_PLAN_OP_RANGE, false, 1);
	for (unsigned i = 0; i < 2; i++) {
		size_t len = emit(targets[i], &plan, SHUNT_FALLBACK_JUMP, bytes, sizeof(bytes));

		for (size_t capacity = 0; capacity <= len; capacity += capacity < len - 1 ? len - 1 : 1) {
			struct shunt_code code;

			shunt_code_init(&code, bytes, capacity, TREE_ADDR);
			targets[i]->emit_tree(&code, &plan, SHUNT_FALLBACK_JUMP);
			cr_expect_eq(code.error, capacity < len ? -ENOSPC : 0);
			cr_expect_leq(code.len, capacity);
		}
	}
	free((void *)plan.nodes);
}
