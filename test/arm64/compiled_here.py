#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Objects and shared libraries that x86-64 compiled for arm64 run there with the results of x86-64. compiled_here.py SHUNT ARM64_SHUNT ARM64_HOST
CAPTURE: ARM64_SHUNT loads objects, ARM64_HOST (test/exec/compiled_host.c) opens libraries."""

import json
import pathlib
import subprocess
import sys
import tempfile

SHUNT, OTHER, HOST, CAPTURE = sys.argv[1:5]
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
        code, library = pathlib.Path(folder) / "code.o", pathlib.Path(folder) / "code.so"
        for path in xdp_filters():
            rules = rules_for(path)
            for out in (code, library):
                run(SHUNT, "compile", "--target", "aarch64-linux-gnu", "--cpu", "call", path, "-o", out)
            here = outcome(run(SHUNT, "run", "--json", *settings(rules), path, CAPTURE))
            if outcome(run(OTHER, "run", "--json", *settings(rules), "--code", code, path, CAPTURE)) != here:
                different.append(path.name)
            if outcome(run(HOST, library, path, CAPTURE, *rules)) != here:
                different.append(f"{path.stem}.so")
    print(f"{len(xdp_filters())} objects and as many shared libraries compiled for arm64 here and run there: {len(different)} differ", *different)
    return 1 if different else 0


sys.exit(main())
