/* SPDX-License-Identifier: MIT */
/* How every room of the library reports: one sentence, kept for shunt_error() and handed to the log callback. */
#ifndef RUNTIME_LOG_H
#define RUNTIME_LOG_H

#include <stdarg.h>
#include <shunt/log.h>

/* Records the sentence and returns -err (err is a positive errno). "return shunt_fail(EINVAL, "map '%s': ...", name);" */
SHUNT_API int shunt_fail(int err, const char *format, ...) __attribute__((format(printf, 2, 3)));
SHUNT_API void shunt_logf(enum shunt_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
