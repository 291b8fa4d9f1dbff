/* SPDX-License-Identifier: MIT */
/* Helpers on text: trace_printk to the log, numbers from text, comparison. */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
#include "lib/bpf/helpers.h"
#include "runtime/log.h"

#define RESULT(value) ((uint64_t)(int64_t)(value))

/* ---- trace_printk --------------------------------------------------------------------------------------------- */

struct text {
	char bytes[512];
	size_t len;
};

static void append(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append(struct text *text, const char *format, ...)
{
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf(text->bytes + text->len, sizeof(text->bytes) - text->len, format, args);
	va_end(args);
	if (len > 0)
		text->len += (size_t)len;
	if (text->len >= sizeof(text->bytes))
		text->len = sizeof(text->bytes) - 1;
}

/* A string of the program's choice: read as another process's memory is, so that a wild pointer is an error and not a fault. */
static void append_string(struct text *text, uint64_t where)
{
	char buffer[128] = { 0 };
	size_t len = 0;

	while (len < sizeof(buffer) - 1) {
		struct iovec local = { buffer + len, 1 }, remote = { (void *)(uintptr_t)(where + len), 1 };

		if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != 1) {
			if (!len) {
				append(text, "(fault)");
				return;
			}
			buffer[len] = '\0';
			break;
		}
		if (!buffer[len])
			break;
		len++;
	}
	append(text, "%s", buffer);
}

/*
 * One conversion after '%': flags, width, l or ll, and a letter of "diuxXcps". Returns what follows it, NULL when it is none of these.
 * Only *this function's* formats reach printf, never the program's.
 */
static const char *convert(struct text *text, const char *p, const char *end, uint64_t arg)
{
	char format[24] = "%";
	size_t len = 1;
	int nr_longs = 0;

	while (p < end && strchr("-+ #0123456789", *p) && *p && len < 8)
		format[len++] = *p++;
	while (p < end && *p == 'l' && nr_longs < 2) {
		nr_longs++;
		p++;
	}
	if (p >= end || !*p || !strchr("diuxXcps", *p))
		return NULL;
	switch (*p) {
	case 's':
		append_string(text, arg);
		break;
	case 'c':
		append(text, "%c", (int)(unsigned char)arg);
		break;
	case 'p':
		append(text, "%016llx", (unsigned long long)arg);
		/* Kernel extensions (%pI4, %pks...) print as plain pointers. */
		while (p + 1 < end && isalnum((unsigned char)p[1]))
			p++;
		break;
	default:
		if (!nr_longs)
			arg = *p == 'd' || *p == 'i' ? (uint64_t)(int64_t)(int32_t)arg : (uint32_t)arg;
		format[len++] = 'l';
		format[len++] = 'l';
		format[len++] = *p;
		format[len] = '\0';
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		append(text, format, (unsigned long long)arg);
#pragma GCC diagnostic pop
		break;
	}
	return p + 1;
}

uint64_t bpf_helper_trace_printk(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5)
{
	const char *p = (const char *)(uintptr_t)r1, *end;
	uint64_t args[3] = { r3, r4, r5 };
	struct text text = { .len = 0 };
	uint32_t size = (uint32_t)r2;
	unsigned nr_args = 0;
	size_t len;

	/* As the kernel: the format ends with a zero, and no more than three conversions. */
	if (!size || p[size - 1])
		return RESULT(-EINVAL);
	for (end = p + size - 1; p < end && *p; ) {
		if (*p != '%') {
			append(&text, "%c", *p++);
			continue;
		}
		if (p + 1 < end && p[1] == '%') {
			append(&text, "%%");
			p += 2;
			continue;
		}
		p = nr_args < 3 ? convert(&text, p + 1, end, args[nr_args]) : NULL;
		if (!p)
			return RESULT(-EINVAL);
		nr_args++;
	}
	len = text.len;
	while (text.len && text.bytes[text.len - 1] == '\n')
		text.len--;
	text.bytes[text.len] = '\0';
	shunt_logf(SHUNT_LOG_INFO, "%s", text.bytes);
	return len;
}

/* ---- numbers -------------------------------------------------------------------------------------------------- */

static int digit_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : 16;
}

static bool has_hex_prefix(const char *p, const char *end)
{
	return end - p > 2 && p[0] == '0' && (p[1] | 0x20) == 'x' && digit_of(p[2]) < 16;
}

/* Space, an optional '-', digits of a base of 0 (by prefix), 8, 10 or 16. Returns the bytes read, or a negative errno. */
static int64_t parse(const char *text, uint64_t len, uint64_t flags, bool *is_negative, uint64_t *value)
{
	const char *p = text, *end, *first;
	unsigned base = (unsigned)flags;

	if (!text || !len || (flags != 0 && flags != 8 && flags != 10 && flags != 16))
		return -EINVAL;
	end = text + len;
	while (p < end && *p && isspace((unsigned char)*p))
		p++;
	*is_negative = p < end && *p == '-';
	p += *is_negative;
	if (base == 0)
		base = has_hex_prefix(p, end) ? 16 : p < end && *p == '0' ? 8 : 10;
	if (base == 16 && has_hex_prefix(p, end))
		p += 2;
	*value = 0;
	for (first = p; p < end && digit_of(*p) < (int)base; p++)
		if (__builtin_mul_overflow(*value, base, value) || __builtin_add_overflow(*value, (uint64_t)digit_of(*p), value))
			return -ERANGE;
	return p == first ? -EINVAL : p - text;
}

uint64_t bpf_helper_strtol(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5)
{
	uint64_t value;
	bool is_negative;
	int64_t len = parse((const char *)(uintptr_t)r1, r2, r3, &is_negative, &value);

	if (len < 0)
		return RESULT(len);
	if (value > (uint64_t)INT64_MAX + is_negative)
		return RESULT(-ERANGE);
	if (is_negative)
		value = -value;
	memcpy((void *)(uintptr_t)r4, &value, sizeof(value));
	return RESULT(len);
}

uint64_t bpf_helper_strtoul(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5)
{
	uint64_t value;
	bool is_negative;
	int64_t len = parse((const char *)(uintptr_t)r1, r2, r3, &is_negative, &value);

	if (len < 0)
		return RESULT(len);
	if (is_negative)
		return RESULT(-EINVAL);
	memcpy((void *)(uintptr_t)r4, &value, sizeof(value));
	return RESULT(len);
}

uint64_t bpf_helper_strncmp(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5)
{
	int order = strncmp((const char *)(uintptr_t)r1, (const char *)(uintptr_t)r3, (uint32_t)r2);

	return RESULT((order > 0) - (order < 0));
}
