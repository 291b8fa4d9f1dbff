/* SPDX-License-Identifier: MIT */
/* What `shunt run` found out, as text for people and as JSON for programs. */
#ifndef TOOLS_REPORT_H
#define TOOLS_REPORT_H

#include <stdbool.h>
#include <stdio.h>
#include "lib/replay/kernel.h"
#include "lib/replay/replay.h"

struct report {
	const struct shunt_replay *replay;
	const char *capture_path;
	uint64_t repeat;
	bool all_remarks;                       /* list what was inlined too, not only what was left */
	bool all_entries;                       /* list zero entries and long maps in full */
	const struct shunt_replay_check *check; /* NULL: not asked for */
	bool has_kernel_time;
	double kernel_ns, shunt_ns;             /* a frame, the same frame repeated */
};

void report_print_text(const struct report *report, FILE *out);
/* -1 when memory ran out or out cannot be written. */
int report_print_json(const struct report *report, FILE *out);

/* Distinct maps of all queues, in order of first appearance, at most max; returns how many. */
size_t report_collect_maps(const struct shunt_replay *replay, struct shunt_map **maps, size_t max);
size_t report_count_maps(const struct shunt_replay *replay);

/* Calls fn for each entry of map that is not all zeros (every entry when all is true), with its host value. fn returns false to stop. */
typedef bool report_entry_fn(void *user, const struct shunt_map *map, const uint8_t *key, const uint8_t *value);
int report_each_entry(struct shunt_map *map, bool all, report_entry_fn *fn, void *user);

/* 64-bit words of a value; the last one short. */
uint64_t report_word(const uint8_t *value, size_t size, size_t word);
static inline size_t report_nr_words(size_t size)
{
	return (size + 7) / 8;
}

/* "1,234,567" in one of a few static buffers of this thread. */
const char *report_number(uint64_t number);
/* A key as its size and map type suggest: an index, an address, bytes. */
const char *report_key(const struct shunt_map *map, const uint8_t *key, char *text, size_t size);
/* "PERCPU_ARRAY" */
const char *report_map_type(uint32_t type);

extern const char *const report_verdict_names[SHUNT_REPLAY_NR_VERDICTS];

#endif
