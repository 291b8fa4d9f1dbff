#!/usr/bin/env bash
# Runs every test of the release build and what the sanitizer builds can run, then prints one line of totals. Called by ./dev test;
# arguments go to ctest (-L unit, -R pack, ...).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

status=0
for preset in release asan tsan; do
	log=build/$preset/test.log
	left_out=()
	# Under the thread sanitizer only what has threads.
	[[ $preset == tsan ]] && left_out=(-LE 'ir|encode|e2e|install')
	printf '+ ctest --preset %s %s\n' "$preset" "${left_out[*]} $*" >&2
	ctest --preset "$preset" --output-junit test.xml -j "$(nproc)" "${left_out[@]}" "$@" | tee "$log"
	((PIPESTATUS[0] == 0)) || status=1
done

# Why tests were skipped, then the totals, counted from CTest's own records.
python3 - build/release/test.xml build/asan/test.xml build/tsan/test.xml <<'PY' || status=1
import sys
import xml.etree.ElementTree as tree

passed = failed = skipped = 0
for path in sys.argv[1:]:
    preset = path.split("/")[1]
    for case in tree.parse(path).getroot().iter("testcase"):
        if case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            skipped += 1
            output = (case.findtext("system-out") or "").strip().splitlines()
            print(f"skipped: {preset} {case.get('name')}: {output[-1] if output else 'no reason printed'}")
        elif case.get("status") == "run":
            passed += 1
        else:
            failed += 1
            print(f"failed: {preset} {case.get('name')}")
print(f"{passed} passed, {failed} failed, {skipped} skipped")
sys.exit(1 if failed or not passed else 0)
PY
exit "$status"
