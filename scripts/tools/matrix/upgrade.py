"""A rolling upgrade under load, from one root to another."""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from scripts.testbed.debian import namespaces
from scripts.testbed.debian.namespaces import Chamber
from scripts.tools.matrix.releases import COMMANDS
from scripts.tools.matrix.root import SOURCE, VENVS, Root, clear_tmp, environment, say
from scripts.tools.matrix.suite import version_in

FROM, TO = "24.11", "26.05"
FOLDER = "/tmp/upgrade"
MARK = "upgrade: "
FILE = "upgrade.json"


@dataclass(frozen=True, slots=True)
class Upgrade:
    """One upgrade test, and its output."""

    older: str
    newer: str
    date: str
    seconds: float
    is_good: bool
    said: tuple[str, ...]


def rehearse(older: Root, newer: Root) -> Upgrade:
    """Run each half in its root, in the same namespaces, so that the cluster outlives the first
    half."""
    clear_tmp(older)
    halves = [_half(older, "before"), _half(newer, "after")]
    both = Chamber((older.path, newer.path)).command(["sh", "-c", " && ".join(halves)])
    began_s = time.monotonic()
    said: list[str] = []
    with subprocess.Popen(
        both,
        env=environment(COMMANDS),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            said.append(line.rstrip("\n"))
            say(said[-1])
    return Upgrade(
        older=version_in(older, ["slurmctld", "-V"]),
        newer=version_in(newer, ["slurmctld", "-V"]),
        date=datetime.now(UTC).date().isoformat(),
        seconds=time.monotonic() - began_s,
        is_good=running.returncode == 0,
        said=tuple(line.removeprefix(MARK) for line in said if line.startswith(MARK)),
    )


def keep(upgrade: Upgrade, folder: Path) -> None:
    """Store an upgrade test, replacing the last one."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(json.dumps(asdict(upgrade), indent=2) + "\n")


def kept(folder: Path) -> Iterator[Upgrade]:
    """Yield the last upgrade test, if there is one."""
    if (folder / FILE).exists():
        has = json.loads((folder / FILE).read_text())
        yield Upgrade(**{**has, "said": tuple(has["said"])})


def _half(root: Root, name: str) -> str:
    """Return the shell command for one half of the test."""
    python = [
        f"{VENVS[COMMANDS]}/bin/python",
        "-u",
        "-m",
        "scripts.tools.matrix.rolling_upgrade",
        name,
        FOLDER,
    ]
    return shlex.join(namespaces.in_root(root.path, python, str(SOURCE)))
