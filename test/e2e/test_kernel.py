#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The kernel is the oracle: same verdicts, same frames, same maps, for every xdp-filter object and every frame."""

import unittest

from common import CAPTURE, OBJECTS, SKIP, main, rules_for, run_json, settings, shunt, skip, xdp_filters

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


if __name__ == "__main__":
    main()
