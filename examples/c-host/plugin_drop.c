/* SPDX-License-Identifier: MIT */
/* Drops events of kind 1. */
#include "engine.h"

plugin_fn plugin_event;

int plugin_event(struct event *event)
{
	return event->kind == 1;
}
