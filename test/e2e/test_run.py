#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""shunt run: the main job, its options, and what it says when something is wrong."""

import pathlib
import re
import subprocess
import tempfile
import unittest
import xml.dom.minidom

from common import ADDRESSES, CAPTURE, MACS, OBJECTS, PORTS, SHUNT, main, rules_for, run_json, needs_rseq, settings, shunt, xdp_filters

DENY, ALLOW_TCP = OBJECTS / "xdpfilt_dny_all.o", OBJECTS / "xdpfilt_alw_tcp.o"


def map_named(report, name):
    return next(m for m in report["maps"] if m["name"] == name)


class MainJob(unittest.TestCase):
    def test_two_queues_take_all_frames_between_them_and_share_pinned_maps(self):
        report = run_json("--queue", DENY, "--queue", ALLOW_TCP, *settings(PORTS), "--repeat", 3, CAPTURE)
        self.assertEqual(sum(q["frames"] for q in report["queues"]), 1009)
        for queue in report["queues"]:
            self.assertGreater(queue["frames"], 0)
            self.assertEqual(sum(queue["verdicts"].values()), 3 * queue["frames"])
        self.assertEqual([m["name"] for m in report["maps"]].count("filter_ports"), 1)
        self.assertEqual(report["runtime"]["dispatcher"]["programs"], 2)

    def test_code_for_perf_comes_with_a_map_of_its_names(self):
        with subprocess.Popen([SHUNT, "run", "--anon-code", str(DENY), CAPTURE], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as process:
            said, error = process.communicate()
        if "doubling the rx view by mremap failed" in error:
            self.skipTest("this system maps no memory a second time (mremap of length 0 fails, as under qemu-user)")
        self.assertIn("shared-anonymous", said)
        names = pathlib.Path(f"/tmp/perf-{process.pid}.map")
        text = names.read_text()
        names.unlink()
        self.assertRegex(text, r"(?m)^[0-9a-f]+ [0-9a-f]+ xdpfilt_dny_all$")

    def test_a_picture_shows_where_each_program_lies_in_the_packs(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "packs.svg"
            result = shunt("run", f"--packs={path}", "--queue", DENY, "--queue", ALLOW_TCP, CAPTURE)
            self.assertEqual(result.returncode, 0, result.stderr)
            titles = [t.firstChild.data for t in xml.dom.minidom.parse(str(path)).getElementsByTagName("title")]
            picture, _, report = result.stdout.partition("\n\n")
            used = int(re.search(r"([\d,]+) of [\d,]+ mapped bytes used", report)[1].replace(",", ""))
            lines = re.findall(r"^  [0-9a-f]{6}  ([A-Za-z.]{64})$", picture, re.M)
            self.assertEqual(64 * sum(len(line) - line.count(".") for line in lines), used)
            for owner in ("xdpfilt_dny_all (queue 0)", "xdpfilt_alw_tcp (queue 1)", "stub of dispatcher xdp", "receive loop"):
                letter, size = re.search(rf"^  ([A-Z]) {re.escape(owner)}: ([\d,]+) bytes$", picture, re.M).groups()
                self.assertEqual(64 * "".join(lines).upper().count(letter), int(size.replace(",", "")), owner)
                self.assertEqual(sum(t.startswith(f"{owner}, {size} bytes at") for t in titles), 1, titles)
            run_json(f"--packs={path}", DENY, CAPTURE)
        self.assertEqual(shunt("run", "--json", "--packs", DENY, CAPTURE).returncode, 2)
        result = shunt("run", "--packs=/nowhere/at/all.svg", DENY, CAPTURE)
        self.assertEqual(result.returncode, 1)
        self.assertIn("/nowhere/at/all.svg", result.stderr)

    def test_private_maps_are_one_a_queue(self):
        report = run_json("--private-maps", "--queue", DENY, "--queue", ALLOW_TCP, CAPTURE)
        self.assertEqual([m["name"] for m in report["maps"]].count("filter_ports"), 2)

    def test_statistics_of_the_program_count_every_frame_and_byte(self):
        report = run_json(*settings(rules_for(DENY)), "--repeat", 5, DENY, CAPTURE)
        stats = map_named(report, "xdp_stats_map")["entries"]
        frames = sum(cpu[0] for entry in stats for cpu in entry["cpus"])
        size = sum(cpu[1] for entry in stats for cpu in entry["cpus"])
        self.assertEqual(frames, 5 * 1009)
        self.assertEqual(size, 5 * report["capture"]["bytes"])

    def test_verdicts_and_maps_are_the_same_with_and_without_passes(self):
        for path in xdp_filters():
            with self.subTest(path.stem):
                rules = settings(rules_for(path))
                fast, plain = run_json(*rules, path, CAPTURE), run_json("--no-passes", *rules, path, CAPTURE)
                self.assertEqual(fast["queues"][0]["verdicts"], plain["queues"][0]["verdicts"])
                total = lambda report: [(m["name"], e["key"], [sum(w) for w in zip(*e["cpus"])]) for m in report["maps"]
                                        for e in m["entries"]]
                self.assertEqual(total(fast), total(plain))
                self.assertEqual(plain["passes"]["percpu_array_lookups"], 0)

    def test_every_percpu_array_lookup_is_inline_and_every_percpu_hash_lookup_a_direct_call(self):
        needs_rseq(self)
        for path in xdp_filters():
            with self.subTest(path.stem):
                result = shunt("run", "--dump", "ir", path, CAPTURE)
                self.assertEqual(result.returncode, 0, result.stderr)
                calls = [line for line in result.stdout.splitlines() if "call" in line and "=" in line]
                self.assertFalse([line for line in calls if "@shunt_map_lookup(" in line])
                self.assertFalse([line for line in calls if "@_bpf_helper_ext_0001" in line])
        passes = run_json(DENY, CAPTURE)["passes"]
        self.assertGreater(passes["percpu_array_lookups"], 0)
        self.assertGreater(passes["percpu_hash_lookups"], 0)
        self.assertEqual(passes["program_calls"], 1)

    def test_it_runs_without_rseq(self):
        needs_rseq(self)
        report = run_json(*settings(rules_for(DENY)), DENY, CAPTURE, env={"GLIBC_TUNABLES": "glibc.pthread.rseq=0"})
        self.assertNotEqual(report["runtime"]["cpu_source"], run_json(DENY, CAPTURE)["runtime"]["cpu_source"])
        with_rseq = run_json(*settings(rules_for(DENY)), DENY, CAPTURE)
        self.assertEqual(report["queues"][0]["verdicts"], with_rseq["queues"][0]["verdicts"])

    def test_the_text_report_names_program_map_and_tree(self):
        text = shunt("run", *settings(MACS + ADDRESSES), "--queue", DENY, CAPTURE).stdout
        for word in ("xdpfilt_dny_all", "xdp_stats_map", "PERCPU_HASH", "per-CPU array lookups", "tree", "patches"):
            self.assertIn(word, text)

    def test_other_installed_objects_run_or_say_why_not(self):
        folders = [OBJECTS, pathlib.Path("/usr/libexec/xdp-tools")]
        for path in sorted(p for folder in folders for p in folder.glob("*.o")):
            with self.subTest(path.name):
                result = shunt("run", path, CAPTURE)
                self.assertIn(result.returncode, (0, 1))
                if result.returncode:
                    self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)
                    self.assertIn(path.name, result.stderr)


class Mistakes(unittest.TestCase):
    def refused(self, words, *arguments, status=1):
        result = shunt(*arguments)
        self.assertEqual(result.returncode, status, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def test_usage_errors_exit_2_and_point_to_the_help(self):
        self.refused(["PROGRAM.o"], "run", status=2)
        self.refused(["capture"], "run", "--queue", DENY, status=2)
        self.refused(["--repeat"], "run", "--repeat", "many", DENY, CAPTURE, status=2)
        self.refused(["--dump"], "run", "--dump", "everything", DENY, CAPTURE, status=2)
        self.refused(["help"], "walk", status=2)

    def test_help_and_version_exit_0(self):
        for arguments in (["--help"], ["run", "--help"], ["--version"]):
            result = shunt(*arguments)
            self.assertEqual(result.returncode, 0)
            self.assertTrue(result.stdout)

    def test_files_that_are_not_there_or_not_of_the_kind_are_named(self):
        self.refused(["/nothing.o"], "run", "/nothing.o", CAPTURE)
        self.refused(["/nothing.pcap"], "run", DENY, "/nothing.pcap")
        self.refused([pathlib.Path(CAPTURE).name], "run", CAPTURE, CAPTURE)
        self.refused([DENY.name], "run", DENY, DENY)

    def test_wrong_settings_say_which_and_why(self):
        self.refused(["no_such_map"], "run", "--set", "no_such_map[1]=1", DENY, CAPTURE)
        self.refused(["MAP[KEY]=VALUE"], "run", "--set", "filter_ports", DENY, CAPTURE)
        self.refused(["'what'"], "run", "--set", "filter_ports[what]=1", DENY, CAPTURE)
        self.refused(["filter_ports", "70000"], "run", "--set", "filter_ports[70000]=1", DENY, CAPTURE)
        self.refused(["bytes"], "run", "--set", "filter_ipv4[fd00::1]=1", DENY, CAPTURE)

    def test_a_program_that_is_not_in_the_object_is_named(self):
        self.refused(["no_such_program"], "run", "--queue", f"{DENY}:no_such_program", CAPTURE)

    def test_a_capture_cut_short_is_refused_after_the_last_whole_frame(self):
        with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
            file.write(pathlib.Path(CAPTURE).read_bytes()[:5000])
            file.flush()
            self.refused([file.name, "frame"], "run", DENY, file.name)

    def test_fentry_programs_are_refused_by_name(self):
        path = OBJECTS / "xdpdump_bpf.o"
        if not path.is_file():
            self.skipTest("xdpdump_bpf.o is not installed")
        self.refused(["fentry"], "run", path, CAPTURE)


if __name__ == "__main__":
    main()
