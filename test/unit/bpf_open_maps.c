/* SPDX-License-Identifier: MIT */
/* Map definitions of both kinds, right and wrong ones; maps shared by name; bare instructions. */
#include "test/unit/bpf_open_build.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <linux/btf.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <shunt/bpf.h>
#include <shunt/log.h>

#define NR(array) ((uint32_t)(sizeof(array) / sizeof((array)[0])))

/* An object whose program "prog" refers to map "table" with those fields. */
static void build_with_map(struct build *b, const struct build_field *fields, uint32_t nr)
{
	const struct bpf_insn insns[] = { INSN_LD64(1, 0), INSN_MOV(0, 2), INSN_EXIT };
	uint32_t code, maps;

	code = build_code(b, "xdp", insns, 4);
	maps = build_section(b, ".maps", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, NULL, 0);
	b->sections[maps].bytes = calloc(1, 64);
	b->sections[maps].room = 64;
	b->sections[maps].len = 64;
	build_func(b, "prog", code, 0, 4);
	build_reloc(b, code, 0, 1, build_map(b, maps, 0, "table", fields, nr));
}

static int open_built(struct build *b, const struct shunt_bpf_options *options, struct shunt_bpf_object **object)
{
	size_t len;
	uint8_t *bytes;
	int err;

	build_btf_end(b);
	bytes = build_finish(b, &len);
	err = shunt_bpf_open_memory(bytes, len, "test.o", options, object);
	free(bytes);
	build_fini(b);
	return err;
}

static int open_with_map(const struct build_field *fields, uint32_t nr, const struct shunt_bpf_options *options,
			 struct shunt_bpf_object **object)
{
	struct build b;

	build_init(&b);
	build_with_map(&b, fields, nr);
	return open_built(&b, options, object);
}

static void refuse(int err, int want, const char *part)
{
	cr_assert_eq(err, -want, "%d (%s) instead of %d", err, shunt_error(), -want);
	cr_assert_eq(strncmp(shunt_error(), "test.o: ", 8), 0, "'%s' does not name the object", shunt_error());
	cr_assert_not_null(strstr(shunt_error(), part), "'%s' does not say '%s'", shunt_error(), part);
}

static const struct build_field array[] = {
	{ .name = "type", .number = 2 },
	{ .name = "key_size", .number = 4 },
	{ .name = "value_size", .number = 12 },
	{ .name = "max_entries", .number = 3 },
};

Test(bpf_open_maps, a_map_has_the_shape_of_its_btf_definition)
{
	struct shunt_bpf_object *object;
	const struct shunt_map_abi *abi;

	cr_assert_eq(open_with_map(array, NR(array), NULL, &object), 0, "%s", shunt_error());
	cr_assert_eq(shunt_bpf_nr_maps(object), 1);
	cr_assert_not_null(shunt_bpf_find_map(object, "table"));
	cr_assert_eq(shunt_bpf_map(object, 0), shunt_bpf_find_map(object, "table"));
	cr_assert_null(shunt_bpf_map(object, 1));
	cr_assert_null(shunt_bpf_find_map(object, "chair"));
	abi = shunt_map_abi(shunt_bpf_map(object, 0));
	cr_expect_eq(abi->type, 2);
	cr_expect_eq(abi->key_size, 4);
	cr_expect_eq(abi->value_size, 12);
	cr_expect_eq(abi->max_entries, 3);
	shunt_bpf_close(object);
}

Test(bpf_open_maps, a_perf_event_array_without_a_size_has_an_entry_for_each_cpu)
{
	const struct build_field fields[] = { { .name = "type", .number = SHUNT_MAP_PERF_EVENT_ARRAY }, array[1],
					      { .name = "value_size", .number = 4 } };
	struct shunt_bpf_object *object;

	cr_assert_eq(open_with_map(fields, NR(fields), NULL, &object), 0, "%s", shunt_error());
	cr_expect_eq(shunt_map_abi(shunt_bpf_map(object, 0))->max_entries, shunt_nr_cpus());
	shunt_bpf_close(object);
}

Test(bpf_open_maps, key_and_value_types_give_the_sizes_through_typedefs_and_arrays)
{
	struct shunt_bpf_object *object;
	const struct shunt_map_abi *abi;
	struct build b;
	uint32_t word, triple;

	build_init(&b);
	word = build_btf(&b, "u32", BTF_KIND_TYPEDEF, 0, build_btf(&b, "", BTF_KIND_CONST, 0, build_btf_int(&b, 4), NULL, 0), NULL,
			 0);
	triple = build_btf_array(&b, build_btf_array(&b, word, 3), 2);
	build_with_map(&b,
		       (struct build_field[]){ { .name = "type", .number = 1 },
					       { .name = "key", .type = word },
					       { .name = "value", .type = triple },
					       { .name = "max_entries", .number = 9 } },
		       4);
	cr_assert_eq(open_built(&b, NULL, &object), 0, "%s", shunt_error());
	abi = shunt_map_abi(shunt_bpf_map(object, 0));
	cr_expect_eq(abi->key_size, 4);
	cr_expect_eq(abi->value_size, 24);
	shunt_bpf_close(object);
}

Test(bpf_open_maps, definitions_that_contradict_themselves_or_are_no_definitions_are_refused)
{
	struct shunt_bpf_object *object;
	struct build b;
	uint32_t loop, word;

	refuse(open_with_map((struct build_field[]){ array[0], array[1], { .name = "key_size", .number = 8 } }, 3, NULL, &object),
	       EINVAL, "key_size is given as 4 and as 8");
	refuse(open_with_map((struct build_field[]){ { .name = "type", .raw = 1 } }, 1, NULL, &object), EINVAL,
	       "'type' is not a number");
	refuse(open_with_map((struct build_field[]){ { .name = "type", .raw = 4000 } }, 1, NULL, &object), EINVAL,
	       "'type' is not a number");
	refuse(open_with_map((struct build_field[]){ { .name = "key", .raw = 1 } }, 1, NULL, &object), EINVAL,
	       "'key' is not a type with a size");
	refuse(open_with_map((struct build_field[]){ array[0], { .name = "values", .raw = 1 } }, 2, NULL, &object), EINVAL,
	       "'values' is not an array of pointers");
	refuse(open_with_map((struct build_field[]){ array[0], { .name = "pinning", .number = 7 } }, 2, NULL, &object), EINVAL,
	       "pinning 7");
	/* A typedef of itself. */
	build_init(&b);
	loop = build_btf(&b, "loop", BTF_KIND_TYPEDEF, 0, 1, NULL, 0);
	build_with_map(&b, (struct build_field[]){ array[0], { .name = "key", .type = loop } }, 2);
	refuse(open_built(&b, NULL, &object), EINVAL, "'key' is not a type with a size");
	/* Arrays of arrays of 2^64 elements: the product wraps around to 0. */
	build_init(&b);
	word = build_btf_int(&b, 4);
	for (int i = 0; i < 4; i++)
		word = build_btf_array(&b, word, 65536);
	build_with_map(&b, (struct build_field[]){ array[0], { .name = "value", .type = word } }, 2);
	refuse(open_built(&b, NULL, &object), EINVAL, "'value' is not a type with a size");
}

Test(bpf_open_maps, a_shape_that_the_kernel_refuses_is_refused_with_the_map_named)
{
	struct shunt_bpf_object *object;

	refuse(open_with_map((struct build_field[]){ array[0], { .name = "key_size", .number = 8 }, array[2], array[3] }, 4, NULL,
			     &object),
	       EINVAL, "'table'");
}

Test(bpf_open_maps, unknown_fields_and_types_are_told_by_the_program_that_refers_to_the_map)
{
	const struct build_field unknown[] = { array[0], array[1], array[2], array[3], { .name = "colour", .number = 3 } };
	struct shunt_bpf_object *object;
	const char *why;

	cr_assert_eq(open_with_map(unknown, 5, NULL, &object), 0, "%s", shunt_error());
	why = shunt_bpf_program_unsupported(shunt_bpf_next_program(object, NULL));
	cr_expect(why && strstr(why, "map 'table' has the unknown field 'colour'"), "%s", why ? why : "supported");
	cr_expect_eq(shunt_bpf_nr_maps(object), 0);
	cr_expect_null(shunt_bpf_find_map(object, "table"));
	shunt_bpf_close(object);
	cr_assert_eq(open_with_map((struct build_field[]){ { .name = "type", .number = 200 } }, 1, NULL, &object), 0, "%s",
		     shunt_error());
	why = shunt_bpf_program_unsupported(shunt_bpf_next_program(object, NULL));
	cr_expect(why && strstr(why, "type unknown (200)"), "%s", why ? why : "supported");
	shunt_bpf_close(object);
}

Test(bpf_open_maps, a_map_variable_that_btf_does_not_describe_is_refused)
{
	struct shunt_bpf_object *object;
	struct build b;

	build_init(&b);
	build_with_map(&b, array, NR(array));
	build_symbol(&b, "other", 4, 32, 32, STT_OBJECT, STB_GLOBAL);
	refuse(open_built(&b, NULL, &object), EINVAL, "map 'other' of section '.maps' is not described by BTF");
}

Test(bpf_open_maps, a_reference_between_two_maps_is_refused)
{
	const struct bpf_insn insns[] = { INSN_LD64(1, 8), INSN_MOV(0, 2), INSN_EXIT };
	struct shunt_bpf_object *object;
	struct build b;
	uint32_t maps, code;

	build_init(&b);
	code = build_code(&b, "xdp", insns, 4);
	maps = build_section(&b, ".maps", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, &(uint8_t[32]){ 0 }, 32);
	build_func(&b, "prog", code, 0, 4);
	build_reloc(&b, code, 0, 1, build_map(&b, maps, 0, "table", array, NR(array)));
	refuse(open_built(&b, NULL, &object), EINVAL, "offset 8 of section '.maps', where no map begins");
}

static int open_legacy(const void *defs, size_t len, uint32_t size, struct shunt_bpf_object **object)
{
	struct build b;
	uint32_t maps;

	build_init(&b);
	build_pass(&b);
	maps = build_section(&b, "maps", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, defs, len);
	for (uint32_t i = 0; i * size < len; i++)
		build_symbol(&b, i ? "second" : "first", maps, (uint64_t)i * size, 0, STT_NOTYPE, STB_GLOBAL);
	return open_built(&b, NULL, object);
}

Test(bpf_open_maps, definitions_in_the_old_section_maps_are_read_with_and_without_unused_fields)
{
	const uint32_t plain[] = { 2, 4, 8, 16, 0, 1, 16, 8, 100, 0 };
	const uint32_t longer[] = { 2, 4, 8, 16, 0, 0, 0, 1, 16, 8, 100, 0, 0, 0 };
	struct shunt_bpf_object *object;

	for (int i = 0; i < 2; i++) {
		int err = i ? open_legacy(longer, sizeof(longer), 28, &object) : open_legacy(plain, sizeof(plain), 20, &object);
		const struct shunt_map_abi *abi;

		cr_assert_eq(err, 0, "%s", shunt_error());
		cr_assert_eq(shunt_bpf_nr_maps(object), 2);
		abi = shunt_map_abi(shunt_bpf_find_map(object, "second"));
		cr_expect_eq(abi->type, 1);
		cr_expect_eq(abi->key_size, 16);
		cr_expect_eq(abi->max_entries, 100);
		shunt_bpf_close(object);
	}
	refuse(open_legacy(plain, 36, 20, &object), EINVAL, "map 'second' of section 'maps' has 16 bytes");
}

static const struct build_field pinned[] = {
	{ .name = "type", .number = 2 },	{ .name = "key_size", .number = 4 }, { .name = "value_size", .number = 12 },
	{ .name = "max_entries", .number = 3 }, { .name = "pinning", .number = 1 },
};

Test(bpf_open_maps, maps_pinned_by_name_are_shared_through_the_pins_and_others_are_not)
{
	struct shunt_bpf_options options = { 0 };
	struct shunt_bpf_object *one, *two, *three, *four;

	cr_assert_eq(shunt_bpf_pins_create(&options.pins), 0);
	cr_assert_eq(open_with_map(pinned, NR(pinned), &options, &one), 0, "%s", shunt_error());
	cr_assert_eq(open_with_map(pinned, NR(pinned), &options, &two), 0, "%s", shunt_error());
	cr_assert_eq(open_with_map(array, NR(array), &options, &three), 0, "%s", shunt_error());
	cr_assert_eq(open_with_map(pinned, NR(pinned), NULL, &four), 0, "%s", shunt_error());
	cr_expect_eq(shunt_bpf_map(one, 0), shunt_bpf_map(two, 0));
	cr_expect_neq(shunt_bpf_map(one, 0), shunt_bpf_map(three, 0), "a map that is not pinned is private");
	cr_expect_neq(shunt_bpf_map(one, 0), shunt_bpf_map(four, 0), "without pins every map is private");
	shunt_bpf_close(one);
	shunt_bpf_pins_destroy(options.pins);
	/* The object's own reference keeps it. */
	cr_expect_eq(shunt_map_abi(shunt_bpf_map(two, 0))->value_size, 12);
	shunt_bpf_close(two);
	shunt_bpf_close(three);
	shunt_bpf_close(four);
	shunt_bpf_pins_destroy(NULL);
}

Test(bpf_open_maps, a_pin_outlives_the_object_that_made_it_with_its_contents)
{
	const uint32_t key = 1;
	struct shunt_bpf_options options = { 0 };
	struct shunt_bpf_object *object;
	char value[12] = "eleven char";

	cr_assert_eq(shunt_bpf_pins_create(&options.pins), 0);
	cr_assert_eq(open_with_map(pinned, NR(pinned), &options, &object), 0, "%s", shunt_error());
	cr_assert_eq(shunt_map_host_update(shunt_bpf_map(object, 0), &key, value, SHUNT_ANY), 0);
	shunt_bpf_close(object);
	memset(value, 0, sizeof(value));
	cr_assert_eq(open_with_map(pinned, NR(pinned), &options, &object), 0, "%s", shunt_error());
	cr_assert_eq(shunt_map_host_lookup(shunt_bpf_map(object, 0), &key, value), 0);
	cr_expect_str_eq(value, "eleven char");
	shunt_bpf_close(object);
	shunt_bpf_pins_destroy(options.pins);
}

Test(bpf_open_maps, a_pin_of_another_shape_is_refused_with_both_shapes)
{
	struct shunt_bpf_options options = { 0 };
	struct shunt_bpf_object *one, *two;
	struct build_field wider[NR(pinned)];

	memcpy(wider, pinned, sizeof(pinned));
	wider[2].number = 16;
	cr_assert_eq(shunt_bpf_pins_create(&options.pins), 0);
	cr_assert_eq(open_with_map(pinned, NR(pinned), &options, &one), 0, "%s", shunt_error());
	refuse(open_with_map(wider, NR(wider), &options, &two), EINVAL,
	       "map 'table' is pinned with another shape: type 2, key 4, value 12");
	cr_expect_not_null(strstr(shunt_error(), "value 16"), "%s", shunt_error());
	shunt_bpf_close(one);
	shunt_bpf_pins_destroy(options.pins);
}

Test(bpf_open_maps, an_object_that_does_not_open_leaves_no_pins)
{
	struct shunt_bpf_options options = { 0 };
	struct build_field wider[NR(pinned)];
	struct shunt_bpf_object *object;
	struct build b;

	memcpy(wider, pinned, sizeof(pinned));
	wider[2].number = 16;
	cr_assert_eq(shunt_bpf_pins_create(&options.pins), 0);
	/* The second map of the object has a shape that is refused, after the first was made. */
	build_init(&b);
	build_with_map(&b, pinned, NR(pinned));
	build_map(&b, 4, 32, "wrong", (struct build_field[]){ array[0], { .name = "key_size", .number = 8 }, array[2], array[3] },
		  4);
	refuse(open_built(&b, &options, &object), EINVAL, "'wrong'");
	cr_expect_eq(open_with_map(wider, NR(wider), &options, &object), 0, "%s", shunt_error());
	shunt_bpf_close(object);
	shunt_bpf_pins_destroy(options.pins);
}

#define NR_THREADS 2
#define NR_ROUNDS 500

static struct shunt_bpf_pins *race_pins[NR_ROUNDS];
static struct shunt_map *race_maps[NR_ROUNDS][NR_THREADS];
static unsigned race_arrived; /* threads spin, so that they leave together */

static void *open_all(void *user)
{
	size_t thread = (size_t)(uintptr_t)user;

	for (int i = 0; i < NR_ROUNDS; i++) {
		struct shunt_bpf_options options = { .pins = race_pins[i] };
		struct shunt_bpf_object *object;

		__atomic_fetch_add(&race_arrived, 1, __ATOMIC_ACQ_REL);
		while (__atomic_load_n(&race_arrived, __ATOMIC_ACQUIRE) < (unsigned)(i + 1) * NR_THREADS)
			;
		if (open_with_map(pinned, NR(pinned), &options, &object))
			continue;
		race_maps[i][thread] = shunt_bpf_map(object, 0);
		shunt_bpf_close(object);
	}
	return NULL;
}

Test(bpf_open_maps, threads_that_open_at_once_get_one_map_from_the_pins)
{
	pthread_t threads[NR_THREADS];

	for (int i = 0; i < NR_ROUNDS; i++)
		cr_assert_eq(shunt_bpf_pins_create(&race_pins[i]), 0);
	for (size_t i = 0; i < NR_THREADS; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, open_all, (void *)(uintptr_t)i), 0);
	for (int i = 0; i < NR_THREADS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < NR_ROUNDS; i++) {
		cr_assert_not_null(race_maps[i][0], "round %d", i);
		for (int thread = 1; thread < NR_THREADS; thread++)
			cr_assert_eq(race_maps[i][thread], race_maps[i][0], "round %d: thread %d has a map of its own", i, thread);
		shunt_bpf_pins_destroy(race_pins[i]);
	}
}

Test(bpf_open_maps, bare_instructions_are_one_program_main_without_maps)
{
	const struct bpf_insn insns[] = { INSN_CALL_LOCAL(1), INSN_EXIT, INSN_MOV(0, 2), INSN_EXIT };
	struct shunt_bpf_object *object;
	struct shunt_bpf_program *program;

	cr_assert_eq(shunt_bpf_open_insns(insns, 4, SHUNT_BPF_CONTEXT_NONE, NULL, &object), 0, "%s", shunt_error());
	program = shunt_bpf_next_program(object, NULL);
	cr_assert_not_null(program);
	cr_expect_str_eq(shunt_bpf_program_name(program), "main");
	cr_expect_null(shunt_bpf_program_unsupported(program));
	cr_expect_eq(shunt_bpf_program_nr_insns(program), 2, "what it calls is a function of its own");
	cr_expect_null(shunt_bpf_next_program(object, program));
	cr_expect_null(shunt_bpf_program_entry(program));
	cr_expect_eq(shunt_bpf_nr_maps(object), 0);
	shunt_bpf_close(object);
}

Test(bpf_open_maps, bare_instructions_that_are_none_or_call_outside_are_refused)
{
	const struct bpf_insn insns[] = { INSN_CALL_LOCAL(7), INSN_EXIT };
	struct shunt_bpf_object *object;

	cr_expect_eq(shunt_bpf_open_insns(insns, 0, SHUNT_BPF_CONTEXT_NONE, NULL, &object), -EINVAL);
	cr_expect_eq(shunt_bpf_open_insns(insns, 2, SHUNT_BPF_CONTEXT_NONE, NULL, &object), -EINVAL);
	cr_expect_not_null(strstr(shunt_error(), "instruction 0 calls instruction 8 of 2"), "%s", shunt_error());
	cr_expect_eq(shunt_bpf_open_insns(insns, 2, (enum shunt_bpf_context)9, NULL, &object), -EINVAL);
}

Test(bpf_open_maps, files_that_are_not_there_or_no_files_are_told_apart)
{
	struct shunt_bpf_object *object;

	cr_expect_eq(shunt_bpf_open_file("no/such/file.o", NULL, &object), -ENOENT);
	cr_expect_not_null(strstr(shunt_error(), "no/such/file.o"), "%s", shunt_error());
	cr_expect_eq(shunt_bpf_open_file("/", NULL, &object), -EINVAL);
	cr_expect_not_null(strstr(shunt_error(), "not a file"), "%s", shunt_error());
	cr_expect_eq(shunt_bpf_open_file("/dev/null", NULL, &object), -EINVAL);
	shunt_bpf_close(NULL);
}
