#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""No file under runtime/pack calls the system past the table in runtime/pack/backing_sys.h, nor do those that reclaim what packs free.

Looks at what the object files leave to the linker: each function of the C library that they use must be known here to ask nothing of the
system that could be refused, so a new one fails until somebody has decided which it is. usage: pack_seam.py OBJECT...
"""

import re
import subprocess
import sys

# Ask nothing of the system, or nothing that it could refuse; allocation is made to fail by the test itself (--wrap).
HARMLESS = set("""
malloc calloc realloc free strdup stpcpy strcpy strncpy strcat strrchr strstr vsnprintf memcpy memmove memset memcmp memchr strlen strnlen strchr strcmp strncmp strerror snprintf strtoul strtoull
__isoc99_sscanf sscanf __isoc23_sscanf __errno_location sbrk getauxval bsearch qsort
pthread_mutex_init pthread_mutex_destroy pthread_mutex_lock pthread_mutex_unlock pthread_once pthread_cond_init pthread_cond_signal
pthread_cond_broadcast pthread_cond_wait pthread_cond_timedwait pthread_detach pthread_join pthread_sigmask sigfillset pthread_atfork
clock_gettime sched_yield __popcountdi2 __tls_get_addr _GLOBAL_OFFSET_TABLE_ __stack_chk_fail __memcpy_chk __memset_chk __snprintf_chk
__aarch64_cas8_acq_rel __aarch64_ldadd8_acq_rel
""".split())
# Of liburcu, of the unwinder, of sanitizers and coverage, of our own.
OURS = re.compile(r"^(shunt_|urcu_|__asan_|__ubsan_|__tsan_|__sanitizer_|__gcov_|__aarch64_|_Unwind_|__(de)?register_frame)")
# Whose files are for others to read, and are no part of making or freeing anything.
NAMES = {"pack_names": {"open", "close", "fdopen", "fclose", "fflush", "fprintf", "getpid", "fputs", "fwrite", "write"}}
# The table itself, and what only starts and stops the reclaiming thread.
TABLE = "backing_sys"
LOOKED_AT = re.compile(r"/pack/[^/]+\.c\.o$|/(flush|grace|machine)\.c\.o$")


def undefined(path):
    out = subprocess.run(["nm", "-u", path], check=True, capture_output=True, text=True).stdout
    return {line.split()[-1].split("@")[0] for line in out.splitlines() if line.strip()}


def main():
    objects = [path for path in sys.argv[1:] if LOOKED_AT.search(path)]
    problems = []
    used = set()
    for path in objects:
        name = re.search(r"([^/]+)\.c\.o$", path).group(1)
        if name == TABLE:
            continue
        used.add(name)
        for symbol in sorted(undefined(path) - HARMLESS - NAMES.get(name, set())):
            if not OURS.match(symbol):
                problems.append(f"{name}.c calls {symbol} past the table in runtime/pack/backing_sys.h")
    for wanted in ("arena", "arena_range", "backing", "pack", "pack_dup", "pack_fill", "pack_fork", "pack_free", "pack_make", "flush", "grace", "machine"):
        if wanted not in used:
            problems.append(f"{wanted}.c was not looked at")
    print("\n".join(problems) if problems else f"{len(used)} files call the system through the table only")
    return bool(problems)


sys.exit(main())
