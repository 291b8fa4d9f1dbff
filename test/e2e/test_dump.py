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


    def test_the_dispatcher_s_counters_are_there(self):
        counters = self.block("dispatcher xdp")
        self.assertRegex(counters, r"plan default, fallback \w+, 2 programs, \d+ compares")
        self.assertRegex(counters, r"2 attached, 0 detached, \d+ patches, \d+ bytes")
        self.assertRegex(counters, r"\d+ grace periods, the longest [\d.]+ us")


class Hits(unittest.TestCase):
    def test_every_call_is_counted_for_the_program_that_it_reached(self):
        needs_rseq(self)
        arguments = ("--queue", OBJECTS / "xdpfilt_dny_all.o", "--queue", OBJECTS / "xdpfilt_alw_tcp.o", CAPTURE)
        result = shunt("run", "--dump", "hits", *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        hits = dict(re.findall(r"^  (xdpfilt_\w+) +(\d+)$", result.stdout.split("hits\n")[1], re.M))
        self.assertEqual(set(hits), {"xdpfilt_dny_all", "xdpfilt_alw_tcp"})
        self.assertTrue(all(int(number) > 0 for number in hits.values()), hits)

    def test_the_tree_is_drawn_with_the_programs_names(self):
        result = shunt("run", "--dump", "dot", "--queue", OBJECTS / "xdpfilt_dny_all.o", "--queue", OBJECTS / "xdpfilt_alw_tcp.o", CAPTURE)
        self.assertEqual(result.returncode, 0, result.stderr)
        picture = result.stdout[: result.stdout.index("\n}\n")]
        self.assertIn('digraph "xdp" {', picture)
        self.assertIn("xdpfilt_dny_all", picture)


if __name__ == "__main__":
    main()
