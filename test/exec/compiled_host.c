/* SPDX-License-Identifier: MIT */
/*
 * A host of a library that shunt compile -o FILE.so made of an xdp-filter object: makes the object's maps, opens the library, runs every frame
 * of a capture through its program and prints verdicts and maps, as JSON with those members of shunt run's. Nothing is compiled here.
 * usage: compiled_host LIBRARY.so OBJECT.o CAPTURE [MAP[KEY]=VALUE]...
 *
 * The library leaves "map.NAME" undefined, whose address is that of the map, and maps have no address before they are made. So each is an
 * indirect function here: the dynamic linker calls its resolver when it binds the library, and what that returns is the symbol's address.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <shunt/log.h>
#include <shunt/percpu.h>
#include <shunt/reader.h>
#include "lib/replay/replay.h"
#include "tools/report.h"

static struct shunt_replay *replay;

typedef void address(void);

#define MAP(name)                                                                                     \
	static address *find_##name(void)                                                             \
	{                                                                                             \
		return (address *)(uintptr_t)shunt_bpf_find_map(replay->queues[0].object, #name);     \
	}                                                                                             \
	extern address map_##name __asm__("map." #name);                                              \
	extern address map_##name __attribute__((ifunc("find_" #name), visibility("default")))

MAP(filter_ports);
MAP(filter_ipv4);
MAP(filter_ipv6);
MAP(filter_ethernet);
MAP(xdp_stats_map);

static int run(struct shunt_replay_queue *queue, uint32_t (*program)(struct shunt_xdp_ctx *))
{
	size_t nr = replay->capture->nr_frames;
	int err = shunt_replay_buffers_create(replay->capture, 1, replay->ifindex, &replay->buffers);

	for (size_t i = 0; i < nr && !err; i++) {
		shunt_read_begin();
		shunt_replay_count_verdict(queue, program(&replay->buffers->contexts[i]));
		shunt_read_end();
	}
	return err;
}

static void print_words(const uint8_t *value, size_t size)
{
	for (size_t word = 0; word < report_nr_words(size); word++)
		printf("%s%llu", word ? ", " : "[", (unsigned long long)report_word(value, size, word));
	printf("]");
}

static bool print_entry(void *user, const struct shunt_map *map, const uint8_t *key, const uint8_t *value)
{
	const struct shunt_map_abi *abi = shunt_map_abi(map);
	bool *is_first = user;

	printf("%s\n    {\"key\": \"", *is_first ? "" : ",");
	*is_first = false;
	for (uint32_t i = 0; i < abi->key_size; i++)
		printf("%02x", key[i]);
	printf("\", \"%s\": ", shunt_map_is_percpu(map) ? "cpus" : "value");
	if (!shunt_map_is_percpu(map))
		print_words(value, abi->value_size);
	for (uint32_t cpu = 0; shunt_map_is_percpu(map) && cpu < shunt_nr_cpus(); cpu++) {
		printf("%s", cpu ? ", " : "[");
		print_words(value + (size_t)cpu * abi->stride, abi->value_size);
	}
	printf("%s}", shunt_map_is_percpu(map) ? "]" : "");
	return true;
}

static void print(const struct shunt_replay_queue *queue)
{
	printf("{\"queues\": [{\"verdicts\": {");
	for (size_t i = 0; i < SHUNT_REPLAY_NR_VERDICTS; i++)
		printf("%s\"%s\": %llu", i ? ", " : "", report_verdict_names[i], (unsigned long long)queue->verdicts[i]);
	printf("}}],\n \"maps\": [");
	for (size_t i = 0; i < shunt_bpf_nr_maps(queue->object); i++) {
		struct shunt_map *map = shunt_bpf_map(queue->object, i);
		bool is_first = true;

		printf("%s\n  {\"name\": \"%s\", \"entries\": [", i ? "," : "", shunt_map_name(map));
		report_each_entry(map, false, print_entry, &is_first);
		printf("]}");
	}
	printf("]}\n");
}

static int fail(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s\n", what, why);
	return 1;
}

int main(int argc, char **argv)
{
	struct shunt_replay_options options = { .queues = (const char *const *)&argv[2], .nr_queues = 1 };
	struct shunt_replay_queue *queue;
	void *library, *program;
	int status = 0;

	if (argc < 4)
		return fail(argv[0], "a library, an object and a capture are needed");
	if (shunt_replay_create(argv[3], &options, &replay))
		return fail(argv[2], shunt_error());
	queue = &replay->queues[0];
	for (int i = 4; i < argc; i++)
		if (shunt_replay_set_map(replay, argv[i]))
			status = fail(argv[i], shunt_error());
	library = status ? NULL : dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return status ? status : fail(argv[1], dlerror());
	program = dlsym(library, shunt_bpf_program_name(shunt_bpf_next_program(queue->object, NULL)));
	if (!program || run(queue, (uint32_t (*)(struct shunt_xdp_ctx *))(uintptr_t)program))
		status = fail(argv[1], program ? shunt_error() : dlerror());
	else
		print(queue);
	dlclose(library);
	shunt_replay_destroy(replay);
	return status;
}
