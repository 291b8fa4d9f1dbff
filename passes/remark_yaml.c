/* SPDX-License-Identifier: MIT */
/* Writes a remark as LLVM does: one YAML document of kind, pass, name, place, function and arguments. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include "passes/remark_yaml.h"

static bool needs_escapes(const char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < 0x20 || (unsigned char)*text == 0x7f)
			return true;
	return false;
}

/* Single quotes, where only the quote itself is special; double quotes where control characters must be written as escapes. */
static void write_scalar(FILE *out, const char *text)
{
	bool escapes = needs_escapes(text);

	fputc(escapes ? '"' : '\'', out);
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (!escapes && c == '\'')
			fputs("''", out);
		else if (escapes && (c == '"' || c == '\\'))
			fprintf(out, "\\%c", c);
		else if (c < 0x20 || c == 0x7f)
			fprintf(out, "\\x%02X", c);
		else
			fputc(c, out);
	}
	fputc(escapes ? '"' : '\'', out);
}

static void write_field(FILE *out, const char *name, const char *text)
{
	fprintf(out, "%-17s", name);
	write_scalar(out, text ? text : "");
	fputc('\n', out);
}

char *shunt_remark_to_yaml(const struct shunt_remark *remark)
{
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);
	bool failed;

	if (!out)
		return NULL;
	fprintf(out, "--- !%s\n", remark->kind == SHUNT_REMARK_PASSED ? "Passed" : "Missed");
	/* Pass and name are identifiers of ours, which LLVM's own writer leaves bare. */
	fprintf(out, "%-17s%s\n%-17s%s\n", "Pass:", remark->pass, "Name:", remark->name);
	if (remark->file) {
		fprintf(out, "%-17s{ File: ", "DebugLoc:");
		write_scalar(out, remark->file);
		fprintf(out, ", Line: %u, Column: %u }\n", remark->line, remark->column);
	}
	write_field(out, "Function:", remark->function);
	fputs("Args:\n  - Callee:          ", out);
	write_scalar(out, remark->callee ? remark->callee : "");
	fputs("\n  - String:          ", out);
	write_scalar(out, ": ");
	fputs("\n  - Reason:          ", out);
	write_scalar(out, remark->message ? remark->message : "");
	fputs("\n...\n", out);
	failed = ferror(out);
	if (fclose(out) || failed) {
		free(text);
		return NULL;
	}
	return text;
}
