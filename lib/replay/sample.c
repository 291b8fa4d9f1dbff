/* SPDX-License-Identifier: MIT */
/* The listing of a sample tree, its programs by number. */
#include "lib/replay/sample.h"

#include <stdlib.h>
#include <string.h>
#include "lib/jit/disassemble.h"
#include "runtime/dispatch/sample_tree.h"

#if defined(__x86_64__)
#define OWN_TARGET "x86_64"
#else
#define OWN_TARGET "arm64"
#endif

struct sample {
	struct shunt_sample_tree tree;
	uint64_t nr_programs, spacing;
	char name[32];
};

static const char *name_address(void *user, uint64_t addr)
{
	struct sample *sample = user;
	uint64_t offset = addr - sample->tree.programs_addr;

	if (addr == sample->tree.tree_addr)
		return "tree";
	if (addr < sample->tree.programs_addr || offset % sample->spacing || offset / sample->spacing >= sample->nr_programs)
		return NULL;
	snprintf(sample->name, sizeof(sample->name), "program %u", (unsigned)(offset / sample->spacing));
	return sample->name;
}

static int list(struct sample *sample, const char *target, const char *title, const void *code, size_t len, uint64_t addr, FILE *out)
{
	const char *triple = strcmp(target, "arm64") ? "x86_64-linux-gnu" : "aarch64-linux-gnu";
	int err;

	fprintf(out, "%s: %zu bytes at %#llx\n", title, len, (unsigned long long)addr);
	err = jit_disassemble_for(triple, code, len, addr, name_address, sample, out);
	fputc('\n', out);
	return err;
}

int shunt_replay_list_sample(const char *target, uint32_t nr_programs, uint64_t spacing, FILE *out)
{
	struct sample sample = { .nr_programs = nr_programs, .spacing = spacing };
	int err;

	if (!target)
		target = OWN_TARGET;
	err = shunt_sample_tree_make(target, nr_programs, spacing, &sample.tree);
	if (err)
		return err;
	err = list(&sample, target, "stub", sample.tree.stub, sizeof(sample.tree.stub), sample.tree.tree_addr - sizeof(sample.tree.stub), out);
	if (!err)
		err = list(&sample, target, "tree", sample.tree.tree, sample.tree.tree_len, sample.tree.tree_addr, out);
	free(sample.tree.tree);
	return err;
}
