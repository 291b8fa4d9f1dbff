/* SPDX-License-Identifier: MIT */
/* Unmarked parameters of functions that end up in their callers. */
#include <shunt/mark.h>

struct hook {
	int (*run)(void *ctx) SHUNT_DISPATCHED("xdp");
};
static int inner(int (*run)(void *ctx), void *ctx) { return run(ctx) + 1; }
__attribute__((always_inline)) static inline int inner_always(int (*run)(void *ctx), void *ctx) { return run(ctx) + 2; }
int outer(struct hook *h, void *ctx) { return inner(h->run, ctx); }
int outer_always(struct hook *h, void *ctx) { return inner_always(h->run, ctx); }
