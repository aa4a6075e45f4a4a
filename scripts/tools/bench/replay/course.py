"""The paper's 480 jobs on a real Slurm, one policy after the other, in compressed time."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from scripts.tools.bench.paper480 import THRESHOLD_GPU_S
from scripts.tools.bench.replay import cluster
from scripts.tools.bench.replay.calibrate import SAMPLES, Calibration
from scripts.tools.bench.replay.figures import compared, foreseen_s
from scripts.tools.bench.replay.policies import POLICIES
from scripts.tools.bench.replay.report import PREEMPTION_S, body, cost
from scripts.tools.bench.replay.setting import DAY, LIMITS, MOST_JOBS, Setting
from scripts.tools.bench.replay.store import Head, Replayed, Store
from scripts.tools.document import write_section
from scripts.tools.stopping import stop_in_order
from slurm_tiresias.simulator.limits import USERS

TITLE = "The paper's 480 jobs on a real Slurm"
CALIBRATION_FACTOR = 60.0
"""Slurm's time for a requeue is the same at any factor; a large one shortens the calibration."""

CALIBRATION_S = 75.0
FAILED = 1
LINE_EVERY_S = 30.0


@dataclass(frozen=True, slots=True)
class Options:
    """The command line. ``factor`` None: derive it from the cost of a preemption."""

    into: Path
    policies: tuple[str, ...] = ()
    """The policies to run; if empty, those that have not run yet."""
    jobs: int = MOST_JOBS
    seed: int = 1
    nodes: int = 15
    gpus: int = 4
    limits: str = DAY
    factor: float | None = None
    report_only: bool = False

    def setting(self, factor: float) -> Setting:
        return Setting(
            jobs=self.jobs,
            seed=self.seed,
            nodes=self.nodes,
            gpus=self.gpus,
            factor=factor,
            order="first-start",
            thresholds_gpu_s=(THRESHOLD_GPU_S,),
            load_s=0.0,
            limits=self.limits,
        )


def default_results() -> Path:
    """Return a folder that survives a restart of the machine."""
    return Path(f"/var/tmp/slurm-tiresias-replay-{os.getuid()}")


@click.command("replay")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.Choice(list(POLICIES)),
    help="A policy to run, even if it has run; may be repeated. Default: those not run yet.",
)
@click.option("--jobs", default=480, show_default=True, type=click.IntRange(4, 480))
@click.option("--seed", default=1, show_default=True)
@click.option("--nodes", default=15, show_default=True, type=click.IntRange(1, 64))
@click.option("--gpus", default=4, show_default=True, type=click.IntRange(1, 16))
@click.option(
    "--limits",
    type=click.Choice(LIMITS),
    default=DAY,
    show_default=True,
    help="The jobs' time limits: a day for each, or distributed like users' limits.",
)
@click.option(
    "--factor",
    type=click.FloatRange(4, 400),
    help="The speedup. Default: a preemption costs relatively as much as on the paper's testbed.",
)
@click.option(
    "--into",
    default=default_results,
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder that keeps the results of each policy.",
)
@click.option("--report", "report_only", is_flag=True, help="Run nothing; report what has run.")
def replay(**options: Any) -> None:
    """The paper's jobs on a real Slurm, one policy at a time; all 480 take over an hour."""
    stop_in_order()
    sys.exit(measure(Options(**options)))


def measure(options: Options, known: Calibration | None = None) -> int:
    """Run the missing policies, and report all runs so far; ``known`` replaces the calibration."""
    store = Store(options.into)
    head = store.head() or first(options, store, known)
    if not options.report_only:
        check_same(options, head)
        for policy in to_run(options, store):
            store.keep(replayed(policy, head, store))
    return told(head, store.all())


def first(options: Options, store: Store, known: Calibration | None) -> Head:
    """Measure the cost of a preemption, and derive the factor from it, before any policy runs."""
    if options.report_only:
        raise click.UsageError(f"{options.into} holds no replay. Leave --report out to run one.")
    options.setting(CALIBRATION_FACTOR).workload()  # fails here rather than after the calibration
    measured = known or calibrated(options)
    factor = options.factor or factor_for(measured)
    load_s = max(0.0, PREEMPTION_S - measured.restart_s * factor)
    setting = replace(options.setting(factor), load_s=load_s)
    head = Head(setting, measured, factor_chosen=options.factor is None)
    store.keep_head(head)
    click.echo(f"replay: {cost(head)}", err=True)
    return head


def calibrated(options: Options) -> Calibration:
    show = shown("calibration", 2 * SAMPLES + options.nodes, CALIBRATION_S)
    return cluster.calibrated(options.setting(CALIBRATION_FACTOR), show)


def factor_for(measured: Calibration) -> float:
    """Return a factor at which a requeue costs relatively at least as much as on the paper's
    testbed."""
    return float(math.ceil(PREEMPTION_S / measured.restart_s))


def check_same(options: Options, head: Head) -> None:
    """Refuse to mix results of different jobs or factors in one folder."""
    wanted = options.setting(options.factor or head.setting.factor)
    if replace(head.setting, load_s=0.0) != wanted:
        raise click.UsageError(
            f"{options.into} holds a replay with other options. Name another --into."
        )


def to_run(options: Options, store: Store) -> Sequence[str]:
    done = store.all()
    return options.policies or [name for name in POLICIES if name not in done]


def replayed(policy: str, head: Head, store: Store) -> Replayed:
    """Run one policy; the progress also shows the expected duration."""
    expected_s = foreseen_s(head, policy)
    show = shown(policy, head.setting.jobs, expected_s)
    return cluster.replayed(policy, head.setting, expected_s, store.folder, show)


def shown(what: str, jobs: int, expected_s: float) -> Callable[[int, int], None]:
    """Return a function that prints now and then how many jobs were submitted and have ended."""
    began_s = last_s = time.monotonic()
    until = time.strftime("%H:%M:%S", time.localtime(time.time() + expected_s))

    def show(submitted: int, ended: int) -> None:
        nonlocal last_s
        now_s = time.monotonic()
        if now_s - last_s >= LINE_EVERY_S or ended == jobs:
            last_s = now_s
            told = f"{now_s - began_s:4.0f} s, {submitted} submitted, {ended} of {jobs} ended"
            click.echo(f"{what}, until about {until}: {told}", err=True)

    return show


def told(head: Head, runs: Mapping[str, Replayed]) -> int:
    """Print the tables; for the whole workload, also write them to the record of benchmarks."""
    text = body(compared(head, POLICIES, runs), runs)
    print(text)
    if head.setting.jobs == MOST_JOBS and runs:
        reporting = all(POLICIES[name].reports for name in runs)
        title = f"{TITLE}, with jobs that report" if reporting else TITLE
        title += ", with limits as users give them" if head.setting.limits == USERS else ""
        title += f", seed {head.setting.seed}" if head.setting.seed != 1 else ""
        write_section(title, command(head.setting, runs if reporting else ()), text)
    return FAILED if any(replayed.faults for replayed in runs.values()) else 0


def command(setting: Setting, policies: Iterable[str]) -> str:
    """Return the command that repeats the replay; with the factor, which depends on the machine."""
    return (
        f"scripts/dev bench replay --seed {setting.seed} --nodes {setting.nodes} "
        f"--gpus {setting.gpus} --factor {setting.factor:g}"
        + ("" if setting.limits == DAY else f" --limits {setting.limits}")
        + "".join(f" --policy {name}" for name in policies)
    )
