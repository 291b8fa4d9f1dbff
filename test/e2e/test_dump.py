#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What was generated, read back: the tree ends in direct jumps to the programs, the loop calls the stub directly."""

import re
import unittest

from common import CAPTURE, OBJECTS, main, needs_rseq, shunt


class Dump(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        result = shunt("run", "--dump", "all", "--queue", OBJECTS / "xdpfilt_dny_all.o", "--queue", OBJECTS / "xdpfilt_alw_tcp.o", CAPTURE)
        assert result.returncode == 0, result.stderr
        cls.text = result.stdout

    def block(self, title):
        return re.search(rf"^{title}: .*?\n\n", self.text, re.M | re.S).group(0)

    def test_the_tree_jumps_directly_to_each_program(self):
        tree = self.block("tree")
        for program in ("xdpfilt_dny_all", "xdpfilt_alw_tcp"):
            self.assertRegex(tree, rf"(je|b)\s+.*{program}")

    def test_the_stub_is_one_jump_to_the_tree(self):
        self.assertRegex(self.block("stub"), r"(jmp|b)\s+.*tree of dispatcher xdp")

    def test_the_receive_loop_calls_the_stub_directly(self):
        self.assertRegex(self.block("receive loop"), r"(callq?|bl)\s+.*stub of dispatcher xdp")

    def test_a_percpu_hash_lookup_is_a_direct_call(self):
        needs_rseq(self)
        self.assertRegex(self.block("xdpfilt_dny_all"), r"(callq?|bl)\s+.*shunt_map_find_percpu")


if __name__ == "__main__":
    main()
