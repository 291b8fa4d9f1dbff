/* SPDX-License-Identifier: MIT */
/*
 * Dispatchers: a hook with attached programs, whose calls are direct jumps.
 *
 * A call names its program by address. The dispatcher's stub (one jump, the only instruction ever patched) leads to a tree of
 * compares and direct jumps over the attached programs, and to the fallback, a plain indirect jump, when none matches. The
 * tree only ever jumps to the address that the pointer already names: a stale tree is slow, never wrong.
 *
 * From plain C:
 *	SHUNT_DISPATCHER_DEFINE(xdp, unsigned, (void *ctx))	// defines: unsigned xdp(void *ctx, const void *prog)
 *	...
 *	shunt_dispatcher_attach(shunt_dispatcher_xdp(), prog);
 *	shunt_read_begin(); verdict = xdp(ctx, prog); shunt_read_end();
 * From IR: mark the indirect call `!shunt.dispatch !{!"xdp"}` and run the pass shunt-dispatch.
 */
#ifndef SHUNT_DISPATCHER_H
#define SHUNT_DISPATCHER_H

#include <stdbool.h>
#include <stdio.h>
#include <shunt/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

struct shunt_dispatcher;

enum shunt_plan_kind {
	SHUNT_PLAN_DEFAULT,  /* by count: a chain up to 3; then heavy ones first, and a balanced tree that foreign pointers leave early */
	SHUNT_PLAN_LINEAR,   /* one compare after the other, heaviest program first */
	SHUNT_PLAN_BALANCED,
	SHUNT_PLAN_KERNEL,   /* the shape of the Linux BPF dispatcher: the baseline of our benchmark */
	SHUNT_PLAN_WEIGHTED, /* the whole tree by weight: what is called often is found after few compares */
};

enum shunt_miss_kind { /* how a call reaches a program that is not attached */
	SHUNT_MISS_JUMP,      /* a plain indirect jump */
	SHUNT_MISS_RETPOLINE, /* x86-64: not predicted from the branch target buffer; arm64 jumps */
	SHUNT_MISS_LFENCE,    /* x86-64: lfence, then the jump; arm64 jumps */
	/* What this machine's kernel does itself, by /sys/devices/system/cpu/vulnerabilities/spectre_v2; lfence in place of a retpoline where
	 * the process runs with a shadow stack, which a retpoline's return does not match. */
	SHUNT_MISS_AUTO,
};

struct shunt_dispatcher_options {
	enum shunt_plan_kind plan;
	struct shunt_arena *arena; /* where trees live; NULL: the default arena. Outlives the dispatcher */
	enum shunt_miss_kind miss;
};

/* Makes a dispatcher with an empty tree: every call takes the fallback. name must be unique in the process, matches
 * [A-Za-z_][A-Za-z0-9_]*, at most 63 bytes, and is copied. options may be NULL. -EEXIST: the name is taken (by
 * shunt_dispatcher_find's dispatcher); -EINVAL; -ENOMEM. MT-safe. */
SHUNT_API int shunt_dispatcher_create(const char *name, const struct shunt_dispatcher_options *options,
				      struct shunt_dispatcher **out);

/* -EBUSY while programs are attached; -EPERM for one that SHUNT_DISPATCHER_DEFINE made. The caller sees to it that no thread
 * calls through it and no generated code with its stub address is left. MT-safe. */
SHUNT_API int shunt_dispatcher_destroy(struct shunt_dispatcher *dispatcher);

/* The dispatcher of that name, or NULL. MT-safe. */
SHUNT_API struct shunt_dispatcher *shunt_dispatcher_find(const char *name);

/* The stub that generated code calls, with the program pointer in the nest register (r10; arm64 x18). Constant for the
 * dispatcher's life. It lies in an executable page; direct branches reach it from the dispatcher's arena. MT-safe. */
SHUNT_API const void *shunt_dispatcher_stub(const struct shunt_dispatcher *dispatcher);

/* The arena where the dispatcher's trees live: programs allocated in it are in direct reach. NULL when a host image's stub
 * could not be adopted (shunt_error says why). MT-safe. */
SHUNT_API struct shunt_arena *shunt_dispatcher_arena(struct shunt_dispatcher *dispatcher);

/*
 * Attaches program (its entry address) so that calls that name it become direct jumps. Counted: attached twice, it needs two
 * detaches, and from the next change of the set on the default plan tests it before those attached less often. Takes effect
 * for calls that begin after the return at the latest. On failure the dispatcher is as it was. -ENOMEM; -ERANGE: out of
 * direct-jump reach of the arena (calls of it still work, through the fallback). MT-safe, never waits for readers.
 */
SHUNT_API int shunt_dispatcher_attach(struct shunt_dispatcher *dispatcher, const void *program);

/* Takes one attachment of program back. Running calls go on; free the program's block with shunt_pack_free, which waits for them.
 * -ENOENT: not attached. -ENOMEM: could not build the smaller tree, dispatcher as it was. MT-safe, never waits. */
SHUNT_API int shunt_dispatcher_detach(struct shunt_dispatcher *dispatcher, const void *program);

/* As attach / detach of each in one patch; all or none. */
SHUNT_API int shunt_dispatcher_attach_many(struct shunt_dispatcher *dispatcher, const void *const *programs, size_t nr);
SHUNT_API int shunt_dispatcher_detach_many(struct shunt_dispatcher *dispatcher, const void *const *programs, size_t nr);

/* Detaches `from` (-ENOENT when it is not attached) and attaches `to` in one patch; counts stay with `to`,
 * on top of those it has. from == to changes nothing. */
SHUNT_API int shunt_dispatcher_replace(struct shunt_dispatcher *dispatcher, const void *from, const void *to);

/* Changes plan and fallback, in one patch; also of a dispatcher that SHUNT_DISPATCHER_DEFINE made, which begins with the default plan and a
 * plain jump. -EINVAL, -ENOMEM: dispatcher as it was. An image's dispatcher with another fallback than a plain jump may need memory to become
 * empty, so that detach can fail then. MT-safe, never waits. */
SHUNT_API int shunt_dispatcher_set_plan(struct shunt_dispatcher *dispatcher, enum shunt_plan_kind plan, enum shunt_miss_kind miss);

/*
 * Says how often each of nr attached programs is called, in any unit, in one patch. The default plan tests up to 4 programs that outweigh
 * the lightest before the others; where up to 4 have three quarters of all weight it tests these alone, and the others, though attached, are
 * reached by the fallback, which costs a rare call less than a tree does (but not while hits are counted, nor with SHUNT_MISS_LFENCE). The
 * weighted plan takes its whole shape from weights, linear goes from heavy to light. A weight stays until the program's last detach, replace
 * passes it on, and 0 takes it back: a program without one weighs as much as it is attached often. -ENOENT: one is not attached; -ENOMEM;
 * on failure all is as it was. MT-safe, never waits.
 */
SHUNT_API int shunt_dispatcher_set_weights(struct shunt_dispatcher *dispatcher, const void *const *programs, const uint32_t *weights,
					   size_t nr);

/*
 * Counts from now on how often calls reach each attached program by the tree, or stops that; in one patch. Off at first. A call that hits then
 * takes four or five instructions more, 0.3 to 1 ns (bench_dispatch); one that misses, nothing. Counts are kept for each CPU and added to
 * without atomics, so one may be lost when a thread moves to another CPU at that very moment; where CPU numbers are not to be had they are
 * kept in one place and threads lose more. -ENOMEM: as it was. MT-safe, never waits.
 */
SHUNT_API int shunt_dispatcher_count_hits(struct shunt_dispatcher *dispatcher, bool on);

struct shunt_dispatcher_program {
	const void *program;
	uint32_t nr_attached;
	uint32_t weight;  /* 0: none was set */
	uint64_t nr_hits; /* since it was attached and hits were counted */
};
/* The programs, in the order of their addresses: fills out up to nr of them, returns how many there are. MT-safe. */
SHUNT_API size_t shunt_dispatcher_get_programs(struct shunt_dispatcher *dispatcher, struct shunt_dispatcher_program *out, size_t nr);

struct shunt_dispatcher_stats {
	uint32_t nr_programs;  /* distinct programs attached */
	uint32_t tree_depth;   /* compares on the longest path, 0 when empty */
	uint32_t tree_len;     /* bytes of the current tree, fallback included */
	uint64_t nr_attaches;
	uint64_t nr_detaches;
	uint64_t nr_patches;   /* stores of the stub word */
	const void *stub;
	const void *tree;      /* where the stub jumps */
	enum shunt_plan_kind plan;
	enum shunt_miss_kind miss; /* what SHUNT_MISS_AUTO came to */
	uint32_t head_len;     /* bytes at `tree`: tree_len, or less where a large tree is made of parts */
	uint32_t nr_parts;     /* 0: in one piece. From 65 programs on the default plan makes parts, so that a change costs one of them */
	bool counts_hits;
	bool leaves_rare;      /* the tree tests hot programs only: shunt_dispatcher_set_weights */
};
SHUNT_API void shunt_dispatcher_get_stats(const struct shunt_dispatcher *dispatcher, struct shunt_dispatcher_stats *out);

/* Calls fn for every piece of the current tree's code, the one at `tree` first, then the parts in order of their programs, until it returns
 * non-zero, and returns that, else 0; -EINVAL without dispatcher or fn. The dispatcher's lock is held: fn must not call for this
 * dispatcher. len is in bytes. MT-safe. */
typedef int shunt_code_fn(void *user, const void *code, size_t len);
SHUNT_API int shunt_dispatcher_each_code(struct shunt_dispatcher *dispatcher, shunt_code_fn *fn, void *user);

/* A name for a program, or NULL: its address will do. */
typedef const char *shunt_name_fn(void *user, const void *program);

/* Writes what the dispatcher's tree asks, in which order and where each answer leads, as a graph in Graphviz's dot language. name may be NULL;
 * it is called without locks. -ENOMEM, -EIO. MT-safe. */
SHUNT_API int shunt_dispatcher_draw(struct shunt_dispatcher *dispatcher, shunt_name_fn *name, void *user, FILE *out);

/* A word for each plan and each fallback, for reports and options; never NULL. */
SHUNT_API const char *shunt_plan_name(enum shunt_plan_kind kind);
SHUNT_API const char *shunt_miss_name(enum shunt_miss_kind kind);

#ifdef __cplusplus
}
#endif

#include <shunt/dispatcher_define.h>
#endif
