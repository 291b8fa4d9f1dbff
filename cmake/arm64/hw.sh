#!/usr/bin/env bash
# Runs tests and benchmarks on a real arm64 machine. usage: hw.sh BUILD SYSROOT USER@HOST [tests|bench]...
# Copies one folder that needs nothing installed there but a C library as new as Debian 12's, runs its list there, and prints the totals.
# The folder is BUILD/hw and stays there as it was copied; on the other machine it is ~/shunt-hw, replaced at each run.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/libraries.sh"

build=$1 sysroot=$2 host=$3
shift 3
what=("$@")
((${#what[@]})) || what=(tests bench)
folder=$build/hw

rm -rf "$folder"
mkdir -p "$folder/lib" "$folder/bench"
# The same programs and the same lines as on the emulated machine: what test/arm64.cmake listed.
# A real machine is not slow, and may lack what the emulated one must have.
sed -e 's/ SHUNT_TEST_SLOWNESS=[0-9]*//' -e 's/\/arm64_machine all$/\/arm64_machine/' "$build/test/arm64-system-tests" >"$folder/tests"
while IFS= read -r file; do
	cp -L "$file" "$folder/"
	copy_libraries "$sysroot" "$folder/lib" "$file"
done <"$build/test/arm64-system-files"
for file in "$build"/bench/bench_*; do
	[[ -f $file && -x $file ]] || continue
	cp "$file" "$folder/bench/"
	copy_libraries "$sysroot" "$folder/lib" "$file"
done
# The C library is the other machine's: it goes with its dynamic linker and kernel.
rm -f "$folder"/lib/{ld-linux-aarch64.so.1,libc.so.6,libm.so.6,libpthread.so.0,libdl.so.2,librt.so.1}
cp "$(dirname "${BASH_SOURCE[0]}")/hw_run.sh" "$folder/run.sh"

printf '+ ssh %s, %s\n' "$host" "$(du -sh "$folder" | cut -f1)" >&2
tar -C "$build" -czf - hw | ssh "$host" 'rm -rf shunt-hw && mkdir shunt-hw && tar -xzf - -C shunt-hw --strip-components=1'
ssh "$host" "cd shunt-hw && ./run.sh ${what[*]@Q}"
