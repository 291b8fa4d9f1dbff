/* SPDX-License-Identifier: MIT */
/* The program that the pack benchmark installs everywhere: 200 bytes that return its number. */
#ifndef BENCH_PACK_PROGRAM_H
#define BENCH_PACK_PROGRAM_H

#include <stdint.h>
#include <string.h>

#define PROGRAM_LEN 200

/* Writes the program that returns number; all of it is executed. */
static inline void program_write(void *to, uint32_t number)
{
	uint8_t *at = to;
#if defined(__x86_64__)
	static const uint8_t nop[9] = { 0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0 };

	*at++ = 0xb8; /* mov eax, number */
	memcpy(at, &number, 4);
	at += 4;
	for (int i = 0; i < 21; i++, at += 9)
		memcpy(at, nop, 9);
	memset(at, 0x90, 5);
	at[5] = 0xc3;
#else
	uint32_t code[PROGRAM_LEN / 4];

	for (size_t i = 0; i < PROGRAM_LEN / 4; i++)
		code[i] = 0xd503201f;                            /* nop */
	code[0] = 0xd503245f;                                    /* bti c */
	code[1] = 0x52800000u | (number & 0xffff) << 5;          /* movz w0, number */
	code[2] = 0x72a00000u | (number >> 16) << 5;             /* movk w0, number >> 16, lsl 16 */
	code[PROGRAM_LEN / 4 - 1] = 0xd65f03c0;                  /* ret */
	memcpy(at, code, PROGRAM_LEN);
#endif
}

/* Puts number into a program that program_write made. */
static inline void program_number(void *program, uint32_t number)
{
#if defined(__x86_64__)
	memcpy((uint8_t *)program + 1, &number, 4);
#else
	program_write(program, number);
#endif
}

static inline uint32_t program_call(const void *rx)
{
	return ((uint32_t (*)(void))(uintptr_t)rx)();
}

#endif
