#!/usr/bin/env bash
# Runs on the arm64 machine that hw.sh copied this folder to. usage: run.sh [tests|bench]...
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export LD_LIBRARY_PATH=$PWD/lib

if [[ $(uname -m) != aarch64 ]]; then
	echo "this machine is $(uname -m), not arm64" >&2
	exit 2
fi
uname -srm
grep -m1 -i '^features' /proc/cpuinfo
passed=0 failed=0 skipped=0
for what in "$@"; do
	case $what in
	tests)
		while read -r name limit command; do
			[[ -n $command ]] || continue
			# shellcheck disable=SC2086 # the list's words are the arguments
			timeout "$limit" env $command >"$name.log" 2>&1 </dev/null
			status=$?
			case $status in
			0) passed=$((passed + 1)) && echo "passed: $name" ;;
			77) skipped=$((skipped + 1)) && echo "skipped: $name: $(tail -n 1 "$name.log")" ;;
			*)
				failed=$((failed + 1))
				echo "failed: $name: exit $status"
				tail -n 30 "$name.log"
				;;
			esac
		done <tests
		;;
	bench)
		for program in bench/bench_*; do
			[[ -x $program ]] && echo "== $program" && "./$program"
		done
		;;
	*)
		echo "run.sh: '$what' is none of: tests, bench" >&2
		exit 2
		;;
	esac
done
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
