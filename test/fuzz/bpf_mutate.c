/* SPDX-License-Identifier: MIT */
/*
 * Opens thousands of damaged BPF objects, ELF files and LLVM IR: bits flipped, bytes and words overwritten, pieces moved, files cut, headers, symbols and
 * relocations given other values. Every object must be opened or refused with a sentence; nothing may crash, and libbpf must have
 * nothing to say. The same seed gives the same cases. Programs are checked, and those of every k-th case compiled, but never run:
 * damage makes programs that do anything.
 *
 *	bpf_mutate [--cases=N] [--seed=N] [--compile-every=K] [--only=CASE] OBJECT.o|MODULE.bc|MODULE.ll...
 */
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <bpf/libbpf.h>
#include <shunt/bpf.h>
#include <shunt/log.h>
#include <shunt/reader.h>
#include "lib/bpf/from_ir.h"
#include "lib/bpf/object.h"

#define MAX_OBJECTS 64
#define MAX_ERRNO 256

struct input {
	const char *path;
	uint8_t *bytes;
	size_t len;
};

struct outcome {
	uint64_t opened, refused[MAX_ERRNO];
	uint64_t programs, unsupported, maps;
	uint64_t checked, check_refused[MAX_ERRNO];
	uint64_t compiled, compile_refused[MAX_ERRNO];
};

static uint64_t random_state;

/* splitmix64 */
static uint64_t random_next(void)
{
	uint64_t z = random_state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static uint64_t random_below(uint64_t bound)
{
	return bound ? random_next() % bound : 0;
}

/* Values at which arithmetic goes wrong, and small ones that are often valid somewhere else. */
static uint64_t random_value(size_t len)
{
	static const uint64_t edges[] = { 0,
					  1,
					  7,
					  8,
					  0x7f,
					  0x80,
					  0xff,
					  0x7fff,
					  0xffff,
					  0xff00,
					  0x7fffffff,
					  0x80000000,
					  0xffffffff,
					  0xfffffff8,
					  0x7fffffffffffffff,
					  0x8000000000000000,
					  0xffffffffffffffff,
					  0xfffffffffffffff8 };

	switch (random_below(4)) {
	case 0:
		return edges[random_below(sizeof(edges) / sizeof(edges[0]))];
	case 1:
		return random_below(64);
	case 2:
		return random_below(len * 2);
	}
	return random_next();
}

static void put(uint8_t *bytes, size_t len, size_t at, unsigned width)
{
	uint64_t value = random_value(len);

	if (at + width <= len)
		memcpy(bytes + at, &value, width);
}

/* A field of the ELF header or of a section header. */
static void spoil_header(uint8_t *bytes, size_t len)
{
	static const unsigned char widths[] = { 4, 4, 8, 8, 8, 8, 4, 4, 8, 8 };
	Elf64_Ehdr header;
	unsigned field = (unsigned)random_below(sizeof(widths));
	size_t at;

	memcpy(&header, bytes, sizeof(header));
	if (!random_below(4)) {
		put(bytes, len, random_below(sizeof(header)), 1u << random_below(4));
		return;
	}
	at = header.e_shoff + random_below(header.e_shnum) * sizeof(Elf64_Shdr);
	for (unsigned i = 0; i < field; i++)
		at += widths[i];
	put(bytes, len, at, widths[field]);
}

/* A piece of a section whose contents are structured: symbols, relocations, BTF, code, map definitions. */
static void spoil_section(uint8_t *bytes, size_t len)
{
	Elf64_Ehdr header;
	Elf64_Shdr section;
	size_t at;

	memcpy(&header, bytes, sizeof(header));
	at = header.e_shoff + random_below(header.e_shnum) * sizeof(section);
	if (at > len || len - at < sizeof(section))
		return;
	memcpy(&section, bytes + at, sizeof(section));
	if (section.sh_type == SHT_NOBITS || section.sh_offset > len || section.sh_size > len - section.sh_offset ||
	    !section.sh_size)
		return;
	at = section.sh_offset + random_below(section.sh_size);
	/* Often at a word, where fields begin. */
	if (random_below(2))
		at &= ~(size_t)3;
	put(bytes, len, at, 1u << random_below(4));
}

static void mutate(uint8_t *bytes, size_t *len, bool has_sections)
{
	unsigned times = 1 + (unsigned)random_below(random_below(4) ? 3 : 16);

	for (unsigned i = 0; i < times && *len >= sizeof(Elf64_Ehdr); i++) {
		switch (random_below(has_sections ? 8 : 4)) {
		case 0:
			bytes[random_below(*len)] ^= (uint8_t)(1u << random_below(8));
			break;
		case 1:
			put(bytes, *len, random_below(*len), 1u << random_below(4));
			break;
		case 2: {
			size_t size = random_below(64), from = random_below(*len), to = random_below(*len);

			if (from + size <= *len && to + size <= *len)
				memmove(bytes + to, bytes + from, size);
			break;
		}
		case 3:
			if (!random_below(4))
				*len = random_below(*len);
			break;
		case 4:
		case 5:
			spoil_header(bytes, *len);
			break;
		default:
			spoil_section(bytes, *len);
		}
	}
}

static unsigned slot(int err)
{
	return err < 0 && err > -MAX_ERRNO ? (unsigned)-err : 0;
}

/* A failure without a sentence, or success with a code that is none, is a bug as well. */
static void must_explain(const char *what, uint64_t number, int err)
{
	if (err < 0 && err > -MAX_ERRNO && *shunt_error())
		return;
	fprintf(stderr, "case %llu: %s gave %d and the sentence '%s'\n", (unsigned long long)number, what, err, shunt_error());
	abort();
}

/* libbpf warns through this, to stderr when it is not set. */
static int must_not_warn(enum libbpf_print_level level, const char *format, va_list args)
{
	if (level == LIBBPF_DEBUG)
		return 0;
	vfprintf(stderr, format, args);
	abort();
}

static bool known_helper(void *user, uint32_t number)
{
	return bpf_helper_builtin(number) || bpf_helper_is_expanded(number);
}

static void check_all(struct shunt_bpf_object *object, uint64_t number, struct outcome *outcome)
{
	for (uint32_t i = 0; i < object->unit.nr_funcs; i++) {
		int err = bpf_check(&object->unit, &object->unit.funcs[i], known_helper, NULL);

		outcome->checked++;
		if (!err)
			continue;
		must_explain("bpf_check", number, err);
		outcome->check_refused[slot(err)]++;
	}
}

static void query_all(struct shunt_bpf_object *object, struct outcome *outcome)
{
	struct shunt_bpf_program *program = NULL;
	size_t sum = 0, len;

	while ((program = shunt_bpf_next_program(object, program))) {
		outcome->programs++;
		outcome->unsupported += shunt_bpf_program_unsupported(program) != NULL;
		sum += strlen(shunt_bpf_program_name(program)) + strlen(shunt_bpf_program_section(program)) +
		       shunt_bpf_program_nr_insns(program);
	}
	for (size_t i = 0; i < shunt_bpf_nr_maps(object); i++) {
		outcome->maps++;
		sum += strlen(shunt_map_name(shunt_bpf_map(object, i)));
	}
	if (shunt_bpf_section_data(object, ".data", &len) && !len)
		abort();
	if (sum == SIZE_MAX)
		abort();
}

static void run_case(const struct input *input, uint64_t number, bool compile, struct outcome *outcome)
{
	struct shunt_bpf_object *object = NULL;
	uint8_t *bytes = malloc(input->len), *exact;
	size_t len = input->len;
	int err;

	if (!bytes)
		abort();
	memcpy(bytes, input->bytes, len);
	mutate(bytes, &len, !bpf_is_ir(bytes, len, input->path));
	/* In memory of its exact size, so that a sanitizer sees the first byte read behind it. */
	exact = malloc(len ? len : 1);
	if (!exact)
		abort();
	memcpy(exact, bytes, len);
	free(bytes);
	err = shunt_bpf_open_memory(exact, len, input->path, NULL, &object);
	free(exact);
	if (err) {
		must_explain("opening", number, err);
		outcome->refused[slot(err)]++;
		return;
	}
	outcome->opened++;
	query_all(object, outcome);
	check_all(object, number, outcome);
	if (compile) {
		err = shunt_bpf_compile(object);
		if (err) {
			must_explain("compiling", number, err);
			outcome->compile_refused[slot(err)]++;
		} else {
			outcome->compiled++;
		}
	}
	shunt_bpf_close(object);
}

static bool read_input(struct input *input, const char *path)
{
	FILE *file = fopen(path, "rb");
	long len;

	if (!file)
		return false;
	input->path = path;
	if (fseek(file, 0, SEEK_END) || (len = ftell(file)) < (long)sizeof(Elf64_Ehdr) || fseek(file, 0, SEEK_SET)) {
		fclose(file);
		return false;
	}
	input->len = (size_t)len;
	input->bytes = malloc(input->len);
	if (!input->bytes || fread(input->bytes, 1, input->len, file) != input->len) {
		free(input->bytes);
		fclose(file);
		return false;
	}
	fclose(file);
	return true;
}

static void print_refusals(const uint64_t *refused)
{
	for (unsigned i = 0; i < MAX_ERRNO; i++) {
		if (refused[i])
			printf(" %s %llu", strerrorname_np((int)i), (unsigned long long)refused[i]);
	}
	printf("\n");
}

static void print_outcome(const struct outcome *outcome, uint64_t cases)
{
	printf("%llu cases: opened %llu; refused:", (unsigned long long)cases, (unsigned long long)outcome->opened);
	print_refusals(outcome->refused);
	printf("programs %llu, %llu of them unsupported; maps %llu\n", (unsigned long long)outcome->programs,
	       (unsigned long long)outcome->unsupported, (unsigned long long)outcome->maps);
	printf("functions checked %llu; refused:", (unsigned long long)outcome->checked);
	print_refusals(outcome->check_refused);
	printf("compiled %llu; refused:", (unsigned long long)outcome->compiled);
	print_refusals(outcome->compile_refused);
}

int main(int argc, char **argv)
{
	static struct input inputs[MAX_OBJECTS];
	static struct outcome outcome;
	uint64_t cases = 500, seed = 1, every = 0, only = UINT64_MAX, nr_run = 0;
	unsigned nr = 0;

	for (int i = 1; i < argc; i++) {
		if (!strncmp(argv[i], "--cases=", 8))
			cases = strtoull(argv[i] + 8, NULL, 0);
		else if (!strncmp(argv[i], "--seed=", 7))
			seed = strtoull(argv[i] + 7, NULL, 0);
		else if (!strncmp(argv[i], "--compile-every=", 16))
			every = strtoull(argv[i] + 16, NULL, 0);
		else if (!strncmp(argv[i], "--only=", 7))
			only = strtoull(argv[i] + 7, NULL, 0);
		else if (nr < MAX_OBJECTS && read_input(&inputs[nr], argv[i]))
			nr++;
		else
			printf("%s is not there\n", argv[i]);
	}
	if (!nr) {
		printf("no object to damage: give some, or install the packages libxdp1 and xdp-tests\n");
		return 77;
	}
	libbpf_set_print(must_not_warn);
	for (uint64_t i = 0; i < cases; i++) {
		if (only != UINT64_MAX && i != only)
			continue;
		/* Each case has its own numbers, so that one can be run alone. */
		random_state = seed * 0x2545f4914f6cdd1du + i;
		run_case(&inputs[random_below(nr)], i, every && i % every == 0, &outcome);
		nr_run++;
	}
	print_outcome(&outcome, nr_run);
	shunt_quiesce();
	for (unsigned i = 0; i < nr; i++)
		free(inputs[i].bytes);
	return outcome.opened && (outcome.opened < nr_run || nr_run < 100) ? 0 : 1;
}
