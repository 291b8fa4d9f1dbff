/* SPDX-License-Identifier: MIT */
/* The built-in helpers, called as generated code calls them. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <criterion/criterion.h>
#include "test/lacks.h"
#include <shunt/log.h>
#include <shunt/reader.h>
#include "lib/bpf/unit.h"

#define P(p) ((uint64_t)(uintptr_t)(p))
#define ERR(err) ((uint64_t)-(int64_t)(err))

static uint64_t call(uint32_t number, uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5)
{
	shunt_bpf_helper_fn *fn = bpf_helper_builtin(number);
	uint64_t result;

	cr_assert_not_null(fn, "helper %u", number);
	shunt_read_begin();
	result = fn(r1, r2, r3, r4, r5);
	shunt_read_end();
	return result;
}

static struct shunt_map *make_map(uint32_t type, uint32_t key_size, uint32_t value_size, uint32_t max_entries)
{
	struct shunt_map_attr attr = { .type = type, .key_size = key_size, .value_size = value_size, .max_entries = max_entries, .name = "m" };
	struct shunt_map *map;

	cr_assert_eq(shunt_map_create(&attr, &map), 0, "%s", shunt_error());
	return map;
}

Test(bpf_helpers, every_number_has_the_kernels_name_and_only_known_ones_have_one)
{
	cr_expect_str_eq(bpf_helper_name(1), "map_lookup_elem");
	cr_expect_str_eq(bpf_helper_name(188), "xdp_get_buff_len");
	cr_expect_null(bpf_helper_name(0));
	cr_expect_null(bpf_helper_name(100000));
	cr_expect_null(bpf_helper_builtin(22));
	cr_expect_null(bpf_helper_builtin(UINT32_MAX));
	cr_expect(bpf_helper_is_expanded(12) && !bpf_helper_is_expanded(181));
}

Test(bpf_helpers, map_calls_give_the_kernels_results_in_64_bits)
{
	struct shunt_map *map = make_map(SHUNT_MAP_HASH, 4, 8, 4);
	uint32_t key = 5;
	uint64_t value = 77;

	cr_expect_eq(call(1, P(map), P(&key), 0, 0, 0), 0u);
	cr_expect_eq(call(3, P(map), P(&key), 0, 0, 0), ERR(ENOENT));
	cr_expect_eq(call(2, P(map), P(&key), P(&value), SHUNT_EXIST, 0), ERR(ENOENT));
	cr_expect_eq(call(2, P(map), P(&key), P(&value), SHUNT_ANY, 0), 0u);
	cr_expect_eq(call(2, P(map), P(&key), P(&value), SHUNT_NOEXIST, 0), ERR(EEXIST));
	cr_expect_eq(*(uint64_t *)(uintptr_t)call(1, P(map), P(&key), 0, 0, 0), 77u);
	cr_expect_eq(call(3, P(map), P(&key), 0, 0, 0), 0u);
	shunt_map_put(map);
}

Test(bpf_helpers, clocks_run_and_identities_are_this_thread_s)
{
	struct timespec now;
	uint64_t ns = call(5, 0, 0, 0, 0, 0);
	char comm[4] = "xxx";

	clock_gettime(CLOCK_MONOTONIC, &now);
	cr_expect_lt((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec - ns, 1000000000u);
	cr_expect_geq(call(125, 0, 0, 0, 0, 0), ns);
	cr_expect_eq(call(14, 0, 0, 0, 0, 0), (uint64_t)(uint32_t)getpid() << 32 | (uint32_t)syscall(SYS_gettid));
	cr_expect_eq(call(16, P(comm), sizeof(comm), 0, 0, 0), 0u);
	cr_expect(comm[3] == 0 && strlen(comm) == 3, "the name is cut to the buffer and ends with a zero");
	cr_expect_eq(call(8, 0, 0, 0, 0, 0), shunt_cpu_id());
}

Test(bpf_helpers, random_numbers_have_32_bits_and_differ)
{
	uint64_t seen = 0, same = 0;

	for (int i = 0; i < 1000; i++) {
		uint64_t value = call(7, 0, 0, 0, 0, 0);

		cr_assert_eq(value >> 32, 0u);
		same += value == seen;
		seen = value;
	}
	cr_expect_lt(same, 3u);
}

/* ---- frames --------------------------------------------------------------------------------------------------- */

static unsigned char room[1024];

static struct shunt_xdp_ctx frame_of(unsigned headroom, unsigned len)
{
	for (unsigned i = 0; i < sizeof(room); i++)
		room[i] = (unsigned char)i | 1;
	return (struct shunt_xdp_ctx){ .data = room + headroom, .data_end = room + headroom + len, .data_meta = room + headroom,
				       .data_hard_start = room, .data_hard_end = room + sizeof(room) };
}

Test(bpf_helpers, adjust_head_moves_within_the_headroom_and_leaves_an_ethernet_header)
{
	struct shunt_xdp_ctx ctx = frame_of(64, 100);

	cr_expect_eq(call(44, P(&ctx), (uint32_t)-25, 0, 0, 0), ERR(EINVAL), "40 bytes of the headroom are the kernel's");
	cr_expect_eq(call(44, P(&ctx), (uint32_t)-24, 0, 0, 0), 0u);
	cr_expect(ctx.data == room + 40 && ctx.data_meta == room + 40);
	cr_expect_eq(call(44, P(&ctx), (uint32_t)-1, 0, 0, 0), ERR(EINVAL));
	cr_expect_eq(call(44, P(&ctx), 110, 0, 0, 0), 0u);
	cr_expect_eq(call(188, P(&ctx), 0, 0, 0, 0), 14u);
	cr_expect_eq(call(44, P(&ctx), 1, 0, 0, 0), ERR(EINVAL));
	cr_expect(ctx.data == room + 150, "a refused move changes nothing");
}

Test(bpf_helpers, adjust_head_takes_metadata_along)
{
	struct shunt_xdp_ctx ctx = frame_of(64, 100);

	cr_expect_eq(call(54, P(&ctx), (uint32_t)-8, 0, 0, 0), 0u);
	memcpy(ctx.data_meta, "metadata", 8);
	cr_expect_eq(call(44, P(&ctx), (uint32_t)-17, 0, 0, 0), ERR(EINVAL), "metadata needs its room too");
	cr_expect_eq(call(44, P(&ctx), (uint32_t)-16, 0, 0, 0), 0u);
	cr_expect(ctx.data_meta == room + 40 && ctx.data == room + 48 && !memcmp(room + 40, "metadata", 8));
	cr_expect_eq(call(54, P(&ctx), (uint32_t)-4, 0, 0, 0), ERR(EINVAL));
}

Test(bpf_helpers, a_frame_without_headroom_can_shrink_from_its_start)
{
	struct shunt_xdp_ctx ctx = frame_of(0, 100);

	cr_expect_eq(call(44, P(&ctx), 4, 0, 0, 0), 0u);
	cr_expect_eq(call(44, P(&ctx), (uint32_t)-4, 0, 0, 0), ERR(EINVAL));
	cr_expect_eq(call(54, P(&ctx), 0, 0, 0, 0), 0u);
}

Test(bpf_helpers, metadata_is_a_multiple_of_4_bytes_up_to_252)
{
	struct shunt_xdp_ctx ctx = frame_of(300, 100);

	cr_expect_eq(call(54, P(&ctx), (uint32_t)-3, 0, 0, 0), ERR(EACCES));
	cr_expect_eq(call(54, P(&ctx), (uint32_t)-256, 0, 0, 0), ERR(EACCES));
	cr_expect_eq(call(54, P(&ctx), (uint32_t)-301, 0, 0, 0), ERR(EINVAL));
	cr_expect_eq(call(54, P(&ctx), 4, 0, 0, 0), ERR(EINVAL));
	cr_expect_eq(call(54, P(&ctx), (uint32_t)-252, 0, 0, 0), 0u);
	cr_expect_eq(call(54, P(&ctx), 252, 0, 0, 0), 0u);
	cr_expect(ctx.data_meta == ctx.data);
}

Test(bpf_helpers, adjust_tail_zeroes_what_it_adds)
{
	struct shunt_xdp_ctx ctx = frame_of(64, 100);

	cr_expect_eq(call(65, P(&ctx), 20, 0, 0, 0), 0u);
	for (int i = 0; i < 20; i++)
		cr_assert_eq(room[164 + i], 0);
	cr_expect_eq(room[184], 185, "and nothing else");
	cr_expect_eq(call(65, P(&ctx), 841, 0, 0, 0), ERR(EINVAL));
	cr_expect_eq(call(65, P(&ctx), 840, 0, 0, 0), 0u);
	cr_expect_eq(call(65, P(&ctx), (uint32_t)-946, 0, 0, 0), 0u);
	cr_expect_eq(call(188, P(&ctx), 0, 0, 0, 0), 14u);
	cr_expect_eq(call(65, P(&ctx), (uint32_t)-1, 0, 0, 0), ERR(EINVAL));
}

Test(bpf_helpers, bytes_of_the_frame_are_copied_within_it_only)
{
	struct shunt_xdp_ctx ctx = frame_of(64, 100);
	char bytes[4] = "abc";

	cr_expect_eq(call(190, P(&ctx), 96, P(bytes), 4, 0), 0u);
	cr_expect_eq(memcmp(room + 160, "abc", 4), 0);
	cr_expect_eq(call(190, P(&ctx), 97, P(bytes), 4, 0), ERR(EINVAL));
	cr_expect_eq(call(189, P(&ctx), 0, P(bytes), 4, 0), 0u);
	cr_expect_eq(memcmp(room + 64, bytes, 4), 0);
	cr_expect_eq(call(189, P(&ctx), 0x10000, P(bytes), 4, 0), ERR(EFAULT));
	cr_expect_eq(call(189, P(&ctx), 0xffffffff, P(bytes), 4, 0), ERR(EFAULT));
}

static uint16_t checksum(const void *bytes, size_t len)
{
	uint32_t sum = 0;

	for (size_t i = 0; i < len; i += 2) {
		uint16_t word;

		memcpy(&word, (const char *)bytes + i, 2);
		sum += word;
	}
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

static uint16_t fold(uint64_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

Test(bpf_helpers, checksum_differences_add_up)
{
	uint32_t to[3] = { 0xffffffff, 7, 0x80000001 }, all[3], many[257] = { 5, 1u << 31, [256] = 9 };

	cr_expect_eq(call(28, 0, 0, P(to), sizeof(to), 0), checksum(to, sizeof(to)));
	cr_expect_eq(call(28, 0, 0, 0, 0, 0x1234), 0x1234u);
	cr_expect_eq(call(28, 0, 0, P("\x01\x02\x03"), 3, 0), 0x0204u, "what is missing in the last word is zero");
	cr_expect_eq(call(28, 0, 0, P(many), sizeof(many), 0), checksum(many, sizeof(many)), "any length");
	/* sum(all) - from + to == sum(all with `from` replaced by `to`). */
	for (int i = 0; i < 1000; i++) {
		uint32_t before = (uint32_t)rand() * 3u, after = (uint32_t)rand() * 5u, sum;

		all[0] = before;
		all[1] = (uint32_t)rand() * 7u;
		all[2] = 9;
		sum = checksum(all, sizeof(all));
		sum = fold(call(28, P(&before), 4, P(&after), 4, sum));
		all[0] = after;
		cr_assert(sum % 0xffff == checksum(all, sizeof(all)) % 0xffff, "%x %x", before, after);
		/* Taking away alone, then adding alone. */
		sum = fold(call(28, P(&after), 4, 0, 0, sum));
		sum = fold(call(28, 0, 0, P(&before), 4, sum));
		all[0] = before;
		cr_assert(sum % 0xffff == checksum(all, sizeof(all)) % 0xffff, "%x %x", before, after);
	}
}

/* ---- redirection ---------------------------------------------------------------------------------------------- */

Test(bpf_helpers, redirect_map_answers_the_action_of_its_flags_when_the_key_is_absent)
{
	struct shunt_map *map = make_map(SHUNT_MAP_DEVMAP, 4, 4, 4);
	struct shunt_xdp_ctx ctx = frame_of(64, 100);
	uint32_t key = 2, value = 9;

	cr_expect_eq(call(51, P(map), 2, SHUNT_XDP_TX, 0, 0), SHUNT_XDP_TX);
	cr_expect_eq(call(51, P(map), 99, SHUNT_XDP_PASS, 0, 0), SHUNT_XDP_PASS);
	cr_expect_eq(call(51, P(map), 2, 4, 0, 0), SHUNT_XDP_ABORTED, "unknown flags");
	cr_expect_eq(call(51, P(map), 2, 1u << 4 | SHUNT_XDP_PASS, 0, 0), SHUNT_XDP_PASS, "without meaning alone");
	cr_assert_eq(shunt_map_host_update(map, &key, &value, 0), 0);
	cr_expect_eq(call(51, P(map), 2, SHUNT_XDP_TX, 0, 0), SHUNT_XDP_REDIRECT);
	call(9004, P(&ctx), SHUNT_XDP_REDIRECT, 0, 0, 0);
	cr_expect(ctx.redirect_map == map && ctx.redirect_index == 2);
	shunt_map_put(map);
}

Test(bpf_helpers, redirect_map_broadcasts_to_maps_of_devices_only)
{
	struct shunt_map *map = make_map(SHUNT_MAP_DEVMAP, 4, 4, 4), *sockets = make_map(SHUNT_MAP_XSKMAP, 4, 4, 4);
	struct shunt_xdp_ctx ctx = frame_of(64, 100);

	cr_expect_eq(call(51, P(map), 99, 1u << 3, 0, 0), SHUNT_XDP_REDIRECT, "whatever the key");
	call(9004, P(&ctx), SHUNT_XDP_REDIRECT, 0, 0, 0);
	cr_expect(ctx.redirect_map == map && ctx.redirect_index == SHUNT_XDP_BROADCAST);
	cr_expect_eq(call(51, P(map), 0, 3u << 3, 0, 0), SHUNT_XDP_REDIRECT);
	call(9004, P(&ctx), SHUNT_XDP_REDIRECT, 0, 0, 0);
	cr_expect(ctx.redirect_map == map && ctx.redirect_index == SHUNT_XDP_BROADCAST_BUT_INGRESS);
	cr_expect_eq(call(51, P(sockets), 0, 1u << 3, 0, 0), SHUNT_XDP_ABORTED);
	shunt_map_put(map);
	shunt_map_put(sockets);
}

Test(bpf_helpers, what_redirect_chose_is_reported_once_and_only_for_that_verdict)
{
	struct shunt_xdp_ctx ctx = frame_of(64, 100);

	cr_expect_eq(call(23, 7, 0, 0, 0, 0), SHUNT_XDP_REDIRECT);
	cr_expect_eq(call(23, 8, 1, 0, 0, 0), SHUNT_XDP_ABORTED);
	call(9004, P(&ctx), SHUNT_XDP_PASS, 0, 0, 0);
	call(9004, P(&ctx), SHUNT_XDP_REDIRECT, 0, 0, 0);
	cr_expect_eq(ctx.redirect_index, 0u);
	call(23, 7, 0, 0, 0, 0);
	call(9004, P(&ctx), SHUNT_XDP_REDIRECT, 0, 0, 0);
	cr_expect(ctx.redirect_index == 7 && !ctx.redirect_map);
}

Test(bpf_helpers, perf_event_output_answers_what_the_kernel_answers_while_nobody_listens)
{
	struct shunt_map *map = make_map(SHUNT_MAP_PERF_EVENT_ARRAY, 4, 4, 4096), *array = make_map(SHUNT_MAP_ARRAY, 4, 4, 4096);
	char frame[60] = "", report[4] = "";
	struct shunt_xdp_ctx ctx = { .data = frame, .data_end = frame + sizeof(frame) };
	uint64_t this_cpu = UINT32_MAX;

	cr_expect_eq(call(25, P(&ctx), P(map), this_cpu, P(report), sizeof(report)), ERR(ENOENT));
	cr_expect_eq(call(25, P(&ctx), P(map), 4095, P(report), sizeof(report)), ERR(ENOENT));
	cr_expect_eq(call(25, P(&ctx), P(map), 4096, P(report), sizeof(report)), ERR(E2BIG));
	cr_expect_eq(call(25, P(&ctx), P(map), this_cpu | 60ull << 32, P(report), sizeof(report)), ERR(ENOENT));
	cr_expect_eq(call(25, P(&ctx), P(map), this_cpu | 61ull << 32, P(report), sizeof(report)), ERR(EFAULT));
	cr_expect_eq(call(25, P(&ctx), P(map), this_cpu | 1ull << 52, P(report), sizeof(report)), ERR(EINVAL));
	cr_expect_eq(call(25, P(&ctx), P(array), this_cpu, P(report), sizeof(report)), ERR(EINVAL));
	shunt_map_put(map);
	shunt_map_put(array);
}

/* ---- loops ---------------------------------------------------------------------------------------------------- */

static uint64_t add_until_10(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5)
{
	*(uint64_t *)(uintptr_t)r2 += r1;
	return *(uint64_t *)(uintptr_t)r2 >= 10;
}

Test(bpf_helpers, loop_counts_calls_and_stops_when_told)
{
	uint64_t sum = 0;

	cr_expect_eq(call(181, 4, P(add_until_10), P(&sum), 0, 0), 4u);
	cr_expect_eq(sum, 6u);
	cr_expect_eq(call(181, 100, P(add_until_10), P(&sum), 0, 0), 4u);
	cr_expect_eq(call(181, 1, P(add_until_10), P(&sum), 1, 0), ERR(EINVAL));
	cr_expect_eq(call(181, (1u << 23) + 1, P(add_until_10), P(&sum), 0, 0), (uint32_t)-E2BIG, "32 bits, as inlined in the kernel");
}

static uint64_t delete_and_sum(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5)
{
	*(uint64_t *)(uintptr_t)r4 += *(uint64_t *)(uintptr_t)r3;
	shunt_map_delete((struct shunt_map *)(uintptr_t)r1, (void *)(uintptr_t)r2);
	return 0;
}

static uint64_t sum_until_3(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5)
{
	*(uint64_t *)(uintptr_t)r4 += 1;
	return *(uint32_t *)(uintptr_t)r2 == 2;
}

Test(bpf_helpers, for_each_sees_every_entry_once_even_when_the_callback_deletes_it)
{
	struct shunt_map *hash = make_map(SHUNT_MAP_HASH, 4, 8, 64), *array = make_map(SHUNT_MAP_ARRAY, 4, 8, 5);
	uint64_t sum = 0, expected = 0;

	for (uint32_t key = 0; key < 50; key++) {
		uint64_t value = key * 3u;

		expected += value;
		cr_assert_eq(shunt_map_host_update(hash, &key, &value, 0), 0);
	}
	cr_expect_eq(call(164, P(hash), P(delete_and_sum), P(&sum), 0, 0), 50u);
	cr_expect_eq(sum, expected);
	cr_expect_eq(shunt_map_count(hash), 0u);
	cr_expect_eq(call(164, P(hash), P(delete_and_sum), P(&sum), 0, 0), 0u);
	sum = 0;
	cr_expect_eq(call(164, P(array), P(sum_until_3), P(&sum), 0, 0), 3u);
	cr_expect_eq(sum, 3u);
	cr_expect_eq(call(164, P(array), P(sum_until_3), P(&sum), 1, 0), ERR(EINVAL));
	shunt_map_put(hash);
	shunt_map_put(array);
}

/* ---- text ----------------------------------------------------------------------------------------------------- */

static char logged[600];

static void keep(void *user, enum shunt_log_level level, const char *message)
{
	if (level == SHUNT_LOG_INFO)
		snprintf(logged, sizeof(logged), "%s", message);
}

#define PRINT(format, ...) call(6, P(format), sizeof(format), __VA_ARGS__)

Test(bpf_helpers, trace_printk_logs_its_text_without_trusting_the_format)
{
	if (lacks_process_read())
		cr_skip_test(LACKS_PROCESS_READ);
	shunt_set_log(keep, NULL, SHUNT_LOG_INFO);
	cr_expect_eq(PRINT("a %d b %u c %llx%%\n", (uint64_t)-1, 1ull << 32 | 5, 1ull << 40), 24u);
	cr_expect_str_eq(logged, "a -1 b 5 c 10000000000%");
	PRINT("%s|%05x|%c", P("text"), 0xab, 'z');
	cr_expect_str_eq(logged, "text|000ab|z");
	PRINT("%s", 8, 0, 0);
	cr_expect_str_eq(logged, "(fault)", "a wild string");
	PRINT("%pI4 %p", 1, 2, 0);
	cr_expect_str_eq(logged, "0000000000000001 0000000000000002");
	logged[0] = '\0';
	cr_expect_eq(PRINT("%n", P(logged), 0, 0), ERR(EINVAL));
	cr_expect_eq(PRINT("%*d", 5, 5, 0), ERR(EINVAL));
	cr_expect_eq(PRINT("%", 5, 5, 0), ERR(EINVAL));
	cr_expect_eq(PRINT("%d %d %d %d", 5, 5, 0), ERR(EINVAL), "a fourth conversion has no argument");
	cr_expect_eq(call(6, P("no end"), 3, 0, 0, 0), ERR(EINVAL));
	cr_expect_eq(PRINT("%#x", 5, 0, 0), ERR(EINVAL));
	cr_expect_eq(PRINT("\x01", 5, 0, 0), ERR(EINVAL));
	cr_expect_eq(PRINT("\xc3\xa4", 5, 0, 0), 2u);
	logged[0] = '\0';
	cr_expect_eq(PRINT("%sx", P("text"), 0, 0), ERR(EINVAL));
	cr_expect_str_eq(logged, "");
}

Test(bpf_helpers, trace_printk_cuts_long_text)
{
	char format[900];

	shunt_set_log(keep, NULL, SHUNT_LOG_INFO);
	memset(format, 'x', sizeof(format));
	format[sizeof(format) - 1] = '\0';
	cr_expect_eq(call(6, P(format), sizeof(format), 0, 0, 0), 899u);
	cr_expect_eq(PRINT("%1500d", 1, 0, 0), 1500u, "the length is that of the whole text");
	cr_expect_gt(PRINT("%99999999999d", 1, 0, 0), 1500u);
}

Test(bpf_helpers, trace_printk_pads_and_ends_at_the_first_zero)
{
	if (lacks_process_read())
		cr_skip_test(LACKS_PROCESS_READ);
	shunt_set_log(keep, NULL, SHUNT_LOG_INFO);
	cr_expect_eq(PRINT("%5s|%-3c|", P("abc"), 'z', 0), 10u);
	cr_expect_str_eq(logged, "  abc|z  |");
	cr_expect_eq(call(6, P("a\0b"), 3, 0, 0, 0), 1u);
	cr_expect_str_eq(logged, "a");
}

static const struct {
	const char *text;
	uint64_t base, len_or_error;
	int64_t value;
	uint64_t unsigned_result; /* when it differs */
} numbers[] = {
	{ "123", 0, 3, 123, 0 }, { " -0x1f", 0, 6, -31, ERR(EINVAL) }, { "017", 0, 3, 15, 0 }, { "0x1g", 16, 3, 1, 0 }, { "0x", 0, 1, 0, 0 },
	{ "9", 8, ERR(EINVAL), 0, 0 }, { "-", 0, ERR(EINVAL), 0, 0 }, { "", 0, ERR(EINVAL), 0, 0 }, { "+1", 0, ERR(EINVAL), 0, 0 },
	{ "1", 7, ERR(EINVAL), 0, 0 }, { "12 34", 10, 2, 12, 0 }, { "9223372036854775807", 10, 19, INT64_MAX, 0 },
	{ "9223372036854775808", 10, ERR(ERANGE), 0, 19 }, { "-9223372036854775808", 10, 20, INT64_MIN, ERR(EINVAL) },
	{ "18446744073709551616", 10, ERR(ERANGE), 0, 0 }, { "0xzz", 16, ERR(EINVAL), 0, 0 }, { "0xzz", 0, 1, 0, 0 }, { "0x", 16, ERR(EINVAL), 0, 0 },
	{ "\xa0" "7", 10, 2, 7, 0 }, { "0000000000000000000000000000000000000000000000000000000000000000000005", 10, 63, 0, 0 },
};

Test(bpf_helpers, numbers_are_read_as_the_kernel_reads_them)
{
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		size_t len = strlen(numbers[i].text);
		int64_t value = 77;
		uint64_t expected = numbers[i].unsigned_result ? numbers[i].unsigned_result : numbers[i].len_or_error;

		cr_expect_eq(call(105, P(numbers[i].text), len, numbers[i].base, P(&value), 0), numbers[i].len_or_error, "'%s'", numbers[i].text);
		cr_expect_eq(value, numbers[i].value, "'%s' is %lld", numbers[i].text, (long long)value);
		cr_expect_eq(call(106, P(numbers[i].text), len, numbers[i].base, P(&value), 0), expected, "'%s'", numbers[i].text);
	}
}

Test(bpf_helpers, strings_compare_by_sign_within_the_size)
{
	cr_expect_eq(call(182, P("abc"), 3, P("abd"), 0, 0), ERR(1));
	cr_expect_eq(call(182, P("abd"), 3, P("abc"), 0, 0), 1u);
	cr_expect_eq(call(182, P("abX"), 2, P("abY"), 0, 0), 0u);
}
