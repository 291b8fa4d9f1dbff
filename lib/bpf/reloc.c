/* SPDX-License-Identifier: MIT */
/*
 * References of the code: what each relocated ld_imm64 and call means. What is wrong in the file fails the opening; what is merely
 * not supported marks the function that holds it, so that the object's other programs still run.
 */
#include "lib/bpf/object.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define OP_LD_IMM64 (BPF_LD | BPF_IMM | BPF_DW)
#define OP_CALL (BPF_JMP | BPF_CALL)
/* Cannot be reached: the program asks first whether the weak function is there. */
#define POISON ((struct bpf_insn){ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0 })

static int add_ref(struct bpf_func *func, const struct bpf_ref *ref, const char *object)
{
	/* The capacity is the power of two from 8 on that holds nr_refs. */
	if (!func->nr_refs || (func->nr_refs >= 8 && !(func->nr_refs & (func->nr_refs - 1)))) {
		size_t capacity = func->nr_refs ? (size_t)func->nr_refs * 2 : 8;
		struct bpf_ref *bigger = realloc(func->refs, capacity * sizeof(*bigger));

		if (!bigger)
			return bpf_no_memory(object);
		func->refs = bigger;
	}
	func->refs[func->nr_refs++] = *ref;
	return 0;
}

static int by_insn(const void *left, const void *right)
{
	uint32_t a = ((const struct bpf_ref *)left)->insn, b = ((const struct bpf_ref *)right)->insn;

	return a < b ? -1 : a > b;
}

static int sort_refs(struct bpf_func *func, const char *object)
{
	if (func->nr_refs)
		qsort(func->refs, func->nr_refs, sizeof(*func->refs), by_insn);
	for (uint32_t i = 1; i < func->nr_refs; i++) {
		if (func->refs[i - 1].insn == func->refs[i].insn)
			return shunt_fail(EINVAL, "%s: instruction %u of function '%s' has two relocations", object,
					  func->refs[i].insn, func->name);
	}
	return 0;
}

/* One relocation of code. */
struct site {
	struct bpf_opening *opening;
	uint32_t section;
	const struct bpf_elf_symbol *symbol;
	uint32_t func_index, insn; /* in the function */
	struct bpf_func *func;
	struct bpf_insn *at;
	char **unsupported; /* of the function */
};

static const char *target_section(const struct site *site)
{
	return site->opening->elf.sections[site->symbol->section].name;
}

static int add(const struct site *site, enum bpf_ref_kind kind, uint32_t index, int64_t addend)
{
	const struct bpf_ref ref = { site->insn, kind, index, addend };

	return add_ref(site->func, &ref, site->opening->object->name);
}

static int resolve_extern(const struct site *site)
{
	const struct bpf_btf *btf = &site->opening->btf;
	const char *name = site->symbol->name;
	struct bpf_btf_type var;

	if (bpf_btf_find(btf, ".kconfig", name, &var))
		return bpf_reason(site->unsupported,
				  "instruction %u: '%s' (.kconfig) is an option of a kernel, and there is none here", site->insn,
				  name);
	if (site->symbol->bind == STB_WEAK) {
		if (site->at->code == OP_CALL) {
			*site->at = POISON;
			return 0;
		}
		/* The address of what is not there is 0. */
		site->at[0].src_reg = 0;
		site->at[0].imm = 0;
		site->at[1].imm = 0;
		return 0;
	}
	if (site->at->code == OP_CALL) {
		/* Its distance leads nowhere: it must not be taken for a call inside of the section. */
		*site->at = POISON;
		return bpf_reason(site->unsupported, "instruction %u: calls '%s', a function of the kernel (kfunc); there is no kernel here",
				  site->insn, name);
	}
	return bpf_reason(site->unsupported, "instruction %u: '%s' is a symbol of a kernel, and there is none here", site->insn,
			  name);
}

static int bad_target(const struct site *site, const char *what, int64_t offset)
{
	return shunt_fail(EINVAL, "%s: instruction %u of function '%s': %s offset %lld of section '%s', where no function begins",
			  site->opening->object->name, site->insn, site->func->name, what, (long long)offset, target_section(site));
}

static int resolve_call(const struct site *site)
{
	const struct bpf_elf_section *section = &site->opening->elf.sections[site->symbol->section];
	/* Compilers keep -1 for a symbol, and the target's index - 1 for a section. */
	int64_t offset = (int64_t)site->symbol->value + ((int64_t)site->at->imm + 1) * (int64_t)sizeof(struct bpf_insn);
	uint32_t func;

	if (!bpf_elf_is_code(section) || offset < 0 || offset % (int64_t)sizeof(struct bpf_insn))
		return bad_target(site, "calls", offset);
	func = bpf_find_func(site->opening->object, site->symbol->section, (uint64_t)offset / sizeof(struct bpf_insn), true);
	if (func == UINT32_MAX)
		return bad_target(site, "calls", offset);
	return add(site, BPF_REF_CALL, func, 0);
}

static int resolve_data(const struct site *site, uint32_t data, int64_t offset)
{
	const struct bpf_unit_data *to = &site->opening->object->unit.datas[data];

	if (offset < 0 || (uint64_t)offset > to->len)
		return shunt_fail(EINVAL,
				  "%s: instruction %u of function '%s' refers to offset %lld of the %zu bytes of section '%s'",
				  site->opening->object->name, site->insn, site->func->name, (long long)offset, to->len, to->name);
	return add(site, BPF_REF_DATA, data, offset);
}

static int resolve_load(const struct site *site)
{
	struct shunt_bpf_object *object = site->opening->object;
	const struct bpf_elf_section *section = &site->opening->elf.sections[site->symbol->section];
	int64_t offset = (int64_t)site->symbol->value + site->at->imm;
	uint32_t index;

	if (bpf_elf_is_code(section)) {
		if (offset < 0 || offset % (int64_t)sizeof(struct bpf_insn))
			return bad_target(site, "takes the address of", offset);
		index = bpf_find_func(object, site->symbol->section, (uint64_t)offset / sizeof(struct bpf_insn), true);
		if (index == UINT32_MAX)
			return bad_target(site, "takes the address of", offset);
		return add(site, BPF_REF_FUNC, index, 0);
	}
	if (!strcmp(section->name, ".maps") || !strcmp(section->name, "maps")) {
		index = offset < 0 ? UINT32_MAX : bpf_find_map(object, site->symbol->section, (uint64_t)offset);
		if (index == UINT32_MAX)
			return shunt_fail(
				EINVAL,
				"%s: instruction %u of function '%s' refers to offset %lld of section '%s', where no map begins",
				object->name, site->insn, site->func->name, (long long)offset, section->name);
		return add(site, BPF_REF_MAP, index, 0);
	}
	for (index = 0; index < object->unit.nr_datas; index++) {
		if (object->data_places[index].section == site->symbol->section)
			return resolve_data(site, index, offset);
	}
	return bpf_reason(site->unsupported,
			  "instruction %u: '%s' is in section '%s', which programs cannot reach; use .data, .rodata or .bss",
			  site->insn, site->symbol->name, section->name);
}

static int resolve(const struct site *site, uint32_t type)
{
	const struct bpf_elf *elf = &site->opening->elf;
	bool call = site->at->code == OP_CALL;

	if (type != BPF_RELOC_64_64 && type != BPF_RELOC_64_32)
		return shunt_fail(ENOTSUP, "%s: instruction %u of function '%s' has a relocation of the unknown type %u",
				  elf->object, site->insn, site->func->name, type);
	if (call != (type == BPF_RELOC_64_32) ||
	    (!call && (site->at->code != OP_LD_IMM64 || site->insn + 1 >= site->func->nr_insns)))
		return shunt_fail(
			EINVAL, "%s: instruction %u (opcode 0x%02x) of function '%s' has a relocation of type %u, which is for %s",
			elf->object, site->insn, site->at->code, site->func->name, type,
			type == BPF_RELOC_64_32 ? "calls" : "64-bit loads of a constant");
	if (site->symbol->section == SHN_UNDEF)
		return resolve_extern(site);
	if (site->symbol->section >= elf->nr_sections)
		return bpf_reason(site->unsupported, "instruction %u: '%s' is in no section; compile with -fno-common", site->insn,
				  site->symbol->name);
	return call ? resolve_call(site) : resolve_load(site);
}

struct code_user {
	struct bpf_opening *opening;
	uint32_t section;
};

static int on_code_reloc(void *user, const struct bpf_elf_reloc *reloc)
{
	struct code_user *code = user;
	struct bpf_opening *opening = code->opening;
	struct shunt_bpf_object *object = opening->object;
	struct site site = { .opening = opening, .section = code->section, .symbol = &opening->elf.symbols[reloc->symbol] };
	uint64_t insn = reloc->offset / sizeof(struct bpf_insn);

	site.func_index = bpf_find_func(object, code->section, insn, false);
	if (reloc->offset % sizeof(struct bpf_insn) || site.func_index == UINT32_MAX)
		return shunt_fail(EINVAL, "%s: the relocation at offset %llu of section '%s' is for no instruction of a function",
				  object->name, (unsigned long long)reloc->offset, opening->elf.sections[code->section].name);
	site.func = &object->unit.funcs[site.func_index];
	site.insn = (uint32_t)insn - object->func_places[site.func_index].start;
	site.at = &site.func->insns[site.insn];
	site.unsupported = &object->func_places[site.func_index].unsupported;
	return resolve(&site, reloc->type);
}

static bool has_ref(const struct bpf_func *func, uint32_t nr_refs, uint32_t insn)
{
	const struct bpf_ref key = { .insn = insn };

	return nr_refs && bsearch(&key, func->refs, nr_refs, sizeof(key), by_insn);
}

/* Calls inside of a section need no relocation: they name their target by its distance. */
static int add_local_calls(struct shunt_bpf_object *object, uint32_t index)
{
	const struct bpf_func_place *place = &object->func_places[index];
	struct bpf_func *func = &object->unit.funcs[index];
	uint32_t nr_refs = func->nr_refs;

	for (uint32_t i = 0; i < func->nr_insns; i++) {
		const struct bpf_insn *insn = &func->insns[i];
		int64_t target = (int64_t)place->start + i + insn->imm + 1;
		struct bpf_ref ref = { .insn = i, .kind = BPF_REF_CALL };
		int err;

		if (insn->code == OP_LD_IMM64)
			i++;
		if (insn->code != OP_CALL || insn->src_reg != BPF_PSEUDO_CALL || has_ref(func, nr_refs, i))
			continue;
		ref.index = target < 0 ? UINT32_MAX : bpf_find_func(object, place->section, (uint64_t)target, true);
		if (ref.index == UINT32_MAX)
			return shunt_fail(
				EINVAL,
				"%s: instruction %u of function '%s' calls instruction %lld of section '%s', where no function begins",
				object->name, i, func->name, (long long)target, func->section);
		err = add_ref(func, &ref, object->name);
		if (err)
			return err;
	}
	return 0;
}

int bpf_link_local_calls(struct shunt_bpf_object *object)
{
	for (uint32_t i = 0; i < object->unit.nr_funcs; i++) {
		int err = add_local_calls(object, i);

		if (!err)
			err = sort_refs(&object->unit.funcs[i], object->name);
		if (err)
			return err;
	}
	return 0;
}

int bpf_open_code_relocs(struct bpf_opening *opening)
{
	struct shunt_bpf_object *object = opening->object;
	int err = 0;

	for (uint32_t i = 1; i < opening->elf.nr_sections && !err; i++) {
		struct code_user code = { opening, i };

		if (bpf_elf_is_code(&opening->elf.sections[i]))
			err = bpf_elf_each_reloc(&opening->elf, i, on_code_reloc, &code);
	}
	for (uint32_t i = 0; i < object->unit.nr_funcs && !err; i++)
		err = sort_refs(&object->unit.funcs[i], object->name);
	/* After all relocations: the call of a weak function that is absent is no call any more. */
	return err ? err : bpf_link_local_calls(object);
}
