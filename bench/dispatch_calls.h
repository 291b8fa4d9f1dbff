/* SPDX-License-Identifier: MIT */
/*
 * Machine code for bench_dispatch: programs, and loops that call one program after the other by a list of pointers. Generated, so that a
 * call site is exactly what a JIT or our pass emits (pointer in the nest register, direct call of the stub), for every way of calling.
 */
#ifndef BENCH_DISPATCH_CALLS_H
#define BENCH_DISPATCH_CALLS_H

#include <shunt/pack.h>

/* Calls list[0] to list[nr - 1], adds up what they return. */
typedef uint64_t calls_loop(const void *const *list, size_t nr);

enum calls_way {
	CALLS_DIRECT,    /* a direct call of `dest`, whatever the pointer says */
	CALLS_POINTER,   /* an indirect call */
	CALLS_RETPOLINE, /* x86-64: a direct call of a retpoline, what a compiler emits with -mretpoline */
	CALLS_STUB,      /* the same code as CALLS_DIRECT: dest is a dispatcher's stub or a hook's */
};

/* A program that returns id, 64-byte aligned. */
int calls_make_program(struct shunt_arena *arena, uint32_t id, struct shunt_block *out);

/* A loop; -ENOTSUP: this CPU has no such way. */
int calls_make_loop(struct shunt_arena *arena, enum calls_way way, const void *dest, struct shunt_block *out);

#endif
