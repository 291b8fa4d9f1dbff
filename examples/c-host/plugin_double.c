/* SPDX-License-Identifier: MIT */
/* Doubles every value. */
#include "engine.h"

plugin_fn plugin_event;

int plugin_event(struct event *event)
{
	event->value *= 2;
	return 0;
}
