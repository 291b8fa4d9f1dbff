/* SPDX-License-Identifier: MIT */
/*
 * Marks for C and C++ hosts, read by Shunt's passes in clang (-fpass-plugin=shunt-passes.so, at every -O). Another compiler, or clang
 * without the plugin, ignores them: a marked call is then the indirect call that is written there.
 *
 *	struct hook {
 *		int (*run)(void *ctx) SHUNT_DISPATCHED("xdp");		// calls of hook->run(ctx) go through dispatcher xdp's stub
 *		int (*filters[4])(void *ctx) SHUNT_DISPATCHED("xdp");	// of hook->filters[i](ctx), too
 *	};
 *	int (*current)(void *ctx) SHUNT_DISPATCHED("xdp");		// a variable that is defined (not only declared) in this file
 *	static int call(int (*run)(void *ctx) SHUNT_DISPATCHED("xdp"), void *ctx);	// a parameter, where the function is defined
 *
 *	return SHUNT_CALLEE("xdp", current)(ctx);			// one call, whatever the pointer comes from
 *
 * clang keeps nothing of a mark on a variable that is only declared (extern), so calls through it stay indirect without a remark: mark a
 * field of a struct instead, which is seen at each access to an extern one, too, or the call with SHUNT_CALLEE.
 *
 * The mark follows the pointer within a function: through locals, casts, ?:, loops and atomic loads. Into another function it
 * goes where that is inlined, or where its parameter is marked too. A mark on a typedef says nothing. A call that two different
 * names reach stays indirect, with a remark (-Rpass-missed=shunt). The dispatcher is defined in the same executable or library, by
 * SHUNT_DISPATCHER_DEFINE(xdp, ...).
 */
#ifndef SHUNT_MARK_H
#define SHUNT_MARK_H

#define SHUNT_DISPATCHED_MARK "shunt.dispatch:"
#define SHUNT_TARGETS_MARK "shunt.targets"

#if defined(__clang__)
/* Calls through it are calls of the dispatcher called name (a string), whatever programs are attached there. */
#define SHUNT_DISPATCHED(name) __attribute__((annotate(SHUNT_DISPATCHED_MARK name)))
/* Calls through it mostly call one of these functions: they become compares and direct calls that can be inlined, and an indirect
 * call for any other. The most frequent first, unless a profile says otherwise. */
#define SHUNT_TARGETS(...) __attribute__((annotate(SHUNT_TARGETS_MARK, __VA_ARGS__)))
/* The value of pointer, marked; a local of that type takes the mark. */
#define SHUNT_CALLEE(name, pointer) \
	__extension__({ \
		__typeof__(pointer) shunt_callee SHUNT_DISPATCHED(name) = (pointer); \
		shunt_callee; \
	})
#else
#define SHUNT_DISPATCHED(name)
#define SHUNT_TARGETS(...)
#define SHUNT_CALLEE(name, pointer) (pointer)
#endif

#endif
