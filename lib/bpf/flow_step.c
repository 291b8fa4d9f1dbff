/* SPDX-License-Identifier: MIT */
/* One instruction of the dataflow of flow.c: where its result may come from. */
#include <stddef.h>
#include <string.h>
#include "lib/bpf/flow_step.h"
#include "lib/bpf/helpers.h"

static const struct value number = { .kind = VALUE_NUMBER };
static const struct value other = { .kind = VALUE_OTHER };
static const struct value mixed = { .kind = VALUE_MIXED };

bool value_is_equal(struct value a, struct value b)
{
	return a.kind == b.kind && a.id == b.id && a.off == b.off;
}

static bool may_be_context(struct value value)
{
	return value.kind == VALUE_CTX || value.kind == VALUE_MIXED;
}

static bool is_frame(struct value value)
{
	return value.kind == VALUE_STACK || value.kind == VALUE_ARG || value.kind == VALUE_FRAME;
}

/* The same, or something in no frame, with all that is known of the place forgotten. */
static struct value in_frames(struct value a, struct value b)
{
	int32_t frames = 0;

	for (int i = 0; i < 2; i++) {
		struct value value = i ? b : a;

		frames |= value.kind == VALUE_STACK ? IN_OWN :
			  value.kind == VALUE_ARG   ? IN_ARG(value.id) :
			  value.kind == VALUE_FRAME ? value.off :
						      0;
	}
	return (struct value){ .kind = VALUE_FRAME, .off = frames };
}

struct value value_join(struct value a, struct value b)
{
	static const enum value_kind order[] = { VALUE_PACKET, VALUE_LOW, VALUE_OTHER, VALUE_FUNC };

	if (a.kind == VALUE_NONE || value_is_equal(a, b))
		return b;
	if (b.kind == VALUE_NONE)
		return a;
	if (may_be_context(a) || may_be_context(b))
		return mixed;
	if (a.kind == VALUE_STACK && b.kind == VALUE_STACK && a.off == b.off)
		return (struct value){ .kind = VALUE_STACK, .id = IS_UNSURE, .off = a.off };
	if (is_frame(a) || is_frame(b))
		return in_frames(a, b);
	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++)
		if (a.kind == order[i] || b.kind == order[i])
			return (struct value){ .kind = order[i] == VALUE_FUNC ? VALUE_OTHER : order[i] };
	return number;
}

static bool is_packet(struct value value)
{
	return value.kind == VALUE_PACKET || value.kind == VALUE_LOW;
}

static struct value with_offset(struct value value, int64_t add)
{
	int64_t off = value.off + add;

	if (value.kind != VALUE_CTX && value.kind != VALUE_STACK && value.kind != VALUE_ARG)
		return value.kind == VALUE_FUNC ? other : value;
	if (off < INT16_MIN || off > INT16_MAX)
		return value.kind == VALUE_CTX ? mixed : in_frames(value, number);
	value.off = (int32_t)off;
	return value;
}

static int half_of(int off)
{
	return (off + ISA_STACK_SIZE) / 4;
}

static bool is_in_frame(int off, unsigned size)
{
	return off >= -ISA_STACK_SIZE && off + (int)size <= 0;
}

/* ---- loads and stores ----------------------------------------------------------------------------------------- */

struct value value_load_halves(const struct value *halves, int off, unsigned size)
{
	struct value low, high;

	if (!is_in_frame(off, size))
		return number;
	low = halves[half_of(off)];
	if (size == 4 && off % 4 == 0) {
		if (low.kind == VALUE_PACKET || low.kind == VALUE_LOW)
			return (struct value){ .kind = VALUE_LOW };
		return may_be_context(low) ? mixed : number;
	}
	if (size != 8 || off % 4) {
		high = halves[half_of(off + (int)size - 1)];
		return may_be_context(low) || may_be_context(high) ? mixed : number;
	}
	high = halves[half_of(off + 4)];
	if (value_is_equal(low, high))
		return low.kind == VALUE_NONE || low.kind == VALUE_LOW ? number : low;
	if (low.kind == VALUE_LOW)
		return low;
	/* Half an address is none. */
	if (low.kind == VALUE_NUMBER || high.kind == VALUE_NUMBER)
		return may_be_context(low) || may_be_context(high) ? mixed : number;
	return value_join(low, high);
}

struct value value_load_anywhere(const struct value *halves)
{
	struct value result = number;

	for (int i = 0; i < NR_HALVES; i++)
		if (may_be_context(halves[i]) || is_frame(halves[i]) || halves[i].kind == VALUE_OTHER || halves[i].kind == VALUE_FUNC)
			result = value_join(result, halves[i]);
	return result;
}

static void store_halves(struct value *halves, int off, unsigned size, struct value value)
{
	if (!is_in_frame(off, size))
		return;
	if (size == 4 && (value.kind == VALUE_PACKET || value.kind == VALUE_LOW))
		value = (struct value){ .kind = VALUE_LOW };
	else if (size != 8 || off % 4)
		value = may_be_context(value) && size == 8 ? mixed : number;
	for (int i = half_of(off); i <= half_of(off + (int)size - 1); i++)
		halves[i] = value;
}

/* What a slot holds that held old, once value may have been stored there. */
static struct value overwritten(struct value old, struct value value)
{
	if (value.kind != VALUE_NUMBER && value.kind != VALUE_NONE)
		return value_join(old, value);
	/* As an address it still is what it was. */
	if (old.kind == VALUE_STACK)
		old.id = IS_UNSURE;
	return old;
}

/* A store that may happen, of value at [low, high) from base. */
static void store_perhaps(struct step *step, struct state *state, struct value base, int low, int high, struct value value)
{
	if (base.kind == VALUE_ARG)
		flow_write(step, base.id, base.off + low, base.off + high, value);
	for (unsigned id = 0; base.kind == VALUE_FRAME && id < NR_EFFECTS; id++)
		if (base.off & (id ? IN_ARG(id) : IN_CALLERS))
			flow_write(step, id, ANYWHERE, value);
	if (base.kind != VALUE_STACK && !(base.kind == VALUE_FRAME && (base.off & IN_OWN)))
		return;
	low += base.kind == VALUE_STACK ? base.off : 0;
	high += base.kind == VALUE_STACK ? base.off : 0;
	for (int i = 0; i < NR_HALVES; i++) {
		int off = i * 4 - ISA_STACK_SIZE;

		if (base.kind == VALUE_FRAME || (off < high && off + 4 > low))
			state->halves[i] = overwritten(state->halves[i], value);
	}
}

static void note_stack(struct step *step, int off)
{
	if (off >= INT16_MIN && off <= INT16_MAX)
		step->note = (struct bpf_note){ .kind = BPF_NOTE_STACK, .off = (int16_t)off };
}

static void load_context(struct step *step, const struct bpf_insn *insn, int64_t off, struct value *result)
{
	if ((insn->code & 0xe0) != BPF_MEM || isa_size(insn) != 4) {
		step->refusal = "reads the context other than by a plain 4-byte load of a field";
		return;
	}
	if (off < 0 || off > 20 || off % 4) {
		step->refusal = "reads the context where struct xdp_md has no field";
		return;
	}
	step->note = (struct bpf_note){ .kind = BPF_NOTE_CTX, .off = (int16_t)off };
	*result = off <= 8 ? (struct value){ .kind = VALUE_PACKET } : number;
}

static struct value load(struct step *step, const struct state *state, const struct bpf_insn *insn, struct value base)
{
	unsigned size = isa_size(insn);
	int off = base.off + insn->off;
	struct value result = number;

	switch (base.kind) {
	case VALUE_CTX:
		load_context(step, insn, off, &result);
		break;
	case VALUE_MIXED:
		step->refusal = "loads through a register that is the context on some paths only, was computed from it, or comes "
				"from a stack slot where something else may have been stored";
		break;
	case VALUE_LOW:
		step->refusal = "loads through a packet pointer that was cut to 32 bits; packet pointers have 64 here";
		break;
	case VALUE_STACK:
		result = value_load_halves(state->halves, off, size);
		if (!base.id)
			note_stack(step, off);
		break;
	case VALUE_ARG:
		result = flow_load_arg(step, base.id, off, size);
		break;
	case VALUE_FRAME:
		if (size == 8 && (base.off & IN_OWN))
			result = value_load_anywhere(state->halves);
		if (size == 8 && (base.off & ~IN_OWN))
			result = value_join(result, flow_load_arg(step, ANY_ARG, 0, size));
		break;
	default:
		break;
	}
	return insn->code == (BPF_LDX | BPF_MEM | BPF_DW) || insn->code == (BPF_LDX | BPF_MEM | BPF_W) ||
			       (insn->code & 0xe7) == (BPF_STX | BPF_ATOMIC) ?
		       result :
		       may_be_context(result) ? mixed : number;
}

static void store(struct step *step, struct state *state, const struct bpf_insn *insn, struct value base, struct value value)
{
	unsigned size = isa_size(insn);
	int off = base.off + insn->off;

	switch (base.kind) {
	case VALUE_CTX:
		step->refusal = "writes to the context, which is read-only";
		return;
	case VALUE_MIXED:
		step->refusal = "stores through a register that is the context on some paths only, was computed from it, or comes "
				"from a stack slot where something else may have been stored";
		return;
	case VALUE_LOW:
		step->refusal = "stores through a packet pointer that was cut to 32 bits; packet pointers have 64 here";
		return;
	case VALUE_STACK:
		store_halves(state->halves, off, size, value);
		if (!base.id)
			note_stack(step, off);
		return;
	default:
		break;
	}
	/* Elsewhere than in a frame it is a number for ever: no verified program uses it as the context again. */
	if (value.kind == VALUE_CTX && size == 8 && (base.kind == VALUE_ARG || (base.kind == VALUE_FRAME && !step->func->is_program))) {
		step->refusal = "stores the context in a caller's frame, where it cannot be followed; pass it as an argument";
		return;
	}
	store_perhaps(step, state, base, insn->off, insn->off + (int)size, size == 8 ? value : number);
}

static void atomic(struct step *step, struct state *state, const struct bpf_insn *insn)
{
	struct value base = state->regs[insn->imm == ISA_LOAD_ACQUIRE ? insn->src_reg : insn->dst_reg];
	struct value value = state->regs[insn->src_reg], old;

	if (insn->imm == ISA_LOAD_ACQUIRE) {
		if (base.kind == VALUE_CTX)
			step->refusal = "reads the context other than by a plain 4-byte load of a field";
		else
			state->regs[insn->dst_reg] = load(step, state, insn, base);
		return;
	}
	if (insn->imm == ISA_STORE_RELEASE) {
		store(step, state, insn, base, value);
		return;
	}
	if (base.kind == VALUE_CTX) {
		step->refusal = "writes to the context, which is read-only";
		return;
	}
	if (value.kind == VALUE_CTX) {
		step->refusal = "stores the context by an atomic operation";
		return;
	}
	old = load(step, state, insn, base);
	if (step->refusal)
		return;
	old = may_be_context(old) ? mixed : number;
	store(step, state, insn, base, old);
	if (insn->imm == BPF_CMPXCHG)
		state->regs[0] = old;
	else if (insn->imm & BPF_FETCH)
		state->regs[insn->src_reg] = old;
}

/* ---- arithmetic ----------------------------------------------------------------------------------------------- */

static struct value alu32(const struct bpf_insn *insn, struct value dst, struct value src)
{
	unsigned op = insn->code & 0xf0;

	if (op == BPF_MOV)
		dst = src;
	else if (may_be_context(dst) || may_be_context(src))
		return mixed;
	if (op == BPF_MOV && may_be_context(dst))
		return mixed;
	if (op == BPF_SUB && is_packet(dst) && is_packet(src))
		return number;
	if ((op == BPF_MOV || op == BPF_ADD || op == BPF_SUB) && insn->off == 0 && is_packet(dst))
		return (struct value){ .kind = VALUE_LOW };
	return number;
}

static struct value alu64(struct step *step, const struct bpf_insn *insn, struct value dst, struct value src)
{
	unsigned op = insn->code & 0xf0;
	bool by_reg = insn->code & BPF_X;

	if (op == BPF_MOV)
		return !by_reg ? number : insn->off ? (may_be_context(src) ? mixed : number) : src;
	if (!by_reg && op == BPF_ADD)
		return with_offset(dst, insn->imm);
	if (!by_reg && op == BPF_SUB)
		return with_offset(dst, -(int64_t)insn->imm);
	if (may_be_context(dst) || (by_reg && may_be_context(src)))
		return mixed;
	if (op != BPF_ADD && op != BPF_SUB)
		/* Aligning a stack address leaves it one. */
		return is_frame(dst) ? in_frames(dst, number) : number;
	if (op == BPF_SUB && is_packet(dst) && is_packet(src)) {
		if (dst.kind != src.kind)
			step->refusal = "subtracts a packet pointer that was cut to 32 bits from a whole one, or the reverse";
		return number;
	}
	if (op == BPF_SUB && (dst.kind == VALUE_STACK || dst.kind == VALUE_ARG) && (src.kind == VALUE_STACK || src.kind == VALUE_ARG) &&
	    !(src.kind == VALUE_STACK && src.id))
		return number;
	if (is_frame(dst) || (is_frame(src) && op == BPF_ADD))
		return in_frames(dst, op == BPF_ADD ? src : number);
	if (dst.kind == VALUE_PACKET || (src.kind == VALUE_PACKET && op == BPF_ADD))
		return (struct value){ .kind = VALUE_PACKET };
	if (dst.kind == VALUE_LOW || (src.kind == VALUE_LOW && op == BPF_ADD))
		return (struct value){ .kind = VALUE_LOW };
	return dst.kind == VALUE_NUMBER && src.kind == VALUE_NUMBER ? number : other;
}

static void alu(struct step *step, struct state *state, const struct bpf_insn *insn)
{
	unsigned op = insn->code & 0xf0;
	bool wide = isa_class(insn) == BPF_ALU64;
	struct value dst = state->regs[insn->dst_reg], result;
	struct value src = (insn->code & BPF_X) && op != BPF_END ? state->regs[insn->src_reg] : number;

	if (op == BPF_END || op == BPF_NEG)
		result = may_be_context(dst) ? mixed : number;
	else
		result = wide ? alu64(step, insn, dst, src) : alu32(insn, dst, src);
	state->regs[insn->dst_reg] = result;
	if (wide && (op == BPF_MOV || op == BPF_ADD || op == BPF_SUB) && result.kind == VALUE_STACK && !result.id)
		note_stack(step, result.off);
}

static void compare(struct step *step, const struct state *state, const struct bpf_insn *insn)
{
	struct value dst = state->regs[insn->dst_reg], src = state->regs[insn->src_reg];
	bool for_equality = (insn->code & 0xf0) == BPF_JEQ || (insn->code & 0xf0) == BPF_JNE;

	if (!(insn->code & BPF_X) || !is_packet(dst) || !is_packet(src))
		return;
	if (isa_class(insn) == BPF_JMP ? dst.kind != src.kind || (dst.kind == VALUE_LOW && !for_equality) : !for_equality)
		step->refusal = "compares packet pointers of which one was cut to 32 bits; packet pointers have 64 here";
}

/* ---- calls ---------------------------------------------------------------------------------------------------- */

static void clobber(struct state *state, struct value result)
{
	state->regs[0] = result;
	for (int i = 1; i <= 5; i++)
		state->regs[i] = number;
}

/* Does the helper store where argument reg points? What the host set may do anything. */
static bool helper_stores(int32_t helper, unsigned reg)
{
	switch (helper) {
	case BPF_FUNC_map_lookup_elem: case BPF_FUNC_map_update_elem: case BPF_FUNC_map_delete_elem: case BPF_FUNC_map_lookup_percpu_elem:
	case BPF_FUNC_trace_printk: case BPF_FUNC_tail_call: case BPF_FUNC_perf_event_output: case BPF_FUNC_csum_diff:
	case BPF_FUNC_strncmp: case BPF_FUNC_xdp_store_bytes: case BPF_FUNC_loop: case BPF_FUNC_for_each_map_elem:
		return false;
	case BPF_FUNC_xdp_load_bytes:
		return reg == 3;
	case BPF_FUNC_strtol: case BPF_FUNC_strtoul:
		return reg == 4;
	default:
		return true;
	}
}

/* What a callee, of which nothing but its effects is known here, may have stored. */
static void apply_effects(struct step *step, struct state *state, uint32_t callee, const struct value args[5])
{
	const struct effect *effects = flow_effects(step, callee);

	for (unsigned id = 0; id < NR_EFFECTS; id++) {
		struct value base = id ? args[id - 1] : (struct value){ .kind = VALUE_FRAME, .off = IN_OWN | IN_CALLERS };

		if (effects[id].low != effects[id].high)
			store_perhaps(step, state, base, effects[id].low, effects[id].high, effects[id].value);
	}
}

static void call_helper(struct step *step, struct state *state, const struct bpf_insn *insn, uint32_t at)
{
	struct value args[5] = { number, other, other, number, number };
	bool is_builtin = bpf_helper_builtin((uint32_t)insn->imm), gives_address;
	struct value callback = state->regs[2];

	if (insn->imm == HELPER_LOOP || insn->imm == HELPER_FOR_EACH) {
		if (callback.kind != VALUE_FUNC) {
			step->refusal = "the callback of this helper is not a constant function";
			return;
		}
		args[insn->imm == HELPER_LOOP ? 1 : 3] = state->regs[3];
		/* Before: one round sees what the last one stored. */
		apply_effects(step, state, (uint32_t)callback.off, args);
		flow_call(step, state, at, (uint32_t)callback.off, args);
	}
	for (unsigned i = 1; i <= 5; i++)
		if (helper_stores(insn->imm, i))
			store_perhaps(step, state, state->regs[i], is_builtin ? 0 : INT16_MIN, INT16_MAX, number);
	gives_address = !is_builtin || insn->imm == BPF_FUNC_map_lookup_elem || insn->imm == BPF_FUNC_map_lookup_percpu_elem;
	clobber(state, gives_address ? other : number);
}

static bool call_subprogram(struct step *step, struct state *state, uint32_t at, uint32_t callee)
{
	struct value result;

	/* Before: the callee sees what it stored itself. */
	apply_effects(step, state, callee, &state->regs[1]);
	result = flow_call(step, state, at, callee, &state->regs[1]);
	if (result.kind == VALUE_NONE)
		return false;
	if (result.kind == VALUE_ARG) {
		result = with_offset(state->regs[result.id], result.off);
		/* Rather a number where an address was: the verifier lets nobody return an address in a frame. */
		if (result.kind == VALUE_STACK)
			result.id = IS_UNSURE;
	} else if (is_frame(result)) {
		result = (struct value){ .kind = VALUE_FRAME, .off = IN_OWN | IN_CALLERS };
	} else if (result.kind == VALUE_FUNC) {
		result = other;
	}
	clobber(state, result);
	return true;
}

static bool call(struct step *step, struct state *state, const struct bpf_insn *insn, uint32_t at)
{
	const struct bpf_ref *ref = isa_find_ref(step->func, at);

	if (ref)
		return call_subprogram(step, state, at, ref->index);
	call_helper(step, state, insn, at);
	return true;
}

static void load_imm64(struct step *step, struct state *state, const struct bpf_insn *insn, uint32_t at)
{
	const struct bpf_ref *ref = isa_find_ref(step->func, at);

	state->regs[insn->dst_reg] = ref ? other : number;
	if (ref && ref->kind == BPF_REF_FUNC)
		state->regs[insn->dst_reg] = (struct value){ .kind = VALUE_FUNC, .off = (int32_t)ref->index };
}

bool flow_step(struct step *step, struct state *state, uint32_t at)
{
	const struct bpf_insn *insn = &step->func->insns[at];

	step->note = (struct bpf_note){ .kind = BPF_NOTE_PLAIN };
	switch (isa_class(insn)) {
	case BPF_ALU: case BPF_ALU64:
		alu(step, state, insn);
		break;
	case BPF_LD:
		load_imm64(step, state, insn, at);
		break;
	case BPF_LDX:
		state->regs[insn->dst_reg] = load(step, state, insn, state->regs[insn->src_reg]);
		break;
	case BPF_ST:
		store(step, state, insn, state->regs[insn->dst_reg], number);
		break;
	case BPF_STX:
		if ((insn->code & 0xe0) == BPF_ATOMIC)
			atomic(step, state, insn);
		else
			store(step, state, insn, state->regs[insn->dst_reg], state->regs[insn->src_reg]);
		break;
	default:
		if (isa_is_call(insn))
			return call(step, state, insn, at);
		if (isa_is_branch(insn) && !isa_is_goto(insn))
			compare(step, state, insn);
		break;
	}
	return true;
}
