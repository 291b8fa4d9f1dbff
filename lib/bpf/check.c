/* SPDX-License-Identifier: MIT */
/*
 * Is this bytecode? Opcode by opcode, for bytes from anywhere: a table says which opcodes exist and which fields each may use, a second walk
 * follows branches and references. What programs do with memory is not looked at (see shunt/bpf.h), except for the stack by r10.
 * Translation relies on everything that is refused here.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "lib/bpf/translate_isa.h"
#include "runtime/log.h"

struct check {
	const struct bpf_unit *unit;
	const struct bpf_func *func;
	bpf_helper_known_fn *known;
	void *user;
	bool *second; /* per instruction: the second half of a ld_imm64 */
};

#define REFUSE(check, err, at, format, ...)                                                                                    \
	shunt_fail(err, "program '%s', instruction %u: " format, (check)->func->name, (unsigned)(at), ##__VA_ARGS__)

/* What an opcode may use of its instruction; anything else must be zero, as the kernel wants it. */
enum {
	VALID = 1 << 0,
	DST_WRITTEN = 1 << 1, /* a register that is written: not r10 */
	DST_READ = 1 << 2,    /* a register that is read only */
	SRC = 1 << 3,
	OFF = 1 << 4,
	IMM = 1 << 5,
};

static unsigned alu_uses(unsigned code)
{
	bool wide = (code & 7) == BPF_ALU64;
	bool by_reg = code & BPF_X;

	switch (code & 0xf0) {
	case BPF_NEG:
		return by_reg ? 0 : VALID | DST_WRITTEN;
	case BPF_END:
		return wide && by_reg ? 0 : VALID | DST_WRITTEN | IMM;
	case BPF_ADD: case BPF_SUB: case BPF_MUL: case BPF_OR: case BPF_AND: case BPF_LSH: case BPF_RSH: case BPF_XOR: case BPF_ARSH:
		return VALID | DST_WRITTEN | (by_reg ? SRC : IMM);
	case BPF_DIV: case BPF_MOD:
		return VALID | DST_WRITTEN | OFF | (by_reg ? SRC : IMM);
	case BPF_MOV:
		return VALID | DST_WRITTEN | (by_reg ? SRC | OFF : IMM);
	default:
		return 0;
	}
}

static unsigned jump_uses(unsigned code)
{
	bool narrow = (code & 7) == BPF_JMP32;
	bool by_reg = code & BPF_X;

	switch (code & 0xf0) {
	case BPF_JA:
		return by_reg ? 0 : VALID | (narrow ? IMM : OFF);
	case BPF_EXIT:
		return by_reg || narrow ? 0 : VALID;
	case BPF_CALL:
		return by_reg || narrow ? 0 : VALID | SRC | IMM;
	case 0xe0: case 0xf0:
		return 0;
	default:
		return VALID | DST_READ | OFF | (by_reg ? SRC : IMM);
	}
}

static unsigned memory_uses(unsigned code)
{
	unsigned mode = code & 0xe0, size = code & 0x18;

	switch (code & 7) {
	case BPF_LD:
		return mode == BPF_IMM && size == BPF_DW ? VALID | DST_WRITTEN | SRC | IMM : 0;
	case BPF_LDX:
		return mode == BPF_MEM || (mode == ISA_MODE_MEMSX && size != BPF_DW) ? VALID | DST_WRITTEN | SRC | OFF : 0;
	case BPF_ST:
		return mode == BPF_MEM ? VALID | DST_READ | OFF | IMM : 0;
	default: /* STX */
		if (mode == BPF_ATOMIC)
			return VALID | DST_READ | SRC | OFF | IMM;
		return mode == BPF_MEM ? VALID | DST_READ | SRC | OFF : 0;
	}
}

static unsigned opcode_uses(unsigned code)
{
	switch (code & 7) {
	case BPF_ALU: case BPF_ALU64:
		return alu_uses(code);
	case BPF_JMP: case BPF_JMP32:
		return jump_uses(code);
	default:
		return memory_uses(code);
	}
}

static int check_opcode(const struct check *check, uint32_t at)
{
	const struct bpf_insn *insn = &check->func->insns[at];
	unsigned mode = insn->code & 0xe0;

	if (isa_class(insn) == BPF_LD && (mode == BPF_ABS || mode == BPF_IND))
		return REFUSE(check, ENOTSUP, at, "legacy packet load (LD_%s) needs a socket buffer; read the packet through its pointers",
			      mode == BPF_ABS ? "ABS" : "IND");
	if (insn->code == ISA_MAY_GOTO)
		return REFUSE(check, ENOTSUP, at, "may_goto is not supported; use a bounded loop or bpf_loop");
	if (insn->code == ISA_CALL_REG)
		return REFUSE(check, ENOTSUP, at, "calls through a register; compile with optimisation (-O2)");
	if (insn->code == (BPF_ALU64 | BPF_MOV | BPF_X) && insn->off == ISA_ADDR_SPACE_CAST)
		return REFUSE(check, ENOTSUP, at, "addr_space_cast is not supported; arenas need a kernel");
	return opcode_uses(insn->code) ? 0 : REFUSE(check, EINVAL, at, "unknown opcode 0x%02x", insn->code);
}

static int check_alu(const struct check *check, uint32_t at)
{
	const struct bpf_insn *insn = &check->func->insns[at];
	bool wide = isa_class(insn) == BPF_ALU64;

	switch (insn->code & 0xf0) {
	case BPF_END:
		if (insn->imm != 16 && insn->imm != 32 && insn->imm != 64)
			return REFUSE(check, EINVAL, at, "byte swap of %d bits; 16, 32 and 64 exist", insn->imm);
		return 0;
	case BPF_DIV: case BPF_MOD:
		if (insn->off != 0 && insn->off != 1)
			return REFUSE(check, EINVAL, at, "division with offset %d; 0 is unsigned, 1 is signed", insn->off);
		return 0;
	case BPF_MOV:
		if (!(insn->code & BPF_X) || insn->off == 0 || insn->off == 8 || insn->off == 16 || (wide && insn->off == 32))
			return 0;
		return REFUSE(check, EINVAL, at, "move that sign-extends %d bits; 8, 16 and (64-bit only) 32 exist", insn->off);
	default:
		return 0;
	}
}

static int check_stack(const struct check *check, uint32_t at, unsigned reg)
{
	const struct bpf_insn *insn = &check->func->insns[at];

	if (reg == 10 && (insn->off < -ISA_STACK_SIZE || insn->off + (int)isa_size(insn) > 0))
		return REFUSE(check, EINVAL, at, "access of %u bytes at r10%+d is outside of the %d bytes of stack", isa_size(insn),
			      insn->off, ISA_STACK_SIZE);
	return 0;
}

static int check_atomic(const struct check *check, uint32_t at)
{
	const struct bpf_insn *insn = &check->func->insns[at];
	unsigned size = isa_size(insn);
	bool writes_src = false;

	switch (insn->imm) {
	case ISA_LOAD_ACQUIRE:
		if (insn->dst_reg == 10)
			return REFUSE(check, EINVAL, at, "writes r10, the frame pointer, which is read-only");
		return check_stack(check, at, insn->src_reg);
	case ISA_STORE_RELEASE:
		return check_stack(check, at, insn->dst_reg);
	case BPF_ADD: case BPF_AND: case BPF_OR: case BPF_XOR: case BPF_CMPXCHG:
		break;
	case BPF_ADD | BPF_FETCH: case BPF_AND | BPF_FETCH: case BPF_OR | BPF_FETCH: case BPF_XOR | BPF_FETCH: case BPF_XCHG:
		writes_src = true;
		break;
	default:
		return REFUSE(check, EINVAL, at, "unknown atomic operation 0x%x", (unsigned)insn->imm);
	}
	if (size != 4 && size != 8)
		return REFUSE(check, EINVAL, at, "atomic operation on %u bytes; 4 and 8 exist", size);
	if (writes_src && insn->src_reg == 10)
		return REFUSE(check, EINVAL, at, "writes r10, the frame pointer, which is read-only");
	return check_stack(check, at, insn->dst_reg);
}

static int check_load_imm64(const struct check *check, uint32_t at)
{
	const struct bpf_func *func = check->func;
	const struct bpf_ref *ref = isa_find_ref(func, at);
	const struct bpf_insn *second;

	if (at + 1 >= func->nr_insns)
		return REFUSE(check, EINVAL, at, "ld_imm64 without its second half");
	second = &func->insns[at + 1];
	if (second->code || second->dst_reg || second->src_reg || second->off)
		return REFUSE(check, EINVAL, at, "the second half of ld_imm64 uses reserved fields");
	if (!ref && func->insns[at].src_reg)
		return REFUSE(check, EINVAL, at, "ld_imm64 of kind %u refers to nothing that the object defines", func->insns[at].src_reg);
	return 0;
}

static int check_call(const struct check *check, uint32_t at)
{
	const struct bpf_insn *insn = &check->func->insns[at];
	const struct bpf_ref *ref = isa_find_ref(check->func, at);
	const char *name;

	if (insn->src_reg == BPF_PSEUDO_KFUNC_CALL)
		return REFUSE(check, ENOTSUP, at, "calls a kernel function (kfunc); only helpers exist outside of the kernel");
	if (insn->src_reg == BPF_PSEUDO_CALL) {
		if (!ref)
			return REFUSE(check, EINVAL, at, "calls a subprogram that does not exist");
		return 0;
	}
	if (insn->src_reg)
		return REFUSE(check, EINVAL, at, "call of unknown kind %u", insn->src_reg);
	if (ref)
		return 0;
	name = insn->imm > 0 ? bpf_helper_name((uint32_t)insn->imm) : NULL;
	if (insn->imm <= 0 || (uint32_t)insn->imm >= HELPER_INTERNAL)
		return REFUSE(check, EINVAL, at, "unknown helper %d", insn->imm);
	if (bpf_helper_is_expanded((uint32_t)insn->imm) || check->known(check->user, (uint32_t)insn->imm))
		return 0;
	if (!name)
		return REFUSE(check, ENOTSUP, at, "unknown helper %d; set it with shunt_bpf_set_helper", insn->imm);
	return REFUSE(check, ENOTSUP, at, "helper %d (%s) is not supported outside of the kernel; set it with shunt_bpf_set_helper", insn->imm,
		      name);
}

static int check_fields(const struct check *check, uint32_t at, unsigned uses)
{
	const struct bpf_insn *insn = &check->func->insns[at];
	bool has_dst = uses & (DST_READ | DST_WRITTEN);
	const char *field = NULL;

	if ((has_dst && insn->dst_reg >= ISA_NR_REGS) || ((uses & SRC) && !isa_is_load_imm64(insn) && insn->src_reg >= ISA_NR_REGS))
		return REFUSE(check, EINVAL, at, "register r%u does not exist", has_dst && insn->dst_reg >= ISA_NR_REGS ? insn->dst_reg :
			      insn->src_reg);
	if ((uses & DST_WRITTEN) && insn->dst_reg == 10)
		return REFUSE(check, EINVAL, at, "writes r10, the frame pointer, which is read-only");
	if (!has_dst && insn->dst_reg)
		field = "destination";
	else if (!(uses & SRC) && insn->src_reg)
		field = "source";
	else if (!(uses & OFF) && insn->off)
		field = "offset";
	else if (!(uses & IMM) && insn->imm)
		field = "immediate";
	if (field)
		return REFUSE(check, EINVAL, at, "opcode 0x%02x with a nonzero %s, which is reserved", insn->code, field);
	return 0;
}

/* Instruction by instruction; marks second halves. */
static int check_insns(const struct check *check)
{
	const struct bpf_func *func = check->func;

	for (uint32_t i = 0; i < func->nr_insns; i++) {
		const struct bpf_insn *insn = &func->insns[i];
		unsigned uses = opcode_uses(insn->code);
		int ret = check_opcode(check, i);

		if (!ret)
			ret = check_fields(check, i, uses);
		if (ret)
			return ret;
		switch (isa_class(insn)) {
		case BPF_ALU: case BPF_ALU64:
			ret = check_alu(check, i);
			break;
		case BPF_LD:
			ret = check_load_imm64(check, i);
			break;
		case BPF_LDX:
			ret = check_stack(check, i, insn->src_reg);
			break;
		case BPF_ST:
			ret = check_stack(check, i, insn->dst_reg);
			break;
		case BPF_STX:
			ret = (insn->code & 0xe0) == BPF_ATOMIC ? check_atomic(check, i) : check_stack(check, i, insn->dst_reg);
			break;
		default:
			ret = isa_is_call(insn) ? check_call(check, i) : 0;
			break;
		}
		if (ret)
			return ret;
		if (isa_is_load_imm64(insn))
			check->second[++i] = true;
	}
	return 0;
}

static int check_branches(const struct check *check)
{
	const struct bpf_func *func = check->func;
	uint32_t last = func->nr_insns - 1;

	for (uint32_t i = 0; i < func->nr_insns; i++) {
		int64_t target;

		if (check->second[i] || !isa_is_branch(&func->insns[i]))
			continue;
		target = isa_target(&func->insns[i], i);
		if (target < 0 || target >= func->nr_insns)
			return REFUSE(check, EINVAL, i, "jumps to instruction %lld, outside of the program", (long long)target);
		if (check->second[target])
			return REFUSE(check, EINVAL, i, "jumps into the middle of ld_imm64 at instruction %lld", (long long)target - 1);
	}
	if (check->second[last] || (!isa_is_exit(&func->insns[last]) && !isa_is_goto(&func->insns[last])))
		return REFUSE(check, EINVAL, last, "the program falls off its end; the last instruction must be exit or a jump");
	return 0;
}

static int check_refs(const struct check *check)
{
	const struct bpf_unit *unit = check->unit;
	const struct bpf_func *func = check->func;

	for (uint32_t i = 0; i < func->nr_refs; i++) {
		const struct bpf_ref *ref = &func->refs[i];
		const struct bpf_insn *insn;
		uint32_t limit = ref->kind == BPF_REF_MAP || ref->kind == BPF_REF_MAP_VALUE ? unit->nr_maps :
				 ref->kind == BPF_REF_DATA				    ? unit->nr_datas : unit->nr_funcs;

		if (ref->insn >= func->nr_insns || (i && ref->insn <= func->refs[i - 1].insn))
			return REFUSE(check, EINVAL, ref->insn, "a reference outside of the program, or two on one instruction");
		if (ref->index >= limit)
			return REFUSE(check, EINVAL, ref->insn, "refers to object %u of %u", ref->index, limit);
		insn = &func->insns[ref->insn];
		if (check->second[ref->insn])
			return REFUSE(check, EINVAL, ref->insn, "a reference in the middle of ld_imm64");
		if (ref->kind == BPF_REF_CALL ? !isa_is_call(insn) || insn->src_reg != BPF_PSEUDO_CALL : !isa_is_load_imm64(insn))
			return REFUSE(check, EINVAL, ref->insn, "a reference of kind %d on opcode 0x%02x", ref->kind, insn->code);
		if ((ref->kind == BPF_REF_CALL || ref->kind == BPF_REF_FUNC) && unit->funcs[ref->index].is_program)
			return REFUSE(check, EINVAL, ref->insn, "calls '%s', which is a program itself; move its body to a subprogram",
				      unit->funcs[ref->index].name);
	}
	return 0;
}

/* Names that would take the place of a symbol that generated code uses. */
static int check_name(const struct bpf_func *func)
{
	static const char *const prefixes[] = { "llvm.", "shunt_", SHUNT_HELPER_PREFIX, "map.", "data.", "sub.", "\1" };
	static const char *const names[] = { "", "memcpy", "memmove", "memset", "memcmp", "bcmp", "bpf_chain" };

	if (!func->is_program)
		return 0;
	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (!strncmp(func->name, prefixes[i], strlen(prefixes[i])))
			return shunt_fail(EINVAL, "program '%s': names that begin with '%s' are taken; rename the program", func->name,
					  prefixes[i]);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(func->name, names[i]))
			return shunt_fail(EINVAL, "program '%s': this name is taken by generated code; rename the program", func->name);
	return 0;
}

int bpf_check(const struct bpf_unit *unit, const struct bpf_func *func, bpf_helper_known_fn *known, void *user)
{
	struct check check = { .unit = unit, .func = func, .known = known, .user = user };
	int ret;

	if (!func->nr_insns)
		return shunt_fail(EINVAL, "program '%s': has no instructions", func->name);
	if (func->nr_insns > ISA_MAX_INSNS)
		return shunt_fail(EINVAL, "program '%s': %u instructions; %u are the limit", func->name, func->nr_insns, ISA_MAX_INSNS);
	ret = check_name(func);
	if (ret)
		return ret;
	check.second = calloc(func->nr_insns, sizeof(*check.second));
	if (!check.second)
		return shunt_fail(ENOMEM, "program '%s': out of memory", func->name);
	/* Positions of references first: the binary search over them is only right on a sorted list. */
	for (uint32_t i = 1; i < func->nr_refs && !ret; i++)
		if (func->refs[i].insn <= func->refs[i - 1].insn)
			ret = REFUSE(&check, EINVAL, func->refs[i].insn, "two references, or references out of order");
	if (!ret)
		ret = check_insns(&check);
	if (!ret)
		ret = check_branches(&check);
	if (!ret)
		ret = check_refs(&check);
	free(check.second);
	return ret;
}
