# SPDX-License-Identifier: MIT
# Tests of the passes: each .ll file carries its command lines and what FileCheck must find in their output.
import os
import sys

import lit.formats

config.name = "shunt-ir"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".ll", ".test"]
config.test_source_root = os.path.dirname(__file__)
config.excludes = ["Inputs"]
for name in ("ASAN_OPTIONS", "QEMU_LD_PREFIX"):
    if name in os.environ:
        config.environment[name] = os.environ[name]

# Longest names first: lit replaces text, not words. Every run of shunt-opt is one of opt with the plugin, too.
config.substitutions.append(("%shunt-opt", " ".join([sys.executable, os.path.join(config.test_source_root, "both.py"), config.shunt_opt,
                                                      os.path.join(config.llvm_tools, "opt"), config.shunt_plugin or "''"])))
config.substitutions.append(("%plugin", config.shunt_plugin))
config.substitutions.append(("%include", os.path.join(config.source, "include")))
config.substitutions.append(("%llvm", config.llvm_tools))
config.substitutions.append(("%FileCheck", config.filecheck))
if config.shunt_plugin:
    config.available_features.add("plugin")
