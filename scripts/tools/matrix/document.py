"""scripts/records/releases.md: the tests run on each release of Slurm, and their results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from scripts import ROOT
from scripts.tools.document import markdown
from scripts.tools.matrix.suite import Run
from scripts.tools.matrix.upgrade import Upgrade

PAGE = ROOT / "scripts" / "records" / "releases.md"

HEAD = """# Releases of Slurm

Written by `scripts/dev matrix`, which makes a Debian for each release of Slurm, builds the SPANK
plugin there, and runs this project's tests with that Debian's Python on real clusters. With the
driver that speaks to Slurm by its own commands all tests are run; with pyslurm those that need a
cluster.
"""

HEADER = ("Slurm", "Debian", "Python", "driver", "passed", "failed", "skipped", "s", "date")


def write(runs: Sequence[Run], upgrades: Iterable[Upgrade]) -> None:
    """Write the whole page."""
    ordered = sorted(runs, key=lambda run: (_number(run.slurm), run.driver))
    parts = [HEAD, markdown(HEADER, [_row(run) for run in ordered])]
    parts += [told for run in ordered if (told := _told(run))]
    parts += map(_of_upgrade, upgrades)
    PAGE.write_text("\n\n".join(part.strip() for part in parts) + "\n")


def _row(run: Run) -> list[str]:
    counts = [str(run.passed), str(len(run.failed)), str(sum(count for _, count in run.skipped))]
    what = [run.slurm, run.debian, run.python, run.driver]
    return [*what, *counts, f"{run.seconds:.0f}", run.date]


def _told(run: Run) -> str:
    """Return what failed, and what was skipped and why."""
    lines = [f"- failed: `{name}`" for name in run.failed]
    lines += [f"- skipped, {count}: {' '.join(why.split())}" for why, count in run.skipped]
    lines += [f"- {run.said}"] if run.said else []
    return "\n".join([f"## Slurm {run.slurm}, {run.driver}\n", *lines]) if lines else ""


def _of_upgrade(upgrade: Upgrade) -> str:
    outcome = "Nothing was lost." if upgrade.is_good else "It failed."
    lines = [
        f"## From Slurm {upgrade.older} to {upgrade.newer} under load",
        "The daemons were restarted one by one from the newer release while jobs ran and waited; "
        "then a controller with the newer Debian's Python went on with the ledger of the older "
        "one's. No job may have another priority or be restarted by the upgrade, or be in a higher "
        "tier than before; at the end every job must have done all its work, and each of its runs "
        f"stand in the ledger as accounting has it. {outcome} {upgrade.date}, "
        f"{upgrade.seconds:.0f} s.",
        "\n".join(f"- {line}" for line in upgrade.said),
    ]
    return "\n\n".join(lines)


def _number(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split(".") if part.isdigit())
