/* SPDX-License-Identifier: MIT */
/*
 * A host with two generated functions that have names, for debuggers and profilers to look at: pack_host sealed|debug|perf.
 * jitted_outer calls back into the host; jitted_spin uses up time.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <shunt/log.h>
#include <shunt/pack.h>

#if defined(__x86_64__)
/* push rbp; mov rbp, rsp; call rdi; pop rbp; ret */
static const uint8_t outer_code[] = { 0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3 };
/* dec edi; jnz back; mov eax, 7; ret */
static const uint8_t spin_code[] = { 0xff, 0xcf, 0x75, 0xfc, 0xb8, 7, 0, 0, 0, 0xc3 };
#else
/* bti c; stp x29, x30, [sp, #-16]!; mov x29, sp; blr x0; ldp x29, x30, [sp], #16; ret */
static const uint32_t outer_code[] = { 0xd503245f, 0xa9bf7bfd, 0x910003fd, 0xd63f0000, 0xa8c17bfd, 0xd65f03c0 };
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

static void *make(struct shunt_arena *arena, const char *name, const void *code, size_t len)
{
	struct shunt_block block;

	if (shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, len, 0, &block) != 0)
		return NULL;
	memcpy(block.rw, code, len);
	if (shunt_pack_finalize(&block, 1) != 0 || shunt_pack_name(&block, name) != 0)
		return NULL;
	return block.rx;
}

int main(int argc, char **argv)
{
	const char *mode = argc == 2 ? argv[1] : "";
	struct shunt_arena_options options = { .size = 4 << 20, .debug = !strcmp(mode, "debug"), .anon = !strcmp(mode, "perf") };
	struct shunt_arena *arena;
	void (*outer)(void (*)(void));
	int (*spin)(uint32_t);
	clock_t end;
	int sum = 0;

	if (shunt_names_enable(options.anon ? SHUNT_NAMES_PERF : SHUNT_NAMES_GDB) != 0 || shunt_arena_create(&options, &arena) != 0) {
		fprintf(stderr, "%s\n", shunt_error());
		return 1;
	}
	outer = (void (*)(void (*)(void)))(uintptr_t)make(arena, "jitted_outer", outer_code, sizeof(outer_code));
	spin = (int (*)(uint32_t))(uintptr_t)make(arena, "jitted_spin", spin_code, sizeof(spin_code));
	if (!outer || !spin) {
		fprintf(stderr, "%s\n", shunt_error());
		return 1;
	}
	host_ready();
	outer(host_callback);
	end = clock() + (options.anon ? CLOCKS_PER_SEC / 2 : 0);
	do
		sum += spin(1000000);
	while (clock() < end);
	printf("done %d\n", sum % 7);
	return 0;
}
