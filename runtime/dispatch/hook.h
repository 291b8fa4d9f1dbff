/* SPDX-License-Identifier: MIT */
/* What dispatcher.c asks of hooks. */
#ifndef RUNTIME_HOOK_H
#define RUNTIME_HOOK_H

#include <shunt/hook.h>

#include "runtime/dispatch/dispatcher.h"

/* With the mutex of d, which is a hook's. */
uint32_t shunt_hook_nr_programs(const struct shunt_dispatcher *d);

#endif
