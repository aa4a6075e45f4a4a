"""The cost of a ledger of many ended jobs: starts, cycles, fail-over, queries, pruning."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from scripts import ROOT
from scripts.testbed.constants import COMMAND, HOST, in_environment
from scripts.testbed.jobs import slurm
from scripts.testbed.place import MARK, PROGRAMS, Place, bring_up, end, say, temporary_place
from scripts.testbed.slurmctld import submit_many
from scripts.tools.bench.record import record
from scripts.tools.document import markdown
from slurm_tiresias.errors import NotRunningError
from slurm_tiresias.status import published
from slurm_tiresias.status.published import PublishedState
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.retention import JOBS_AT_A_TIME, prune
from slurm_tiresias.store.terms import newest_ledger

TITLE = "A million ended jobs"
NODES, GPUS, WAITING = 4, 4, 300
YEAR_S = 365 * 86_400.0
INTERVAL_S = 2.0
CYCLES = 15
STEPS = 40
TIMES = 3
FIRST_JOB_ID = 50_000_000
HOSTS = ("one", "two")
PATIENCE_S = 120.0
LOOK_EVERY_S = 0.01
CONFIG = f"""\
[policy]
estimates = ["history"]
charge = "user"

[controller]
mode = "enforce"
interval_s = {INTERVAL_S}
state_dir = "{{state_dir}}"
nudge_file = ""
"""
STANDBY = "\nstandby = true\n"


@dataclass(frozen=True, slots=True)
class Course:
    """The measurements with one ledger, in seconds unless the name says otherwise."""

    jobs: int
    size_mb: float
    start_s: float
    cycle_s: float
    fail_over_s: float
    history_s: float
    report_s: float
    step_s: float
    prune_s: float


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
    with temporary_place("aged", CONFIG) as place:
        _start_cluster(place)
        courses = [_measured(place, jobs) for jobs in sorted(sizes)]
    record(TITLE, _told(courses))


def _told(courses: Sequence[Course]) -> str:
    first, last = courses[0], courses[-1]
    pruning = f"pruning {JOBS_AT_A_TIME} jobs between two cycles, s"
    rows: dict[str, Callable[[Course], float]] = {
        "size of the ledger, MB": lambda course: course.size_mb,
        "start until the first cycle is published, s": lambda course: course.start_s,
        "cycle, s": lambda course: course.cycle_s,
        "fail-over: from the kill of one controller until the first cycle of the other, s": (
            lambda course: course.fail_over_s
        ),
        "`history` of an old job, s": lambda course: course.history_s,
        "`report` of the last week, s": lambda course: course.report_s,
        pruning: lambda course: course.step_s,
        "`ledger prune` of the older half, s": lambda course: course.prune_s,
    }
    table = [
        (title, *(f"{of(course):,.3g}" for course in courses), f"{of(last) / of(first):.1f}")
        for title, of in rows.items()
    ]
    header = ("", *(f"{course.jobs:,} ended jobs" for course in courses), "ratio")
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


def _measured(place: Place, jobs: int) -> Course:
    say(f"a ledger of {jobs:,} ended jobs")
    for old in place.state.iterdir():
        old.unlink()
    path = place.state / "ledger.sqlite"
    _fill(path, jobs)
    size_mb = path.stat().st_size / 1e6
    start_s = min(_start_s(place) for _ in range(TIMES))
    with _controller(place, place.config):
        _first_published_s(place)
        cycle_s = statistics.median(_cycles_s(place))
        history_s = _command_s(place, "history", str(jobs // 2))
        report_s = _command_s(place, "report", "-S", "now-7days")
    fail_over_s = min(_fail_over_s(place) for _ in range(TIMES))
    path = newest_ledger(place.state)
    step_s = _step_s(path, place.folder / "steps.sqlite")
    began_s = time.monotonic()
    _tiresias(place, "ledger", "prune", "--before", "now-180days")
    prune_s = time.monotonic() - began_s
    course = Course(
        *(jobs, size_mb, start_s, cycle_s, fail_over_s, history_s, report_s, step_s, prune_s)
    )
    say(str(course))
    return course


def _start_s(place: Place) -> float:
    """Return the seconds from a controller's start until it has published its first cycle."""
    (place.state / published.FILE_NAME).unlink(missing_ok=True)
    with _controller(place, place.config) as began_s:
        return _first_published_s(place) - began_s


def _fill(path: Path, jobs: int) -> None:
    """Create jobs with one run and, one in twenty, with two, by SQL alone, in half a minute."""
    Ledger(path).close()
    with closing(sqlite3.connect(path)) as database:
        database.execute(
            "INSERT INTO jobs (key, restarts, submitted_s, tier_entered_s, queued_s, entry_number, "
            "born_after_s, tier, first_started_s, start_number, promotions, promoted_at_gpu_s, "
            "promoted_at_executed_s, preemptions, preempted_by, accounted_restarts, "
            "written_nodes, own_nodes, ended_s, user, name, account, partition) "
            "WITH RECURSIVE numbers(i) AS "
            "(SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < :jobs) "
            "SELECT CAST(i AS TEXT), i % 20 = 0, s, s, s, i, 0, i % 4, s + 60, i, 0, 0, 0, "
            "i % 20 = 0, CASE WHEN i % 20 = 0 THEN CAST(i + 1 AS TEXT) ELSE '' END, i % 20 = 0, "
            "'', '', s + 120 + (i * 7919) % 7200, 'user' || (i * 31 % 300), "
            "'train-' || (i * 17 % 40), 'lab' || (i % 12), 'gpu' "
            "FROM (SELECT i, :began + i * :apart AS s FROM numbers)",
            {"jobs": jobs, "began": time.time() - YEAR_S - 9000.0, "apart": YEAR_S / jobs},
        )
        runs = (
            "INSERT INTO runs (key, start_s, end_s, elapsed_s, gpus, confirmed, redone_s, "
            "idle_gpu_s, clock_set_by_s, idle_s, clock_set_since_s) "
            "SELECT key, {}, {}, {}, 1 + key % 4, 1, 0, 0, 0, 0, 0 FROM jobs"
        )
        half = "first_started_s + (ended_s - first_started_s) / 2"
        whole = f"CASE WHEN restarts THEN {half} ELSE ended_s END"
        database.execute(runs.format("first_started_s", whole, f"{whole} - first_started_s"))
        again = f"{half} + 20"
        database.execute(runs.format(again, "ended_s", f"ended_s - ({again})") + " WHERE restarts")
        database.execute(
            "INSERT INTO preemptions (key, for_job, at_s, run_start_s, signalled_s, tier, "
            "for_tier, cause, late_s) SELECT key, preempted_by, "
            f"{half}, first_started_s, {half} - 10, 1, 0, 'for-job', 0 FROM jobs WHERE restarts"
        )
        database.execute(
            "INSERT INTO events (at_s, kind, job_id, other, text) SELECT * FROM (SELECT ended_s, "
            "'demoted', key, '', 'from tier 0 to tier 1' FROM jobs ORDER BY ended_s DESC "
            "LIMIT 200000) ORDER BY 1"
        )
        database.commit()


def _start_cluster(place: Place) -> None:
    bring_up(
        place,
        *(f"--nodes={NODES}", f"--gpus={GPUS}", "--partition=gpu"),
        f"--slurm-conf-line=FirstJobId={FIRST_JOB_ID}",
        "--slurm-conf-line=SchedulerParameters=disable_job_shrink",
    )
    begin_later = ("sbatch", "--gpus=1", "--mem=1", "--begin=now+30days", "--wrap=sleep 1")
    submit_many(WAITING, lambda number: slurm(place, *begin_later, f"-Jjob{number}"))


@contextmanager
def _controller(place: Place, config: Path) -> Iterator[float]:
    """Start a controller, yield the time of its start, and stop it at the end of the block."""
    began_s = time.monotonic()
    process = _spawned(place, config)
    try:
        yield began_s
    finally:
        end([process.pid])


def _spawned(place: Place, config: Path, host: str = "") -> subprocess.Popen[bytes]:
    with place.controller_log.open("a") as log:
        return subprocess.Popen(
            [*COMMAND, "controller", "--config", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=place.environment() | {MARK: str(place.folder)} | in_environment({HOST: host}),
            cwd=ROOT,
            start_new_session=True,
        )


def _state(place: Place) -> PublishedState | None:
    try:
        return published.read(place.state)
    except NotRunningError:
        return None


def _first_published_s(
    place: Place, holds: Callable[[PublishedState], bool] | None = None
) -> float:
    """Return the time at which a cycle is published for which ``holds`` is true."""
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        state = _state(place)
        if state is not None and state.cycle > 0 and (holds is None or holds(state)):
            return time.monotonic()
        time.sleep(LOOK_EVERY_S)
    raise TimeoutError(place.controller_log.read_text()[-2000:])


def _cycles_s(place: Place) -> list[float]:
    took: dict[int, float] = {}
    while len(took) < CYCLES + 1:
        state = _state(place)
        if state is not None:
            took[state.cycle] = state.took_s
        time.sleep(INTERVAL_S / 10)
    return list(took.values())[1:]


def _tiresias(place: Place, *arguments: str) -> None:
    command = [str(PROGRAMS / "tiresias-slurm"), *arguments]
    done = subprocess.run(
        command, env=place.environment(), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{arguments}: {done.stderr}")


def _command_s(place: Place, *arguments: str) -> float:
    took: list[float] = []
    for _ in range(TIMES):
        began_s = time.monotonic()
        _tiresias(place, *arguments)
        took.append(time.monotonic() - began_s)
    return min(took)


def _fail_over_s(place: Place) -> float:
    """Return the seconds from the kill of the active controller until the standby acts."""
    (place.state / published.FILE_NAME).unlink(missing_ok=True)
    config = place.folder / "standby.toml"
    config.write_text(place.config.read_text() + STANDBY)
    acting, standing_by = _spawned(place, config, HOSTS[0]), None
    try:
        _first_published_s(place, lambda state: state.term > 0)
        standing_by = _spawned(place, config, HOSTS[1])
        _first_published_s(place, lambda state: len(state.standbys) == 1)
        term = published.read(place.state).term
        os.kill(acting.pid, signal.SIGKILL)
        killed_s = time.monotonic()
        return _first_published_s(place, lambda state: state.term > term) - killed_s
    finally:
        end([process.pid for process in (acting, standing_by) if process is not None])


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
