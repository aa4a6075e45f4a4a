"""A busy cluster whose controller is killed repeatedly, and the invariants that must still hold."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

from scripts import ROOT
from scripts.testbed import constants
from scripts.testbed.kill_points import KillPoint
from scripts.testbed.patience import PATIENCE_S
from scripts.testbed.real_cluster import RealCluster
from scripts.testbed.real_controller import RealController
from slurm_tiresias.errors import NotRunningError
from slurm_tiresias.slurm.hostlist import refolded
from slurm_tiresias.slurm.protocol import AccountedRun
from slurm_tiresias.store.ledger import FILE_NAME, Ledger
from slurm_tiresias.store.records import EventRecord, RunRecord

JOB = ROOT / "scripts" / "testbed" / "sleeper.sh"
MICRO = 1_000_000

SETTINGS: Mapping[str, Mapping[str, object]] = {
    # CONT has no effect on a running job; it stands for any checkpoint signal.
    "preemption": {"min_run_s": 1, "checkpoint": "CONT@0"},
    "controller": {"interval_s": 0.5},
}

SHAPES: Sequence[tuple[float, tuple[str, ...]]] = (
    (9.0, ("-n4", "--gpus=4")),
    (2.0, ("-n1", "--gpus=1")),
    (9.0, ("-N2", "--ntasks-per-node=1", "--gres=gpu:2")),
    (1.0, ("-n2", "--gpus=2")),
    (6.0, ("--gres=gpu:4",)),
    (2.0, ("-N2", "--ntasks-per-node=1", "--gres=gpu:1")),
    (3.0, ("-n1", "--gpus=1", "-w", "n1")),
)
"""Seconds of work and sbatch options: jobs that move down a tier, short ones that preempt them,
jobs that get a node list, and a job with its own node list."""

JOBS_ALIVE = 10
DRAIN_S = 2 * PATIENCE_S
SETTLE_S = PATIENCE_S
"""Accounting may be late; the controller asks it about a job after 2, 6, 14 and 30 s."""

REQUEUED, COMPLETED = "REQUEUED", "COMPLETED"
SAME_S = 1.0
"""Tolerance, because Slurm keeps whole seconds."""
LONGEST_LAUNCH_S = 10.0
"""The longest time from a job's start to its first line on a busy machine."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job that keeps a journal: a line for each start, stop and end."""

    key: str
    work_s: float
    own_nodes: str
    journal: Path


@dataclass
class Busy:
    """Submits jobs as others end, so that there is always one to preempt for another."""

    cluster: RealCluster
    folder: Path
    jobs: list[Job] = field(default_factory=list)
    shapes: Sequence[tuple[float, tuple[str, ...]]] = SHAPES

    def __post_init__(self) -> None:
        self._shapes = cycle(self.shapes)

    def feed(self) -> None:
        """Submit jobs until enough wait or run."""
        alive = sum(not self._has_ended(job) for job in self.jobs)
        for work_s, options in (next(self._shapes) for _ in range(JOBS_ALIVE - alive)):
            self._submit(work_s, options)

    def _submit(self, work_s: float, options: Sequence[str]) -> None:
        journal = self.folder / f"{len(self.jobs)}.journal"
        command = ("sbatch", "--parsable", "--requeue", "--mem-per-cpu=10", "--output=/dev/null")
        work = (str(JOB), str(journal), str(round(work_s * MICRO)), "0")
        key = self.cluster.run(*command, *options, *work).strip()
        own_nodes = options[options.index("-w") + 1] if "-w" in options else ""
        self.jobs.append(Job(key, work_s, own_nodes, journal))

    def _has_ended(self, job: Job) -> bool:
        return job.journal.exists() and "ended" in job.journal.read_text()

    def wait_until_all_have_ended(self) -> None:
        self.cluster.wait_until(
            lambda: all(map(self._has_ended, self.jobs)), "every job has ended", DRAIN_S
        )

    def node_lists_left(self) -> dict[str, str]:
        """Return the node lists of waiting jobs that differ from their user's, by job."""
        own = {job.key: job.own_nodes for job in self.jobs}
        lists = self.cluster.squeue_fields("ReqNodes", states="PD")
        return {key: nodes for key, nodes in lists.items() if nodes != own[key]}


# Killing


def run_until_it_dies(
    controller: RealController,
    program: Sequence[str],
    busy: Busy,
    *options: str,
    commands: Sequence[str] = (),
) -> None:
    """Start a controller that will kill itself, and keep the cluster busy until it has.

    Once it runs, ``commands`` are sent to it in turn.
    """
    with _spawned(controller, *options, program=program) as process:
        give_up_s = time.monotonic() + PATIENCE_S
        next_one = cycle(commands)
        while process.poll() is None:
            assert time.monotonic() < give_up_s, f"it never came there: {' '.join(program[3:])}"
            busy.feed()
            if commands and controller.has_cycled(process):
                with suppress(NotRunningError):
                    controller.command(next(next_one))
            time.sleep(0.1)


@contextmanager
def _spawned(
    controller: RealController, *options: str, program: Sequence[str] = constants.COMMAND
) -> Iterator[subprocess.Popen[str]]:
    """Run a controller and kill it at the end; check that it did not end in any other way."""
    process = controller.spawn(*options, program=program)
    try:
        yield process
    finally:
        process.kill()
        log = process.communicate()[1]
    assert process.returncode == -signal.SIGKILL, f"it ended by itself: {log[-2000:]}"


def faulty(*places: KillPoint, nth: int = 1) -> tuple[str, ...]:
    """Return the command of a controller that fails at these places."""
    words = [f"{place.name}:{place.moment}:{nth}" for place in places]
    return (sys.executable, "-m", "scripts.testbed.failing_controller", *words, "--")


def kill_at_random(
    controller: RealController, busy: Busy, chance: random.Random, longest_s: float
) -> bool:
    """Start a controller and kill it after a random time of at most ``longest_s``.

    Returns whether it had published a cycle.
    """
    until_s = time.monotonic() + chance.uniform(0.0, longest_s)
    with _spawned(controller) as process:
        while (left_s := until_s - time.monotonic()) > 0 and process.poll() is None:
            busy.feed()
            time.sleep(max(0.0, min(left_s, 0.1)))
        return controller.has_cycled(process)


def not_remembered(controller: RealController, busy: Busy) -> list[str]:
    """Report node lists of waiting jobs that a controller wrote but did not record in its ledger.

    Call this while no controller runs. The ledger is copied, because opening it would repair it.
    """
    with tempfile.TemporaryDirectory() as folder:
        for file in controller.state_dir.glob(f"{FILE_NAME}*"):
            shutil.copy(file, folder)
        with closing(Ledger(Path(folder) / FILE_NAME)) as ledger:
            records = ledger.jobs.live()
    return [
        f"job {key} waits for {nodes}, and the ledger does not know that it wrote that"
        for key, nodes in busy.node_lists_left().items()
        if key not in records or refolded(nodes) not in records[key].written_nodes.split()
    ]


def count_preemptions(controller: RealController, busy: Busy) -> int:
    """Return the number of preemptions in the ledger."""
    with closing(Ledger(controller.state_dir / FILE_NAME)) as ledger:
        records = [ledger.jobs.one(job.key) for job in busy.jobs]
    return sum(record.preemptions for record in records if record)


def drain(controller: RealController, busy: Busy) -> list[str]:
    """Let a controller without faults finish all jobs; return the violations found then."""
    controller.start()
    controller.command("pause")
    left = _until_nothing(
        lambda: [f"job {k} waits for {nodes}" for k, nodes in busy.node_lists_left().items()],
        controller,
    )
    controller.command("resume")
    busy.wait_until_all_have_ended()
    wrong = _until_nothing(lambda: list(violations(controller, busy)), controller)
    controller.stop()
    return [*left, *wrong]


def _until_nothing(look: Callable[[], list[str]], controller: RealController) -> list[str]:
    """Return what ``look`` still finds after giving Slurm and its accounting some time."""
    give_up_s = time.monotonic() + SETTLE_S
    while (found := look()) and time.monotonic() < give_up_s:
        controller.cycles(1)
    return found


# Invariants


@dataclass(frozen=True, slots=True)
class Told:
    """The data on one job from accounting, from the ledger and from its own journal."""

    job: Job
    rows: Sequence[AccountedRun]
    kept: Sequence[RunRecord]
    restarts: int
    preemptions: int
    lines: Sequence[str]


def violations(controller: RealController, busy: Busy) -> Iterator[str]:
    """Yield every difference from a run in which the controller was never killed."""
    answers = busy.cluster.driver().runs([job.key for job in busy.jobs], 0)
    rows: dict[str, list[AccountedRun]] = {}
    for answer in answers:
        rows.setdefault(answer.key, []).append(answer)
    with closing(Ledger(controller.state_dir / FILE_NAME)) as ledger:
        events = ledger.events.last(20_000)
        for job in busy.jobs:
            record = ledger.jobs.one(job.key)
            if record is None:
                yield f"job {job.key} is not in the ledger"
                continue
            told = Told(
                job=job,
                rows=rows.get(job.key, []),
                kept=ledger.runs.of(job.key),
                restarts=record.restarts,
                preemptions=record.preemptions,
                lines=job.journal.read_text().splitlines(),
            )
            yield from (f"job {job.key}: {wrong}" for wrong in _wrong_with(told))
    yield from _requeued_twice(events, {job.key: len(rows.get(job.key, ())) for job in busy.jobs})


def _wrong_with(told: Told) -> Iterator[str]:
    states = [row.state for row in told.rows]
    requeues = states.count(REQUEUED)
    if states != [*[REQUEUED] * requeues, COMPLETED]:
        yield f"it did not finish as it should: {', '.join(states) or 'no trace of it'}"
    if not told.restarts == told.preemptions == requeues:
        yield (
            f"requeued {requeues} times, and the ledger knows of {told.restarts}, of which it "
            f"decided {told.preemptions}"
        )
    yield from service_that_differs(told)
    done_us = int(told.lines[-1].split()[2])
    if done_us < round(told.job.work_s * MICRO):
        yield f"it did {done_us / MICRO:.3f} s of its {told.job.work_s:g} s of work"
    starts = sum(line.startswith("started") for line in told.lines)
    # Some runs may have ended before the job wrote its first line.
    too_short = sum(row.elapsed_s <= LONGEST_LAUNCH_S for row in told.rows[:-1])
    if not len(states) - too_short <= starts <= len(states):
        yield f"it ran {starts} times, and accounting has {', '.join(states)}"


def service_that_differs(told: Told) -> Iterator[str]:
    """Yield the differences between the runs in the ledger and those in accounting."""
    rows = [row for row in told.rows if row.elapsed_s]
    kept = _without_startless(told)
    if [row.start_s for row in rows] != [one.start_s for one in kept]:
        yield f"accounting knows the runs {told.rows}, and the ledger {told.kept}"
        return
    for row, one in zip(rows, kept, strict=True):
        if abs(row.elapsed_s - one.elapsed_s) > SAME_S or row.gpus != one.gpus:
            yield (
                f"a run of {row.elapsed_s:g} s on {row.gpus} GPUs stands in the ledger as "
                f"{one.elapsed_s:g} s on {one.gpus}"
            )


def _without_startless(told: Told) -> Sequence[RunRecord]:
    """Return the runs in the ledger, without one for each row that has an end and no start.

    slurmdbd may get the end of a run requeued soon after its start, and never the start. The
    controller then keeps what it saw of the run, and at last takes that as confirmed.
    """
    accounted = {row.start_s for row in told.rows}
    startless = [row for row in told.rows if row.start_s is None and row.end_s]
    kept = []
    for run in told.kept:
        candidates = [] if run.start_s in accounted else startless
        if row := next((row for row in candidates if _covers(row, run)), None):
            startless.remove(row)
        elif run.elapsed_s:
            kept.append(run)
    return kept


def _covers(row: AccountedRun, run: RunRecord) -> bool:
    """Whether the run was between the row's submission and its end."""
    first_s, last_s = (row.submit_s or 0.0) - SAME_S, (row.end_s or 0.0) + SAME_S
    return first_s <= run.start_s and run.end_s is not None and run.end_s <= last_s


def _requeued_twice(events: Sequence[EventRecord], runs: Mapping[str, int]) -> Iterator[str]:
    """Report victims requeued more often than their preemptor started or backed off.

    The number of starts is known only for the jobs in ``runs``.
    """
    tries = Counter(runs)
    tries.update(event.job_id for event in events if event.kind == "backed-off")
    pairs = Counter((e.job_id, e.other) for e in events if e.kind == "preempted")
    for (victim, preemptor), times in pairs.items():
        if preemptor in runs and times > tries[preemptor]:
            starts = f"{tries[preemptor]} starts of {preemptor}"
            yield f"job {victim} was requeued {times} times for {starts}"
    for event in events:
        if event.kind == "requeued":
            yield f"job {event.job_id} was requeued for no job on record"
