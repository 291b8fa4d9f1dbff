/* SPDX-License-Identifier: MIT */
/* Stub slots, C entries, veneers, traps and the code buffer, byte by byte, for both targets. */
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include "targets/target.h"

#define SLOT UINT64_C(0x555500001230)

static const struct shunt_target *const targets[] = { &shunt_target_x86_64, &shunt_target_arm64 };

#define FOR_EACH_TARGET(target) \
	for (const struct shunt_target *const *at_ = targets, *target; at_ < targets + 2 && (target = *at_, 1); at_++)

static const char *hex_of(const void *bytes, size_t len)
{
	static char text[256];

	text[0] = 0;
	for (size_t i = 0; i < len; i++)
		snprintf(text + 2 * i, 3, "%02x", ((const uint8_t *)bytes)[i]);
	return text;
}

Test(slots, have_a_landing_pad_and_the_jump_in_the_second_word)
{
	uint8_t bytes[16];
	struct shunt_code code;

	shunt_code_init(&code, bytes, sizeof(bytes), SLOT);
	shunt_target_x86_64.emit_stub(&code, SLOT + 13 + 0x1234);
	cr_expect_eq(code.error, 0);
	cr_expect_str_eq(hex_of(bytes, code.len), "f30f1efa0f1f4000"
						  "e934120000cccccc");
	shunt_code_init(&code, bytes, sizeof(bytes), SLOT);
	shunt_target_arm64.emit_stub(&code, SLOT + 8 - 4);
	cr_expect_eq(code.error, 0);
	cr_expect_str_eq(hex_of(bytes, code.len), "5f2403d51f2003d5"
						  "ffffff17cccc0000");
}

Test(slots, are_16_byte_aligned_or_refused)
{
	FOR_EACH_TARGET(target) {
		for (unsigned off = 4; off < 16; off += 4) {
			uint8_t bytes[32];
			struct shunt_code code;

			shunt_code_init(&code, bytes, sizeof(bytes), SLOT + off);
			target->emit_stub(&code, SLOT);
			cr_expect_eq(code.error, -EINVAL);
		}
	}
}

Test(slots, change_by_the_word_that_emit_stub_would_have_written)
{
	FOR_EACH_TARGET(target) {
		uint64_t dest = SLOT - 0x100000;

		for (unsigned i = 0; i < 64; i++, dest += 0x8004) {
			uint8_t bytes[16];
			struct shunt_code code;
			uint64_t word = 0, decoded = 0;

			shunt_code_init(&code, bytes, sizeof(bytes), SLOT);
			target->emit_stub(&code, dest);
			cr_assert_eq(code.error, 0);
			cr_assert_eq(target->encode_stub_word(SLOT, dest, &word), 0);
			cr_expect_arr_eq(bytes + SHUNT_STUB_WORD, &word, 8);
			cr_assert_eq(target->decode_stub_word(SLOT, word, &decoded), 0);
			cr_expect_eq(decoded, dest);
		}
	}
}

Test(slots, reach_exactly_as_far_as_the_jump_does)
{
	FOR_EACH_TARGET(target) {
		bool is_arm64 = target->elf_machine == EM_AARCH64;
		uint64_t from = SLOT + SHUNT_STUB_WORD + (is_arm64 ? 0 : 5), reach = (uint64_t)target->branch_reach;
		uint64_t unit = is_arm64 ? 4 : 1;
		const struct { uint64_t dest; int error; } cases[] = {
			{ from + reach - unit, 0 }, { from + reach, -ERANGE }, { from - reach, 0 }, { from - reach - unit, -ERANGE },
			{ from + 2 * reach, -ERANGE }, { from ^ UINT64_C(1) << 63, -ERANGE },
		};

		for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
			uint64_t word = 42, dest;
			uint8_t bytes[16];
			struct shunt_code code;

			cr_expect_eq(target->encode_stub_word(SLOT, cases[i].dest, &word), cases[i].error, "%s %zu", target->name, i);
			if (cases[i].error)
				cr_expect_eq(word, 42, "a refused word was written");
			else
				cr_expect(!target->decode_stub_word(SLOT, word, &dest) && dest == cases[i].dest);
			shunt_code_init(&code, bytes, sizeof(bytes), SLOT);
			target->emit_stub(&code, cases[i].dest);
			cr_expect_eq(code.error, cases[i].error);
		}
	}
	cr_expect_eq(shunt_target_arm64.encode_stub_word(SLOT, SLOT + 2, &(uint64_t){ 0 }), -EINVAL);
}

Test(slots, with_anything_but_our_jump_decode_to_an_error)
{
	FOR_EACH_TARGET(target) {
		uint64_t word, dest, traps;

		target->fill_traps(&traps, sizeof(traps));
		cr_expect_eq(target->decode_stub_word(SLOT, traps, &dest), -EINVAL);
		cr_expect_eq(target->decode_stub_word(SLOT, 0, &dest), -EINVAL);
		cr_assert_eq(target->encode_stub_word(SLOT, SLOT + 0x40, &word), 0);
		/* A changed byte of the opcode or of the padding; those between are the displacement. */
		cr_expect_eq(target->decode_stub_word(SLOT, word ^ UINT64_C(1) << 56, &dest), -EINVAL);
		cr_expect_eq(target->decode_stub_word(SLOT, word ^ UINT64_C(1) << 40, &dest), -EINVAL);
		cr_expect_eq(target->decode_stub_word(SLOT, word ^ (target->elf_machine == EM_AARCH64 ? 1u << 31 : 1u), &dest), -EINVAL);
	}
}

Test(c_entries, move_the_trailing_argument_to_the_nest_register)
{
	static const char *const x86_64[] = { "4989fa", "4989f2", "4989d2", "4989ca", "4d89c2", "4d89ca" };
	char expected[64];
	uint8_t bytes[32];
	struct shunt_code code;

	for (unsigned n = 0; n <= 5; n++) {
		shunt_code_init(&code, bytes, sizeof(bytes), SLOT + 16);
		shunt_target_x86_64.emit_c_entry(&code, n, SLOT);
		cr_expect_eq(code.error, 0);
		snprintf(expected, sizeof(expected), "f30f1efa%se9e4ffffff", x86_64[n]);
		cr_expect_str_eq(hex_of(bytes, code.len), expected);
	}
	for (unsigned n = 0; n <= 7; n++) {
		shunt_code_init(&code, bytes, sizeof(bytes), SLOT + 16);
		shunt_target_arm64.emit_c_entry(&code, n, SLOT);
		cr_expect_eq(code.error, 0);
		snprintf(expected, sizeof(expected), "5f2403d5f203%02xaafaffff17", n);
		cr_expect_str_eq(hex_of(bytes, code.len), expected);
	}
}

Test(c_entries, with_more_arguments_than_registers_are_refused)
{
	cr_expect_eq(shunt_target_x86_64.max_c_args, 5);
	cr_expect_eq(shunt_target_arm64.max_c_args, 7);
	FOR_EACH_TARGET(target) {
		for (unsigned more = 1; more < 100; more += 9) {
			uint8_t bytes[32];
			struct shunt_code code;

			shunt_code_init(&code, bytes, sizeof(bytes), SLOT);
			target->emit_c_entry(&code, target->max_c_args + more, SLOT);
			cr_expect_eq(code.error, -EINVAL);
		}
	}
}

Test(veneers, hold_the_whole_address)
{
	uint8_t bytes[32];
	struct shunt_code code;

	shunt_code_init(&code, bytes, sizeof(bytes), SLOT);
	shunt_target_x86_64.emit_veneer(&code, 0x123456789abcdef0);
	cr_expect_eq(code.error, 0);
	cr_expect_str_eq(hex_of(bytes, code.len), "49bbf0debc9a7856341241ffe3cc");
	shunt_code_init(&code, bytes, sizeof(bytes), SLOT);
	shunt_target_arm64.emit_veneer(&code, 0x123456789abcdef0);
	cr_expect_eq(code.error, 0);
	cr_expect_str_eq(hex_of(bytes, code.len), "5000005800021fd6f0debc9a78563412");
}

Test(veneers, on_arm64_have_an_8_byte_aligned_literal_wherever_they_lie)
{
	for (unsigned off = 0; off < 64; off += 4) {
		uint8_t bytes[32];
		uint64_t literal;
		uint32_t ldr;
		struct shunt_code code;

		shunt_code_init(&code, bytes, sizeof(bytes), SLOT + off);
		shunt_target_arm64.emit_veneer(&code, 0x1122334455667788);
		cr_assert_eq(code.error, 0);
		memcpy(&ldr, bytes, 4);
		cr_expect_eq((SLOT + off + (ldr >> 5 & 0x7ffff) * 4) % 8, 0);
		memcpy(&literal, bytes + (ldr >> 5 & 0x7ffff) * 4, 8);
		cr_expect_eq(literal, 0x1122334455667788);
		cr_expect_leq(code.len, 32);
	}
	FOR_EACH_TARGET(target) {
		struct shunt_code code;

		shunt_code_init(&code, NULL, 0, SLOT + 2);
		target->emit_veneer(&code, SLOT);
		cr_expect_eq(code.error, target->elf_machine == EM_AARCH64 ? -EINVAL : 0);
	}
}

Test(word_jumps, go_where_a_word_of_data_says)
{
	uint8_t bytes[16];
	struct shunt_code code;

	shunt_code_init(&code, bytes, sizeof(bytes), SLOT);
	shunt_target_x86_64.emit_word_jump(&code, SLOT + 0x5008);
	cr_expect_eq(code.error, 0);
	cr_expect_str_eq(hex_of(bytes, code.len), "ff2502500000");
	shunt_code_init(&code, bytes, sizeof(bytes), SLOT);
	shunt_target_arm64.emit_word_jump(&code, SLOT - SLOT % 4096 + 0x5008);
	cr_expect_eq(code.error, 0);
	cr_expect_str_eq(hex_of(bytes, code.len), "300000b0" "100640f9" "00021fd6");
	FOR_EACH_TARGET(target) {
		bool is_arm64 = target->elf_machine == EM_AARCH64;
		uint64_t reach = is_arm64 ? UINT64_C(1) << 32 : UINT64_C(1) << 31;
		uint64_t page = SLOT - SLOT % 4096;

		shunt_code_init(&code, bytes, sizeof(bytes), SLOT);
		target->emit_word_jump(&code, SLOT + 4);
		cr_expect_eq(code.error, -EINVAL);
		/* The last aligned word in reach, and the one past it. */
		shunt_code_init(&code, bytes, sizeof(bytes), SLOT);
		target->emit_word_jump(&code, is_arm64 ? page + reach - 8 : SLOT + reach);
		cr_expect_eq(code.error, 0, "%s", target->name);
		shunt_code_init(&code, bytes, sizeof(bytes), SLOT);
		target->emit_word_jump(&code, is_arm64 ? page + reach : SLOT + reach + 8);
		cr_expect_eq(code.error, -ERANGE, "%s", target->name);
	}
}

Test(traps, fill_and_are_recognised_and_nothing_else_is)
{
	FOR_EACH_TARGET(target) {
		uint8_t bytes[64];

		memset(bytes, 0, sizeof(bytes));
		target->fill_traps(bytes + 4, 56);
		cr_expect(target->is_traps(bytes + 4, 56));
		cr_expect(target->is_traps(bytes, 0));
		cr_expect_eq(bytes[3], 0);
		cr_expect_eq(bytes[60], 0);
		for (unsigned i = 4; i < 60; i++) {
			bytes[i] ^= 0x10;
			cr_expect_not(target->is_traps(bytes + 4, 56), "%s: byte %u", target->name, i);
			bytes[i] ^= 0x10;
		}
	}
}

Test(targets, are_found_by_name)
{
	cr_expect_eq(shunt_target_find("x86_64"), &shunt_target_x86_64);
	cr_expect_eq(shunt_target_find("arm64"), &shunt_target_arm64);
	cr_expect_null(shunt_target_find("aarch64"));
	cr_expect_null(shunt_target_find(""));
	cr_expect_null(shunt_target_find(NULL));
	cr_expect(shunt_target_host() == &shunt_target_x86_64 || shunt_target_host() == &shunt_target_arm64);
	cr_expect_eq(shunt_target_x86_64.elf_machine, EM_X86_64);
	cr_expect_eq(shunt_target_arm64.elf_machine, EM_AARCH64);
}

Test(code_buffer, keeps_its_first_error_and_never_writes_past_its_end)
{
	uint8_t bytes[8] = { 0 };
	struct shunt_code code;

	shunt_code_init(&code, bytes, 6, 0x1000);
	shunt_code_emit32(&code, 0x04030201);
	cr_expect_eq(shunt_code_here(&code), 0x1004);
	shunt_code_emit32(&code, UINT32_MAX);
	cr_expect_eq(code.error, -ENOSPC);
	cr_expect_eq(code.len, 4);
	shunt_code_emit8(&code, 0xff);
	cr_expect_eq(code.len, 4, "a byte closed the gap");
	shunt_code_fail(&code, ERANGE);
	cr_expect_eq(code.error, -ENOSPC);
	cr_expect_str_eq(hex_of(bytes, 8), "0102030400000000");
}

Test(code_buffer, patches_only_what_was_emitted)
{
	uint8_t bytes[16] = { 0 };
	struct shunt_code code;

	shunt_code_init(&code, bytes, sizeof(bytes), 0);
	shunt_code_emit64(&code, UINT64_C(0x0807060504030201));
	shunt_code_patch32(&code, 4, 0x44332211);
	cr_expect_eq(code.error, 0);
	cr_expect_str_eq(hex_of(bytes, 8), "0102030411223344");
	shunt_code_patch32(&code, 5, 0);
	cr_expect_eq(code.error, -EINVAL);
	code.error = 0;
	shunt_code_patch32(&code, SIZE_MAX - 1, 0);
	cr_expect_eq(code.error, -EINVAL);
	cr_expect_str_eq(hex_of(bytes, 9), "010203041122334400");
}

Test(code_buffer, without_bytes_measures_everything_that_a_target_emits)
{
	FOR_EACH_TARGET(target) {
		uint8_t bytes[128];
		struct shunt_code code, measure;

		shunt_code_init(&code, bytes, sizeof(bytes), SLOT);
		shunt_code_init(&measure, NULL, 0, SLOT);
		for (struct shunt_code *c = &code; c; c = c == &code ? &measure : NULL) {
			target->emit_stub(c, SLOT + 64);
			target->emit_c_entry(c, 2, SLOT);
			target->emit_veneer(c, SLOT + 0x1000 - SLOT % 4);
		}
		/* A C entry on x86-64 ends at any byte; the veneer does not mind. */
		cr_expect_eq(code.error, 0);
		cr_expect_eq(measure.error, 0);
		cr_expect_eq(code.len, measure.len);
	}
}
