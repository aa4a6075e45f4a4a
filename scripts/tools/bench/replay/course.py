"""The paper's 480 jobs on a real Slurm, one policy after the other, in compressed time."""

from __future__ import annotations

import math
import os
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from scripts.testbed import place
from scripts.testbed.place import DemoError, Place, UsageError
from scripts.tools.bench.paper480 import THRESHOLD_GPU_S
from scripts.tools.bench.replay import cluster
from scripts.tools.bench.replay.calibrate import SAMPLES, Calibration
from scripts.tools.bench.replay.figures import compared, foreseen_s
from scripts.tools.bench.replay.limits import DAY, LIMITS, USERS
from scripts.tools.bench.replay.policies import POLICIES
from scripts.tools.bench.replay.progress import shown
from scripts.tools.bench.replay.report import PREEMPTION_S, body, cost
from scripts.tools.bench.replay.setting import MOST_JOBS, Setting
from scripts.tools.bench.replay.store import Head, Replayed, Store
from scripts.tools.demo.main import STOPPING_SIGNALS, StoppedError, stop_once
from scripts.tools.document import write_section
from slurm_tiresias.errors import TiresiasError

TITLE = "The paper's 480 jobs on a real Slurm"
CALIBRATION_FACTOR = 60.0
"""Slurm's time for a requeue is the same at any factor; a large one shortens the calibration."""

CALIBRATION_S = 75.0
FAILED, WRONG_USE = 1, 2


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
    folder: Path | None = None
    """Folder for the clusters."""

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


def place_of(options: Options) -> Place:
    return Place((options.folder or Path(f"/tmp/slurm-tiresias-replay-{os.getuid()}")).resolve())


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
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="A folder for the clusters. Default: in /tmp.",
)
@click.option("--report", "report_only", is_flag=True, help="Run nothing; report what has run.")
def replay(**options: Any) -> None:
    """The paper's jobs on a real Slurm, one policy at a time; all 480 take over an hour."""
    sys.exit(run(Options(**options)))


def run(options: Options) -> int:
    """Run the command and return the exit status; errors are printed as one line."""
    before = {number: signal.signal(number, stop_once) for number in STOPPING_SIGNALS}
    try:
        return measure(options, place_of(options))
    except (DemoError, TiresiasError) as error:
        place.say(f"replay: error: {error}")
        return WRONG_USE if isinstance(error, UsageError) else FAILED
    except StoppedError as stopped:
        place.say(f"replay: stopped by {stopped}; the policies that had ended are kept")
        return stopped.status
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def measure(options: Options, where: Place, known: Calibration | None = None) -> int:
    """Run the missing policies, and report all runs so far; ``known`` replaces the calibration."""
    store = Store(options.into)
    with place.alone_in(where):
        head = store.head() or first(options, store, where, known)
        if not options.report_only:
            check_same(options, head)
            for policy in to_run(options, store):
                store.keep(replayed(policy, head, store, where))
    return told(head, store.all())


def first(options: Options, store: Store, where: Place, known: Calibration | None) -> Head:
    """Measure the cost of a preemption, and derive the factor from it, before any policy runs."""
    if options.report_only:
        raise UsageError(f"{options.into} holds no replay. Leave --report out to run one.")
    options.setting(CALIBRATION_FACTOR).workload()  # fails here rather than after the calibration
    measured = known or calibrated(options, where)
    factor = options.factor or factor_for(measured)
    load_s = max(0.0, PREEMPTION_S - measured.restart_s * factor)
    setting = replace(options.setting(factor), load_s=load_s)
    head = Head(setting, measured, factor_chosen=options.factor is None)
    store.keep_head(head)
    place.say(f"replay: {cost(head)}")
    return head


def calibrated(options: Options, where: Place) -> Calibration:
    jobs = 2 * SAMPLES + options.nodes
    with shown("calibration", jobs, CALIBRATION_S) as show:
        return cluster.calibrated(where, options.setting(CALIBRATION_FACTOR), show)


def factor_for(measured: Calibration) -> float:
    """Return a factor at which a requeue costs relatively at least as much as on the paper's
    testbed."""
    return float(math.ceil(PREEMPTION_S / measured.restart_s))


def check_same(options: Options, head: Head) -> None:
    """Refuse to mix results of different jobs or factors in one folder."""
    wanted = options.setting(options.factor or head.setting.factor)
    if replace(head.setting, load_s=0.0) != wanted:
        raise UsageError(f"{options.into} holds a replay with other options. Name another --into.")


def to_run(options: Options, store: Store) -> Sequence[str]:
    done = store.all()
    return options.policies or [name for name in POLICIES if name not in done]


def replayed(policy: str, head: Head, store: Store, where: Place) -> Replayed:
    """Run one policy; the progress also shows the expected duration."""
    expected_s = foreseen_s(head, policy)
    with shown(policy, head.setting.jobs, expected_s) as show:
        return cluster.replayed(where, policy, head.setting, expected_s, store.folder, show)


def told(head: Head, runs: Mapping[str, Replayed]) -> int:
    """Print the tables; for the whole workload, also write them to the record of benchmarks."""
    text = body(compared(head, POLICIES, runs), runs)
    print(text)
    if head.setting.jobs == MOST_JOBS and runs:
        reporting = all(POLICIES[name].reports for name in runs)
        title = f"{TITLE}, with jobs that report" if reporting else TITLE
        title += ", with limits as users give them" if head.setting.limits == USERS else ""
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
