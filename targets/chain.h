/* SPDX-License-Identifier: MIT */
/*
 * A chain: the code of a hook that calls several programs one after the other, each with the caller's arguments, by direct calls.
 *
 *	for each link:  result = program(arguments); unless bit `result` of its mask is set, return result
 *	at the end      return verdict
 */
#ifndef TARGETS_CHAIN_H
#define TARGETS_CHAIN_H

#include <stdint.h>

#define SHUNT_CHAIN_ALWAYS UINT64_MAX /* go on whatever the result is, also one above 63 */

struct shunt_chain_link {
	uint64_t program;
	uint64_t continue_on; /* bit r: result r goes on; results above 63 return */
};

struct shunt_chain {
	const struct shunt_chain_link *links;
	uint32_t nr_links;
	unsigned nr_args;  /* integer arguments, in registers */
	unsigned ret_len;  /* bytes of a result that count: 1, 2, 4 or 8 */
	uint64_t verdict;
};

#endif
