#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every #include points up the list of rooms, and each room uses only the libraries it may: docs/architecture.md, "Rooms"."""

import pathlib
import re
import sys

# Room -> rooms whose headers it may include. A room always may include its own and include/shunt.
MAY_INCLUDE = {
    "targets": set(),
    "runtime": {"targets"},
    "passes": set(),
    "lib/jit": {"runtime"},
    "lib/bpf": {"runtime", "lib/jit"},
    "lib/replay": {"runtime", "lib/jit", "lib/bpf"},
    "tools": {"lib/jit", "lib/bpf", "lib/replay", "passes"},
    "include": set(),
}
# Public headers that a room may not use although they are public: passes know the names of abi.h and nothing of the runtime.
ONLY_PUBLIC = {"passes": {"abi.h", "mark.h", "passes.h"}, "targets": set()}
# Libraries whose headers no room but these may include.
LIBRARIES = {
    r"llvm(-c)?/": {"passes", "lib/jit", "lib/bpf", "lib/replay", "tools", "include"},
    r"(gelf|libelf)\.h": {"lib/bpf"},
    r"bpf/": {"lib/bpf", "lib/replay"},
    r"pcap": {"lib/replay"},
    r"urcu": {"runtime", "include"},
}
CXX_ALLOWED = {"passes/plugin.cpp", "lib/jit/pack_memory_manager.cpp"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def room_of(path):
    parts = path.parts
    return "/".join(parts[:2]) if parts[0] == "lib" else parts[0]


def check_file(root, path, problems):
    room = room_of(path)
    for number, line in enumerate((root / path).read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quoted, name = match.group(1) == '"', match.group(2)
        where = f"{path}:{number}"
        if name.startswith("shunt/"):
            allowed = ONLY_PUBLIC.get(room)
            if allowed is not None and name[len("shunt/"):] not in allowed:
                problems.append(f"{where}: {room} must not use <{name}>")
            continue
        if quoted:
            target = pathlib.PurePath(name)
            if len(target.parts) < 2:
                problems.append(f'{where}: name the room: "{room}/{name}"')
                continue
            other = room_of(target)
            if other != room and other not in MAY_INCLUDE[room]:
                problems.append(f"{where}: {room} must not include {other} (arrows point up only)")
            if not (root / target).is_file():
                problems.append(f"{where}: no such header: {name}")
            continue
        for pattern, rooms in LIBRARIES.items():
            if re.match(pattern, name) and room not in rooms:
                problems.append(f"{where}: {room} must not use the library header <{name}>")


def main():
    root = pathlib.Path(sys.argv[1])
    problems, count = [], 0
    for room in MAY_INCLUDE:
        for file in sorted((root / room).rglob("*")):
            if file.suffix not in (".c", ".h", ".cpp"):
                continue
            path = file.relative_to(root)
            count += 1
            if file.suffix == ".cpp" and str(path) not in CXX_ALLOWED:
                problems.append(f"{path}: C++ is allowed in {', '.join(sorted(CXX_ALLOWED))} only")
            check_file(root, path, problems)
    print("\n".join(problems))
    print(f"{count} files, {len(problems)} problems")
    return 1 if problems or not count else 0


if __name__ == "__main__":
    sys.exit(main())
