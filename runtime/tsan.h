/* SPDX-License-Identifier: MIT */
/*
 * What orders memory here without the thread sanitizer seeing it, grace periods of a liburcu that was built without it and sequences in
 * assembly, tells it by these. Nothing where it does not run.
 */
#ifndef RUNTIME_TSAN_H
#define RUNTIME_TSAN_H

#if defined(__SANITIZE_THREAD__)
#define SHUNT_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SHUNT_TSAN 1
#endif
#endif

#ifdef SHUNT_TSAN
void __tsan_acquire(void *addr);
void __tsan_release(void *addr);
/* What was done before a release of addr is seen after an acquire of it. */
#define SHUNT_TSAN_RELEASE(addr) __tsan_release(addr)
#define SHUNT_TSAN_ACQUIRE(addr) __tsan_acquire(addr)
#else
#define SHUNT_TSAN_RELEASE(addr) ((void)(addr))
#define SHUNT_TSAN_ACQUIRE(addr) ((void)(addr))
#endif

#endif
