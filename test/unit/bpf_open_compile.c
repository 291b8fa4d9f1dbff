/* SPDX-License-Identifier: MIT */
/* From an object to code that runs: choice of programs, helpers of the host, data, and what maps list. */
#include "test/unit/bpf_open_build.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <shunt/bpf.h>
#include <shunt/jit.h>
#include <shunt/log.h>
#include <shunt/reader.h>

typedef uint64_t memory_fn(void *memory, size_t len);
typedef uint32_t xdp_fn(struct shunt_xdp_ctx *ctx);

static uint64_t run_memory(struct shunt_bpf_object *object)
{
	memory_fn *entry = (memory_fn *)(uintptr_t)shunt_bpf_program_entry(shunt_bpf_next_program(object, NULL));
	uint64_t result;

	cr_assert_not_null(entry);
	shunt_read_begin();
	result = entry(NULL, 0);
	shunt_read_end();
	return result;
}

static struct shunt_bpf_object *open_insns(const struct bpf_insn *insns, size_t nr, const struct shunt_bpf_options *options)
{
	struct shunt_bpf_object *object;

	cr_assert_eq(shunt_bpf_open_insns(insns, nr, SHUNT_BPF_CONTEXT_NONE, options, &object), 0, "%s", shunt_error());
	return object;
}

Test(bpf_open_compile, bare_instructions_run_and_have_an_entry_only_after_compiling)
{
	const struct bpf_insn insns[] = { INSN_MOV(0, 42), INSN_EXIT };
	struct shunt_bpf_object *object = open_insns(insns, 2, NULL);
	struct shunt_bpf_program *program = shunt_bpf_next_program(object, NULL);
	const void *code;
	size_t len;

	cr_expect_null(shunt_bpf_program_entry(program));
	cr_expect_eq(shunt_bpf_program_code(program, &code, &len), -ENOENT);
	cr_assert_eq(shunt_bpf_compile(object), 0, "%s", shunt_error());
	cr_expect_eq(run_memory(object), 42);
	cr_assert_eq(shunt_bpf_program_code(program, &code, &len), 0, "%s", shunt_error());
	cr_expect_eq(code, shunt_bpf_program_entry(program));
	cr_expect_gt(len, 0);
	cr_expect_null(shunt_bpf_program_ir(program), "no IR is kept unless asked for");
	cr_expect_eq(shunt_bpf_compile(object), -EALREADY);
	shunt_bpf_close(object);
	cr_expect_eq(shunt_quiesce(), 0);
}

Test(bpf_open_compile, calls_between_bare_instructions_run)
{
	/* r0 = sub(5) + 1, sub(x) = x * 2 */
	const struct bpf_insn insns[] = { INSN_MOV(1, 5),
					  INSN_CALL_LOCAL(2),
					  { .code = 0x07, .imm = 1 },
					  INSN_EXIT,
					  { .code = 0xbf, .dst_reg = 0, .src_reg = 1 },
					  { .code = 0x27, .imm = 2 },
					  INSN_EXIT };
	struct shunt_bpf_object *object = open_insns(insns, 7, NULL);

	cr_assert_eq(shunt_bpf_compile(object), 0, "%s", shunt_error());
	cr_expect_eq(run_memory(object), 11);
	shunt_bpf_close(object);
}

static uint64_t a_million(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5)
{
	return 1000000 + r1;
}

Test(bpf_open_compile, an_unknown_helper_is_refused_until_the_host_sets_it)
{
	const struct bpf_insn insns[] = { INSN_MOV(1, 3), INSN_CALL(3000), INSN_EXIT };
	struct shunt_bpf_object *object = open_insns(insns, 3, NULL);

	cr_assert_eq(shunt_bpf_compile(object), -ENOTSUP);
	cr_expect_not_null(strstr(shunt_error(), "3000"), "%s", shunt_error());
	cr_assert_eq(shunt_bpf_set_helper(object, 3000, a_million), 0, "%s", shunt_error());
	cr_assert_eq(shunt_bpf_compile(object), 0, "%s", shunt_error());
	cr_expect_eq(run_memory(object), 1000003);
	cr_expect_eq(shunt_bpf_set_helper(object, 3001, a_million), -EBUSY);
	shunt_bpf_close(object);
}

Test(bpf_open_compile, a_helper_of_the_host_replaces_the_built_in_one_even_where_a_pass_knows_it)
{
	/* Helper 8 is the CPU number, which becomes a load. */
	const struct bpf_insn insns[] = { INSN_CALL(8), INSN_EXIT };
	struct shunt_bpf_object *object = open_insns(insns, 2, NULL);

	cr_assert_eq(shunt_bpf_set_helper(object, 8, a_million), 0, "%s", shunt_error());
	cr_assert_eq(shunt_bpf_compile(object), 0, "%s", shunt_error());
	cr_expect_eq(run_memory(object), 1000000, "a helper without arguments gets none");
	shunt_bpf_close(object);
}

Test(bpf_open_compile, helpers_that_cannot_be_set_are_refused)
{
	const struct bpf_insn insns[] = { INSN_MOV(0, 0), INSN_EXIT };
	struct shunt_bpf_object *object = open_insns(insns, 2, NULL);

	cr_expect_eq(shunt_bpf_set_helper(object, 0, a_million), -EINVAL);
	cr_expect_eq(shunt_bpf_set_helper(object, 4096, a_million), -EINVAL);
	cr_expect_eq(shunt_bpf_set_helper(object, 5, NULL), -EINVAL);
	cr_expect_eq(shunt_bpf_set_helper(object, 12, a_million), -EINVAL, "tail calls are expanded in place");
	shunt_bpf_close(object);
}

Test(bpf_open_compile, bad_bytecode_is_refused_with_its_instruction)
{
	const struct bpf_insn insns[] = { INSN_MOV(0, 0), { .code = 0x05, .off = 100 }, INSN_EXIT };
	struct shunt_bpf_object *object = open_insns(insns, 3, NULL);

	cr_expect_eq(shunt_bpf_compile(object), -EINVAL);
	cr_expect_not_null(strstr(shunt_error(), "main"), "%s", shunt_error());
	cr_expect_not_null(strstr(shunt_error(), "1"), "%s", shunt_error());
	shunt_bpf_close(object);
}

Test(bpf_open_compile, every_installed_object_compiles_all_of_its_supported_programs)
{
	glob_t found = { 0 };

	glob("/usr/lib/*/bpf/*.o", 0, NULL, &found);
	glob("/usr/libexec/xdp-tools/*.o", GLOB_APPEND, NULL, &found);
	if (!found.gl_pathc)
		cr_skip_test("no BPF objects are installed (packages libxdp1 and xdp-tests)");
	for (size_t i = 0; i < found.gl_pathc; i++) {
		struct shunt_bpf_program *program = NULL;
		struct shunt_bpf_object *object;
		size_t nr_supported = 0;
		int err;

		cr_assert_eq(shunt_bpf_open_file(found.gl_pathv[i], NULL, &object), 0, "%s", shunt_error());
		while ((program = shunt_bpf_next_program(object, program)))
			nr_supported += !shunt_bpf_program_unsupported(program);
		err = shunt_bpf_compile(object);
		cr_expect_eq(err, nr_supported ? 0 : -ENOTSUP, "%s: %d %s", found.gl_pathv[i], err, shunt_error());
		while ((program = shunt_bpf_next_program(object, program)))
			cr_expect_eq(!shunt_bpf_program_entry(program), !!shunt_bpf_program_unsupported(program), "%s: %s",
				     found.gl_pathv[i], shunt_bpf_program_name(program));
		shunt_bpf_close(object);
	}
	globfree(&found);
}

#ifdef BPF_FEATURES_OBJECT
static struct shunt_bpf_object *open_features(const struct shunt_bpf_options *options)
{
	struct shunt_bpf_object *object;

	cr_assert_eq(shunt_bpf_open_file(BPF_FEATURES_OBJECT, options, &object), 0, "%s", shunt_error());
	return object;
}

static uint32_t run_xdp(struct shunt_bpf_object *object, const char *name)
{
	struct shunt_bpf_program *program = shunt_bpf_find_program(object, name);
	static uint8_t frame[64];
	struct shunt_xdp_ctx ctx = { .data = frame,
				     .data_end = frame + sizeof(frame),
				     .data_meta = frame,
				     .data_hard_start = frame,
				     .data_hard_end = frame + sizeof(frame) };
	uint32_t verdict;

	cr_assert_not_null(program, "no program %s", name);
	cr_assert_not_null(shunt_bpf_program_entry(program), "%s was not compiled", name);
	frame[12] = 8;
	shunt_read_begin();
	verdict = ((xdp_fn *)(uintptr_t)shunt_bpf_program_entry(program))(&ctx);
	shunt_read_end();
	return verdict;
}

Test(bpf_open_compile, every_supported_program_of_an_object_runs)
{
	struct shunt_bpf_object *object = open_features(NULL);
	uint64_t *counter, value = 3;
	const uint32_t zero = 0;
	size_t len;

	cr_assert_eq(shunt_bpf_compile(object), 0, "%s", shunt_error());
	cr_expect_eq(run_xdp(object, "xdp_calls"), SHUNT_XDP_PASS);
	cr_expect_eq(run_xdp(object, "xdp_text"), SHUNT_XDP_PASS);
	cr_expect_eq(run_xdp(object, "xdp_loops"), SHUNT_XDP_PASS);
	cr_expect_eq(run_xdp(object, "xdp_weak"), SHUNT_XDP_PASS);
	cr_expect_eq(run_xdp(object, "xdp_headers"), SHUNT_XDP_PASS);
	cr_expect_eq(run_xdp(object, "xdp_jumps"), SHUNT_XDP_TX, "the program array that the object lists holds its program");
	cr_expect_eq(run_xdp(object, "xdp_nested"), 0);
	cr_assert_eq(shunt_map_host_update(shunt_bpf_find_map(object, "second"), &zero, &value, SHUNT_ANY), 0);
	cr_expect_eq(run_xdp(object, "xdp_nested"), 3, "the inner map is the one that the host sees");
	/* weigh() = 2 * (2 * 3 + 7 + 1) + 7 + counter; the counter is live. */
	counter = (uint64_t *)shunt_bpf_section_data(object, ".data", &len) + 1;
	*counter = (uint64_t)-100;
	cr_expect_eq(run_xdp(object, "xdp_calls"), SHUNT_XDP_DROP);
	cr_expect_null(shunt_bpf_program_entry(shunt_bpf_find_program(object, "trace")));
	shunt_bpf_close(object);
	cr_expect_eq(shunt_quiesce(), 0);
}

Test(bpf_open_compile, lookups_in_maps_of_a_map_are_inline_and_see_whichever_map_is_there)
{
	const struct shunt_bpf_options options = { .program = "xdp_nested", .keep_ir = true };
	struct shunt_bpf_object *object = open_features(&options);
	const struct shunt_map_attr attr = { .name = "third", .type = SHUNT_MAP_ARRAY, .key_size = 4, .value_size = 8, .max_entries = 4 };
	const struct shunt_map_attr longer = { .name = "longer", .type = SHUNT_MAP_ARRAY, .key_size = 4, .value_size = 8, .max_entries = 5 };
	const uint32_t zero = 0, five = 5;
	const uint64_t value = 9;
	struct shunt_map *third, *other;
	const char *call;

	cr_assert_eq(shunt_bpf_compile(object), 0, "%s", shunt_error());
	cr_expect_eq(shunt_bpf_counts(object)->array_lookups, 1, "the inner one");
	call = strstr(shunt_bpf_program_ir(shunt_bpf_find_program(object, "xdp_nested")), "call ptr @shunt_map_lookup(");
	cr_assert_not_null(call, "the outer one");
	cr_expect_null(strstr(call + 1, "call ptr @shunt_map_lookup("));

	cr_assert_eq(shunt_map_create(&attr, &third), 0);
	cr_assert_eq(shunt_map_create(&longer, &other), 0);
	cr_assert_eq(shunt_map_host_update(third, &zero, &value, SHUNT_ANY), 0);
	cr_assert_eq(shunt_map_host_update(shunt_bpf_find_map(object, "outer"), &five, &third, SHUNT_ANY), 0, "%s", shunt_error());
	cr_expect_eq(run_xdp(object, "xdp_nested"), 9);
	cr_expect_eq(shunt_map_host_update(shunt_bpf_find_map(object, "outer"), &five, &other, SHUNT_ANY), -EINVAL,
		     "its bound is in the code");
	shunt_map_put(third);
	shunt_map_put(other);
	shunt_bpf_close(object);
	cr_expect_eq(shunt_quiesce(), 0);
}

Test(bpf_open_compile, objects_with_the_same_names_share_a_compiler_and_die_alone)
{
	struct shunt_bpf_options options = { 0 };
	struct shunt_bpf_object *one, *two;
	uint64_t *counter;
	size_t len;

	cr_assert_eq(shunt_jit_create(NULL, &options.jit), 0, "%s", shunt_error());
	one = open_features(&options);
	two = open_features(&options);
	cr_assert_eq(shunt_bpf_compile(one), 0, "%s", shunt_error());
	cr_assert_eq(shunt_bpf_compile(two), 0, "%s", shunt_error());
	counter = (uint64_t *)shunt_bpf_section_data(one, ".data", &len) + 1;
	*counter = (uint64_t)-100;
	cr_expect_eq(run_xdp(one, "xdp_calls"), SHUNT_XDP_DROP);
	cr_expect_eq(run_xdp(two, "xdp_calls"), SHUNT_XDP_PASS, "each object has its own data");
	shunt_bpf_close(one);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_expect_eq(run_xdp(two, "xdp_calls"), SHUNT_XDP_PASS);
	shunt_bpf_close(two);
	shunt_jit_destroy(options.jit);
	cr_expect_eq(shunt_quiesce(), 0);
}

Test(bpf_open_compile, only_the_program_that_was_asked_for_is_compiled)
{
	struct shunt_bpf_options options = { .program = "xdp_tail", .keep_ir = true };
	struct shunt_bpf_object *object = open_features(&options);
	const char *ir;

	cr_assert_eq(shunt_bpf_compile(object), 0, "%s", shunt_error());
	cr_expect_eq(run_xdp(object, "xdp_tail"), SHUNT_XDP_TX);
	cr_expect_null(shunt_bpf_program_entry(shunt_bpf_find_program(object, "xdp_calls")));
	ir = shunt_bpf_program_ir(shunt_bpf_find_program(object, "xdp_tail"));
	cr_assert_not_null(ir);
	cr_expect_not_null(strstr(ir, "xdp_tail"));
	cr_expect_null(strstr(ir, "xdp_calls"), "what is not reached is not in the module");
	shunt_bpf_close(object);
}

Test(bpf_open_compile, a_program_that_a_map_lists_is_compiled_with_the_one_that_refers_to_the_map)
{
	struct shunt_bpf_options options = { .program = "xdp_jumps" };
	struct shunt_bpf_object *object = open_features(&options);

	cr_assert_eq(shunt_bpf_compile(object), 0, "%s", shunt_error());
	cr_expect_eq(run_xdp(object, "xdp_jumps"), SHUNT_XDP_TX);
	shunt_bpf_close(object);
}

Test(bpf_open_compile, a_program_array_that_outlives_its_object_no_longer_names_its_code)
{
	struct shunt_bpf_object *object = open_features(NULL);
	struct shunt_map *jumps = shunt_map_get(shunt_bpf_find_map(object, "jumps"));
	const uint32_t key = 2;
	const void *entry = NULL;

	cr_expect_eq(shunt_map_host_lookup(jumps, &key, &entry), -ENOENT, "there is no code before compiling");
	cr_assert_eq(shunt_bpf_compile(object), 0, "%s", shunt_error());
	cr_assert_eq(shunt_map_host_lookup(jumps, &key, &entry), 0);
	cr_expect_eq(entry, shunt_bpf_program_entry(shunt_bpf_find_program(object, "xdp_tail")));
	shunt_bpf_close(object);
	cr_expect_eq(shunt_map_host_lookup(jumps, &key, &entry), -ENOENT);
	shunt_map_put(jumps);
}

Test(bpf_open_compile, a_program_that_is_absent_or_not_supported_is_told_apart)
{
	struct shunt_bpf_options options = { .program = "nobody" };
	struct shunt_bpf_object *object = open_features(&options);

	cr_expect_eq(shunt_bpf_compile(object), -ENOENT);
	cr_expect_not_null(strstr(shunt_error(), "no program 'nobody'"), "%s", shunt_error());
	shunt_bpf_close(object);
	options.program = "trace";
	object = open_features(&options);
	cr_expect_eq(shunt_bpf_compile(object), -ENOTSUP);
	cr_expect_not_null(strstr(shunt_error(), "fentry"), "%s", shunt_error());
	shunt_bpf_close(object);
}
#endif
