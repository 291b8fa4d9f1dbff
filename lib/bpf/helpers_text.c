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

/* len counts what did not fit as well. */
struct text {
	char bytes[1024];
	size_t len;
};

static void append(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append(struct text *text, const char *format, ...)
{
	size_t start = text->len < sizeof(text->bytes) ? text->len : sizeof(text->bytes) - 1;
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf(text->bytes + start, sizeof(text->bytes) - start, format, args);
	va_end(args);
	if (len > 0)
		text->len += (size_t)len;
}

/* A string of the program's choice: read as another process's memory is, so that a wild pointer is an error and not a fault. */
static void read_string(char buffer[128], uint64_t where)
{
	size_t len = 0;

	memset(buffer, 0, 128);
	while (len < 127) {
		struct iovec local = { buffer + len, 1 }, remote = { (void *)(uintptr_t)(where + len), 1 };

		if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != 1) {
			buffer[len] = '\0';
			if (!len)
				strcpy(buffer, "(fault)");
			return;
		}
		if (!buffer[len])
			return;
		len++;
	}
}

static bool ends_conversion(const char *p, const char *end)
{
	return p >= end || isspace((unsigned char)*p) || ispunct((unsigned char)*p);
}

#define MAX_WIDTH ((1 << 23) - 1)

/*
 * One conversion after '%': flags, width, l or ll, and a letter of "diuxXcps". Returns what follows it, NULL when it is none of these.
 * Only *this function's* formats reach printf, never the program's.
 */
static const char *convert(struct text *text, const char *p, const char *end, uint64_t arg)
{
	char format[16] = "%", string[128];
	size_t len = 1;
	int nr_longs = 0, width = 0;

	for (; p < end && *p && strchr("0+- ", *p); p++)
		if (!strchr(format + 1, *p))
			format[len++] = *p;
	for (; p < end && isdigit((unsigned char)*p); p++)
		width = width > MAX_WIDTH / 10 ? MAX_WIDTH : width * 10 + (*p - '0');
	format[len++] = '*';
	if (p < end && (*p == 's' || *p == 'c')) {
		if (*p == 's' && !ends_conversion(p + 1, end))
			return NULL;
		if (*p == 's')
			read_string(string, arg);
		else
			snprintf(string, sizeof(string), "%c", (int)(unsigned char)arg);
		append(text, strchr(format, '-') ? "%-*s" : "%*s", width, string);
		return p + 1;
	}
	if (p < end && *p == 'p') {
		append(text, strchr(format, '-') ? "%-*s%016llx" : "%*s%016llx", width > 16 ? width - 16 : 0, "", (unsigned long long)arg);
		/* Kernel extensions (%pI4, %pks...) print as plain pointers. */
		for (p++; p < end && isalnum((unsigned char)*p); p++)
			;
		return p;
	}
	while (p < end && *p == 'l' && nr_longs < 2) {
		nr_longs++;
		p++;
	}
	if (p >= end || !*p || !strchr("diuxX", *p))
		return NULL;
	if (!nr_longs)
		arg = *p == 'd' || *p == 'i' ? (uint64_t)(int64_t)(int32_t)arg : (uint32_t)arg;
	format[len++] = 'l';
	format[len++] = 'l';
	format[len++] = *p;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	append(text, format, width, (unsigned long long)arg);
#pragma GCC diagnostic pop
	return p + 1;
}

uint64_t bpf_helper_trace_printk(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5)
{
	const char *p = (const char *)(uintptr_t)r1, *end;
	uint64_t args[3] = { r3, r4, r5 };
	struct text text = { .len = 0 };
	unsigned nr_args = 0;
	size_t len;

	/* As the kernel: the format ends with its first zero, has no control characters, and no more than three conversions. */
	end = memchr(p, '\0', (uint32_t)r2);
	if (!end)
		return RESULT(-EINVAL);
	for (const char *q = p; q < end; q++)
		if ((unsigned char)*q < 128 && !isprint((unsigned char)*q) && !isspace((unsigned char)*q))
			return RESULT(-EINVAL);
	while (p < end) {
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
	len = text.len < sizeof(text.bytes) ? text.len : sizeof(text.bytes) - 1;
	while (len && text.bytes[len - 1] == '\n')
		len--;
	text.bytes[len] = '\0';
	shunt_logf(SHUNT_LOG_INFO, "%s", text.bytes);
	return text.len;
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
	return end - p >= 2 && p[0] == '0' && (p[1] | 0x20) == 'x';
}

/* In the kernel's Latin-1. */
static bool is_space(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r') || (unsigned char)c == 0xa0;
}

/* Space, an optional '-', digits of a base of 0 (by prefix), 8, 10 or 16. Returns the bytes read, or a negative errno. */
#define MAX_NUMBER 63
static int64_t parse(const char *text, uint64_t len, uint64_t flags, bool *is_negative, uint64_t *value)
{
	const char *p = text, *end, *first;
	unsigned base = (unsigned)flags;

	if (!text || !len || (flags != 0 && flags != 8 && flags != 10 && flags != 16))
		return -EINVAL;
	end = text + len;
	while (p < end && is_space(*p))
		p++;
	*is_negative = p < end && *p == '-';
	p += *is_negative;
	if (end - p > MAX_NUMBER)
		end = p + MAX_NUMBER;
	if (base == 0)
		base = has_hex_prefix(p, end) && end - p > 2 && digit_of(p[2]) < 16 ? 16 : p < end && *p == '0' ? 8 : 10;
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
	uint64_t value = 0;
	bool is_negative;
	int64_t len;

	/* First, as the kernel, also for errors. */
	memcpy((void *)(uintptr_t)r4, &value, sizeof(value));
	len = parse((const char *)(uintptr_t)r1, r2, r3, &is_negative, &value);
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
	uint64_t value = 0;
	bool is_negative;
	int64_t len;

	/* First, as the kernel, also for errors. */
	memcpy((void *)(uintptr_t)r4, &value, sizeof(value));
	len = parse((const char *)(uintptr_t)r1, r2, r3, &is_negative, &value);
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
