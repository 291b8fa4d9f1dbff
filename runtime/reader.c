/* SPDX-License-Identifier: MIT */
/*
 * A second kind of reader beside bp's. The library itself and whatever is compiled for bp keeps using bp sections, so a grace period is one of
 * bp and then one of the flavour that the host chose; bp's costs nothing where nobody is in a section.
 *
 * Who synchronises: `ops` is set once and never changes; `lost` is set in a fork's child before it has a second thread.
 */
#include "runtime/reader.h"

#include <errno.h>
#include <pthread.h>

#include "runtime/log.h"

static struct shunt_reader_ops ops_copy;
static const struct shunt_reader_ops *ops;
static pthread_mutex_t ops_mutex = PTHREAD_MUTEX_INITIALIZER;
static bool lost;

static const char *flavour_name(enum shunt_reader_flavour flavour)
{
	static const char *const names[] = { "bp", "qsbr", "memb", "host" };

	return (unsigned int)flavour < sizeof(names) / sizeof(names[0]) ? names[flavour] : "unknown";
}

static const struct shunt_reader_ops *current(void)
{
	return __atomic_load_n(&ops, __ATOMIC_ACQUIRE);
}

int shunt_reader_use(const struct shunt_reader_ops *wanted)
{
	int err = 0;

	if (!wanted || (unsigned int)wanted->flavour > SHUNT_FLAVOUR_HOST || (wanted->flavour != SHUNT_FLAVOUR_BP && !wanted->synchronize))
		return shunt_fail(EINVAL, "a reader flavour needs a kind and a way to wait for its readers");
	/* Always there. */
	if (wanted->flavour == SHUNT_FLAVOUR_BP)
		return 0;
	pthread_mutex_lock(&ops_mutex);
	/* Tables are static memory of each file that is compiled for a flavour: another copy of the same one is the same. */
	if (ops && (ops->flavour != wanted->flavour || (wanted->flavour == SHUNT_FLAVOUR_HOST && ops->synchronize != wanted->synchronize))) {
		err = shunt_fail(EBUSY, "readers of flavour %s cannot register: another part of this process was compiled for %s (SHUNT_READER), "
				 "one of them has to change", flavour_name(wanted->flavour), flavour_name(ops->flavour));
	} else if (!ops) {
		ops_copy = *wanted;
		__atomic_store_n(&ops, &ops_copy, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&ops_mutex);
	return err;
}

void shunt_reader_synchronize(void)
{
	const struct shunt_reader_ops *use = current();

	if (use)
		use->synchronize();
}

bool shunt_reader_is_reading(void)
{
	const struct shunt_reader_ops *use = current();

	return use && use->is_reading && use->is_reading();
}

bool shunt_reader_step_out(void)
{
	const struct shunt_reader_ops *use = current();

	return use && use->step_out && use->step_out();
}

void shunt_reader_step_in(bool stepped_out)
{
	if (stepped_out)
		current()->step_in();
}

void shunt_reader_fork_prepare(void)
{
	pthread_mutex_lock(&ops_mutex);
}

void shunt_reader_fork_parent(void)
{
	pthread_mutex_unlock(&ops_mutex);
}

void shunt_reader_fork_child(void)
{
	const struct shunt_reader_ops *use = current();

	/* This thread locked it before the fork. */
	pthread_mutex_unlock(&ops_mutex);
	if (use && !(use->after_fork_child && use->after_fork_child()))
		lost = true;
}

int shunt_reader_check(const char *what)
{
	if (!lost)
		return 0;
	return shunt_fail(ENOTSUP, "%s: this process was forked from one with %s readers, which a child cannot wait for; what it detaches and frees stays "
			  "until exec. Readers of flavour bp survive fork", what, flavour_name(current()->flavour));
}

bool shunt_reader_is_lost(void)
{
	return lost;
}
