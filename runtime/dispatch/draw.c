/* SPDX-License-Identifier: MIT */
/* Pictures of plans in the dot language of Graphviz: what a tree asks, in which order, and where each answer leads. */
#include "runtime/dispatch/draw.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "runtime/dispatch/dispatcher_tree.h"
#include "runtime/log.h"

struct drawing {
	const struct shunt_plan *plan;
	const uint32_t *weights; /* or NULL */
	const char *fallback;
	shunt_name_fn *name;
	void *user;
	FILE *out;
};

static void write_quoted(FILE *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			putc('\\', out);
		putc(*text == '\n' ? ' ' : *text, out);
	}
}

static void write_program(const struct drawing *drawing, uint32_t program)
{
	uint64_t addr = drawing->plan->programs[program];
	const char *name = drawing->name ? drawing->name(drawing->user, (const void *)(uintptr_t)addr) : NULL;

	if (name)
		write_quoted(drawing->out, name);
	else
		fprintf(drawing->out, "%#" PRIx64, addr);
}

static void draw_node(const struct drawing *drawing, uint32_t index)
{
	const struct shunt_plan_node *node = &drawing->plan->nodes[index];
	uint32_t to = index;
	FILE *out = drawing->out;

	switch (node->op) {
	case SHUNT_PLAN_OP_EQUAL:
		fprintf(out, "  n%u [label=\"= ", index);
		write_program(drawing, node->program);
		fprintf(out, "\"];\n  n%u -> p%u [style=bold, label=\"yes\"];\n  n%u -> n%u [label=\"no\"];\n", index, node->program, index, index + 1);
		break;
	case SHUNT_PLAN_OP_ABOVE:
		fprintf(out, "  n%u [label=\"> ", index);
		write_program(drawing, node->program);
		fprintf(out, "\"];\n  n%u -> n%u [label=\"no\"];\n  n%u -> n%u [label=\"yes\"];\n", index, index + 1, index, node->node);
		break;
	case SHUNT_PLAN_OP_ANCHOR:
		fprintf(out, "  n%u [label=\"subtract the anchor\"];\n  n%u -> n%u;\n", index, index, index + 1);
		break;
	case SHUNT_PLAN_OP_INSIDE:
		fprintf(out, "  n%u [label=\"among the programs\"];\n  n%u -> n%u [label=\"yes\"];\n  n%u -> n%u [label=\"no\"];\n", index, index, node->node,
			index, index + 1);
		break;
	case SHUNT_PLAN_OP_RANGE:
		while (drawing->plan->nodes[to].op != SHUNT_PLAN_OP_FALLBACK)
			to++;
		fprintf(out, "  n%u [label=\"among the programs\"];\n  n%u -> n%u [label=\"yes\"];\n  n%u -> n%u [label=\"no\"];\n", index, index, index + 1,
			index, to);
		break;
	case SHUNT_PLAN_OP_PART: /* pictures are of whole plans */
		break;
	case SHUNT_PLAN_OP_FALLBACK:
		fprintf(out, "  n%u [shape=ellipse, style=dashed, label=\"the pointer, by %s\"];\n", index, drawing->fallback);
		break;
	}
}

int shunt_plan_draw(const char *title, const struct shunt_plan *plan, const uint32_t *weights, const char *fallback, shunt_name_fn *name,
		    void *user, FILE *out)
{
	struct drawing drawing = { plan, weights, fallback, name, user, out };

	fprintf(out, "digraph \"");
	write_quoted(out, title);
	fprintf(out, "\" {\n  node [shape=box, fontname=\"monospace\"];\n  stub [shape=cds, label=\"");
	write_quoted(out, title);
	fprintf(out, "\"];\n  stub -> n0;\n");
	for (uint32_t i = 0; i < plan->nr_programs; i++) {
		fprintf(out, "  p%u [shape=ellipse, style=filled, fillcolor=lightgray, label=\"", i);
		write_program(&drawing, i);
		if (weights)
			fprintf(out, "\\nweight %u", weights[i]);
		fprintf(out, "\"];\n");
	}
	for (uint32_t i = 0; i < plan->nr_nodes; i++)
		draw_node(&drawing, i);
	fprintf(out, "}\n");
	return ferror(out) ? shunt_fail(EIO, "the picture of '%s' could not be written", title) : 0;
}

int shunt_dispatcher_draw(struct shunt_dispatcher *dispatcher, shunt_name_fn *name, void *user, FILE *out)
{
	uint64_t *programs = NULL;
	uint32_t *weights = NULL;
	struct shunt_plan plan;
	enum shunt_fallback fallback;
	int err;

	if (!dispatcher || !out)
		return shunt_fail(EINVAL, "a picture needs a dispatcher and a file");
	pthread_mutex_lock(&dispatcher->mutex);
	err = shunt_dispatcher_plan(dispatcher, &programs, &weights, &plan);
	fallback = dispatcher->fallback;
	pthread_mutex_unlock(&dispatcher->mutex);
	if (err)
		return err;
	/* Without the lock: names come from the host, writing may take its time. */
	err = shunt_plan_draw(dispatcher->name, &plan, weights, shunt_miss_name((enum shunt_miss_kind)fallback), name, user, out);
	shunt_plan_fini(&plan);
	free(programs);
	free(weights);
	return err;
}
