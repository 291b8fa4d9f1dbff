/* SPDX-License-Identifier: MIT */
/*
 * Which functions an object has, which of them are programs, and which of those can run here. A program is a global function in an
 * executable section that is not .text; its section's name tells its type, as libbpf's section names do.
 */
#include "lib/bpf/object.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct symbol_place {
	const struct bpf_elf_symbol *symbol;
	uint64_t end;
};

static int by_place(const void *left, const void *right)
{
	const struct symbol_place *a = left, *b = right;

	if (a->symbol->section != b->symbol->section)
		return a->symbol->section < b->symbol->section ? -1 : 1;
	if (a->symbol->value != b->symbol->value)
		return a->symbol->value < b->symbol->value ? -1 : 1;
	return a->symbol < b->symbol ? -1 : a->symbol > b->symbol;
}

static bool is_defined_code(const struct bpf_elf *elf, const struct bpf_elf_symbol *symbol)
{
	return symbol->section != SHN_UNDEF && symbol->section < elf->nr_sections &&
	       bpf_elf_is_code(&elf->sections[symbol->section]);
}

/* Names become symbols of the module: they must not meet those that Shunt and LLVM give a meaning. */
static bool is_reserved_name(const char *name)
{
	static const char *const reserved[] = { "shunt_", "_bpf_helper_ext_", "llvm.", "map.", "data." };

	for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++) {
		if (!strncmp(name, reserved[i], strlen(reserved[i])))
			return true;
	}
	return !*name;
}

/* Functions in the order of the file with their ends: size 0 (hand-written assembly) reaches to the next function. */
static int sort_symbols(const struct bpf_elf *elf, struct symbol_place **out, uint32_t *nr)
{
	struct symbol_place *places = calloc(elf->nr_symbols + 1, sizeof(*places));

	*nr = 0;
	*out = places;
	if (!places)
		return bpf_no_memory(elf->object);
	for (uint32_t i = 0; i < elf->nr_symbols; i++) {
		if (elf->symbols[i].type == STT_FUNC && is_defined_code(elf, &elf->symbols[i]))
			places[(*nr)++].symbol = &elf->symbols[i];
	}
	qsort(places, *nr, sizeof(*places), by_place);
	for (uint32_t i = 0; i < *nr; i++) {
		const struct bpf_elf_symbol *symbol = places[i].symbol;
		const struct bpf_elf_symbol *next = i + 1 < *nr ? places[i + 1].symbol : NULL;
		const struct bpf_elf_section *section = &elf->sections[symbol->section];

		if (next && next->section != symbol->section)
			next = NULL;
		if (symbol->size)
			places[i].end = symbol->value + symbol->size;
		else
			places[i].end = next ? next->value : section->len;
		if (next && places[i].end > next->value)
			return shunt_fail(EINVAL, "%s: functions '%s' and '%s' overlap in section '%s'", elf->object, symbol->name,
					  next->name, section->name);
		if (symbol->value % sizeof(struct bpf_insn) || places[i].end % sizeof(struct bpf_insn) ||
		    places[i].end == symbol->value)
			return shunt_fail(
				EINVAL, "%s: function '%s' (offset %llu to %llu of section '%s') is not made of whole instructions",
				elf->object, symbol->name, (unsigned long long)symbol->value, (unsigned long long)places[i].end,
				section->name);
		if (is_reserved_name(symbol->name))
			return shunt_fail(EINVAL, "%s: function '%s' of section '%s' has a name that is reserved; rename it",
					  elf->object, symbol->name, section->name);
	}
	return 0;
}

/* NULL when programs of that section can run; else a format with one %s, the type. */
static const char *why_not(const char *section)
{
	static const char *const kernel_only[] = { "fentry",	     "fexit",	    "fmod_ret", "kprobe",     "kretprobe",
						   "ksyscall",	     "kretsyscall", "tp",	"tracepoint", "raw_tp",
						   "raw_tracepoint", "tp_btf",	    "lsm",	"lsm_cgroup", "iter",
						   "struct_ops",     "perf_event",  "freplace", "uprobe",     "uretprobe",
						   "usdt",	     "syscall" };
	static const char *const network[] = { "tc",	     "classifier", "action",	    "socket",
					       "cgroup",     "cgroup_skb", "sockops",	    "sk_skb",
					       "sk_msg",     "sk_lookup",  "sk_reuseport",  "lwt_in",
					       "lwt_out",    "lwt_xmit",   "lwt_seg6local", "flow_dissector",
					       "lirc_mode2", "netfilter",  "tcx",	    "netkit" };
	size_t len = strcspn(section, "/.+?"); /* "fentry.s/f" is sleepable, "?tc" not loaded by default */

	if (!strncmp(section, "xdp", 3))
		return NULL;
	for (size_t i = 0; i < sizeof(kernel_only) / sizeof(kernel_only[0]); i++) {
		if (strlen(kernel_only[i]) == len && !strncmp(section, kernel_only[i], len))
			return "%s programs need a kernel to attach to";
	}
	for (size_t i = 0; i < sizeof(network) / sizeof(network[0]); i++) {
		if (strlen(network[i]) == len && !strncmp(section, network[i], len))
			return "%s programs are not supported, only XDP programs are";
	}
	return "'%s' is no program type that is known here; put XDP programs into a section 'xdp'";
}

static int set_type(struct shunt_bpf_object *object, uint32_t index, const struct bpf_elf_symbol *symbol, const char *section)
{
	struct bpf_func *func = &object->unit.funcs[index];
	const char *name = *section == '?' ? section + 1 : section;
	const char *format;
	char *type, *reason;

	func->is_program = symbol->bind != STB_LOCAL && strcmp(section, ".text");
	if (!func->is_program)
		return 0;
	func->context = SHUNT_BPF_CONTEXT_XDP;
	format = why_not(name);
	if (!format)
		return 0;
	type = strndup(name, strcspn(name, "/.+"));
	if (!type)
		return bpf_no_memory(object->name);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	reason = bpf_text(format, type);
#pragma GCC diagnostic pop
	free(type);
	if (!reason)
		return bpf_no_memory(object->name);
	object->func_places[index].unsupported = bpf_text("section '%s': %s", section, reason);
	free(reason);
	return object->func_places[index].unsupported ? 0 : bpf_no_memory(object->name);
}

static int add_func(struct bpf_opening *opening, uint32_t index, const struct symbol_place *place)
{
	struct shunt_bpf_object *object = opening->object;
	const struct bpf_elf_symbol *symbol = place->symbol;
	const struct bpf_elf_section *section = &opening->elf.sections[symbol->section];
	struct bpf_func *func = &object->unit.funcs[index];

	func->nr_insns = (uint32_t)((place->end - symbol->value) / sizeof(struct bpf_insn));
	func->name = strdup(symbol->name);
	func->section = strdup(section->name);
	func->insns = malloc(func->nr_insns * sizeof(struct bpf_insn));
	if (!func->name || !func->section || !func->insns)
		return bpf_no_memory(object->name);
	memcpy(func->insns, section->bytes + symbol->value, func->nr_insns * sizeof(struct bpf_insn));
	object->func_places[index].section = symbol->section;
	object->func_places[index].start = (uint32_t)(symbol->value / sizeof(struct bpf_insn));
	return set_type(object, index, symbol, section->name);
}

int bpf_open_funcs(struct bpf_opening *opening)
{
	struct shunt_bpf_object *object = opening->object;
	struct symbol_place *places;
	uint64_t nr_insns = 0;
	uint32_t nr;
	int err = sort_symbols(&opening->elf, &places, &nr);

	if (err)
		goto out;
	if (nr > BPF_MAX_FUNCS) {
		err = shunt_fail(EFBIG, "%s: %u functions are more than %u; split the object", object->name, nr, BPF_MAX_FUNCS);
		goto out;
	}
	object->unit.funcs = calloc(nr + 1, sizeof(*object->unit.funcs));
	object->func_places = calloc(nr + 1, sizeof(*object->func_places));
	if (!object->unit.funcs || !object->func_places) {
		err = bpf_no_memory(object->name);
		goto out;
	}
	object->unit.nr_funcs = nr;
	for (uint32_t i = 0; i < nr && !err; i++) {
		nr_insns += (places[i].end - places[i].symbol->value) / sizeof(struct bpf_insn);
		if (nr_insns > BPF_MAX_INSNS)
			err = shunt_fail(EFBIG, "%s: more than %u instructions; split the object", object->name, BPF_MAX_INSNS);
		else
			err = add_func(opening, i, &places[i]);
	}
out:
	free(places);
	return err;
}

uint32_t bpf_find_func(const struct shunt_bpf_object *object, uint32_t section, uint64_t insn, bool start)
{
	uint32_t low = 0, high = object->unit.nr_funcs;

	/* The last function that begins at or before (section, insn). */
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		const struct bpf_func_place *place = &object->func_places[middle];

		if (place->section < section || (place->section == section && place->start <= insn))
			low = middle + 1;
		else
			high = middle;
	}
	if (!low || object->func_places[low - 1].section != section)
		return UINT32_MAX;
	low--;
	if (start ? object->func_places[low].start != insn
		  : insn - object->func_places[low].start >= object->unit.funcs[low].nr_insns)
		return UINT32_MAX;
	return low;
}
