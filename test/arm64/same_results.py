#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every xdp-filter object over the capture on two machines: verdicts and maps must be equal. same_results.py SHUNT OTHER CAPTURE OBJECTS, where
OTHER is the other machine's shunt, or the log of a test machine that printed its reports (system.py)."""

import json
import pathlib
import re
import subprocess
import sys

SHUNT, OTHER, CAPTURE, OBJECTS = sys.argv[1:5]
SKIP = 77
sys.argv[1:3] = [SHUNT, CAPTURE]
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
from common import rules_for, settings, xdp_filters  # noqa: E402


def report(tool, path):
    if tool.endswith(".log"):
        text = pathlib.Path(tool).read_text(errors="replace").replace("\r", "")
        text = re.sub(r"^\[ *\d+\.\d+\] .*\n", "", text, flags=re.MULTILINE)  # the kernel's own words
        name = re.escape(f"report.{path.stem}")
        found = re.search(rf"^@@ begin {name}\n(.*?)^@@ end {name} (\d+) ", text, re.MULTILINE | re.DOTALL)
        if not found or found[2] != "0":
            sys.exit(f"the machine did not run {path.name}: {found[1] if found else 'it is not in the log'}")
        return json.loads(found[1])
    result = subprocess.run([tool, "run", "--json", *settings(rules_for(path)), str(path), CAPTURE], capture_output=True, text=True, timeout=300,
                            check=False)
    if result.returncode:
        sys.exit(f"{tool} run {path.name}: exit {result.returncode}: {result.stderr}")
    return json.loads(result.stdout)


def outcome(report_):
    """What must not depend on the machine: values of per-CPU maps are added up, the machines have different numbers of CPUs."""
    maps = {}
    for map_ in report_["maps"]:
        for entry in map_["entries"]:
            value = [sum(words) for words in zip(*entry["cpus"])] if "cpus" in entry else entry
            maps[f'{map_["name"]}[{json.dumps(entry["key"])}]'] = value
    return {"verdicts": [queue["verdicts"] for queue in report_["queues"]], "maps": maps}


def main():
    if OTHER.endswith(".log") and pathlib.Path(OTHER).read_text(errors="replace").startswith("skipped: "):
        print(pathlib.Path(OTHER).read_text().strip())
        return SKIP
    if not pathlib.Path(SHUNT).exists():
        print(f"skipped: there is no {SHUNT} to compare with: build the preset release first")
        return SKIP
    paths, different, entries = xdp_filters(), [], 0
    for path in paths:
        here, there = outcome(report(SHUNT, path)), outcome(report(OTHER, path))
        entries += len(here["maps"])
        if here != there:
            different.append(f"{path.name}:\n  here  {json.dumps(here)}\n  there {json.dumps(there)}")
    print(*different, sep="\n", end="\n" if different else "")
    print(f"{len(paths)} objects over {pathlib.Path(CAPTURE).name}, {entries} map entries compared: {len(different)} differ")
    return 1 if different or not entries else 0


sys.exit(main())
