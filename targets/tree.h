/* SPDX-License-Identifier: MIT */
/*
 * What the tree emitters of all targets share: checking a plan and laying it out.
 *
 * A target says how long each node is when its jump to another node is short, and by how much a long one is longer. All jumps begin
 * short and grow until every one reaches: only numbers are added up until then, and each instruction is emitted once. The emitter checks
 * that every node came out where the layout has it.
 *
 * A length depends on the programs' distances from each other and on the address modulo 16, never on the distance from the tree
 * to the programs: a tree may be measured before it has an address.
 */
#ifndef TARGETS_TREE_H
#define TARGETS_TREE_H

#include "targets/code.h"
#include "targets/plan.h"

struct shunt_tree {
	const struct shunt_plan *plan;
	enum shunt_fallback fallback;
	bool is_anchored;      /* compares are relative to an anchor of the target's choice */
	bool is_in_chunks;     /* arm64: and in units of 64 bytes */
	bool reuses_flags;     /* see shunt_tree_has_flags() */
	size_t start;          /* of the tree in the buffer */
	struct shunt_tree_node {
		uint32_t offset;  /* from the tree's start */
		uint32_t len;     /* without padding before it */
		uint32_t to;      /* the node that its last instruction jumps to, or SHUNT_TREE_NOWHERE */
		uint8_t growth;   /* what the long form of that jump adds; 0: it has one form, which reaches */
		bool is_long;
		bool is_jumped_to;
	} *nodes;
};

#define SHUNT_TREE_NOWHERE UINT32_MAX

struct shunt_tree_ops {
	uint64_t max_span;  /* programs further apart are compared without an anchor, whatever the plan says */
	int64_t short_reach; /* bytes forward from the end of a node */
	/* NULL, or: is_anchored is known, is_in_chunks is to be found out. */
	void (*begin)(struct shunt_tree *tree);
	/* Fills len, to and growth of a node whose jump is short. */
	void (*measure_node)(const struct shunt_tree *tree, uint32_t node, struct shunt_tree_node *out);
	void (*emit_node)(struct shunt_tree *tree, struct shunt_code *code, uint32_t node);
	void (*emit_nops)(struct shunt_code *code, size_t len);
};

/* Emits a tree. Sticky -EINVAL for a plan that breaks the rules of targets/plan.h, -ENOMEM without memory for the layout. */
void shunt_tree_emit(struct shunt_code *code, const struct shunt_plan *plan, enum shunt_fallback fallback,
		     const struct shunt_tree_ops *ops);

/* Address of a node. */
uint64_t shunt_tree_addr(const struct shunt_tree *tree, const struct shunt_code *code, uint32_t node);

/*
 * True when the flags hold this node's compare already, since the node before it made the same one and fell through, and
 * nothing else comes here. Off for literal plans.
 */
bool shunt_tree_has_flags(const struct shunt_tree *tree, uint32_t node);

/* The first fallback node after `node`. A valid plan has one. */
uint32_t shunt_tree_next_fallback(const struct shunt_tree *tree, uint32_t node);

#endif
