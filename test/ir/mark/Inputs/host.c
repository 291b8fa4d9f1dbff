/* SPDX-License-Identifier: MIT */
/* One function for each way that a marked pointer can take. */
#include <shunt/mark.h>

typedef int fn(void *ctx);
int fast(void *ctx), slow(void *ctx), elsewhere(fn *run, void *ctx);
struct hook {
	fn *run SHUNT_DISPATCHED("xdp");
	fn *other SHUNT_DISPATCHED("tc");
	fn *table[4] SHUNT_DISPATCHED("xdp");
	fn *plain;
	fn *known SHUNT_TARGETS(fast, slow);
};
fn *global SHUNT_DISPATCHED("xdp");
static fn *globals[8] SHUNT_DISPATCHED("xdp");
extern fn *declared SHUNT_DISPATCHED("xdp");
extern struct hook hook;
fn *find(int i);

int by_field(struct hook *h, void *ctx) { return h->run(ctx); }
int by_table(struct hook *h, void *ctx, int i) { return h->table[i](ctx); }
int by_global(void *ctx) { return global(ctx); }
int by_globals(void *ctx, int i) { return globals[i](ctx); }
int by_parameter(fn *run SHUNT_DISPATCHED("xdp"), void *ctx) { return run(ctx); }
int by_local(struct hook *h, void *ctx)
{
	fn *run SHUNT_DISPATCHED("xdp") = h->plain;

	return run(ctx);
}
int by_copy(struct hook *h, void *ctx)
{
	fn *a = h->run, *b = a;

	return b(ctx);
}
int by_choice(struct hook *h, void *ctx, int i) { return (i ? h->run : h->plain)(ctx); }
int by_pointer(struct hook *h, void *ctx)
{
	fn **at = h->table;

	return at[1](ctx);
}
int by_loop(struct hook *h, void *ctx)
{
	int sum = 0;

	for (fn **at = h->table; *at; at++)
		sum += (*at)(ctx);
	return sum;
}
int by_atomic(struct hook *h, void *ctx) { return __atomic_load_n(&h->run, __ATOMIC_ACQUIRE)(ctx); }
int by_exchange(struct hook *h, fn *next, void *ctx) { return __atomic_exchange_n(&h->run, next, __ATOMIC_ACQ_REL)(ctx); }
int by_volatile(struct hook *h, void *ctx) { return (*(fn *volatile *)&h->run)(ctx); }
int by_array_copy(struct hook *h, void *ctx)
{
	fn *copy[4];

	__builtin_memcpy(copy, h->table, sizeof(copy));
	return copy[2](ctx);
}
int by_struct_copy(struct hook *h, void *ctx)
{
	struct hook copy = *h;

	return copy.run(ctx);
}
int by_cast(struct hook *h, void *ctx) { return ((int (*)(const char *))h->run)(ctx); }
int by_extern_field(void *ctx) { return hook.run(ctx); }
int by_call_of_extern(void *ctx) { return SHUNT_CALLEE("xdp", declared)(ctx); }
int by_call_of_result(void *ctx, int i) { return SHUNT_CALLEE("xdp", find(i))(ctx); }
int of_targets(struct hook *h, void *ctx) { return h->known(ctx); }

/* Left as they are. */
int unmarked(struct hook *h, void *ctx) { return h->plain(ctx); }
int by_extern(void *ctx) { return declared(ctx); }
int contradictory(struct hook *h, void *ctx, int i) { return (i ? h->run : h->other)(ctx); }
int given_away(struct hook *h, void *ctx) { return elsewhere(h->run, ctx); }
