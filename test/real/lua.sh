#!/bin/sh
# SPDX-License-Identifier: MIT
# Real code: Debian's Lua, whose calls of C functions go through one interface (lua_CFunction), marked as dispatched and compiled with the
# passes. The interpreter must do the same with the passes on and off, and the marked calls must be direct.
# usage: lua.sh SOURCE_DIR PLUGIN LIBSHUNT CLANG WORK_DIR
# Exits 77, saying why, without network or tools.
set -eu
source=$1 plugin=$2 libshunt=$3 clang=$4 work=$5
here=$source/test/real
. "$here/source.sh"

command -v objdump > /dev/null || skip "there is no objdump (binutils)"
mkdir -p "$work"
cd "$work"
fetch lua5.4
rm -rf lua && mkdir lua
tar xf lua5.4_*.orig.tar.* -C lua --strip-components=1

# One mark: the pointer that precallC is given.
sed -i '/^l_sinline int precallC (/,/{/s/lua_CFunction f)/lua_CFunction f SHUNT_DISPATCHED("lua_c"))/' lua/src/ldo.c
grep -q 'SHUNT_DISPATCHED("lua_c")' lua/src/ldo.c || { echo "precallC is not where it was: look at lua/src/ldo.c"; exit 1; }

# build NAME [flags]: all of Lua in one library with the hook, and the interpreter's main.
build() {
	name=$1
	shift
	mkdir -p "$name"
	"$clang" -O2 -fPIC -w -DLUA_USE_POSIX -DLUA_USE_DLOPEN -include shunt/mark.h "$@" -I"$source/include" -Ilua/src -shared -o "$name/liblua_host.so" \
		"$here/lua_hook.c" $(ls lua/src/*.c | grep -v '/lua[c]\?\.c$') "$libshunt" -Wl,-rpath,"$(dirname "$libshunt")" -lm -ldl
	"$clang" -O2 -w -DLUA_USE_POSIX -Ilua/src -o "$name/lua" lua/src/lua.c "$name/liblua_host.so" -Wl,-rpath,"$work/$name" -lm -ldl
}
build off
build on -fpass-plugin="$plugin"

# The dispatcher's own C entry is one.
off=$(stub_calls off/liblua_host.so lua_c) on=$(stub_calls on/liblua_host.so lua_c)
echo "calls of the stub: $off without the passes, $on with them"
[ "$on" -gt "$off" ]

for way in off on; do
	"$way/lua" "$here/quick.lua" > "$way.out" 2> "$way.err" || { cat "$way.err"; exit 1; }
done
cmp off.out on.out
tail -n 1 on.out
grep -q "^all passed" on.out
