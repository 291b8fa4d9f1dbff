#!/usr/bin/env bash
# Runs every test of the release build, what the sanitizer builds can run, and the arm64 build under emulation, then prints what was
# skipped and why, what arm64 ran of x86-64's tests, and one line of totals. Called by ./dev test and ./dev arm64.
# usage: run_all.sh [-p PRESET]... [ctest arguments]: -L unit, -R pack, ...
# SHUNT_ARM64_SKIPPED=REASON in the environment: there is no arm64 build here, and why. SHUNT_ARM64_SAMPLE=1: of the arm64 build only what is quick
# under qemu-user, since emulating all of it takes longer than everything else together.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

presets=()
while [[ ${1:-} == -p ]]; do
	presets+=("$2")
	shift 2
done
((${#presets[@]})) || presets=(release asan tsan arm64)

slow='^(ir|passes|jit_run|jit_errors|jit_threads|test_percpu.*|percpu_random.*|unit_pack_toggle|unit_pack_faults'
slow+='|bpf_open.*|bpf_helpers|bpf_translate|bpf_random.*|damaged_.*|e2e_run|e2e_ir|e2e_dump|e2e_compile)$'
status=0
totals=()
(($# == 0)) || totals+=(--part)
for preset in "${presets[@]}"; do
	log=build/$preset/test.log
	choice=()
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
		if [[ -n ${SHUNT_ARM64_SAMPLE:-} ]]; then
			choice=(-L arm64-user -E "$slow")
			totals+=(--sample "$slow")
			totals+=(--skip "arm64, the emulated machine and what takes minutes under qemu-user: ./dev arm64 runs it")
		fi
		if ! why="$(cmake/arm64/binfmt.sh build/arm64-sysroot)"; then
			why="${why##*$'\n'}"
			totals+=(--skip "arm64, all tests under qemu-user: ${why#skipped: }")
			[[ -z ${SHUNT_ARM64_SAMPLE:-} ]] || continue
			choice=(-L arm64-system)
		fi
		;;
	esac
	printf '+ ctest --preset %s %s\n' "$preset" "${choice[*]} $*" >&2
	ctest --preset "$preset" --output-junit test.xml --test-output-size-passed 1000000 -j "$(nproc)" "${choice[@]}" "$@" | tee "$log"
	((PIPESTATUS[0] == 0)) || status=1
	totals+=("$preset=build/$preset/test.xml")
done
python3 test/totals.py "${totals[@]}" || status=1
exit "$status"
