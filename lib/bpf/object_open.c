/* SPDX-License-Identifier: MIT */
/* Opens an object from a file, from memory (ELF or LLVM IR), or from bare instructions. */
#include "lib/bpf/object.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "lib/bpf/from_ir.h"

static int open_btf(struct bpf_opening *opening)
{
	const struct bpf_elf_section *section = &opening->elf.sections[bpf_elf_find(&opening->elf, ".BTF")];

	return bpf_btf_init(&opening->btf, section->bytes, section->bytes ? section->len : 0, opening->object->name);
}

static int open_sections(struct bpf_opening *opening)
{
	int err = bpf_open_funcs(opening);

	if (!err)
		err = open_btf(opening);
	if (!err)
		err = bpf_open_datas(opening);
	if (!err)
		err = bpf_open_map_definitions(opening);
	if (!err)
		err = bpf_open_code_relocs(opening);
	if (!err)
		err = bpf_open_data_relocs(opening);
	if (!err)
		err = bpf_open_core_relocs(opening);
	if (!err)
		err = bpf_create_maps(opening->object);
	return err;
}

static int open_elf(const void *bytes, size_t len, const char *name, const struct shunt_bpf_options *options, struct shunt_bpf_object **out)
{
	struct bpf_opening opening = { 0 };
	int err = bpf_elf_init(&opening.elf, bytes, len, name);
	if (err)
		return err;
	err = bpf_object_create(name, options, &opening.object);
	if (!err)
		err = open_sections(&opening);
	bpf_btf_fini(&opening.btf);
	bpf_elf_fini(&opening.elf);
	if (err) {
		shunt_bpf_close(opening.object);
		return err;
	}
	opening.object->options.maps = NULL;
	opening.object->options.nr_maps = 0;
	*out = opening.object;
	return 0;
}

int shunt_bpf_open_memory(const void *bytes, size_t len, const char *name, const struct shunt_bpf_options *options,
			  struct shunt_bpf_object **out)
{
	uint8_t *image;
	size_t image_len;
	int err;

	if (!name)
		name = "object";
	if (!bpf_is_ir(bytes, len, name))
		return open_elf(bytes, len, name, options, out);
	err = bpf_from_ir(bytes, len, name, &image, &image_len);
	if (err)
		return err;
	err = open_elf(image, image_len, name, options, out);
	if (err) {
		free(image);
		return err;
	}
	(*out)->image = image;
	(*out)->image_len = image_len;
	return 0;
}

/* The whole file; it may be longer or shorter than stat says. */
static int read_file(const char *path, int fd, uint8_t **out, size_t *out_len)
{
	size_t len = 0, capacity;
	struct stat info;
	uint8_t *bytes;

	if (fstat(fd, &info))
		return shunt_fail(errno, "%s: %s", path, strerror(errno));
	if (!S_ISREG(info.st_mode))
		return shunt_fail(EINVAL, "%s: not a file", path);
	if ((uint64_t)info.st_size > BPF_OBJECT_MAX_BYTES)
		return shunt_fail(EFBIG, "%s: %llu bytes are more than the %zu that a BPF object may have", path,
				  (unsigned long long)info.st_size, BPF_OBJECT_MAX_BYTES);
	capacity = (size_t)info.st_size + 1;
	bytes = malloc(capacity);
	if (!bytes)
		return bpf_no_memory(path);
	while (len < capacity) {
		ssize_t got = read(fd, bytes + len, capacity - len);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			int err = errno;

			free(bytes);
			return shunt_fail(err, "%s: cannot be read: %s", path, strerror(err));
		}
		if (!got)
			break;
		len += (size_t)got;
	}
	*out = bytes;
	*out_len = len;
	return 0;
}

int shunt_bpf_open_file(const char *path, const struct shunt_bpf_options *options, struct shunt_bpf_object **out)
{
	uint8_t *bytes = NULL;
	size_t len = 0;
	int fd, err;

	/* Not blocking: a FIFO is refused, not waited for. */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0) {
		err = errno;
		return shunt_fail(err, "%s: cannot be opened: %s", path, strerror(err));
	}
	err = read_file(path, fd, &bytes, &len);
	close(fd);
	if (err)
		return err;
	err = shunt_bpf_open_memory(bytes, len, path, options, out);
	free(bytes);
	return err;
}

/* Marks the instructions at which functions begin: 0, and what is called. */
static int mark_starts(const struct bpf_insn *insns, uint32_t nr_insns, bool *starts)
{
	starts[0] = true;
	for (uint32_t i = 0; i < nr_insns; i++) {
		int64_t target = (int64_t)i + insns[i].imm + 1;

		if (insns[i].code == (BPF_LD | BPF_IMM | BPF_DW)) {
			i++;
			continue;
		}
		if (insns[i].code != (BPF_JMP | BPF_CALL) || insns[i].src_reg != BPF_PSEUDO_CALL)
			continue;
		if (target < 0 || target >= nr_insns)
			return shunt_fail(EINVAL, "main: instruction %u calls instruction %lld of %u", i, (long long)target,
					  nr_insns);
		starts[target] = true;
	}
	return 0;
}

static int add_range(struct shunt_bpf_object *object, const struct bpf_insn *insns, uint32_t from, uint32_t to,
		     enum shunt_bpf_context context)
{
	uint32_t index = object->unit.nr_funcs++;
	struct bpf_func *func = &object->unit.funcs[index];

	func->name = from ? bpf_text("main.%u", from) : strdup("main");
	func->section = strdup("");
	func->is_program = !from;
	func->context = context;
	func->nr_insns = to - from;
	func->insns = malloc(func->nr_insns * sizeof(*insns));
	object->func_places[index].start = from;
	if (!func->name || !func->section || !func->insns)
		return bpf_no_memory(object->name);
	memcpy(func->insns, insns + from, func->nr_insns * sizeof(*insns));
	return 0;
}

static int split(struct shunt_bpf_object *object, const struct bpf_insn *insns, uint32_t nr_insns, enum shunt_bpf_context context)
{
	bool *starts = calloc(nr_insns + 1, sizeof(*starts));
	uint32_t nr = 0, from = 0;
	int err = starts ? mark_starts(insns, nr_insns, starts) : bpf_no_memory(object->name);

	for (uint32_t i = 0; i < nr_insns && !err; i++)
		nr += starts[i];
	if (!err && nr > BPF_MAX_FUNCS)
		err = shunt_fail(EFBIG, "%s: %u functions are more than %u", object->name, nr, BPF_MAX_FUNCS);
	if (!err) {
		object->unit.funcs = calloc(nr, sizeof(*object->unit.funcs));
		object->func_places = calloc(nr, sizeof(*object->func_places));
		if (!object->unit.funcs || !object->func_places)
			err = bpf_no_memory(object->name);
	}
	for (uint32_t i = 1; i <= nr_insns && !err; i++) {
		if (i < nr_insns && !starts[i])
			continue;
		err = add_range(object, insns, from, i, context);
		from = i;
	}
	free(starts);
	return err;
}

int shunt_bpf_open_insns(const void *insns, size_t nr_insns, enum shunt_bpf_context context,
			 const struct shunt_bpf_options *options, struct shunt_bpf_object **out)
{
	struct shunt_bpf_object *object;
	struct bpf_insn *copy;
	int err;

	if (!nr_insns || nr_insns > BPF_MAX_INSNS)
		return shunt_fail(EINVAL, "main: %zu instructions; a program has 1 to %u", nr_insns, BPF_MAX_INSNS);
	if (context != SHUNT_BPF_CONTEXT_NONE && context != SHUNT_BPF_CONTEXT_XDP)
		return shunt_fail(EINVAL, "main: context %d is neither none (0) nor XDP (1)", (int)context);
	err = bpf_object_create("instructions", options, &object);
	if (err)
		return err;
	/* The caller's array may lie at any address. */
	copy = malloc(nr_insns * sizeof(*copy));
	if (copy) {
		memcpy(copy, insns, nr_insns * sizeof(*copy));
		err = split(object, copy, (uint32_t)nr_insns, context);
	} else {
		err = bpf_no_memory(object->name);
	}
	free(copy);
	if (!err)
		err = bpf_link_local_calls(object);
	if (!err)
		err = bpf_list_programs(object);
	if (err) {
		shunt_bpf_close(object);
		return err;
	}
	*out = object;
	return 0;
}
