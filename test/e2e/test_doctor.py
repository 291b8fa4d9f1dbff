#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""shunt doctor says what the machine gives, and what it does not when that is taken away; shunt packs draws what it placed."""

import ctypes
import errno
import os
import pathlib
import platform
import re
import resource
import struct
import subprocess
import sys
import tempfile
import unittest
import xml.dom.minidom

SHUNT = sys.argv.pop(1)


def shunt(*arguments, before=None):
    return subprocess.run([SHUNT, *arguments], capture_output=True, text=True, timeout=100, preexec_fn=before)


def deny_second_views():
    """Answers EPERM to memfd_create, and to a mremap that would double a mapping."""
    memfd_create, mremap = {"x86_64": (319, 25), "aarch64": (279, 216)}[os.uname().machine]
    allow, deny = 0x7FFF0000, 0x00050000 | errno.EPERM
    load, jump_equal, give = 0x20, 0x15, 0x06
    program = [(load, 0, 0, 0), (jump_equal, 4, 0, memfd_create), (jump_equal, 0, 2, mremap), (load, 0, 0, 16 + 8), (jump_equal, 1, 0, 0),
               (give, 0, 0, allow), (give, 0, 0, deny)]
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(buffer)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, ctypes.c_void_p(ctypes.addressof(header))) != 0:
        print("no filter", file=sys.stderr, flush=True)


class Doctor(unittest.TestCase):
    def test_every_part_is_answered(self):
        result = shunt("doctor")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        for name in ("backing", "pages", "vm.memfd_noexec", "MDWE", "membarrier", "CPU number", "spectre_v2", "RLIMIT_FSIZE", "NUMA nodes"):
            self.assertRegex(result.stdout, rf"(?m)^  {re.escape(name)} +\S")
        self.assertRegex(result.stdout, r"(?m)^  NUMA nodes +[1-9]", "a machine has one node at least")

    def test_a_file_size_limit_is_named_and_packs_do_without_files(self):
        result = shunt("doctor", before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY)))
        if "no second view" in result.stdout:
            self.skipTest("this system maps no memory a second time, as under qemu-user")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertRegex(result.stdout, r"backing +shared-anonymous")
        self.assertIn("not sealed", result.stdout)
        self.assertRegex(result.stdout, r"RLIMIT_FSIZE +1048576 bytes: ")

    def test_where_second_views_are_denied_packs_have_one(self):
        result = shunt("doctor", before=deny_second_views)
        if "no filter" in result.stderr:
            self.skipTest("this system takes no seccomp filter")
        if f" on {platform.machine()}, " not in result.stdout:
            self.skipTest("the filter knows the system calls of this machine, the tool is emulated")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertRegex(result.stdout, r"backing +toggle")
        self.assertRegex(result.stdout, r"shared anonymous +no second view: ")
        self.assertRegex(result.stdout, r"(?m)^  +toggle +yes")

    def test_unknown_arguments_are_refused(self):
        self.assertEqual(shunt("doctor", "now").returncode, 2)
        self.assertEqual(shunt("doctor", "--help").returncode, 0)

    def test_the_host_is_told_how_to_keep_its_own_hands_off(self):
        result = shunt("doctor")
        if re.search(r"MDWE +on", result.stdout):
            self.skipTest("MDWE is on already")
        self.assertIn("PR_SET_MDWE", result.stdout)


class Packs(unittest.TestCase):
    def test_the_picture_shows_what_was_placed(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "packs.svg"
            result = shunt("packs", "--programs", "9000", "--lengths", "200-200", "--free", "0", "--svg", str(path))
            self.assertEqual(result.returncode, 0, result.stderr)
            # 8,192 blocks of 256 bytes fill a pack.
            self.assertRegex(result.stdout, r"8,192 blocks, 2,097,152 bytes, 100\.0 % of 2 MiB")
            self.assertRegex(result.stdout, r"808 blocks, 206,848 bytes, 9\.9 % of 2 MiB")
            self.assertIn("9000 programs, 2304000 bytes used of 4194304 in 2 packs", result.stdout)
            drawing = xml.dom.minidom.parse(str(path))
            blocks = [p.getAttribute("d") for p in drawing.getElementsByTagName("path") if p.getAttribute("fill")]
            self.assertEqual(sum(d.count("M") for d in blocks), 9000)
            # A background, rows of 16 KiB with something in them, a square in the legend.
            self.assertEqual(len(drawing.getElementsByTagName("rect")), 1 + 128 + 13 + 1)

    def test_freed_programs_leave_room_that_is_used_again(self):
        result = shunt("packs", "--programs", "9000", "--lengths", "200-200", "--free", "100")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("4500 programs, 1152000 bytes used of 2097152 in 1 packs", result.stdout)
        self.assertIn("programs placed after others were freed: 1,152,000 bytes in 4,500 blocks", result.stdout)

    def test_bad_options_are_refused(self):
        for arguments in (["--programs", "0"], ["--lengths", "9"], ["--lengths", "9-3"], ["--free", "101"], ["more"]):
            self.assertEqual(shunt("packs", *arguments).returncode, 2, arguments)
        self.assertEqual(shunt("packs", "--svg", "/nowhere/at/all.svg").returncode, 1)


if __name__ == "__main__":
    unittest.main()
