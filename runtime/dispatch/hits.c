/* SPDX-License-Identifier: MIT */
/* Counters for trees. See hits.h. */
#include "runtime/dispatch/hits.h"

#include <errno.h>
#include <shunt/percpu.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/grace.h"
#include "runtime/log.h"

#define WORDS_MIN 64u /* a multiple of a cache line, so that rows are */
#define ROW_BITS_MAX 10u

/* Rows of one size. The newest is what trees are made with. */
struct area {
	struct area *next;
	uint32_t nr_words; /* of a row, a power of two */
	uint64_t *rows;
};

struct shunt_hits {
	struct shunt_grace_item grace;
	struct area *areas;
	uint64_t *bases;     /* of each word: the sum when its program got it */
	uint8_t row_bits;
	int32_t number_offset;
};

static int add_area(struct shunt_hits *hits, uint32_t nr_words)
{
	struct area *area = malloc(sizeof(*area));
	uint64_t *bases = calloc(nr_words, sizeof(*bases));
	void *rows = NULL;

	if (!area || !bases || posix_memalign(&rows, 64, ((size_t)nr_words * 8) << hits->row_bits) != 0) {
		free(area);
		free(bases);
		return shunt_fail(ENOMEM, "no memory for %u counters on %u CPUs", nr_words, 1u << hits->row_bits);
	}
	memset(rows, 0, ((size_t)nr_words * 8) << hits->row_bits);
	if (hits->areas)
		memcpy(bases, hits->bases, hits->areas->nr_words * sizeof(*bases));
	free(hits->bases);
	hits->bases = bases;
	*area = (struct area){ .next = hits->areas, .nr_words = nr_words, .rows = rows };
	hits->areas = area;
	return 0;
}

static uint32_t words_for(uint32_t nr_programs)
{
	uint32_t nr_words = WORDS_MIN;

	while (nr_words < SHUNT_TREE_WORDS_MAX && nr_words < nr_programs + nr_programs / 2)
		nr_words *= 2;
	return nr_words;
}

int shunt_hits_create(uint32_t nr_programs, struct shunt_hits **out)
{
	struct shunt_hits *hits = calloc(1, sizeof(*hits));
	struct shunt_cpu_index index;
	long nr_cpus = sysconf(_SC_NPROCESSORS_CONF);
	int err;

	if (!hits)
		return shunt_fail(ENOMEM, "no memory to count hits");
	shunt_cpu_index(&index);
	/* arm64 takes the offset in 16 bits; struct rseq and thread-local variables lie near. */
	if (index.source != SHUNT_CPU_GETCPU && index.tp_offset >= -65536 && index.tp_offset < 65536) {
		hits->number_offset = (int32_t)index.tp_offset;
		while (hits->row_bits < ROW_BITS_MAX && 1l << hits->row_bits < nr_cpus)
			hits->row_bits++;
	}
	err = add_area(hits, words_for(nr_programs));
	if (err)
		shunt_hits_destroy(hits);
	else
		*out = hits;
	return err;
}

void shunt_hits_destroy(struct shunt_hits *hits)
{
	while (hits->areas) {
		struct area *area = hits->areas;

		hits->areas = area->next;
		free(area->rows);
		free(area);
	}
	free(hits->bases);
	free(hits);
}

static void release(struct shunt_grace_item *item)
{
	shunt_hits_destroy((struct shunt_hits *)item);
}

void shunt_hits_retire(struct shunt_hits *hits)
{
	hits->grace.release = release;
	shunt_grace_defer(&hits->grace);
}

static uint64_t sum_of(const struct shunt_hits *hits, uint32_t word)
{
	uint64_t sum = 0;

	for (const struct area *area = hits->areas; area && word < area->nr_words; area = area->next)
		for (size_t row = 0; row < (size_t)1 << hits->row_bits; row++)
			sum += __atomic_load_n(&area->rows[row * area->nr_words + word], __ATOMIC_RELAXED);
	return sum;
}

static void mark_words(bool *used, const struct shunt_dispatcher_entry *list, uint32_t nr)
{
	for (uint32_t i = 0; i < nr; i++)
		if (list[i].word != SHUNT_NO_WORD)
			used[list[i].word] = true;
}

int shunt_hits_assign(struct shunt_hits *hits, const struct shunt_dispatcher_entry *old, uint32_t nr_old, struct shunt_dispatcher_entry *list,
		      uint32_t nr)
{
	uint32_t word = 0;
	bool *used;
	int err = 0;

	/* All of both may be in use, where nothing is shared. */
	if (hits->areas->nr_words < nr + nr_old)
		err = add_area(hits, words_for(nr + nr_old));
	if (err)
		return err;
	if (hits->areas->nr_words < nr + nr_old)
		return shunt_fail(ENOMEM, "hits of %u programs are too many to count", nr);
	used = calloc(hits->areas->nr_words, sizeof(*used));
	if (!used)
		return shunt_fail(ENOMEM, "no memory to count hits of %u programs", nr);
	mark_words(used, old, nr_old);
	mark_words(used, list, nr);
	for (uint32_t i = 0; i < nr; i++) {
		if (list[i].word != SHUNT_NO_WORD)
			continue;
		while (used[word])
			word++;
		used[word] = true;
		list[i].word = word;
		hits->bases[word] = sum_of(hits, word);
	}
	free(used);
	return 0;
}

struct shunt_plan_counts shunt_hits_counts(const struct shunt_hits *hits, const uint32_t *words)
{
	uint32_t nr_words = hits->areas->nr_words;

	return (struct shunt_plan_counts){ .rows = (uint64_t)(uintptr_t)hits->areas->rows, .row_shift = (uint8_t)(__builtin_ctz(nr_words) + 3),
					   .row_bits = hits->row_bits, .number_offset = hits->number_offset, .words = words };
}

uint64_t shunt_hits_of(const struct shunt_hits *hits, uint32_t word)
{
	return word == SHUNT_NO_WORD ? 0 : sum_of(hits, word) - hits->bases[word];
}
