/* SPDX-License-Identifier: MIT */
/* Unwind tables of blocks, for the rest of packs. All of it is called with the lock of the arena that the blocks are in. */
#ifndef RUNTIME_PACK_UNWIND_H
#define RUNTIME_PACK_UNWIND_H

#include <stdbool.h>
#include <stddef.h>

/* Is there any table? */
bool shunt_unwind_is_used(void);
/* Nobody runs the block at rx any more: its table, if it has one, goes with the next shunt_unwind_settle of its pack, which begins at
 * pack_rx. */
void shunt_unwind_forget(const void *rx);
void shunt_unwind_settle(const void *pack_rx);

/* The section that was given or made for the block at rx; NULL when there is none. */
const void *shunt_unwind_section(const void *rx, size_t *len);

#endif
