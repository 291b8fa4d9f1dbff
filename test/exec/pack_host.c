/* SPDX-License-Identifier: MIT */
/*
 * A host with generated functions that have names, for debuggers and profilers to look at: pack_host sealed|debug|perf|perf-fork.
 * jitted_outer calls jitted_frameless, which has no frame pointer, and that calls back into the host; jitted_spin uses up time, with
 * perf-fork in a child that says its number.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <shunt/log.h>
#include <shunt/pack.h>

#if defined(__x86_64__)
/* push rbp; mov rbp, rsp; call rsi; pop rbp; ret */
static const uint8_t outer_code[] = { 0x55, 0x48, 0x89, 0xe5, 0xff, 0xd6, 0x5d, 0xc3 };
/* sub rsp, 24; call rdi; add rsp, 24; ret */
static const uint8_t frameless_code[] = { 0x48, 0x83, 0xec, 24, 0xff, 0xd7, 0x48, 0x83, 0xc4, 24, 0xc3 };
/* advance 4; the CFA is 32 above rsp; advance 6; 8 above */
static const uint8_t frameless_cfi[] = { 0x44, 0x0e, 32, 0x46, 0x0e, 8 };
/* dec edi; jnz back; mov eax, 7; ret */
static const uint8_t spin_code[] = { 0xff, 0xcf, 0x75, 0xfc, 0xb8, 7, 0, 0, 0, 0xc3 };
#else
/* bti c; stp x29, x30, [sp, #-16]!; mov x29, sp; blr x1; ldp x29, x30, [sp], #16; ret */
static const uint32_t outer_code[] = { 0xd503245f, 0xa9bf7bfd, 0x910003fd, 0xd63f0020, 0xa8c17bfd, 0xd65f03c0 };
/* bti c; str x30, [sp, #-32]!; blr x0; ldr x30, [sp], #32; ret */
static const uint32_t frameless_code[] = { 0xd503245f, 0xf81e0ffe, 0xd63f0000, 0xf84207fe, 0xd65f03c0 };
/* advance 8; the CFA is 32 above sp, x30 at its bottom; advance 8; 0 above, x30 where it was */
static const uint8_t frameless_cfi[] = { 0x48, 0x0e, 32, 0x9e, 4, 0x48, 0x0e, 0, 0xde };
/* bti c; subs w0, w0, #1; b.ne back; mov w0, #7; ret */
static const uint32_t spin_code[] = { 0xd503245f, 0x71000400, 0x54ffffe1, 0x528000e0, 0xd65f03c0 };
#endif

void host_ready(void);
__attribute__((noinline)) void host_ready(void)
{
	__asm__ volatile("");
}

void host_callback(void);
__attribute__((noinline)) void host_callback(void)
{
	__asm__ volatile("");
}

static void *make(struct shunt_arena *arena, const char *name, const void *code, size_t len, const void *cfi, size_t cfi_len)
{
	struct shunt_block block;
	struct shunt_unwind unwind = { .block = &block, .cfi = cfi, .cfi_len = cfi_len };

	if (shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, len, 0, &block) != 0)
		return NULL;
	memcpy(block.rw, code, len);
	if (shunt_pack_finalize(&block, 1) != 0 || shunt_pack_set_unwind(&unwind, 1) != 0 || shunt_pack_name(&block, name) != 0)
		return NULL;
	return block.rx;
}

__attribute__((noinline)) static int run(const char *mode, struct shunt_arena *arena)
{
	/* Of the spinning one: there is no frame at all. */
	static const uint8_t no_cfi[] = { 0 };
	bool perf = !strncmp(mode, "perf", 4);
	void (*outer)(void (*)(void), void *);
	void *frameless;
	int (*spin)(uint32_t);
	clock_t end;
	int sum = 0, status;

	outer = (void (*)(void (*)(void), void *))(uintptr_t)make(arena, "jitted_outer", outer_code, sizeof(outer_code), NULL, 0);
	frameless = make(arena, "jitted_frameless", frameless_code, sizeof(frameless_code), frameless_cfi, sizeof(frameless_cfi));
	spin = (int (*)(uint32_t))(uintptr_t)make(arena, "jitted_spin", spin_code, sizeof(spin_code), no_cfi, 0);
	if (!outer || !frameless || !spin)
		return -1;
	host_ready();
	outer(host_callback, frameless);
	if (!strcmp(mode, "perf-fork")) {
		pid_t child = fork();

		if (child > 0)
			return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
		/* By itself: its packs are its own now. */
		printf("%d\n", (int)getpid());
		fflush(stdout);
	}
	end = clock() + (!strcmp(mode, "perf-fork") ? 2 * CLOCKS_PER_SEC : perf ? CLOCKS_PER_SEC / 2 : 0);
	do
		sum += spin(1000000);
	while (clock() < end);
	return sum % 7;
}

int main(int argc, char **argv)
{
	const char *mode = argc == 2 ? argv[1] : "";
	bool perf = !strncmp(mode, "perf", 4);
	struct shunt_arena_options options = { .size = 4 << 20, .debug = !strcmp(mode, "debug"), .anon = perf };
	struct shunt_arena *arena;
	int result = -1;

	if (shunt_names_enable(perf ? SHUNT_NAMES_PERF : SHUNT_NAMES_GDB) == 0 && shunt_arena_create(&options, &arena) == 0)
		result = run(mode, arena);
	if (result < 0)
		fprintf(stderr, "%s\n", shunt_error());
	else
		printf("done %d\n", result);
	return result < 0;
}
