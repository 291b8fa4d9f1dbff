/* SPDX-License-Identifier: MIT */
/* The machine code of bench_dispatch, for both CPUs. See dispatch_calls.h. */
#include "bench/dispatch_calls.h"

#include <errno.h>
#include <string.h>

#include "targets/code.h"

#define LOOP_MAX 192u
#define RETPOLINE_OFFSET 128u

#if defined(__x86_64__)

#define EMIT(code, ...) shunt_code_emit(code, (const uint8_t[]){ __VA_ARGS__ }, sizeof((const uint8_t[]){ __VA_ARGS__ }))

static void emit_program(struct shunt_code *code, uint32_t id)
{
	EMIT(code, 0xf3, 0x0f, 0x1e, 0xfa, 0xb8); /* endbr64; mov eax, id */
	shunt_code_emit32(code, id);
	EMIT(code, 0xc3);
}

static void emit_call(struct shunt_code *code, uint64_t dest)
{
	EMIT(code, 0xe8);
	shunt_code_emit32(code, (uint32_t)(dest - (shunt_code_here(code) + 4)));
}

static int emit_loop(struct shunt_code *code, enum calls_way way, uint64_t dest)
{
	size_t loop;

	if (way == CALLS_RETPOLINE)
		dest = code->addr + RETPOLINE_OFFSET;
	/* push rbx, r12, r13; mov rbx, rdi; mov r12, rsi; xor r13d, r13d */
	EMIT(code, 0x53, 0x41, 0x54, 0x41, 0x55, 0x48, 0x89, 0xfb, 0x49, 0x89, 0xf4, 0x45, 0x31, 0xed);
	while (code->len % 64)
		EMIT(code, 0x90);
	loop = code->len;
	EMIT(code, 0x4c, 0x8b, 0x13, 0x48, 0x83, 0xc3, 0x08); /* mov r10, [rbx]; add rbx, 8 */
	if (way == CALLS_POINTER)
		EMIT(code, 0x41, 0xff, 0xd2); /* call r10 */
	else
		emit_call(code, dest);
	EMIT(code, 0x49, 0x01, 0xc5, 0x49, 0xff, 0xcc); /* add r13, rax; dec r12 */
	EMIT(code, 0x75, (uint8_t)(loop - (code->len + 2))); /* jnz loop */
	EMIT(code, 0x4c, 0x89, 0xe8, 0x41, 0x5d, 0x41, 0x5c, 0x5b, 0xc3); /* mov rax, r13; pop r13, r12, rbx; ret */
	if (way == CALLS_RETPOLINE) {
		while (code->len < RETPOLINE_OFFSET)
			EMIT(code, 0xcc);
		/* call 1f; 0: pause; lfence; jmp 0b; 1: mov [rsp], r10; ret */
		EMIT(code, 0xe8, 0x07, 0, 0, 0, 0xf3, 0x90, 0x0f, 0xae, 0xe8, 0xeb, 0xf9, 0x4c, 0x89, 0x14, 0x24, 0xc3);
	}
	return 0;
}

#elif defined(__aarch64__)

static void emit_program(struct shunt_code *code, uint32_t id)
{
	shunt_code_emit32(code, 0xd503245f);                         /* bti c */
	shunt_code_emit32(code, 0x52800000u | (id & 0xffff) << 5);   /* movz w0, #lo */
	shunt_code_emit32(code, 0x72a00000u | (id >> 16) << 5);      /* movk w0, #hi, lsl 16 */
	shunt_code_emit32(code, 0xd65f03c0);                         /* ret */
}

static int emit_loop(struct shunt_code *code, enum calls_way way, uint64_t dest)
{
	size_t loop;

	if (way == CALLS_RETPOLINE)
		return -ENOTSUP;
	shunt_code_emit32(code, 0xd503245f); /* bti c */
	shunt_code_emit32(code, 0xa9bd7bfd); /* stp x29, x30, [sp, #-48]! */
	shunt_code_emit32(code, 0xa90153f3); /* stp x19, x20, [sp, #16] */
	shunt_code_emit32(code, 0xf90013f5); /* str x21, [sp, #32] */
	shunt_code_emit32(code, 0xaa0003f3); /* mov x19, x0 */
	shunt_code_emit32(code, 0xaa0103f4); /* mov x20, x1 */
	shunt_code_emit32(code, 0xaa1f03f5); /* mov x21, xzr */
	while (code->len % 64)
		shunt_code_emit32(code, 0xd503201f);
	loop = code->len;
	shunt_code_emit32(code, 0xf8408672); /* ldr x18, [x19], #8 */
	if (way == CALLS_POINTER)
		shunt_code_emit32(code, 0xd63f0240); /* blr x18 */
	else
		shunt_code_emit32(code, 0x94000000u | ((uint32_t)((int64_t)(dest - shunt_code_here(code)) / 4) & 0x3ffffff));
	shunt_code_emit32(code, 0x8b0002b5); /* add x21, x21, x0 */
	shunt_code_emit32(code, 0xf1000694); /* subs x20, x20, #1 */
	shunt_code_emit32(code, 0x54000001u | ((uint32_t)((int64_t)(loop - code->len) / 4) & 0x7ffff) << 5); /* b.ne loop */
	shunt_code_emit32(code, 0xaa1503e0); /* mov x0, x21 */
	shunt_code_emit32(code, 0xf94013f5); /* ldr x21, [sp, #32] */
	shunt_code_emit32(code, 0xa94153f3); /* ldp x19, x20, [sp, #16] */
	shunt_code_emit32(code, 0xa8c37bfd); /* ldp x29, x30, [sp], #48 */
	shunt_code_emit32(code, 0xd65f03c0); /* ret */
	return 0;
}

#endif

int calls_make_program(struct shunt_arena *arena, uint32_t id, struct shunt_block *out)
{
	struct shunt_code code;
	int err = shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, 32, 0, out);

	if (err)
		return err;
	shunt_code_init(&code, out->rw, out->len, (uint64_t)(uintptr_t)out->rx);
	emit_program(&code, id);
	return code.error ? code.error : shunt_pack_finalize(out, 1);
}

int calls_make_loop(struct shunt_arena *arena, enum calls_way way, const void *dest, struct shunt_block *out)
{
	struct shunt_code code;
	int err;

	err = shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, LOOP_MAX, 0, out);
	if (err)
		return err;
	shunt_code_init(&code, out->rw, out->len, (uint64_t)(uintptr_t)out->rx);
	err = emit_loop(&code, way, (uint64_t)(uintptr_t)dest);
	if (!err)
		err = code.error ? code.error : shunt_pack_finalize(out, 1);
	if (err)
		shunt_pack_abandon(out);
	return err;
}
