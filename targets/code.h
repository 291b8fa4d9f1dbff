/* SPDX-License-Identifier: MIT */
/*
 * A code buffer: bytes written at one place for another address. Errors are sticky: emitters never check call by call,
 * the caller asks once at the end. Nothing is ever truncated to fit.
 */
#ifndef TARGETS_CODE_H
#define TARGETS_CODE_H

#include <stddef.h>
#include <stdint.h>

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
/* Address of the next byte. */
uint64_t shunt_code_here(const struct shunt_code *code);
void shunt_code_emit(struct shunt_code *code, const uint8_t *bytes, size_t len);
void shunt_code_emit8(struct shunt_code *code, uint8_t byte);
void shunt_code_emit32(struct shunt_code *code, uint32_t word); /* little endian, as instructions of both targets are */
void shunt_code_emit64(struct shunt_code *code, uint64_t word);
/* Overwrites four emitted bytes at offset; -EINVAL (sticky) when they were not emitted. */
void shunt_code_patch32(struct shunt_code *code, size_t offset, uint32_t word);
/* Records error unless one is recorded already. */
void shunt_code_fail(struct shunt_code *code, int error);

#endif
