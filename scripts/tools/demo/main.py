"""The demo's command line, and its steps from an empty folder to the table."""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from rich.console import Console

from scripts.testbed import place
from scripts.testbed.jobs import accounted
from scripts.testbed.place import DemoError, Place, UsageError
from scripts.tools.demo import jobs, screen
from scripts.tools.demo.measure import Result, measured
from scripts.tools.demo.mix import LIMITS, USERS, Job, make_jobs
from slurm_tiresias.errors import NotRunningError
from slurm_tiresias.status import published

STOPPING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FEWEST_JOBS, MOST_JOBS = 8, 200
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
    add("--jobs", type=int, default=40, help="how many (default: 40)")
    limits = "; ".join(f"{kind}: {what}" for kind, what in LIMITS.items())
    add("--limits", choices=LIMITS, default=USERS, help=f"{limits} (default: {USERS})")
    add(
        "--keep",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="leave the cluster and the controller running (default: keep)",
    )
    add("--json", action="store_true", help="print the result as JSON on stdout")
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
    place.stop(where)
    place.say("demo: stopped")
    return 0


def demonstrate(where: Place, options: argparse.Namespace) -> int:
    if not FEWEST_JOBS <= options.jobs <= MOST_JOBS:
        raise UsageError(f"--jobs is a number from {FEWEST_JOBS} to {MOST_JOBS}")
    place.prepare(where)
    kept = False
    try:
        status = compare(where, options)
        if options.keep:
            leave_something_to_see(where, screen.screen())
            kept = True
        return status
    finally:
        if not kept:
            for number in STOPPING_SIGNALS:
                signal.signal(number, signal.SIG_IGN)
            place.stop(where)
            place.say("demo: the cluster and the controller are stopped and removed")


def compare(where: Place, options: argparse.Namespace) -> int:
    began_s = time.monotonic()
    console = screen.screen()
    mix = make_jobs(options.seed, options.jobs, options.limits)
    place.start_cluster(where)
    console.print(
        f"{len(mix)} jobs (seed {options.seed}) on 4 nodes of 4 GPUs\n"
        f"{screen.STOCK}: priority/multifactor with backfill\n"
        f"  time limits: {LIMITS[options.limits]}\n"
        f"{screen.TIRESIAS}: the same, with the controller"
    )
    stock = run_once(where, console, screen.STOCK, mix)
    place.start_controller(where)
    tiresias = run_once(where, console, screen.TIRESIAS, mix)
    report(console, options, mix, (stock, tiresias), time.monotonic() - began_s)
    return 1 if stock.faults or tiresias.faults else 0


def run_once(where: Place, console: Console, name: str, mix: Sequence[Job]) -> Result:
    with screen.progress(console, name, len(mix)) as show:
        submitted = jobs.run(where, name.split()[0].lower(), mix, show)
    rows = accounted(where, {one.job_id for one in submitted})
    return measured(submitted, rows, jobs.proofs(where, submitted))


def report(
    console: Console,
    options: argparse.Namespace,
    mix: Sequence[Job],
    results: tuple[Result, Result],
    took_s: float,
) -> None:
    stock, tiresias = results
    out = console if options.json else Console(highlight=False, width=width_of_stdout())
    out.print(screen.result_table(stock, tiresias, Counter(job.kind for job in mix)))
    for fault in (*stock.faults, *tiresias.faults):
        console.print(f"FAULT: {fault}", markup=False)
    if not stock.faults and not tiresias.faults:
        out.print(f"All {2 * len(mix)} jobs have proven that they ran each step once.")
    if options.json:
        print(json.dumps(as_json(options, results, took_s), indent=2), flush=True)


def width_of_stdout() -> int | None:
    return None if sys.stdout.isatty() else screen.WIDTH_WITHOUT_TERMINAL


def as_json(
    options: argparse.Namespace, results: tuple[Result, Result], took_s: float
) -> dict[str, Any]:
    stock, tiresias = results
    times = ("average_jct_s", "median_jct_s", "p95_jct_s", "makespan_s")
    return {
        "seed": options.seed,
        "jobs": options.jobs,
        "took_s": round(took_s, 1),
        "stock": asdict(stock),
        "tiresias": asdict(tiresias),
        "ratios": {name: getattr(stock, name) / getattr(tiresias, name) for name in times},
        "proven": not stock.faults and not tiresias.faults,
    }


def leave_something_to_see(where: Place, console: Console) -> None:
    """Leave a wide job that narrow ones have just preempted, for status and explain to show."""
    wide = jobs.submit(where, SHOWN_JOB, where.jobs / "wide")
    place.wait_until(lambda: tier_of(where, wide.job_id) == 1, "the wide job's demotion")
    for number, gpus in enumerate(SHOWN_NARROW_GPUS, 1):
        narrow = replace(SHOWN_JOB, name=f"narrow{number}", gpus=gpus)
        jobs.submit(where, narrow, where.jobs / narrow.name)
    console.print(
        f"""
The cluster and the controller keep running, with a few more jobs. To look around:

    eval "$({place.this_command(where, "env")})"
    tiresias-slurm status
    tiresias-slurm explain {wide.job_id}
    squeue

and to stop everything:

    {place.this_command(where, "stop")}""",
        markup=False,
    )


def tier_of(where: Place, job_id: str) -> int | None:
    try:
        state = published.read(where.state)
    except NotRunningError:
        return None
    return next((job.tier for job in state.jobs if job.job_id == job_id), None)
