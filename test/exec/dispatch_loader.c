/* SPDX-License-Identifier: MIT */
/*
 * Opens a shared library with dispatchers, runs its test, closes it, and again: the names must be free after dlclose and the
 * pages of the unloaded library must not stay behind. Usage: dispatch_loader LIBRARY.
 */
#include <dlfcn.h>
#include <errno.h>
#include <shunt/hook.h>
#include <shunt/log.h>
#include <shunt/pack.h>
#include <shunt/reader.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const void *page;

static int run_library(const char *path)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	int (*run)(void);
	int result;

	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	*(void **)&run = dlsym(library, "dispatch_image_run");
	if (!run || !shunt_dispatcher_find("image_hook")) {
		fprintf(stderr, "the library's dispatcher or its test is not there\n");
		return 1;
	}
	page = shunt_dispatcher_stub(shunt_dispatcher_find("image_hook"));
	result = run();
	if (dlclose(library) != 0 || shunt_dispatcher_find("image_hook") || shunt_hook_find("image_static")) {
		fprintf(stderr, "the dispatcher or the hook is still there after dlclose\n");
		return 1;
	}
	return result;
}

/* A fork's child gets pages of its own for stubs in images; not where an image was. */
static int is_unmapped_in_a_child(void)
{
	unsigned char resident;
	pid_t child = fork();
	int status;

	if (child == 0)
		_exit(mincore((void *)page, 4096, &resident) == -1 && errno == ENOMEM ? 0 : 1);
	return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

int main(int argc, char **argv)
{
	struct shunt_pack_stats stats;
	uint64_t after_first = 0;

	if (argc != 2)
		return 2;
	for (int i = 0; i < 4; i++) {
		if (run_library(argv[1]))
			return 1;
		if (shunt_quiesce() || shunt_pack_get_stats(NULL, &stats)) {
			fprintf(stderr, "%s\n", shunt_error());
			return 1;
		}
		if (i == 0)
			after_first = stats.bytes_used[SHUNT_SEGMENT_CODE];
	}
	if (!is_unmapped_in_a_child()) {
		fprintf(stderr, "a child maps the stub page of a library that was unloaded\n");
		return 1;
	}
	if (stats.bytes_used[SHUNT_SEGMENT_CODE] > after_first) {
		fprintf(stderr, "unloading leaks: %llu bytes of code after the first time, %llu after the fourth\n",
			(unsigned long long)after_first, (unsigned long long)stats.bytes_used[SHUNT_SEGMENT_CODE]);
		return 1;
	}
	return 0;
}
