"""The cost of a ledger of many ended jobs: starts, cycles, fail-over, queries, pruning."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import click

from scripts.testbed.patience import wait_until
from scripts.testbed.real_cluster import RealCluster, short_folder, started_cluster
from scripts.testbed.real_controller import RealController
from scripts.testbed.slurmctld import submit_many
from scripts.tools.bench.record import record
from scripts.tools.document import markdown
from slurm_tiresias.model import JobAccount
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.records import EventRecord, PreemptionRecord, RunRecord
from slurm_tiresias.store.retention import JOBS_AT_A_TIME, prune
from slurm_tiresias.store.terms import newest_ledger

TITLE = "A million ended jobs"
CLUSTER = (
    *("--nodes=4", "--gpus=4", "--slurm-conf-line=FirstJobId=50000000"),
    "--slurm-conf-line=SchedulerParameters=disable_job_shrink",
)
WAITING = 300
YEAR_S = 365 * 86_400.0
INTERVAL_S = 2.0
CYCLES = 15
STEPS = 40
EVENTS = 200_000
TIMES = 3
SETTINGS: Mapping[str, Mapping[str, object]] = {
    "policy": {"estimates": ["history"], "charge": "user"},
    "controller": {"mode": "enforce", "interval_s": INTERVAL_S},
}


Course = Mapping[str, float]
"""The measurements with one ledger, by what they are."""


@click.command("aged")
@click.option(
    "--jobs",
    "sizes",
    multiple=True,
    default=(10_000, 1_000_000),
    show_default=True,
    type=click.IntRange(1_000, 10_000_000),
    help="Number of ended jobs; may be repeated.",
)
def aged(sizes: Sequence[int]) -> None:
    """Starts, cycles, failovers and queries with a ledger of this many ended jobs."""
    with short_folder() as folder, started_cluster(folder, *CLUSTER) as cluster:
        later = ("--gpus=1", "--mem=1", "--begin=now+30days")
        submit_many(WAITING, lambda number: cluster.sbatch(*later, f"-Jjob{number}"))
        courses = {jobs: _measured(cluster, folder, jobs) for jobs in sorted(sizes)}
    record(TITLE, _told(courses))


def _told(courses: Mapping[int, Course]) -> str:
    first, *_, last = courses.values()
    table = [
        (what, *(f"{course[what]:,.3g}" for course in courses.values()), f"{last[what] / one:.1f}")
        for what, one in first.items()
    ]
    header = ("", *(f"{jobs:,} ended jobs" for jobs in courses), "ratio")
    return (
        f"{markdown(header, table)}\n\nThe jobs ended over the last year, one in twenty after a "
        f"preemption, with up to 200,000 events. A real slurmctld with {WAITING} waiting jobs, "
        'estimates by history and `charge = "user"`, so that ended jobs count most; an '
        f"interval of {INTERVAL_S:g} s. Medians of {CYCLES} cycles and of {STEPS} prunings; of "
        f"starts, fail-overs and commands the best of {TIMES}. A start checks the ledger's file "
        "from end to end, a fail-over copies it. What the lease takes to run out is in the "
        "fail-over, and the start of Python in starts and commands. A week has a fifty-second part "
        "of the jobs."
    )


def _measured(cluster: RealCluster, folder: Path, jobs: int) -> Course:
    click.echo(f"a ledger of {jobs:,} ended jobs", err=True)
    controller = _controller(cluster, folder / f"{jobs}")
    controller.state_dir.mkdir()
    path = controller.state_dir / "ledger.sqlite"
    _fill(path, jobs)
    course = {
        "size of the ledger, MB": path.stat().st_size / 1e6,
        "start until the first cycle is published, s": _best(lambda: _start_s(controller)),
    }
    with _cycling(controller):
        course |= {
            "cycle, s": statistics.median(_cycles_s(controller)),
            "`history` of an old job, s": _best(
                lambda: _command_s(controller, "history", f"{jobs // 2}")
            ),
            "`report` of the last week, s": _best(
                lambda: _command_s(controller, "report", "-S", "now-7days")
            ),
        }
    fail_over_s = _best(lambda: _fail_over_s(cluster, controller.folder))
    step_s = _step_s(newest_ledger(controller.state_dir), folder / "steps.sqlite")
    prune_s = _command_s(controller, "ledger", "prune", "--before", "now-180days")
    return course | {
        "fail-over: from the kill of one controller until the first cycle of the other, s": (
            fail_over_s
        ),
        f"pruning {JOBS_AT_A_TIME} jobs between two cycles, s": step_s,
        "`ledger prune` of the older half, s": prune_s,
    }


def _best(measure: Callable[[], float]) -> float:
    return min(measure() for _ in range(TIMES))


def _controller(cluster: RealCluster, folder: Path, host: str = "") -> RealController:
    """Return a controller; with a host, one of several on the state of this folder."""
    settings = dict(SETTINGS)
    if host:
        settings["controller"] = {**SETTINGS["controller"], "standby": True}
        settings["constants"] = {"HOST": host}
    own = folder / host
    own.mkdir(exist_ok=True)
    return RealController(cluster, own, settings, shared_dir=folder / "state", defaults={})


@contextmanager
def _cycling(controller: RealController) -> Iterator[float]:
    """Run a controller; yield the seconds until it had published its first cycle."""
    controller.write_config()
    began_s = time.monotonic()
    controller.process = controller.spawn()
    try:
        wait_until(controller.cycles_on, "a cycle is published")
        yield time.monotonic() - began_s
    finally:
        if controller.process is not None:
            controller.stop()


def _start_s(controller: RealController) -> float:
    with _cycling(controller) as took_s:
        return took_s


def _fill(path: Path, jobs: int) -> None:
    """Create jobs with one run and, one in twenty, with two."""
    began_s, numbers = time.time() - YEAR_S - 9000.0, range(1, jobs + 1)
    with closing(Ledger(path)) as ledger, ledger.transaction():
        ledger.jobs.put(_job(n, began_s + n * YEAR_S / jobs) for n in numbers)
        every = (_job(n, began_s + n * YEAR_S / jobs) for n in numbers)
        ledger.runs.put(
            RunRecord(job.key, start_s, end_s, end_s - start_s, 1 + int(job.key) % 4, True)
            for job in every
            for start_s, end_s in _runs_s(job)
        )
        restarted = (_job(n, began_s + n * YEAR_S / jobs) for n in numbers[19::20])
        ledger.preemptions.put(
            PreemptionRecord(job.key, job.preempted_by, end_s, start_s, end_s - 10.0, 1, 0)
            for job in restarted
            for start_s, end_s in _runs_s(job)[:1]
        )
        newest = (_job(n, began_s + n * YEAR_S / jobs) for n in numbers[-EVENTS:])
        events = sorted((job.ended_s or 0.0, job.key) for job in newest)
        text = "from tier 0 to tier 1"
        ledger.events.put(EventRecord(at_s, "demoted", key, "", text) for at_s, key in events)


def _job(number: int, at_s: float) -> JobAccount:
    again = number % 20 == 0
    return JobAccount(
        *(str(number), int(again), at_s, at_s, at_s, number),
        tier=number % 4,
        first_started_s=at_s + 60.0,
        start_number=number,
        preemptions=int(again),
        preempted_by=str(number + 1) if again else "",
        accounted_restarts=int(again),
        ended_s=at_s + 120.0 + number * 7919 % 7200,
        user=f"user{number * 31 % 300}",
        name=f"train-{number * 17 % 40}",
        account=f"lab{number % 12}",
        partition="gpu",
    )


def _runs_s(job: JobAccount) -> Sequence[tuple[float, float]]:
    """Return start and end of each run."""
    start_s, end_s = job.first_started_s or 0.0, job.ended_s or 0.0
    middle_s = (start_s + end_s) / 2
    return [(start_s, middle_s), (middle_s + 20.0, end_s)] if job.restarts else [(start_s, end_s)]


def _cycles_s(controller: RealController) -> list[float]:
    took: dict[int, float] = {}
    while len(took) < CYCLES + 1:
        state = controller.state()
        took[state.cycle] = state.took_s
        time.sleep(INTERVAL_S / 10)
    return list(took.values())[1:]


def _command_s(controller: RealController, *arguments: str) -> float:
    began_s = time.monotonic()
    controller.cli(*arguments).check_returncode()
    return time.monotonic() - began_s


def _fail_over_s(cluster: RealCluster, folder: Path) -> float:
    """Return the seconds from the kill of the active controller until the standby acts."""
    acting, standby = (_controller(cluster, folder, host) for host in ("one", "two"))
    with _cycling(acting):
        standby.write_config()
        standby.process = standby.spawn()
        try:
            wait_until(lambda: len(acting.state().standbys) == 1, "a controller stands by")
            killed_s = time.monotonic()
            acting.kill()
            wait_until(standby.cycles_on, "the standby acts")
            return time.monotonic() - killed_s
        finally:
            standby.end()


def _step_s(path: Path, copy: Path) -> float:
    """Return the median duration of the steps in which the controller prunes."""
    shutil.copyfile(path, copy)
    with closing(Ledger(copy)) as ledger:
        took: list[float] = []
        for _ in range(STEPS):
            began_s = time.monotonic()
            prune(ledger, time.time() - 1000.0, JOBS_AT_A_TIME)
            took.append(time.monotonic() - began_s)
    copy.unlink()
    return statistics.median(took)
