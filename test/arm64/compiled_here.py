#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Objects that x86-64 compiled for arm64 run there with the results of x86-64. compiled_here.py SHUNT ARM64_SHUNT CAPTURE"""

import json
import pathlib
import subprocess
import sys
import tempfile

SHUNT, OTHER, CAPTURE = sys.argv[1:4]
sys.argv[1:] = [SHUNT, CAPTURE]
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
from common import rules_for, settings, xdp_filters  # noqa: E402


def run(*command):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, check=False)
    if result.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit {result.returncode}: {result.stderr}")
    return result.stdout


def outcome(text):
    report = json.loads(text)
    maps = {m["name"]: [[e["key"], [sum(w) for w in zip(*e["cpus"])] if "cpus" in e else e] for e in m["entries"]] for m in report["maps"]}
    return [queue["verdicts"] for queue in report["queues"]], maps


def main():
    if not pathlib.Path(SHUNT).exists():
        print(f"skipped: there is no {SHUNT} to compile with: build the preset release first")
        return 77
    different = []
    with tempfile.TemporaryDirectory() as folder:
        code = pathlib.Path(folder) / "code.o"
        for path in xdp_filters():
            rules = settings(rules_for(path))
            run(SHUNT, "compile", "--target", "aarch64-linux-gnu", "--cpu", "call", path, "-o", code)
            there = outcome(run(OTHER, "run", "--json", *rules, "--code", code, path, CAPTURE))
            if there != outcome(run(SHUNT, "run", "--json", *rules, path, CAPTURE)):
                different.append(path.name)
    print(f"{len(xdp_filters())} objects compiled for arm64 here and run there: {len(different)} differ", *different)
    return 1 if different else 0


sys.exit(main())
