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

/* What does not fit ends the code: a shorter value behind it must not close the gap. */
void shunt_code_emit_slow(struct shunt_code *code, const uint8_t *bytes, size_t len)
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
