"""The command line of the matrix."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from scripts.testbed.debian import machine
from scripts.testbed.debian.root import cache_option
from scripts.tools.matrix import suite, upgrade
from scripts.tools.matrix.releases import COMMANDS, DRIVERS, RELEASES
from scripts.tools.matrix.root import Root, held, make, say
from scripts.tools.matrix.suite import IN_PARALLEL, ON_A_CLUSTER, SHORT, WHOLE, Run
from scripts.tools.matrix.upgrade import Upgrade

PATIENCE_S = 1500.0
"""Test runs that take longer, in seconds, are considered hung."""


@click.command(context_settings={"ignore_unknown_options": True})
@click.option(
    "--release",
    "chosen",
    multiple=True,
    type=click.Choice([release.slurm for release in RELEASES]),
    help="A release; may be repeated. Default: all.",
)
@click.option(
    "--driver",
    "drivers",
    multiple=True,
    type=click.Choice(DRIVERS),
    help="A driver, on the releases that it supports. Default: all.",
)
@click.option("--short", is_flag=True, help="The essential tests only; the page is left alone.")
@click.option("--upgrade", "only_upgrade", is_flag=True, help="Test only the upgrade.")
@cache_option("matrix")
@click.argument("pytest", nargs=-1, type=click.UNPROCESSED)
def matrix(
    chosen: Sequence[str],
    drivers: Sequence[str],
    short: bool,
    only_upgrade: bool,
    cache: Path,
    pytest: Sequence[str],
) -> None:
    """Run the tests on every release of Slurm, and write scripts/records/releases.md.

    Arguments beyond the options go to pytest; the page is then left alone.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    machine.get_ready()
    began_s = time.monotonic()
    runs: list[Run] = []
    wanted = {} if only_upgrade else _wanted(chosen, drivers)
    whole = not short and not pytest
    with_upgrade = only_upgrade or (whole and {upgrade.FROM, upgrade.TO} <= wanted.keys())
    needed = {name: (COMMANDS,) for name in (upgrade.FROM, upgrade.TO) if with_upgrade} | wanted
    upgrades: list[Upgrade] = []
    with ExitStack() as stack:
        roots: dict[str, Root] = {}
        for release in RELEASES:
            if release.slurm in needed:
                root = stack.enter_context(held(cache, release))
                make(root, needed[release.slurm])
                runs += [_run(root, d, short, pytest) for d in wanted.get(release.slurm, ())]
                roots[release.slurm] = root
        if with_upgrade:
            say(f"from Slurm {upgrade.FROM} to {upgrade.TO} under load")
            upgrades.append(upgrade.rehearse(roots[upgrade.FROM], roots[upgrade.TO]))
    if whole:
        for run in runs:
            suite.record(run)
        for one in upgrades:
            upgrade.record(one)
    _tell(runs, upgrades, time.monotonic() - began_s)
    good = [run.is_good for run in runs] + [each.is_good for each in upgrades]
    sys.exit(0 if good and all(good) else 1)


def _wanted(chosen: Sequence[str], drivers: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the drivers to test, by release."""
    asked = {
        release.slurm: tuple(d for d in release.drivers if d in (drivers or DRIVERS))
        for release in RELEASES
        if not chosen or release.slurm in chosen
    }
    return {release: found for release, found in asked.items() if found}


def _run(root: Root, driver: str, short: bool, pytest: Sequence[str]) -> Run:
    release = root.release
    say(f"Slurm {release.slurm} ({release.debian}), {driver}")
    whole = WHOLE if driver == COMMANDS else ON_A_CLUSTER
    tests = pytest or (*IN_PARALLEL, *(SHORT if short else whole))
    return suite.run(root, driver, tests, PATIENCE_S)


def _tell(runs: Sequence[Run], upgrades: Sequence[Upgrade], seconds: float) -> None:
    for run in runs:
        counts = f"{run.passed} passed, {len(run.failed)} failed, in {run.seconds:.0f} s"
        said = f" ({run.said})" if run.said else ""
        say(f"Slurm {run.slurm}, Python {run.python}, {run.driver}: {counts}{said}")
        for name in run.failed:
            say(f"  {name}")
    for one in upgrades:
        outcome = "nothing lost" if one.is_good else "FAILED"
        say(f"from Slurm {one.older} to {one.newer}: {outcome}, in {one.seconds:.0f} s")
    count = len(runs) + len(upgrades)
    say(f"{count} runs in {seconds:.0f} s" if count else "no such release and driver")
