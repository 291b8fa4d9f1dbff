/* SPDX-License-Identifier: MIT */
/*
 * The object's own memory: .data*, .rodata* and .bss*, each in whole zero-filled pages, so that programs see the same layout as in
 * the kernel's array of one value and an access past the end of a small section stays in memory of its own.
 */
#include "lib/bpf/object.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "runtime/grace.h"

#define MAX_DATAS 256u

/* Made with the bytes, so that giving them up cannot fail. */
struct bpf_data_memory {
	struct shunt_grace_item item;
	void *bytes;
	size_t len;
};

static void release_memory(struct shunt_grace_item *item)
{
	struct bpf_data_memory *memory = (struct bpf_data_memory *)((char *)item - offsetof(struct bpf_data_memory, item));

	munmap(memory->bytes, memory->len);
	free(memory);
}

/* ".data" and ".data.name", not ".database". */
static bool has_base(const char *name, const char *base)
{
	size_t len = strlen(base);

	return !strncmp(name, base, len) && (!name[len] || name[len] == '.');
}

static bool is_data(const struct bpf_elf_section *section)
{
	if (section->type == SHT_NOBITS)
		return has_base(section->name, ".bss");
	return section->type == SHT_PROGBITS && !(section->flags & SHF_EXECINSTR) &&
	       (has_base(section->name, ".data") || has_base(section->name, ".rodata") || has_base(section->name, ".bss"));
}

static int add_data(struct shunt_bpf_object *object, const struct bpf_elf_section *section, uint32_t index)
{
	struct bpf_unit_data *data = &object->unit.datas[object->unit.nr_datas];
	struct bpf_data_memory *memory;

	for (uint32_t i = 0; i < object->unit.nr_datas; i++) {
		if (!strcmp(object->unit.datas[i].name, section->name))
			return shunt_fail(EINVAL, "%s: two sections are named '%s'; link the object again", object->name,
					  section->name);
	}
	if (section->len > BPF_OBJECT_MAX_BYTES)
		return shunt_fail(EFBIG, "%s: section '%s' of %llu bytes is larger than %zu", object->name, section->name,
				  (unsigned long long)section->len, BPF_OBJECT_MAX_BYTES);
	memory = calloc(1, sizeof(*memory));
	data->name = strdup(section->name);
	if (!data->name || !memory)
		goto no_memory;
	memory->item.release = release_memory;
	memory->len = section->len;
	memory->bytes = mmap(NULL, section->len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory->bytes == MAP_FAILED)
		goto no_memory;
	if (section->bytes)
		memcpy(memory->bytes, section->bytes, section->len);
	data->bytes = memory->bytes;
	data->len = section->len;
	object->data_places[object->unit.nr_datas] = (struct bpf_data_place){ .section = index, .memory = memory };
	object->unit.nr_datas++;
	return 0;
no_memory:
	free(memory);
	free(data->name);
	return shunt_fail(ENOMEM, "%s: no memory for the %llu bytes of section '%s'", object->name,
			  (unsigned long long)section->len, section->name);
}

int bpf_open_datas(struct bpf_opening *opening)
{
	struct shunt_bpf_object *object = opening->object;
	uint32_t nr = 0;

	for (uint32_t i = 1; i < opening->elf.nr_sections; i++)
		nr += is_data(&opening->elf.sections[i]) && opening->elf.sections[i].len;
	if (nr > MAX_DATAS)
		return shunt_fail(EFBIG, "%s: %u data sections are more than %u", object->name, nr, MAX_DATAS);
	object->unit.datas = calloc(nr + 1, sizeof(*object->unit.datas));
	object->data_places = calloc(nr + 1, sizeof(*object->data_places));
	if (!object->unit.datas || !object->data_places)
		return bpf_no_memory(object->name);
	for (uint32_t i = 1; i < opening->elf.nr_sections; i++) {
		int err = 0;

		if (is_data(&opening->elf.sections[i]) && opening->elf.sections[i].len)
			err = add_data(object, &opening->elf.sections[i], i);
		if (err)
			return err;
	}
	return 0;
}

void bpf_free_datas(struct shunt_bpf_object *object)
{
	for (uint32_t i = 0; i < object->unit.nr_datas; i++) {
		struct bpf_data_place *place = &object->data_places[i];

		/* A program may still be running in the read section in which it was called: its memory goes as late as its code.
		 */
		if (object->compiled)
			shunt_grace_defer(&place->memory->item);
		else
			release_memory(&place->memory->item);
		free(object->unit.datas[i].name);
		free(place->unsupported);
	}
	free(object->unit.datas);
	free(object->data_places);
}
