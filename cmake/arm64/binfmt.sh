#!/usr/bin/env bash
# Lets this machine's kernel start arm64 programs through qemu-user, as the test programs do that start others (Criterion runs each test
# in a process of its own). usage: binfmt.sh [SYSROOT]; 0 when it works; 77 after saying why it cannot.
# With SYSROOT it also tries a program from there. Registers nothing where some package or an earlier run did already.
set -euo pipefail

misc=/proc/sys/fs/binfmt_misc
why_not() {
	echo "skipped: arm64 programs cannot be started here: $*"
	exit 77
}

qemu="$(command -v qemu-aarch64-static)" || why_not "qemu-aarch64-static is not installed (qemu-user-static)"

works() {
	[[ -e $misc/qemu-aarch64 ]] && grep -qx enabled "$misc/qemu-aarch64" 2>/dev/null
}

if ! works; then
	if [[ ! -e $misc/register ]]; then
		((EUID == 0)) || why_not "binfmt_misc is not mounted and this user cannot: mount -t binfmt_misc binfmt_misc $misc"
		mount -t binfmt_misc binfmt_misc "$misc" 2>/dev/null || why_not "this kernel refuses to mount binfmt_misc"
	fi
	[[ -w $misc/register ]] || why_not "only root may register qemu-aarch64 in $misc: run this script once as root"
	# O: qemu gets the program as an open descriptor; C: credentials come from the program. The ELF header of an arm64 executable or
	# position independent executable, then which of its bits count.
	printf '%s' ':qemu-aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:'"$qemu:OC" \
		>"$misc/register" 2>/dev/null || works || why_not "the kernel refused to register qemu-aarch64 in $misc"
fi
if (($# == 1)); then
	output="$(QEMU_LD_PREFIX=$1 "$1/usr/lib/llvm-19/bin/FileCheck" --version 2>&1)" || why_not "a program of $1 does not run: $output"
fi
