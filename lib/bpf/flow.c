/* SPDX-License-Identifier: MIT */
/*
 * The walk of flow.h: blocks with their entry states, call sites, and rounds over all functions until nothing changes. States only
 * rise in a lattice of small height, so it ends; functions that nobody calls are analysed with arguments that are not the context.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "lib/bpf/flow_step.h"
#include "runtime/log.h"

struct body {
	uint32_t *block_of;  /* per instruction: its block when it begins one, else UINT32_MAX */
	uint32_t *starts;    /* per block: first instruction */
	uint32_t *site_of;   /* per instruction: its first call site's number plus one, 0 without */
	uint32_t nr_blocks;
	struct state *states; /* per block, at entry */
	bool *reached;
	bool *dirty;
	bool is_called;
	struct value result; /* r0 at exits */
	struct effect effects[NR_EFFECTS];
};

struct analysis {
	const struct bpf_unit *unit;
	const bool *wanted;
	struct body *bodies;
	struct site *sites;
	uint32_t nr_sites, max_sites;
	uint32_t budget; /* call sites that one load may look at before it gives up (MIXED) */
	bool changed;
	int err;
};

/* ---- blocks --------------------------------------------------------------------------------------------------- */

static int body_create(struct body *body, const struct bpf_func *func)
{
	uint32_t *block_of = malloc(func->nr_insns * sizeof(*block_of));
	uint32_t nr = 0;

	body->block_of = block_of;
	if (!block_of)
		return -ENOMEM;
	memset(block_of, 0xff, func->nr_insns * sizeof(*block_of));
	block_of[0] = 0;
	for (uint32_t i = 0; i < func->nr_insns; i++) {
		const struct bpf_insn *insn = &func->insns[i];

		if (isa_is_load_imm64(insn)) {
			i++;
			continue;
		}
		if (isa_is_branch(insn))
			block_of[isa_target(insn, i)] = 0;
		if ((isa_is_branch(insn) || isa_is_exit(insn)) && i + 1 < func->nr_insns)
			block_of[i + 1] = 0;
	}
	for (uint32_t i = 0; i < func->nr_insns; i++)
		if (block_of[i] != UINT32_MAX)
			block_of[i] = nr++;
	body->nr_blocks = nr;
	body->starts = malloc(nr * sizeof(*body->starts));
	body->site_of = calloc(func->nr_insns, sizeof(*body->site_of));
	body->states = calloc(nr, sizeof(*body->states));
	body->reached = calloc(nr, sizeof(*body->reached));
	body->dirty = calloc(nr, sizeof(*body->dirty));
	if (!body->starts || !body->site_of || !body->states || !body->reached || !body->dirty)
		return -ENOMEM;
	for (uint32_t i = 0; i < func->nr_insns; i++)
		if (block_of[i] != UINT32_MAX)
			body->starts[block_of[i]] = i;
	return 0;
}

static void body_destroy(struct body *body)
{
	free(body->block_of);
	free(body->starts);
	free(body->site_of);
	free(body->states);
	free(body->reached);
	free(body->dirty);
}

static bool state_join(struct state *into, const struct state *from)
{
	bool changed = false;

	for (int i = 0; i < ISA_NR_REGS; i++) {
		struct value joined = value_join(into->regs[i], from->regs[i]);

		changed |= !value_is_equal(joined, into->regs[i]);
		into->regs[i] = joined;
	}
	for (int i = 0; i < NR_HALVES; i++) {
		struct value joined = value_join(into->halves[i], from->halves[i]);

		changed |= !value_is_equal(joined, into->halves[i]);
		into->halves[i] = joined;
	}
	return changed;
}

static void enter_block(struct analysis *analysis, struct body *body, uint32_t block, const struct state *state)
{
	bool changed = state_join(&body->states[block], state);

	if (changed || !body->reached[block]) {
		body->reached[block] = true;
		body->dirty[block] = true;
		analysis->changed = true;
	}
}

/* ---- calls ---------------------------------------------------------------------------------------------------- */

static struct state entry_state(const struct bpf_func *func)
{
	struct state state;

	for (int i = 0; i < ISA_NR_REGS; i++)
		state.regs[i] = (struct value){ .kind = VALUE_OTHER };
	for (int i = 0; i < NR_HALVES; i++)
		state.halves[i] = (struct value){ .kind = VALUE_NUMBER };
	state.regs[10] = (struct value){ .kind = VALUE_STACK };
	if (func->is_program && func->context == SHUNT_BPF_CONTEXT_XDP)
		state.regs[1] = (struct value){ .kind = VALUE_CTX };
	return state;
}

static struct site *find_site(struct analysis *analysis, uint32_t caller, uint32_t insn, uint32_t callee)
{
	uint32_t *site_of = &analysis->bodies[caller].site_of[insn];
	struct site *site;

	/* Only a callback's instruction can have two callees, while its value is still rising. */
	for (uint32_t i = *site_of ? *site_of - 1 : analysis->nr_sites; i < analysis->nr_sites; i++) {
		site = &analysis->sites[i];
		if (site->caller == caller && site->insn == insn && site->callee == callee)
			return site;
	}
	if (analysis->nr_sites == analysis->max_sites) {
		uint32_t max = analysis->max_sites ? 2 * analysis->max_sites : 16;

		site = realloc(analysis->sites, max * sizeof(*site));
		if (!site) {
			analysis->err = -ENOMEM;
			return NULL;
		}
		analysis->sites = site;
		analysis->max_sites = max;
	}
	site = &analysis->sites[analysis->nr_sites++];
	if (!*site_of)
		*site_of = analysis->nr_sites;
	memset(site, 0, sizeof(*site));
	site->caller = caller;
	site->insn = insn;
	site->callee = callee;
	return site;
}

struct value flow_call(struct step *step, const struct state *state, uint32_t at, uint32_t callee, const struct value args[5])
{
	struct analysis *analysis = step->flow;
	struct body *body = &analysis->bodies[callee];
	struct state entry = entry_state(&analysis->unit->funcs[callee]);
	struct site *site = find_site(analysis, step->index, at, callee);
	bool changed = false;

	if (!site)
		return (struct value){ .kind = VALUE_NONE };
	for (unsigned i = 0; i < 5; i++) {
		struct value joined = value_join(site->args[i], args[i]);

		changed |= !value_is_equal(joined, site->args[i]);
		site->args[i] = joined;
		if (joined.kind == VALUE_STACK || joined.kind == VALUE_ARG || joined.kind == VALUE_FRAME)
			joined = (struct value){ .kind = VALUE_ARG, .id = i + 1 };
		entry.regs[i + 1] = joined;
	}
	for (int i = 0; i < NR_HALVES; i++) {
		struct value joined = value_join(site->halves[i], state->halves[i]);

		changed |= !value_is_equal(joined, site->halves[i]);
		site->halves[i] = joined;
	}
	enter_block(analysis, body, 0, &entry);
	if (changed) {
		/* Loads through arguments see other frames now. */
		memcpy(body->dirty, body->reached, body->nr_blocks * sizeof(*body->dirty));
		analysis->changed = true;
	}
	return body->result;
}

static struct value load_of_site(struct analysis *analysis, const struct site *site, unsigned id, int off, unsigned size);

static struct value load_of_callers(struct analysis *analysis, uint32_t callee, unsigned id, int off, unsigned size)
{
	struct value result = { .kind = VALUE_NUMBER };
	bool first = true;

	for (uint32_t i = 0; i < analysis->nr_sites; i++) {
		struct value value;

		if (!analysis->budget)
			return (struct value){ .kind = VALUE_MIXED };
		analysis->budget--;
		if (analysis->sites[i].callee != callee)
			continue;
		value = load_of_site(analysis, &analysis->sites[i], id, off, size);
		result = first ? value : value_join(result, value);
		first = false;
	}
	return result;
}

static struct value load_of_site(struct analysis *analysis, const struct site *site, unsigned id, int off, unsigned size)
{
	struct value base = id == ANY_ARG ? (struct value){ .kind = VALUE_FRAME } : site->args[id - 1];
	struct value value = { .kind = VALUE_NUMBER };

	if (base.kind == VALUE_STACK) {
		value = value_load_halves(site->halves, base.off + off, size);
	} else if (base.kind == VALUE_ARG) {
		value = load_of_callers(analysis, site->caller, base.id, base.off + off, size);
	} else if (base.kind == VALUE_FRAME && size == 8) {
		value = value_load_anywhere(site->halves);
		value = value_join(value, load_of_callers(analysis, site->caller, ANY_ARG, 0, size));
	}
	/* The callee knows an address in the caller's frame by its distance from the argument, when that is in the same frame. */
	if ((base.kind == VALUE_STACK && value.kind == VALUE_STACK) ||
	    (base.kind == VALUE_ARG && value.kind == VALUE_ARG && base.id == value.id))
		return (struct value){ .kind = VALUE_ARG, .id = id, .off = value.off - base.off };
	if (value.kind == VALUE_STACK || value.kind == VALUE_ARG || value.kind == VALUE_FRAME)
		return (struct value){ .kind = VALUE_FRAME, .off = IN_CALLERS };
	return value;
}

struct value flow_load_arg(struct step *step, unsigned id, int off, unsigned size)
{
	struct analysis *analysis = step->flow;

	analysis->budget = 65536;
	return load_of_callers(analysis, step->index, id, off, size);
}

/* ---- the walk ------------------------------------------------------------------------------------------------- */

static void walk_callers_again(struct analysis *analysis, uint32_t index)
{
	analysis->changed = true;
	for (uint32_t i = 0; i < analysis->nr_sites; i++) {
		struct body *caller = &analysis->bodies[analysis->sites[i].caller];

		if (analysis->sites[i].callee == index)
			memcpy(caller->dirty, caller->reached, caller->nr_blocks * sizeof(*caller->dirty));
	}
}

void flow_write(struct step *step, unsigned id, int low, int high, struct value value)
{
	struct analysis *analysis = step->flow;
	struct effect *effect = &analysis->bodies[step->index].effects[id], old = *effect;

	/* Stack addresses are named otherwise in a caller, and the context is no argument of everyone who gets here. */
	if (value.kind == VALUE_STACK || value.kind == VALUE_ARG || value.kind == VALUE_FRAME)
		value = (struct value){ .kind = VALUE_FRAME, .off = IN_OWN | IN_CALLERS };
	else if (value.kind == VALUE_CTX)
		value = (struct value){ .kind = VALUE_MIXED };
	else if (value.kind == VALUE_FUNC)
		value = (struct value){ .kind = VALUE_OTHER };
	effect->value = value_join(old.value, value);
	if (old.low == old.high || low < old.low)
		effect->low = low < INT16_MIN ? INT16_MIN : low;
	if (old.low == old.high || high > old.high)
		effect->high = high > INT16_MAX ? INT16_MAX : high;
	if (effect->low != old.low || effect->high != old.high || !value_is_equal(effect->value, old.value))
		walk_callers_again(analysis, step->index);
}

const struct effect *flow_effects(const struct step *step, uint32_t callee)
{
	const struct analysis *analysis = step->flow;

	return analysis->bodies[callee].effects;
}

static void leave_function(struct analysis *analysis, struct body *body, uint32_t index, struct value result)
{
	struct value joined = value_join(body->result, result);

	if (value_is_equal(joined, body->result))
		return;
	body->result = joined;
	walk_callers_again(analysis, index);
}

/* Through one block from its entry state. notes: where to write them; then a refusal is an error. */
static int walk_block(struct analysis *analysis, uint32_t index, uint32_t block, struct bpf_note *notes)
{
	const struct bpf_func *func = &analysis->unit->funcs[index];
	struct body *body = &analysis->bodies[index];
	struct step step = { .unit = analysis->unit, .func = func, .index = index, .flow = analysis };
	struct state state = body->states[block];

	for (uint32_t i = body->starts[block];; i++) {
		const struct bpf_insn *insn = &func->insns[i];

		if (!flow_step(&step, &state, i) && !step.refusal) {
			if (notes)
				notes[i] = step.note;
			return analysis->err;
		}
		if (analysis->err)
			return analysis->err;
		if (step.refusal && notes)
			return shunt_fail(EINVAL, "program '%s', instruction %u: %s", func->name, i, step.refusal);
		step.refusal = NULL;
		if (notes)
			notes[i] = step.note;
		if (isa_is_exit(insn)) {
			leave_function(analysis, body, index, state.regs[0]);
			return 0;
		}
		if (isa_is_branch(insn))
			enter_block(analysis, body, body->block_of[isa_target(insn, i)], &state);
		if (isa_is_goto(insn))
			return 0;
		if (isa_is_load_imm64(insn))
			i++;
		if (body->block_of[i + 1] != UINT32_MAX) {
			enter_block(analysis, body, body->block_of[i + 1], &state);
			return 0;
		}
	}
}

static int walk_function(struct analysis *analysis, uint32_t index)
{
	struct body *body = &analysis->bodies[index];
	bool again;

	do {
		again = false;
		for (uint32_t block = 0; block < body->nr_blocks; block++) {
			int ret;

			if (!body->dirty[block])
				continue;
			body->dirty[block] = false;
			again = true;
			ret = walk_block(analysis, index, block, NULL);
			if (ret)
				return ret;
		}
	} while (again);
	return 0;
}

static int walk_all(struct analysis *analysis)
{
	do {
		analysis->changed = false;
		for (uint32_t i = 0; i < analysis->unit->nr_funcs; i++) {
			int ret = analysis->wanted[i] ? walk_function(analysis, i) : 0;

			if (ret)
				return ret;
		}
	} while (analysis->changed);
	return 0;
}

static int walk_to_fixpoint(struct analysis *analysis)
{
	const struct bpf_unit *unit = analysis->unit;
	int ret;

	for (uint32_t i = 0; i < unit->nr_funcs; i++) {
		struct state entry = entry_state(&unit->funcs[i]);

		if (analysis->wanted[i] && unit->funcs[i].is_program)
			enter_block(analysis, &analysis->bodies[i], 0, &entry);
	}
	ret = walk_all(analysis);
	for (uint32_t i = 0; i < unit->nr_funcs && !ret; i++) {
		struct state entry = entry_state(&unit->funcs[i]);

		if (!analysis->wanted[i] || analysis->bodies[i].reached[0])
			continue;
		enter_block(analysis, &analysis->bodies[i], 0, &entry);
		ret = walk_all(analysis);
	}
	return ret;
}

static int write_notes(struct analysis *analysis, struct bpf_flow *flow)
{
	for (uint32_t i = 0; i < analysis->unit->nr_funcs; i++) {
		struct body *body = &analysis->bodies[i];

		if (!analysis->wanted[i])
			continue;
		for (uint32_t block = 0; block < body->nr_blocks; block++) {
			int ret = body->reached[block] ? walk_block(analysis, i, block, flow->notes[i]) : 0;

			if (ret)
				return ret;
		}
	}
	return 0;
}

void bpf_flow_destroy(struct bpf_flow *flow)
{
	for (uint32_t i = 0; i < flow->nr_funcs; i++) {
		if (flow->notes)
			free(flow->notes[i]);
		if (flow->blocks)
			free(flow->blocks[i]);
	}
	free(flow->notes);
	free(flow->blocks);
	free(flow->nr_blocks);
	memset(flow, 0, sizeof(*flow));
}

static int run(struct analysis *analysis, struct bpf_flow *flow)
{
	const struct bpf_unit *unit = analysis->unit;
	int ret = 0;

	if (!analysis->bodies || !flow->notes || !flow->blocks || !flow->nr_blocks)
		return -ENOMEM;
	for (uint32_t i = 0; i < unit->nr_funcs && !ret; i++) {
		if (!analysis->wanted[i])
			continue;
		flow->notes[i] = calloc(unit->funcs[i].nr_insns, sizeof(**flow->notes));
		ret = flow->notes[i] ? body_create(&analysis->bodies[i], &unit->funcs[i]) : -ENOMEM;
	}
	if (!ret)
		ret = walk_to_fixpoint(analysis);
	if (!ret)
		ret = write_notes(analysis, flow);
	for (uint32_t i = 0; i < unit->nr_funcs && !ret; i++) {
		flow->blocks[i] = analysis->bodies[i].block_of;
		flow->nr_blocks[i] = analysis->bodies[i].nr_blocks;
		analysis->bodies[i].block_of = NULL;
	}
	return ret;
}

int bpf_flow_create(const struct bpf_unit *unit, const bool *wanted, struct bpf_flow *flow)
{
	struct analysis analysis = { .unit = unit, .wanted = wanted };
	int ret;

	analysis.bodies = calloc(unit->nr_funcs, sizeof(*analysis.bodies));
	*flow = (struct bpf_flow){ .nr_funcs = unit->nr_funcs };
	flow->notes = calloc(unit->nr_funcs, sizeof(*flow->notes));
	flow->blocks = calloc(unit->nr_funcs, sizeof(*flow->blocks));
	flow->nr_blocks = calloc(unit->nr_funcs, sizeof(*flow->nr_blocks));
	ret = run(&analysis, flow);
	if (ret == -ENOMEM)
		shunt_fail(ENOMEM, "'%s': out of memory", unit->name);
	if (ret)
		bpf_flow_destroy(flow);
	for (uint32_t i = 0; analysis.bodies && i < unit->nr_funcs; i++)
		body_destroy(&analysis.bodies[i]);
	free(analysis.bodies);
	free(analysis.sites);
	return ret;
}
