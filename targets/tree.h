/* SPDX-License-Identifier: MIT */
/*
 * What the tree emitters of all targets share: checking a plan and laying it out.
 *
 * A layout is found by emitting the tree into nothing, again and again, until no jump had to grow and no node moved; the last
 * pass writes. So a measured length is an emitted length by construction. A jump only ever grows, which bounds the passes.
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
	bool is_laid_out;      /* offsets are those of an earlier pass: worth looking at */
	bool changed;          /* this pass moved a node or grew a jump */
	size_t start;          /* of the tree in the buffer */
	struct shunt_tree_node {
		size_t offset;    /* from the tree's start */
		bool is_long;     /* its jump to another node takes the long form */
		bool is_jumped_to;
	} *nodes;
};

struct shunt_tree_ops {
	uint64_t max_span; /* programs further apart are compared without an anchor, whatever the plan says */
	void (*emit_node)(struct shunt_tree *tree, struct shunt_code *code, uint32_t node);
	void (*emit_nops)(struct shunt_code *code, size_t len);
};

/* Emits a tree. Sticky -EINVAL for a plan that breaks the rules of targets/plan.h, -ENOMEM without memory for the layout. */
void shunt_tree_emit(struct shunt_code *code, const struct shunt_plan *plan, enum shunt_fallback fallback,
		     const struct shunt_tree_ops *ops);

/* Address of a node: the real one in the last pass, the previous pass' one before. */
uint64_t shunt_tree_addr(const struct shunt_tree *tree, const struct shunt_code *code, uint32_t node);

/*
 * True when the flags hold this node's compare already, since the node before it made the same one and fell through, and
 * nothing else comes here. Off for plans with aligned nodes: they ask for the kernel's shape and get each of its compares.
 */
bool shunt_tree_has_flags(const struct shunt_tree *tree, uint32_t node);

/* The first fallback node after `node`. A valid plan has one. */
uint32_t shunt_tree_next_fallback(const struct shunt_tree *tree, uint32_t node);

#endif
