/* SPDX-License-Identifier: MIT */
/* Names of blocks, for perf and GDB. */
#ifndef RUNTIME_PACK_NAMES_H
#define RUNTIME_PACK_NAMES_H

#include <stdint.h>

/* The block that begins at rx is being freed: its names go. Cheap while nothing has a name. With the lock of its arena. */
void shunt_names_forget(const void *rx);

#endif
