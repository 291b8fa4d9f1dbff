#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""GDB and perf know generated code by name: backtraces, breakpoints, samples. And what does not work does not work as documented."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HOST = sys.argv.pop(1)


def gdb(mode, *commands):
    words = [word for command in commands for word in ("-ex", command)]
    return subprocess.run(
        ["gdb", "-batch", "-nx", "-ex", "set breakpoint pending on", "-ex", "set debuginfod enabled off", *words, "--args", HOST, mode],
        capture_output=True, text=True, timeout=200, env={**os.environ, "LC_ALL": "C"})


@unittest.skipUnless(shutil.which("gdb"), "gdb is not installed")
class Gdb(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if "Breakpoint 1, " not in gdb("debug", "break main", "run").stdout:
            raise unittest.SkipTest("gdb may not trace processes here")

    def test_a_backtrace_names_the_generated_frames_between_two_of_the_host(self):
        for mode in ("sealed", "debug"):
            text = gdb(mode, "break host_callback", "run", "bt").stdout
            self.assertRegex(text, r"(?s)#0 .*host_callback.*#1 .* in jitted_frameless .*#2 .* in jitted_outer .*#3 .* in run .*#4 .* in main", mode)

    def test_the_caller_of_generated_code_is_found_at_each_of_its_instructions(self):
        text = gdb("debug", "break jitted_frameless", "run", *(["stepi", "bt 2"] * 3)).stdout
        self.assertEqual(len(re.findall(r"#1 .* in jitted_(?:outer|frameless) ", text)), 3, text)

    def test_a_breakpoint_by_name_stops_in_generated_code_with_private_views(self):
        text = gdb("debug", "break jitted_outer", "run", "bt", "continue").stdout
        self.assertRegex(text, r"Breakpoint 1, .*jitted_outer")
        self.assertIn("exited normally", text)
        self.assertIn("done 0", text)

    def test_a_software_breakpoint_in_sealed_code_changes_nothing(self):
        # GDB takes it for one in a library that was unloaded and says nothing.
        result = gdb("sealed", "break host_ready", "run", "break jitted_outer", "continue")
        self.assertNotIn("Breakpoint 2, ", result.stdout)
        self.assertIn("done 0", result.stdout)

    def test_a_hardware_breakpoint_stops_in_sealed_code(self):
        result = gdb("sealed", "break host_ready", "run", "hbreak jitted_outer", "continue", "bt")
        if re.search(r"(?i)(no|can't set|could not insert|cannot insert) hardware", result.stdout + result.stderr):
            self.skipTest("this machine has no hardware breakpoints")
        self.assertRegex(result.stdout, r"Breakpoint 2, .*jitted_outer")


@unittest.skipUnless(shutil.which("perf"), "perf is not installed")
class Perf(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        machine = [pathlib.Path(path).read_bytes()[18:20] for path in (HOST, sys.executable)]
        if machine[0] != machine[1]:
            raise unittest.SkipTest("perf sees an emulator here")

    def share_of_spin(self, *what):
        with tempfile.TemporaryDirectory() as folder:
            data = str(pathlib.Path(folder) / "perf.data")
            record = subprocess.run(["perf", "record", "-e", "cpu-clock:u", "-o", data, *what], capture_output=True, text=True, timeout=200)
            if not os.path.exists(data):
                self.skipTest("perf may not record here: " + record.stderr.strip().splitlines()[-1])
            report = subprocess.run(["perf", "report", "-i", data, "--stdio", "--sort", "symbol"], capture_output=True, text=True, timeout=200)
            pids = subprocess.run(["perf", "script", "-i", data, "-F", "pid"], capture_output=True, text=True, timeout=200).stdout.split()
        for pid in set(pids):  # not by what is in the maps: another run of this test may still need its own
            pathlib.Path(f"/tmp/perf-{pid}.map").unlink(missing_ok=True)
        share = re.search(r"([\d.]+)%\s+\[\.\] jitted_spin", report.stdout)
        self.assertTrue(share, report.stdout + report.stderr)
        return float(share.group(1))

    def test_samples_are_resolved_to_names(self):
        self.assertGreater(self.share_of_spin(HOST, "perf"), 50)

    def test_samples_of_a_forks_child_are_resolved_to_names_given_in_the_parent(self):
        with subprocess.Popen([HOST, "perf-fork"], stdout=subprocess.PIPE, text=True) as host:
            child = host.stdout.readline().strip()
            self.assertGreater(self.share_of_spin("-p", child, "--", "sleep", "0.5"), 50)
            self.assertIn("done", host.stdout.read())
        pathlib.Path(f"/tmp/perf-{host.pid}.map").unlink(missing_ok=True)


if __name__ == "__main__":
    unittest.main()
