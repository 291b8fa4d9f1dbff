#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The layer check goes red on each kind of wrong include and stays green on the right ones."""

import pathlib
import subprocess
import sys
import tempfile

CHECK = pathlib.Path(__file__).with_name("check_layers.py")
ROOMS = ["targets", "runtime/pack", "passes", "lib/jit", "lib/bpf", "lib/replay", "tools", "include/shunt"]

# file, its text, whether the check must accept it
CASES = [
    ("runtime/pack/pack.c", '#include "targets/target.h"\n', True),
    ("runtime/pack/pack.c", "#include <shunt/pack.h>\n", True),
    ("lib/bpf/open.c", '#include "runtime/log.h"\n#include <gelf.h>\n', True),
    ("targets/code.c", '#include "runtime/log.h"\n', False),
    ("runtime/pack/pack.c", '#include "lib/jit/jit.h"\n', False),
    ("runtime/pack/pack.c", "#include <llvm-c/Core.h>\n", False),
    ("passes/percpu.c", "#include <shunt/pack.h>\n", False),
    ("passes/percpu.c", '#include "runtime/log.h"\n', False),
    ("passes/other.cpp", "int x;\n", False),
    ("tools/run.c", '#include "log.h"\n', False),
    ("tools/run.c", '#include "runtime/nothing.h"\n', False),
    ("lib/jit/jit.c", "#include <pcap/pcap.h>\n", False),
]


def accepts(path, text):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for room in ROOMS:
            (root / room).mkdir(parents=True)
        for header in ("targets/target.h", "runtime/log.h", "lib/jit/jit.h"):
            (root / header).write_text("")
        (root / path).write_text(text)
        return subprocess.run([sys.executable, CHECK, root], capture_output=True).returncode == 0


failures = [case for case in CASES if accepts(case[0], case[1]) != case[2]]
for path, text, expected in failures:
    print(f"{path}: {text!r} should {'pass' if expected else 'be refused'}")
print(f"{len(CASES) - len(failures)} passed, {len(failures)} failed")
sys.exit(1 if failures else 0)
