/* SPDX-License-Identifier: MIT */
/*
 * The first and only service of a test machine: runs the commands of /tests one after the other, tells their ends on the console and
 * switches the machine off. A line of /tests is a name, a time limit in seconds, and a command with its arguments, separated by
 * spaces; the words VARIABLE=value before a command are its environment. Statically linked, so that it needs nothing of the machine.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_WORDS 64

static void mount_at(const char *type, const char *where)
{
	mkdir(where, 0755);
	if (mount(type, where, type, 0, NULL) != 0)
		printf("init: mounting %s at %s: %s\n", type, where, strerror(errno));
}

static int run(char **words, unsigned limit)
{
	sigset_t child;
	struct timespec timeout = { .tv_sec = limit };
	int status = -1;
	pid_t pid;

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, NULL);
	pid = fork();
	if (pid == 0) {
		sigprocmask(SIG_UNBLOCK, &child, NULL);
		setpgid(0, 0);
		while (*words && strchr(*words, '='))
			putenv(*words++);
		if (*words)
			execv(*words, words);
		printf("init: %s: %s\n", *words ? *words : "no command", strerror(errno));
		fflush(stdout);
		_exit(127);
	}
	/* Also woken by orphans, which end here: the time limit then starts anew, which harms nobody. */
	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (sigtimedwait(&child, NULL, &timeout) < 0 && errno == EAGAIN) {
			kill(-pid, SIGKILL);
			waitpid(pid, &status, 0);
			return 124;
		}
	}
	kill(-pid, SIGKILL);
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(void)
{
	char line[4096];
	FILE *tests;

	mount_at("devtmpfs", "/dev");
	mount_at("proc", "/proc");
	mount_at("sysfs", "/sys");
	mount_at("tmpfs", "/tmp");
	mkdir("/dev/shm", 0755);
	mount_at("tmpfs", "/dev/shm");
	if (chdir("/tests.d") != 0)
		printf("init: /tests.d: %s\n", strerror(errno));
	setvbuf(stdout, NULL, _IOLBF, 0);
	setenv("PATH", "/bin", 1);
	setenv("HOME", "/tmp", 1);
	tests = fopen("/tests", "re");
	while (tests && fgets(line, sizeof(line), tests)) {
		char *words[MAX_WORDS + 1] = { NULL };
		size_t nr = 0;
		struct timespec start, end;
		int status;

		line[strcspn(line, "\n")] = '\0';
		for (char *save = NULL, *word = strtok_r(line, " ", &save); word && nr < MAX_WORDS; word = strtok_r(NULL, " ", &save))
			words[nr++] = word;
		if (nr < 3)
			continue;
		printf("\n@@ begin %s\n", words[0]);
		clock_gettime(CLOCK_MONOTONIC, &start);
		status = run(words + 2, (unsigned)strtoul(words[1], NULL, 10));
		clock_gettime(CLOCK_MONOTONIC, &end);
		printf("\n@@ end %s %d %.1f\n", words[0], status,
		       (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9);
	}
	printf("\n@@ done\n");
	sync();
	reboot(RB_POWER_OFF);
	return 0;
}
