/* SPDX-License-Identifier: MIT */
/* The code buffer that every encoder writes to. See targets/code.h. */
#include "targets/code.h"

#include <errno.h>
#include <string.h>

void shunt_code_init(struct shunt_code *code, void *bytes, size_t capacity, uint64_t addr)
{
	code->bytes = bytes;
	code->capacity = capacity;
	code->len = 0;
	code->addr = addr;
	code->error = 0;
}

uint64_t shunt_code_here(const struct shunt_code *code)
{
	return code->addr + code->len;
}

/* What does not fit ends the code: a shorter value behind it must not close the gap. */
void shunt_code_emit(struct shunt_code *code, const uint8_t *bytes, size_t len)
{
	if (code->bytes) {
		if (code->error == -ENOSPC || code->capacity < code->len || code->capacity - code->len < len) {
			shunt_code_fail(code, ENOSPC);
			return;
		}
		memcpy(code->bytes + code->len, bytes, len);
	}
	code->len += len;
}

/* Byte by byte, so that the result does not depend on the byte order of the machine that encodes. */
static inline void emit(struct shunt_code *code, uint64_t value, size_t len)
{
	uint8_t bytes[8];

	for (size_t i = 0; i < len; i++)
		bytes[i] = (uint8_t)(value >> (8 * i));
	shunt_code_emit(code, bytes, len);
}

void shunt_code_emit8(struct shunt_code *code, uint8_t byte)
{
	emit(code, byte, 1);
}

void shunt_code_emit32(struct shunt_code *code, uint32_t word)
{
	emit(code, word, 4);
}

void shunt_code_emit64(struct shunt_code *code, uint64_t word)
{
	emit(code, word, 8);
}

void shunt_code_patch32(struct shunt_code *code, size_t offset, uint32_t word)
{
	if (offset > code->len || code->len - offset < 4) {
		shunt_code_fail(code, EINVAL);
		return;
	}
	if (code->bytes)
		for (size_t i = 0; i < 4; i++)
			code->bytes[offset + i] = (uint8_t)(word >> (8 * i));
}

void shunt_code_fail(struct shunt_code *code, int error)
{
	if (!code->error)
		code->error = error < 0 ? error : -error;
}
