# SPDX-License-Identifier: MIT
# What the tests of real code share: Debian's sources, fetched once into $work. To be read by sh's "." with $work set.
skip() { echo "skipped: $1"; exit 77; }

# fetch PACKAGE: its upstream tarball, PACKAGE_*.orig.tar.*, in $work.
# fetch_programs PACKAGE...: Debian's binary packages, unpacked in $work/programs: no right to install them is needed.
apt_options() { # deb|deb-src
	command -v apt-get > /dev/null || skip "apt-get is not here to fetch sources"
	keyring=/usr/share/keyrings/debian-archive-keyring.gpg
	[ -f $keyring ] || skip "Debian's keyring is not here"
	mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
	echo "$1 [signed-by=$keyring] http://deb.debian.org/debian bookworm main" > "$work/sources.list"
	apt="-qq -o Dir::Etc::sourcelist=$work/sources.list -o Dir::Etc::sourceparts=- -o Dir::State::lists=$work/lists -o Dir::Cache=$work/cache
		-o APT::Sandbox::User=root -o Acquire::http::Timeout=20 -o Acquire::Retries=1"
	timeout 120 apt-get $apt update > "$work/fetch.log" 2>&1 || skip "Debian's lists could not be fetched ($(tail -n 1 "$work/fetch.log"))"
}

fetch() {
	! ls "$work/$1"_*.orig.tar.* > /dev/null 2>&1 || return 0
	apt_options deb-src
	(cd "$work" && timeout 120 apt-get $apt source --download-only "$1" >> fetch.log 2>&1) ||
		skip "the source of $1 could not be fetched ($(tail -n 1 "$work/fetch.log"))"
}

fetch_programs() {
	apt_options deb
	(cd "$work" && timeout 120 apt-get $apt download "$@" >> fetch.log 2>&1) || skip "$* could not be fetched ($(tail -n 1 "$work/fetch.log"))"
	for package; do
		dpkg-deb -x "$work/${package}"_*.deb "$work/programs"
	done
}

# stub_calls LIBRARY HOOK: direct calls and jumps to the hook's stub.
stub_calls() { objdump -d --no-show-raw-insn "$1" | grep -cE "(call|jmp|bl?)q? .*<shunt_stub\\.$2>" || true; }
