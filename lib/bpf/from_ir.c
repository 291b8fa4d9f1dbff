/* SPDX-License-Identifier: MIT */
/*
 * The child of from_ir.h answers through a pipe: a header, then the object or a sentence. A child that ends without a header is LLVM ending
 * the process; then what it printed, caught in a file in memory, says why.
 */
#include "lib/bpf/from_ir.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <llvm-c/Analysis.h>
#include <llvm-c/Core.h>
#include <llvm-c/IRReader.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include "lib/bpf/elf_image.h"
#include "runtime/log.h"

#define CHILD_SECONDS 120
#define CHILD_MEMORY ((uint64_t)4 << 30) /* above what the process has reserved when it forks */
#define MAX_SENTENCE 4096u
#define DEFAULT_CPU "v3" /* 32-bit and atomic operations, which v1 lacks; every kernel that runs XDP programs today has them */

struct answer {
	int32_t err; /* positive errno with a sentence behind it, or 0 with an object */
	uint32_t len;
};

/* ---- what is IR ----------------------------------------------------------------------------------------------- */

static bool begins_with(const char *bytes, size_t len, const char *word)
{
	return len >= strlen(word) && !memcmp(bytes, word, strlen(word));
}

static bool is_bitcode(const char *bytes, size_t len)
{
	return begins_with(bytes, len, "BC\xc0\xde") || begins_with(bytes, len, "\xde\xc0\x17\x0b");
}

bool bpf_is_ir(const void *bytes, size_t len, const char *name)
{
	static const char *const beginnings[] = { "; ModuleID", "source_filename", "target triple", "target datalayout" };
	const char *suffix = strrchr(name, '.');

	for (size_t i = 0; i < sizeof(beginnings) / sizeof(*beginnings); i++)
		if (begins_with(bytes, len, beginnings[i]))
			return true;
	return is_bitcode(bytes, len) || (suffix && !strcmp(suffix, ".ll") && !begins_with(bytes, len, "\177ELF"));
}

/* ---- the child ------------------------------------------------------------------------------------------------ */

/* The child's sentence. Not shunt_fail's: the host's log callback has no business here, and a thread of the host's may have held its lock. */
static char reason[MAX_SENTENCE];

static int __attribute__((format(printf, 2, 3))) give_up(int err, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(reason, sizeof(reason), format, args);
	va_end(args);
	return -err;
}

static void take_diagnostic(LLVMDiagnosticInfoRef info, void *user)
{
	char *sentence = user, *text;

	if (LLVMGetDiagInfoSeverity(info) != LLVMDSError || *sentence)
		return;
	text = LLVMGetDiagInfoDescription(info);
	snprintf(sentence, MAX_SENTENCE, "%s", text);
	LLVMDisposeMessage(text);
}

/* Says why, in one line, and takes LLVM's message. */
static int refuse(const char *name, const char *what, char *message)
{
	int err;

	if (message)
		message[strcspn(message, "\n")] = 0;
	err = give_up(EINVAL, "%s: %s: %s", name, what, message ? message : "LLVM gives no reason");

	LLVMDisposeMessage(message);
	return err;
}

static int check_triple(LLVMModuleRef module, const char *name)
{
	const char *triple = LLVMGetTarget(module);

	if (!strncmp(triple, "bpfeb", strlen("bpfeb")))
		return give_up(ENOTSUP, "%s: the module is for big-endian BPF; compile it with -target bpfel", name);
	if (strcmp(triple, "bpf") && strcmp(triple, "bpfel") && strncmp(triple, "bpf-", 4) && strncmp(triple, "bpfel-", 6))
		return give_up(EINVAL, "%s: the module's target triple '%s' is not bpf; compile it with clang -target bpf -emit-llvm", name, triple);
	return 0;
}

/* BPF has one instruction set for a module, clang says which one with each function. */
static void choose_cpu(LLVMModuleRef module, char *cpu, size_t room)
{
	static const char kind[] = "target-cpu";

	snprintf(cpu, room, DEFAULT_CPU);
	for (LLVMValueRef function = LLVMGetFirstFunction(module); function; function = LLVMGetNextFunction(function)) {
		LLVMAttributeRef attribute = LLVMGetStringAttributeAtIndex(function, LLVMAttributeFunctionIndex, kind, strlen(kind));
		unsigned len;
		const char *value = attribute ? LLVMGetStringAttributeValue(attribute, &len) : NULL;

		if (value && len == 2 && value[0] == 'v' && value[1] > DEFAULT_CPU[1] && value[1] <= '4')
			snprintf(cpu, room, "%.2s", value);
	}
}

/* Code that clang left as it is written (-O0) calls helpers through variables and reads CO-RE fields through intrinsics. */
static int optimise(LLVMModuleRef module, LLVMTargetMachineRef machine, const char *name)
{
	const unsigned optnone = LLVMGetEnumAttributeKindForName("optnone", strlen("optnone"));
	LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
	LLVMErrorRef error;

	for (LLVMValueRef function = LLVMGetFirstFunction(module); function; function = LLVMGetNextFunction(function))
		LLVMRemoveEnumAttributeAtIndex(function, LLVMAttributeFunctionIndex, optnone);
	error = LLVMRunPasses(module, "default<O2>", machine, options);
	LLVMDisposePassBuilderOptions(options);
	if (error) {
		char *message = LLVMGetErrorMessage(error);
		int err = give_up(EINVAL, "%s: LLVM cannot optimise the module: %s", name, message);

		LLVMDisposeErrorMessage(message);
		return err;
	}
	return 0;
}

/* Nothing is freed: the child ends. */
static int compile(const void *bytes, size_t len, const char *name, LLVMMemoryBufferRef *object)
{
	static char sentence[MAX_SENTENCE];
	LLVMContextRef context = LLVMContextCreate();
	LLVMModuleRef module;
	LLVMTargetRef target;
	LLVMTargetMachineRef machine;
	LLVMMemoryBufferRef buffer;
	char *message = NULL, cpu[8];
	int err;

	LLVMInitializeBPFTargetInfo();
	LLVMInitializeBPFTarget();
	LLVMInitializeBPFTargetMC();
	LLVMInitializeBPFAsmPrinter();
	LLVMInitializeBPFAsmParser();
	LLVMContextSetDiagnosticHandler(context, take_diagnostic, sentence);
	/* LLVM's sentence begins with the name of the buffer, and a line's number where there are lines. */
	buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(bytes, len, is_bitcode(bytes, len) ? "bitcode" : "line");
	if (LLVMParseIRInContext(context, buffer, &module, &message))
		return refuse(name, "cannot be read as LLVM IR", message);
	err = check_triple(module, name);
	if (err)
		return err;
	if (LLVMVerifyModule(module, LLVMReturnStatusAction, &message))
		return refuse(name, "is not valid IR", message);
	if (LLVMGetTargetFromTriple(LLVMGetTarget(module), &target, &message))
		return refuse(name, "cannot be compiled", message);
	choose_cpu(module, cpu, sizeof(cpu));
	machine = LLVMCreateTargetMachine(target, LLVMGetTarget(module), cpu, "", LLVMCodeGenLevelDefault, LLVMRelocDefault, LLVMCodeModelDefault);
	if (!machine)
		return give_up(ENOTSUP, "%s: this LLVM has no code generator for BPF", name);
	err = optimise(module, machine, name);
	if (!err && LLVMTargetMachineEmitToMemoryBuffer(machine, module, LLVMObjectFile, &message, object))
		err = refuse(name, "does not compile", message);
	if (!err && *sentence)
		err = give_up(EINVAL, "%s: does not compile: %s", name, sentence);
	return err;
}

static void write_all(int fd, const void *bytes, size_t len)
{
	while (len) {
		ssize_t done = write(fd, bytes, len);

		if (done < 0 && errno != EINTR)
			_exit(1);
		if (done > 0) {
			bytes = (const char *)bytes + done;
			len -= (size_t)done;
		}
	}
}

/* More memory than any module needs would be a hang of the whole machine. A sanitizer reserves more than any limit. */
static void limit_memory(void)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	FILE *statm = fopen("/proc/self/statm", "re");
	unsigned long long pages;

	if (statm && fscanf(statm, "%llu", &pages) == 1) {
		rlim_t limit = (rlim_t)(pages * (uint64_t)sysconf(_SC_PAGESIZE) + CHILD_MEMORY);

		setrlimit(RLIMIT_AS, &(struct rlimit){ limit, limit });
	}
	if (statm)
		fclose(statm);
#endif
}

/* The host's handlers would run its code in a process that it knows nothing of. */
static void be_alone(int printed)
{
	static const int signals[] = { SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGTERM, SIGINT, SIGPIPE, SIGXCPU, SIGALRM, SIGSYS };
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++)
		signal(signals[i], SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
	setrlimit(RLIMIT_CPU, &(struct rlimit){ CHILD_SECONDS, CHILD_SECONDS });
	limit_memory();
	dup2(printed, STDOUT_FILENO);
	dup2(printed, STDERR_FILENO);
}

__attribute__((noreturn)) static void child(const void *bytes, size_t len, const char *name, int answers, int printed)
{
	LLVMMemoryBufferRef object = NULL;
	struct answer answer = { 0 };
	int err;

	be_alone(printed);
	err = compile(bytes, len, name, &object);
	answer.err = -err;
	answer.len = (uint32_t)(err ? strlen(reason) : LLVMGetBufferSize(object));
	write_all(answers, &answer, sizeof(answer));
	write_all(answers, err ? reason : LLVMGetBufferStart(object), answer.len);
	_exit(0);
}

/* ---- the parent ----------------------------------------------------------------------------------------------- */

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* 0; -EPIPE when the child has ended before, -ETIMEDOUT. */
static int read_all(int fd, void *bytes, size_t len, int64_t deadline)
{
	while (len) {
		struct pollfd wait = { .fd = fd, .events = POLLIN };
		int64_t left = deadline - now_ms();
		ssize_t got;

		if (left <= 0)
			return -ETIMEDOUT;
		if (poll(&wait, 1, (int)left) <= 0)
			continue;
		got = read(fd, bytes, len);
		if (!got)
			return -EPIPE;
		if (got > 0) {
			bytes = (char *)bytes + got;
			len -= (size_t)got;
		} else if (errno != EINTR) {
			return -errno;
		}
	}
	return 0;
}

/* LLVM's last words: what stands behind "LLVM ERROR", else the first line, else what ended the child. */
static int fail_ended(const char *name, int printed, int status)
{
	char text[MAX_SENTENCE] = "", *line;
	ssize_t got = pread(printed, text, sizeof(text) - 1, 0);

	text[got > 0 ? got : 0] = 0;
	line = strstr(text, "LLVM ERROR: ");
	line = line ? line + strlen("LLVM ERROR: ") : text;
	line[strcspn(line, "\n")] = 0;
	if (!*line && WIFSIGNALED(status))
		snprintf(text, sizeof(text), "%s", strsignal(WTERMSIG(status)));
	return shunt_fail(EINVAL, "%s: LLVM ends over this module: %s", name, *line ? line : *text ? text : "it gives no reason");
}

/* -EPIPE, without a sentence, when the child has ended before. */
static int receive(int answers, const char *name, uint8_t **out, size_t *out_len)
{
	int64_t deadline = now_ms() + CHILD_SECONDS * 1000;
	struct answer answer;
	uint8_t *bytes = NULL;
	int err = read_all(answers, &answer, sizeof(answer), deadline);

	if (!err && answer.len > (answer.err ? MAX_SENTENCE : BPF_OBJECT_MAX_BYTES))
		return shunt_fail(EFBIG, "%s: its object of %u bytes is larger than the %zu that a BPF object may have", name, answer.len,
				  BPF_OBJECT_MAX_BYTES);
	if (!err) {
		bytes = malloc((size_t)answer.len + 1);
		if (!bytes)
			return shunt_fail(ENOMEM, "%s: no memory for its object", name);
		err = read_all(answers, bytes, answer.len, deadline);
	}
	if (!err && !answer.err) {
		*out = bytes;
		*out_len = answer.len;
		return 0;
	}
	if (!err)
		err = shunt_fail(answer.err, "%.*s", (int)answer.len, (const char *)bytes);
	else if (err != -EPIPE)
		err = shunt_fail(-err, "%s: compiling the module: %s", name, strerror(-err));
	free(bytes);
	return err;
}

int bpf_from_ir(const void *bytes, size_t len, const char *name, uint8_t **out, size_t *out_len)
{
	int printed = memfd_create("shunt-ir", MFD_CLOEXEC), answers[2] = { -1, -1 }, status = 0, err = 0;
	pid_t pid = -1;

	if (len > BPF_OBJECT_MAX_BYTES)
		err = shunt_fail(EFBIG, "%s: %zu bytes are more than the %zu that a BPF module may have", name, len, BPF_OBJECT_MAX_BYTES);
	else if (printed < 0 || pipe2(answers, O_CLOEXEC))
		err = shunt_fail(errno, "%s: no descriptors to compile the module with: %s", name, strerror(errno));
	if (!err) {
		pid = fork();
		if (pid < 0)
			err = shunt_fail(errno, "%s: no process to compile the module in: %s", name, strerror(errno));
		else if (!pid)
			child(bytes, len, name, answers[1], printed);
	}
	if (answers[1] >= 0)
		close(answers[1]);
	if (!err)
		err = receive(answers[0], name, out, out_len);
	if (pid > 0) {
		if (err != -EPIPE)
			kill(pid, SIGKILL); /* it has nothing left to say */
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
	}
	if (err == -EPIPE)
		err = fail_ended(name, printed, status);
	if (answers[0] >= 0)
		close(answers[0]);
	if (printed >= 0)
		close(printed);
	return err;
}
