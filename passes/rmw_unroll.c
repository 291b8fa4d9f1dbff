/* SPDX-License-Identifier: MIT */
/*
 * A loop with one exact update a round is worth unrolling: its rounds' updates pair up (pairs.c). LLVM does not by itself, since it takes
 * assembly for a call, so the loop is asked for it. Only innermost loops of a few instructions and no calls; and only in code for this
 * process, since clang warns its user of every request that LLVM does not follow.
 */
#include <stdlib.h>
#include <string.h>
#include <llvm-c/DebugInfo.h>
#include "passes/rmw.h"

enum { COUNT = 4, MAX_INSTRUCTIONS = 64, MAX_BLOCKS = 16, MAX_OPERANDS = 16 };

struct node {
	LLVMBasicBlockRef block;
	unsigned next; /* successor that a walk looks at next */
	enum { NEW, ON_PATH, DONE } state;
	unsigned nr_latches;
	LLVMBasicBlockRef latch; /* where it is the header of a loop: the block that goes back to it */
};

static int compare_nodes(const void *left, const void *right)
{
	LLVMBasicBlockRef a = ((const struct node *)left)->block, b = ((const struct node *)right)->block;

	return a < b ? -1 : a > b;
}

static struct node *find_node(struct node *nodes, unsigned nr, LLVMBasicBlockRef block)
{
	struct node key = { .block = block };

	return bsearch(&key, nodes, nr, sizeof(*nodes), compare_nodes);
}

/* Depth first; an edge to a block on the path goes back. */
static void find_latches(struct node *nodes, unsigned nr, struct node *entry, struct node **path)
{
	unsigned depth = 0;

	path[depth++] = entry;
	entry->state = ON_PATH;
	while (depth) {
		struct node *at = path[depth - 1], *to;
		LLVMValueRef terminator = LLVMGetBasicBlockTerminator(at->block);

		if (at->next == (terminator ? LLVMGetNumSuccessors(terminator) : 0)) {
			at->state = DONE;
			depth--;
			continue;
		}
		to = find_node(nodes, nr, LLVMGetSuccessor(terminator, at->next++));
		if (to->state == NEW) {
			to->state = ON_PATH;
			path[depth++] = to;
		} else if (to->state == ON_PATH) {
			to->nr_latches++;
			to->latch = at->block;
		}
	}
}

static bool is_simple_call(LLVMValueRef call)
{
	LLVMValueRef callee = LLVMGetCalledValue(call);

	return LLVMIsACallInst(call) && LLVMIsAFunction(callee) && LLVMGetIntrinsicID(callee);
}

/* Whether a block has no calls but intrinsics and sequences; counts what it has. */
static bool is_simple(struct shunt_pass *pass, LLVMBasicBlockRef block, unsigned *nr_sequences, unsigned *nr_instructions)
{
	for (LLVMValueRef i = LLVMGetFirstInstruction(block); i; i = LLVMGetNextInstruction(i)) {
		LLVMOpcode opcode = LLVMGetInstructionOpcode(i);

		++*nr_instructions;
		if (opcode == LLVMInvoke || opcode == LLVMCallBr || opcode == LLVMIndirectBr)
			return false;
		if (opcode != LLVMCall)
			continue;
		if (shunt_rmw_is_described(pass, i))
			++*nr_sequences;
		else if (!is_simple_call(i))
			return false;
	}
	return true;
}

/* The blocks from which the latch is reached without the header, and that one. */
static bool is_worth_it(struct shunt_pass *pass, struct node *nodes, unsigned nr, const struct node *header)
{
	LLVMBasicBlockRef body[MAX_BLOCKS] = { header->block };
	unsigned nr_body = 1, nr_sequences = 0, nr_instructions = 0;

	if (header->latch != header->block)
		body[nr_body++] = header->latch;
	for (unsigned n = 0; n < nr_body; n++) {
		if (!is_simple(pass, body[n], &nr_sequences, &nr_instructions) || (n && find_node(nodes, nr, body[n])->nr_latches))
			return false;
		for (LLVMUseRef use = n ? LLVMGetFirstUse(LLVMBasicBlockAsValue(body[n])) : NULL; use; use = LLVMGetNextUse(use)) {
			LLVMValueRef user = LLVMGetUser(use);
			bool is_known = !LLVMIsATerminatorInst(user);

			for (unsigned i = 0; i < nr_body && !is_known; i++)
				is_known = body[i] == LLVMGetInstructionParent(user);
			if (is_known)
				continue;
			if (nr_body == MAX_BLOCKS)
				return false;
			body[nr_body++] = LLVMGetInstructionParent(user);
		}
	}
	return nr_sequences == 1 && nr_instructions <= MAX_INSTRUCTIONS;
}

static LLVMMetadataRef string(struct shunt_pass *pass, const char *text)
{
	return LLVMMDStringInContext2(pass->context, text, strlen(text));
}

/* The loop's properties and one more; somebody else's wish stays. */
static void ask(struct shunt_pass *pass, LLVMValueRef terminator)
{
	unsigned kind = LLVMGetMDKindIDInContext(pass->context, "llvm.loop", strlen("llvm.loop")), nr = 1, nr_old = 0;
	LLVMValueRef old = LLVMGetMetadata(terminator, kind), operands[MAX_OPERANDS], property;
	LLVMMetadataRef all[MAX_OPERANDS + 2], count[2], node;

	if (old) {
		nr_old = (unsigned)LLVMGetMDNodeNumOperands(old);
		if (nr_old > MAX_OPERANDS)
			return;
		LLVMGetMDNodeOperands(old, operands);
	}
	for (unsigned i = 1; i < nr_old; i++) {
		unsigned len = 0;
		const char *name = NULL;

		if (operands[i] && LLVMIsAMDNode(operands[i]) && LLVMGetMDNodeNumOperands(operands[i])) {
			LLVMValueRef fields[MAX_OPERANDS];

			if (LLVMGetMDNodeNumOperands(operands[i]) > MAX_OPERANDS)
				return;
			LLVMGetMDNodeOperands(operands[i], fields);
			name = fields[0] && LLVMIsAMDString(fields[0]) ? LLVMGetMDString(fields[0], &len) : NULL;
		}
		property = operands[i];
		if (!property || (name && len >= strlen("llvm.loop.unroll") && !memcmp(name, "llvm.loop.unroll", strlen("llvm.loop.unroll"))))
			return;
		all[nr++] = LLVMValueAsMetadata(property);
	}
	count[0] = string(pass, "llvm.loop.unroll.count");
	count[1] = LLVMValueAsMetadata(LLVMConstInt(pass->i32, COUNT, 0));
	all[nr++] = LLVMMDNodeInContext2(pass->context, count, 2);
	/* Its first operand is itself. */
	all[0] = LLVMTemporaryMDNode(pass->context, NULL, 0);
	node = LLVMMDNodeInContext2(pass->context, all, nr);
	LLVMMetadataReplaceAllUsesWith(all[0], node);
	LLVMSetMetadata(terminator, kind, LLVMMetadataAsValue(pass->context, node));
}

static void ask_in_function(struct shunt_pass *pass, LLVMValueRef function)
{
	unsigned nr = LLVMCountBasicBlocks(function), n = 0;
	struct node *nodes = calloc(nr, sizeof(*nodes)), **path = calloc(nr, sizeof(*path));

	if (!nodes || !path) {
		pass->failed = true;
		goto out;
	}
	for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(function); b; b = LLVMGetNextBasicBlock(b))
		nodes[n++].block = b;
	qsort(nodes, nr, sizeof(*nodes), compare_nodes);
	find_latches(nodes, nr, find_node(nodes, nr, LLVMGetEntryBasicBlock(function)), path);
	for (unsigned i = 0; i < nr; i++)
		if (nodes[i].nr_latches == 1 && is_worth_it(pass, nodes, nr, &nodes[i]))
			ask(pass, LLVMGetBasicBlockTerminator(nodes[i].latch));
out:
	free(nodes);
	free(path);
}

void shunt_rmw_unroll(struct shunt_pass *pass)
{
	if (!pass->has_armed || pass->options->cpu != SHUNT_PASS_CPU_RSEQ)
		return;
	for (LLVMValueRef f = LLVMGetFirstFunction(pass->module); f; f = LLVMGetNextFunction(f))
		if (LLVMGetFirstBasicBlock(f))
			ask_in_function(pass, f);
}
