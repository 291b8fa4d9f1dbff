#!/usr/bin/env bash
# Runs every test of the release build, what the sanitizer builds can run, and the arm64 build under emulation, then prints what was
# skipped and why, what arm64 ran of x86-64's tests, and one line of totals. Called by ./dev test and ./dev arm64.
# usage: run_all.sh [-p PRESET]... [ctest arguments]: -L unit, -R pack, ...
# SHUNT_ARM64_SKIPPED=REASON in the environment: there is no arm64 build here, and why. SHUNT_ARM64_SAMPLE=1: only one in 12 of the IR tests there.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

presets=()
while [[ ${1:-} == -p ]]; do
	presets+=("$2")
	shift 2
done
((${#presets[@]})) || presets=(release asan tsan arm64)

status=0
totals=()
for preset in "${presets[@]}"; do
	log=build/$preset/test.log
	choice=()
	environment=()
	case $preset in
	tsan) # only what has threads
		choice=(-LE 'ir|encode|e2e|install')
		;;
	arm64)
		if [[ -n ${SHUNT_ARM64_SKIPPED:-} ]]; then
			totals+=(--skip "arm64: $SHUNT_ARM64_SKIPPED")
			continue
		fi
		choice=(-L 'arm64-user|arm64-system')
		if ! why="$(cmake/arm64/binfmt.sh build/arm64-sysroot)"; then
			why="${why##*$'\n'}"
			totals+=(--skip "arm64, all tests under qemu-user: ${why#skipped: }")
			choice=(-L arm64-system)
		elif [[ -n ${SHUNT_ARM64_SAMPLE:-} ]]; then
			totals+=(--skip "arm64 ir, 11 of 12 of its files: passes do the same on any machine, and take 8 minutes emulated; ./dev arm64 runs them all")
			environment=(LIT_OPTS='--num-shards=12 --run-shard=1')
		fi
		;;
	esac
	printf '+ %s ctest --preset %s %s\n' "${environment[*]}" "$preset" "${choice[*]} $*" >&2
	env "${environment[@]}" ctest --preset "$preset" --output-junit test.xml --test-output-size-passed 1000000 -j "$(nproc)" "${choice[@]}" "$@" | tee "$log"
	((PIPESTATUS[0] == 0)) || status=1
	totals+=("$preset=build/$preset/test.xml")
done
python3 test/totals.py "${totals[@]}" || status=1
exit "$status"
