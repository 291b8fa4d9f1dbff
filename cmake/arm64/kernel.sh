#!/usr/bin/env bash
# Fetches Debian's arm64 kernel and unpacks its image, installing nothing. usage: kernel.sh FILE: the image becomes FILE.
# Does nothing when FILE is there already.
set -euo pipefail

file=$1
[[ -s $file ]] && exit 0
source "$(dirname "${BASH_SOURCE[0]}")/apt.sh"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{lists/partial,archives/partial,unpacked} "$(dirname "$file")"
debian_sources >"$work/sources.list"
network_options >"$work/apt.conf"
chmod 755 "$work"
apt=(-c "$work/apt.conf" -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State::lists="$work/lists" -o Dir::State::status=/dev/null
	-o Dir::Cache="$work" -o Dir::Cache::archives="$work/archives" -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=-
	-o APT::Sandbox::User="$(id -un)")

printf '+ apt-get download linux-image-arm64 (its image)\n' >&2
apt-get -qq "${apt[@]}" update
# linux-image-arm64 only names the current one.
package="$(apt-cache "${apt[@]}" depends linux-image-arm64 | awk '/Depends: linux-image-/ { print $2; exit }')"
(cd "$work" && apt-get -qq "${apt[@]}" download "$package")
dpkg-deb --fsys-tarfile "$work"/linux-image-*.deb | tar -xf - -C "$work/unpacked" ./boot
cp "$work"/unpacked/boot/vmlinuz-* "$file.new"
mv "$file.new" "$file"
