/* SPDX-License-Identifier: MIT */
/* Between the per-CPU area and the operations on its objects. */
#ifndef RUNTIME_PERCPU_H
#define RUNTIME_PERCPU_H

/* Around fork: nobody is in the middle of a list that is changed under a lock. */
void shunt_percpu_lock_lists(void);
void shunt_percpu_unlock_lists(void);

#endif
