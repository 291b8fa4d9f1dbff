/* SPDX-License-Identifier: MIT */
/* One instruction of the dataflow of context.c: where its result may come from. */
#include <stddef.h>
#include <string.h>
#include "lib/bpf/context_step.h"

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

struct value value_join(struct value a, struct value b)
{
	static const enum value_kind order[] = { VALUE_PACKET, VALUE_LOW, VALUE_OTHER };

	if (a.kind == VALUE_NONE || value_is_equal(a, b))
		return b;
	if (b.kind == VALUE_NONE)
		return a;
	if (may_be_context(a) || may_be_context(b))
		return mixed;
	if (is_frame(a) || is_frame(b))
		return (struct value){ .kind = VALUE_FRAME };
	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++)
		if (a.kind == order[i] || b.kind == order[i])
			return (struct value){ .kind = order[i] };
	return other;
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
		return value.kind == VALUE_CTX ? mixed : (struct value){ .kind = VALUE_FRAME };
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
		return other;
	low = halves[half_of(off)];
	if (size == 4 && off % 4 == 0) {
		if (low.kind == VALUE_PACKET || low.kind == VALUE_LOW)
			return (struct value){ .kind = VALUE_LOW };
		return may_be_context(low) ? mixed : other;
	}
	if (size != 8 || off % 4) {
		high = halves[half_of(off + (int)size - 1)];
		return may_be_context(low) || may_be_context(high) ? mixed : other;
	}
	high = halves[half_of(off + 4)];
	if (value_is_equal(low, high))
		return low.kind == VALUE_NONE || low.kind == VALUE_LOW ? other : low;
	if (low.kind == VALUE_LOW)
		return low;
	return may_be_context(low) || may_be_context(high) ? mixed : other;
}

static void store_halves(struct value *halves, int off, unsigned size, struct value value)
{
	if (!is_in_frame(off, size))
		return;
	if (size == 4 && (value.kind == VALUE_PACKET || value.kind == VALUE_LOW))
		value = (struct value){ .kind = VALUE_LOW };
	else if (size != 8 || off % 4)
		value = may_be_context(value) && size == 8 ? mixed : other;
	for (int i = half_of(off); i <= half_of(off + (int)size - 1); i++)
		halves[i] = value;
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
	*result = off <= 8 ? (struct value){ .kind = VALUE_PACKET } : other;
}

static struct value load(struct step *step, const struct state *state, const struct bpf_insn *insn, struct value base)
{
	unsigned size = isa_size(insn);
	int off = base.off + insn->off;
	struct value result = other;

	switch (base.kind) {
	case VALUE_CTX:
		load_context(step, insn, off, &result);
		break;
	case VALUE_MIXED:
		step->refusal = "loads through a register that is the context on some paths only, or was computed from it";
		break;
	case VALUE_LOW:
		step->refusal = "loads through a packet pointer that was cut to 32 bits; packet pointers have 64 here";
		break;
	case VALUE_STACK:
		result = value_load_halves(state->halves, off, size);
		note_stack(step, off);
		break;
	case VALUE_ARG:
		result = context_load_arg(step, base.id, off, size);
		break;
	case VALUE_FRAME:
		for (int i = 0; size == 8 && i < NR_HALVES; i++)
			if (may_be_context(state->halves[i]))
				result = mixed;
		if (size == 8)
			result = value_join(result, context_load_arg(step, ANY_ARG, 0, size));
		break;
	default:
		break;
	}
	return insn->code == (BPF_LDX | BPF_MEM | BPF_DW) || insn->code == (BPF_LDX | BPF_MEM | BPF_W) ||
			       (insn->code & 0xe7) == (BPF_STX | BPF_ATOMIC) ?
		       result :
		       may_be_context(result) ? mixed : other;
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
		step->refusal = "stores through a register that is the context on some paths only, or was computed from it";
		return;
	case VALUE_LOW:
		step->refusal = "stores through a packet pointer that was cut to 32 bits; packet pointers have 64 here";
		return;
	case VALUE_STACK:
		store_halves(state->halves, off, size, value);
		note_stack(step, off);
		return;
	default:
		break;
	}
	/* Elsewhere than in a frame it is a number for ever: no verified program uses it as the context again. */
	if (may_be_context(value) && size == 8 &&
	    (base.kind == VALUE_ARG || (base.kind == VALUE_FRAME && value.kind == VALUE_CTX && !step->func->is_program))) {
		step->refusal = "stores the context in a caller's frame, where it cannot be followed; pass it as an argument";
		return;
	}
	if (base.kind == VALUE_FRAME)
		for (int i = 0; i < NR_HALVES; i++)
			state->halves[i] = value_join(state->halves[i], may_be_context(value) ? mixed : other);
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
	old = may_be_context(old) ? mixed : other;
	store(step, state, insn, base, old);
	if (insn->imm == BPF_CMPXCHG)
		state->regs[0] = value_join(old, other);
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
		return other;
	if ((op == BPF_MOV || op == BPF_ADD || op == BPF_SUB) && insn->off == 0 && is_packet(dst))
		return (struct value){ .kind = VALUE_LOW };
	return other;
}

static struct value alu64(struct step *step, const struct bpf_insn *insn, struct value dst, struct value src)
{
	unsigned op = insn->code & 0xf0;
	bool by_reg = insn->code & BPF_X;

	if (op == BPF_MOV)
		return !by_reg ? other : insn->off ? (may_be_context(src) ? mixed : other) : src;
	if (!by_reg && op == BPF_ADD)
		return with_offset(dst, insn->imm);
	if (!by_reg && op == BPF_SUB)
		return with_offset(dst, -(int64_t)insn->imm);
	if (may_be_context(dst) || (by_reg && may_be_context(src)))
		return mixed;
	if (op != BPF_ADD && op != BPF_SUB)
		/* Aligning a stack address leaves it one. */
		return is_frame(dst) ? (struct value){ .kind = VALUE_FRAME } : other;
	if (op == BPF_SUB && is_packet(dst) && is_packet(src)) {
		if (dst.kind != src.kind)
			step->refusal = "subtracts a packet pointer that was cut to 32 bits from a whole one, or the reverse";
		return other;
	}
	if (is_frame(dst) && is_frame(src))
		return other;
	if (is_frame(dst) || (is_frame(src) && op == BPF_ADD))
		return (struct value){ .kind = VALUE_FRAME };
	if (dst.kind == VALUE_PACKET || (src.kind == VALUE_PACKET && op == BPF_ADD))
		return (struct value){ .kind = VALUE_PACKET };
	if (dst.kind == VALUE_LOW || (src.kind == VALUE_LOW && op == BPF_ADD))
		return (struct value){ .kind = VALUE_LOW };
	return other;
}

static void alu(struct step *step, struct state *state, const struct bpf_insn *insn)
{
	unsigned op = insn->code & 0xf0;
	bool wide = isa_class(insn) == BPF_ALU64;
	struct value dst = state->regs[insn->dst_reg], result;
	struct value src = (insn->code & BPF_X) && op != BPF_END ? state->regs[insn->src_reg] : other;

	if (op == BPF_END || op == BPF_NEG)
		result = may_be_context(dst) ? mixed : other;
	else
		result = wide ? alu64(step, insn, dst, src) : alu32(insn, dst, src);
	state->regs[insn->dst_reg] = result;
	if (wide && (op == BPF_MOV || op == BPF_ADD || op == BPF_SUB) && result.kind == VALUE_STACK)
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
		state->regs[i] = other;
}

static void call_helper(struct step *step, struct state *state, const struct bpf_insn *insn, uint32_t at)
{
	struct value args[5] = { other, other, other, other, other };
	struct value callback = state->regs[2];

	if (insn->imm == HELPER_LOOP || insn->imm == HELPER_FOR_EACH) {
		if (callback.kind != VALUE_FUNC) {
			step->refusal = "the callback of this helper is not a constant function";
			return;
		}
		args[insn->imm == HELPER_LOOP ? 1 : 3] = state->regs[3];
		context_call(step, state, at, (uint32_t)callback.off, args);
	}
	/* A helper may write where its arguments point, over an old copy of the context. */
	for (int i = 1; i <= 5; i++) {
		int off = state->regs[i].off;

		if (state->regs[i].kind != VALUE_STACK || insn->imm == HELPER_LOOP || insn->imm == HELPER_FOR_EACH || !is_in_frame(off, 8))
			continue;
		for (int half = half_of(off); half <= half_of(off + 7); half++)
			if (may_be_context(state->halves[half]))
				state->halves[half] = mixed;
	}
	clobber(state, other);
}

static bool call_subprogram(struct step *step, struct state *state, uint32_t at, uint32_t callee)
{
	struct value result = context_call(step, state, at, callee, &state->regs[1]);

	if (result.kind == VALUE_NONE)
		return false;
	if (result.kind == VALUE_ARG)
		result = with_offset(state->regs[result.id], result.off);
	else if (is_frame(result) || result.kind == VALUE_FUNC)
		result = other;
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

	state->regs[insn->dst_reg] = other;
	if (ref && ref->kind == BPF_REF_FUNC)
		state->regs[insn->dst_reg] = (struct value){ .kind = VALUE_FUNC, .off = (int32_t)ref->index };
}

bool context_step(struct step *step, struct state *state, uint32_t at)
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
		store(step, state, insn, state->regs[insn->dst_reg], other);
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
