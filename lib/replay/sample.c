/* SPDX-License-Identifier: MIT */
/* The listing of a sample tree and its picture, its programs by number. */
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

struct shown {
	struct shunt_sample sample;
	struct shunt_sample_tree tree;
	char name[32];
};

static struct shunt_sample sample_of(const struct shunt_replay_sample *sample)
{
	return (struct shunt_sample){ .target = sample->target ? sample->target : OWN_TARGET, .nr_programs = sample->nr_programs,
				      .spacing = sample->spacing, .plan = sample->plan, .miss = sample->miss, .nr_hot = sample->nr_hot,
				      .counts_hits = sample->counts_hits };
}

static const char *name_address(void *user, uint64_t addr)
{
	struct shown *shown = user;
	uint64_t offset = addr - shown->tree.programs_addr, spacing = shown->sample.spacing;

	if (addr == shown->tree.tree_addr)
		return "tree";
	if (addr < shown->tree.programs_addr || offset % spacing || offset / spacing >= shown->sample.nr_programs)
		return NULL;
	snprintf(shown->name, sizeof(shown->name), "program %u", (unsigned)(offset / spacing));
	return shown->name;
}

static int list(struct shown *shown, const char *title, const void *code, size_t len, uint64_t addr, FILE *out)
{
	const char *triple = strcmp(shown->sample.target, "arm64") ? "x86_64-linux-gnu" : "aarch64-linux-gnu";
	int err;

	fprintf(out, "%s: %zu bytes at %#llx\n", title, len, (unsigned long long)addr);
	err = jit_disassemble_for(triple, code, len, addr, name_address, shown, out);
	fputc('\n', out);
	return err;
}

int shunt_replay_list_sample(const struct shunt_replay_sample *sample, FILE *out)
{
	struct shown shown = { .sample = sample_of(sample) };
	int err = shunt_sample_tree_make(&shown.sample, &shown.tree);

	if (err)
		return err;
	fprintf(out, "plan: %s, fallback %s, %u programs, %u compares on the longest path\n\n", shunt_plan_name(sample->plan),
		shunt_miss_name(sample->miss), sample->nr_programs, shown.tree.depth);
	err = list(&shown, "stub", shown.tree.stub, sizeof(shown.tree.stub), shown.tree.tree_addr - sizeof(shown.tree.stub), out);
	if (!err)
		err = list(&shown, "tree", shown.tree.tree, shown.tree.tree_len, shown.tree.tree_addr, out);
	free(shown.tree.tree);
	return err;
}

static const char *name_program(void *user, const void *program)
{
	return name_address(user, (uint64_t)(uintptr_t)program);
}

int shunt_replay_draw_sample(const struct shunt_replay_sample *sample, FILE *out)
{
	struct shown shown = { .sample = sample_of(sample) };
	int err = shunt_sample_tree_make(&shown.sample, &shown.tree);

	if (err)
		return err;
	free(shown.tree.tree);
	return shunt_sample_tree_draw(&shown.sample, name_program, &shown, out);
}
