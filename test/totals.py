#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Says of CTest's records why tests were skipped, what arm64 ran of what x86-64 ran, and the totals. totals.py [PRESET=test.xml | --skip REASON | --sample REGEX]...

Exit status 1 when a test failed, or none passed. A Criterion test program counts as one test; its cases are counted beside it."""

import collections
import re
import sys
import xml.etree.ElementTree as tree

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
Test = collections.namedtuple("Test", "state reason cases skipped_cases")


def read(path):
    tests = {}
    for case in tree.parse(path).getroot().iter("testcase"):
        text = COLOUR.sub("", case.findtext("system-out") or "")
        lines = text.strip().splitlines()
        if case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            state = "skipped"
        else:
            state = "passed" if case.get("status") == "run" else "failed"
        # Criterion counts skipped cases as tested.
        cases = sum(int(number) for number in re.findall(r"Synthesis: Tested: (\d+)", text))
        skipped = re.findall(r"^\[SKIP\] (\S+): (.*)$", text, re.MULTILINE)
        tests[case.get("name")] = Test(state, lines[-1].removeprefix("skipped: ") if lines else "no reason printed", cases, skipped)
    return tests


def compare(x86, arm, sample):
    """What of x86-64's tests ran for arm64 where, and why the rest did not; sample matches those that were left out as slow."""
    reasons = collections.defaultdict(list)
    user = system = cases = 0
    for name, test in x86.items():
        here, there = arm.get(name), arm.get(f"arm64_system.{name}")
        user += here is not None and here.state == "passed"
        system += there is not None and there.state == "passed"
        cases += max(here.cases if here else 0, there.cases if there else 0)
        if any(one and one.state in ("passed", "failed") for one in (here, there)) or test.state == "skipped":
            continue
        if here:
            reasons[here.reason].append(name)
        elif sample and re.search(sample, name):
            reasons["takes minutes emulated; ./dev arm64 runs it"].append(name)
        elif "stress" in name:
            reasons["stress tests under emulation: those of dispatchers, packs and per-CPU data run on the emulated machine"].append(name)
        else:
            reasons["says nothing about the machine, or looks at the sources only"].append(name)
    extra = [name for name, test in arm.items() if name.removeprefix("arm64_system.") not in x86 and test.state == "passed"]
    ran = [name for name, test in x86.items() if test.state == "passed"]
    print(f"x86-64: {len(ran)} tests, {sum(test.cases for test in x86.values())} Criterion cases in them. "
          f"Of these on arm64: {user} under qemu-user, {system} on the emulated machine, {cases} cases; and {len(extra)} tests more")
    for reason, names in sorted(reasons.items()):
        print(f"not on arm64: {', '.join(sorted(names))}: {reason}")
    reasons = collections.Counter(reason for test in arm.values() for _, reason in test.skipped_cases)
    for reason, number in reasons.most_common():
        print(f"not on arm64: {number} cases: {reason}")


def main():
    counts = collections.Counter()
    runs = {}
    sample = None
    arguments = iter(sys.argv[1:])
    for argument in arguments:
        if argument == "--skip":
            print(f"skipped: {next(arguments)}")
            counts["skipped"] += 1
            continue
        if argument == "--sample":
            sample = next(arguments)
            continue
        preset, path = argument.split("=", 1)
        runs[preset] = read(path)
        for name, test in runs[preset].items():
            counts[test.state] += 1
            if test.state != "passed":
                print(f"{test.state}: {preset} {name}" + (f": {test.reason}" if test.state == "skipped" else ""))
    if {"release", "arm64"} <= runs.keys():
        compare(runs["release"], runs["arm64"], sample)
    print(f'{counts["passed"]} passed, {counts["failed"]} failed, {counts["skipped"]} skipped')
    return 1 if counts["failed"] or not counts["passed"] else 0


sys.exit(main())
