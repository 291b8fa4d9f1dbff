/* SPDX-License-Identifier: MIT */
/* A tree over made-up programs, at made-up addresses that are near one another as in a pack. */
#include "runtime/dispatch/sample_tree.h"

#include <errno.h>
#include <stdlib.h>

#include "runtime/log.h"
#include "runtime/dispatch/plan.h"
#include "targets/target.h"

#define TREE_ADDR UINT64_C(0x10000000)
#define TREE_MAX ((size_t)1 << 20)

_Static_assert(SHUNT_SAMPLE_STUB_LEN == SHUNT_STUB_LEN, "one slot");

int shunt_sample_tree_make(const char *target_name, uint32_t nr, uint64_t spacing, struct shunt_sample_tree *out)
{
	const struct shunt_target *target = shunt_target_find(target_name);
	uint64_t *programs;
	struct shunt_plan plan;
	struct shunt_code code;
	int err;

	if (!target)
		return shunt_fail(EINVAL, "target '%s' is neither x86_64 nor arm64", target_name);
	out->tree_addr = TREE_ADDR;
	out->programs_addr = TREE_ADDR + TREE_MAX;
	out->tree = malloc(TREE_MAX);
	programs = calloc((size_t)nr + 1, sizeof(*programs));
	if (!out->tree || !programs) {
		err = shunt_fail(ENOMEM, "no memory for a tree of %u programs", nr);
		goto out;
	}
	for (uint32_t i = 0; i < nr; i++)
		programs[i] = out->programs_addr + i * spacing;
	err = shunt_plan_make(SHUNT_PLAN_DEFAULT, programs, NULL, nr, &plan);
	if (err)
		goto out;
	shunt_code_init(&code, out->stub, sizeof(out->stub), TREE_ADDR - SHUNT_STUB_LEN);
	target->emit_stub(&code, TREE_ADDR);
	err = code.error;
	shunt_code_init(&code, out->tree, TREE_MAX, TREE_ADDR);
	target->emit_tree(&code, &plan, SHUNT_FALLBACK_JUMP);
	out->tree_len = code.len;
	err = err ? err : code.error;
	shunt_plan_fini(&plan);
	if (err)
		err = shunt_fail(-err, "%u programs %llu bytes apart do not lie within reach of their tree on %s: choose fewer, or a smaller spacing", nr,
				 (unsigned long long)spacing, target_name);
out:
	free(programs);
	if (err)
		free(out->tree);
	return err;
}
