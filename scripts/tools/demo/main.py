"""The demo's command line, and its steps from an empty folder to the table."""

from __future__ import annotations

import argparse
import shlex
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import NoReturn

from rich.console import Console

from scripts.testbed import place, progress_channel
from scripts.testbed.jobs import accounted
from scripts.testbed.place import DemoError, Place, UsageError
from scripts.tools.bench.replay.setting import Setting
from scripts.tools.demo import jobs, screen
from scripts.tools.demo.jobs import Run
from scripts.tools.demo.measure import Result, measured
from scripts.tools.demo.mix import BEYOND_WINDOW_MIN, JOBS, SPEED, Job, make_jobs, setting
from slurm_tiresias.errors import NotRunningError
from slurm_tiresias.status import published

STOPPING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SHIP_EVERY_S = 0.5
BUILD_PACKAGES = ("gcc", "libc6-dev", "libslurm-dev", "make")
"""What the SPANK plugin is built with, by which jobs report."""
SLURM, LIMITS, REPORTS = "stock Slurm", "Tiresias", "Tiresias, jobs report"
SHOWN_JOB = Job("wide", "", gpus=16, steps=7200, arrives_s=0)
"""A wide job of half an hour, left running so that users can look at it as narrow ones arrive."""
SHOWN_NARROW_GPUS = (4, 2, 4, 1)


class StoppedError(Exception):
    """A signal asked the demo to stop."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


def run(arguments: Sequence[str]) -> int:
    for number in STOPPING_SIGNALS:
        signal.signal(number, stop_once)
    try:
        return dispatch(parser().parse_args(arguments))
    except DemoError as error:
        place.say(f"demo: error: {error}")
        return 2 if isinstance(error, UsageError) else 1
    except StoppedError as stopped:
        place.say(f"demo: stopped by {stopped}")
        return stopped.status


def stop_once(number: int, _frame: FrameType | None) -> NoReturn:
    # Ignore further signals: the cleanup must not be interrupted.
    for each in STOPPING_SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise StoppedError(number)


def parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(
        prog="demo", description="The same jobs on stock Slurm and with Tiresias."
    )
    whole.add_argument("command", nargs="?", default="run", choices=("run", "env", "stop"))
    add = whole.add_argument
    add("--dir", type=Path, help="the demo's folder (default: in /tmp)")
    add("--seed", type=int, default=1, help="of the jobs (default: 1)")
    add(
        "--keep",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="leave the last cluster and its controller running (default: keep)",
    )
    return whole


def dispatch(options: argparse.Namespace) -> int:
    where = place.place_named(options.dir)
    if options.command == "env":
        return env(where)
    with place.alone_in(where):
        return stop(where) if options.command == "stop" else demonstrate(where, options)


def env(where: Place) -> int:
    if not place.is_demos(where):
        raise UsageError(f"no demo in {where.folder}. Run {place.this_command(where)} first.")
    for name, value in where.exports().items():
        print(f"export {name}={shlex.quote(value)}")
    return 0


def stop(where: Place) -> int:
    if not place.is_demos(where):
        place.say(f"demo: nothing runs in {where.folder}")
        return 0
    stop_others(where)
    place.stop(where)
    page_of(where).unlink(missing_ok=True)
    place.say("demo: stopped")
    return 0


def demonstrate(where: Place, options: argparse.Namespace) -> int:
    if place.is_demos(where):
        stop_others(where)
    runs, kept = three_runs(where), False
    try:
        status = compare(where, runs, options.seed)
        stop_others(where)
        if options.keep:
            leave_something_to_see(where, runs[-1])
            kept = True
        return status
    finally:
        if not kept:
            for number in STOPPING_SIGNALS:
                signal.signal(number, signal.SIG_IGN)
            stop_others(where)
            place.stop(where)
            place.say("demo: the clusters and the controllers are stopped and removed")


def what(seed: int) -> str:
    return (
        f"{JOBS} jobs of {' and '.join(screen.users())} (seed {seed}) on 4 nodes of 4 GPUs.\n"
        "Stock Slurm at its best: no reservations; the oldest job that fits starts.\n"
        "Tiresias: the same programs, which know nothing of it and save every half hour.\n"
        "Jobs report: the programs use its library; they save when asked, and report.\n"
        f"A restart takes some 3 s, as much as {3 * SPEED // 60} minutes of a site. Other work on "
        "this\nmachine changes all times."
    )


def three_runs(where: Place) -> list[Run]:
    slurm, tiresias = others(where)
    return [
        Run(SLURM, slurm, own_limit_min=BEYOND_WINDOW_MIN),
        Run(LIMITS, tiresias),
        Run(REPORTS, where, reports=True),
    ]


def others(where: Place) -> tuple[Place, Place]:
    """Return the places of the two runs whose clusters are not kept."""
    return Place(where.folder / "slurm"), Place(where.folder / "tiresias")


def stop_others(where: Place) -> None:
    for other in others(where):
        if place.is_demos(other):
            place.stop(other)


def page_of(where: Place) -> Path:
    return where.folder.with_name(f"{where.folder.name}.html")


def compare(where: Place, runs: Sequence[Run], seed: int) -> int:
    console, out, mix = screen.screen(), screen.output(), make_jobs(seed)
    results = race(console, runs, seed)
    table = screen.result_table(results, Counter(job.kind for job in mix))
    screen.show_schedules(out, runs)
    out.print(table)
    page_of(where).write_text(screen.page(runs, what(seed), table), encoding="utf-8")
    out.print(f"The schedules as a page: {page_of(where)}", soft_wrap=True)
    faults = [f"{name}: {fault}" for name, one in results.items() for fault in one.faults]
    for fault in faults:
        console.print(f"FAULT: {fault}", markup=False)
    if not faults:
        out.print(f"The journals of all {len(runs) * len(mix)} jobs prove that none lost a step.")
    return 1 if faults else 0


def race(console: Console, runs: Sequence[Run], seed: int) -> dict[str, Result]:
    """Run the jobs of this seed on three new clusters at once."""
    console.print("Starting three clusters, two of them with a controller ...")
    # The others' folders are in the last run's.
    controllers = {each.name: start(each, setting(seed)) for each in reversed(runs)}
    console.print(what(seed), markup=False)
    mix = make_jobs(seed)
    with screen.progress(console, len(mix)) as show:
        for _ in jobs.run_all(runs, mix):
            show(runs)
    return {each.name: result_of(each, controllers[each.name]) for each in runs}


def start(each: Run, own: Setting) -> int | None:
    """Start a run's cluster and its controller, whose pid is returned; None if there is none."""
    where, config = each.place, own.controller_config()
    if each.reports:
        config += f'\n[profiler]\ncollect_dir = "{where.folder}/collect"\n'
    place.prepare(where, config)
    options: list[str] = []
    if each.reports:
        place.install(*BUILD_PACKAGES)
        options = [f"--conf-file={progress_channel.set_up(where.folder)}"]
    place.start_cluster(where, *options)
    if each.reports:
        progress_channel.start_service(where.folder, SHIP_EVERY_S, place.marked(where))
    return None if each.own_limit_min else place.start_controller(where, replaced=own.constants)


def result_of(each: Run, controller: int | None) -> Result:
    where, submitted = each.place, each.submitted
    rows = accounted(where, {one.job_id for one in submitted})
    result = measured(submitted, rows, [jobs.proof(one) for one in submitted])
    if controller is None:
        return result
    place.check_controller(where, controller)
    failed = place.failed_cycles(where.controller_log.read_text())
    return replace(result, faults=(*result.faults, *failed))


def leave_something_to_see(where: Place, last: Run) -> None:
    """Leave a wide job that narrow ones have just preempted, for status and explain to show."""
    wide = last.submit(SHOWN_JOB)
    place.wait_until(lambda: bool(tier_of(where, wide.job_id)), "the wide job's demotion")
    for number, gpus in enumerate(SHOWN_NARROW_GPUS, 1):
        last.submit(replace(SHOWN_JOB, name=f"narrow{number}", gpus=gpus))
    place.say(
        f"""
The last cluster and its controller keep running, with a few more jobs. To look around:

    eval "$({place.this_command(where, "env")})"
    tiresias-slurm status
    tiresias-slurm explain {wide.job_id}
    squeue

and to stop everything:

    {place.this_command(where, "stop")}"""
    )


def tier_of(where: Place, job_id: str) -> int | None:
    try:
        state = published.read(where.state)
    except NotRunningError:
        return None
    return next((job.tier for job in state.jobs if job.job_id == job_id), None)
