/* SPDX-License-Identifier: MIT */
/* Packs for other people's ORC sessions, and objects that come without one. */
#include "lib/jit/jit_internal.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <llvm-c/OrcEE.h>
#include <shunt/orc.h>
#include "runtime/log.h"

/* ---- a layer for a session that is not ours ------------------------------------------------------------------- */

/* What a layer says to nobody. One for each arena, for the life of the process: a session must not outlive it. */
struct quiet_layer {
	struct jit_linking_layer layer;
	struct quiet_layer *next;
};

static pthread_mutex_t layers_mutex = PTHREAD_MUTEX_INITIALIZER; /* guards layers; the entries are constant */
static struct quiet_layer *layers;

static void ignore_symbol(void *user, const char *name, size_t name_len, void *address, size_t size)
{
}

static void ignore_failure(void *user, int err)
{
}

static struct jit_linking_layer *find_layer(struct shunt_arena *arena)
{
	struct quiet_layer *found;

	pthread_mutex_lock(&layers_mutex);
	for (found = layers; found && found->layer.arena != arena; found = found->next)
		;
	if (!found && (found = calloc(1, sizeof(*found)))) {
		found->layer = (struct jit_linking_layer){ arena, NULL, ignore_symbol, ignore_failure };
		found->next = layers;
		layers = found;
	}
	pthread_mutex_unlock(&layers_mutex);
	return found ? &found->layer : NULL;
}

LLVMOrcObjectLayerRef shunt_orc_object_layer(void *arena, LLVMOrcExecutionSessionRef session, const char *triple)
{
	struct jit_linking_layer *layer = find_layer(arena);

	if (layer)
		return jit_create_linking_layer(layer, session, triple);
	/* A creator must give a layer: LLVM's own, code of which runs outside packs. */
	shunt_logf(SHUNT_LOG_ERROR, "out of memory for a layer on packs: this session's code goes where LLVM puts it");
	return LLVMOrcCreateRTDyldObjectLinkingLayerWithSectionMemoryManager(session);
}

/* ---- objects -------------------------------------------------------------------------------------------------- */

struct shunt_object {
	struct shunt_grace_item grace;
	struct shunt_jit *jit;
	struct shunt_jit_module *module; /* in no list: the object is its owner */
};

#if defined(__x86_64__)
#define THIS_MACHINE EM_X86_64
#else
#define THIS_MACHINE EM_AARCH64
#endif

static bool is_inside(size_t len, uint64_t offset, uint64_t size)
{
	return offset <= len && size <= len - offset;
}

/* What jit_object_read takes for granted of objects that LLVM has just made. */
static int check_elf(const char *bytes, size_t len)
{
	const Elf64_Ehdr *header = (const void *)bytes;
	const Elf64_Shdr *sections;
	size_t nr;

	if (len < sizeof(*header) || memcmp(bytes, ELFMAG, SELFMAG) || header->e_ident[EI_CLASS] != ELFCLASS64 ||
	    header->e_ident[EI_DATA] != ELFDATA2LSB || header->e_type != ET_REL)
		return shunt_fail(EINVAL, "the bytes are no 64-bit relocatable ELF object");
	if (header->e_machine != THIS_MACHINE)
		return shunt_fail(EINVAL, "the object is for ELF machine %u: compile it for this one", header->e_machine);
	if (header->e_shentsize != sizeof(*sections) || header->e_shoff % 8 || !is_inside(len, header->e_shoff, sizeof(*sections)))
		return shunt_fail(EINVAL, "the object's section table is outside the file");
	sections = (const void *)(bytes + header->e_shoff);
	nr = header->e_shnum ? header->e_shnum : sections[0].sh_size;
	if (nr > len / sizeof(*sections) || !is_inside(len, header->e_shoff, nr * sizeof(*sections)))
		return shunt_fail(EINVAL, "the object's section table is outside the file");
	for (size_t i = 0; i < nr; i++) {
		const Elf64_Shdr *symtab = &sections[i], *strtab;
		const Elf64_Sym *symbols;

		if (symtab->sh_type != SHT_NOBITS && symtab->sh_type != SHT_NULL && !is_inside(len, symtab->sh_offset, symtab->sh_size))
			return shunt_fail(EINVAL, "section %zu of the object is outside the file", i);
		if (symtab->sh_type != SHT_SYMTAB)
			continue;
		strtab = symtab->sh_link < nr ? &sections[symtab->sh_link] : NULL;
		if (!strtab || strtab->sh_type != SHT_STRTAB || !is_inside(len, strtab->sh_offset, strtab->sh_size) || !strtab->sh_size ||
		    bytes[strtab->sh_offset + strtab->sh_size - 1] || symtab->sh_offset % 8)
			return shunt_fail(EINVAL, "the object's symbol table has no names");
		symbols = (const void *)(bytes + symtab->sh_offset);
		for (size_t k = 0; k < symtab->sh_size / sizeof(*symbols); k++)
			if (symbols[k].st_name >= strtab->sh_size)
				return shunt_fail(EINVAL, "the name of symbol %zu of the object is outside its table", k);
	}
	return 0;
}

/* What resolve knows of the names that the object needs; the linker finds the others. *out is to free(). */
static int ask(const void *bytes, size_t len, shunt_resolve_fn *resolve, void *user, struct jit_object_symbols *names,
	       struct shunt_jit_symbol **out, size_t *nr)
{
	int err = jit_object_read(bytes, len, names);

	*nr = 0;
	if (err)
		return err;
	*out = calloc(names->nr_undefined + 1, sizeof(**out));
	if (!*out)
		return shunt_fail(ENOMEM, "out of memory for the %zu symbols that an object needs", names->nr_undefined);
	for (size_t i = 0; resolve && i < names->nr_undefined; i++) {
		const void *address = resolve(user, names->undefined[i].name);

		if (address)
			(*out)[(*nr)++] = (struct shunt_jit_symbol){ names->undefined[i].name, address };
	}
	return 0;
}

static void destroy(struct shunt_object *object)
{
	if (object->module)
		jit_module_release(object->module);
	shunt_jit_destroy(object->jit);
	free(object);
}

int shunt_load_object(struct shunt_arena *arena, const void *bytes, size_t len, shunt_resolve_fn *resolve, void *user,
		      struct shunt_object **out)
{
	const struct shunt_jit_options options = { .arena = arena };
	struct shunt_object *object = calloc(1, sizeof(*object));
	struct jit_object_symbols names = { 0 };
	struct shunt_jit_symbol *symbols = NULL;
	LLVMMemoryBufferRef buffer = NULL;
	size_t nr = 0;
	int err;

	if (!object)
		return shunt_fail(ENOMEM, "out of memory for an object");
	/* The copy is aligned, whatever bytes are. */
	buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(bytes, len, "object");
	err = check_elf(LLVMGetBufferStart(buffer), len);
	if (!err)
		err = ask(LLVMGetBufferStart(buffer), len, resolve, user, &names, &symbols, &nr);
	if (!err)
		err = shunt_jit_create(&options, &object->jit);
	if (!err) {
		object->module = calloc(1, sizeof(*object->module));
		if (!object->module)
			err = shunt_fail(ENOMEM, "out of memory for an object");
	}
	if (!err) {
		object->module->jit = object->jit;
		err = jit_link(object->jit, buffer, symbols, nr, object->module);
		buffer = NULL;
	}
	/* The names point into the buffer, which jit_link has used up by now. */
	free(symbols);
	jit_object_fini(&names);
	if (buffer)
		LLVMDisposeMemoryBuffer(buffer);
	if (err)
		destroy(object);
	else
		*out = object;
	return err;
}

void *shunt_object_lookup(const struct shunt_object *object, const char *name)
{
	return shunt_jit_lookup(object->module, name);
}

static void release_after_grace(struct shunt_grace_item *item)
{
	destroy((struct shunt_object *)((char *)item - offsetof(struct shunt_object, grace)));
}

void shunt_object_unload(struct shunt_object *object)
{
	if (!object)
		return;
	object->grace.release = release_after_grace;
	shunt_grace_defer(&object->grace);
}
