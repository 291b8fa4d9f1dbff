/* SPDX-License-Identifier: MIT */
/*
 * Tokens: numbers for moments that readers pass. Each is an item in the grace queue that does nothing but say that its turn came; the queue
 * keeps order, so the highest number that was released stands for all below.
 */
#include "runtime/dispatch/token.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "runtime/grace.h"
#include "runtime/log.h"

struct shunt_token_item {
	struct shunt_grace_item grace;
	uint64_t token;
};

static pthread_mutex_t token_mutex = PTHREAD_MUTEX_INITIALIZER; /* numbers go out in the order in which items are queued */
static uint64_t newest;
static uint64_t passed;

static void pass(uint64_t token)
{
	uint64_t before = __atomic_load_n(&passed, __ATOMIC_RELAXED);

	while (before < token && !__atomic_compare_exchange_n(&passed, &before, token, 1, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		;
}

static void release(struct shunt_grace_item *grace)
{
	struct shunt_token_item *item = (struct shunt_token_item *)grace;

	pass(item->token);
	free(item);
}

int shunt_token_prepare(struct shunt_token_item **out)
{
	*out = calloc(1, sizeof(**out));
	return *out ? 0 : shunt_fail(ENOMEM, "no memory for a token");
}

uint64_t shunt_token_queue(struct shunt_token_item *item)
{
	uint64_t token;

	item->grace.release = release;
	pthread_mutex_lock(&token_mutex);
	token = item->token = ++newest;
	shunt_grace_defer(&item->grace);
	pthread_mutex_unlock(&token_mutex);
	return token;
}

void shunt_token_lock(void)
{
	pthread_mutex_lock(&token_mutex);
}

void shunt_token_unlock(void)
{
	pthread_mutex_unlock(&token_mutex);
}

int shunt_token_take(uint64_t *token)
{
	struct shunt_token_item *item;
	int err = shunt_token_prepare(&item);

	if (!err)
		*token = shunt_token_queue(item);
	return err;
}

bool shunt_token_passed(uint64_t token)
{
	return __atomic_load_n(&passed, __ATOMIC_ACQUIRE) >= token;
}

int shunt_token_wait(uint64_t token)
{
	int err;

	if (shunt_token_passed(token))
		return 0;
	/* All that is queued is more than asked for, and the one thing that also works where the host reclaims, and in a fork's child whose
	 * parent was just releasing the item. */
	err = shunt_quiesce();
	if (!err)
		pass(token);
	return err;
}
