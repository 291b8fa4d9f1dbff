#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""shunt run and shunt compile on LLVM IR: a program does the same from text, from bitcode and from an object, at every level."""

import pathlib
import tempfile
import unittest

from common import CAPTURE, SKIP, compile_bpf, main, run_json, shunt, skip

NAMES = ["globals", "metadata", "redirect", "tail", "shapes"]
FORMS = {"ll": ["-S", "-emit-llvm"], "bc": ["-emit-llvm"]}


def outcome(report):
    """Values of per-CPU maps are added up, entries are in no order; program and inner maps hold addresses."""
    maps = [(m["name"], m["type"], sorted((e["key"], [sum(words) for words in zip(*e["cpus"])] if "cpus" in e else e["value"]) for e in m["entries"]))
            for m in report["maps"] if m["type"] not in ("PROG_ARRAY", "ARRAY_OF_MAPS")]
    return report["queues"][0]["verdicts"], maps


class Ir(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        if compile_bpf("globals", self.folder) is None:
            skip("clang-19 is not installed")

    def built(self, name, level, form=None, *flags):
        return compile_bpf(name, self.folder, level=level, suffix=form or "o", flags=[*FORMS.get(form, []), *flags])

    def test_each_form_at_each_level_does_what_the_object_does(self):
        for name in NAMES:
            expected = outcome(run_json("--all-entries", self.built(name, 2), CAPTURE))
            for level in (0, 1, 2):
                for form in FORMS:
                    with self.subTest(f"{name} -O{level} .{form}"):
                        self.assertEqual(outcome(run_json("--all-entries", self.built(name, level, form), CAPTURE)), expected)

    def test_objects_of_a_level_do_what_their_ir_does(self):
        for level in (1, 2):
            with self.subTest(level):
                self.assertEqual(outcome(run_json("--all-entries", self.built("shapes", level, None, "-mcpu=v3"), CAPTURE)),
                                 outcome(run_json("--all-entries", self.built("shapes", level, "ll"), CAPTURE)))

    def test_helpers_of_newer_headers_are_called_too(self):
        expected = outcome(run_json("--all-entries", self.built("shapes", 2), CAPTURE))
        self.assertTrue(any(entries for _, _, entries in expected[1]))
        for level in (0, 2):
            with self.subTest(level):
                self.assertEqual(outcome(run_json("--all-entries", self.built("shapes", level, "ll", "-DCONST_HELPERS"), CAPTURE)), expected)

    def test_passes_inline_as_in_an_object(self):
        from_object = run_json(self.built("shapes", 2, None, "-mcpu=v3"), CAPTURE)["passes"]
        from_ir = run_json(self.built("shapes", 2, "bc"), CAPTURE)["passes"]
        self.assertGreater(from_object["percpu_array_lookups"] + from_object["array_lookups"], 0)
        for report in (from_object, from_ir):
            report.pop("remarks")
        self.assertEqual(from_ir, from_object)

    def test_the_kernel_does_the_same_with_the_object_that_ir_becomes(self):
        for name in ("shapes", "globals", "tail"):
            for level in (1, 2) if name == "shapes" else (0, 2): # -O0 describes no arguments of callbacks, which the kernel wants
                result = shunt("run", "--check-kernel", self.built(name, level, "ll"), CAPTURE)
                if result.returncode == SKIP:
                    self.skipTest(result.stderr.strip())
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_ir_compiles_ahead_of_time(self):
        path, out = self.built("globals", 0, "ll"), self.folder / "code.o"
        result = shunt("compile", path, "-o", out)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(outcome(run_json("--code", out, path, CAPTURE)), outcome(run_json(path, CAPTURE)))


class Refused(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def refused(self, text, *words, name="bad.ll"):
        path = self.folder / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        result = shunt("run", path, CAPTURE)
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)
        for word in (name, *words):
            self.assertIn(word, result.stderr)

    def test_modules_for_other_machines_are_refused(self):
        self.refused('target triple = "x86_64-linux-gnu"\n', "'x86_64-linux-gnu' is not bpf", "-target bpf")
        self.refused('target triple = "bpfeb"\n', "big-endian")
        self.refused("", "''")

    def test_what_is_no_ir_is_refused_with_the_place(self):
        self.refused('target triple = "bpf"\ndefine i32 @f( {}\n', "cannot be read as LLVM IR: line:", "expected")
        self.refused(b"BC\xc0\xde" + bytes(64), "cannot be read as LLVM IR", name="bad.bc")

    def test_ir_that_llvm_reports_is_refused_with_its_reason(self):
        six = ", ".join(["i64"] * 6)
        self.refused(f'target triple = "bpf"\ndeclare i64 @g({six})\ndefine i64 @f(i64 %a) section "xdp" {{\n'
                     f'  %r = call i64 @g({", ".join(["i64 %a"] * 6)})\n  ret i64 %r\n}}\n', "does not compile", "too many arguments")

    def test_ir_that_ends_llvm_ends_only_a_child(self):
        self.refused('target triple = "bpf"\ndefine float @f(float %a, float %b) section "xdp" {\n  %c = fadd float %a, %b\n  ret float %c\n}\n',
                     "bad.ll")
        self.refused('target triple = "bpf"\ndefine i32 @f(ptr %p) section "xdp" gc "none-such" {\n  ret i32 0\n}\n', "LLVM ends over this module",
                     "none-such")

    def test_maps_without_debug_information_are_refused_by_name_until_they_are_described(self):
        path = compile_bpf("shapes", self.folder, suffix="ll", flags=[*FORMS["ll"], "-g0"])
        if path is None:
            self.skipTest("clang-19 is not installed")
        maps = {"verdicts": "type=percpu_array,key=4,value=8,entries=8", "sources": "type=hash,key=4,value=8,entries=1024",
                "protocols": "type=5,key=2,value=8,entries=1024", "sums": "type=array,key=4,value=8,entries=8"}
        described = [word for name, shape in maps.items() for word in ("--map", f"{name}:{shape}")]
        result = shunt("run", *described[2:], path, CAPTURE)
        self.assertEqual(result.returncode, 1)
        self.assertIn("map 'verdicts' of section '.maps' is not described by BTF; compile with -g, or describe it with --map", result.stderr)
        expected = outcome(run_json("--all-entries", compile_bpf("shapes", self.folder), CAPTURE))
        self.assertEqual(outcome(run_json("--all-entries", *described, path, CAPTURE)), expected)
        result = shunt("run", "--map", "sums:type=tree", path, CAPTURE)
        self.assertEqual((result.returncode, "sums" in result.stderr), (2, True))


main()
