"""The command line of the comparison, and its steps."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from scripts.testbed import place
from scripts.testbed.jobs import accounted, slurm
from scripts.testbed.place import DemoError, Place
from scripts.tools.demo.main import STOPPING_SIGNALS, StoppedError, stop_once
from scripts.tools.fidelity import calibrate, compare, jobs, report
from scripts.tools.fidelity.calibrate import Calibration
from scripts.tools.fidelity.compare import Ended
from scripts.tools.fidelity.report import Result
from scripts.tools.fidelity.setting import FEWEST_JOBS, MOST_JOBS, Setting
from slurm_tiresias.errors import TiresiasError
from slurm_tiresias.settings.policy import ORDERS

POLICY = "tiresias-l"
"""With this policy both sides decide alike. With tiresias-g they would not: the controller learns
the distribution of jobs only as they end, while the simulator knows it from the start."""

SLOWEST = 3.0
"""Limit on the real run's duration, as a multiple of the simulated one."""

LEAST_PATIENCE_S = 120.0
SAY_EVERY_S = 15.0
CYCLE_FAILED = "cycle failed"
"""Text in the controller's log after a failed cycle."""

CALIBRATION_SEED = 1
MOST_NODES = 64
FACTORS = (4.0, 400.0)
"""Range of the factor; below it, the longest job would exceed its time limit of an hour."""


@click.command()
@click.option(
    "--jobs",
    "job_count",
    type=click.IntRange(FEWEST_JOBS, MOST_JOBS),
    default=120,
    show_default=True,
    help="Number of jobs, the first of the paper's.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the workload.")
@click.option(
    "--nodes",
    type=click.IntRange(1, MOST_NODES),
    default=15,
    show_default=True,
    help="Number of nodes, of four GPUs each.",
)
@click.option(
    "--factor",
    type=click.FloatRange(*FACTORS),
    default=40.0,
    show_default=True,
    help="The speedup.",
)
@click.option(
    "--order", type=click.Choice(ORDERS), default="first-start", help="The order inside a tier."
)
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=lambda: Path(f"/tmp/slurm-tiresias-fidelity-{os.getuid()}"),
    help="A folder to work in. Default: in /tmp.",
)
@click.option("--record", is_flag=True, help="Write the result into scripts/records/fidelity.md.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def fidelity(
    job_count: int,
    seed: int,
    nodes: int,
    factor: float,
    order: str,
    folder: Path,
    record: bool,
    as_json: bool,
) -> None:
    """Run one workload on a real Slurm with the real controller, and in the simulator.

    Shows the differences. 120 jobs on 15 nodes of 4 GPUs take about 8 minutes.
    """
    if math.isnan(factor):
        raise click.BadParameter("nan is not a number.", param_hint="--factor")
    for number in STOPPING_SIGNALS:
        signal.signal(number, stop_once)
    setting = Setting(jobs=job_count, seed=seed, nodes=nodes, gpus=4, factor=factor, order=order)
    where = Place(folder.resolve())
    try:
        with place.alone_in(where):
            result = both_sides(where, setting)
        if record:
            report.record(result)
    except (DemoError, TiresiasError) as error:
        raise click.ClickException(str(error)) from error
    except StoppedError as stopped:
        place.say(f"fidelity: stopped by {stopped}")
        sys.exit(stopped.status)
    click.echo(json.dumps(result.as_json(), indent=2) if as_json else report.as_text(result))
    sys.exit(not result.holds)


def both_sides(where: Place, setting: Setting, known: Calibration | None = None) -> Result:
    """Run on Slurm and then in the simulator, with the calibration measured first, or ``known``."""
    setting.workload()  # fails here rather than after the cluster's start
    place.prepare(where, setting.controller_config())
    try:
        place.start_cluster(where, setting.nodes, setting.gpus)
        controller = place.start_controller(where, replaced=setting.constants)
        calibration = known or calibrated(where, setting)
        told, faults = really(where, setting, calibration)
        check_controller(where, controller)
        faults += failed_cycles(where.controller_log.read_text())
        machine = report.machine(slurm(where, "sinfo", "--version").strip())
    finally:
        for number in STOPPING_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        place.stop(where)
    real = tuple(compare.of_the_real(told))
    return Result(setting, calibration, real, simulated(setting, calibration), machine, faults)


def simulated(setting: Setting, calibration: Calibration) -> tuple[tuple[Ended, ...], ...]:
    """Return the simulated outcomes for each phase."""
    runs = (setting.simulate(workload, POLICY, calibration) for workload in setting.phases())
    return tuple(tuple(compare.of_the_simulated(outcomes)) for outcomes in runs)


def check_controller(where: Place, pid: int) -> None:
    """Fail if the controller has died: Slurm would have continued alone, which is not the
    experiment."""
    if not place.is_alive(pid):
        words = where.controller_log.read_text().strip().splitlines()
        raise DemoError("\n  ".join(["the controller ended before the jobs did:", *words[-5:]]))


def failed_cycles(log: str) -> tuple[str, ...]:
    """Return the failed cycles: after each, Slurm schedules alone for a while, unlike the
    simulation."""
    failures = [line.strip() for line in log.splitlines() if CYCLE_FAILED in line]
    return (f"{len(failures)} of the controller's cycles: {failures[0]}",) if failures else ()


def calibrated(where: Place, setting: Setting) -> Calibration:
    threshold_gpu_s = setting.thresholds_gpu_s[0] / setting.factor
    own = calibrate.workload(setting.nodes, setting.gpus, threshold_gpu_s, CALIBRATION_SEED)
    patience_s = LEAST_PATIENCE_S + 2 * own[-1].submitted_s
    return calibrate.calibrated(where, own, patience_s, told_now_and_then("calibration", own))


def really(
    where: Place, setting: Setting, calibration: Calibration
) -> tuple[list[jobs.Ran], tuple[str, ...]]:
    """Return the history of every job on the real cluster, and the faults found."""
    workload = setting.workload()
    foreseen = setting.simulate(workload, POLICY, calibration)
    foreseen_s = max(outcome.end_s for outcome in foreseen)
    place.say(f"fidelity: the real run takes about {foreseen_s:.0f} s")
    submitted = jobs.run(
        where,
        workload.jobs,
        setting.load_s / setting.factor,
        LEAST_PATIENCE_S + SLOWEST * foreseen_s,
        told_now_and_then("real run", workload.jobs),
    )
    rows = accounted(where, {one.job_id for one in submitted})
    faults = tuple(fault for one in submitted for fault in jobs.faults_of(one, rows))
    return [jobs.ran(one) for one in submitted], faults


def told_now_and_then(what: str, of: Sequence[Any]) -> Callable[[int, int], None]:
    """Return a function that prints progress periodically."""
    began_s = last_s = time.monotonic()

    def show(submitted: int, ended: int) -> None:
        nonlocal last_s
        now_s = time.monotonic()
        if now_s - last_s >= SAY_EVERY_S or ended == len(of):
            last_s = now_s
            place.say(
                f"{what}: {now_s - began_s:3.0f} s, {submitted} of {len(of)} submitted, "
                f"{ended} ended"
            )

    return show
