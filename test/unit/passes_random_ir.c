/* SPDX-License-Identifier: MIT */
/* See the header. Everything is written as text: what can be written is what front ends can hand over. */
#include "test/unit/passes_random_ir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NR_PROGRAMS = 4, MAX_VALUES = 64, MAX_MARKS = 4096 };

enum type { I64, I32, I16, I8, I128, F64, V4I32, PAIR, BYVAL, SRET, NOTHING };

static const char *const type_names[] = {
	"i64", "i32", "i16", "i8", "i128", "double", "<4 x i32>", "{ i64, i32 }", "ptr", "ptr", "void",
};
static const char *const param_names[] = {
	"i64 noundef", "i32 signext", "i16 signext", "i8 zeroext", "i128", "double", "<4 x i32>", "{ i64, i32 }",
	"ptr byval({ i64, i64 }) align 8", "ptr sret({ i64, i64, i64 }) align 8", "",
};

static const struct shape {
	const char *convention;
	enum type result;
	unsigned nr_params;
	enum type params[9];
	bool is_variadic, is_musttail; /* the latter: called by a function of its own type */
} shapes[] = {
	{ "", I64, 2, { I64, I64 }, false, false },
	{ "", I32, 2, { I32, I64 }, false, false },
	{ "", NOTHING, 1, { I64 }, false, false },
	{ "", I64, 9, { I64, I64, I64, I32, I64, I64, I64, I8, I64 }, false, false },
	{ "", F64, 2, { F64, I64 }, false, false },
	{ "", PAIR, 1, { I64 }, false, false },
	{ "", V4I32, 2, { V4I32, I32 }, false, false },
	{ "", I64, 2, { BYVAL, I64 }, false, false },
	{ "", NOTHING, 2, { SRET, I64 }, false, false },
	{ "", I64, 1, { I64 }, true, false },
	{ "fastcc ", I64, 2, { I64, I16 }, false, false },
	{ "preserve_mostcc ", I64, 1, { I64 }, false, false },
	{ "tailcc ", I64, 2, { I64, I64 }, false, true },
	{ "", I128, 2, { I128, I64 }, false, false },
	{ "", I64, 2, { I64, I64 }, false, true },
	{ "swiftcc ", I64, 3, { I64, F64, I64 }, false, false },
};
enum { NR_SHAPES = sizeof(shapes) / sizeof(shapes[0]) };
_Static_assert(NR_SHAPES <= RANDOM_IR_NR_DISPATCHERS, "each shape has a dispatcher");

struct generator {
	FILE *out;
	uint64_t state;
	unsigned next;   /* temporary */
	unsigned nr_helpers; /* functions that do musttail calls */
	char *marks[MAX_MARKS];
	unsigned nr_marks;
	unsigned values[MAX_VALUES]; /* numbers of i64 temporaries that dominate what comes next */
	unsigned nr_values;
	unsigned block; /* the block that is being written */
};

static uint32_t roll(struct generator *g, uint32_t sides)
{
	g->state ^= g->state << 13;
	g->state ^= g->state >> 7;
	g->state ^= g->state << 17;
	return (uint32_t)(g->state >> 20) % sides;
}

static unsigned fresh(struct generator *g)
{
	return g->next++;
}

static unsigned any_value(struct generator *g)
{
	return g->values[roll(g, g->nr_values)];
}

static void remember(struct generator *g, unsigned value)
{
	g->values[g->nr_values < MAX_VALUES ? g->nr_values++ : roll(g, MAX_VALUES)] = value;
}

static unsigned add_mark(struct generator *g, char *text)
{
	g->marks[g->nr_marks] = text;
	return g->nr_marks++;
}

/* Turns value of type into an i64, with everything in it. */
static unsigned to_i64(struct generator *g, enum type type, unsigned value)
{
	unsigned a, b, c, d;

	switch (type) {
	case I64:
		return value;
	case I32:
	case I16:
	case I8:
		a = fresh(g);
		fprintf(g->out, "  %%t%u = zext %s %%t%u to i64\n", a, type_names[type], value);
		return a;
	case F64:
		a = fresh(g);
		fprintf(g->out, "  %%t%u = bitcast double %%t%u to i64\n", a, value);
		return a;
	case V4I32:
		a = fresh(g);
		fprintf(g->out, "  %%t%u = bitcast <4 x i32> %%t%u to i128\n", a, value);
		return to_i64(g, I128, a);
	case I128:
		a = fresh(g), b = fresh(g), c = fresh(g), d = fresh(g);
		fprintf(g->out, "  %%t%u = trunc i128 %%t%u to i64\n  %%t%u = lshr i128 %%t%u, 64\n  %%t%u = trunc i128 %%t%u to i64\n", a,
			value, b, value, c, b);
		fprintf(g->out, "  %%t%u = xor i64 %%t%u, %%t%u\n", d, a, c);
		return d;
	case PAIR:
		a = fresh(g), b = fresh(g), c = fresh(g), d = fresh(g);
		fprintf(g->out, "  %%t%u = extractvalue { i64, i32 } %%t%u, 0\n  %%t%u = extractvalue { i64, i32 } %%t%u, 1\n", a, value, b,
			value);
		fprintf(g->out, "  %%t%u = sext i32 %%t%u to i64\n  %%t%u = add i64 %%t%u, %%t%u\n", c, b, d, a, c);
		return d;
	default: /* memory of two words at least */
		a = fresh(g), b = fresh(g), c = fresh(g), d = fresh(g);
		fprintf(g->out, "  %%t%u = load i64, ptr %%t%u\n  %%t%u = getelementptr i64, ptr %%t%u, i64 1\n", a, value, b, value);
		fprintf(g->out, "  %%t%u = load i64, ptr %%t%u\n  %%t%u = sub i64 %%t%u, %%t%u\n", c, b, d, a, c);
		return d;
	}
}

/* Turns an i64 into an argument; memory is the function's %mem or %out. Writes its name to text. */
static void from_i64(struct generator *g, enum type type, unsigned value, char *text, size_t room)
{
	unsigned a, b;

	switch (type) {
	case I64:
		a = value;
		break;
	case I32:
	case I16:
	case I8:
		a = fresh(g);
		fprintf(g->out, "  %%t%u = trunc i64 %%t%u to %s\n", a, value, type_names[type]);
		break;
	case F64:
		a = fresh(g), b = fresh(g);
		fprintf(g->out, "  %%t%u = and i64 %%t%u, 65535\n  %%t%u = uitofp i64 %%t%u to double\n", b, value, a, b);
		break;
	case I128:
	case V4I32:
		a = fresh(g), b = fresh(g);
		fprintf(g->out, "  %%t%u = zext i64 %%t%u to i128\n  %%t%u = mul i128 %%t%u, 340282366920938463\n", b, value, a, b);
		if (type == V4I32) {
			b = a, a = fresh(g);
			fprintf(g->out, "  %%t%u = bitcast i128 %%t%u to <4 x i32>\n", a, b);
		}
		break;
	case PAIR:
		a = fresh(g), b = fresh(g);
		fprintf(g->out, "  %%t%u = insertvalue { i64, i32 } zeroinitializer, i64 %%t%u, 0\n", b, value);
		fprintf(g->out, "  %%t%u = insertvalue { i64, i32 } %%t%u, i32 77, 1\n", a, b);
		break;
	case BYVAL:
		a = fresh(g);
		fprintf(g->out, "  store i64 %%t%u, ptr %%mem\n  %%t%u = getelementptr i64, ptr %%mem, i64 1\n  store i64 %u, ptr %%t%u\n", value, a,
			roll(g, 1000), a);
		snprintf(text, room, "%%mem");
		return;
	default:
		snprintf(text, room, "%%out");
		return;
	}
	snprintf(text, room, "%%t%u", a);
}

/* ---- programs ------------------------------------------------------------------------------------------------- */

static void write_params(struct generator *g, const struct shape *shape, bool named, unsigned first)
{
	for (unsigned i = 0; i < shape->nr_params; i++) {
		fprintf(g->out, "%s%s", i ? ", " : "", param_names[shape->params[i]]);
		if (named)
			fprintf(g->out, " %%t%u", first + i);
	}
	fputs(shape->is_variadic ? ", ..." : "", g->out);
}

static void write_program(struct generator *g, unsigned number, unsigned which)
{
	const struct shape *shape = &shapes[number];
	unsigned sum, next, first = g->next;
	char text[32];

	g->next += shape->nr_params;
	fprintf(g->out, "define internal %s%s @s%up%u(", shape->convention, type_names[shape->result], number, which);
	write_params(g, shape, true, first);
	fprintf(g->out, ") {\n  %%mem = alloca [4 x i64]\n  %%out = alloca [4 x i64]\n");
	sum = fresh(g);
	fprintf(g->out, "  %%t%u = add i64 %u, %u\n", sum, number * 1000, which);
	for (unsigned i = 0; i < shape->nr_params; i++) {
		unsigned value, scaled;

		if (shape->params[i] == SRET)
			continue;
		value = to_i64(g, shape->params[i], first + i);
		scaled = fresh(g), next = fresh(g);
		fprintf(g->out, "  %%t%u = mul i64 %%t%u, %u\n  %%t%u = add i64 %%t%u, %%t%u\n", scaled, sum, 31 + which, next, scaled, value);
		sum = next;
	}
	fprintf(g->out, "  call void @note(i64 %%t%u)\n", sum);
	if (shape->params[0] == SRET) {
		next = fresh(g);
		fprintf(g->out, "  store i64 %%t%u, ptr %%t%u\n  %%t%u = getelementptr i64, ptr %%t%u, i64 1\n  store i64 %u, ptr %%t%u\n", sum,
			first, next, first, which, next);
	}
	if (shape->result == NOTHING) {
		fputs("  ret void\n}\n", g->out);
		return;
	}
	from_i64(g, shape->result, sum, text, sizeof(text));
	fprintf(g->out, "  ret %s %s\n}\n", type_names[shape->result], text);
}

/* ---- marks ---------------------------------------------------------------------------------------------------- */

static char *random_targets(struct generator *g, unsigned number)
{
	bool counted = !roll(g, 3);
	size_t len;
	char *text;
	FILE *out = open_memstream(&text, &len);

	fputs("!{", out);
	for (unsigned i = 0, nr = 1 + roll(g, NR_PROGRAMS); i < nr; i++) {
		/* Now and then a function that does not fit. */
		fprintf(out, "%sptr @s%up%u", i ? ", " : "", roll(g, 12) ? number : roll(g, NR_SHAPES), roll(g, NR_PROGRAMS));
		if (counted)
			fprintf(out, ", i64 %u", roll(g, 10000));
	}
	fputs("}", out);
	fclose(out);
	return text;
}

/* Metadata for a call of that shape: its beginning is a comma, or nothing. */
static void random_mark(struct generator *g, unsigned number, char *text, size_t room)
{
	unsigned kind = roll(g, 10);
	char *mark;
	size_t len = 0;

	text[0] = '\0';
	if (kind < 6) {
		if (asprintf(&mark, "!{!\"d%u\"}", number) < 0)
			abort();
		len += (size_t)snprintf(text + len, room - len, ", !shunt.dispatch !%u", add_mark(g, mark));
	}
	if (kind >= 4 && kind < 9)
		len += (size_t)snprintf(text + len, room - len, ", !shunt.targets !%u", add_mark(g, random_targets(g, number)));
	if (!roll(g, 4)) {
		if (asprintf(&mark, "!{!\"VP\", i32 0, i64 %u, i64 %u, i64 %u}", 100 + roll(g, 1000), roll(g, 1000), roll(g, 100)) < 0)
			abort();
		snprintf(text + len, room - len, ", !prof !%u", add_mark(g, mark));
	}
}

/* ---- statements ----------------------------------------------------------------------------------------------- */

static unsigned random_index(struct generator *g)
{
	unsigned index = fresh(g);

	fprintf(g->out, "  %%t%u = and i64 %%t%u, %u\n", index, any_value(g), NR_PROGRAMS - 1);
	return index;
}

/* A program pointer, by one of the ways that a host may have it. */
static unsigned random_callee(struct generator *g, unsigned number)
{
	unsigned a = fresh(g), b, p = fresh(g);

	switch (roll(g, 4)) {
	case 0:
		fprintf(g->out, "  %%t%u = icmp ult i64 %%t%u, %%t%u\n", a, any_value(g), any_value(g));
		fprintf(g->out, "  %%t%u = select i1 %%t%u, ptr @s%up%u, ptr @s%up%u\n", p, a, number, roll(g, NR_PROGRAMS), number,
			roll(g, NR_PROGRAMS));
		return p;
	case 1: /* annotated as clang does it: the pass makes the mark */
		b = fresh(g);
		fprintf(g->out, "  %%t%u = getelementptr [%u x ptr], ptr @table%u, i64 0, i64 %%t%u\n", a, NR_PROGRAMS, number,
			random_index(g));
		fprintf(g->out, "  %%t%u = call ptr @llvm.ptr.annotation.p0.p0(ptr %%t%u, ptr @mark%u, ptr @file, i32 1, ptr null)\n", b, a,
			number);
		fprintf(g->out, "  %%t%u = load ptr, ptr %%t%u\n", p, b);
		return p;
	case 2:
		b = fresh(g);
		fprintf(g->out, "  %%t%u = getelementptr [%u x ptr], ptr @table%u, i64 0, i64 %%t%u\n", a, NR_PROGRAMS, number,
			random_index(g));
		fprintf(g->out, "  %%t%u = load ptr, ptr %%t%u\n  store ptr %%t%u, ptr %%slot\n  %%t%u = load ptr, ptr %%slot\n", b, a, b, p);
		return p;
	default:
		fprintf(g->out, "  %%t%u = getelementptr [%u x ptr], ptr @table%u, i64 0, i64 %%t%u\n", a, NR_PROGRAMS, number,
			random_index(g));
		fprintf(g->out, "  %%t%u = load ptr, ptr %%t%u\n", p, a);
		return p;
	}
}

static void write_call(struct generator *g)
{
	static const char *const tails[] = { "", "tail ", "notail " };
	unsigned number = roll(g, NR_SHAPES), callee, result = 0;
	const struct shape *shape = &shapes[number];
	bool has_memory = shape->params[0] == BYVAL || shape->params[0] == SRET, is_invoke = !roll(g, 4);
	char args[9][32], mark[128];

	for (unsigned i = 0; i < shape->nr_params; i++)
		from_i64(g, shape->params[i], any_value(g), args[i], sizeof(args[i]));
	callee = shape->is_musttail ? 0 : random_callee(g, number);
	fputs("  ", g->out);
	if (shape->result != NOTHING)
		fprintf(g->out, "%%t%u = ", result = fresh(g));
	fprintf(g->out, "%s%s%s%s ", is_invoke ? "invoke " : tails[has_memory ? 0 : roll(g, 3)], is_invoke ? "" : "call ", shape->convention,
		type_names[shape->result]);
	if (shape->is_variadic)
		fputs("(i64, ...) ", g->out);
	if (shape->is_musttail)
		fprintf(g->out, "@helper%u(", (number == 12 ? 0 : 8) + roll(g, 8));
	else
		fprintf(g->out, "%%t%u(", callee);
	for (unsigned i = 0; i < shape->nr_params; i++)
		fprintf(g->out, "%s%s %s", i ? ", " : "", param_names[shape->params[i]], args[i]);
	fputs(shape->is_variadic ? ", i32 signext -5, double 1.5)" : ")", g->out);
	if (!roll(g, 3))
		fputs(" \"site\"=\"x\"", g->out);
	mark[0] = '\0';
	if (!shape->is_musttail)
		random_mark(g, number, mark, sizeof(mark));
	if (is_invoke) {
		g->block = fresh(g);
		fprintf(g->out, " to label %%b%u unwind label %%pad%s\nb%u:\n", g->block, mark, g->block);
	} else {
		fprintf(g->out, "%s\n", mark);
	}
	if (shape->result != NOTHING)
		remember(g, to_i64(g, shape->result, result));
	if (shape->params[0] == SRET) {
		result = fresh(g);
		fprintf(g->out, "  %%t%u = load i64, ptr %%out\n", result);
		remember(g, result);
	}
}

static unsigned write_key(struct generator *g)
{
	unsigned key = fresh(g);

	if (roll(g, 3))
		fprintf(g->out, "  %%t%u = trunc i64 %%t%u to i32\n", key, any_value(g));
	else
		fprintf(g->out, "  %%t%u = add i32 %u, %u\n", key, roll(g, 4), roll(g, 4));
	if (roll(g, 2)) {
		unsigned small = fresh(g);

		fprintf(g->out, "  %%t%u = and i32 %%t%u, 7\n", small, key);
		key = small;
	}
	fprintf(g->out, "  store i32 %%t%u, ptr %%key, align 8\n", key);
	return key;
}

/* One to four exact additions to the object, of any width, one after the other. */
static void write_adds(struct generator *g)
{
	for (unsigned nr = 1 + roll(g, 4); nr; nr--) {
		unsigned width = 8u << roll(g, 4), at = fresh(g), v = fresh(g);

		fprintf(g->out, "  %%t%u = getelementptr i8, ptr @object, i64 %u\n", at, roll(g, 64 * 8 / width) * (width / 8));
		if (width == 64)
			fprintf(g->out, "  %%t%u = sub i64 %%t%u, 0\n", v, any_value(g));
		else
			fprintf(g->out, "  %%t%u = trunc i64 %%t%u to i%u\n", v, any_value(g), width);
		fprintf(g->out, "  call void @shunt_percpu_add%u(ptr %%t%u, i%u %%t%u)\n", width, at, width, v);
	}
}

static void write_percpu(struct generator *g)
{
	static const char *const maps[] = { "@array", "@percpu_array", "@hash", "@percpu_hash" };
	unsigned p = fresh(g), value = fresh(g), a = fresh(g);
	const char *map = maps[roll(g, 4)];

	switch (roll(g, 8)) {
	case 0:
		fprintf(g->out, "  %%t%u = call i32 @shunt_cpu_id()\n  %%t%u = sext i32 %%t%u to i64\n", p, value, p);
		break;
	case 1:
		fprintf(g->out, "  %%t%u = call ptr @shunt_percpu_this(ptr @object)\n  %%t%u = ptrtoint ptr %%t%u to i64\n", p, value, p);
		break;
	case 2:
		fprintf(g->out, "  %%t%u = trunc i64 %%t%u to i32\n  %%t%u = call ptr @shunt_percpu_of(ptr @object, i32 %%t%u)\n", a, any_value(g), p,
			a);
		fprintf(g->out, "  %%t%u = ptrtoint ptr %%t%u to i64\n", value, p);
		break;
	case 7:
		write_adds(g);
		fprintf(g->out, "  %%t%u = add i64 %%t%u, 1\n", value, any_value(g));
		break;
	case 3:
		write_key(g);
		fprintf(g->out, "  %%t%u = call ptr @shunt_map_lookup(ptr %s, ptr %%key)\n  %%t%u = ptrtoint ptr %%t%u to i64\n", p, map, value, p);
		break;
	case 4: {
		unsigned key = write_key(g), chosen = fresh(g);

		fprintf(g->out, "  %%t%u = icmp slt i32 %%t%u, 4\n  %%t%u = select i1 %%t%u, ptr @array, ptr @array_2\n", a, key, chosen, a);
		fprintf(g->out, "  %%t%u = call ptr @shunt_map_lookup(ptr %%t%u, ptr %%key)\n  %%t%u = ptrtoint ptr %%t%u to i64\n", p, chosen, value,
			p);
		break;
	}
	case 5:
		write_key(g);
		fprintf(g->out, "  %%t%u = ptrtoint ptr %%key to i64\n", a);
		fprintf(g->out, "  %%t%u = call i64 @_bpf_helper_ext_0001(i64 ptrtoint (ptr %s to i64), i64 %%t%u, i64 0, i64 0, i64 0)\n", value, map,
			a);
		break;
	default:
		write_key(g);
		fprintf(g->out, "  %%t%u = trunc i64 %%t%u to i32\n", a, any_value(g));
		fprintf(g->out, "  %%t%u = call ptr @shunt_map_lookup_of(ptr %s, ptr %%key, i32 %%t%u)\n  %%t%u = ptrtoint ptr %%t%u to i64\n", p,
			roll(g, 2) ? "@percpu_array" : "@percpu_hash", a, value, p);
		break;
	}
	remember(g, value);
}

static void write_arithmetic(struct generator *g)
{
	static const char *const operations[] = { "add", "sub", "mul", "xor", "and", "or" };
	unsigned value = fresh(g), condition;

	if (roll(g, 4)) {
		fprintf(g->out, "  %%t%u = %s i64 %%t%u, %%t%u\n", value, operations[roll(g, 6)], any_value(g), any_value(g));
	} else {
		condition = fresh(g);
		fprintf(g->out, "  %%t%u = icmp slt i64 %%t%u, %%t%u\n", condition, any_value(g), any_value(g));
		fprintf(g->out, "  %%t%u = select i1 %%t%u, i64 %%t%u, i64 %%t%u\n", value, condition, any_value(g), any_value(g));
	}
	remember(g, value);
}

static void write_statements(struct generator *g, unsigned nr, unsigned depth);

static void write_branch(struct generator *g, unsigned depth)
{
	unsigned condition = fresh(g), yes = fresh(g), no = fresh(g), join = fresh(g), nr = g->nr_values, a, b, from, value;

	fprintf(g->out, "  %%t%u = icmp ult i64 %%t%u, %%t%u\n", condition, any_value(g), any_value(g));
	fprintf(g->out, "  br i1 %%t%u, label %%b%u, label %%b%u\nb%u:\n", condition, yes, no, yes);
	g->block = yes;
	write_statements(g, 1 + roll(g, 3), depth - 1);
	a = any_value(g);
	from = g->block;
	fprintf(g->out, "  br label %%b%u\nb%u:\n", join, no);
	g->nr_values = nr; /* what the arm made does not dominate the other */
	g->block = no;
	write_statements(g, roll(g, 3), depth - 1);
	b = any_value(g);
	value = fresh(g);
	fprintf(g->out, "  br label %%b%u\nb%u:\n  %%t%u = phi i64 [ %%t%u, %%b%u ], [ %%t%u, %%b%u ]\n", join, join, value, a, from, b, g->block);
	g->nr_values = nr;
	g->block = join;
	remember(g, value);
}

static void write_loop(struct generator *g, unsigned depth)
{
	unsigned head = fresh(g), tail = fresh(g), i = fresh(g), next = fresh(g), sum = fresh(g), nr, again = fresh(g), before = g->block,
		 start = any_value(g), last;
	char *body;
	size_t len;
	FILE *out = g->out;

	/* The phi names a value that the body makes. */
	fprintf(out, "  br label %%b%u\nb%u:\n", head, head);
	g->out = open_memstream(&body, &len);
	g->block = head;
	nr = g->nr_values;
	remember(g, sum);
	write_statements(g, 1 + roll(g, 3), depth - 1);
	last = any_value(g);
	fclose(g->out);
	g->out = out;
	fprintf(out, "  %%t%u = phi i64 [ 0, %%b%u ], [ %%t%u, %%b%u ]\n", i, before, next, g->block);
	fprintf(out, "  %%t%u = phi i64 [ %%t%u, %%b%u ], [ %%t%u, %%b%u ]\n%s", sum, start, before, last, g->block, body);
	free(body);
	fprintf(out, "  %%t%u = add i64 %%t%u, 1\n  %%t%u = icmp ult i64 %%t%u, %u\n", next, i, again, next, 1 + roll(g, 3));
	fprintf(out, "  br i1 %%t%u, label %%b%u, label %%b%u\nb%u:\n", again, head, tail, tail);
	g->block = tail;
	g->nr_values = nr;
	remember(g, last);
}

static void write_statements(struct generator *g, unsigned nr, unsigned depth)
{
	for (unsigned i = 0; i < nr; i++) {
		uint32_t kind = roll(g, 10);

		if (kind < 3)
			write_arithmetic(g);
		else if (kind < 6)
			write_call(g);
		else if (kind < 8)
			write_percpu(g);
		else if (kind == 8 && depth)
			write_branch(g, depth);
		else if (depth)
			write_loop(g, depth);
	}
}

static void write_case(struct generator *g, unsigned number)
{
	unsigned a = fresh(g), b = fresh(g), sum, next;

	g->nr_values = 0;
	g->block = fresh(g);
	fprintf(g->out, "define i64 @case_%u(i64 %%t%u, i64 %%t%u) personality ptr @__gxx_personality_v0 {\nb%u:\n", number, a, b, g->block);
	fputs("  %mem = alloca [4 x i64]\n  %out = alloca [4 x i64]\n  %slot = alloca ptr\n  %key = alloca i64\n", g->out);
	remember(g, a);
	remember(g, b);
	write_call(g);
	write_statements(g, 2 + roll(g, 5), 2);
	sum = g->values[0];
	for (unsigned i = 1; i < g->nr_values; i++) {
		unsigned scaled = fresh(g);

		next = fresh(g);
		fprintf(g->out, "  %%t%u = mul i64 %%t%u, 37\n  %%t%u = xor i64 %%t%u, %%t%u\n", scaled, sum, next, scaled, g->values[i]);
		sum = next;
	}
	fprintf(g->out, "  ret i64 %%t%u\npad:\n  %%lp = landingpad { ptr, i32 } cleanup\n  call void @note(i64 %u)\n  resume { ptr, i32 } %%lp\n}\n",
		sum, number);
}

/* Eight functions each of the two shapes with musttail: their calls have their own prototype. */
static void write_helper(struct generator *g, unsigned number, unsigned which)
{
	const struct shape *shape = &shapes[number];
	unsigned callee, result, first = g->next;
	char mark[128];

	g->next += 2;
	fprintf(g->out, "define internal %si64 @helper%u(", shape->convention, which);
	write_params(g, shape, true, first);
	fputs(") {\n  %slot = alloca ptr\n", g->out);
	g->nr_values = 0;
	remember(g, first);
	remember(g, first + 1);
	callee = random_callee(g, number);
	result = fresh(g);
	random_mark(g, number, mark, sizeof(mark));
	fprintf(g->out, "  %%t%u = musttail call %si64 %%t%u(i64 noundef %%t%u, i64 noundef %%t%u)%s\n  ret i64 %%t%u\n}\n", result,
		shape->convention, callee, first + 1, first, mark, result);
}

char *random_ir(uint64_t seed, unsigned nr_cases, const char *triple)
{
	static const char names[] = "declare void @note(i64)\n"
				    "declare i32 @__gxx_personality_v0(...)\n"
				    "declare ptr @llvm.ptr.annotation.p0.p0(ptr, ptr, ptr, i32, ptr)\n"
				    "declare i32 @shunt_cpu_id()\n"
				    "declare ptr @shunt_percpu_this(ptr)\n"
				    "declare ptr @shunt_percpu_of(ptr, i32)\n"
				    "declare void @shunt_percpu_add64(ptr, i64)\n"
				    "declare void @shunt_percpu_add32(ptr, i32)\n"
				    "declare void @shunt_percpu_add16(ptr, i16)\n"
				    "declare void @shunt_percpu_add8(ptr, i8)\n"
				    "declare ptr @shunt_map_lookup(ptr, ptr)\n"
				    "declare ptr @shunt_map_lookup_of(ptr, ptr, i32)\n"
				    "declare i64 @_bpf_helper_ext_0001(i64, i64, i64, i64, i64)\n"
				    "@array = external global i8\n@array_2 = external global i8\n@percpu_array = external global i8\n"
				    "@hash = external global i8\n@percpu_hash = external global i8\n@object = external global i8\n"
				    "@file = private unnamed_addr constant [2 x i8] c\"x\\00\", section \"llvm.metadata\"\n";
	struct generator *g = calloc(1, sizeof(*g));
	char *text;
	size_t len;

	if (!g)
		return NULL;
	g->state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	g->out = open_memstream(&text, &len);
	fprintf(g->out, "source_filename = \"random\"\ntarget triple = \"%s\"\n%s", triple, names);
	for (unsigned s = 0; s < NR_SHAPES; s++) {
		fprintf(g->out, "@mark%u = private unnamed_addr constant [%u x i8] c\"shunt.dispatch:d%u\\00\", section \"llvm.metadata\"\n", s,
			s < 10 ? 18 : 19, s);
		fprintf(g->out, "@table%u = internal constant [%u x ptr] [", s, NR_PROGRAMS);
		for (unsigned p = 0; p < NR_PROGRAMS; p++)
			fprintf(g->out, "%sptr @s%up%u", p ? ", " : "", s, p);
		fputs("]\n", g->out);
		for (unsigned p = 0; p < NR_PROGRAMS; p++)
			write_program(g, s, p);
	}
	for (unsigned i = 0; i < 16; i++)
		write_helper(g, i < 8 ? 12 : 14, i);
	for (unsigned i = 0; i < nr_cases; i++)
		write_case(g, i);
	for (unsigned i = 0; i < g->nr_marks; i++) {
		fprintf(g->out, "!%u = %s\n", i, g->marks[i]);
		free(g->marks[i]);
	}
	fclose(g->out);
	free(g);
	return text;
}
