/* SPDX-License-Identifier: MIT */
/* Objects that others made and objects that clang makes: their programs, maps and data are found, and what cannot run says why. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <shunt/bpf.h>
#include <shunt/log.h>

#define LIBXDP_DIR "/usr/lib/x86_64-linux-gnu/bpf/"
#define XDP_TESTS_DIR "/usr/libexec/xdp-tools/"

struct table {
	char text[8192];
	size_t len;
};

static void __attribute__((format(printf, 2, 3))) add(struct table *table, const char *format, ...)
{
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf(table->text + table->len, sizeof(table->text) - table->len, format, args);
	va_end(args);
	if (len > 0 && table->len + (size_t)len < sizeof(table->text))
		table->len += (size_t)len;
}

/* All that an object has to say, a line each. */
static void describe(struct table *table, struct shunt_bpf_object *object)
{
	static const char *const sections[] = { ".data", ".rodata", ".bss" };
	struct shunt_bpf_program *program = NULL;

	while ((program = shunt_bpf_next_program(object, program))) {
		const char *why = shunt_bpf_program_unsupported(program);

		add(table, "program %s [%s] %zu%s%s\n", shunt_bpf_program_name(program), shunt_bpf_program_section(program),
		    shunt_bpf_program_nr_insns(program), why ? ": " : "", why ? why : "");
	}
	for (size_t i = 0; i < shunt_bpf_nr_maps(object); i++) {
		const struct shunt_map *map = shunt_bpf_map(object, i);
		const struct shunt_map_abi *abi = shunt_map_abi(map);

		add(table, "map %s type %u key %u value %u entries %u\n", shunt_map_name(map), abi->type, abi->key_size, abi->value_size,
		    abi->max_entries);
	}
	for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++) {
		size_t len;

		if (shunt_bpf_section_data(object, sections[i], &len))
			add(table, "data %s %zu\n", sections[i], len);
	}
}

static void expect(const char *path, const char *text)
{
	struct shunt_bpf_object *object;
	struct table table = { .len = 0 };
	int err;

	if (access(path, R_OK))
		cr_skip_test("%s is not installed (packages libxdp1 and xdp-tests)", path);
	err = shunt_bpf_open_file(path, NULL, &object);
	cr_assert_eq(err, 0, "%s: %d %s", path, err, shunt_error());
	describe(&table, object);
	shunt_bpf_close(object);
	cr_assert_str_eq(table.text, text, "%s has\n%sinstead of\n%s", path, table.text, text);
}

#define STATS "map xdp_stats_map type 6 key 4 value 16 entries 5\n"
#define PORTS "map filter_ports type 6 key 4 value 8 entries 65536\n"
#define IPV4 "map filter_ipv4 type 5 key 4 value 8 entries 10000\n"
#define IPV6 "map filter_ipv6 type 5 key 16 value 8 entries 10000\n"
#define ETHERNET "map filter_ethernet type 5 key 6 value 8 entries 10000\n"

Test(bpf_open, xdp_filter_objects_have_their_program_and_exactly_the_maps_of_their_features)
{
	expect(LIBXDP_DIR "xdpfilt_alw_all.o", "program xdpfilt_alw_all [xdp] 437\n" STATS PORTS IPV4 IPV6 ETHERNET);
	expect(LIBXDP_DIR "xdpfilt_alw_eth.o", "program xdpfilt_alw_eth [xdp] 85\n" STATS ETHERNET);
	expect(LIBXDP_DIR "xdpfilt_alw_ip.o", "program xdpfilt_alw_ip [xdp] 299\n" STATS IPV4 IPV6);
	expect(LIBXDP_DIR "xdpfilt_alw_tcp.o", "program xdpfilt_alw_tcp [xdp] 278\n" STATS PORTS);
	expect(LIBXDP_DIR "xdpfilt_alw_udp.o", "program xdpfilt_alw_udp [xdp] 276\n" STATS PORTS);
	expect(LIBXDP_DIR "xdpfilt_dny_all.o", "program xdpfilt_dny_all [xdp] 437\n" STATS PORTS IPV4 IPV6 ETHERNET);
	expect(LIBXDP_DIR "xdpfilt_dny_eth.o", "program xdpfilt_dny_eth [xdp] 85\n" STATS ETHERNET);
	expect(LIBXDP_DIR "xdpfilt_dny_ip.o", "program xdpfilt_dny_ip [xdp] 299\n" STATS IPV4 IPV6);
	expect(LIBXDP_DIR "xdpfilt_dny_tcp.o", "program xdpfilt_dny_tcp [xdp] 278\n" STATS PORTS);
	expect(LIBXDP_DIR "xdpfilt_dny_udp.o", "program xdpfilt_dny_udp [xdp] 276\n" STATS PORTS);
}

Test(bpf_open, the_xdp_dispatcher_has_two_programs_and_its_configuration_but_its_slots_are_no_programs)
{
	expect(LIBXDP_DIR "xdp-dispatcher.o", "program xdp_dispatcher [xdp] 148\nprogram xdp_pass [xdp] 2\ndata .rodata 124\n");
}

Test(bpf_open, the_default_programs_of_af_xdp_have_their_socket_map_and_counter)
{
	expect(LIBXDP_DIR "xsk_def_xdp_prog.o", "program xsk_def_prog [xdp] 11\nmap xsks_map type 17 key 4 value 4 entries 64\ndata .data 4\n");
	expect(LIBXDP_DIR "xsk_def_xdp_prog_5.3.o",
	       "program xsk_def_prog [xdp] 23\nmap xsks_map type 17 key 4 value 4 entries 64\ndata .data 4\n");
}

Test(bpf_open, tracing_programs_are_listed_and_say_that_they_need_a_kernel)
{
	expect(LIBXDP_DIR "xdpdump_bpf.o",
	       "program trace_on_entry [fentry/func] 44: section 'fentry/func': fentry programs need a kernel to attach to\n"
	       "program trace_on_exit [fexit/func] 46: section 'fexit/func': fexit programs need a kernel to attach to\n"
	       "map xdpdump_perf_map type 4 key 4 value 4 entries 256\n"
	       "data .data 12\n");
}

Test(bpf_open, a_program_that_reports_to_perf_events_has_their_array)
{
	expect(LIBXDP_DIR "xdpdump_xdp.o",
	       "program xdpdump [xdp] 35\nmap xdpdump_perf_map type 4 key 4 value 4 entries 256\ndata .data 12\n");
}

Test(bpf_open, objects_without_maps_open_and_sections_that_nothing_refers_to_do_not_matter)
{
	expect(XDP_TESTS_DIR "xdp_drop.o", "program xdp_drop [xdp] 2\n");
	expect(XDP_TESTS_DIR "xdp_pass.o", "program xdp_pass [xdp] 2\n");
	expect(XDP_TESTS_DIR "test_long_func_name.o",
	       "program xdp_test_prog_with_a_long_name [xdp] 15\nprogram xdp_test_prog_with_a_long_name_too [xdp] 15\n");
}

#ifdef BPF_FEATURES_OBJECT
static struct shunt_bpf_object *open_features(const struct shunt_bpf_options *options)
{
	struct shunt_bpf_object *object;
	int err = shunt_bpf_open_file(BPF_FEATURES_OBJECT, options, &object);

	cr_assert_eq(err, 0, "%d %s", err, shunt_error());
	return object;
}

static const char *reason(struct shunt_bpf_object *object, const char *name)
{
	struct shunt_bpf_program *program = shunt_bpf_find_program(object, name);

	cr_assert_not_null(program, "no program %s", name);
	return shunt_bpf_program_unsupported(program);
}

static void expect_reason(struct shunt_bpf_object *object, const char *name, const char *part)
{
	const char *why = reason(object, name);

	cr_assert_not_null(why, "%s is said to be supported", name);
	cr_assert_not_null(strstr(why, part), "%s: '%s' does not say '%s'", name, why, part);
}

Test(bpf_open, programs_with_subprograms_callbacks_data_and_nested_maps_are_supported)
{
	static const char *const names[] = { "xdp_calls", "xdp_text", "xdp_loops", "xdp_jumps", "xdp_tail", "xdp_nested", "xdp_weak", "xdp_headers" };
	struct shunt_bpf_object *object = open_features(NULL);

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		cr_expect_null(reason(object, names[i]), "%s: %s", names[i], reason(object, names[i]));
	cr_expect_null(shunt_bpf_find_program(object, "weigh"), "a function of .text is not a program");
	cr_expect_null(shunt_bpf_find_program(object, "twice"), "a static function is not a program");
	cr_expect_str_eq(shunt_bpf_program_name(shunt_bpf_find_program(object, "xdp/text")), "xdp_text", "a section finds its program");
	shunt_bpf_close(object);
}

Test(bpf_open, what_needs_a_kernel_is_named_by_each_program_that_needs_it)
{
	struct shunt_bpf_object *object = open_features(NULL);

	expect_reason(object, "xdp_events", "map 'events' is of the type RINGBUF (27)");
	expect_reason(object, "xdp_kconfig", "'LINUX_KERNEL_VERSION' (.kconfig)");
	expect_reason(object, "xdp_ksym", "'kernel_only' is a symbol of a kernel");
	expect_reason(object, "xdp_kfunc", "calls 'kernel_call', a function of the kernel");
	expect_reason(object, "xdp_license", "section 'license'");
	expect_reason(object, "xdp_core", "CO-RE relocation against 'task_struct'");
	expect_reason(object, "tc_pass", "section 'tc': tc programs are not supported");
	expect_reason(object, "trace", "section 'fentry/do_nothing': fentry programs need a kernel");
	expect_reason(object, "custom", "'custom' is no program type");
	shunt_bpf_close(object);
}

Test(bpf_open, data_sections_have_the_bytes_of_the_file_and_pointers_between_them_are_resolved)
{
	struct shunt_bpf_object *object = open_features(NULL);
	size_t len;
	uint32_t *limit = shunt_bpf_section_data(object, ".rodata", &len);
	uint64_t *data, *bss;

	cr_assert_not_null(limit);
	cr_expect_eq(len, 4);
	cr_expect_eq(*limit, 7);
	data = shunt_bpf_section_data(object, ".data", &len);
	cr_assert_not_null(data);
	cr_expect_eq(len, 16);
	cr_expect_str_eq((const char *)(uintptr_t)data[0], "hello");
	cr_expect_eq(data[1], 5);
	bss = shunt_bpf_section_data(object, ".bss", &len);
	cr_assert_not_null(bss);
	cr_expect_eq(bss[0], 0);
	bss[0] = 1;
	cr_expect_null(shunt_bpf_section_data(object, ".nothing", &len));
	cr_expect_eq(len, 0);
	shunt_bpf_close(object);
}

Test(bpf_open, inner_maps_that_a_definition_lists_are_in_the_map)
{
	struct shunt_bpf_object *object = open_features(NULL);
	struct shunt_map *outer = shunt_bpf_find_map(object, "outer"), *inner = NULL;

	cr_assert_not_null(outer);
	for (uint32_t i = 0; i < 8; i++) {
		int err = shunt_map_host_lookup(outer, &i, &inner);

		if (i != 1 && i != 5) {
			cr_expect_eq(err, -ENOENT, "element %u: %d", i, err);
			continue;
		}
		cr_assert_eq(err, 0, "element %u: %d", i, err);
		cr_expect_eq(inner, shunt_bpf_find_map(object, i == 1 ? "first" : "second"), "element %u", i);
	}
	shunt_bpf_close(object);
}
#endif
