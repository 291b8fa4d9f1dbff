/* SPDX-License-Identifier: MIT */
/* What the rest of the runtime asks adopt.c. */
#ifndef RUNTIME_ADOPT_H
#define RUNTIME_ADOPT_H

/* Its lock, for fork (dispatcher.c). */
void shunt_adopt_lock(void);
void shunt_adopt_unlock(void);

/* The stub page of the first loaded image that defines a dispatcher, or NULL: the default arena belongs beside it, so that
 * programs in it are in direct reach of that image's trees. No lock, MT-safe. */
const void *shunt_adopt_near_addr(void);

#endif
