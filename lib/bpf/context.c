/* SPDX-License-Identifier: MIT */
/*
 * The dataflow of context.h: blocks with their entry states, call sites, and rounds over all functions until nothing changes. States only
 * rise in a lattice of small height, so it ends; functions that nobody calls are analysed with arguments that are not the context.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "lib/bpf/context_step.h"
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

struct context {
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

static void enter_block(struct context *context, struct body *body, uint32_t block, const struct state *state)
{
	bool changed = state_join(&body->states[block], state);

	if (changed || !body->reached[block]) {
		body->reached[block] = true;
		body->dirty[block] = true;
		context->changed = true;
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

static struct site *find_site(struct context *context, uint32_t caller, uint32_t insn, uint32_t callee)
{
	uint32_t *site_of = &context->bodies[caller].site_of[insn];
	struct site *site;

	/* Only a callback's instruction can have two callees, while its value is still rising. */
	for (uint32_t i = *site_of ? *site_of - 1 : context->nr_sites; i < context->nr_sites; i++) {
		site = &context->sites[i];
		if (site->caller == caller && site->insn == insn && site->callee == callee)
			return site;
	}
	if (context->nr_sites == context->max_sites) {
		uint32_t max = context->max_sites ? 2 * context->max_sites : 16;

		site = realloc(context->sites, max * sizeof(*site));
		if (!site) {
			context->err = -ENOMEM;
			return NULL;
		}
		context->sites = site;
		context->max_sites = max;
	}
	site = &context->sites[context->nr_sites++];
	if (!*site_of)
		*site_of = context->nr_sites;
	memset(site, 0, sizeof(*site));
	site->caller = caller;
	site->insn = insn;
	site->callee = callee;
	return site;
}

struct value context_call(struct step *step, const struct state *state, uint32_t at, uint32_t callee, const struct value args[5])
{
	struct context *context = step->flow;
	struct body *body = &context->bodies[callee];
	struct state entry = entry_state(&context->unit->funcs[callee]);
	struct site *site = find_site(context, step->index, at, callee);
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
	enter_block(context, body, 0, &entry);
	if (changed) {
		/* Loads through arguments see other frames now. */
		memcpy(body->dirty, body->reached, body->nr_blocks * sizeof(*body->dirty));
		context->changed = true;
	}
	return body->result;
}

static struct value load_of_site(struct context *context, const struct site *site, unsigned id, int off, unsigned size);

static struct value load_of_callers(struct context *context, uint32_t callee, unsigned id, int off, unsigned size)
{
	struct value result = { .kind = VALUE_NUMBER };
	bool first = true;

	for (uint32_t i = 0; i < context->nr_sites; i++) {
		struct value value;

		if (!context->budget)
			return (struct value){ .kind = VALUE_MIXED };
		context->budget--;
		if (context->sites[i].callee != callee)
			continue;
		value = load_of_site(context, &context->sites[i], id, off, size);
		result = first ? value : value_join(result, value);
		first = false;
	}
	return result;
}

static struct value load_of_site(struct context *context, const struct site *site, unsigned id, int off, unsigned size)
{
	struct value base = id == ANY_ARG ? (struct value){ .kind = VALUE_FRAME } : site->args[id - 1];
	struct value value = { .kind = VALUE_NUMBER };

	if (base.kind == VALUE_STACK) {
		value = value_load_halves(site->halves, base.off + off, size);
	} else if (base.kind == VALUE_ARG) {
		value = load_of_callers(context, site->caller, base.id, base.off + off, size);
	} else if (base.kind == VALUE_FRAME && size == 8) {
		value = value_load_anywhere(site->halves);
		value = value_join(value, load_of_callers(context, site->caller, ANY_ARG, 0, size));
	}
	/* The callee knows an address in the caller's frame by its distance from the argument, when that is in the same frame. */
	if ((base.kind == VALUE_STACK && value.kind == VALUE_STACK) ||
	    (base.kind == VALUE_ARG && value.kind == VALUE_ARG && base.id == value.id))
		return (struct value){ .kind = VALUE_ARG, .id = id, .off = value.off - base.off };
	if (value.kind == VALUE_STACK || value.kind == VALUE_ARG || value.kind == VALUE_FRAME)
		return (struct value){ .kind = VALUE_FRAME, .off = IN_CALLERS };
	return value;
}

struct value context_load_arg(struct step *step, unsigned id, int off, unsigned size)
{
	struct context *context = step->flow;

	context->budget = 65536;
	return load_of_callers(context, step->index, id, off, size);
}

/* ---- the walk ------------------------------------------------------------------------------------------------- */

static void walk_callers_again(struct context *context, uint32_t index)
{
	context->changed = true;
	for (uint32_t i = 0; i < context->nr_sites; i++) {
		struct body *caller = &context->bodies[context->sites[i].caller];

		if (context->sites[i].callee == index)
			memcpy(caller->dirty, caller->reached, caller->nr_blocks * sizeof(*caller->dirty));
	}
}

void context_write(struct step *step, unsigned id, int low, int high, struct value value)
{
	struct context *context = step->flow;
	struct effect *effect = &context->bodies[step->index].effects[id], old = *effect;

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
		walk_callers_again(context, step->index);
}

const struct effect *context_effects(const struct step *step, uint32_t callee)
{
	const struct context *context = step->flow;

	return context->bodies[callee].effects;
}

static void leave_function(struct context *context, struct body *body, uint32_t index, struct value result)
{
	struct value joined = value_join(body->result, result);

	if (value_is_equal(joined, body->result))
		return;
	body->result = joined;
	walk_callers_again(context, index);
}

/* Through one block from its entry state. notes: where to write them; then a refusal is an error. */
static int walk_block(struct context *context, uint32_t index, uint32_t block, struct bpf_note *notes)
{
	const struct bpf_func *func = &context->unit->funcs[index];
	struct body *body = &context->bodies[index];
	struct step step = { .unit = context->unit, .func = func, .index = index, .flow = context };
	struct state state = body->states[block];

	for (uint32_t i = body->starts[block];; i++) {
		const struct bpf_insn *insn = &func->insns[i];

		if (!context_step(&step, &state, i) && !step.refusal) {
			if (notes)
				notes[i] = step.note;
			return context->err;
		}
		if (context->err)
			return context->err;
		if (step.refusal && notes)
			return shunt_fail(EINVAL, "program '%s', instruction %u: %s", func->name, i, step.refusal);
		step.refusal = NULL;
		if (notes)
			notes[i] = step.note;
		if (isa_is_exit(insn)) {
			leave_function(context, body, index, state.regs[0]);
			return 0;
		}
		if (isa_is_branch(insn))
			enter_block(context, body, body->block_of[isa_target(insn, i)], &state);
		if (isa_is_goto(insn))
			return 0;
		if (isa_is_load_imm64(insn))
			i++;
		if (body->block_of[i + 1] != UINT32_MAX) {
			enter_block(context, body, body->block_of[i + 1], &state);
			return 0;
		}
	}
}

static int walk_function(struct context *context, uint32_t index)
{
	struct body *body = &context->bodies[index];
	bool again;

	do {
		again = false;
		for (uint32_t block = 0; block < body->nr_blocks; block++) {
			int ret;

			if (!body->dirty[block])
				continue;
			body->dirty[block] = false;
			again = true;
			ret = walk_block(context, index, block, NULL);
			if (ret)
				return ret;
		}
	} while (again);
	return 0;
}

static int walk_all(struct context *context)
{
	do {
		context->changed = false;
		for (uint32_t i = 0; i < context->unit->nr_funcs; i++) {
			int ret = context->wanted[i] ? walk_function(context, i) : 0;

			if (ret)
				return ret;
		}
	} while (context->changed);
	return 0;
}

static int walk_to_fixpoint(struct context *context)
{
	const struct bpf_unit *unit = context->unit;
	int ret;

	for (uint32_t i = 0; i < unit->nr_funcs; i++) {
		struct state entry = entry_state(&unit->funcs[i]);

		if (context->wanted[i] && unit->funcs[i].is_program)
			enter_block(context, &context->bodies[i], 0, &entry);
	}
	ret = walk_all(context);
	for (uint32_t i = 0; i < unit->nr_funcs && !ret; i++) {
		struct state entry = entry_state(&unit->funcs[i]);

		if (!context->wanted[i] || context->bodies[i].reached[0])
			continue;
		enter_block(context, &context->bodies[i], 0, &entry);
		ret = walk_all(context);
	}
	return ret;
}

static int write_notes(struct context *context, struct bpf_flow *flow)
{
	for (uint32_t i = 0; i < context->unit->nr_funcs; i++) {
		struct body *body = &context->bodies[i];

		if (!context->wanted[i])
			continue;
		for (uint32_t block = 0; block < body->nr_blocks; block++) {
			int ret = body->reached[block] ? walk_block(context, i, block, flow->notes[i]) : 0;

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

static int run(struct context *context, struct bpf_flow *flow)
{
	const struct bpf_unit *unit = context->unit;
	int ret = 0;

	if (!context->bodies || !flow->notes || !flow->blocks || !flow->nr_blocks)
		return -ENOMEM;
	for (uint32_t i = 0; i < unit->nr_funcs && !ret; i++) {
		if (!context->wanted[i])
			continue;
		flow->notes[i] = calloc(unit->funcs[i].nr_insns, sizeof(**flow->notes));
		ret = flow->notes[i] ? body_create(&context->bodies[i], &unit->funcs[i]) : -ENOMEM;
	}
	if (!ret)
		ret = walk_to_fixpoint(context);
	if (!ret)
		ret = write_notes(context, flow);
	for (uint32_t i = 0; i < unit->nr_funcs && !ret; i++) {
		flow->blocks[i] = context->bodies[i].block_of;
		flow->nr_blocks[i] = context->bodies[i].nr_blocks;
		context->bodies[i].block_of = NULL;
	}
	return ret;
}

int bpf_flow_create(const struct bpf_unit *unit, const bool *wanted, struct bpf_flow *flow)
{
	struct context context = { .unit = unit, .wanted = wanted };
	int ret;

	context.bodies = calloc(unit->nr_funcs, sizeof(*context.bodies));
	*flow = (struct bpf_flow){ .nr_funcs = unit->nr_funcs };
	flow->notes = calloc(unit->nr_funcs, sizeof(*flow->notes));
	flow->blocks = calloc(unit->nr_funcs, sizeof(*flow->blocks));
	flow->nr_blocks = calloc(unit->nr_funcs, sizeof(*flow->nr_blocks));
	ret = run(&context, flow);
	if (ret == -ENOMEM)
		shunt_fail(ENOMEM, "'%s': out of memory", unit->name);
	if (ret)
		bpf_flow_destroy(flow);
	for (uint32_t i = 0; context.bodies && i < unit->nr_funcs; i++)
		body_destroy(&context.bodies[i]);
	free(context.bodies);
	free(context.sites);
	return ret;
}
