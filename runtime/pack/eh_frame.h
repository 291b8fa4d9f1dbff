/* SPDX-License-Identifier: MIT */
/* Unwind tables as bytes: checking those of others, making those of code that has none. LSB core specification, 10.6; DWARF 4, 6.4. */
#ifndef RUNTIME_EH_FRAME_H
#define RUNTIME_EH_FRAME_H

#include <stddef.h>
#include <stdint.h>

/*
 * Walks len bytes of an .eh_frame section that lies where it will be read. NULL when it has entries, all for code from code up to
 * code + code_len, and a zero word ends it; else what is wrong with it, the end of a sentence "unwind table ...".
 */
const char *shunt_eh_frame_check(const void *section, size_t len, uintptr_t code, size_t code_len);

/*
 * A section for one function of this machine, in memory from malloc; NULL when there is none. cfi are its DW_CFA instructions (code
 * alignment 1, data alignment -8), beginning from the state at a call; NULL: its code keeps a frame pointer.
 */
void *shunt_eh_frame_make(uintptr_t code, size_t code_len, const void *cfi, size_t cfi_len, size_t *len);

#endif
