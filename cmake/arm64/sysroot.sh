#!/usr/bin/env bash
# Makes a sysroot for arm64: the Debian packages that the build links against, unpacked and not installed, in one directory.
# usage: sysroot.sh DIR PACKAGE...
# Does nothing when DIR is complete for these packages already. Packages come from the Debian sources that apt has on this machine.
# Installing the :arm64 packages beside the native ones instead does not work: apt then removes the native LLVM.
set -euo pipefail

dir="$(realpath -m "$1")"
shift
wanted="$(printf '%s\n' "$@" | sort -u | paste -sd,)"
stamp=$dir/.complete
if [[ -f $stamp && $(<"$stamp") == "$wanted" ]]; then
	exit 0
fi

source "$(dirname "${BASH_SOURCE[0]}")/apt.sh"
sources="$(debian_sources)"
# mmdebstrap reads no configuration of this machine's apt but what it is told.
options=()
while IFS= read -r line; do
	options+=(--aptopt="$line")
done < <(network_options)

# A half made one of an earlier run is in the way. In DIR lie only unpacked packages and the stamp.
rm -rf "$dir.new"
mkdir -p "$(dirname "$dir")"
printf '+ mmdebstrap --variant=extract --architectures=arm64 --include=%s %s\n' "$wanted" "$dir" >&2
mode=()
((EUID == 0)) || mode=(--mode=unshare)
mmdebstrap --quiet "${mode[@]}" --variant=extract --architectures=arm64 --include="$wanted" "${options[@]}" \
	bookworm "$dir.new" - <<<"$sources"

# Absolute links lead out of the sysroot and into this machine.
find "$dir.new" -xdev -type l -lname '/*' -print0 | while IFS= read -r -d '' link; do
	target="$(readlink "$link")"
	ln -sfnr "$dir.new$target" "$link"
done
rm -rf "$dir.old"
[[ ! -e $dir ]] || mv "$dir" "$dir.old"
printf '%s\n' "$wanted" >"$dir.new/.complete"
mv "$dir.new" "$dir"
rm -rf "$dir.old"
