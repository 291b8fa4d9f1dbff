/* SPDX-License-Identifier: MIT */
/* An engine that shows events to plug-ins, and what a plug-in is to it. */
#ifndef C_HOST_ENGINE_H
#define C_HOST_ENGINE_H

struct event {
	unsigned kind;
	unsigned long value;
};

/* A plug-in defines this as `plugin_event`: non-zero drops the event. */
typedef int plugin_fn(struct event *event);

int engine_load(const char *path); /* 0, or -1 and a sentence on standard error */
int engine_process(struct event *event); /* 1: some plug-in dropped it */
void engine_unload_all(void);

#endif
