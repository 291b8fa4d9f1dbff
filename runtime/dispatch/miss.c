/* SPDX-License-Identifier: MIT */
/*
 * The fallback that fits the machine. The kernel has decided already how its own indirect branches are protected, from the processor, its
 * microcode and the administrator's word (mitigations=off), and says so in one line of text. We do as it does.
 */
#include "runtime/dispatch/miss.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_once_t auto_once = PTHREAD_ONCE_INIT;
static enum shunt_fallback auto_fallback;

enum shunt_fallback shunt_miss_parse(const char *line, bool has_shadow_stack)
{
	/* "Mitigation: Retpolines; ...", "Mitigation: Retpoline", "Mitigation: Full generic retpoline"; "Mitigation: LFENCE" and "Full AMD
	 * retpoline" are lfence and jump. "Enhanced / Automatic IBRS" leaves branches plain, unless it adds "+ Retpolines". Vulnerable: whoever
	 * runs the machine lives with it. */
	if (!line || strncmp(line, "Mitigation", strlen("Mitigation")) != 0)
		return SHUNT_FALLBACK_JUMP;
	if (strcasestr(line, "lfence") || strcasestr(line, "AMD retpoline"))
		return SHUNT_FALLBACK_LFENCE;
	if (strcasestr(line, "retpoline"))
		return has_shadow_stack ? SHUNT_FALLBACK_LFENCE : SHUNT_FALLBACK_RETPOLINE;
	return SHUNT_FALLBACK_JUMP;
}

#if defined(__x86_64__)

#define ARCH_SHSTK_STATUS 0x5005 /* asm/prctl.h of Linux 6.6 */

static bool has_shadow_stack(void)
{
	unsigned long features = 0;

	return syscall(SYS_arch_prctl, ARCH_SHSTK_STATUS, &features) == 0 && features & 1;
}

static void find_out(void)
{
	FILE *file = fopen("/sys/devices/system/cpu/vulnerabilities/spectre_v2", "re");
	char line[256];

	if (!file)
		return;
	auto_fallback = shunt_miss_parse(fgets(line, sizeof(line), file), has_shadow_stack());
	fclose(file);
}

#else

/* Nothing but a jump exists here. */
static void find_out(void)
{
	auto_fallback = SHUNT_FALLBACK_JUMP;
}

#endif

enum shunt_fallback shunt_miss_resolve(enum shunt_miss_kind kind)
{
	if (kind != SHUNT_MISS_AUTO)
		return (enum shunt_fallback)kind;
	pthread_once(&auto_once, find_out);
	return auto_fallback;
}

const char *shunt_miss_name(enum shunt_miss_kind kind)
{
	switch (kind) {
	case SHUNT_MISS_JUMP:
		return "jump";
	case SHUNT_MISS_RETPOLINE:
		return "retpoline";
	case SHUNT_MISS_LFENCE:
		return "lfence";
	case SHUNT_MISS_AUTO:
		return "auto";
	}
	return "unknown";
}
