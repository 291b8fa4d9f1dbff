#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs tests on an emulated arm64 machine. system.py boot QEMU KERNEL INITRAMFS LOG SECONDS boots it, which runs the tests of its list and
switches itself off; system.py result LOG NAME gives the outcome of one of them, its output and its exit status."""
import re
import subprocess
import sys


def boot(qemu, kernel, initramfs, log, seconds):
    command = [qemu, "-M", "virt", "-cpu", "max,pauth-impdef=on", "-smp", "2", "-m", "3072", "-nic", "none", "-accel", "tcg,thread=multi", "-display", "none",
               "-serial", "stdio", "-monitor", "none", "-no-reboot", "-kernel", kernel, "-initrd", initramfs,
               "-append", "console=ttyAMA0 quiet loglevel=1 panic=-1"]
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


def read(log):
    with open(log, encoding="utf-8", errors="replace") as file:
        return file.read().replace("\r", "")


def result(log, name):
    found = re.search(rf"^@@ begin {re.escape(name)}\n(.*?)^@@ end {re.escape(name)} (\d+) \S+$", read(log), re.MULTILINE | re.DOTALL)
    if not found:
        print(f"the machine did not run {name} to its end")
        return 1
    print(found[1].strip("\n"))
    return int(found[2])


if __name__ == "__main__":
    sys.exit({"boot": boot, "result": result}[sys.argv[1]](*sys.argv[2:]))
