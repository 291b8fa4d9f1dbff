/* SPDX-License-Identifier: MIT */
/* The parts of a replay that need no program: flow hash, settings' values, sampled timings. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <shunt/log.h>
#include "lib/replay/capture.h"
#include "lib/replay/setting.h"
#include "lib/replay/timing.h"

/* Ethernet, IPv4, UDP 10.0.0.1:1000 -> 10.0.0.2:53 */
static const uint8_t udp_frame[42] = {
	2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x03, 0xe8, 0, 53, 0, 8, 0, 0,
};

static void turn_around(const uint8_t *frame, uint8_t *out)
{
	memcpy(out, frame, sizeof(udp_frame));
	memcpy(out, frame + 6, 6);
	memcpy(out + 6, frame, 6);
	memcpy(out + 26, frame + 30, 4);
	memcpy(out + 30, frame + 26, 4);
	memcpy(out + 34, frame + 36, 2);
	memcpy(out + 36, frame + 34, 2);
}

Test(replay_flow, both_directions_of_a_connection_have_one_hash)
{
	uint8_t reply[sizeof(udp_frame)];

	turn_around(udp_frame, reply);
	cr_assert_eq(shunt_replay_flow_hash(udp_frame, sizeof(udp_frame)), shunt_replay_flow_hash(reply, sizeof(reply)));
}

Test(replay_flow, another_port_is_another_flow)
{
	uint8_t other[sizeof(udp_frame)];

	memcpy(other, udp_frame, sizeof(other));
	other[35]++;
	cr_assert_neq(shunt_replay_flow_hash(udp_frame, sizeof(udp_frame)), shunt_replay_flow_hash(other, sizeof(other)));
}

Test(replay_flow, fragments_of_a_packet_stay_together_whatever_their_payload)
{
	uint8_t first[sizeof(udp_frame)], second[sizeof(udp_frame)];

	memcpy(first, udp_frame, sizeof(first));
	first[20] = 0x20; /* more fragments */
	memcpy(second, udp_frame, sizeof(second));
	second[21] = 1; /* at offset 8 */
	memset(second + 34, 0xab, 8);
	cr_assert_eq(shunt_replay_flow_hash(first, sizeof(first)), shunt_replay_flow_hash(second, sizeof(second)));
}

Test(replay_flow, every_truncation_of_a_frame_is_hashed_within_its_bytes)
{
	/* Each length in a buffer of exactly that size, so that a sanitizer sees a read past the end. */
	for (uint32_t len = 0; len <= sizeof(udp_frame); len++) {
		uint8_t *cut = malloc(len ? len : 1);

		memcpy(cut, udp_frame, len);
		shunt_replay_flow_hash(cut, len);
		free(cut);
	}
}

static void assert_parses(const char *text, const char *hex, size_t size)
{
	uint8_t bytes[32];
	char got[65] = "";

	memset(bytes, 0xee, sizeof(bytes));
	cr_assert_eq(shunt_replay_parse_bytes(text, "key", bytes, size), 0, "%s: %s", text, shunt_error());
	for (size_t i = 0; i < size; i++)
		sprintf(got + 2 * i, "%02x", bytes[i]);
	cr_assert_str_eq(got, hex, "%s gives %s, not %s", text, got, hex);
}

Test(replay_setting, each_form_fills_the_value_from_its_first_byte)
{
	assert_parses("0", "00000000", 4);
	assert_parses("258", "02010000", 4);
	assert_parses("010", "0a000000", 4);
	assert_parses("0xff", "ff00000000000000", 8);
	assert_parses("-1", "ffffffff", 4);
	assert_parses("-2147483648", "00000080", 4);
	assert_parses("18446744073709551615", "ffffffffffffffff", 8);
	assert_parses("port:53", "00350000", 4);
	assert_parses("10.1.0.2", "0a010002", 4);
	assert_parses("fd00:1::2", "fd000001000000000000000000000002", 16);
	assert_parses("ea:45:63:8c:4b:6d", "ea45638c4b6d", 6);
	assert_parses("10.0.0.0/8", "080000000a000000", 8);
	assert_parses("fd00::/16", "10000000fd000000000000000000000000000000", 20);
	assert_parses("hex:00ff12", "00ff1200", 4);
}

Test(replay_setting, what_is_malformed_or_too_long_is_refused_with_the_text_in_the_sentence)
{
	static const struct {
		const char *text;
		size_t size;
	} wrong[] = {
		{ "", 4 },	   { "x", 4 },	       { "1x", 4 },	  { "0x", 4 },		   { "-", 4 },
		{ "256", 1 },	   { "-129", 1 },      { "port:", 4 },	  { "port:65536", 4 },	   { "port:1", 1 },
		{ "10.0.0", 4 },   { "10.0.0.1", 3 },  { "fd00::1", 4 },  { "10.0.0.0/33", 8 },	   { "10.0.0.0/8", 4 },
		{ "hex:", 4 },	   { "hex:0", 4 },     { "hex:zz", 4 },	  { "hex:0011223344", 4 }, { "ea:45:63:8c:4b:6d", 4 },
		{ "1 ", 4 },	   { "10.0.0.1", 16 }, { "fd00::1", 20 },
		   { "/8", 8 },	       { "--1", 4 },	  { "18446744073709551616", 8 },
	};
	uint8_t bytes[32];

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		cr_expect_eq(shunt_replay_parse_bytes(wrong[i].text, "key", bytes, wrong[i].size), -EINVAL, "'%s' was accepted", wrong[i].text);
		cr_expect(strstr(shunt_error(), wrong[i].text), "'%s' is not in: %s", wrong[i].text, shunt_error());
	}
}

Test(replay_timing, p99_is_not_below_the_median_with_few_batches)
{
	for (size_t nr = 1; nr < 200; nr++) {
		struct shunt_replay_samples samples;
		struct shunt_replay_timing timing;

		cr_assert_eq(shunt_replay_samples_init(&samples), 0);
		for (size_t i = 0; i < nr; i++)
			shunt_replay_samples_add(&samples, i, 1);
		shunt_replay_samples_summarize(&samples, &timing);
		cr_assert_leq(timing.median_ns, timing.p99_ns, "%zu batches", nr);
		shunt_replay_samples_fini(&samples);
	}
}

Test(replay_timing, median_and_p99_are_those_of_all_batches_however_many_there_are)
{
	struct shunt_replay_samples samples;
	struct shunt_replay_timing timing;

	cr_assert_eq(shunt_replay_samples_init(&samples), 0);
	for (uint64_t i = 0; i < 1000000; i++)
		shunt_replay_samples_add(&samples, (i * 7919 % 1000) * 10, 10);
	shunt_replay_samples_summarize(&samples, &timing);
	cr_assert_eq(timing.nr_batches, 1000000);
	cr_assert_float_eq(timing.median_ns, 500, 25);
	cr_assert_float_eq(timing.p99_ns, 990, 10);
	cr_assert_float_eq(timing.mean_ns, 499.5, 0.1);
	shunt_replay_samples_fini(&samples);
}
