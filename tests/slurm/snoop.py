"""A user who reads whatever /proc shows of other users' Slurm commands.

    python snoop.py UID SECONDS

Run it as root; it drops these rights first. It ends when it has seen each of the controller's
commands several times, or when the time is over, and prints what it has read as JSON: all command
lines, and the environments, of which there should be none.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from pathlib import Path

COMMANDS = ("squeue", "scontrol")
SEEN_ENOUGH = 5


def main() -> None:
    uid, seconds = int(sys.argv[1]), float(sys.argv[2])
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    until_s = time.monotonic() + seconds
    command_lines: set[str] = set()
    environments: set[str] = set()
    seen: Counter[str] = Counter()
    times: set[tuple[str, str]] = set()
    while time.monotonic() < until_s and any(seen[name] < SEEN_ENOUGH for name in COMMANDS):
        for process in Path("/proc").glob("[0-9]*"):
            if owner(process) == uid:  # another test's command, as this user
                continue
            command_line = read(process / "cmdline")
            name = Path(command_line.partition("\0")[0]).name
            if name not in COMMANDS:
                continue
            command_lines.add(command_line)
            if (process.name, name) not in times:
                times.add((process.name, name))
                seen[name] += 1
            environments.add(read(process / "environ"))
    found = {
        "seen": seen,
        "command_lines": [*command_lines],
        "environments": [*environments - {""}],
    }
    print(json.dumps(found))


def owner(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except OSError:
        return None


def read(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""


if __name__ == "__main__":
    main()
