/* SPDX-License-Identifier: MIT */
/* usage: c_host PLUGIN.so... : shows ten events to the plug-ins and prints which ones they let through. */
#include <stdio.h>
#include "engine.h"

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (engine_load(argv[i]))
			return 1;
	for (unsigned i = 0; i < 10; i++) {
		struct event event = { .kind = i % 3, .value = i };

		if (!engine_process(&event))
			printf("event %u: value %lu\n", i, event.value);
	}
	engine_unload_all();
	return 0;
}
