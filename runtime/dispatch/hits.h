/* SPDX-License-Identifier: MIT */
/*
 * How often each program of a dispatcher is jumped to, when that is asked for: words that the tree adds to (targets/plan.h), one row of them
 * for each CPU, so that CPUs do not take lines from each other.
 *
 * Exact but for what a thread adds that moves to another CPU between reading its number and adding (on arm64 also between load and store),
 * while a thread there adds to the same program. Where the system has no CPU numbers in reach there is one row, and additions
 * at the same moment may be lost.
 *
 * All of it under the dispatcher's mutex but the additions; words are read while they are added to, each in one piece.
 */
#ifndef RUNTIME_HITS_H
#define RUNTIME_HITS_H

#include <stdint.h>

#include "runtime/dispatch/dispatcher.h"

struct shunt_hits;

/* For nr_programs and some more. -ENOMEM. */
int shunt_hits_create(uint32_t nr_programs, struct shunt_hits **out);
/* Gives the memory back: at once when no tree ever knew it, else after the readers that are in such a tree. */
void shunt_hits_destroy(struct shunt_hits *hits);
void shunt_hits_retire(struct shunt_hits *hits);

/*
 * Gives every entry of list that has no word (SHUNT_NO_WORD) one that neither list has, with a count of 0. More rows are made where there are
 * not enough; trees made before go on with theirs, which count too. -ENOMEM.
 */
int shunt_hits_assign(struct shunt_hits *hits, const struct shunt_dispatcher_entry *old, uint32_t nr_old, struct shunt_dispatcher_entry *list,
		      uint32_t nr);
/* For a plan; words is the caller's. */
struct shunt_plan_counts shunt_hits_counts(const struct shunt_hits *hits, const uint32_t *words);
uint64_t shunt_hits_of(const struct shunt_hits *hits, uint32_t word);

#endif
