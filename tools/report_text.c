/* SPDX-License-Identifier: MIT */
/* The report for people: one block a topic, readable at a glance. */
#include <stdlib.h>
#include <string.h>
#include <shunt/percpu.h>
#include "tools/report.h"

#define MAX_ENTRIES_SHOWN 12

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static void print_queues(const struct report *report, FILE *out)
{
	const struct shunt_replay *replay = report->replay;

	fprintf(out, "\n%-5s  %-32s %7s %11s %11s %9s %9s %8s %6s  %8s %8s\n", "queue", "program", "frames", "pass", "drop", "tx", "redirect",
		"aborted", "other", "ns/frame", "p99");
	for (size_t q = 0; q < replay->nr_queues; q++) {
		const struct shunt_replay_queue *queue = &replay->queues[q];
		const uint64_t *v = queue->verdicts;
		char program[64];

		snprintf(program, sizeof(program), "%s:%s", base_name(queue->path), shunt_bpf_program_name(queue->prog));
		fprintf(out, "%5zu  %-32s %7s %11s %11s %9s %9s %8s %6s", q, program, report_number(queue->nr_frames),
			report_number(v[SHUNT_XDP_PASS]), report_number(v[SHUNT_XDP_DROP]), report_number(v[SHUNT_XDP_TX]),
			report_number(v[SHUNT_XDP_REDIRECT]), report_number(v[SHUNT_XDP_ABORTED]),
			report_number(v[SHUNT_REPLAY_NR_VERDICTS - 1]));
		if (queue->timing.nr_batches)
			fprintf(out, "  %8.1f %8.1f\n", queue->timing.median_ns, queue->timing.p99_ns);
		else
			fprintf(out, "  %8s %8s\n", "-", "-");
	}
}

struct entry_printer {
	FILE *out;
	size_t max, nr;
};

static void print_words(FILE *out, const uint8_t *value, size_t size)
{
	for (size_t word = 0; word < report_nr_words(size); word++)
		fprintf(out, " %s", report_number(report_word(value, size, word)));
}

static void print_sums(FILE *out, const uint8_t *value, const struct shunt_map_abi *abi)
{
	for (size_t word = 0; word < report_nr_words(abi->value_size); word++) {
		uint64_t sum = 0;

		for (uint32_t cpu = 0; cpu < shunt_nr_cpus(); cpu++)
			sum += report_word(value + (size_t)cpu * abi->stride, abi->value_size, word);
		fprintf(out, " %s", report_number(sum));
	}
}

static bool print_entry(void *user, const struct shunt_map *map, const uint8_t *key, const uint8_t *value)
{
	struct entry_printer *printer = user;
	const struct shunt_map_abi *abi = shunt_map_abi(map);
	FILE *out = printer->out;
	char text[64];

	if (printer->nr++ >= printer->max)
		return true;
	fprintf(out, "    [%s]", report_key(map, key, text, sizeof(text)));
	if (!shunt_map_is_percpu(map)) {
		print_words(out, value, abi->value_size);
		fputc('\n', out);
		return true;
	}
	fprintf(out, "  sum");
	print_sums(out, value, abi);
	for (uint32_t cpu = 0; cpu < shunt_nr_cpus(); cpu++) {
		fprintf(out, "%s cpu%u", cpu ? "," : "  =", cpu);
		print_words(out, value + (size_t)cpu * abi->stride, abi->value_size);
	}
	fputc('\n', out);
	return true;
}

/* "queues 0, 1" */
static void print_holders(const struct shunt_replay *replay, const struct shunt_map *map, FILE *out)
{
	size_t nr = 0;

	for (size_t q = 0; q < replay->nr_queues; q++)
		if (shunt_bpf_find_map(replay->queues[q].object, shunt_map_name(map)) == map)
			fprintf(out, "%s%zu", nr++ ? ", " : "queue ", q);
}

static void print_maps(const struct report *report, FILE *out)
{
	size_t max = report_count_maps(report->replay);
	struct shunt_map **maps = calloc(max ? max : 1, sizeof(struct shunt_map *));
	size_t nr = maps ? report_collect_maps(report->replay, maps, max) : 0;

	fprintf(out, "\nmaps: values as 64-bit integers%s\n", report->all_entries ? "" : ", entries that are not all zeros");
	for (size_t i = 0; i < nr; i++) {
		const struct shunt_map_abi *abi = shunt_map_abi(maps[i]);
		struct entry_printer printer = { out, report->all_entries ? SIZE_MAX : MAX_ENTRIES_SHOWN, 0 };

		fprintf(out, "  %s (", shunt_map_name(maps[i]));
		print_holders(report->replay, maps[i], out);
		fprintf(out, "): %s, key %u, value %u bytes, %s of %s entries\n", report_map_type(abi->type), abi->key_size, abi->value_size,
			report_number(shunt_map_count(maps[i])), report_number(abi->max_entries));
		report_each_entry(maps[i], report->all_entries, print_entry, &printer);
		if (printer.nr > printer.max)
			fprintf(out, "    and %s more (--all-entries)\n", report_number(printer.nr - printer.max));
	}
	free(maps);
}

static void print_passes(const struct report *report, FILE *out)
{
	const struct shunt_pass_counts *c = &report->replay->counts;

	fprintf(out, "\npasses\n");
	fprintf(out, "  inlined: %u per-CPU array lookups, %u array lookups, %u CPU ids, %u per-CPU pointers\n", c->percpu_array_lookups,
		c->array_lookups, c->cpu_ids, c->percpu_this + c->percpu_of);
	fprintf(out, "  direct calls: %u per-CPU hash lookups (this CPU's copy inline), %u hash lookups, %u program calls\n", c->percpu_hash_lookups,
		c->hash_lookups, c->dispatches);
	if (c->exact_updates)
		fprintf(out, "  exact: %u updates of per-CPU values that migration cannot tear\n", c->exact_updates);
	fprintf(out, "  left as they were: %u\n", c->missed);
	for (size_t i = 0; i < report->replay->nr_remarks; i++) {
		const struct shunt_replay_remark *remark = &report->replay->remarks[i];

		if (remark->missed || report->all_remarks)
			fprintf(out, "    %s %s: %s: %s\n", remark->missed ? "left" : "done", remark->function, remark->callee, remark->message);
	}
}

static void print_runtime(const struct report *report, FILE *out)
{
	const struct shunt_replay *replay = report->replay;
	struct shunt_dispatcher_stats dispatcher;
	struct shunt_pack_stats packs;
	struct shunt_cpu_index cpu;

	shunt_dispatcher_get_stats(replay->dispatcher, &dispatcher);
	shunt_cpu_index(&cpu);
	fprintf(out, "\nruntime\n");
	if (!shunt_pack_get_stats(replay->arena, &packs)) {
		fprintf(out, "  packs: %s code, %s read-only, %s data; %s of %s mapped bytes used, %s\n",
			report_number(packs.nr_packs[SHUNT_SEGMENT_CODE]), report_number(packs.nr_packs[SHUNT_SEGMENT_RODATA]),
			report_number(packs.nr_packs[SHUNT_SEGMENT_DATA]),
			report_number(packs.bytes_used[0] + packs.bytes_used[1] + packs.bytes_used[2]),
			report_number(packs.bytes_mapped[0] + packs.bytes_mapped[1] + packs.bytes_mapped[2]), shunt_backing_name(packs.backing));
		if (packs.bytes_huge)
			fprintf(out, "  pages: %s of %s code bytes behind 2 MiB pages\n", report_number(packs.bytes_huge),
				report_number(packs.bytes_mapped[SHUNT_SEGMENT_CODE]));
		else
			fprintf(out, "  pages: %zu KiB\n", packs.page_size >> 10);
	}
	fprintf(out, "  dispatcher '%s': %u programs, tree %u bytes, %u compares deep, %s attached, %s patches\n", SHUNT_REPLAY_DISPATCHER,
		dispatcher.nr_programs, dispatcher.tree_len, dispatcher.tree_depth, report_number(dispatcher.nr_attaches),
		report_number(dispatcher.nr_patches));
	fprintf(out, "  CPU number: %s\n", shunt_cpu_source_name(cpu.source));
}

static void print_check(const struct report *report, FILE *out)
{
	const struct shunt_replay_check *check = report->check;

	fprintf(out, "\nkernel\n");
	if (check) {
		uint64_t diffs = check->nr_verdict_diffs + check->nr_frame_diffs + check->nr_map_diffs;

		fprintf(out, "  compared %s frames and %s map values: %s differences (%s verdicts, %s frames, %s map values)\n",
			report_number(check->nr_frames), report_number(check->nr_map_values), report_number(diffs),
			report_number(check->nr_verdict_diffs), report_number(check->nr_frame_diffs), report_number(check->nr_map_diffs));
		if (diffs)
			fprintf(out, "  first: %s\n", check->first_diff);
	}
	if (report->has_kernel_time)
		fprintf(out, "  ns per frame, each frame repeated: shunt %.1f, kernel BPF_PROG_TEST_RUN %.1f, ratio %.2f\n", report->shunt_ns,
			report->kernel_ns, report->shunt_ns / report->kernel_ns);
}

void report_print_text(const struct report *report, FILE *out)
{
	const struct shunt_replay_capture *capture = report->replay->capture;

	fprintf(out, "%s: %s frames, %s bytes, %s times", base_name(report->capture_path), report_number(capture->nr_frames),
		report_number(capture->nr_bytes), report_number(report->repeat));
	if (capture->nr_skipped)
		fprintf(out, "; %s frames shorter than %u or longer than %u bytes left out", report_number(capture->nr_skipped),
			SHUNT_REPLAY_FRAME_MIN, SHUNT_REPLAY_FRAME_MAX);
	fputc('\n', out);
	print_queues(report, out);
	print_maps(report, out);
	print_passes(report, out);
	print_runtime(report, out);
	if (report->check || report->has_kernel_time)
		print_check(report, out);
}
