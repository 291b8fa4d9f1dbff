#!/bin/sh
# Which definitions of dispatchers and hooks compile. Usage: dispatch_checks.sh INCLUDE_DIR COMPILER...
# A compiler whose name has ++ gets C++.
include=$1
shift
failed=0
prelude='#include <shunt/hook.h>
struct pair { int a, b; };
typedef float floats __attribute__((vector_size(16)));
__extension__ typedef __int128 int128;'

# check COMPILER EXPECTED(0: compiles, 1: does not) SOURCE
check() {
	options="-std=c11 -x c"
	case $1 in *++*) options="-std=c++11 -x c++" ;; esac
	# What is refused is so before there is code.
	[ "$2" = 1 ] && options="$options -fsyntax-only"
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
	bool=_Bool
	case $compiler in *++*) bool=bool ;; esac
	check "$compiler" 0 'SHUNT_DISPATCHER_DECLARE(hook, unsigned, (void *ctx));'
	check "$compiler" 0 'SHUNT_DISPATCHER_DECLARE(hook, void, (int a, struct pair *b, char c, long d, int (*e)(int, int)));'
	check "$compiler" 0 'SHUNT_DISPATCHER_DEFINE(hook, unsigned, (void *ctx));'
	check "$compiler" 0 'SHUNT_DISPATCHER_DEFINE(hook, void, (void *ctx)); SHUNT_DISPATCHER_DEFINE(other, double, (char a, uint64_t b));'
	check "$compiler" 0 "SHUNT_DISPATCHER_DEFINE(hook, struct pair *, (int a, struct pair *b, $bool c, long d, int (*e)(int, int)));"
	check "$compiler" 1 'SHUNT_DISPATCHER_DEFINE(hook, int, ());'
	check "$compiler" 1 'SHUNT_DISPATCHER_DEFINE(hook, int, (int a, int b, int c, int d, int e, int f, int g, int h));'
	check "$compiler" 1 'SHUNT_DISPATCHER_DEFINE(hook, int, (float a));'
	check "$compiler" 1 'SHUNT_DISPATCHER_DEFINE(hook, int, (void *a, double b));'
	check "$compiler" 1 'SHUNT_DISPATCHER_DEFINE(hook, int, (long double a));'
	check "$compiler" 1 'SHUNT_DISPATCHER_DEFINE(hook, int, (const double a));'
	check "$compiler" 1 'SHUNT_DISPATCHER_DEFINE(hook, int, (struct pair a));'
	check "$compiler" 1 'SHUNT_DISPATCHER_DEFINE(hook, int, (floats a));'
	check "$compiler" 1 'SHUNT_DISPATCHER_DEFINE(hook, int, (int128 a));'
	check "$compiler" 1 'SHUNT_DISPATCHER_DEFINE(hook, struct pair, (int a));'

	# A static hook passes on whatever it is called with; its result is 0 where there is no program.
	check "$compiler" 0 'SHUNT_HOOK_DECLARE(hook, int, (int a)); SHUNT_MULTI_HOOK_DECLARE(many, int, (int a));'
	check "$compiler" 0 'SHUNT_HOOK_DEFINE(hook, int, (struct pair a, double b, floats c, int d, int e, int f, int g, int h, int i));'
	check "$compiler" 0 'SHUNT_HOOK_DEFINE(hook, void, (void)); SHUNT_HOOK_DEFINE(other, struct pair *, (long double a));'
	check "$compiler" 1 'SHUNT_HOOK_DEFINE(hook, float, (int a));'
	check "$compiler" 1 'SHUNT_HOOK_DEFINE(hook, double, (int a));'
	check "$compiler" 1 'SHUNT_HOOK_DEFINE(hook, long double, (int a));'
	check "$compiler" 1 'SHUNT_HOOK_DEFINE(hook, int128, (int a));'
	check "$compiler" 1 'SHUNT_HOOK_DEFINE(hook, struct pair, (int a));'
	check "$compiler" 1 'SHUNT_HOOK_DEFINE(hook, floats, (int a));'
	check "$compiler" 1 'SHUNT_HOOK_DEFINE(hook, int, (int a)) int x;'
	# One name, one type.
	check "$compiler" 1 'SHUNT_HOOK_DECLARE(hook, int, (int a)); SHUNT_HOOK_DEFINE(hook, int, (long a));'
	check "$compiler" 1 'SHUNT_HOOK_DEFINE(hook, int, (int a)); int f(struct pair p); int f(struct pair p) { return hook(p); }'

	# A multi-hook keeps the arguments for the next program, so they are words.
	check "$compiler" 0 'SHUNT_MULTI_HOOK_DEFINE(hook, unsigned char, (void *a, int b, char c, long d, int (*e)(void), struct pair *f));'
	check "$compiler" 1 'SHUNT_MULTI_HOOK_DEFINE(hook, int, (int a, int b, int c, int d, int e, int f, int g, int h, int i));'
	check "$compiler" 1 'SHUNT_MULTI_HOOK_DEFINE(hook, int, (float a));'
	check "$compiler" 1 'SHUNT_MULTI_HOOK_DEFINE(hook, int, (int a, double b));'
	check "$compiler" 1 'SHUNT_MULTI_HOOK_DEFINE(hook, int, (int a, struct pair b));'
	check "$compiler" 1 'SHUNT_MULTI_HOOK_DEFINE(hook, int, (floats a));'
	check "$compiler" 1 'SHUNT_MULTI_HOOK_DEFINE(hook, int, (int128 a));'
	check "$compiler" 1 'SHUNT_MULTI_HOOK_DEFINE(hook, double, (int a));'
	check "$compiler" 1 'SHUNT_MULTI_HOOK_DEFINE(hook, struct pair, (int a));'
	case $compiler in *++*)
		check "$compiler" 0 'enum class color { red }; SHUNT_DISPATCHER_DEFINE(hook, color, (color a, int &b, const pair &c, bool d));'
		check "$compiler" 0 'SHUNT_MULTI_HOOK_DEFINE(hook, bool, (pair *a, const pair &b));'
		check "$compiler" 1 'SHUNT_DISPATCHER_DEFINE(hook, int, (int pair::*a));'
		check "$compiler" 1 'struct word { int a; }; SHUNT_DISPATCHER_DEFINE(hook, int, (word a));'
		;;
	esac
	case $("$compiler" -dumpmachine) in x86_64*) ;; *) continue ;; esac
	check "$compiler" 1 'SHUNT_DISPATCHER_DEFINE(hook, int, (int a, int b, int c, int d, int e, int f));'
	check "$compiler" 1 'SHUNT_MULTI_HOOK_DEFINE(hook, int, (int a, int b, int c, int d, int e, int f, int g));'
done
exit $failed
