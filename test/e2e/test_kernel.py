#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The kernel is the oracle: same verdicts, same frames, same maps, for every xdp-filter object and every frame."""

import struct
import tempfile
import unittest

from common import CAPTURE, compile_bpf, OBJECTS, SKIP, main, rules_for, run_json, settings, shunt, skip, xdp_filters

probe = shunt("run", "--check-kernel", OBJECTS / "xdpfilt_dny_all.o", CAPTURE)
if probe.returncode == SKIP:
    skip(probe.stderr.strip())


class Kernel(unittest.TestCase):
    def check(self, *arguments):
        report = run_json("--check-kernel", *arguments, CAPTURE)
        kernel = report["kernel"]
        self.assertEqual(kernel["frames"], 1009)
        self.assertGreater(kernel["map_values"], 0)
        for kind in ("verdict", "frame", "map"):
            self.assertEqual(kernel[kind + "_differences"], 0, kernel.get("first_difference"))
        return report

    def test_each_xdp_filter_object_does_what_it_does_in_the_kernel(self):
        self.assertEqual(len(xdp_filters()), 10)
        for path in xdp_filters():
            with self.subTest(path.stem):
                report = self.check(*settings(rules_for(path)), path)
                verdicts = report["queues"][0]["verdicts"]
                self.assertGreater(verdicts["drop"], 0, "the rules should hit some frames")
                self.assertGreater(verdicts["pass"], 0, "and miss others")

    def test_queues_that_share_maps_do_what_they_do_in_the_kernel(self):
        deny, allow = OBJECTS / "xdpfilt_dny_all.o", OBJECTS / "xdpfilt_alw_tcp.o"
        self.check(*settings(rules_for(deny)), "--queue", deny, "--queue", allow)

    def test_a_program_that_reports_to_perf_events_does_what_it_does_in_the_kernel_while_nobody_listens(self):
        path = OBJECTS / "xdpdump_xdp.o"
        if not path.is_file():
            self.skipTest("xdpdump_xdp.o is not installed")
        image = bytearray(path.read_bytes())
        table, = struct.unpack_from("<Q", image, 40)
        count, = struct.unpack_from("<H", image, 60)
        sections = [struct.unpack_from("<IIQQQQ", image, table + 64 * i) for i in range(count)]
        # Its only writable section with contents is .data: the interface to report on comes first, 1 in the kernel's test run.
        data, = [offset for _, kind, flags, _, offset, size in sections if kind == 1 and flags == 3 and size == 12]
        struct.pack_into("<II", image, data, 1, 128)
        with tempfile.NamedTemporaryFile(suffix=".o") as file:
            file.write(image)
            file.flush()
            kernel = run_json("--check-kernel", file.name, CAPTURE)["kernel"]
        self.assertEqual(kernel["frames"], 1009)
        for kind in ("verdict", "frame", "map"):
            self.assertEqual(kernel[kind + "_differences"], 0, kernel.get("first_difference"))


class OwnPrograms(unittest.TestCase):
    """Programs of ours that do what the xdp-filters do not."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def check(self, name, *arguments):
        path = compile_bpf(name, self.folder.name)
        if path is None:
            self.skipTest("clang-19 is not installed")
        report = run_json("--check-kernel", *arguments, path, CAPTURE)
        for kind in ("verdict", "frame", "map"):
            self.assertEqual(report["kernel"][kind + "_differences"], 0, report["kernel"].get("first_difference"))
        return report

    def test_metadata_before_a_frame_is_compared_too(self):
        self.assertEqual(self.check("metadata")["queues"][0]["verdicts"]["pass"], 1009)

    def test_global_variables_are_compared(self):
        self.assertGreaterEqual(self.check("globals")["kernel"]["map_values"], 4)

    def test_entries_of_a_device_map_reach_the_kernel(self):
        self.assertEqual(self.check("redirect", "--set", "devices[1]=1")["queues"][0]["verdicts"]["redirect"], 1009)
        self.assertEqual(self.check("redirect")["queues"][0]["verdicts"]["pass"], 1009)

    def test_a_statically_filled_program_array_is_loaded_on_both_sides(self):
        self.assertEqual(self.check("tail")["queues"][0]["verdicts"]["drop"], 1009)

    def test_what_the_verifier_refuses_is_a_failure_with_its_reason_not_a_skip(self):
        path = compile_bpf("refused", self.folder.name)
        if path is None:
            self.skipTest("clang-19 is not installed")
        result = shunt("run", "--check-kernel", path, CAPTURE)
        self.assertEqual(result.returncode, 1)
        self.assertIn("packet", result.stderr)


if __name__ == "__main__":
    main()
