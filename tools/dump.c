/* SPDX-License-Identifier: MIT */
/* Prints generated code with names for the programs, the stub and the library's own functions. */
#include "tools/dump.h"

#include <dlfcn.h>
#include <string.h>
#include "lib/jit/disassemble.h"

/* Bytes of a stub slot, as the machine contract fixes it (docs/architecture.md). */
#define STUB_LEN 16

int dump_parse(const char *word, struct dump_selection *selection)
{
	bool all = !strcmp(word, "all");

	if (!all && strcmp(word, "ir") && strcmp(word, "code") && strcmp(word, "tree"))
		return -1;
	selection->ir |= all || !strcmp(word, "ir");
	selection->code |= all || !strcmp(word, "code");
	selection->tree |= all || !strcmp(word, "tree");
	return 0;
}

static const char *name_address(void *user, uint64_t address)
{
	const struct shunt_replay *replay = user;
	const void *pointer = (const void *)(uintptr_t)address;
	struct shunt_dispatcher_stats stats;
	Dl_info info;

	for (size_t q = 0; q < replay->nr_queues; q++)
		if (replay->queues[q].entry == pointer)
			return shunt_bpf_program_name(replay->queues[q].prog);
	shunt_dispatcher_get_stats(replay->dispatcher, &stats);
	if (pointer == stats.stub)
		return "stub of dispatcher " SHUNT_REPLAY_DISPATCHER;
	if (pointer == stats.tree)
		return "tree of dispatcher " SHUNT_REPLAY_DISPATCHER;
	return dladdr(pointer, &info) && info.dli_saddr == pointer ? info.dli_sname : NULL;
}

static void print_code(const struct shunt_replay *replay, const char *title, const void *code, size_t len, FILE *out)
{
	fprintf(out, "%s: %zu bytes at %p\n", title, len, code);
	jit_disassemble(code, len, name_address, (void *)replay, out);
	fputc('\n', out);
}

void dump_print(const struct shunt_replay *replay, const struct dump_selection *selection, FILE *out)
{
	const void *code;
	size_t len;

	for (size_t q = 0; q < replay->nr_queues; q++) {
		const struct shunt_replay_queue *queue = &replay->queues[q];
		const char *ir = shunt_bpf_program_ir(queue->prog);

		if (selection->ir && ir)
			fprintf(out, "%s\n", ir);
		if (selection->code && !shunt_bpf_program_code(queue->prog, &code, &len))
			print_code(replay, shunt_bpf_program_name(queue->prog), code, len, out);
	}
	if (selection->ir && shunt_jit_module_ir(replay->loop_module))
		fprintf(out, "%s\n", shunt_jit_module_ir(replay->loop_module));
	if (selection->code && !shunt_jit_module_code(replay->loop_module, "shunt_replay_loop", &code, &len))
		print_code(replay, "receive loop", code, len, out);
	if (selection->tree) {
		struct shunt_dispatcher_stats stats;

		shunt_dispatcher_get_stats(replay->dispatcher, &stats);
		print_code(replay, "stub", stats.stub, STUB_LEN, out);
		print_code(replay, "tree", stats.tree, stats.tree_len, out);
	}
}
