#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The README shows the example that is built and tested, to the letter."""

import pathlib
import sys

root = pathlib.Path(sys.argv[1])
example = (root / "examples/jit_c_front_end.c").read_text()
shown = (root / "README.md").read_text().split("```c\n", 1)[1].split("```", 1)[0]
if shown != example[example.index("#include"):]:
    print("README.md and examples/jit_c_front_end.c differ: copy the file from its first #include on")
    sys.exit(1)
