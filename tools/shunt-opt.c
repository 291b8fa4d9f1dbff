/* SPDX-License-Identifier: MIT */
/* shunt-opt: runs Shunt's passes over a module of LLVM IR. Arguments and printing only; the passes are in passes/. */
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <llvm-c/Analysis.h>
#include <llvm-c/BitWriter.h>
#include <llvm-c/Core.h>
#include <llvm-c/Error.h>
#include <llvm-c/IRReader.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <shunt/passes.h>
#include "passes/map_text.h"
#include "passes/remark_yaml.h"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

static const char help[] =
	"usage: shunt-opt [options] INPUT\n"
	"Runs Shunt's passes over INPUT, LLVM IR as text or bitcode ('-': standard input), and writes the module.\n"
	"\n"
	"  -p, --passes=LIST        shunt-mark, shunt-bpf-helpers, shunt-percpu, shunt-targets, shunt-dispatch, shunt-pairs, or\n"
	"                           shunt for all of them (default); a pass's own parameters stand behind it:\n"
	"                           'shunt-percpu<spectre-v1;cpu=call>'\n"
	"  -m, --map NAME:type=T,key=BYTES,value=BYTES,entries=N[,stride=BYTES][,mask=N][,values=ADDRESS][,address=ADDRESS]\n"
	"                [,handle=N][,inner=NAME]\n"
	"                           a map that programs name NAME; T is array, percpu_array, hash, percpu_hash, lru_hash,\n"
	"                           lru_percpu_hash or a number of enum bpf_map_type; NAME may be empty; repeat per map;\n"
	"                           inner: what the maps of a map of maps are like, a map described before\n"
	"      --maps=FILE          such descriptions from a file, one a line; # begins a comment\n"
	"      --cpu=SOURCE         where the CPU number comes from: rseq (default, glibc's __rseq_offset), tp:OFFSET (bytes from\n"
	"                           the thread pointer), or call (nothing is known: shunt_cpu_id stays a call)\n"
	"      --nr-cpus=N          number of possible CPUs (default: code calls shunt_nr_cpus)\n"
	"      --spectre-v1         mask array indices after their bound check\n"
	"      --retarget=TRIPLE      first make a module for bpf one for TRIPLE ('host': this machine)\n"
	"      --llvm-before=LIST   LLVM passes to run before ours, as opt's -passes takes them\n"
	"      --llvm-after=LIST    LLVM passes to run after ours\n"
	"  -r, --remarks=FILE       what became of each call, as LLVM's YAML remarks ('-': standard error)\n"
	"  -s, --stats              how many calls became what, to standard error\n"
	"  -o, --output=FILE        where the module goes ('-', the default: standard output)\n"
	"  -S                       write text; the default, except for output to a file whose name ends in .bc\n"
	"  -h, --help               this text\n"
	"      --version            the version\n"
	"\n"
	"Exit status: 0 done; 1 the module or a file was refused; 2 wrong usage.\n"
	"\n"
	"Example: shunt-opt --map counts:type=percpu_array,key=4,value=8,entries=256 --llvm-after='default<O2>' in.ll -o out.ll\n";

struct settings {
	const char *pipeline, *llvm_before, *llvm_after, *remarks, *output, *input, *retarget;
	struct shunt_pass_options options;
	struct shunt_map_list maps;
	FILE *remarks_file;
	bool text, stats, write_failed;
};

static int complain(int status, const char *format, ...)
{
	va_list args;

	fputs("shunt-opt: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	return status;
}

static bool parse_number(const char *text, uint64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoull(text, &end, 0);
	return *text >= '0' && *text <= '9' && !*end && !errno;
}

static int add_maps(struct settings *settings, char *text, bool is_file)
{
	char why[512];
	int ret = is_file ? shunt_map_list_add_file(&settings->maps, text, why, sizeof(why))
			  : shunt_map_list_add(&settings->maps, text, why, sizeof(why));

	return ret ? complain(ret == -EINVAL ? EXIT_USAGE : EXIT_FAILED, "%s", why) : 0;
}

static int parse_cpu(struct shunt_pass_options *options, const char *text)
{
	char *end;

	if (!strcmp(text, "rseq")) {
		options->cpu = SHUNT_PASS_CPU_RSEQ_AOT;
	} else if (!strcmp(text, "call")) {
		options->cpu = SHUNT_PASS_CPU_CALL;
	} else if (!strncmp(text, "tp:", 3)) {
		options->cpu = SHUNT_PASS_CPU_TP;
		errno = 0;
		options->cpu_offset = strtoll(text + 3, &end, 0);
		if (!text[3] || *end || errno)
			return complain(EXIT_USAGE, "--cpu=%s: the offset is not a number", text);
	} else {
		return complain(EXIT_USAGE, "--cpu=%s: use rseq, tp:OFFSET or call", text);
	}
	return 0;
}

enum { OPT_MAPS = 256, OPT_CPU, OPT_NR_CPUS, OPT_SPECTRE, OPT_BEFORE, OPT_AFTER, OPT_RETARGET, OPT_VERSION };

static const struct option long_options[] = {
	{ "passes", required_argument, NULL, 'p' },
	{ "map", required_argument, NULL, 'm' },
	{ "maps", required_argument, NULL, OPT_MAPS },
	{ "cpu", required_argument, NULL, OPT_CPU },
	{ "nr-cpus", required_argument, NULL, OPT_NR_CPUS },
	{ "spectre-v1", no_argument, NULL, OPT_SPECTRE },
	{ "llvm-before", required_argument, NULL, OPT_BEFORE },
	{ "llvm-after", required_argument, NULL, OPT_AFTER },
	{ "retarget", required_argument, NULL, OPT_RETARGET },
	{ "remarks", required_argument, NULL, 'r' },
	{ "stats", no_argument, NULL, 's' },
	{ "output", required_argument, NULL, 'o' },
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ NULL, 0, NULL, 0 },
};

/* 0, an exit status, or -1: everything was said and the tool ends well. */
static int parse_option(struct settings *settings, int option)
{
	uint64_t number;

	switch (option) {
	case 'p':
		settings->pipeline = optarg;
		return 0;
	case 'm':
		return add_maps(settings, optarg, false);
	case OPT_MAPS:
		return add_maps(settings, optarg, true);
	case OPT_CPU:
		return parse_cpu(&settings->options, optarg);
	case OPT_NR_CPUS:
		if (!parse_number(optarg, &number) || !number || number > 1u << 20)
			return complain(EXIT_USAGE, "--nr-cpus=%s is not a number of CPUs", optarg);
		settings->options.nr_cpus = (uint32_t)number;
		return 0;
	case OPT_SPECTRE:
		settings->options.spectre_v1 = true;
		return 0;
	case OPT_BEFORE:
		settings->llvm_before = optarg;
		return 0;
	case OPT_AFTER:
		settings->llvm_after = optarg;
		return 0;
	case OPT_RETARGET:
		settings->retarget = optarg;
		return 0;
	case 'r':
		settings->remarks = optarg;
		return 0;
	case 's':
		settings->stats = true;
		return 0;
	case 'o':
		settings->output = optarg;
		return 0;
	case 'S':
		settings->text = true;
		return 0;
	case 'h':
		fputs(help, stdout);
		return -1;
	case OPT_VERSION:
		printf("shunt-opt %s\n", SHUNT_VERSION);
		return -1;
	default:
		fputs("Try 'shunt-opt --help'.\n", stderr);
		return EXIT_USAGE;
	}
}

static int parse_arguments(struct settings *settings, int argc, char **argv)
{
	int option, ret;

	while ((option = getopt_long(argc, argv, "p:m:r:so:Sh", long_options, NULL)) != -1) {
		ret = parse_option(settings, option);
		if (ret)
			return ret;
	}
	if (optind + 1 != argc)
		return complain(EXIT_USAGE, optind == argc ? "no input: name a file of LLVM IR, or - for standard input; see --help"
							   : "more than one input; see --help");
	settings->input = argv[optind];
	settings->options.maps = settings->maps.maps;
	settings->options.nr_maps = settings->maps.nr;
	return 0;
}

static void print_remark(void *user, const struct shunt_remark *remark)
{
	struct settings *settings = user;
	char *text = shunt_remark_to_yaml(remark);

	if (!text || fputs(text, settings->remarks_file) < 0)
		settings->write_failed = true;
	free(text);
}

/* LLVM's own handler would end the process on an error; the calls that report return one as well. */
static void print_diagnostic(LLVMDiagnosticInfoRef info, void *user)
{
	LLVMDiagnosticSeverity severity = LLVMGetDiagInfoSeverity(info);
	char *text;

	if (severity != LLVMDSError && severity != LLVMDSWarning)
		return;
	text = LLVMGetDiagInfoDescription(info);
	complain(0, "%s: %s", severity == LLVMDSError ? "error" : "warning", text);
	LLVMDisposeMessage(text);
	if (severity == LLVMDSError)
		*(bool *)user = true;
}

static LLVMModuleRef read_module(LLVMContextRef context, const char *path)
{
	LLVMMemoryBufferRef buffer;
	LLVMModuleRef module = NULL;
	char *message = NULL;
	bool failed;

	failed = strcmp(path, "-") ? LLVMCreateMemoryBufferWithContentsOfFile(path, &buffer, &message)
				   : LLVMCreateMemoryBufferWithSTDIN(&buffer, &message);
	if (!failed && LLVMParseIRInContext(context, buffer, &module, &message))
		module = NULL;
	/* The parser's sentences begin with the file's name, the file system's do not. */
	if (!module && message && !strncmp(message, path, strlen(path)))
		complain(0, "%s", message);
	else if (!module)
		complain(0, "%s: %s", path, message ? message : "cannot be read as LLVM IR");
	LLVMDisposeMessage(message);
	return module;
}

static int verify(LLVMModuleRef module, const char *path, const char *when)
{
	char *message = NULL;
	int broken = LLVMVerifyModule(module, LLVMReturnStatusAction, &message);

	if (broken)
		complain(0, "%s: the module does not verify %s: %s", path, when, message ? message : "");
	LLVMDisposeMessage(message);
	return broken ? EXIT_FAILED : 0;
}

static int run_llvm(LLVMModuleRef module, const char *pipeline)
{
	LLVMPassBuilderOptionsRef options;
	LLVMErrorRef error;
	char *message;

	if (!pipeline)
		return 0;
	options = LLVMCreatePassBuilderOptions();
	error = LLVMRunPasses(module, pipeline, NULL, options);
	LLVMDisposePassBuilderOptions(options);
	if (!error)
		return 0;
	message = LLVMGetErrorMessage(error);
	complain(0, "LLVM pipeline '%s': %s", pipeline, message);
	LLVMDisposeErrorMessage(message);
	return EXIT_USAGE;
}

static int retarget(LLVMModuleRef module, const struct settings *settings)
{
	bool is_host = settings->retarget && !strcmp(settings->retarget, "host");
	char *triple, *layout, *error = NULL;
	LLVMTargetMachineRef machine;
	LLVMTargetDataRef data;
	LLVMTargetRef target;
	int ret;

	if (!settings->retarget)
		return 0;
	LLVMInitializeX86TargetInfo();
	LLVMInitializeX86Target();
	LLVMInitializeX86TargetMC();
	LLVMInitializeAArch64TargetInfo();
	LLVMInitializeAArch64Target();
	LLVMInitializeAArch64TargetMC();
	triple = is_host ? LLVMGetDefaultTargetTriple() : LLVMNormalizeTargetTriple(settings->retarget);
	if (LLVMGetTargetFromTriple(triple, &target, &error)) {
		ret = complain(EXIT_USAGE, "--retarget=%s: use an x86-64 or arm64 triple", settings->retarget);
		LLVMDisposeMessage(error);
		LLVMDisposeMessage(triple);
		return ret;
	}
	machine = LLVMCreateTargetMachine(target, triple, "", "", LLVMCodeGenLevelDefault, LLVMRelocPIC, LLVMCodeModelDefault);
	data = LLVMCreateTargetDataLayout(machine);
	layout = LLVMCopyStringRepOfTargetData(data);
	ret = shunt_module_retarget(module, triple, layout, &error);
	if (ret)
		complain(0, "%s: %s", settings->input, error ? error : strerror(-ret));
	free(error);
	LLVMDisposeMessage(layout);
	LLVMDisposeTargetData(data);
	LLVMDisposeTargetMachine(machine);
	LLVMDisposeMessage(triple);
	return ret ? EXIT_FAILED : 0;
}

static int run_shunt(LLVMModuleRef module, struct settings *settings, struct shunt_pass_counts *counts)
{
	char *error = NULL;
	int ret;

	if (settings->remarks) {
		settings->remarks_file = strcmp(settings->remarks, "-") ? fopen(settings->remarks, "w") : stderr;
		if (!settings->remarks_file)
			return complain(EXIT_FAILED, "%s: %s", settings->remarks, strerror(errno));
		settings->options.remark = print_remark;
		settings->options.remark_user = settings;
	}
	ret = shunt_passes_run(module, settings->pipeline, &settings->options, counts, &error);
	if (ret)
		complain(0, "%s: %s", settings->input, error ? error : strerror(-ret));
	free(error);
	if (settings->remarks_file && settings->remarks_file != stderr && fclose(settings->remarks_file))
		settings->write_failed = true;
	if (settings->write_failed)
		return complain(EXIT_FAILED, "%s: the remarks could not be written", settings->remarks);
	return ret ? EXIT_FAILED : 0;
}

static void print_counts(const struct shunt_pass_counts *counts)
{
	const struct {
		const char *name;
		uint32_t count;
	} lines[] = {
		{ "helpers", counts->helpers },
		{ "cpu_ids", counts->cpu_ids },
		{ "percpu_this", counts->percpu_this },
		{ "percpu_of", counts->percpu_of },
		{ "array_lookups", counts->array_lookups },
		{ "percpu_array_lookups", counts->percpu_array_lookups },
		{ "percpu_hash_lookups", counts->percpu_hash_lookups },
		{ "hash_lookups", counts->hash_lookups },
		{ "dispatches", counts->dispatches },
		{ "marked", counts->marked },
		{ "static_calls", counts->static_calls },
		{ "percpu_globals", counts->percpu_globals },
		{ "exact_updates", counts->exact_updates },
		{ "missed", counts->missed },
	};

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		fprintf(stderr, "%s %u\n", lines[i].name, lines[i].count);
}

static int write_module(LLVMModuleRef module, const struct settings *settings)
{
	const char *path = settings->output, *dot = strrchr(path, '.');
	char *message = NULL, *text;
	int failed;

	if (!settings->text && dot && !strcmp(dot, ".bc"))
		return LLVMWriteBitcodeToFile(module, path) ? complain(EXIT_FAILED, "%s: cannot be written", path) : 0;
	if (strcmp(path, "-")) {
		failed = LLVMPrintModuleToFile(module, path, &message);
		if (failed)
			complain(0, "%s: %s", path, message ? message : "cannot be written");
		LLVMDisposeMessage(message);
		return failed ? EXIT_FAILED : 0;
	}
	text = LLVMPrintModuleToString(module);
	failed = fputs(text, stdout) < 0 || fflush(stdout);
	LLVMDisposeMessage(text);
	return failed ? complain(EXIT_FAILED, "standard output: %s", strerror(errno)) : 0;
}

static int process(LLVMContextRef context, struct settings *settings, const bool *diagnosed)
{
	LLVMModuleRef module = read_module(context, settings->input);
	struct shunt_pass_counts counts = { 0 };
	int ret;

	if (!module)
		return EXIT_FAILED;
	ret = verify(module, settings->input, "as it is");
	if (!ret)
		ret = retarget(module, settings);
	if (!ret)
		ret = run_llvm(module, settings->llvm_before);
	if (!ret)
		ret = run_shunt(module, settings, &counts);
	if (!ret)
		ret = verify(module, settings->input, "after the passes");
	if (!ret)
		ret = run_llvm(module, settings->llvm_after);
	if (!ret && *diagnosed)
		ret = EXIT_FAILED;
	if (!ret)
		ret = write_module(module, settings);
	if (!ret && settings->stats)
		print_counts(&counts);
	LLVMDisposeModule(module);
	return ret;
}

int main(int argc, char **argv)
{
	struct settings settings = { .pipeline = "shunt", .output = "-", .options = { .cpu = SHUNT_PASS_CPU_RSEQ_AOT } };
	bool diagnosed = false;
	LLVMContextRef context;
	int ret = parse_arguments(&settings, argc, argv);

	if (!ret) {
		context = LLVMContextCreate();
		LLVMContextSetDiagnosticHandler(context, print_diagnostic, &diagnosed);
		ret = process(context, &settings, &diagnosed);
		LLVMContextDispose(context);
	}
	shunt_map_list_fini(&settings.maps);
	return ret < 0 ? 0 : ret;
}
