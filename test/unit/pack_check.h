/* SPDX-License-Identifier: MIT */
/*
 * Criterion, or what tests of concurrent code use of it where it cannot start: under the thread sanitizer its process boxes find no
 * address range. There each test is a forked process, and a failed assertion prints itself and exits.
 */
#ifndef TEST_UNIT_PACK_CHECK_H
#define TEST_UNIT_PACK_CHECK_H

#if !defined(__SANITIZE_THREAD__)
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif
#endif

#if !defined(__SANITIZE_ADDRESS__) && defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif

/* Its allocator's locks are not taken around fork: a child of a process whose other threads allocate may find one locked for ever. */
#ifdef __SANITIZE_ADDRESS__
#define SKIP_WHERE_MALLOC_DOES_NOT_SURVIVE_FORK() cr_skip_test("the address sanitizer's malloc does not survive a threaded fork")
#else
#define SKIP_WHERE_MALLOC_DOES_NOT_SURVIVE_FORK() ((void)0)
#endif

/* The thread sanitizer's neither; it rarely shows where little is allocated. This is for tests whose children allocate much. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SKIP_WHERE_A_FORKED_CHILD_MAY_NOT_ALLOCATE() cr_skip_test("a sanitizer's malloc does not survive a threaded fork")
#else
#define SKIP_WHERE_A_FORKED_CHILD_MAY_NOT_ALLOCATE() ((void)0)
#endif

#ifndef __SANITIZE_THREAD__
#include <criterion/criterion.h>
#else

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct check_test {
	struct check_test *next;
	const char *suite;
	const char *name;
	void (*run)(void);
};

static struct check_test *check_tests;
static struct check_test **check_tail = &check_tests;

#define Test(suite_, name_, ...)                                                                          \
	static void suite_##_##name_(void);                                                               \
	__attribute__((constructor)) static void suite_##_##name_##_add(void)                             \
	{                                                                                                 \
		static struct check_test test = { NULL, #suite_, #name_, suite_##_##name_ };              \
		*check_tail = &test;                                                                      \
		check_tail = &test.next;                                                                  \
	}                                                                                                 \
	static void suite_##_##name_(void)

#define CHECK_EXIT_SKIPPED 77
/* Children of threaded processes start their own threads; the sanitizer refuses that unless told otherwise. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "die_after_fork=0";
}

#define check_that(condition, text, ...)                                                                  \
	do {                                                                                              \
		if (!(condition)) {                                                                       \
			fprintf(stderr, "%s:%d: %s;", __FILE__, __LINE__, text);                          \
			fprintf(stderr, " " __VA_ARGS__);                                                 \
			fprintf(stderr, "\n");                                                            \
			_exit(1);                                                                         \
		}                                                                                         \
	} while (0)
#define cr_assert(condition, ...) check_that((condition), #condition, __VA_ARGS__)
#define cr_assert_not(condition, ...) check_that(!(condition), "not " #condition, __VA_ARGS__)
#define cr_assert_eq(a, b, ...) check_that((a) == (b), #a " == " #b, __VA_ARGS__)
#define cr_assert_neq(a, b, ...) check_that((a) != (b), #a " != " #b, __VA_ARGS__)
#define cr_assert_lt(a, b, ...) check_that((a) < (b), #a " < " #b, __VA_ARGS__)
#define cr_assert_leq(a, b, ...) check_that((a) <= (b), #a " <= " #b, __VA_ARGS__)
#define cr_assert_gt(a, b, ...) check_that((a) > (b), #a " > " #b, __VA_ARGS__)
#define cr_assert_geq(a, b, ...) check_that((a) >= (b), #a " >= " #b, __VA_ARGS__)
#define cr_assert_null(a, ...) check_that(!(a), #a " is NULL", __VA_ARGS__)
#define cr_assert_not_null(a, ...) check_that(!!(a), #a " is not NULL", __VA_ARGS__)
#define cr_assert_str_eq(a, b, ...) check_that(!strcmp((a), (b)), #a " == " #b, __VA_ARGS__)
#define cr_assert_str_neq(a, b, ...) check_that(strcmp((a), (b)) != 0, #a " != " #b, __VA_ARGS__)
#define cr_expect_eq cr_assert_eq
#define cr_expect_lt cr_assert_lt
#define cr_expect_not cr_assert_not
#define cr_skip_test(why) (fprintf(stderr, "skipped: %s\n", why), _exit(CHECK_EXIT_SKIPPED))

int main(void)
{
	unsigned nr_failed = 0;
	unsigned nr = 0;

	for (struct check_test *test = check_tests; test; test = test->next, nr++) {
		int status = -1;
		pid_t pid = fork();

		if (!pid) {
			test->run();
			exit(0);
		}
		if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) ||
		    (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != CHECK_EXIT_SKIPPED)) {
			fprintf(stderr, "%s::%s failed, status %#x\n", test->suite, test->name, (unsigned)status);
			nr_failed++;
		}
	}
	fprintf(stderr, "%u tests, %u failed\n", nr, nr_failed);
	return nr_failed != 0;
}

#endif
#endif
