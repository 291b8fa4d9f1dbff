/* SPDX-License-Identifier: MIT */
/* deny_views PROGRAM ARGUMENT...: runs it on a system that denies memory a second view. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "test/deny_views.h"

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	if (!deny_second_views()) {
		puts("skipped: this system takes no seccomp filter");
		return 77;
	}
	execv(argv[1], argv + 1);
	fprintf(stderr, "%s: %s\n", argv[1], strerror(errno));
	return 2;
}
