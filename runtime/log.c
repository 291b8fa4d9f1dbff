/* SPDX-License-Identifier: MIT */
/*
 * The log callback and the thread's last error. Expected load: failures and a few lines at start; so one mutex guards the
 * callback setting, and it is held while the callback runs so that shunt_set_log(NULL) returns only when no call is left in it.
 */
#include "runtime/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#define MESSAGE_MAX 1024

static pthread_mutex_t log_mutex = PTHREAD_MUTEX_INITIALIZER;
static shunt_log_fn *log_fn;
static void *log_user;
static enum shunt_log_level log_max;
/* Mirrors "log_fn wants this level" so that silent logging takes no lock. */
static int log_enabled = -1;

static _Thread_local char last_error[MESSAGE_MAX];

void shunt_set_log(shunt_log_fn *fn, void *user, enum shunt_log_level max_level)
{
	pthread_mutex_lock(&log_mutex);
	log_fn = fn;
	log_user = user;
	log_max = max_level;
	__atomic_store_n(&log_enabled, fn ? (int)max_level : -1, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&log_mutex);
}

const char *shunt_error(void)
{
	return last_error;
}

static void deliver(enum shunt_log_level level, const char *message)
{
	if ((int)level > __atomic_load_n(&log_enabled, __ATOMIC_RELAXED))
		return;
	pthread_mutex_lock(&log_mutex);
	if (log_fn && level <= log_max)
		log_fn(log_user, level, message);
	pthread_mutex_unlock(&log_mutex);
}

int shunt_fail(int err, const char *format, ...)
{
	/* Formatted aside: an argument may be shunt_error() itself, when an outer layer adds its context. */
	char message[MESSAGE_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	__builtin_memcpy(last_error, message, sizeof(message));
	deliver(SHUNT_LOG_ERROR, last_error);
	return -err;
}

void shunt_logf(enum shunt_log_level level, const char *format, ...)
{
	char message[MESSAGE_MAX];
	va_list args;

	if ((int)level > __atomic_load_n(&log_enabled, __ATOMIC_RELAXED))
		return;
	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	deliver(level, message);
}
