#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""shunt compile and shunt dump: code for either machine on either machine."""

import json
import os
import pathlib
import platform
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

from common import CAPTURE, OBJECTS, main, rules_for, run_json, settings, shunt, xdp_filters

HOST = sys.argv[3]
DENY = OBJECTS / "xdpfilt_dny_all.o"
MACHINES = {"x86_64-linux-gnu": 62, "aarch64-linux-gnu": 183}


def outcome(report):
    """Values of per-CPU maps are added up: which CPU a frame ran on is the scheduler's affair."""
    entries = [(m["name"], e["key"], [sum(words) for words in zip(*e["cpus"])] if "cpus" in e else e) for m in report["maps"] for e in m["entries"]]
    return report["queues"][0]["verdicts"], entries


class Compile(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def compiled(self, path, *options, name="code.o"):
        out = self.folder / name
        result = shunt("compile", *options, path, "-o", out)
        self.assertEqual(result.returncode, 0, result.stderr)
        return out

    def test_objects_are_for_the_machine_that_was_asked_for(self):
        for target, number in MACHINES.items():
            data = self.compiled(DENY, "--target", target).read_bytes()
            self.assertEqual(struct.unpack_from("<HH", data, 16), (1, number))
            self.assertIn(b"map.filter_ports\0", data)

    def test_loaded_code_does_what_code_compiled_in_place_does(self):
        for path in xdp_filters()[::3]:
            with self.subTest(path.stem):
                rules = settings(rules_for(path))
                code = self.compiled(path, "--cpu", "call")
                self.assertEqual(outcome(run_json(*rules, "--code", code, path, CAPTURE)), outcome(run_json(*rules, path, CAPTURE)))

    def test_the_passes_are_applied(self):
        code = self.compiled(DENY).read_bytes()
        self.assertIn(b"__rseq_offset\0", code)
        self.assertNotIn(b"_bpf_helper_ext_0001\0", code)
        self.assertIn(b"_bpf_helper_ext_0001\0", self.compiled(DENY, "--no-passes").read_bytes())

    @unittest.skipUnless(shutil.which("ld.lld-19") or shutil.which("ld.lld"), "there is no ld.lld")
    def test_a_shared_library_leaves_maps_to_whoever_opens_it(self):
        data = self.compiled(DENY, "--target", "aarch64-linux-gnu", name="code.so").read_bytes()
        self.assertEqual(struct.unpack_from("<HH", data, 16), (3, 183))
        self.assertIn(b"map.filter_ports\0", data)

    @unittest.skipUnless(shutil.which("ld.lld-19") or shutil.which("ld.lld"), "there is no ld.lld")
    def test_a_shared_library_that_a_host_opens_does_what_code_compiled_in_place_does(self):
        for path in xdp_filters()[::3]:
            with self.subTest(path.stem):
                library = self.compiled(path, "--cpu", "call", name="code.so")
                result = subprocess.run([HOST, library, path, CAPTURE, *rules_for(path)], capture_output=True, text=True, timeout=200)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(outcome(json.loads(result.stdout)), outcome(run_json(*settings(rules_for(path)), path, CAPTURE)))

    def test_code_for_another_machine_is_refused(self):
        other = "x86_64-linux-gnu" if platform.machine() == "aarch64" else "aarch64-linux-gnu"
        result = shunt("run", "--code", self.compiled(DENY, "--target", other), DENY, CAPTURE)
        self.assertEqual(result.returncode, 1)
        # The tool may run under an emulator, where the machine of this script is not its own.
        self.assertTrue("for another machine" in result.stderr or platform.machine() == "x86_64", result.stderr)

    def test_damaged_code_is_refused(self):
        data = self.compiled(DENY, "--cpu", "call").read_bytes()
        for name, damage in (("empty", b""), ("text", b"hello"), ("cut", data[:len(data) // 2]), ("bpf", DENY.read_bytes())):
            with self.subTest(name):
                path = self.folder / "damaged.o"
                path.write_bytes(damage)
                result = shunt("run", "--code", path, DENY, CAPTURE)
                self.assertEqual(result.returncode, 1, result.stderr)
                self.assertIn("code", result.stderr)

    def test_what_cannot_be_compiled_is_named(self):
        result = shunt("compile", "--target", "riscv64-linux-gnu", DENY, "-o", self.folder / "code.o")
        self.assertEqual((result.returncode, "'riscv64-linux-gnu'" in result.stderr), (1, True), result.stderr)
        self.assertEqual(shunt("compile", DENY).returncode, 2)
        self.assertEqual(shunt("compile", "-o", self.folder / "code.o").returncode, 2)
        self.assertFalse((self.folder / "code.o").exists())


class Dump(unittest.TestCase):
    def test_either_machines_tree_is_shown(self):
        for target, jump in (("arm64", "b\t"), ("x86_64", "j")):
            for number in (0, 1, 5, 48):
                with self.subTest(target=target, programs=number):
                    result = shunt("dump", "--target", target, "--programs", number)
                    self.assertEqual(result.returncode, 0, result.stderr)
                    self.assertIn("tree", result.stdout)
                    for program in range(number):
                        self.assertRegex(result.stdout, rf"\t{jump}[a-z]*\t?\"?program {program}\b")

    def test_every_plan_is_shown_and_drawn(self):
        mores = [[], ["--hot", "2"], ["--count-hits"], ["--miss", "retpoline"]]
        for i, plan in enumerate(("default", "linear", "balanced", "kernel", "weighted")):
            # An emulator takes a second for each: one of them for each plan.
            for more in [mores[i % 4]] if float(os.environ.get("SHUNT_TEST_SLOWNESS", 1)) > 1 else mores:
                for target in ("x86_64", "arm64"):
                    with self.subTest(plan=plan, more=more, target=target):
                        arguments = ["dump", "--target", target, "--plan", plan, "--programs", "20", *more]
                        listing = shunt(*arguments)
                        self.assertEqual(listing.returncode, 0, listing.stderr)
                        self.assertRegex(listing.stdout, rf"^plan: {plan}, fallback \w+, 20 programs, \d+ compares")
                        if "--count-hits" in more:
                            self.assertEqual(listing.stdout.count("incq" if target == "x86_64" else "mrs"), 20)
                        picture = shunt(*arguments, "--dot")
                        self.assertEqual(picture.returncode, 0, picture.stderr)
                        self.assertEqual(picture.stdout.count("[style=bold, label=\"yes\"]"), 20)
                        self.check_picture(picture.stdout)

    def check_picture(self, text):
        """Every arrow begins and ends at a node that there is."""
        nodes = set(re.findall(r"^  (\w+) \[", text, re.M))
        arrows = re.findall(r"^  (\w+) -> (\w+)", text, re.M)
        self.assertTrue(arrows)
        self.assertLessEqual({end for arrow in arrows for end in arrow}, nodes)
        if shutil.which("dot"):
            self.assertEqual(subprocess.run(["dot", "-Tsvg"], input=text, text=True, capture_output=True).returncode, 0)

    def test_wrong_options_are_refused(self):
        for arguments in (["--plan", "best"], ["--miss", "auto"], ["--hot", "9"], ["--target", "sparc"], ["--programs", "-1"], ["--programs", "5000"], ["--spacing", "3"], ["file"]):
            with self.subTest(arguments):
                self.assertEqual(shunt("dump", *arguments).returncode, 2)


main()
