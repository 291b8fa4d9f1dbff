/* SPDX-License-Identifier: MIT */
/* The report for programs. Numbers are exact; keys are hexadecimal bytes, values 64-bit words. docs/json.md lists the members. */
#include <jansson.h>
#include <stdlib.h>
#include <shunt/percpu.h>
#include "tools/report.h"

static json_t *number(uint64_t value)
{
	return json_integer((json_int_t)value);
}

static json_t *queues_json(const struct report *report)
{
	json_t *queues = json_array();

	for (size_t q = 0; q < report->replay->nr_queues; q++) {
		const struct shunt_replay_queue *queue = &report->replay->queues[q];
		json_t *verdicts = json_object(), *object = json_object();

		for (size_t v = 0; v < SHUNT_REPLAY_NR_VERDICTS; v++)
			json_object_set_new(verdicts, report_verdict_names[v], number(queue->verdicts[v]));
		json_object_set_new(object, "object", json_string(queue->path));
		json_object_set_new(object, "program", json_string(shunt_bpf_program_name(queue->prog)));
		json_object_set_new(object, "frames", number(queue->nr_frames));
		json_object_set_new(object, "verdicts", verdicts);
		if (queue->timing.nr_batches) {
			json_object_set_new(object, "ns_per_frame_median", json_real(queue->timing.median_ns));
			json_object_set_new(object, "ns_per_frame_p99", json_real(queue->timing.p99_ns));
			json_object_set_new(object, "ns_per_frame_mean", json_real(queue->timing.mean_ns));
			json_object_set_new(object, "batches", number(queue->timing.nr_batches));
		}
		json_array_append_new(queues, object);
	}
	return queues;
}

static json_t *words_json(const uint8_t *value, size_t size)
{
	json_t *words = json_array();

	for (size_t word = 0; word < report_nr_words(size); word++)
		json_array_append_new(words, number(report_word(value, size, word)));
	return words;
}

static bool add_entry(void *user, const struct shunt_map *map, const uint8_t *key, const uint8_t *value)
{
	const struct shunt_map_abi *abi = shunt_map_abi(map);
	json_t *entry = json_object();
	char *hex = calloc(1, 2 * (size_t)abi->key_size + 1);
	char text[64];

	for (uint32_t i = 0; hex && i < abi->key_size; i++)
		snprintf(hex + 2 * i, 3, "%02x", key[i]);
	json_object_set_new(entry, "key", json_string(hex ? hex : ""));
	json_object_set_new(entry, "key_text", json_string(report_key(map, key, text, sizeof(text))));
	free(hex);
	if (shunt_map_is_percpu(map)) {
		json_t *cpus = json_array();

		for (uint32_t cpu = 0; cpu < shunt_nr_cpus(); cpu++)
			json_array_append_new(cpus, words_json(value + (size_t)cpu * abi->stride, abi->value_size));
		json_object_set_new(entry, "cpus", cpus);
	} else {
		json_object_set_new(entry, "value", words_json(value, abi->value_size));
	}
	json_array_append_new(user, entry);
	return true;
}

static json_t *maps_json(const struct report *report)
{
	size_t max = report_count_maps(report->replay);
	struct shunt_map **maps = calloc(max ? max : 1, sizeof(struct shunt_map *));
	size_t nr = maps ? report_collect_maps(report->replay, maps, max) : 0;
	json_t *list = json_array();

	for (size_t i = 0; i < nr; i++) {
		const struct shunt_map_abi *abi = shunt_map_abi(maps[i]);
		json_t *object = json_object(), *entries = json_array();

		json_object_set_new(object, "name", json_string(shunt_map_name(maps[i])));
		json_object_set_new(object, "type", json_string(report_map_type(abi->type)));
		json_object_set_new(object, "key_size", number(abi->key_size));
		json_object_set_new(object, "value_size", number(abi->value_size));
		json_object_set_new(object, "max_entries", number(abi->max_entries));
		json_object_set_new(object, "count", number(shunt_map_count(maps[i])));
		report_each_entry(maps[i], report->all_entries, add_entry, entries);
		json_object_set_new(object, "entries", entries);
		json_array_append_new(list, object);
	}
	free(maps);
	return list;
}

static json_t *passes_json(const struct report *report)
{
	const struct shunt_pass_counts *c = &report->replay->counts;
	json_t *object = json_object(), *remarks = json_array();

	json_object_set_new(object, "percpu_array_lookups", number(c->percpu_array_lookups));
	json_object_set_new(object, "array_lookups", number(c->array_lookups));
	json_object_set_new(object, "percpu_hash_lookups", number(c->percpu_hash_lookups));
	json_object_set_new(object, "hash_lookups", number(c->hash_lookups));
	json_object_set_new(object, "cpu_ids", number(c->cpu_ids));
	json_object_set_new(object, "percpu_pointers", number(c->percpu_this + c->percpu_of));
	json_object_set_new(object, "program_calls", number(c->dispatches));
	json_object_set_new(object, "exact_updates", number(c->exact_updates));
	json_object_set_new(object, "helper_calls_named", number(c->helpers));
	json_object_set_new(object, "left", number(c->missed));
	for (size_t i = 0; i < report->replay->nr_remarks; i++) {
		const struct shunt_replay_remark *remark = &report->replay->remarks[i];

		json_array_append_new(remarks, json_pack("{s:s, s:s, s:s, s:s, s:s}", "kind", remark->missed ? "left" : "done", "pass",
							 remark->pass, "function", remark->function, "callee", remark->callee, "message",
							 remark->message));
	}
	json_object_set_new(object, "remarks", remarks);
	return object;
}

static json_t *runtime_json(const struct report *report)
{
	static const char *const segments[SHUNT_NR_SEGMENTS] = { "code", "rodata", "data" };
	struct shunt_dispatcher_stats dispatcher;
	struct shunt_pack_stats packs;
	struct shunt_cpu_index cpu;
	json_t *object = json_object();

	shunt_dispatcher_get_stats(report->replay->dispatcher, &dispatcher);
	shunt_cpu_index(&cpu);
	json_object_set_new(object, "cpu_source", json_string(shunt_cpu_source_name(cpu.source)));
	json_object_set_new(object, "cpus", number(shunt_nr_cpus()));
	json_object_set_new(object, "dispatcher", json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "name", SHUNT_REPLAY_DISPATCHER, "programs",
							    (json_int_t)dispatcher.nr_programs, "tree_bytes", (json_int_t)dispatcher.tree_len,
							    "tree_depth", (json_int_t)dispatcher.tree_depth, "patches",
							    (json_int_t)dispatcher.nr_patches, "attaches",
							    (json_int_t)dispatcher.nr_attaches, "detaches", (json_int_t)dispatcher.nr_detaches));
	if (shunt_pack_get_stats(report->replay->arena, &packs))
		return object;
	for (size_t s = 0; s < SHUNT_NR_SEGMENTS; s++)
		json_object_set_new(object, segments[s], json_pack("{s:I, s:I, s:I, s:I}", "packs", (json_int_t)packs.nr_packs[s], "blocks",
								   (json_int_t)packs.nr_blocks[s], "bytes_used",
								   (json_int_t)packs.bytes_used[s], "bytes_mapped",
								   (json_int_t)packs.bytes_mapped[s]));
	json_object_set_new(object, "bytes_huge", number(packs.bytes_huge));
	json_object_set_new(object, "page_size", number(packs.page_size));
	json_object_set_new(object, "backing", json_string(shunt_backing_name(packs.backing)));
	return object;
}

static json_t *kernel_json(const struct report *report)
{
	const struct shunt_replay_check *check = report->check;
	json_t *object = json_object();

	if (check) {
		json_object_set_new(object, "frames", number(check->nr_frames));
		json_object_set_new(object, "map_values", number(check->nr_map_values));
		json_object_set_new(object, "verdict_differences", number(check->nr_verdict_diffs));
		json_object_set_new(object, "frame_differences", number(check->nr_frame_diffs));
		json_object_set_new(object, "map_differences", number(check->nr_map_diffs));
		if (check->first_diff[0])
			json_object_set_new(object, "first_difference", json_string(check->first_diff));
	}
	if (report->has_kernel_time) {
		json_object_set_new(object, "shunt_ns_per_frame", json_real(report->shunt_ns));
		json_object_set_new(object, "kernel_ns_per_frame", json_real(report->kernel_ns));
	}
	return object;
}

int report_print_json(const struct report *report, FILE *out)
{
	const struct shunt_replay_capture *capture = report->replay->capture;
	json_t *root = json_object();
	int err;

	json_object_set_new(root, "capture", json_pack("{s:s, s:I, s:I, s:I}", "path", report->capture_path, "frames",
						       (json_int_t)capture->nr_frames, "bytes", (json_int_t)capture->nr_bytes, "skipped",
						       (json_int_t)capture->nr_skipped));
	json_object_set_new(root, "repeat", number(report->repeat));
	json_object_set_new(root, "queues", queues_json(report));
	json_object_set_new(root, "maps", maps_json(report));
	json_object_set_new(root, "passes", passes_json(report));
	json_object_set_new(root, "runtime", runtime_json(report));
	if (report->check || report->has_kernel_time)
		json_object_set_new(root, "kernel", kernel_json(report));
	err = root ? json_dumpf(root, out, JSON_INDENT(2)) : -1;
	if (!err && fputc('\n', out) == EOF)
		err = -1;
	json_decref(root);
	return err;
}
