/* SPDX-License-Identifier: MIT */
/* What the pack benchmark asks of every allocator that it compares: the same program in, an address to call out. */
#ifndef BENCH_PEER_H
#define BENCH_PEER_H

#include <stddef.h>
#include <stdint.h>
#include <shunt/pack.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A host's record of a program: a cache line, whoever's the program is. */
struct peer_program {
	void *rx;                 /* where it runs */
	void *handle;             /* the peer's own */
	struct shunt_block block; /* Shunt's */
	void *other[2];
} __attribute__((aligned(64)));

struct peer {
	const char *name;
	int (*open)(void);                                                             /* 0, or why not has been printed */
	int (*install)(const void *code, size_t len, struct peer_program *out);        /* 0: out->rx may be called */
	int (*release)(struct peer_program *program);
	int (*settle)(void);                                                           /* NULL, or: finish what releases left for later */
	size_t (*metadata)(void);                                                      /* NULL: unknown, it is in the memory measured */
	const char *(*note)(void);                                                     /* NULL, or what the machine gave */
	uint32_t nr_released;                                                          /* 0: all are; or only so many, as each takes so long */
};

extern const struct peer peer_shunt;
extern const struct peer peer_shunt_base; /* 4 KiB pages */
extern const struct peer peer_page;
extern const struct peer peer_asmjit_rwx;
extern const struct peer peer_asmjit_dual;
extern const struct peer peer_llvm;     /* the class alone */
extern const struct peer peer_llvm_orc; /* what the C API gives */

#ifdef __cplusplus
}
#endif
#endif
