/* SPDX-License-Identifier: MIT */
/*
 * Small generated programs for tests: uint64_t program(uint64_t arg) returns arg + id. The id is also readable behind the
 * code, so that a caller with nothing but the pointer knows what to expect.
 */
#ifndef TEST_EXEC_DISPATCH_PROGRAMS_H
#define TEST_EXEC_DISPATCH_PROGRAMS_H

#include <shunt/pack.h>
#include <string.h>

#define PROGRAM_LEN 32u
#define PROGRAM_ID_OFFSET 24u

static inline void write_program(void *rw, uint32_t id)
{
	uint64_t wide = id;
#if defined(__x86_64__)
	/* endbr64; mov eax, id; add rax, rdi; ret */
	unsigned char code[] = { 0xf3, 0x0f, 0x1e, 0xfa, 0xb8, 0, 0, 0, 0, 0x48, 0x01, 0xf8, 0xc3 };

	memcpy(code + 5, &id, sizeof(id));
#elif defined(__aarch64__)
	/* bti c; movz x1, #lo; movk x1, #hi, lsl 16; add x0, x0, x1; ret */
	uint32_t code[] = { 0xd503245f, 0xd2800001u | (id & 0xffff) << 5, 0xf2a00001u | id >> 16 << 5, 0x8b010000u, 0xd65f03c0u };
#endif
	memcpy(rw, code, sizeof(code));
	memcpy((char *)rw + PROGRAM_ID_OFFSET, &wide, sizeof(wide));
}

/* A finalized program in arena (NULL: the default). */
static inline int make_program(struct shunt_arena *arena, uint32_t id, struct shunt_block *out)
{
	int err = shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, PROGRAM_LEN, 0, out);

	if (err)
		return err;
	write_program(out->rw, id);
	return shunt_pack_finalize(out, 1);
}

static inline uint64_t program_id(const void *program)
{
	uint64_t id;

	memcpy(&id, (const char *)program + PROGRAM_ID_OFFSET, sizeof(id));
	return id;
}

/* Calls a stub as generated code does: the program in the nest register. */
static inline uint64_t call_stub(const void *stub, uint64_t arg, const void *program)
{
#if defined(__x86_64__)
	register uint64_t rax __asm__("rax");
	register uint64_t rdi __asm__("rdi") = arg;
	register const void *r10 __asm__("r10") = program;

	/* The call pushes below the red zone. */
	__asm__ volatile("lea -128(%%rsp), %%rsp; call *%[stub]; lea 128(%%rsp), %%rsp"
			 : "=r"(rax), "+r"(rdi), "+r"(r10)
			 : [stub] "r"(stub)
			 : "rcx", "rdx", "rsi", "r8", "r9", "r11", "memory", "cc");
	return rax;
#elif defined(__aarch64__)
	register uint64_t x0 __asm__("x0") = arg;
	register const void *x18 __asm__("x18") = program;

	__asm__ volatile("blr %[stub]"
			 : "+r"(x0), "+r"(x18)
			 : [stub] "r"(stub)
			 : "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16",
			   "x17", "x30", "memory", "cc");
	return x0;
#endif
}

#endif
