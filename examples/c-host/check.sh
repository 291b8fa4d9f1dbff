#!/bin/sh
# SPDX-License-Identifier: MIT
# The hook's call is direct in the engine and the host prints what it should. usage: check.sh ENGINE HOST EXPECTED DIRECT|INDIRECT|FAR PLUGIN...
# FAR: the engine is in the executable itself, out of reach of its plug-ins, unless the dynamic linker places it.
set -eu
engine=$1 host=$2 expected=$3 kind=$4
shift 4
objdump=${OBJDUMP:-objdump} # a cross build names its own
command -v "$objdump" > /dev/null || { echo "skipped: there is no objdump (binutils)"; exit 77; }
hook=$("$objdump" -d --no-show-raw-insn "$engine" | awk '/<engine_process>:$/ { inside = 1 } inside { print } /^$/ { inside = 0 }')
# x86-64: call *%rax, call *8(%rbx); arm64: blr x1
indirect=$(printf '%s\n' "$hook" | grep -cE '(call|jmp)q? +\*|[^a-z]bl?r[[:space:]]+x[0-9]+' || true)
direct=$(printf '%s\n' "$hook" | grep -cE '(call|jmp|bl?)q?[[:space:]].*<shunt_stub\.on_event>' || true)
echo "$engine: engine_process has $direct direct and $indirect indirect calls of the hook"
case $kind in
DIRECT | FAR) [ "$direct" -ge 1 ]; [ "$indirect" -eq 0 ] ;;
INDIRECT) [ "$direct" -eq 0 ]; [ "$indirect" -ge 1 ] ;;
*) false ;;
esac
if [ "$kind" = FAR ]; then
	linker=$(LC_ALL=C readelf -l "$host" | sed -n 's/.*program interpreter: \(.*\)]$/\1/p')
	"$host" "$@" > "$host.out" 2> "$host.err"
	cat "$host.err"
	cmp "$host.out" "$expected"
	[ "$(grep -c 'stays an indirect call: .* out of direct reach' "$host.err")" -eq $# ]
	"$linker" "$host" "$@" > "$host.out" 2> "$host.err"
	cmp "$host.out" "$expected"
	cat "$host.err"
	[ ! -s "$host.err" ]
	exit
fi
dir=$(dirname "$engine")
LD_LIBRARY_PATH=$dir "$host" "$@" > "$engine.out" 2> "$engine.err"
cat "$engine.err"
LD_TRACE_LOADED_OBJECTS=1 LD_LIBRARY_PATH=$dir "$host" | grep -q "$engine" # this very engine ran
[ ! -s "$engine.err" ]
cmp "$engine.out" "$expected"
