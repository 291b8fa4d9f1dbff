# SPDX-License-Identifier: MIT
# shunt-opt as the tests call it; where the plugin can say the same, opt-19 with the plugin must give the same module.
# usage: both.py SHUNT_OPT OPT PLUGIN [shunt-opt's arguments]
import getopt
import os
import re
import subprocess
import sys
import tempfile

LONG = ["passes=", "map=", "maps=", "cpu=", "nr-cpus=", "spectre-v1", "retarget=", "llvm-before=", "llvm-after=", "remarks=", "stats",
        "output=", "help", "version"]
WITH_MAPS = ("shunt", "shunt-bpf-helpers", "shunt-percpu")
WITH_CPU = ("shunt", "shunt-percpu")


def pipeline(options, maps):
    """The passes with what the options say as parameters; None where the plugin has no words for it."""
    passes = [value for key, value in options if key in ("-p", "--passes")] or ["shunt"]
    cpu = []
    for key, value in options:
        if key in ("--llvm-before", "--llvm-after", "--retarget", "--help", "-h", "--version"):
            return None
        if key in ("--cpu", "--nr-cpus"):
            cpu.append(key[2:] + "=" + value)
        if key == "--spectre-v1":
            cpu.append("spectre-v1")
    elements = []
    for element in passes[-1].split(","):
        name, _, own = element.rstrip(">").partition("<")
        parameters = (["maps=" + maps] if maps and name in WITH_MAPS else []) + (cpu if name in WITH_CPU else []) + ([own] if own else [])
        elements.append(name + ("<" + ";".join(parameters) + ">" if parameters else ""))
    return ",".join(elements) if passes[-1] else None


def text_of(command, stdin):
    result = subprocess.run(command, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if result.returncode:
        return "%s: %s" % (" ".join(command), result.stderr.decode())
    # The order of predecessors in comments is that of use lists, which reading a file does not keep.
    return re.sub(r"(?m)^; ModuleID.*\n| *; preds = .*$", "", result.stdout.decode())


def main():
    shunt_opt, opt, plugin = sys.argv[1:4]
    arguments = sys.argv[4:]
    try:
        options, inputs = getopt.gnu_getopt(arguments, "p:m:r:so:Sh", LONG)
    except getopt.GetoptError:
        options, inputs = [], []
    stdin = sys.stdin.buffer.read() if "-" in inputs else None
    status = subprocess.run([shunt_opt] + arguments, input=stdin).returncode
    if status or not plugin or len(inputs) != 1:
        return status
    lines = [value for key, value in options if key in ("-m", "--map")]
    for key, value in options:
        if key == "--maps":
            lines += open(value).read().splitlines()
    with tempfile.NamedTemporaryFile("w", suffix=".maps") as maps:
        maps.write("\n".join(lines) + "\n")
        maps.flush()
        passes = pipeline(options, maps.name if lines else None)
        if passes is None:
            return status
        quiet = [a for key, value in options if key not in ("-o", "--output", "-r", "--remarks", "-s", "--stats", "-S")
                 for a in ([key + "=" + value] if key.startswith("--") and value else [key, value] if value else [key])]
        # opt adds the machine's data layout, by which it reads alignments: both begin with what it made of the input.
        module = stdin if stdin is not None else open(inputs[0], "rb").read()
        first = subprocess.run([opt, "-passes=verify", "-S"], input=module, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if first.returncode:
            return status
        ours = text_of([shunt_opt] + quiet + ["-S", "-"], first.stdout)
        theirs = text_of([opt, "-load-pass-plugin=" + plugin, "-passes=" + passes, "-S", "-"], first.stdout)
    if ours == theirs:
        return status
    print("the plugin (-passes='%s') gives another module:" % passes, file=sys.stderr)
    import difflib
    sys.stderr.writelines(difflib.unified_diff(ours.splitlines(True), theirs.splitlines(True), "shunt-opt", "opt"))
    return 1


sys.exit(main())
