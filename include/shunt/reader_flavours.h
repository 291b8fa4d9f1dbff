/* SPDX-License-Identifier: MIT */
/*
 * What SHUNT_READER makes of read sections; included by shunt/reader.h, which explains it. Every flavour has the same functions, so that
 * a host is written once:
 *
 *	int shunt_thread_register(void), void shunt_thread_unregister(void)	first and last of each thread that reads; -EBUSY
 *	shunt_read_begin(), shunt_read_end()
 *	shunt_quiescent(), shunt_offline(), shunt_online()			nothing but for qsbr
 */
#ifndef SHUNT_READER_FLAVOURS_H
#define SHUNT_READER_FLAVOURS_H

#define SHUNT_READER_BP 0
#define SHUNT_READER_QSBR 1
#define SHUNT_READER_MEMB 2
#define SHUNT_READER_HOST 3

#ifndef SHUNT_READER
#define SHUNT_READER SHUNT_READER_BP
#endif

#if SHUNT_READER == SHUNT_READER_QSBR

#include <urcu/urcu-qsbr.h>

static inline bool shunt_qsbr_step_out(void)
{
	if (!urcu_qsbr_read_ongoing())
		return false;
	urcu_qsbr_thread_offline();
	return true;
}

static inline void shunt_qsbr_step_in(void)
{
	urcu_qsbr_thread_online();
}

static inline int shunt_thread_register(void)
{
	const struct shunt_reader_ops ops = { SHUNT_FLAVOUR_QSBR, urcu_qsbr_synchronize_rcu, 0, shunt_qsbr_step_out, shunt_qsbr_step_in, 0 };
	int err = shunt_reader_use(&ops);

	if (!err)
		urcu_qsbr_register_thread();
	return err;
}

static inline void shunt_thread_unregister(void)
{
	urcu_qsbr_unregister_thread();
}

#define shunt_read_begin() urcu_qsbr_read_lock()
#define shunt_read_end() urcu_qsbr_read_unlock()
#define shunt_quiescent() urcu_qsbr_quiescent_state()
#define shunt_offline() urcu_qsbr_thread_offline()
#define shunt_online() urcu_qsbr_thread_online()

#else /* not qsbr */

#if SHUNT_READER == SHUNT_READER_MEMB

#include <urcu/urcu-memb.h>

static inline bool shunt_memb_is_reading(void)
{
	return urcu_memb_read_ongoing();
}

static inline int shunt_thread_register(void)
{
	const struct shunt_reader_ops ops = { SHUNT_FLAVOUR_MEMB, urcu_memb_synchronize_rcu, shunt_memb_is_reading, 0, 0, 0 };
	int err = shunt_reader_use(&ops);

	if (!err)
		urcu_memb_register_thread();
	return err;
}

static inline void shunt_thread_unregister(void)
{
	urcu_memb_unregister_thread();
}

#define shunt_read_begin() urcu_memb_read_lock()
#define shunt_read_end() urcu_memb_read_unlock()

#elif SHUNT_READER == SHUNT_READER_HOST || SHUNT_READER == SHUNT_READER_BP

static inline int shunt_thread_register(void)
{
	return 0;
}

static inline void shunt_thread_unregister(void)
{
}

#if SHUNT_READER == SHUNT_READER_HOST
#if !defined(SHUNT_HOST_READ_BEGIN) || !defined(SHUNT_HOST_READ_END)
#error "SHUNT_READER_HOST needs SHUNT_HOST_READ_BEGIN() and SHUNT_HOST_READ_END()"
#endif
#define shunt_read_begin() SHUNT_HOST_READ_BEGIN()
#define shunt_read_end() SHUNT_HOST_READ_END()
#endif

#else
#error "SHUNT_READER is none of SHUNT_READER_BP, SHUNT_READER_QSBR, SHUNT_READER_MEMB and SHUNT_READER_HOST"
#endif

static inline void shunt_quiescent(void)
{
}

static inline void shunt_offline(void)
{
}

static inline void shunt_online(void)
{
}

#endif /* not qsbr */
#endif
