#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs tests on an emulated arm64 machine. system.py boot QEMU KERNEL INITRAMFS LOG SECONDS boots it, which runs the tests of its list and
switches itself off; system.py result LOG NAME [EXPECTED] gives the outcome of one of them, its output and its exit status, 1 when the output is
not what the file EXPECTED holds."""
import os
import re
import shutil
import subprocess
import sys

SKIP = 77


def boot(qemu, kernel, initramfs, log, seconds):
    if not os.path.exists(kernel):
        return skip(log, f"there is no kernel for the test machine at {kernel} (cmake/arm64/kernel.sh fetches it)")
    if not shutil.which(qemu):
        return skip(log, "there is no qemu-system-aarch64 (qemu-system-arm)")
    # Two CPUs, each with memory of its own.
    nodes = [word for node in "01" for word in ("-object", f"memory-backend-ram,id=memory{node},size=1536M",
                                                "-numa", f"node,nodeid={node},cpus={node},memdev=memory{node}")]
    command = [qemu, "-M", "virt", "-cpu", "max,pauth-impdef=on", "-smp", "2", "-m", "3072", *nodes, "-nic", "none", "-accel", "tcg,thread=multi", "-display", "none",
               "-serial", "stdio", "-monitor", "none", "-no-reboot", "-kernel", kernel, "-initrd", initramfs,
               # An emulator that the machine below lets wait is no lockup, and words about one would be in the middle of a test's.
               "-append", "console=ttyAMA0 quiet loglevel=1 panic=-1 nowatchdog rcupdate.rcu_cpu_stall_suppress=1"]
    print("+", " ".join(command), flush=True)
    with open(log, "wb") as out:
        try:
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, timeout=float(seconds), check=False)
        except subprocess.TimeoutExpired:
            print(f"the machine did not switch itself off within {seconds} seconds")
    text = read(log)
    ended = re.findall(r"^@@ end (\S+) (\d+) (\S+)$", text, re.MULTILINE)
    for name, status, took in ended:
        print(f"{name}: exit {status} after {took} s")
    if "\n@@ done\n" not in text:
        print("\n".join(text.splitlines()[-30:]))
        print("the machine ran its tests not to the end; its last lines are above")
        return 1
    passed = sum(status == "0" for _, status, _ in ended)
    skipped = sum(status == "77" for _, status, _ in ended)
    print(f"{len(ended)} tests ran on the machine: {passed} passed, {len(ended) - passed - skipped} failed, {skipped} skipped")
    return 0


def skip(log, reason):
    """Tests of the machine find the reason in the log."""
    with open(log, "w", encoding="utf-8") as out:
        print(f"skipped: {reason}", file=out)
    print(f"skipped: {reason}")
    return SKIP


def read(log):
    with open(log, encoding="utf-8", errors="replace") as file:
        return file.read().replace("\r", "")


def result(log, name, expected=None):
    text = read(log)
    if text.startswith("skipped: "):
        print(text.strip())
        return SKIP
    found = re.search(rf"^@@ begin {re.escape(name)}\n(.*?)^@@ end {re.escape(name)} (\d+) (\S+)$", text, re.MULTILINE | re.DOTALL)
    if not found:
        print(f"the machine did not run {name} to its end")
        return 1
    print(f"took {found[3]} s on the machine")
    print(found[1].strip("\n"))
    if expected and found[1].strip("\n") != read(expected).strip("\n"):
        print(f"this is not what {expected} says")
        return 1
    return int(found[2])


if __name__ == "__main__":
    sys.exit({"boot": boot, "result": result}[sys.argv[1]](*sys.argv[2:]))
