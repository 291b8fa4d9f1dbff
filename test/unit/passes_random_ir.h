/* SPDX-License-Identifier: MIT */
/*
 * Random modules with calls for the passes: marked calls of every shape (calling conventions, memory arguments, vectors, structs,
 * varargs, invokes, musttail) and per-CPU calls, between arithmetic, branches and loops. The same seed gives the same module.
 *
 *	@case_0 ... @case_N-1     i64 (i64, i64)
 *
 * What the module needs: the functions of shunt/abi.h, `void note(i64)`, which sees every program's run in order, maps @array,
 * @array_2 (of one geometry), @percpu_array, @hash, @percpu_hash, and stubs shunt_stub.d0, d1, ...
 */
#ifndef TEST_UNIT_PASSES_RANDOM_IR_H
#define TEST_UNIT_PASSES_RANDOM_IR_H

#include <stdbool.h>
#include <stdint.h>

#define RANDOM_IR_NR_DISPATCHERS 16

/* The text, to free(). */
char *random_ir(uint64_t seed, unsigned nr_cases, const char *triple);

#endif
