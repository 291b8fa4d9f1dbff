/* SPDX-License-Identifier: MIT */
/*
 * A host in C++ with a dispatcher and hooks in its own text: what dispatch_image.c and hook_image.c find out of C hosts, in short. Exits 0, or 1
 * after saying what went wrong.
 */
#include <cstdint>
#include <cstdio>

#include <shunt/hook.h>
#include <shunt/log.h>

#include "test/lacks.h"

struct packet {
	uint64_t len;
};

enum class verdict : unsigned { pass = 2, drop = 1 };

SHUNT_DISPATCHER_DEFINE(cpp_dispatcher, verdict, (const packet &p, uint64_t mark));
SHUNT_HOOK_DEFINE(cpp_hook, int, (packet p, double factor));
SHUNT_MULTI_HOOK_DEFINE(cpp_many, uint32_t, (packet *p));
SHUNT_HOOK_DEFINE(cpp_nothing, void, (void));

static int nr_wrong;

static void check(bool is_right, const char *what)
{
	if (is_right)
		return;
	std::fprintf(stderr, "%s (last error: %s)\n", what, shunt_error());
	nr_wrong++;
}

extern "C" {
static verdict by_length(const packet &p, uint64_t mark)
{
	return p.len > mark ? verdict::drop : verdict::pass;
}

static verdict always_drop(const packet &, uint64_t)
{
	return verdict::drop;
}

static int scale(packet p, double factor)
{
	return static_cast<int>(static_cast<double>(p.len) * factor);
}

static uint32_t grow(packet *p)
{
	return static_cast<uint32_t>(++p->len);
}

static uint32_t grow_more(packet *p)
{
	return static_cast<uint32_t>(p->len += 10);
}
}

template <typename Function> static const void *address(Function *function)
{
	return reinterpret_cast<const void *>(function);
}

static void check_dispatcher()
{
	packet p = { 100 };

	check(shunt_dispatcher_find("cpp_dispatcher") == shunt_dispatcher_cpp_dispatcher(), "find");
	check(cpp_dispatcher(p, 50, address(by_length)) == verdict::drop, "as linked, by a pointer");
	check(shunt_dispatcher_attach(shunt_dispatcher_cpp_dispatcher(), address(by_length)) == 0, "attach");
	check(cpp_dispatcher(p, 50, address(by_length)) == verdict::drop, "attached, drop");
	check(cpp_dispatcher(p, 100, address(by_length)) == verdict::pass, "attached, pass");
	check(cpp_dispatcher(p, 100, address(always_drop)) == verdict::drop, "not attached");
	check(shunt_dispatcher_detach(shunt_dispatcher_cpp_dispatcher(), address(by_length)) == 0, "detach");
}

static void check_hooks()
{
	shunt_hook_attach_options first = { -1, SHUNT_CONTINUE_ALWAYS };
	packet p = { 6 };

	check(cpp_hook(p, 1.5) == 0, "an empty hook");
	cpp_nothing();
	check(shunt_hook_attach(shunt_hook_cpp_hook(), address(scale), nullptr) == 0, "attach to a hook");
	check(cpp_hook(p, 1.5) == 9, "a hook with a struct and a double");
	check(shunt_hook_detach(shunt_hook_cpp_hook(), address(scale), nullptr) == 0, "detach from a hook");
	check(shunt_hook_set_verdict(shunt_hook_cpp_many(), 77) == 0, "verdict");
	check(cpp_many(&p) == 77, "an empty multi-hook");
	check(shunt_hook_attach(shunt_hook_cpp_many(), address(grow), nullptr) == 0, "attach to many");
	check(shunt_hook_attach(shunt_hook_cpp_many(), address(grow_more), &first) == 0, "attach to many");
	check(cpp_many(&p) == 77 && p.len == 17, "both run");
	check(shunt_hook_detach(shunt_hook_cpp_many(), address(grow), nullptr) == 0, "detach from many");
	check(shunt_hook_detach(shunt_hook_cpp_many(), address(grow_more), nullptr) == 0, "detach from many");
}

int main()
{
	if (lacks_second_views()) {
		std::puts("skipped: " LACKS_SECOND_VIEWS);
		return 77;
	}
	shunt_read_begin();
	check_dispatcher();
	check_hooks();
	shunt_read_end();
	check(shunt_quiesce() == 0, "quiesce");
	return nr_wrong != 0;
}
