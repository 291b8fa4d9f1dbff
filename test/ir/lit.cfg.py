# SPDX-License-Identifier: MIT
# Tests of the passes: each .ll file carries its command lines and what FileCheck must find in their output.
import os

import lit.formats

config.name = "shunt-ir"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".ll", ".test"]
config.test_source_root = os.path.dirname(__file__)
config.excludes = ["Inputs"]
config.environment["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "")

# Longest names first: lit replaces text, not words.
config.substitutions.append(("%shunt-opt", config.shunt_opt))
config.substitutions.append(("%plugin", config.shunt_plugin))
config.substitutions.append(("%llvm", config.llvm_tools))
config.substitutions.append(("%FileCheck", os.path.join(config.llvm_tools, "FileCheck")))
if config.shunt_plugin:
    config.available_features.add("plugin")
