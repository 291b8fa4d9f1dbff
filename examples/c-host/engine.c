/* SPDX-License-Identifier: MIT */
/*
 * The engine of a C host with plug-ins. Two lines make its hook direct: the dispatcher's definition and SHUNT_DISPATCHED on the field
 * that the hook calls through. Compiled with clang -fpass-plugin=shunt-passes.so, `plugin->run(event)` below is a direct call of
 * the dispatcher's stub; with another compiler, or without the plugin, the indirect call that is written there.
 *
 * The engine is a shared library because plug-ins must lie in reach of direct jumps: the dynamic linker places libraries together, an
 * executable elsewhere (unless it is started through the dynamic linker). A plug-in out of reach works, too, through the fallback; attach
 * says so.
 */
#include "engine.h"

#include <dlfcn.h>
#include <stdio.h>
#include <shunt/dispatcher.h>
#include <shunt/log.h>
#include <shunt/mark.h>
#include <shunt/reader.h>

SHUNT_DISPATCHER_DEFINE(on_event, int, (struct event *event));

enum { MAX_PLUGINS = 8 };

static struct plugin {
	void *handle;
	plugin_fn *run SHUNT_DISPATCHED("on_event");
} plugins[MAX_PLUGINS];
static unsigned nr_plugins;

int engine_load(const char *path)
{
	struct plugin plugin = { 0 };

	if (nr_plugins == MAX_PLUGINS) {
		fprintf(stderr, "%s: there are %d plug-ins already\n", path, MAX_PLUGINS);
		return -1;
	}
	plugin.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (plugin.handle)
		plugin.run = (plugin_fn *)dlsym(plugin.handle, "plugin_event");
	if (!plugin.run) {
		fprintf(stderr, "%s\n", dlerror());
		if (plugin.handle)
			dlclose(plugin.handle);
		return -1;
	}
	if (shunt_dispatcher_attach(shunt_dispatcher_on_event(), (const void *)plugin.run))
		fprintf(stderr, "%s stays an indirect call: %s\n", path, shunt_error());
	plugins[nr_plugins++] = plugin;
	return 0;
}

int engine_process(struct event *event)
{
	int dropped = 0;

	shunt_read_begin();
	for (unsigned i = 0; i < nr_plugins && !dropped; i++)
		dropped = plugins[i].run(event);
	shunt_read_end();
	return dropped != 0;
}

void engine_unload_all(void)
{
	unsigned nr = nr_plugins;

	nr_plugins = 0;
	for (unsigned i = 0; i < nr; i++)
		shunt_dispatcher_detach(shunt_dispatcher_on_event(), (const void *)plugins[i].run);
	/* No thread is in a plug-in any more when this returns. */
	shunt_quiesce();
	for (unsigned i = 0; i < nr; i++)
		dlclose(plugins[i].handle);
}
