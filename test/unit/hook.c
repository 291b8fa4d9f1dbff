/* SPDX-License-Identifier: MIT */
/* Hooks made at run time: one program or none, several in priority order, arguments, verdicts, tokens, and what failures leave. */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <shunt/hook.h>
#include <shunt/log.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "targets/target.h"
#include "test/exec/dispatch_programs.h"

typedef uint64_t call_fn(uint64_t arg);

static struct shunt_block program(uint32_t id)
{
	struct shunt_block block;

	cr_assert_eq(make_program(NULL, id, &block), 0, "%s", shunt_error());
	return block;
}

static struct shunt_hook *make_hook(const char *name, bool multi, uint32_t nr_args, uint32_t ret_len)
{
	struct shunt_hook_options options = { .multi = multi, .nr_args = nr_args, .ret_len = ret_len };
	struct shunt_hook *hook;

	cr_assert_eq(shunt_hook_create(name, &options, &hook), 0, "%s", shunt_error());
	return hook;
}

static uint64_t call(const struct shunt_hook *hook, uint64_t arg)
{
	uint64_t result;

	shunt_read_begin();
	result = ((call_fn *)(uintptr_t)shunt_hook_entry(hook))(arg);
	shunt_read_end();
	return result;
}

static struct shunt_hook_stats stats_of(const struct shunt_hook *hook)
{
	struct shunt_hook_stats stats;

	shunt_hook_get_stats(hook, &stats);
	return stats;
}

Test(hook, a_static_hook_returns_0_until_a_program_is_attached_and_jumps_straight_to_it_then)
{
	struct shunt_hook *hook = make_hook("hook", false, 0, 0);
	struct shunt_block p = program(7), q = program(9);

	cr_assert_eq(call(hook, 100), 0);
	cr_assert_eq(shunt_hook_attach(hook, p.rx, NULL), 0, "%s", shunt_error());
	cr_assert_eq(call(hook, 100), 107);
	cr_assert_eq(stats_of(hook).target, p.rx);
	cr_assert_eq(stats_of(hook).code_len, 0);
	cr_assert_eq(shunt_hook_attach(hook, q.rx, NULL), -EBUSY);
	cr_assert_eq(shunt_hook_attach(hook, p.rx, NULL), -EEXIST);
	cr_assert_eq(shunt_hook_attach(hook, NULL, NULL), -EINVAL);
	cr_assert_eq(call(hook, 100), 107);
	cr_assert_eq(shunt_hook_replace(hook, p.rx, q.rx, NULL), 0, "%s", shunt_error());
	cr_assert_eq(call(hook, 100), 109);
	cr_assert_eq(shunt_hook_detach(hook, p.rx, NULL), -ENOENT);
	cr_assert_eq(shunt_hook_destroy(hook), -EBUSY);
	cr_assert_eq(shunt_hook_detach(hook, q.rx, NULL), 0);
	cr_assert_eq(call(hook, 100), 0);
	cr_assert_eq(stats_of(hook).nr_attaches, 2);
	cr_assert_eq(stats_of(hook).nr_detaches, 2);
	cr_assert_eq(stats_of(hook).nr_patches, 3);
	cr_assert_eq(shunt_hook_destroy(hook), 0, "%s", shunt_error());
}

Test(hook, names_are_shared_with_dispatchers_but_each_is_found_as_what_it_is)
{
	struct shunt_hook *hook = make_hook("name", false, 0, 0), *again;
	struct shunt_dispatcher *d;

	cr_assert_eq(shunt_hook_find("name"), hook);
	cr_assert_null(shunt_dispatcher_find("name"));
	cr_assert_eq(shunt_dispatcher_create("name", NULL, &d), -EEXIST);
	cr_assert_eq(shunt_hook_create("name", NULL, &again), -EEXIST);
	cr_assert_eq(shunt_dispatcher_create("other", NULL, &d), 0);
	cr_assert_null(shunt_hook_find("other"));
	cr_assert_null(shunt_hook_find("nobody"));
	cr_assert_eq(shunt_hook_create("9", NULL, &again), -EINVAL);
}

Test(hook, several_programs_run_in_order_of_priority_until_one_returns_what_stops)
{
	struct shunt_hook *hook = make_hook("hook", true, 1, 4);
	struct shunt_block p[4];
	/* Program i returns i + 1 of 0. */
	static const struct { int32_t priority; uint64_t continue_on; } how[4] = {
		{ 10, SHUNT_CONTINUE_ON(1) }, { -5, SHUNT_CONTINUE_ON(2) }, { 0, SHUNT_CONTINUE_ON(3) | SHUNT_CONTINUE_ON(0) }, { 0, 0 },
	};

	cr_assert_eq(call(hook, 0), 0);
	cr_assert_eq(shunt_hook_set_verdict(hook, 77), 0);
	cr_assert_eq(call(hook, 0), 77, "no program: the verdict");
	for (uint32_t i = 0; i < 4; i++) {
		struct shunt_hook_attach_options options = { .priority = how[i].priority, .continue_on = how[i].continue_on };

		p[i] = program(i + 1);
		if (i == 3)
			break;
		cr_assert_eq(shunt_hook_attach(hook, p[i].rx, &options), 0, "%s", shunt_error());
	}
	/* 1 (returns 2), 2 (3), 0 (1): all go on. */
	cr_assert_eq(call(hook, 0), 77);
	/* Of 1 they return 3, 4, 2: the first stops. */
	cr_assert_eq(call(hook, 1), 3);
	cr_assert_eq(shunt_hook_detach(hook, p[1].rx, NULL), 0);
	/* Now 2 comes first and returns 4. */
	cr_assert_eq(call(hook, 1), 4);
	/* At the same priority behind the one that is there: 3 always stops. */
	cr_assert_eq(shunt_hook_attach(hook, p[3].rx, &(struct shunt_hook_attach_options){ .priority = 0 }), 0);
	cr_assert_eq(call(hook, 0), 4);
	cr_assert_eq(stats_of(hook).nr_programs, 3);
	cr_assert_gt(stats_of(hook).code_len, 0);
	/* Replaced in its place. */
	cr_assert_eq(shunt_hook_replace(hook, p[3].rx, p[1].rx, NULL), 0);
	cr_assert_eq(call(hook, 0), 2);
	cr_assert_eq(shunt_hook_replace(hook, p[1].rx, p[2].rx, NULL), -EEXIST);
	for (uint32_t i = 0; i < 3; i++)
		cr_assert_eq(shunt_hook_detach(hook, p[i].rx, NULL), 0, "%u: %s", i, shunt_error());
	cr_assert_eq(call(hook, 0), 77);
	cr_assert_eq(shunt_hook_destroy(hook), 0);
}

Test(hook, results_are_as_wide_as_the_hook_says_and_those_above_63_stop)
{
	static const uint32_t widths[] = { 1, 2, 4, 8 };

	for (size_t w = 0; w < 4; w++) {
		struct shunt_hook *hook = make_hook("hook", true, 1, widths[w]);
		struct shunt_block p = program(0), q = program(1000);
		struct shunt_hook_attach_options only5 = { .continue_on = SHUNT_CONTINUE_ON(5) }, every = { .continue_on = UINT64_MAX >> 1 };
		uint64_t mask = widths[w] == 8 ? UINT64_MAX : (UINT64_C(1) << 8 * widths[w]) - 1;

		cr_assert_eq(shunt_hook_set_verdict(hook, 42), 0);
		cr_assert_eq(shunt_hook_attach(hook, p.rx, &only5), 0);
		cr_assert_eq(call(hook, 5) & mask, 42);
		for (unsigned int r = 0; r < 70; r++)
			if (r != 5)
				cr_assert_eq(call(hook, r) & mask, r);
		cr_assert_eq(call(hook, UINT64_MAX) & mask, mask);
		/* A 5 with something above the result's width is a 5; with it inside, not. */
		if (widths[w] < 8)
			cr_assert_eq(call(hook, mask + 6) & mask, 42);
		cr_assert_eq(call(hook, 5 + 64) & mask, (5 + 64) & mask);
		cr_assert_eq(shunt_hook_detach(hook, p.rx, NULL), 0);
		/* Bit 63 is not set: that one stops, and so does everything above. */
		cr_assert_eq(shunt_hook_attach(hook, p.rx, &every), 0);
		cr_assert_eq(call(hook, 62) & mask, 42);
		cr_assert_eq(call(hook, 63) & mask, 63);
		cr_assert_eq(call(hook, 64) & mask, 64);
		cr_assert_eq(shunt_hook_detach(hook, p.rx, NULL), 0);
		/* Whatever the result is. */
		cr_assert_eq(shunt_hook_attach(hook, q.rx, NULL), 0);
		cr_assert_eq(call(hook, UINT64_MAX / 3) & mask, 42);
		cr_assert_eq(shunt_hook_detach(hook, q.rx, NULL), 0);
		cr_assert_eq(shunt_hook_destroy(hook), 0);
	}
}

/* Programs of C: this image and the default arena are in reach of each other. They note what they get and change every register that they may. */
#if defined(__x86_64__)
#define MAX_ARGS 6
#define CLOBBER() __asm__ volatile("" : : : "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory");                   \
	__asm__ volatile("mov $-1, %%rcx; mov %%rcx, %%rdx; mov %%rcx, %%rsi; mov %%rcx, %%rdi; mov %%rcx, %%r8; mov %%rcx, %%r9; "          \
			 "mov %%rcx, %%r10; mov %%rcx, %%r11" : : : "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory")
#else
#define MAX_ARGS 8
#define CLOBBER() __asm__ volatile("mov x1, -1; mov x2, -1; mov x3, -1; mov x4, -1; mov x5, -1; mov x6, -1; mov x7, -1; mov x16, -1; mov x17, -1"   \
			 : : : "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x16", "x17", "memory")
#endif

static uint64_t seen[3][8];
static uintptr_t frames[3];
static unsigned int nr_seen;

#define PROGRAM_OF_8(n)														\
	static uint64_t eight_##n(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h)	\
	{															\
		uint64_t got[8] = { a, b, c, d, e, f, MAX_ARGS > 6 ? g : 0, MAX_ARGS > 6 ? h : 0 };				\
																\
		memcpy(seen[n], got, sizeof(got));										\
		frames[n] = (uintptr_t)__builtin_frame_address(0);								\
		nr_seen++;													\
		CLOBBER();													\
		return n;													\
	}
PROGRAM_OF_8(0)
PROGRAM_OF_8(1)
PROGRAM_OF_8(2)

Test(hook, every_program_gets_the_caller_s_arguments_and_an_aligned_stack)
{
	for (uint32_t nr = 0; nr <= MAX_ARGS; nr++) {
		struct shunt_hook *hook = make_hook("hook", true, nr, 8);
		uint64_t (*entry)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

		cr_assert_eq(shunt_hook_attach(hook, (void *)(uintptr_t)eight_0, NULL), 0, "%s", shunt_error());
		cr_assert_eq(shunt_hook_attach(hook, (void *)(uintptr_t)eight_1, NULL), 0, "%s", shunt_error());
		cr_assert_eq(shunt_hook_attach(hook, (void *)(uintptr_t)eight_2,
					       &(struct shunt_hook_attach_options){ .priority = 1 }), 0, "%s", shunt_error());
		entry = (__typeof__(entry))(uintptr_t)shunt_hook_entry(hook);
		memset(seen, 0, sizeof(seen));
		nr_seen = 0;
		cr_assert_eq(entry(11, 22, 33, 44, 55, 66, 77, 88), 2);
		cr_assert_eq(nr_seen, 3);
		for (unsigned int program = 0; program < 3; program++) {
			for (uint64_t i = 0; i < nr; i++)
				cr_assert_eq(seen[program][i], 11 * (i + 1), "argument %llu of %u", (unsigned long long)i, nr);
			/* Behind the return address and the frame pointer. */
			cr_assert_eq(frames[program] % 16, 0, "%u arguments", nr);
		}
		for (unsigned int program = 0; program < 3; program++)
			cr_assert_eq(shunt_hook_detach(hook, (void *)(uintptr_t)(program == 0 ? eight_0 : program == 1 ? eight_1 : eight_2), NULL), 0);
		cr_assert_eq(shunt_hook_destroy(hook), 0);
	}
}

Test(hook, what_cannot_be_is_refused_and_changes_nothing)
{
	struct shunt_hook_options wide = { .multi = true, .nr_args = MAX_ARGS + 1, .ret_len = 8 };
	struct shunt_hook_options odd = { .multi = true, .nr_args = 1, .ret_len = 3 };
	struct shunt_hook *hook, *multi;
	struct shunt_block p = program(1), last = program(99), more[SHUNT_HOOK_PROGRAMS_MAX];
	struct shunt_hook_attach_options options = { .priority = 1 };
	struct shunt_hook_stats before, after;

	cr_assert_eq(shunt_hook_create("hook", &wide, &hook), -EINVAL);
	cr_assert_eq(shunt_hook_create("hook", &odd, &hook), -EINVAL);
	hook = make_hook("hook", false, 0, 0);
	cr_assert_eq(shunt_hook_attach(hook, p.rx, &options), -EINVAL);
	cr_assert_eq(shunt_hook_set_verdict(hook, 1), -EINVAL);
	cr_assert_eq(shunt_hook_attach(NULL, p.rx, NULL), -EINVAL);
	multi = make_hook("multi", true, 1, 8);
	for (uint32_t i = 0; i < SHUNT_HOOK_PROGRAMS_MAX; i++) {
		more[i] = program(i);
		cr_assert_eq(shunt_hook_attach(multi, more[i].rx, NULL), 0, "%s", shunt_error());
	}
	before = stats_of(multi);
	cr_assert_eq(shunt_hook_attach(multi, last.rx, NULL), -EBUSY);
	cr_assert_eq(shunt_hook_replace(multi, more[0].rx, more[1].rx, NULL), -EEXIST);
	after = stats_of(multi);
	cr_assert_eq(memcmp(&before, &after, offsetof(struct shunt_hook_stats, nr_veneers)), 0);
	cr_assert_eq(after.nr_veneers, 0);
	cr_assert_eq(call(multi, 1), 0);
	cr_assert_eq(call(hook, 1), 0);
}

/* ---- programs out of direct reach -------------------------------------------------------------------------------- */

/* A program at exactly that address, and the pages around it; false when something else is there. */
static bool make_program_at(uint64_t addr, uint32_t id, void **pages, size_t *len)
{
	uint64_t page_size = (uint64_t)sysconf(_SC_PAGESIZE), first = addr & ~(page_size - 1);

	*len = 2 * page_size;
	*pages = mmap((void *)(uintptr_t)first, *len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (*pages == MAP_FAILED || (uintptr_t)*pages != first)
		return false;
	write_program((void *)(uintptr_t)addr, id);
	cr_assert_eq(mprotect(*pages, *len, PROT_READ | PROT_EXEC), 0);
	__builtin___clear_cache((char *)(uintptr_t)addr, (char *)(uintptr_t)addr + PROGRAM_LEN);
	return true;
}

/* The last address that a stub's jump reaches upwards, or downwards. */
static uint64_t last_in_reach(const struct shunt_hook *hook, bool is_up)
{
	uint64_t slot = (uint64_t)(uintptr_t)shunt_hook_entry(hook), word;
	uint64_t near = slot, far = is_up ? slot + (UINT64_C(1) << 32) : slot - (UINT64_C(1) << 32);

	while (near + 4 < far || far + 4 < near) {
		uint64_t middle = (near + (far - near) / 2) & ~UINT64_C(3);

		if (far < near)
			middle = (far + (near - far) / 2) & ~UINT64_C(3);
		if (shunt_target_host()->encode_stub_word(slot, middle, &word) == 0)
			near = middle;
		else
			far = middle;
	}
	return near;
}

Test(hook, a_program_beyond_the_last_address_in_reach_is_called_through_a_veneer)
{
	struct shunt_hook *hook = make_hook("hook", false, 0, 0);
	unsigned int nr_tried = 0;

	for (int is_up = 0; is_up <= 1; is_up++) {
		for (uint64_t beyond = 0; beyond <= 8; beyond += 4) {
			uint64_t addr = last_in_reach(hook, is_up);
			void *pages;
			size_t len;

			addr = is_up ? addr + beyond : addr - beyond;
			if (!make_program_at(addr, 41, &pages, &len))
				continue;
			nr_tried++;
			cr_assert_eq(shunt_hook_attach(hook, (void *)(uintptr_t)addr, NULL), 0, "%s", shunt_error());
			cr_assert_eq(stats_of(hook).nr_veneers, beyond != 0, "%d %d", is_up, (int)beyond);
			cr_assert_eq(stats_of(hook).target == (void *)(uintptr_t)addr, beyond == 0);
			cr_assert_eq(call(hook, 1), 42);
			cr_assert_eq(shunt_hook_detach(hook, (void *)(uintptr_t)addr, NULL), 0);
			cr_assert_eq(stats_of(hook).nr_veneers, 0);
			cr_assert_eq(call(hook, 1), 0);
			munmap(pages, len);
		}
	}
	if (!nr_tried)
		cr_skip_test("the addresses at the edge of the hook's reach are all taken here");
	cr_assert_eq(shunt_hook_destroy(hook), 0, "%s", shunt_error());
}

Test(hook, far_and_near_programs_run_in_order)
{
	enum { NR = 40 };
	struct shunt_hook *hook = make_hook("hook", true, 1, 8);
	struct shunt_hook_attach_options options = { .continue_on = SHUNT_CONTINUE_ON(63) };
	struct shunt_pack_stats start, end;
	uint64_t far = (uint64_t)(uintptr_t)shunt_hook_entry(hook) + (UINT64_C(1) << 33);
	struct shunt_block near[NR];
	void *pages[NR];
	size_t len[NR];

	for (uint32_t i = 0; i < NR; i++) {
		near[i] = program(i);
		while (!make_program_at(far, 100 + i, &pages[i], &len[i]))
			far += 1 << 20;
		far += 4 * len[i];
	}
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(shunt_pack_get_stats(NULL, &start), 0);
	/* Near and far in turn; each goes on only when it returns 63. */
	for (uint32_t i = 0; i < NR / 2; i++) {
		options.priority = (int32_t)i;
		cr_assert_eq(shunt_hook_attach(hook, near[i].rx, &options), 0, "%s", shunt_error());
		cr_assert_eq(shunt_hook_attach(hook, pages[i], &options), 0, "%s", shunt_error());
		cr_assert_eq(stats_of(hook).nr_veneers, i + 1);
		cr_assert_eq(call(hook, 5), 5, "the first stops");
		cr_assert_eq(call(hook, 63), 163, "the second stops");
	}
	/* Without the near ones the first far one decides, and without that the next. */
	for (uint32_t i = 0; i < NR / 2; i++)
		cr_assert_eq(shunt_hook_detach(hook, near[i].rx, NULL), 0);
	for (uint32_t i = 0; i < NR / 2; i++) {
		cr_assert_eq(call(hook, 1), 101 + i);
		cr_assert_eq(shunt_hook_detach(hook, pages[i], NULL), 0);
	}
	cr_assert_eq(call(hook, 1), 0);
	/* A multi-hook of one program that decides jumps to it. */
	cr_assert_eq(shunt_hook_attach(hook, pages[3], &(struct shunt_hook_attach_options){ 0 }), 0);
	cr_assert_eq(stats_of(hook).nr_veneers, 1);
	cr_assert_eq(call(hook, 1), 104);
	cr_assert_eq(shunt_hook_detach(hook, pages[3], NULL), 0);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert_eq(shunt_pack_get_stats(NULL, &end), 0);
	cr_assert_eq(start.nr_blocks[SHUNT_SEGMENT_CODE], end.nr_blocks[SHUNT_SEGMENT_CODE]);
	for (uint32_t i = 0; i < NR; i++)
		munmap(pages[i], len[i]);
	cr_assert_eq(shunt_hook_destroy(hook), 0);
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

static int inside;

static uint64_t wait_inside(uint64_t arg)
{
	__atomic_store_n(&inside, 1, __ATOMIC_RELEASE);
	while (__atomic_load_n(&inside, __ATOMIC_ACQUIRE) != 2)
		usleep(100);
	return arg;
}

static void *run_hook(void *hook)
{
	return (void *)(uintptr_t)call(hook, 5);
}

Test(hook, a_token_passes_when_the_last_call_that_could_run_the_old_program_has_returned)
{
	struct shunt_hook *hook = make_hook("hook", false, 0, 0);
	uint64_t token, later;
	pthread_t thread;
	void *result;

	cr_assert_eq(shunt_hook_attach(hook, (void *)(uintptr_t)wait_inside, NULL), 0, "%s", shunt_error());
	cr_assert_eq(pthread_create(&thread, NULL, run_hook, hook), 0);
	while (!__atomic_load_n(&inside, __ATOMIC_ACQUIRE))
		usleep(100);
	cr_assert_eq(shunt_hook_detach(hook, (void *)(uintptr_t)wait_inside, &token), 0);
	cr_assert_eq(call(hook, 5), 0, "the hook is empty for new calls at once");
	cr_assert_eq(shunt_token_take(&later), 0);
	cr_assert_gt(later, token);
	usleep(50000);
	cr_assert(!shunt_token_passed(token), "a token passed while a call ran");
	__atomic_store_n(&inside, 2, __ATOMIC_RELEASE);
	cr_assert_eq(shunt_token_wait(token), 0, "%s", shunt_error());
	cr_assert(shunt_token_passed(token));
	pthread_join(thread, &result);
	cr_assert_eq((uintptr_t)result, 5);
	cr_assert_eq(shunt_token_wait(later), 0);
	shunt_read_begin();
	cr_assert_eq(shunt_token_take(&later), 0);
	cr_assert_eq(shunt_token_wait(later), -EDEADLK);
	shunt_read_end();
	cr_assert_eq(shunt_token_wait(later), 0);
}

Test(hook, a_chain_keeps_its_bytes_while_one_of_its_programs_runs)
{
	struct shunt_hook *hook = make_hook("hook", true, 1, 8);
	struct shunt_block p = program(3);
	struct shunt_hook_stats stats;
	unsigned char bytes[512];
	pthread_t thread;
	void *result;

	inside = 0;
	cr_assert_eq(shunt_hook_set_verdict(hook, 9), 0);
	cr_assert_eq(shunt_hook_attach(hook, (void *)(uintptr_t)wait_inside, NULL), 0);
	cr_assert_eq(shunt_hook_attach(hook, p.rx, NULL), 0);
	stats = stats_of(hook);
	cr_assert_leq(stats.code_len, sizeof(bytes));
	memcpy(bytes, stats.target, stats.code_len);
	cr_assert_eq(pthread_create(&thread, NULL, run_hook, hook), 0);
	while (!__atomic_load_n(&inside, __ATOMIC_ACQUIRE))
		usleep(100);
	for (int i = 0; i < 100; i++) {
		cr_assert_eq(shunt_hook_detach(hook, p.rx, NULL), 0);
		cr_assert_eq(shunt_hook_attach(hook, p.rx, NULL), 0);
	}
	usleep(50000);
	cr_assert_eq(memcmp(bytes, stats.target, stats.code_len), 0, "a chain was reused while it was on a stack");
	__atomic_store_n(&inside, 2, __ATOMIC_RELEASE);
	pthread_join(thread, &result);
	cr_assert_eq((uintptr_t)result, 9);
	cr_assert_eq(shunt_quiesce(), 0);
	cr_assert(shunt_target_host()->is_traps(stats.target, stats.code_len), "an old chain is not traps");
}
