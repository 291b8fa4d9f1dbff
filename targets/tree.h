/* SPDX-License-Identifier: MIT */
/*
 * What the tree emitters of all targets share: checking a plan and laying it out.
 *
 * A target says how long each node is when its jump to another node is short, and by how much a long one is longer. All jumps begin
 * short and grow until every one reaches: only numbers are added up until then, and each instruction is emitted once. The emitter checks
 * that every node came out where the layout has it.
 *
 * A length depends on the programs' distances from each other and on the address modulo 64, never on the distance from the tree
 * to the programs: a tree may be measured before it has an address.
 */
#ifndef TARGETS_TREE_H
#define TARGETS_TREE_H

#include <errno.h>

#include "targets/code.h"
#include "targets/plan.h"

#define SHUNT_CACHE_LINE 64u
#define SHUNT_TREE_WORDS_MAX (1u << 20) /* of a row of counts */

struct shunt_tree;

struct shunt_tree_ops {
	uint64_t max_span;  /* programs further apart are compared without an anchor, whatever the plan says */
	int64_t short_reach; /* bytes forward from the end of a node */
	/* is_anchored is known. Finds out is_in_chunks, fills len of every node, as of a short jump, and calls shunt_tree_jumps(). */
	void (*measure)(struct shunt_tree *tree);
	/* Emits every node, between shunt_tree_begin_node() and shunt_tree_end_node(). */
	void (*emit)(struct shunt_tree *tree, struct shunt_code *code);
	void (*emit_nops)(struct shunt_code *code, size_t len);
	/* Of a plan with counts: bytes of what stands between an EQUAL and its program, and that itself. literal: where rows' address lies. */
	uint32_t (*count_len)(const struct shunt_tree *tree);
	void (*emit_count)(const struct shunt_tree *tree, struct shunt_code *code, uint32_t program, uint64_t literal);
};

struct shunt_tree {
	const struct shunt_plan *plan;
	enum shunt_fallback fallback;
	const struct shunt_tree_ops *ops;
	uint64_t low, high;    /* the plan's bounds */
	bool is_anchored;      /* compares are relative to an anchor of the target's choice */
	bool is_in_chunks;     /* arm64: and in units of 64 bytes */
	bool reuses_flags;     /* see shunt_tree_has_flags() */
	uint32_t first_fallback; /* the first node that is one */
	uint32_t counts_offset; /* with counts: of what EQUALs jump to; node number `to` of them is an EQUAL's */
	uint32_t literal_offset;
	uint32_t len;          /* bytes, once laid out */
	size_t start;          /* of the tree in the buffer */
	uint32_t *jumps;       /* the nodes whose jump is short and may have to grow */
	uint32_t nr_jumps;
	struct shunt_tree_node {
		uint32_t offset;  /* from the tree's start */
		uint32_t to;      /* the node that its last instruction jumps to, if that may be too far for a short jump */
		uint16_t len;     /* without padding before it */
		uint8_t growth;   /* what the long form of that jump adds */
		bool is_long;
		bool is_jumped_to;
		bool is_placed;     /* there may be padding before it */
		uint8_t align_mask; /* the bits of its address that are 0 */
	} *nodes;
};

/*
 * Lays plan out for an address that is `addr` modulo 64: 0 and tree->len is known, or -EINVAL for a plan that breaks the rules of
 * targets/plan.h, -ENOMEM. plan stays the caller's and outlives the tree. After 0, shunt_tree_fini() when done.
 */
int shunt_tree_lay_out(struct shunt_tree *tree, const struct shunt_plan *plan, enum shunt_fallback fallback, uint64_t addr,
		       const struct shunt_tree_ops *ops);
/* Emits a tree that is laid out; code stands at such an address. Sticky -ERANGE: a program or a part is out of reach; -ENOSPC. */
void shunt_tree_emit_laid_out(struct shunt_tree *tree, struct shunt_code *code);
void shunt_tree_fini(struct shunt_tree *tree);

/* All of these, for targets. */
void shunt_tree_emit(struct shunt_code *code, const struct shunt_plan *plan, enum shunt_fallback fallback,
		     const struct shunt_tree_ops *ops);

/* Address of a node. */
static inline uint64_t shunt_tree_addr(const struct shunt_tree *tree, const struct shunt_code *code, uint32_t node)
{
	return code->addr + tree->start + tree->nodes[node].offset;
}

/* Where an EQUAL jumps. */
static inline uint64_t shunt_tree_dest(const struct shunt_tree *tree, const struct shunt_code *code, uint32_t node)
{
	if (!tree->plan->counts)
		return tree->plan->programs[tree->plan->nodes[node].program];
	return code->addr + tree->start + tree->counts_offset + tree->nodes[node].to * tree->ops->count_len(tree);
}

/*
 * True when the flags hold this node's compare already, since the node before it made the same one and fell through, and
 * nothing else comes here. Off for literal plans.
 */
static inline bool shunt_tree_has_flags(const struct shunt_tree *tree, uint32_t node)
{
	const struct shunt_plan_node *nodes = tree->plan->nodes;

	return tree->reuses_flags && node > 0 && !tree->nodes[node].is_jumped_to &&
	       nodes[node - 1].op == SHUNT_PLAN_OP_ABOVE && nodes[node - 1].program == nodes[node].program;
}

/* The first fallback node after `node`. A valid plan has one. */
static inline uint32_t shunt_tree_next_fallback(const struct shunt_tree *tree, uint32_t node)
{
	do
		node++;
	while (tree->plan->nodes[node].op != SHUNT_PLAN_OP_FALLBACK);
	return node;
}

/* For measure: the node's last instruction jumps to node `to`, later in the tree, and is `growth` bytes longer where that is far. */
static inline void shunt_tree_jumps(struct shunt_tree *tree, uint32_t node, uint32_t to, uint8_t growth)
{
	tree->nodes[node].to = to;
	tree->nodes[node].growth = growth;
	tree->jumps[tree->nr_jumps++] = node;
}

static inline void shunt_tree_begin_node(struct shunt_tree *tree, struct shunt_code *code, uint32_t node)
{
	size_t gap = tree->start + tree->nodes[node].offset - code->len;

	if (gap)
		tree->ops->emit_nops(code, gap);
}

/* The node came out as it was laid out. */
static inline void shunt_tree_end_node(struct shunt_tree *tree, struct shunt_code *code, uint32_t node)
{
	if (code->len - tree->start != tree->nodes[node].offset + tree->nodes[node].len)
		shunt_code_fail(code, EINVAL);
}

#endif
