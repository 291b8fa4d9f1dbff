/* SPDX-License-Identifier: MIT */
/* Disassembly of generated code of this process, with LLVM's disassembler: the stub, the tree and the programs, as they run. */
#ifndef LIB_REPLAY_DISASSEMBLE_H
#define LIB_REPLAY_DISASSEMBLE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Names an address for the listing, or returns NULL. The string lives until the next call. */
typedef const char *shunt_replay_symbol_fn(void *user, uint64_t address);

/* Lists len bytes at code on out, one instruction a line; branch targets by name where symbol knows them.
 * -ENOTSUP: LLVM has no disassembler for this machine. */
int shunt_replay_disassemble(const void *code, size_t len, shunt_replay_symbol_fn *symbol, void *user, FILE *out);

/* The same for code of either machine (triple) that is to lie at addr. */
int shunt_replay_disassemble_for(const char *triple, const void *code, size_t len, uint64_t addr, shunt_replay_symbol_fn *symbol, void *user,
				 FILE *out);

#endif
