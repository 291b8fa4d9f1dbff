/* SPDX-License-Identifier: MIT */
/*
 * What Shunt says. The library never prints, exits or aborts: every function that can fail returns 0 or a negative errno,
 * leaves one sentence about it for shunt_error(), and hands the same sentence to the log callback when one is set.
 */
#ifndef SHUNT_LOG_H
#define SHUNT_LOG_H

#include <shunt/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

enum shunt_log_level { SHUNT_LOG_ERROR, SHUNT_LOG_WARN, SHUNT_LOG_INFO, SHUNT_LOG_DEBUG };

/* Called with a finished sentence without newline; message is the caller's until it returns. May be called from any thread that
 * is inside a Shunt function, never with a Shunt lock held by another caller of the callback; it must not call Shunt. */
typedef void shunt_log_fn(void *user, enum shunt_log_level level, const char *message);

/* Sends messages up to max_level to fn; NULL silences. user must outlive the setting. MT-safe; last call wins. */
SHUNT_API void shunt_set_log(shunt_log_fn *fn, void *user, enum shunt_log_level max_level);

/* The sentence of the last failed Shunt call of this thread: names the file, section, symbol or instruction and what to do. Never
 * NULL; "" before the first failure. Valid until this thread's next Shunt call. MT-safe (thread-local). */
SHUNT_API const char *shunt_error(void);

#ifdef __cplusplus
}
#endif
#endif
