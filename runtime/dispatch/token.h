/* SPDX-License-Identifier: MIT */
/* Taking a token (shunt/reader.h) in two steps: what can fail before a change, what cannot after it. */
#ifndef RUNTIME_TOKEN_H
#define RUNTIME_TOKEN_H

#include <shunt/reader.h>

struct shunt_token_item;

/* Memory for a token; free() it when it is not queued. -ENOMEM. */
int shunt_token_prepare(struct shunt_token_item **out);
/* Takes item over; the token for all that was unpublished before. */
uint64_t shunt_token_queue(struct shunt_token_item *item);

/* Its lock, for fork (dispatcher.c). */
void shunt_token_lock(void);
void shunt_token_unlock(void);

#endif
