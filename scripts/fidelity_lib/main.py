"""The command line of the comparison, and its course."""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from scripts.demo_lib import place
from scripts.demo_lib.jobs import accounted, slurm
from scripts.demo_lib.main import STOPPING_SIGNALS, StoppedError, stop_once
from scripts.demo_lib.place import DemoError, Place, UsageError
from scripts.fidelity_lib import calibrate, compare, jobs, report
from scripts.fidelity_lib.calibrate import Calibration
from scripts.fidelity_lib.compare import Ended
from scripts.fidelity_lib.report import Result
from scripts.fidelity_lib.setting import FEWEST_JOBS, MOST_JOBS, Setting
from slurm_tiresias.config import ORDERS
from slurm_tiresias.errors import TiresiasError
from slurm_tiresias.simulator import run as simulation

POLICY = "tiresias-l"
"""The one that decides alike on both sides: the controller learns the distribution of jobs that
tiresias-g needs as they end, while the simulator knows it from the start."""

SLOWEST = 3.0
"""So many times as long as the simulator foresees, the real run may take."""

LEAST_PATIENCE_S = 120.0
SAY_EVERY_S = 15.0
CYCLE_FAILED = "cycle failed"
"""What the controller writes into its log then."""

OUTSIDE, WRONG_USE = 1, 2
CALIBRATION_SEED = 1
MOST_NODES = 64
FACTORS = (4.0, 400.0)
"""Slower, the longest job would not end within its time limit of an hour."""


def run(arguments: Sequence[str]) -> int:
    for number in STOPPING_SIGNALS:
        signal.signal(number, stop_once)
    try:
        return compared(parser().parse_args(arguments))
    except (DemoError, TiresiasError) as error:
        place.say(f"fidelity: error: {error}")
        return WRONG_USE if isinstance(error, UsageError) else OUTSIDE
    except StoppedError as stopped:
        place.say(f"fidelity: stopped by {stopped}")
        return stopped.status


def parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(
        prog="fidelity", description="One workload on a real Slurm, and simulated."
    )
    add = whole.add_argument
    add("--jobs", type=int, default=120, help="the first so many of the paper's (default: 120)")
    add("--seed", type=int, default=1, help="of the workload (default: 1)")
    add("--nodes", type=int, default=15, help="of four GPUs each (default: 15)")
    add("--factor", type=float, default=40.0, help="so many times as fast (default: 40)")
    add("--order", choices=ORDERS, default="first-start", help="inside a tier")
    add("--dir", type=Path, help="a folder to work in (default: in /tmp)")
    add("--record", action="store_true", help="write the result into docs/fidelity.md")
    add("--json", action="store_true", help="print the result as JSON")
    return whole


def compared(options: argparse.Namespace) -> int:
    setting = checked(options)
    where = Place((options.dir or Path(f"/tmp/slurm-tiresias-fidelity-{os.getuid()}")).resolve())
    with place.alone_in(where):
        result = both_sides(where, setting)
    print(json.dumps(result.as_json(), indent=2) if options.json else report.as_text(result))
    if options.record:
        report.record(result)
    return 0 if result.holds else OUTSIDE


def checked(options: argparse.Namespace) -> Setting:
    for name, value, low, high in (
        ("jobs", options.jobs, FEWEST_JOBS, MOST_JOBS),
        ("nodes", options.nodes, 1, MOST_NODES),
        ("factor", options.factor, *FACTORS),
    ):
        if not low <= value <= high:
            raise UsageError(f"--{name} is a number from {low:g} to {high:g}")
    return Setting(
        jobs=options.jobs,
        seed=options.seed,
        nodes=options.nodes,
        gpus=4,
        factor=options.factor,
        order=options.order,
    )


def both_sides(where: Place, setting: Setting, known: Calibration | None = None) -> Result:
    """The real run and then the simulated one, with what was measured before either, or is
    ``known``."""
    setting.workload()  # or a refusal, before anything is started
    place.prepare(where, setting.controller_config())
    try:
        place.start_cluster(where, setting.nodes, setting.gpus)
        controller = place.start_controller(where)
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
    """What the simulator says, once for each phase."""
    setup = setting.setup(calibration)
    runs = (simulation.simulate(workload, POLICY, setup) for workload in setting.phases())
    return tuple(tuple(compare.of_the_simulated(outcomes)) for outcomes in runs)


def check_controller(where: Place, pid: int) -> None:
    """Without it Slurm would have gone on alone, and this had compared something else."""
    if not place.is_alive(pid):
        words = where.controller_log.read_text().strip().splitlines()
        raise DemoError("\n  ".join(["the controller ended before the jobs did:", *words[-5:]]))


def failed_cycles(log: str) -> tuple[str, ...]:
    """While the controller waits after a failure Slurm goes on alone, as nothing simulated does."""
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
    """What became of every job on the real cluster, and what was wrong with it."""
    workload = setting.workload()
    foreseen = simulation.simulate(workload, POLICY, setting.setup(calibration))
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
    """A function that says now and then how far it is."""
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
