/* SPDX-License-Identifier: MIT */
/* A tree over made-up programs, at made-up addresses that are near one another as in a pack. */
#include "runtime/dispatch/sample_tree.h"

#include <errno.h>
#include <stdlib.h>

#include "runtime/dispatch/draw.h"
#include "runtime/dispatch/miss.h"
#include "runtime/dispatch/plan.h"
#include "runtime/log.h"
#include "targets/target.h"

#define TREE_ADDR UINT64_C(0x10000000)
#define TREE_MAX ((size_t)1 << 20)
#define COUNTS_ADDR UINT64_C(0x20000000)

_Static_assert(SHUNT_SAMPLE_STUB_LEN == SHUNT_STUB_LEN, "one slot");

/* What a plan is made of, and the plan. */
struct parts {
	uint64_t *programs;
	uint32_t *weights, *words;
	struct shunt_plan plan;
	struct shunt_plan_counts counts;
};

static void free_parts(struct parts *parts)
{
	shunt_plan_fini(&parts->plan);
	free(parts->programs);
	free(parts->weights);
	free(parts->words);
}

static int make_parts(const struct shunt_sample *sample, struct parts *parts)
{
	size_t nr = sample->nr_programs;
	int err;

	*parts = (struct parts){ .programs = calloc(nr + 1, sizeof(uint64_t)), .weights = calloc(nr + 1, sizeof(uint32_t)),
				 .words = calloc(nr + 1, sizeof(uint32_t)) };
	if (!parts->programs || !parts->weights || !parts->words) {
		free_parts(parts);
		return shunt_fail(ENOMEM, "no memory for a tree of %u programs", sample->nr_programs);
	}
	for (uint32_t i = 0; i < nr; i++) {
		parts->programs[i] = TREE_ADDR + TREE_MAX + i * sample->spacing;
		parts->weights[i] = i < sample->nr_hot ? 10 * sample->nr_programs : 1;
		parts->words[i] = i;
	}
	err = shunt_plan_make(sample->plan, parts->programs, sample->nr_hot ? parts->weights : NULL, sample->nr_programs, &parts->plan);
	if (err)
		free_parts(parts);
	if (!err && sample->counts_hits) {
		/* 64 CPUs, 64 programs or more; the offset is where glibc has struct rseq on x86-64. */
		parts->counts = (struct shunt_plan_counts){ .rows = COUNTS_ADDR, .row_shift = 15, .row_bits = 6, .number_offset = -0x60 + 4,
							    .words = parts->words };
		parts->plan.counts = &parts->counts;
	}
	return err;
}

int shunt_sample_tree_make(const struct shunt_sample *sample, struct shunt_sample_tree *out)
{
	const struct shunt_target *target = shunt_target_find(sample->target);
	struct shunt_code code;
	struct parts parts;
	int err;

	if (!target)
		return shunt_fail(EINVAL, "target '%s' is neither x86_64 nor arm64", sample->target);
	err = make_parts(sample, &parts);
	if (err)
		return err;
	*out = (struct shunt_sample_tree){ .tree_addr = TREE_ADDR, .programs_addr = TREE_ADDR + TREE_MAX, .counts_addr = COUNTS_ADDR,
					   .depth = parts.plan.depth, .tree = malloc(TREE_MAX) };
	if (!out->tree) {
		free_parts(&parts);
		return shunt_fail(ENOMEM, "no memory for a tree of %u programs", sample->nr_programs);
	}
	shunt_code_init(&code, out->stub, sizeof(out->stub), TREE_ADDR - SHUNT_STUB_LEN);
	target->emit_stub(&code, TREE_ADDR);
	err = code.error;
	shunt_code_init(&code, out->tree, TREE_MAX, TREE_ADDR);
	target->emit_tree(&code, &parts.plan, shunt_miss_resolve(sample->miss));
	out->tree_len = code.len;
	err = err ? err : code.error;
	free_parts(&parts);
	if (err) {
		free(out->tree);
		return shunt_fail(-err, "%u programs %llu bytes apart do not lie within reach of their tree on %s: choose fewer, or a smaller spacing",
				  sample->nr_programs, (unsigned long long)sample->spacing, sample->target);
	}
	return 0;
}

int shunt_sample_tree_draw(const struct shunt_sample *sample, shunt_name_fn *name, void *user, FILE *out)
{
	struct parts parts;
	int err = make_parts(sample, &parts);

	if (err)
		return err;
	err = shunt_plan_draw(shunt_plan_name(sample->plan), &parts.plan, sample->nr_hot ? parts.weights : NULL, shunt_miss_name(sample->miss), name,
			      user, out);
	free_parts(&parts);
	return err;
}
