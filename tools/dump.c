/* SPDX-License-Identifier: MIT */
/* Prints generated code with names for the programs, the stub and the library's own functions. */
#include "tools/dump.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <shunt/reader.h>
#include "lib/jit/disassemble.h"

/* Bytes of a stub slot, as the machine contract fixes it (docs/architecture.md). */
#define STUB_LEN 16

int dump_parse(const char *word, struct dump_selection *selection)
{
	bool all = !strcmp(word, "all");

	if (!all && strcmp(word, "ir") && strcmp(word, "code") && strcmp(word, "tree") && strcmp(word, "dot") && strcmp(word, "hits"))
		return -1;
	selection->dot |= !strcmp(word, "dot");
	selection->hits |= !strcmp(word, "hits");
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

/* The tree in one piece, or its head and parts: noted under the dispatcher's lock, printed without, since names are asked of it. */
#define PIECES_MAX 1024u

struct pieces {
	struct { const void *code; size_t len; } list[PIECES_MAX];
	uint32_t nr;
};

static int note_piece(void *user, const void *code, size_t len)
{
	struct pieces *pieces = user;

	if (pieces->nr == PIECES_MAX)
		return 1;
	pieces->list[pieces->nr].code = code;
	pieces->list[pieces->nr++].len = len;
	return 0;
}

static void print_tree(const struct shunt_replay *replay, FILE *out)
{
	static struct pieces pieces;
	char title[32];

	pieces.nr = 0;
	shunt_dispatcher_each_code(replay->dispatcher, note_piece, &pieces);
	for (uint32_t i = 0; i < pieces.nr; i++) {
		if (i)
			snprintf(title, sizeof(title), "part %u", i);
		else
			snprintf(title, sizeof(title), "tree");
		print_code(replay, title, pieces.list[i].code, pieces.list[i].len, out);
	}
}

static void print_counters(const struct shunt_replay *replay, FILE *out)
{
	struct shunt_dispatcher_stats stats;
	struct shunt_reclaim_stats reclaim;

	shunt_dispatcher_get_stats(replay->dispatcher, &stats);
	shunt_reclaim_get_stats(&reclaim);
	fprintf(out, "dispatcher %s: plan %s, fallback %s, %u programs, %u compares on the longest path\n", SHUNT_REPLAY_DISPATCHER,
		shunt_plan_name(stats.plan), shunt_miss_name(stats.miss), stats.nr_programs, stats.tree_depth);
	fprintf(out, "  %" PRIu64 " attached, %" PRIu64 " detached, %" PRIu64 " patches, %u bytes", stats.nr_attaches, stats.nr_detaches, stats.nr_patches,
		stats.tree_len);
	if (stats.nr_parts)
		fprintf(out, " in %u parts under a head of %u", stats.nr_parts, stats.head_len);
	if (stats.leaves_rare)
		fprintf(out, ", what is rarely called left to the fallback");
	fprintf(out, "\n  %" PRIu64 " grace periods, the longest %.1f us\n\n", reclaim.nr_batches, (double)reclaim.longest_wait_ns / 1e3);
}

static void print_hits(const struct shunt_replay *replay, FILE *out)
{
	size_t nr = shunt_dispatcher_get_programs(replay->dispatcher, NULL, 0);
	struct shunt_dispatcher_program *programs = calloc(nr + 1, sizeof(*programs));

	if (!programs)
		return;
	nr = shunt_dispatcher_get_programs(replay->dispatcher, programs, nr);
	fprintf(out, "hits\n");
	for (size_t i = 0; i < nr; i++) {
		const char *name = name_address((void *)(uintptr_t)replay, (uint64_t)(uintptr_t)programs[i].program);

		fprintf(out, "  %-32s %" PRIu64 "\n", name ? name : "?", programs[i].nr_hits);
	}
	fputc('\n', out);
	free(programs);
}

static const char *name_program(void *replay, const void *program)
{
	return name_address(replay, (uint64_t)(uintptr_t)program);
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
		print_counters(replay, out);
		print_code(replay, "stub", shunt_dispatcher_stub(replay->dispatcher), STUB_LEN, out);
		print_tree(replay, out);
	}
	if (selection->hits)
		print_hits(replay, out);
	if (selection->dot)
		shunt_dispatcher_draw(replay->dispatcher, name_program, (void *)(uintptr_t)replay, out);
}
