# SPDX-License-Identifier: MIT
"""What the end-to-end tests share: where the real objects are, how the tool is run."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

SHUNT, CAPTURE = sys.argv[1], sys.argv[2]
SKIP = 77

# What xdp-filter's command line would set: 1 source, 2 destination, 4 TCP, 8 UDP.
PORTS = ["filter_ports[port:53]=0xf", "filter_ports[port:8080]=0x6", "filter_ports[port:5201]=0x9"]
ADDRESSES = ["filter_ipv4[10.1.0.2]=1", "filter_ipv6[fd00:1::2]=3"]
MACS = ["filter_ethernet[ea:45:63:8c:4b:6d]=1"]


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIP)


def object_folder():
    for folder in pathlib.Path("/usr/lib").glob("*-linux-gnu/bpf"):
        if (folder / "xdpfilt_dny_all.o").is_file():
            return folder
    skip("the package libxdp1 (xdpfilt_*.o) is not installed")


OBJECTS = object_folder()


def xdp_filters():
    return sorted(OBJECTS.glob("xdpfilt_*.o"))


def rules_for(path):
    """The rules that this object has maps for."""
    kind = path.stem.rsplit("_", 1)[1]
    return {"all": PORTS + ADDRESSES + MACS, "eth": MACS, "ip": ADDRESSES}.get(kind, PORTS)


def settings(rules):
    return [word for rule in rules for word in ("--set", rule)]


def shunt(*arguments, env=None):
    """Runs the tool; a signal is a crash and fails the test at once."""
    result = subprocess.run([SHUNT, *map(str, arguments)], capture_output=True, text=True, env={**os.environ, **(env or {})}, timeout=200)
    if result.returncode < 0:
        raise AssertionError(f"shunt died of signal {-result.returncode}: {arguments}\n{result.stderr}")
    return result


def run_json(*arguments, env=None):
    result = shunt("run", "--json", *arguments, env=env)
    if result.returncode != 0:
        raise AssertionError(f"exit {result.returncode}: {result.stderr}")
    return json.loads(result.stdout)


def needs_rseq(test):
    """Without rseq there is no CPU number to inline: per-CPU calls stay calls."""
    if run_json(OBJECTS / "xdpfilt_dny_tcp.o", CAPTURE)["runtime"]["cpu_source"] != "rseq":
        test.skipTest("the C library did not register rseq here (it cannot under qemu-user)")


def compile_bpf(name, folder, level=2, suffix="o", flags=()):
    """Compiles programs/NAME.bpf.c with clang-19, or None where it cannot."""
    source = pathlib.Path(__file__).with_name("programs") / f"{name}.bpf.c"
    target = pathlib.Path(folder) / f"{name}.{suffix}"
    multiarch = subprocess.run(["gcc", "-print-multiarch"], capture_output=True, text=True).stdout.strip()
    command = ["clang-19", "-target", "bpf", f"-O{level}", "-g", *flags, "-I", f"/usr/include/{multiarch}", "-c", source, "-o", target]
    try:
        result = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    if result.returncode:
        raise AssertionError(result.stderr)
    return target


def main():
    unittest.main(argv=sys.argv[:1], verbosity=2)
