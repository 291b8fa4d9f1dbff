/* SPDX-License-Identifier: MIT */
/*
 * A host image with hooks in its own text, built in the ways that hosts are: calls must run what is attached, or return at once, before,
 * while and after the pages are replaced. Exits 0, or 1 after saying what went wrong.
 */
#include <errno.h>
#include <pthread.h>
#include <shunt/hook.h>
#include <shunt/log.h>
#include <stdio.h>
#include <unistd.h>

#include "test/exec/dispatch_programs.h"
#include "test/slowness.h"

struct pair {
	double left, right;
};

SHUNT_HOOK_DEFINE(hook_value, uint64_t, (uint64_t arg));
SHUNT_HOOK_DEFINE(hook_nothing, void, (struct pair pair, float more));
SHUNT_MULTI_HOOK_DEFINE(hook_many, uint32_t, (uint64_t arg, const char *text));
SHUNT_MULTI_HOOK_DECLARE(hook_many, uint32_t, (uint64_t arg, const char *text));

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

static double sum;

static void add_up(struct pair pair, float more)
{
	sum += pair.left + pair.right + more;
}

static uint32_t length_of(uint64_t arg, const char *text)
{
	return (uint32_t)(arg + strlen(text));
}

/* Every call runs one of the two programs or none. */
static void *caller(void *stop)
{
	uint64_t bad = 0;

	while (!__atomic_load_n((int *)stop, __ATOMIC_RELAXED)) {
		shunt_read_begin();
		for (int i = 0; i < 100; i++) {
			uint64_t result = hook_value(1000);
			uint32_t many = hook_many(1, "abc");

			bad += result != 0 && result != 1007 && result != 1009;
			bad += many != 0 && many != 4 && many != 8;
		}
		shunt_read_end();
	}
	return (void *)(uintptr_t)bad;
}

static int check_changes(void)
{
	struct shunt_hook *hook = shunt_hook_hook_value(), *many = shunt_hook_hook_many();
	/* 4 is what length_of returns to the callers: go on, and the next one of them returns 1 + 7. */
	struct shunt_hook_attach_options first = { .priority = -1, .continue_on = SHUNT_CONTINUE_ON(4) }, second = { .continue_on = 0 };
	struct shunt_block p, q;
	pthread_t threads[2];
	int stop = 0;

	CHECK_EQ(make_program(shunt_hook_arena(hook), 7, &p), 0, "program");
	CHECK_EQ(make_program(shunt_hook_arena(hook), 9, &q), 0, "program");
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, caller, &stop), 0, "thread");
	for (int i = 0; i < 2000 / test_slowness(); i++) {
		CHECK_EQ(shunt_hook_attach(hook, p.rx, NULL), 0, "attach");
		CHECK_EQ(hook_value(1), 8, "attached");
		CHECK_EQ(shunt_hook_replace(hook, p.rx, q.rx, NULL), 0, "replace");
		CHECK_EQ(hook_value(1), 10, "replaced");
		CHECK_EQ(shunt_hook_detach(hook, q.rx, NULL), 0, "detach");
		CHECK_EQ(hook_value(1), 0, "empty");
		CHECK_EQ(shunt_hook_attach(many, p.rx, &second), 0, "attach to many");
		CHECK_EQ(hook_many(1, "abc"), 8, "many, one");
		CHECK_EQ(shunt_hook_attach(many, (void *)(uintptr_t)length_of, &first), 0, "attach a function");
		CHECK_EQ(hook_many(1, "abc"), 8, "many, both");
		CHECK_EQ(hook_many(1, "a"), 2, "many, the first stops");
		CHECK_EQ(shunt_hook_detach(many, p.rx, NULL), 0, "detach from many");
		CHECK_EQ(hook_many(1, "abc"), 0, "many, the verdict");
		CHECK_EQ(shunt_hook_detach(many, (void *)(uintptr_t)length_of, NULL), 0, "detach a function");
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < 2; i++) {
		void *bad;

		pthread_join(threads[i], &bad);
		CHECK_EQ((uintptr_t)bad, 0, "calls that landed wrong");
	}
	CHECK_EQ(shunt_pack_free(&p), 0, "free");
	CHECK_EQ(shunt_pack_free(&q), 0, "free");
	return 0;
}

int main(void)
{
	struct pair pair = { 1, 2 };
	uint64_t token;

	CHECK_EQ((uintptr_t)shunt_hook_find("hook_value"), (uintptr_t)shunt_hook_hook_value(), "find");
	CHECK_EQ((uintptr_t)shunt_hook_entry(shunt_hook_hook_value()), (uintptr_t)hook_value, "the entry is the function");
	CHECK_EQ(hook_value(1), 0, "a hook as linked");
	CHECK_EQ(hook_many(1, "x"), 0, "a multi-hook as linked");
	hook_nothing(pair, 4);
	CHECK_EQ(sum != 0, 0, "an empty hook of nothing");
	CHECK_EQ(shunt_hook_attach(shunt_hook_hook_nothing(), (void *)(uintptr_t)add_up, NULL), 0, "attach a function of structs");
	hook_nothing(pair, 4);
	CHECK_EQ(sum == 7, 1, "a function of structs and floats");
	CHECK_EQ(shunt_hook_destroy(shunt_hook_hook_nothing()), -EPERM, "destroy");
	CHECK_EQ(shunt_hook_detach(shunt_hook_hook_nothing(), (void *)(uintptr_t)add_up, &token), 0, "detach");
	CHECK_EQ(shunt_token_wait(token), 0, "token");
	CHECK_EQ(check_changes(), 0, "changes");
	CHECK_EQ(shunt_quiesce(), 0, "quiesce");
	return 0;
}
