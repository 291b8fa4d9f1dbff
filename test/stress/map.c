/* SPDX-License-Identifier: MIT */
/*
 * Maps under concurrent use: what must hold whatever the order. Values carry a check word, so that a mix of two values, or a value of
 * another key, shows. SHUNT_STRESS_SECONDS (10) is divided among the tests. Without Criterion, whose runner does not start under
 * ThreadSanitizer.
 */
#include <shunt/log.h>
#include <shunt/map.h>
#include <shunt/percpu.h>
#include <shunt/reader.h>

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NR_THREADS 4
#define SECTION 64 /* operations a read section */

/* Ends the program: what follows would fail for the same reason. */
#define MUST(condition)                                                                                                                    \
	do {                                                                                                                               \
		if (!(condition)) {                                                                                                        \
			fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #condition, shunt_error());                        \
			exit(1);                                                                                                           \
		}                                                                                                                          \
	} while (0)

struct value {
	uint64_t key, number, check;
};

static struct shunt_map *map;
static uint32_t nr_keys;
static int stop;
static uint64_t nr_errors, nr_inserted, nr_deleted;

static void error(void)
{
	__atomic_add_fetch(&nr_errors, 1, __ATOMIC_RELAXED);
}

static struct value make_value(uint64_t key, uint64_t number)
{
	return (struct value){key, number, key ^ number ^ 0x5bd1e995};
}

static bool is_whole(const struct value *value, uint64_t key)
{
	return value->key == key && value->check == (key ^ value->number ^ 0x5bd1e995);
}

static double seconds_per_test;

static struct shunt_map *make_map(uint32_t type, uint32_t key_size, uint32_t value_size, uint32_t max_entries)
{
	struct shunt_map_attr attr = {
		.type = type,
		.key_size = key_size,
		.value_size = value_size,
		.max_entries = max_entries,
		.flags = type == SHUNT_MAP_LPM_TRIE ? SHUNT_MAP_NO_PREALLOC : 0,
		.name = "stressed",
	};
	struct shunt_map *made = NULL;

	MUST(shunt_map_create(&attr, &made) == 0);
	return made;
}

static void end_map(struct shunt_map *used)
{
	shunt_map_put(used);
	MUST(shunt_quiesce() == 0);
}

static void run_threads(void *(*body)(void *))
{
	pthread_t threads[NR_THREADS];
	double whole = (double)(time_t)seconds_per_test;
	struct timespec nap = {.tv_sec = (time_t)whole, .tv_nsec = (long)((seconds_per_test - whole) * 1e9)};

	for (uintptr_t i = 0; i < NR_THREADS; i++)
		MUST(pthread_create(&threads[i], NULL, body, (void *)i) == 0);
	nanosleep(&nap, NULL);
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < NR_THREADS; i++)
		pthread_join(threads[i], NULL);
	MUST(nr_errors == 0);
}

static bool stopped(void)
{
	return __atomic_load_n(&stop, __ATOMIC_RELAXED);
}

/* Reads, replaces, deletes random keys; a found value is looked at again at the end of the section. */
static void *mixed(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)arg + 1;
	uint64_t inserted = 0, deleted = 0;

	while (!stopped()) {
		const struct value *seen[SECTION];
		struct value copies[SECTION];
		int nr_seen = 0;

		shunt_read_begin();
		for (int i = 0; i < SECTION; i++) {
			uint64_t key = (uint64_t)rand_r(&seed) % nr_keys;
			struct value value = make_value(key, (uint64_t)rand_r(&seed));
			const struct value *found;
			int err;

			switch (rand_r(&seed) % 4) {
			case 0:
				err = shunt_map_update(map, &key, &value, SHUNT_NOEXIST);
				inserted += !err;
				if (err && err != -EEXIST && err != -E2BIG)
					error();
				break;
			case 1:
				err = shunt_map_update(map, &key, &value, SHUNT_EXIST);
				if (err && err != -ENOENT)
					error();
				break;
			case 2:
				err = shunt_map_delete(map, &key);
				deleted += !err;
				if (err && err != -ENOENT)
					error();
				break;
			default:
				found = shunt_map_lookup(map, &key);
				if (!found)
					break;
				if (!is_whole(found, key))
					error();
				seen[nr_seen] = found;
				copies[nr_seen++] = *found;
				break;
			}
			if (shunt_map_count(map) > shunt_map_abi(map)->max_entries)
				error();
		}
		for (int i = 0; i < nr_seen; i++) {
			if (memcmp(seen[i], &copies[i], sizeof(copies[i])))
				error();
		}
		shunt_read_end();
	}
	__atomic_add_fetch(&nr_inserted, inserted, __ATOMIC_RELAXED);
	__atomic_add_fetch(&nr_deleted, deleted, __ATOMIC_RELAXED);
	return NULL;
}

static uint32_t count_by_listing(void)
{
	uint64_t key;
	uint32_t nr = 0;

	for (int err = shunt_map_next_key(map, NULL, &key); !err; err = shunt_map_next_key(map, &key, &key)) {
		struct value value;

		MUST(shunt_map_host_lookup(map, &key, &value) == 0);
		MUST(is_whole(&value, key));
		nr++;
	}
	return nr;
}

static void values_are_whole_and_counts_exact_in_a_hash_that_is_always_nearly_full(void)
{
	nr_keys = 300;
	map = make_map(SHUNT_MAP_HASH, 8, sizeof(struct value), 150);
	run_threads(mixed);
	MUST(shunt_map_count(map) == nr_inserted - nr_deleted);
	MUST(count_by_listing() == nr_inserted - nr_deleted);
	end_map(map);
}

static void values_are_whole_when_all_threads_want_the_same_keys(void)
{
	nr_keys = 3;
	map = make_map(SHUNT_MAP_HASH, 8, sizeof(struct value), 2);
	run_threads(mixed);
	MUST(shunt_map_count(map) == nr_inserted - nr_deleted);
	MUST(count_by_listing() == nr_inserted - nr_deleted);
	end_map(map);
}

static void an_lru_hash_never_refuses_and_never_holds_too_much(void)
{
	nr_keys = 1000;
	map = make_map(SHUNT_MAP_LRU_HASH, 8, sizeof(struct value), 100);
	run_threads(mixed);
	MUST(count_by_listing() == shunt_map_count(map));
	end_map(map);
}

static uint64_t nr_adds;

/* All keys exist for ever: every increment must be found in the end. */
static void *count_up(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)arg + 1;
	uint64_t adds = 0;

	while (!stopped()) {
		shunt_read_begin();
		for (int i = 0; i < SECTION; i++) {
			uint64_t key = (uint64_t)rand_r(&seed) % nr_keys;
			void *object = shunt_map_find_percpu(map, &key);

			if (!object) {
				error();
				continue;
			}
			shunt_percpu_add64(object, 1);
			adds++;
		}
		shunt_read_end();
	}
	__atomic_add_fetch(&nr_adds, adds, __ATOMIC_RELAXED);
	return NULL;
}

static void a_percpu_hash_counts_exactly(void)
{
	uint64_t sum = 0, *zeroes = calloc(shunt_nr_cpus(), 8);

	nr_keys = 50;
	map = make_map(SHUNT_MAP_PERCPU_HASH, 8, 8, 50);
	for (uint64_t key = 0; key < nr_keys; key++)
		MUST(shunt_map_host_update(map, &key, zeroes, SHUNT_NOEXIST) == 0);
	run_threads(count_up);
	for (uint64_t key = 0; key < nr_keys; key++)
		sum += shunt_percpu_sum64(shunt_map_find_percpu(map, &key));
	MUST(sum == nr_adds);
	free(zeroes);
	end_map(map);
}

/* Slots of the per-CPU area change hands: a value in a slot given to two keys at once, or kept from the key before, shows. */
static void *churn_percpu(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)arg + 1;

	while (!stopped()) {
		shunt_read_begin();
		for (int i = 0; i < SECTION; i++) {
			uint64_t key = 1 + (uint64_t)rand_r(&seed) % nr_keys, other;
			int err;

			switch (rand_r(&seed) % 3) {
			case 0:
				err = shunt_map_update(map, &key, &key, SHUNT_ANY);
				if (err && err != -E2BIG)
					error();
				break;
			case 1:
				shunt_map_delete(map, &key);
				break;
			default:
				for (uint32_t cpu = 0; cpu < shunt_nr_cpus(); cpu++) {
					uint64_t *found = shunt_map_lookup_of(map, &key, cpu);

					other = found ? __atomic_load_n(found, __ATOMIC_RELAXED) : 0;
					if (other && other != key)
						error();
				}
				break;
			}
		}
		shunt_read_end();
	}
	return NULL;
}

static void percpu_slots_never_belong_to_two_keys(void)
{
	nr_keys = 100;
	map = make_map(SHUNT_MAP_LRU_PERCPU_HASH, 8, 8, 60);
	run_threads(churn_percpu);
	MUST(shunt_map_count(map) <= 60);
	end_map(map);
}

/* Thread 0 keeps 10.0.0.0/8 and changes what lies below; the others must always find an answer that covers the address. */
static void *trie_user(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)arg + 1;
	struct {
		uint32_t len;
		unsigned char data[4];
	} key = {32, {10, 0, 0, 0}};

	while (!stopped()) {
		shunt_read_begin();
		for (int i = 0; i < SECTION; i++) {
			struct value *found;

			key.data[1] = (unsigned char)(rand_r(&seed) % 4);
			key.data[2] = (unsigned char)(rand_r(&seed) % 4 * 64);
			key.len = 32;
			if (!arg) {
				struct value value;

				key.len = 9 + (uint32_t)rand_r(&seed) % 16;
				value = make_value(key.len, (uint64_t)rand_r(&seed));
				if (rand_r(&seed) % 2)
					shunt_map_update(map, &key, &value, SHUNT_ANY);
				else
					shunt_map_delete(map, &key);
				continue;
			}
			found = shunt_map_lookup(map, &key);
			if (!found || found->key < 8 || !is_whole(found, found->key))
				error();
		}
		shunt_read_end();
	}
	return NULL;
}

static void a_trie_always_answers_while_it_is_rebuilt(void)
{
	struct {
		uint32_t len;
		unsigned char data[4];
	} key = {8, {10, 0, 0, 0}};
	struct value value = make_value(8, 1);

	map = make_map(SHUNT_MAP_LPM_TRIE, 8, sizeof(struct value), 100);
	MUST(shunt_map_update(map, &key, &value, SHUNT_ANY) == 0);
	run_threads(trie_user);
	end_map(map);
}

int main(void)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} tests[] = {
		{"values_are_whole_and_counts_exact_in_a_hash_that_is_always_nearly_full", values_are_whole_and_counts_exact_in_a_hash_that_is_always_nearly_full},
		{"values_are_whole_when_all_threads_want_the_same_keys", values_are_whole_when_all_threads_want_the_same_keys},
		{"an_lru_hash_never_refuses_and_never_holds_too_much", an_lru_hash_never_refuses_and_never_holds_too_much},
		{"a_percpu_hash_counts_exactly", a_percpu_hash_counts_exactly},
		{"percpu_slots_never_belong_to_two_keys", percpu_slots_never_belong_to_two_keys},
		{"a_trie_always_answers_while_it_is_rebuilt", a_trie_always_answers_while_it_is_rebuilt},
	};
	const size_t nr_tests = sizeof(tests) / sizeof(tests[0]);
	const char *text = getenv("SHUNT_STRESS_SECONDS");
	double seconds = text ? atof(text) : 10;

	seconds_per_test = (seconds > 0 ? seconds : 10) / (double)nr_tests;
	for (size_t i = 0; i < nr_tests; i++) {
		stop = 0;
		nr_errors = nr_inserted = nr_deleted = nr_adds = 0;
		tests[i].run();
		printf("ok: %s\n", tests[i].name);
	}
	return 0;
}
