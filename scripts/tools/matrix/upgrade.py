"""A rolling upgrade under load, from one root to another."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass

from scripts.testbed.debian import namespaces
from scripts.testbed.debian.namespaces import Namespaces
from scripts.tools.document import SLURM_RELEASES, called, write_section
from scripts.tools.matrix.releases import COMMANDS
from scripts.tools.matrix.root import SOURCE, VENVS, Root, clear_tmp, environment, say
from scripts.tools.matrix.suite import version_in

FROM, TO = "24.11", "26.05"
FOLDER = "/tmp/upgrade"
MARK = "upgrade: "


@dataclass(frozen=True, slots=True)
class Upgrade:
    """One upgrade test, and its output."""

    older: str
    newer: str
    seconds: float
    is_good: bool
    said: tuple[str, ...]


def rehearse(older: Root, newer: Root) -> Upgrade:
    """Run each half in its root, in the same namespaces, so that the cluster outlives the first
    half."""
    clear_tmp(older)
    halves = [_half(older, "before"), _half(newer, "after")]
    both = Namespaces((older.path, newer.path)).command(["sh", "-c", " && ".join(halves)])
    began_s = time.monotonic()
    said: list[str] = []

    def show(line: str) -> None:
        said.append(line)
        say(line)

    status = namespaces.follow(both, environment(COMMANDS), show)
    return Upgrade(
        older=version_in(older, ["slurmctld", "-V"]),
        newer=version_in(newer, ["slurmctld", "-V"]),
        seconds=time.monotonic() - began_s,
        is_good=status == 0,
        said=tuple(line.removeprefix(MARK) for line in said if line.startswith(MARK)),
    )


def record(upgrade: Upgrade) -> None:
    """Write the section of this upgrade."""
    text = (
        "The daemons were restarted one by one from the newer release while jobs ran and waited; "
        "then a controller with the newer Debian's Python went on with the ledger of the older "
        "one's. No job may have another priority or be restarted by the upgrade, or be in a higher "
        "tier than before; at the end every job must have done all its work, and each of its runs "
        "stand in the ledger as accounting has it. "
        f"{'Nothing was lost.' if upgrade.is_good else 'It failed.'} It took "
        f"{upgrade.seconds:.0f} s.\n\n" + "\n".join(f"- {line}" for line in upgrade.said)
    )
    title = f"From Slurm {upgrade.older} to {upgrade.newer} under load"
    write_section(title, called(), text, SLURM_RELEASES)


def _half(root: Root, name: str) -> str:
    """Return the shell command for one half of the test."""
    python = [f"{VENVS[COMMANDS]}/bin/python", "-u", "-m", "scripts.tools.matrix.rolling_upgrade"]
    return shlex.join(namespaces.in_root(root.path, [*python, name, FOLDER], str(SOURCE)))
