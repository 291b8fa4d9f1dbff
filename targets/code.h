/* SPDX-License-Identifier: MIT */
/*
 * A code buffer: bytes written at one place for another address. Errors are sticky: emitters never check call by call,
 * the caller asks once at the end. Nothing is ever truncated to fit.
 */
#ifndef TARGETS_CODE_H
#define TARGETS_CODE_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct shunt_code {
	uint8_t *bytes;  /* where to write; NULL: only measure */
	size_t capacity;
	size_t len;      /* bytes emitted */
	uint64_t addr;   /* where bytes[0] will run */
	/* 0; -ENOSPC: capacity; -ERANGE: a displacement or immediate does not fit; -EINVAL: a bad operand; -ENOMEM: for a layout */
	int error;
};

/* bytes NULL measures: len grows, capacity is not looked at. */
void shunt_code_init(struct shunt_code *code, void *bytes, size_t capacity, uint64_t addr);
/* Overwrites four emitted bytes at offset; -EINVAL (sticky) when they were not emitted. */
void shunt_code_patch32(struct shunt_code *code, size_t offset, uint32_t word);
/* Records error unless one is recorded already. */
void shunt_code_fail(struct shunt_code *code, int error);
/* shunt_code_emit where there is nothing to write to, no room, or an error. */
void shunt_code_emit_slow(struct shunt_code *code, const uint8_t *bytes, size_t len);

/* Inline, with a length that the compiler knows: a tree has thousands of instructions, each of a few bytes. */

/* Address of the next byte. */
static inline uint64_t shunt_code_here(const struct shunt_code *code)
{
	return code->addr + code->len;
}

static inline void shunt_code_emit(struct shunt_code *code, const uint8_t *bytes, size_t len)
{
	if (code->bytes && !code->error && code->len + len <= code->capacity) {
		memcpy(code->bytes + code->len, bytes, len);
		code->len += len;
	} else {
		shunt_code_emit_slow(code, bytes, len);
	}
}

/*
 * The low len bytes of value, at most 8, lowest first, as instructions of both targets are. In one piece from a register: bytes that are put
 * together in memory first would have to wait there for each other.
 */
static inline void shunt_code_emit_low(struct shunt_code *code, uint64_t value, size_t len)
{
	value = htole64(value);
	shunt_code_emit(code, (const uint8_t *)&value, len);
}

static inline void shunt_code_emit8(struct shunt_code *code, uint8_t byte)
{
	shunt_code_emit(code, &byte, 1);
}

static inline void shunt_code_emit32(struct shunt_code *code, uint32_t word)
{
	shunt_code_emit_low(code, word, 4);
}

static inline void shunt_code_emit64(struct shunt_code *code, uint64_t word)
{
	shunt_code_emit_low(code, word, 8);
}

#endif
