/* SPDX-License-Identifier: MIT */
/* What a debugger is told about a block: an ELF object whose only bytes are names and unwind information; its code lies in memory already. */
#ifndef RUNTIME_NAMES_ELF_H
#define RUNTIME_NAMES_ELF_H

#include <stddef.h>
#include <stdint.h>
#include <shunt/pack.h>

/* An object in memory from malloc, or NULL. parts lie in the block; eh_frame is a section as it lies in memory, copied, or NULL. */
void *shunt_names_elf_make(const struct shunt_block *block, const struct shunt_part *parts, size_t nr, const void *eh_frame,
			   size_t eh_frame_len, size_t *len);

#endif
