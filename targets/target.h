/* SPDX-License-Identifier: MIT */
/*
 * What a target must provide; one struct a CPU, both built on every host. Pure: bytes in, bytes out; no OS, no LLVM.
 *
 * Registers of the machine contract (docs/architecture.md): the program pointer arrives in the nest register, r10 (x86-64) or
 * x18 (arm64); only r11, or x16 and x17, and the flags may be clobbered besides. Stub and tree leave all others, the stack and the
 * return address as they found them.
 *
 *	stub slot:   16 aligned bytes; the second 8-byte word holds one direct jump and is the only thing ever patched
 *	C entry:     the same, for a call from C whose program is the trailing integer argument: moves it to the nest register
 *	tree:        a plan's compares and direct jumps, then the fallback
 *	veneer:      an absolute jump for a helper out of direct reach
 *	chain:       a hook's calls of several programs; an ordinary function that keeps to the C calling convention, and needs no frame of
 *	             the caller's. It cannot be unwound through
 */
#ifndef TARGETS_TARGET_H
#define TARGETS_TARGET_H

#include "targets/chain.h"
#include "targets/code.h"
#include "targets/plan.h"
#include "targets/tree.h"

#define SHUNT_STUB_LEN 16u
#define SHUNT_STUB_WORD 8u /* offset of the patched 8-byte word in the slot */

struct shunt_target {
	const char *name;         /* "x86_64", "arm64" */
	int64_t branch_reach;     /* a direct jump reaches displacements in [-reach, reach) */
	uint64_t default_arena;   /* bytes */
	unsigned max_c_args;      /* integer arguments before the program in a C entry */
	uint32_t elf_machine;     /* EM_X86_64, EM_AARCH64 */

	/* Fills len bytes with trapping instructions: int3; arm64 a permanently undefined word (len and p multiples of 4). */
	void (*fill_traps)(void *p, size_t len);
	/* True when all len bytes are traps. */
	int (*is_traps)(const void *p, size_t len);

	/* Emits a slot at a 16-byte aligned address: landing pad (endbr64; bti c), padding, jump to dest in the second word. */
	void (*emit_stub)(struct shunt_code *code, uint64_t dest);
	/* The second word of the slot at `slot`, jumping to dest: 0, or -ERANGE. Bytes around the jump are those that emit_stub wrote. */
	int (*encode_stub_word)(uint64_t slot, uint64_t dest, uint64_t *word);
	/* Where that word jumps: 0, or -EINVAL when it holds no such jump. */
	int (*decode_stub_word)(uint64_t slot, uint64_t word, uint64_t *dest);

	/* Emits a C entry: landing pad, move integer argument number nr_args (0-based: the one after nr_args others) to the nest
	 * register, jump to the slot. -EINVAL (sticky) above max_c_args. */
	void (*emit_c_entry)(struct shunt_code *code, unsigned nr_args, uint64_t slot);

	/*
	 * Emits plan's tree. Sticky -ERANGE when a program is out of reach of code's address, -EINVAL when the plan breaks its rules.
	 * The length depends on that address modulo 64 only, so a tree may be measured (-ERANGE or not) before it has a place.
	 */
	void (*emit_tree)(struct shunt_code *code, const struct shunt_plan *plan, enum shunt_fallback fallback);
	/* The first half of that, for an address that is `addr` modulo 64; see targets/tree.h for the second. 0, -EINVAL, -ENOMEM. */
	int (*lay_out_tree)(struct shunt_tree *tree, const struct shunt_plan *plan, enum shunt_fallback fallback, uint64_t addr);

	/* Emits a function that returns value, in at most 16 bytes where value is 0. */
	void (*emit_return)(struct shunt_code *code, uint64_t value);
	/* Emits a chain. Sticky -ERANGE when a program is out of reach, -EINVAL above max_c_args + 1 arguments or for another ret_len. The
	 * length does not depend on the address. */
	void (*emit_chain)(struct shunt_code *code, const struct shunt_chain *chain);

	/* Emits a jump to where the 8 bytes at the aligned address `word` say, wherever that is; at most 16 bytes, clobbers x16. Sticky
	 * -ERANGE when word is out of reach of code's address (2 GiB, arm64 4 GiB), -EINVAL when it is not aligned. */
	void (*emit_word_jump)(struct shunt_code *code, uint64_t word);

	/* Emits an absolute jump to dest; at most 32 bytes, clobbers r11 or x16. */
	void (*emit_veneer)(struct shunt_code *code, uint64_t dest);
};

extern const struct shunt_target shunt_target_x86_64;
extern const struct shunt_target shunt_target_arm64;

/* The target this library runs on; never NULL (others do not build). */
const struct shunt_target *shunt_target_host(void);
/* By name ("x86_64", "arm64"), or NULL. */
const struct shunt_target *shunt_target_find(const char *name);

#endif
