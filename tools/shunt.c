/* SPDX-License-Identifier: MIT */
/* shunt: the command line tool. Finds the command; each command is a file of its own. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "tools/command.h"

#ifndef SHUNT_VERSION
#error "the build defines SHUNT_VERSION"
#endif

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary;
} commands[] = {
	{ "run", shunt_command_run, "run BPF programs over a packet capture, through a dispatcher" },
	{ "compile", shunt_command_compile, "compile a BPF object for x86-64 or arm64, into an object or a shared library" },
	{ "dump", shunt_command_dump, "print a dispatcher's stub and tree for x86-64 or arm64" },
	{ "doctor", shunt_command_doctor, "say what this machine gives to generated code, and why" },
	{ "packs", shunt_command_packs, "draw how packs fill and empty" },
};

static void print_help(FILE *out)
{
	fprintf(out, "usage: shunt COMMAND [options]\n\n");
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
		fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].summary);
	fprintf(out, "\n'shunt COMMAND --help' says more. shunt --version prints the version.\n");
}

/* What could not be written was not done. */
static int finish(int status)
{
	if (!fflush(stdout) && !ferror(stdout))
		return status;
	fprintf(stderr, "shunt: cannot write the output: %s\n", strerror(errno));
	return status ? status : SHUNT_EXIT_FAILED;
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		print_help(stderr);
		return SHUNT_EXIT_USAGE;
	}
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
		if (!strcmp(argv[1], commands[i].name))
			return finish(commands[i].run(argc - 1, argv + 1));
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		print_help(stdout);
		return finish(SHUNT_EXIT_OK);
	}
	if (!strcmp(argv[1], "--version")) {
		printf("shunt " SHUNT_VERSION "\n");
		return finish(SHUNT_EXIT_OK);
	}
	fprintf(stderr, "shunt: no command '%s'\n", argv[1]);
	print_help(stderr);
	return SHUNT_EXIT_USAGE;
}
