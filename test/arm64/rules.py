#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints the --set options that shunt run gets for one xdp-filter object. rules.py OBJECT"""

import pathlib
import sys

path = pathlib.Path(sys.argv[1])
sys.argv[1:] = ["", ""]
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
from common import rules_for, settings  # noqa: E402

print(" ".join(settings(rules_for(path))))
