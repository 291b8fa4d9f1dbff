/* SPDX-License-Identifier: MIT */
/* Parameters of a pass in a pipeline's text, as LLVM writes them: shunt-percpu<spectre-v1;cpu=tp:-160>. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "passes/map_text.h"
#include "passes/parameters.h"

static bool is_number(const char *text, long long least, long long most, long long *out)
{
	char *end;

	errno = 0;
	*out = strtoll(text, &end, 0);
	return *text && *text != ' ' && !*end && !errno && *out >= least && *out <= most;
}

static bool set_spectre(struct shunt_pass_options *options, const char *value)
{
	options->spectre_v1 = true;
	return !value;
}

static bool set_cpu(struct shunt_pass_options *options, const char *value)
{
	long long offset;

	if (value && !strcmp(value, "rseq")) {
		options->cpu = SHUNT_PASS_CPU_RSEQ_AOT;
	} else if (value && !strcmp(value, "call")) {
		options->cpu = SHUNT_PASS_CPU_CALL;
	} else if (value && !strncmp(value, "rseq:", 5) && is_number(value + 5, INT64_MIN, INT64_MAX, &offset)) {
		options->cpu = SHUNT_PASS_CPU_RSEQ;
		options->cpu_offset = offset;
	} else if (value && !strncmp(value, "tp:", 3) && is_number(value + 3, INT64_MIN, INT64_MAX, &offset)) {
		options->cpu = SHUNT_PASS_CPU_TP;
		options->cpu_offset = offset;
	} else {
		return false;
	}
	return true;
}

static bool set_nr_cpus(struct shunt_pass_options *options, const char *value)
{
	long long number;

	if (!value || !is_number(value, 1, 1 << 20, &number))
		return false;
	options->nr_cpus = (uint32_t)number;
	return true;
}

static bool set_hash_calls(struct shunt_pass_options *options, const char *value)
{
	options->hash_calls = !value;
	return !value;
}

static bool set_rmw(struct shunt_pass_options *options, const char *value)
{
	static const struct {
		const char *name;
		enum shunt_pass_rmw rmw;
	} policies[] = {
		{ "plain", SHUNT_PASS_RMW_PLAIN },
		{ "exact", SHUNT_PASS_RMW_EXACT },
		{ "exact-shared", SHUNT_PASS_RMW_EXACT_SHARED },
	};

	for (size_t i = 0; value && i < sizeof(policies) / sizeof(policies[0]); i++) {
		if (!strcmp(policies[i].name, value)) {
			options->rmw = policies[i].rmw;
			return true;
		}
	}
	return false;
}

/* The plugin has no other way to know maps. */
static bool set_maps(struct shunt_pass_options *options, const char *value)
{
	struct shunt_map_list list = { 0 };
	char why[256];

	if (!value || shunt_map_list_add_file(&list, value, why, sizeof(why))) {
		shunt_map_list_fini(&list);
		return false;
	}
	options->maps = list.maps;
	options->nr_maps = list.nr;
	return true;
}

static const struct parameter {
	const char *pass, *key;
	bool (*set)(struct shunt_pass_options *options, const char *value); /* value NULL: there is no '=' */
	const char *usage;
} parameters[] = {
	{ "shunt-bpf-helpers", "maps", set_maps, "maps=FILE, with a description of a map on each line" },
	{ "shunt-percpu", "maps", set_maps, "maps=FILE, with a description of a map on each line" },
	{ "shunt-percpu", "spectre-v1", set_spectre, "spectre-v1" },
	{ "shunt-percpu", "cpu", set_cpu, "cpu=rseq, cpu=rseq:OFFSET, cpu=call or cpu=tp:OFFSET" },
	{ "shunt-percpu", "nr-cpus", set_nr_cpus, "nr-cpus=N" },
	{ "shunt-percpu", "hash-calls", set_hash_calls, "hash-calls" },
	{ "shunt-percpu", "rmw", set_rmw, "rmw=plain, rmw=exact or rmw=exact-shared" },
};
enum { NR_PARAMETERS = sizeof(parameters) / sizeof(parameters[0]) };

static int set_one(const char *pass, char *text, struct shunt_pass_options *options, char *why, size_t room)
{
	char *value = strchr(text, '=');
	const char *usage = NULL;

	if (value)
		*value++ = '\0';
	for (size_t i = 0; i < NR_PARAMETERS; i++) {
		/* The whole pipeline's name takes every pass's parameters. */
		if (strcmp(parameters[i].key, text) || (strcmp(parameters[i].pass, pass) && strcmp(pass, "shunt")))
			continue;
		if (parameters[i].set(options, value))
			return 0;
		usage = parameters[i].usage;
	}
	if (usage)
		snprintf(why, room, "pass '%s': bad value of parameter '%s': write %s", pass, text, usage);
	else
		snprintf(why, room, "pass '%s' has no parameter '%s'; shunt-percpu has maps=, spectre-v1, cpu=, nr-cpus=, hash-calls and rmw=", pass, text);
	return -EINVAL;
}

int shunt_pass_set_parameters(const char *pass, const char *text, size_t len, struct shunt_pass_options *options, char *why, size_t room)
{
	char *copy = strndup(text, len), *next;
	int ret = 0;

	if (!copy) {
		snprintf(why, room, "out of memory");
		return -ENOMEM;
	}
	for (char *at = copy; at && !ret; at = next) {
		next = strchr(at, ';');
		if (next)
			*next++ = '\0';
		ret = set_one(pass, at, options, why, room);
	}
	free(copy);
	return ret;
}
