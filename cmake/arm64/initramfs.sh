#!/usr/bin/env bash
# Makes a root file system for a test machine as one cpio archive. usage: initramfs.sh SYSROOT OUT INIT TESTS [FILE...]
# INIT becomes /init, TESTS becomes /tests (see test/arm64/init.c), each FILE goes into /tests.d, the libraries that they need into /usr/lib.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/libraries.sh"

sysroot=$1 out=$2 init=$3 tests=$4
shift 4
root="$(mktemp -d)"
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/{bin,dev,etc,proc,sys,tmp,tests.d,lib,usr/lib}
cp "$init" "$root/init"
cp "$tests" "$root/tests"
for file in "$@"; do
	cp -L "$file" "$root/tests.d/"
	# Programs built with an rpath of the build directory find nothing there, and go on to the default directories.
	copy_libraries "$sysroot" "$root/usr/lib" "$file"
done
cp -L "$sysroot/lib/ld-linux-aarch64.so.1" "$root/lib/"

(cd "$root" && find . -print0 | LC_ALL=C sort -z | cpio --quiet --null -o -H newc -R 0:0) >"$out.new"
mv "$out.new" "$out"
