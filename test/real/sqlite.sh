#!/bin/sh
# SPDX-License-Identifier: MIT
# Real code: Debian's SQLite, whose file methods (sqlite3_io_methods) are marked as dispatched in the one struct that declares them and compiled
# with the passes. SQLite's own test programs must say the same with the passes on and off, and the marked calls must be direct.
# usage: sqlite.sh SOURCE_DIR PLUGIN LIBSHUNT CLANG WORK_DIR
# Exits 77, saying why, without network or tools.
set -eu
source=$1 plugin=$2 libshunt=$3 clang=$4 work=$5
here=$source/test/real
. "$here/source.sh"

for tool in objdump make cc; do
	command -v $tool > /dev/null || skip "there is no $tool"
done
mkdir -p "$work"
cd "$work"
fetch sqlite3

# The amalgamation: SQLite's makefile writes it with a Tcl script.
if ! [ -f build/sqlite3.c ]; then
	if ! command -v tclsh > /dev/null; then
		fetch_programs tcl8.6 libtcl8.6
		ln -sf tclsh8.6 programs/usr/bin/tclsh
		PATH=$work/programs/usr/bin:$PATH
		LD_LIBRARY_PATH=$(dirname "$work"/programs/usr/lib/*/libtcl8.6.so) TCL_LIBRARY=$work/programs/usr/share/tcltk/tcl8.6
		export LD_LIBRARY_PATH TCL_LIBRARY
	fi
	rm -rf sqlite build && mkdir sqlite build
	tar xf sqlite3_*.orig.tar.* -C sqlite --strip-components=1
	(cd build && ../sqlite/configure --disable-tcl --disable-readline > make.log 2>&1 && make sqlite3.c >> make.log 2>&1) ||
		{ tail -n 3 build/make.log; exit 1; }
fi

# Each method of the struct.
sed '/^struct sqlite3_io_methods {/,/^};/s/^\(  [a-z]* (\*x[A-Za-z]*)(.*)\);/\1 SHUNT_DISPATCHED("sqlite_io");/' build/sqlite3.c > marked.c
[ "$(grep -c 'SHUNT_DISPATCHED("sqlite_io");' marked.c)" -eq 18 ] ||
	{ echo "the methods are not where they were: look at struct sqlite3_io_methods in build/sqlite3.c"; exit 1; }

# build NAME [flags]: all of SQLite in one library with the hook. Not synchronised with a disk: these tests lose no power.
build() {
	name=$1
	shift
	mkdir -p "$name"
	"$clang" -O2 -fPIC -w -DSQLITE_THREADSAFE=1 -DSQLITE_NO_SYNC -DSQLITE_ENABLE_DBPAGE_VTAB -include shunt/mark.h "$@" -I"$source/include" -Ibuild -shared \
		-o "$name/libsqlite_host.so" "$here/sqlite_hook.c" marked.c "$libshunt" -Wl,-rpath,"$(dirname "$libshunt")" -lm -ldl -lpthread
}
build off & off=$!
build on -fpass-plugin="$plugin"
wait $off

off=$(stub_calls off/libsqlite_host.so sqlite_io) on=$(stub_calls on/libsqlite_host.so sqlite_io)
echo "calls of the stub: $off without the passes, $on with them"
[ "$on" -gt $((off + 100)) ]

tests=sqlite/test recover=sqlite/ext/recover
link() { name=$1; shift; "$clang" -O1 -w -DSQLITE_CORE -DSQLITE_OSS_FUZZ -Ibuild -Isqlite/src -I$tests -I$recover -o "$name" "$@" off/libsqlite_host.so -lm -lpthread; }
link speedtest1 $tests/speedtest1.c
link threadtest3 $tests/threadtest3.c sqlite/src/test_multiplex.c
link fuzzcheck $tests/fuzzcheck.c $tests/ossfuzz.c $tests/fuzzinvariants.c $tests/vt02.c $recover/dbdata.c $recover/sqlite3recover.c

# What a test says without its times. The programs are linked with one library and find the other, too.
quick() {
	export LD_LIBRARY_PATH="$work/$1"
	rm -f test.db*
	./speedtest1 --size 5 --verify --journal delete test.db | sed -n 's/^ *\(Verification Hash\)/journal: \1/p'
	rm -f test.db*
	./speedtest1 --size 5 --verify --journal wal test.db | sed -n 's/^ *\(Verification Hash\)/log: \1/p'
	for data in fuzzdata4 fuzzdata6; do
		./fuzzcheck $tests/$data.db | sed -n "s/^fuzzcheck: \(.*tests\) in.*/$data: \1/p"
	done
	./threadtest3 walthread5 cgt_pager_1 | sed -n 's/^\([0-9]* errors\)/threads: \1/p'
}
for way in off on; do
	(quick $way) > $way.out 2> $way.err || { cat $way.out $way.err; exit 1; }
done
cat on.out
cmp off.out on.out
[ "$(grep -c 'Verification Hash\|: 0 errors out of' on.out)" -eq 5 ]
