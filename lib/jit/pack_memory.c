/* SPDX-License-Identifier: MIT */
/*
 * Which pack a segment of a linked object goes to, and when its block goes back. An object has at most five segments in practice
 * (text, read-only, data, and linker-made tables share them), so a short array that grows is enough.
 */
#include "lib/jit/pack_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <shunt/pack.h>
#include "runtime/log.h"

#define EMPTY_EH_FRAME_LEN 4 /* the zero word that ends every one */

struct jit_segment {
	enum shunt_segment kind;
	bool transient;
	struct shunt_block block;
};

struct jit_function {
	const char *rx;
	size_t len;
	char *name;
};

struct jit_memory {
	struct shunt_arena *arena;
	struct jit_segment *segments;
	size_t nr_segments;
	struct jit_function *functions; /* until it is finalized */
	size_t nr_functions, max_functions;
};

int jit_memory_create(struct shunt_arena *arena, struct jit_memory **out)
{
	struct jit_memory *memory = calloc(1, sizeof(*memory));

	if (!memory)
		return shunt_fail(ENOMEM, "out of memory for the bookkeeping of a linked object");
	memory->arena = arena;
	*out = memory;
	return 0;
}

int jit_memory_add(struct jit_memory *memory, unsigned prot, bool transient, size_t size, size_t align, void **rw, void **rx)
{
	struct jit_segment *segments, segment = { .transient = transient };
	int err;

	*rw = *rx = NULL;
	if (!size)
		return 0;
	if ((prot & JIT_PROT_WRITE) && (prot & JIT_PROT_EXEC))
		return shunt_fail(EINVAL, "a section of the object is writable and executable: give code and data sections of their own");
	segment.kind = prot & JIT_PROT_EXEC ? SHUNT_SEGMENT_CODE : prot & JIT_PROT_WRITE ? SHUNT_SEGMENT_DATA : SHUNT_SEGMENT_RODATA;

	segments = realloc(memory->segments, (memory->nr_segments + 1) * sizeof(*segments));
	if (!segments)
		return shunt_fail(ENOMEM, "out of memory for the bookkeeping of a linked object");
	memory->segments = segments;
	err = shunt_pack_alloc(memory->arena, segment.kind, size, align, &segment.block);
	if (err)
		return err;
	memory->segments[memory->nr_segments++] = segment;
	*rw = segment.block.rw;
	*rx = segment.block.rx;
	return 0;
}

void jit_memory_add_function(struct jit_memory *memory, const char *name, size_t name_len, const void *rx, size_t len)
{
	char *copy;

	if (memory->nr_functions == memory->max_functions) {
		size_t max = memory->max_functions ? 2 * memory->max_functions : 8;
		struct jit_function *functions = realloc(memory->functions, max * sizeof(*functions));

		if (!functions)
			return;
		memory->functions = functions;
		memory->max_functions = max;
	}
	copy = len ? strndup(name, name_len) : NULL;
	if (copy)
		memory->functions[memory->nr_functions++] = (struct jit_function){ rx, len, copy };
}

static void forget_functions(struct jit_memory *memory)
{
	for (size_t i = 0; i < memory->nr_functions; i++)
		free(memory->functions[i].name);
	free(memory->functions);
	memory->functions = NULL;
	memory->nr_functions = memory->max_functions = 0;
}

/* A module runs as well without names, so what is in their way is only said. */
static void name_functions(struct jit_memory *memory, const struct shunt_block *code)
{
	struct shunt_part *parts = calloc(memory->nr_functions, sizeof(*parts));
	size_t nr = 0;

	if (!parts)
		return;
	for (size_t i = 0; i < memory->nr_functions; i++) {
		const struct jit_function *function = &memory->functions[i];
		size_t offset = (size_t)(function->rx - (const char *)code->rx);

		if (function->rx >= (const char *)code->rx && offset < code->len)
			parts[nr++] = (struct shunt_part){ offset, function->len, function->name };
	}
	if (shunt_pack_name_parts(code, parts, nr) != 0)
		shunt_logf(SHUNT_LOG_WARN, "%s", shunt_error());
	free(parts);
}

/* Tells the unwinder about the code block that section is of. */
static int set_unwind(const struct shunt_block *code, const void *section, size_t len)
{
	struct shunt_unwind info = { .block = code, .eh_frame = section, .eh_frame_len = len };

	return shunt_pack_set_unwind(&info, 1);
}

int jit_memory_finalize(struct jit_memory *memory, const void *eh_frame, size_t eh_frame_len)
{
	struct shunt_block *code = malloc((memory->nr_segments + 1) * sizeof(*code));
	size_t nr = 0;
	int err = 0;

	if (!code)
		return shunt_fail(ENOMEM, "out of memory for publishing a linked object");
	for (size_t i = 0; i < memory->nr_segments; i++)
		if (memory->segments[i].kind == SHUNT_SEGMENT_CODE)
			code[nr++] = memory->segments[i].block;
	if (nr)
		err = shunt_pack_finalize(code, nr);
	/* Only the linker's own code could be in a second block, and nothing unwinds through that. */
	if (!err && nr && eh_frame_len > EMPTY_EH_FRAME_LEN)
		err = set_unwind(code, eh_frame, eh_frame_len);
	for (size_t i = 0; i < nr && !err && memory->nr_functions; i++)
		name_functions(memory, &code[i]);
	forget_functions(memory);
	free(code);
	return err;
}

void jit_memory_drop_transient(struct jit_memory *memory)
{
	size_t kept = 0;

	for (size_t i = 0; i < memory->nr_segments; i++) {
		/* Only the linking thread ran or read it, and it is done. */
		if (memory->segments[i].transient)
			shunt_pack_abandon(&memory->segments[i].block);
		else
			memory->segments[kept++] = memory->segments[i];
	}
	memory->nr_segments = kept;
}

/* Code first: its unwind table is in another segment and must outlive it. */
static void release(struct jit_memory *memory, int (*give_back)(const struct shunt_block *block))
{
	for (size_t i = 0; i < memory->nr_segments; i++)
		if (memory->segments[i].kind == SHUNT_SEGMENT_CODE)
			give_back(&memory->segments[i].block);
	for (size_t i = 0; i < memory->nr_segments; i++)
		if (memory->segments[i].kind != SHUNT_SEGMENT_CODE)
			give_back(&memory->segments[i].block);
	forget_functions(memory);
	free(memory->segments);
	free(memory);
}

void jit_memory_abandon(struct jit_memory *memory)
{
	release(memory, shunt_pack_abandon);
}

void jit_memory_free(struct jit_memory *memory)
{
	release(memory, shunt_pack_free);
}
