/* SPDX-License-Identifier: MIT */
/*
 * A host image with dispatchers in its own text. Built as PIE, at a fixed address, with clang, with other linkers, and (with
 * DISPATCH_LIBRARY) as a shared library that dispatch_loader.c opens: every call must land in the program that its pointer
 * names, before, while and after the image's stub pages are replaced. Exits 0, or 1 after saying what went wrong.
 */
#include <errno.h>
#include <pthread.h>
#include <shunt/hook.h>
#include <shunt/log.h>
#include <shunt/reader.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "test/exec/dispatch_image.h"
#include "test/exec/dispatch_programs.h"
#include "test/slowness.h"

#define NR_PROGRAMS 300u

SHUNT_DISPATCHER_DEFINE(image_hook, uint64_t, (uint64_t arg));
SHUNT_DISPATCHER_DEFINE(image_second, uint64_t, (uint64_t arg));
SHUNT_HOOK_DEFINE(image_static, uint64_t, (uint64_t arg));

static struct shunt_block programs[NR_PROGRAMS];

static int fail(const char *what, uint64_t got, uint64_t want)
{
	fprintf(stderr, "%s: got %llu, want %llu (last error: %s)\n", what, (unsigned long long)got, (unsigned long long)want,
		shunt_error());
	return 1;
}

#define CHECK_EQ(got, want, what)                                               \
	do {                                                                    \
		uint64_t got_ = (uint64_t)(got), want_ = (uint64_t)(want);      \
		if (got_ != want_)                                              \
			return fail(what, got_, want_);                         \
	} while (0)

static int check_calls(const char *what)
{
	const void *stub = shunt_dispatcher_stub(shunt_dispatcher_image_hook());

	shunt_read_begin();
	for (uint32_t i = 0; i < NR_PROGRAMS; i++) {
		CHECK_EQ(image_hook(1000, programs[i].rx), 1000 + i, what);
		CHECK_EQ(image_hook_elsewhere(5000, programs[i].rx), 5000 + i, what);
		CHECK_EQ(call_stub(stub, 3000, programs[i].rx), 3000 + i, what);
	}
	shunt_read_end();
	return 0;
}

/* Runs through the page while it is replaced and patched. */
static void *caller(void *stop)
{
	uint64_t bad = 0;

	while (!__atomic_load_n((int *)stop, __ATOMIC_RELAXED)) {
		shunt_read_begin();
		for (uint32_t i = 0; i < NR_PROGRAMS; i += 7)
			bad += image_hook(i, programs[i].rx) != 2 * i;
		for (uint32_t i = 1; i < NR_PROGRAMS; i += 7) {
			uint64_t result = image_static(i);

			bad += result != 0 && result != i + 1 && result != i + 2;
		}
		shunt_read_end();
	}
	return (void *)(uintptr_t)bad;
}

static int check_attaching(struct shunt_dispatcher *d)
{
	struct shunt_dispatcher_stats stats;

	for (uint32_t i = 0; i < NR_PROGRAMS; i++) {
		/* 7 and 300 share no factor: the order jumps through the addresses. */
		CHECK_EQ(shunt_dispatcher_attach(d, programs[i * 7 % NR_PROGRAMS].rx), 0, "attach");
		if (i < 20 || i % 37 == 0)
			CHECK_EQ(check_calls("calls while attaching"), 0, "calls");
	}
	shunt_dispatcher_get_stats(d, &stats);
	CHECK_EQ(stats.nr_programs, NR_PROGRAMS, "programs");
	CHECK_EQ(check_calls("calls of all attached programs"), 0, "calls");
	for (uint32_t i = 0; i < NR_PROGRAMS; i++) {
		CHECK_EQ(shunt_dispatcher_detach(d, programs[i].rx), 0, "detach");
		if (i % 29 == 0)
			CHECK_EQ(check_calls("calls while detaching"), 0, "calls");
	}
	return check_calls("calls after detaching");
}

/* The static hook's page is replaced and patched while the threads call it, too. hook_image.c knows more of hooks. */
static int check_static_hook(void)
{
	struct shunt_hook *hook = shunt_hook_image_static();

	CHECK_EQ((uintptr_t)shunt_hook_find("image_static"), (uintptr_t)hook, "find the hook");
	CHECK_EQ(image_static(5), 0, "the hook as linked");
	for (int i = 0; i < 500 / test_slowness(); i++) {
		CHECK_EQ(shunt_hook_attach(hook, programs[1].rx, NULL), 0, "attach to the hook");
		CHECK_EQ(image_static(5), 6, "the hook");
		CHECK_EQ(shunt_hook_replace(hook, programs[1].rx, programs[2].rx, NULL), 0, "replace");
		CHECK_EQ(image_static(5), 7, "the hook, replaced");
		CHECK_EQ(shunt_hook_detach(hook, programs[2].rx, NULL), 0, "detach from the hook");
		CHECK_EQ(image_static(5), 0, "the empty hook");
	}
	return 0;
}

/* How the page is mapped now: host text is never writable. */
static int check_mapping(uint64_t page)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512], access[8] = "";
	unsigned long long first, last;

	if (!maps)
		return fail("/proc/self/maps", (uint64_t)errno, 0);
	while (fgets(line, sizeof(line), maps))
		if (sscanf(line, "%llx-%llx %7s", &first, &last, access) == 3 && page >= first && page < last)
			break;
	fclose(maps);
	CHECK_EQ(access[0] == 'r' && access[1] == '-' && access[2] == 'x', 1, "access of the stub page");
	return 0;
}

int dispatch_image_run(void)
{
	struct shunt_dispatcher *d = shunt_dispatcher_image_hook();
	uint64_t page = (uint64_t)(uintptr_t)shunt_dispatcher_stub(d);
	struct shunt_arena *arena;
	pthread_t threads[2];
	int stop = 0;

	if (!d)
		return fail("shunt_dispatcher_image_hook()", 0, 1);
	CHECK_EQ((uintptr_t)shunt_dispatcher_find("image_hook"), (uintptr_t)d, "find");
	CHECK_EQ(page % 4096, 0, "page alignment of the stub");
	CHECK_EQ(shunt_dispatcher_destroy(d), -EPERM, "destroy");

	/* A program that lies in reach of the image whatever the default arena is; asking for the arena of the second
	 * dispatcher leaves the first one's page as linked. */
	arena = shunt_dispatcher_arena(shunt_dispatcher_image_second());
	if (!arena)
		return fail("shunt_dispatcher_arena()", 0, 1);
	for (uint32_t i = 0; i < NR_PROGRAMS; i++)
		CHECK_EQ(make_program(arena, i, &programs[i]), 0, "program");
	CHECK_EQ(check_calls("calls of the page as linked"), 0, "calls");

	for (int i = 0; i < 2; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, caller, &stop), 0, "thread");
	usleep(1000);
	CHECK_EQ(check_static_hook(), 0, "static hook");
	CHECK_EQ(check_attaching(d), 0, "attaching");
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < 2; i++) {
		void *bad;

		pthread_join(threads[i], &bad);
		CHECK_EQ((uintptr_t)bad, 0, "calls that landed wrong");
	}
	CHECK_EQ((uintptr_t)shunt_dispatcher_stub(d), page, "stub after attaching");
	CHECK_EQ(check_mapping(page), 0, "mapping");

	/* The second page is its own: attaching to one does not touch the other. */
	CHECK_EQ(shunt_dispatcher_attach(shunt_dispatcher_image_second(), programs[5].rx), 0, "attach to the second");
	CHECK_EQ(image_second(1, programs[5].rx), 6, "second");
	CHECK_EQ(image_second(1, programs[6].rx), 7, "second, not attached");
	CHECK_EQ(image_hook(1, programs[5].rx), 6, "first");
	CHECK_EQ(shunt_dispatcher_detach(shunt_dispatcher_image_second(), programs[5].rx), 0, "detach from the second");

	for (uint32_t i = 0; i < NR_PROGRAMS; i++)
		CHECK_EQ(shunt_pack_free(&programs[i]), 0, "free");
	CHECK_EQ(shunt_quiesce(), 0, "quiesce");
	return 0;
}

#ifndef DISPATCH_LIBRARY
static int check_after_dismissal(void)
{
	struct shunt_dispatcher *d;
	struct shunt_block block;

	CHECK_EQ((uintptr_t)shunt_dispatcher_find("image_hook"), 0, "dispatcher after its destructor");
	CHECK_EQ(shunt_quiesce(), 0, "quiesce");
	CHECK_EQ(make_program(NULL, 7, &block), 0, "program");
	CHECK_EQ(image_hook(1, block.rx), 8, "call after the destructor");
	d = shunt_dispatcher_image_hook();
	CHECK_EQ(make_program(shunt_dispatcher_arena(d), 9, &block), 0, "program");
	CHECK_EQ(shunt_dispatcher_attach(d, block.rx), 0, "attach after the destructor");
	CHECK_EQ(image_hook(1, block.rx), 10, "call after attaching again");
	return 0;
}

/* Destructors with a priority run after those without, which the dispatchers have: other threads of an exiting process may
 * still call. */
static __attribute__((destructor(1000))) void call_after_dismissal(void)
{
	if (check_after_dismissal())
		_exit(1);
}

int main(void)
{
	return dispatch_image_run();
}
#endif
