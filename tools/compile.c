/* SPDX-License-Identifier: MIT */
/* shunt compile: BPF objects to machine code of either CPU, ahead of time. */
#include <errno.h>
#include <getopt.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <llvm-c/Core.h>
#include <llvm-c/TargetMachine.h>
#include <shunt/bpf.h>
#include <shunt/log.h>
#include "passes/map_text.h"
#include "tools/command.h"
#include "tools/file.h"

static const char help[] =
	"usage: shunt compile [options] PROGRAM.o -o OUT.o|OUT.so\n"
	"\n"
	"Compiles the programs of a BPF object, or of LLVM IR of clang -target bpf (.ll, .bc), passes applied, for this machine or another\n"
	"one. What the code needs of a process stays undefined in the result: maps (map.NAME), data (data.SECTION), helpers (_bpf_helper_ext_NNNN) and the functions of shunt/abi.h. On its\n"
	"machine, 'shunt run --code OUT.o PROGRAM.o CAPTURE' loads an object; a host that defines these symbols links or opens it.\n"
	"\n"
	"  -o, --output FILE       where the result goes; a name that ends in .so is linked, by ld.lld\n"
	"  -t, --target TRIPLE     x86_64-linux-gnu or aarch64-linux-gnu (default: this machine's)\n"
	"  -p, --program NAME      only this program (default: all that can be run)\n"
	"  -m, --map NAME:type=T,key=BYTES,value=BYTES,entries=N[,inner=NAME]\n"
	"                          what a map is that a program built without -g does not describe\n"
	"      --cpu rseq|call     how the code finds the number of its CPU: inline through glibc's rseq (default), or by a call\n"
	"      --no-passes         leave helper calls as they are\n"
	"  -h, --help              this text\n"
	"\n"
	"Exit status: 0 done; 1 failed; 2 wrong usage.\n";

enum { OPT_CPU = 256, OPT_NO_PASSES };

static const struct option long_options[] = {
	{ "output", required_argument, NULL, 'o' },
	{ "target", required_argument, NULL, 't' },
	{ "program", required_argument, NULL, 'p' },
	{ "map", required_argument, NULL, 'm' },
	{ "cpu", required_argument, NULL, OPT_CPU },
	{ "no-passes", no_argument, NULL, OPT_NO_PASSES },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

struct compile_arguments {
	const char *input, *output, *target;
	struct shunt_bpf_options bpf;
	struct shunt_map_list maps;
	enum shunt_pass_cpu cpu;
};

static int usage_error(const char *what, const char *argument)
{
	fprintf(stderr, "shunt compile: %s%s%s; 'shunt compile --help' lists the options\n", what, argument ? " " : "", argument ? argument : "");
	return SHUNT_EXIT_USAGE;
}

/* Returns -1 to go on, else the exit status. */
static int parse_arguments(int argc, char **argv, struct compile_arguments *args)
{
	char why[256];
	int option;

	while ((option = getopt_long(argc, argv, "o:t:p:m:h", long_options, NULL)) != -1) {
		switch (option) {
		case 'o': args->output = optarg; break;
		case 't': args->target = optarg; break;
		case 'p': args->bpf.program = optarg; break;
		case 'm':
			if (shunt_map_list_add(&args->maps, optarg, why, sizeof(why)))
				return usage_error("--map:", why);
			break;
		case OPT_NO_PASSES: args->bpf.pipeline = ""; break;
		case OPT_CPU:
			if (strcmp(optarg, "rseq") && strcmp(optarg, "call"))
				return usage_error("--cpu takes rseq or call, not", optarg);
			args->cpu = strcmp(optarg, "call") ? SHUNT_PASS_CPU_RSEQ_AOT : SHUNT_PASS_CPU_CALL;
			break;
		case 'h':
			fputs(help, stdout);
			return SHUNT_EXIT_OK;
		default: /* getopt has said what is wrong */
			fputs("'shunt compile --help' lists the options\n", stderr);
			return SHUNT_EXIT_USAGE;
		}
	}
	if (argc - optind != 1)
		return usage_error(argc == optind ? "name a BPF object" : "one BPF object, not also", argc == optind ? NULL : argv[optind + 1]);
	if (!args->output)
		return usage_error("say where the result goes: -o OUT.o or -o OUT.so", NULL);
	args->input = argv[optind];
	args->bpf.maps = args->maps.maps;
	args->bpf.nr_maps = args->maps.nr;
	return -1;
}

/* Runs a linker on the object; both names are ours or the user's, no shell sees them. */
static int run_linker(char *object, char *output)
{
	static const char *const linkers[] = { "ld.lld-19", "ld.lld" };
	char *argv[] = { NULL, "-shared", "-z", "now", "-o", output, object, NULL };
	extern char **environ;
	pid_t pid;

	for (size_t i = 0; i < sizeof(linkers) / sizeof(*linkers); i++) {
		int status;

		argv[0] = (char *)linkers[i];
		if (posix_spawnp(&pid, linkers[i], NULL, NULL, argv, environ))
			continue;
		while (waitpid(pid, &status, 0) < 0)
			if (errno != EINTR)
				return -errno;
		return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
	}
	return -ENOENT;
}

static int link_library(const void *bytes, size_t len, const char *output)
{
	char object[] = "/tmp/shunt-compile-XXXXXX";
	int fd = mkstemp(object);
	int err;

	if (fd < 0)
		return -errno;
	close(fd);
	err = file_write(object, bytes, len);
	if (!err)
		err = run_linker(object, (char *)output);
	unlink(object);
	return err;
}

static int write_result(const struct compile_arguments *args, const void *bytes, size_t len)
{
	const char *suffix = strrchr(args->output, '.');
	bool is_library = suffix && !strcmp(suffix, ".so");
	int err = is_library ? link_library(bytes, len, args->output) : file_write(args->output, bytes, len);

	if (!err)
		return SHUNT_EXIT_OK;
	if (is_library && err == -ENOENT)
		fprintf(stderr, "shunt compile: %s: linking needs ld.lld, which is not in the path (package lld-19)\n", args->output);
	else
		fprintf(stderr, "shunt compile: %s: %s\n", args->output, is_library && err == -EIO ? "the linker failed" : strerror(-err));
	return SHUNT_EXIT_FAILED;
}

int shunt_command_compile(int argc, char **argv)
{
	struct compile_arguments args = { .cpu = SHUNT_PASS_CPU_RSEQ_AOT };
	struct shunt_bpf_object *object;
	char *own_target = NULL;
	void *bytes;
	size_t len;
	int status = parse_arguments(argc, argv, &args);

	if (status >= 0) {
		shunt_map_list_fini(&args.maps);
		return status;
	}
	if (!args.target)
		args.target = own_target = LLVMGetDefaultTargetTriple();
	status = SHUNT_EXIT_FAILED;
	if (shunt_bpf_open_file(args.input, &args.bpf, &object)) {
		fprintf(stderr, "shunt compile: opening: %s\n", shunt_error());
	} else {
		if (shunt_bpf_emit(object, args.target, args.cpu, &bytes, &len)) {
			fprintf(stderr, "shunt compile: %s\n", shunt_error());
		} else {
			status = write_result(&args, bytes, len);
			free(bytes);
		}
		shunt_bpf_close(object);
	}
	LLVMDisposeMessage(own_target);
	shunt_map_list_fini(&args.maps);
	return status;
}
