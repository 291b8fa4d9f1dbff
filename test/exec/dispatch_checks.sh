#!/bin/sh
# Which dispatcher definitions compile. Usage: dispatch_checks.sh INCLUDE_DIR COMPILER...
# A compiler whose name has ++ gets declarations only, as C++.
include=$1
shift
failed=0
prelude='#include <shunt/dispatcher.h>
struct pair { int a, b; };
typedef float floats __attribute__((vector_size(16)));'

# check COMPILER EXPECTED(0: compiles, 1: does not) SOURCE
check() {
	options="-std=c11 -x c"
	case $1 in *++*) options="-std=c++11 -x c++" ;; esac
	printf '%s\n%s\n' "$prelude" "$3" |
		"$1" ${SHUNT_SYSROOT:+--sysroot="$SHUNT_SYSROOT"} $options -pedantic -Wall -Wextra -Werror -I"$include" -c - -o /dev/null 2>/dev/null
	got=$?
	[ $got -ne 0 ] && got=1
	if [ $got -ne "$2" ]; then
		echo "$1: expected $2, got $got: $3"
		failed=1
	fi
}

for compiler in "$@"; do
	command -v "$compiler" >/dev/null || { echo "skipping $compiler, which is not here"; continue; }
	check "$compiler" 0 'SHUNT_DISPATCHER_DECLARE(hook, unsigned, (void *ctx));'
	check "$compiler" 0 'SHUNT_DISPATCHER_DECLARE(hook, void, (int a, struct pair *b, char c, long d, int (*e)(int, int)));'
	case $compiler in *++*) continue ;; esac
	check "$compiler" 0 'SHUNT_DISPATCHER_DEFINE(hook, unsigned, (void *ctx));'
	check "$compiler" 0 'SHUNT_DISPATCHER_DEFINE(hook, void, (void *ctx)); SHUNT_DISPATCHER_DEFINE(other, double, (char a, uint64_t b));'
	check "$compiler" 0 'SHUNT_DISPATCHER_DEFINE(hook, struct pair *, (int a, struct pair *b, _Bool c, long d, int (*e)(int, int)));'
	check "$compiler" 1 'SHUNT_DISPATCHER_DEFINE(hook, int, ());'
	check "$compiler" 1 'SHUNT_DISPATCHER_DEFINE(hook, int, (int a, int b, int c, int d, int e, int f, int g, int h));'
	check "$compiler" 1 'SHUNT_DISPATCHER_DEFINE(hook, int, (float a));'
	check "$compiler" 1 'SHUNT_DISPATCHER_DEFINE(hook, int, (void *a, double b));'
	check "$compiler" 1 'SHUNT_DISPATCHER_DEFINE(hook, int, (long double a));'
	check "$compiler" 1 'SHUNT_DISPATCHER_DEFINE(hook, int, (const double a));'
	check "$compiler" 1 'SHUNT_DISPATCHER_DEFINE(hook, int, (struct pair a));'
	check "$compiler" 1 'SHUNT_DISPATCHER_DEFINE(hook, int, (floats a));'
	check "$compiler" 1 'SHUNT_DISPATCHER_DEFINE(hook, int, (shunt_int128 a));'
	check "$compiler" 1 'SHUNT_DISPATCHER_DEFINE(hook, struct pair, (int a));'
	case $("$compiler" -dumpmachine) in x86_64*) ;; *) continue ;; esac
	check "$compiler" 1 'SHUNT_DISPATCHER_DEFINE(hook, int, (int a, int b, int c, int d, int e, int f));'
done
exit $failed
