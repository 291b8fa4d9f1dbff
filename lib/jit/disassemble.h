/* SPDX-License-Identifier: MIT */
/* Disassembly of generated code of this process, with LLVM's disassembler: the stub, the tree and the programs, as they run. */
#ifndef LIB_JIT_DISASSEMBLE_H
#define LIB_JIT_DISASSEMBLE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Names an address for the listing, or returns NULL. The string lives until the next call. */
typedef const char *jit_symbol_name_fn(void *user, uint64_t address);

/* Lists len bytes at code on out, one instruction a line; branch targets by name where symbol knows them.
 * -ENOTSUP: LLVM has no disassembler for this machine. */
int jit_disassemble(const void *code, size_t len, jit_symbol_name_fn *symbol, void *user, FILE *out);

/* The same for code of either machine (triple) that is to lie at addr. */
int jit_disassemble_for(const char *triple, const void *code, size_t len, uint64_t addr, jit_symbol_name_fn *symbol, void *user,
			FILE *out);

#endif
