#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Says of CTest's records why tests were skipped, what arm64 ran of what x86-64 ran, and the totals. totals.py [PRESET=test.xml | --skip REASON | --sample REGEX |
--part]...

Exit status 1 when a test failed, or none passed, or (unless --part says that not all were asked for) one of x86-64's is not among arm64's without
a reason that is listed here. A Criterion test program counts as one test; its cases are counted beside it."""

import collections
import re
import sys
import xml.etree.ElementTree as tree

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
Test = collections.namedtuple("Test", "state reason cases skipped_cases text seconds")

# x86-64's tests that a cross build has not.
NOT_ON_ARM64 = {
    r"install_.*": "runs this machine's compiler on what is installed, as a user would on the machine itself",
    r"percpu_global_O\d": "a clang that has to load the plugin, which is the other machine's here",
    r"c_host_out_of_reach": "about where the kernel places an executable; qemu-user does it in its own way",
    r"stress_percpu_exact_(thread|getcpu)": "the emulated machine runs stress_percpu_exact with rseq, the source of arm64's sequences",
}
# What of arm64's output is shown, as it is what these are run for.
SHOWN = re.compile(r"encode_(instructions|llvm|arm64_trees_run)|arm64_(system\.)?same_verdicts_and_maps|arm64_compiled_here|arm64_system\.series")
CRITERION = re.compile(r"^\[(RUN |PASS|----|====|SKIP)|^took ")


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
        took = re.search(r"^took (\S+) s on the machine$", text, re.MULTILINE)
        tests[case.get("name")] = Test(state, lines[-1].removeprefix("skipped: ") if lines else "no reason printed", cases, skipped, text,
                                       float(took[1] if took else case.get("time")))
    return tests


def reason_for(name, here, there, sample):
    """Why arm64 did not run it; None when nothing says so."""
    skipped = there or here
    if skipped:
        return skipped.reason
    if sample and "stress" in name:
        return "stress tests run on the emulated machine; ./dev arm64 does"
    if sample and re.search(sample, name):
        return "takes minutes emulated; ./dev arm64 runs it"
    return next((reason for pattern, reason in NOT_ON_ARM64.items() if re.fullmatch(pattern, name)), None)


def compare(x86, arm, sample):
    """What of x86-64's tests ran for arm64 where, and why the rest did not; sample matches those that were left out as slow. Returns the names
    for which there is no reason."""
    reasons = collections.defaultdict(list)
    ran = [name for name, test in x86.items() if test.state == "passed"]
    user = system = both = cases = 0
    for name, test in x86.items():
        here, there = arm.get(name), arm.get(f"arm64_system.{name}")
        passed = [bool(one) and one.state == "passed" for one in (here, there)]
        user += passed[0]
        system += passed[1]
        both += any(passed) and test.state == "passed"
        cases += max(here.cases if here else 0, there.cases if there else 0)
        if not any(one and one.state in ("passed", "failed") for one in (here, there)) and test.state != "skipped":
            reasons[reason_for(name, here, there, sample)].append(name)
    extra = [name for name, test in arm.items() if name.removeprefix("arm64_system.") not in x86 and test.state == "passed"]
    for name, test in arm.items():
        if SHOWN.fullmatch(name) and test.state == "passed":
            print(f"{name}:", *(f"  {line}" for line in test.text.strip().splitlines() if line and not CRITERION.match(line)), sep="\n")
    times = [(test.seconds, name.removeprefix("arm64_system.")) for name, test in arm.items() if name.startswith("arm64_system.")]
    if times:
        print(f"on the emulated machine, {sum(seconds for seconds, _ in times):.0f} s:",
              ", ".join(f"{name} {seconds:.0f} s" for seconds, name in sorted(times, reverse=True)))
    for reason, names in sorted(reasons.items(), key=str):
        print(f"not on arm64: {', '.join(sorted(names))}: {reason or 'FOR NO REASON THAT test/totals.py KNOWS'}")
    counted = collections.Counter(reason for test in arm.values() for _, reason in test.skipped_cases)
    for reason, number in counted.most_common():
        print(f"not on arm64: {number} cases: {reason}")
    print(f"x86-64 passed {len(ran)} tests, {sum(test.cases for test in x86.values())} Criterion cases in them. Of these tests arm64 passed {both} "
          f"({user} under qemu-user, {system} on the emulated machine, {cases} cases), and {len(ran) - both} it did not run or did not pass, for the "
          f"reasons above; and it passed {len(extra)} tests more, of its own")
    return reasons.get(None, [])


def main():
    counts = collections.Counter()
    runs = {}
    sample = None
    is_part = False
    arguments = iter(sys.argv[1:])
    for argument in arguments:
        if argument == "--skip":
            print(f"skipped: {next(arguments)}")
            counts["skipped"] += 1
            continue
        if argument == "--part":
            is_part = True
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
    missing = compare(runs["release"], runs["arm64"], sample) if {"release", "arm64"} <= runs.keys() else []
    print(f'{counts["passed"]} passed, {counts["failed"]} failed, {counts["skipped"]} skipped')
    return 1 if counts["failed"] or not counts["passed"] or (missing and not is_part) else 0


sys.exit(main())
