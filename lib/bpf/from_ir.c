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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <llvm-c/Core.h>
#include "lib/bpf/elf_image.h"
#include "lib/bpf/ir_compile.h"
#include "runtime/log.h"

#define CHILD_SECONDS 120
#define CHILD_MEMORY ((uint64_t)4 << 30) /* above what the process has reserved when it forks */
#define STILL_MS 2000 /* a child that has used no CPU for so long is waiting for a lock; doubled for the next child */

struct answer {
	int32_t err; /* positive errno with a sentence behind it, or 0 with an object */
	uint32_t len;
};

/* ---- the child ------------------------------------------------------------------------------------------------ */

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

__attribute__((noreturn)) static void run_child(const void *bytes, size_t len, const char *name, int answers, int printed)
{
	LLVMMemoryBufferRef object = NULL;
	struct answer answer = { 0 };
	const char *reason;
	int err;

	be_alone(printed);
	err = bpf_ir_compile(bytes, len, name, &object, &reason);
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

/* One child, and how long it may go on. */
struct child {
	pid_t pid;
	int answers; /* the pipe's end that is read */
	int printed; /* a file in memory with what LLVM said */
	int64_t deadline;
	int still_ms;
	int64_t used_ns; /* CPU, when looked at last */
};

/* Whether it has used CPU since the last look. Locks are all that it waits for: its input is in memory, its pipe is read. */
static bool gets_on(struct child *child)
{
	struct timespec used;
	clockid_t clock;
	int64_t before = child->used_ns;

	if (clock_getcpuclockid(child->pid, &clock) || clock_gettime(clock, &used))
		return true; /* it has ended, which the pipe says next */
	child->used_ns = (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
	return child->used_ns != before;
}

/* 0; -EPIPE when the child has ended before, -EAGAIN when it stands still, -ETIMEDOUT. */
static int read_all(struct child *child, void *bytes, size_t len)
{
	while (len) {
		struct pollfd wait = { .fd = child->answers, .events = POLLIN };
		int64_t left = child->deadline - now_ms();
		ssize_t got;
		int ready;

		if (left <= 0)
			return -ETIMEDOUT;
		ready = poll(&wait, 1, left < child->still_ms ? (int)left : child->still_ms);
		if (!ready && !gets_on(child))
			return -EAGAIN;
		if (ready <= 0)
			continue;
		got = read(child->answers, bytes, len);
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
	char text[BPF_IR_SENTENCE] = "", *line;
	ssize_t got = pread(printed, text, sizeof(text) - 1, 0);

	text[got > 0 ? got : 0] = 0;
	line = strstr(text, "LLVM ERROR: ");
	line = line ? line + strlen("LLVM ERROR: ") : text;
	line[strcspn(line, "\n")] = 0;
	if (!*line && WIFSIGNALED(status))
		snprintf(text, sizeof(text), "%s", strsignal(WTERMSIG(status)));
	return shunt_fail(EINVAL, "%s: LLVM ends over this module: %s", name, *line ? line : *text ? text : "it gives no reason");
}

/* -EPIPE and -EAGAIN without a sentence, as read_all. */
static int receive(struct child *child, const char *name, uint8_t **out, size_t *out_len)
{
	struct answer answer;
	uint8_t *bytes = NULL;
	int err = read_all(child, &answer, sizeof(answer));

	if (!err && answer.len > (answer.err ? BPF_IR_SENTENCE : BPF_OBJECT_MAX_BYTES))
		return shunt_fail(EFBIG, "%s: its object of %u bytes is larger than the %zu that a BPF object may have", name, answer.len,
				  BPF_OBJECT_MAX_BYTES);
	if (!err) {
		bytes = malloc((size_t)answer.len + 1);
		if (!bytes)
			return shunt_fail(ENOMEM, "%s: no memory for its object", name);
		err = read_all(child, bytes, answer.len);
	}
	if (!err && !answer.err) {
		*out = bytes;
		*out_len = answer.len;
		return 0;
	}
	if (!err)
		err = shunt_fail(answer.err, "%.*s", (int)answer.len, (const char *)bytes);
	else if (err != -EPIPE && err != -EAGAIN)
		err = shunt_fail(-err, "%s: compiling the module: %s", name, strerror(-err));
	free(bytes);
	return err;
}

/* What one child makes of it; -EAGAIN when it came to stand still. */
static int try_child(struct child *child, const void *bytes, size_t len, const char *name, uint8_t **out, size_t *out_len)
{
	int answers[2], status = 0, err;

	if (ftruncate(child->printed, 0) || lseek(child->printed, 0, SEEK_SET) || pipe2(answers, O_CLOEXEC))
		return shunt_fail(errno, "%s: no descriptors to compile the module with: %s", name, strerror(errno));
	child->pid = fork();
	if (!child->pid)
		run_child(bytes, len, name, answers[1], child->printed);
	err = child->pid < 0 ? shunt_fail(errno, "%s: no process to compile the module in: %s", name, strerror(errno)) : 0;
	close(answers[1]);
	if (!err) {
		child->answers = answers[0];
		child->used_ns = 0;
		err = receive(child, name, out, out_len);
		if (err != -EPIPE)
			kill(child->pid, SIGKILL); /* it has nothing left to say */
		while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
			;
		if (err == -EPIPE)
			err = fail_ended(name, child->printed, status);
	}
	close(answers[0]);
	return err;
}

int bpf_from_ir(const void *bytes, size_t len, const char *name, uint8_t **out, size_t *out_len)
{
	struct child child = { .deadline = now_ms() + CHILD_SECONDS * 1000, .still_ms = STILL_MS };
	int err;

	if (len > BPF_OBJECT_MAX_BYTES)
		return shunt_fail(EFBIG, "%s: %zu bytes are more than the %zu that a BPF module may have", name, len, BPF_OBJECT_MAX_BYTES);
	child.printed = memfd_create("shunt-ir", MFD_CLOEXEC);
	if (child.printed < 0)
		return shunt_fail(errno, "%s: no memory for what LLVM says about the module: %s", name, strerror(errno));
	/* A lock that stops a child was held by a thread of the host's for moments; the next child most likely finds it free. */
	do {
		err = try_child(&child, bytes, len, name, out, out_len);
		child.still_ms *= 2;
	} while (err == -EAGAIN);
	close(child.printed);
	return err;
}
