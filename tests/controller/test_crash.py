"""A cycle that fails because of an error in this program: other jobs continue, and the error can be
diagnosed."""

from __future__ import annotations

import gzip
import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest

from scripts.testbed.job_views import view
from slurm_tiresias.config import parse
from slurm_tiresias.controller import crash
from slurm_tiresias.controller import publish as report_module
from slurm_tiresias.controller.bands import ShownFactors
from slurm_tiresias.controller.crash import MOST_REPORTS, culprits, write_report
from slurm_tiresias.controller.feed import Feed
from slurm_tiresias.controller.instruments import Instruments
from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.controller.reconcile import Reconciler
from slurm_tiresias.controller.run import Controller
from slurm_tiresias.controller.runs import Runs
from slurm_tiresias.core.engine import Engine
from slurm_tiresias.core.job import Snapshot
from slurm_tiresias.model import Amount, JobState, Node
from slurm_tiresias.profiler.service import Profiler
from slurm_tiresias.profiler.store import ProfileStore
from slurm_tiresias.slurm.protocol import Cluster, Driver, Observation, Partition, Slurm
from slurm_tiresias.status import published
from slurm_tiresias.status.published import PublishedState
from slurm_tiresias.store.ledger import Ledger
from tests.cli.running import Site
from tests.controller.test_job_store import pending

CLUSTER = Cluster("alpha", (22, 5, 8), "priority/multifactor", False, 30.0, 120.0, 1000.0)
NODES = tuple(
    Node(name, Amount({"": 4}, 16), partitions=frozenset({"gpu"})) for name in ("n1", "n2")
)
POISONED = "13"
"""The request may have been crafted by a user."""
JOBS = ("11", "12", POISONED, "14")


class FakeSlurm:
    """Shows some waiting jobs, and accepts every write."""

    driver = Driver()

    def __init__(self, *keys: str) -> None:
        self.keys = keys

    def observe(self) -> Observation:
        at_s = time.time()
        jobs = tuple(pending(key, submit_s=at_s - 60, eligible_s=at_s - 60) for key in self.keys)
        return Observation(at_s, jobs, NODES, (Partition("gpu", frozenset({"n1", "n2"}), True),))

    def write(self, _writes: object) -> tuple[()]:
        return ()


@dataclass
class Crashing:
    """A controller whose parts can be made to fail, and what is seen of it."""

    controller: Controller
    site: Site
    patch: pytest.MonkeyPatch

    def cycle(self) -> None:
        self.controller._cycle()

    def fails(self, kind: type, name: str, error: Exception) -> None:
        """Let a method fail whenever it is called."""
        self.patch.setattr(kind, name, Mock(side_effect=error))

    @property
    def state(self) -> PublishedState:
        return published.read(self.site.folder)

    @property
    def managed(self) -> set[str]:
        return {job.job_id for job in self.state.jobs if job.managed}

    @property
    def reports(self) -> list[Path]:
        return sorted(self.site.folder.glob(crash.REPORTS))

    @property
    def left_alone(self) -> list[str]:
        return list(self.controller._left_alone)

    @property
    def due_in_s(self) -> float:
        return self.controller._pace.next_s - time.monotonic()


@pytest.fixture
def one(ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Crashing]:
    settings = {"state_dir": str(tmp_path), "interval_s": 60.0, "mode": "enforce"}
    with closing(ProfileStore(None)) as store:
        config = parse({"controller": settings})
        slurm = cast(Slurm, FakeSlurm(*JOBS))
        profiler = Profiler(store, config)
        controller = Controller(slurm, CLUSTER, config, ledger, profiler, Instruments())
        yield Crashing(controller, Site(tmp_path), monkeypatch)


def failing_for(key: str, real: Callable[..., Any]) -> Callable[..., Any]:
    """A decision that fails if a certain managed job is present."""

    def fails(engine: Engine, *rest: Any) -> Any:
        if any(job.job_id == key and job.managed for job in engine.jobs):
            raise ZeroDivisionError("division by zero")
        return real(engine, *rest)

    return fails


def test_a_job_that_makes_the_decision_fail_is_excluded_and_others_are_scheduled(
    one: Crashing, caplog: pytest.LogCaptureFixture
) -> None:
    one.patch.setattr(Engine, "plan", failing_for(POISONED, Engine.plan))
    with caplog.at_level(logging.DEBUG):
        one.cycle()
    assert one.state.failed_cycles == {"internal": 1}
    assert one.due_in_s <= 0, "the next cycle may go well"
    (report,) = one.reports
    said = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert sum(str(report) in record.getMessage() for record in said) == 1
    assert not any("\n" in record.getMessage() for record in said)
    assert sum(record.exc_info is not None for record in caplog.records) == 1
    one.cycle()
    state = one.state
    assert state.failures == 0 and state.cycle == 1
    assert one.managed == {*JOBS} - {POISONED}
    assert f"job {POISONED}" in state.warning
    for command in (("status",), ("explain", POISONED)):
        shown = " ".join(one.site.run(*command).stdout.split())
        assert "after an error of the controller" in shown, shown
    one.cycle()
    assert one.state.cycle == 2 and one.reports == [report]


def test_jobs_left_alone_are_forgotten_once_they_are_gone(one: Crashing) -> None:
    """However many there have been, the next one is left alone too."""

    def fails(engine: Engine, *rest: Any) -> Any:
        if any(job.job_id.endswith("00") and job.managed for job in engine.jobs):
            raise ZeroDivisionError("division by zero")
        return real(engine, *rest)

    real = Engine.plan
    one.patch.setattr(Engine, "plan", fails)
    slurm = cast(FakeSlurm, one.controller._slurm)
    for number in range(1, crash.MOST_LEFT_ALONE + 3):
        slurm.keys = ("11", f"{number}00")
        one.cycle()
        one.cycle()
        assert one.state.failures == 0
        assert one.left_alone == [f"{number}00"]


def test_the_dump_of_a_failed_cycle_is_readable_only_by_the_controllers_user(one: Crashing) -> None:
    one.patch.setattr(Engine, "plan", failing_for(POISONED, Engine.plan))
    one.cycle()
    (path,) = one.reports
    assert path.stat().st_mode & 0o777 == 0o600
    report = json.loads(gzip.decompress(path.read_bytes()))
    assert [job["key"] for job in report["seen"]["jobs"]] == list(JOBS)
    assert [node["name"] for node in report["seen"]["nodes"]] == ["n1", "n2"]
    assert "ZeroDivisionError" in report["traceback"][-1]


def test_an_error_not_caused_by_a_job_is_retried(one: Crashing) -> None:
    one.fails(Engine, "plan", KeyError("nothing"))
    for failures in (1, 2, 3):
        one.cycle()
        assert one.due_in_s > 5
        assert one.state.failures == failures
    assert "KeyError" in one.state.error and str(one.reports[0]) in one.state.error
    assert len(one.reports) == 1
    assert one.left_alone == []
    one.patch.undo()
    one.cycle()
    assert one.state.failures == 0


def test_the_job_being_accounted_is_excluded_if_accounting_for_it_fails(one: Crashing) -> None:
    real = Runs.measure

    def measure(runs: Runs, job: Any, requeue_sent_s: float | None, now_s: float) -> None:
        if job.key == POISONED:
            raise OverflowError("too large")
        real(runs, job, requeue_sent_s, now_s)

    one.patch.setattr(Runs, "measure", measure)
    one.cycle()
    one.cycle()
    assert one.managed == {*JOBS} - {POISONED}


def test_the_job_being_published_is_excluded_if_publishing_it_fails(one: Crashing) -> None:
    real = report_module._job

    def published_job(job: Any, *rest: Any) -> Any:
        if job.job_id == POISONED and job.managed:
            raise ValueError("no such name")
        return real(job, *rest)

    one.patch.setattr(report_module, "_job", published_job)
    one.cycle()
    one.cycle()
    assert one.managed == {*JOBS} - {POISONED}


Fails = Callable[[pytest.MonkeyPatch, str], None]


def when_called_with_a_job(kind: type, name: str) -> Fails:
    """Let a method fail that is called for each job."""

    def let_fail(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
        real = getattr(kind, name)

        def method(self: object, job: Any, *rest: Any) -> Any:
            if key in (job, getattr(job, "key", ""), getattr(job, "job_id", "")):
                raise OverflowError("too large")
            return real(self, job, *rest)

        monkeypatch.setattr(kind, name, method)

    return let_fail


@pytest.mark.parametrize(
    "let_fail",
    [
        when_called_with_a_job(JobStore, "_recognise"),
        when_called_with_a_job(JobStore, "_follow_state"),
        when_called_with_a_job(Feed, "_follow_service"),
        when_called_with_a_job(Engine, "update"),
        when_called_with_a_job(ShownFactors, "shows"),
    ],
)
def test_the_job_that_a_failing_step_works_on_is_suspected(one: Crashing, let_fail: Fails) -> None:
    let_fail(one.patch, POISONED)
    one.cycle()
    assert one.left_alone == [POISONED]


def test_no_job_is_suspected_of_an_error_between_the_loops(one: Crashing) -> None:
    one.fails(Reconciler, "reconcile", OverflowError("too large"))
    one.cycle()
    assert one.left_alone == [] and one.due_in_s > 5


def test_a_job_wrongly_suspected_of_a_crash_is_managed_again(one: Crashing) -> None:
    def fail(_job_store: JobStore, job: Any, *_: object) -> None:
        raise OverflowError("too large")

    one.patch.setattr(JobStore, "_newly_shown", fail)
    one.cycle()
    assert one.left_alone == ["11"] and one.due_in_s <= 0
    one.cycle()
    assert one.left_alone == [] and one.due_in_s > 5
    one.cycle()
    assert one.left_alone == [] and one.due_in_s > 5
    one.patch.undo()
    one.cycle()
    assert all(job.managed for job in one.state.jobs)


def test_an_error_while_slurm_is_read_is_waited_out(one: Crashing) -> None:
    one.fails(FakeSlurm, "observe", IndexError("list index out of range"))
    one.cycle()
    assert one.due_in_s > 5
    assert json.loads(gzip.decompress(one.reports[0].read_bytes()))["seen"] is None


# The search


def snapshot_of(jobs: int) -> Snapshot:
    asks = pending().spec.request
    waiting = (view(str(number), JobState.PENDING, asks) for number in range(jobs))
    return Snapshot(0.0, (), tuple(waiting))


def searched(poisoned: set[str], jobs: int) -> tuple[frozenset[str], int]:
    """Return the jobs found if these jobs make the decision fail, and the number of decisions
    taken."""
    decisions = 0

    def decide_on(snapshot: Snapshot) -> None:
        nonlocal decisions
        decisions += 1
        if any(job.managed and job.job_id in poisoned for job in snapshot.jobs):
            raise ZeroDivisionError

    return culprits(snapshot_of(jobs), decide_on, lambda: None), decisions


@pytest.mark.parametrize("poisoned", [{"0"}, {"500"}, {"999"}, {"3", "4", "700"}])
def test_exactly_the_jobs_that_make_a_decision_fail_are_found(poisoned: set[str]) -> None:
    found, decisions = searched(poisoned, jobs=1000)
    assert found == poisoned
    assert decisions <= 13 * len(poisoned) + 2


def test_no_job_is_excluded_if_the_failure_does_not_depend_on_jobs() -> None:
    def fail(_: Snapshot) -> None:
        raise ZeroDivisionError

    assert culprits(snapshot_of(100), fail, lambda: None) == frozenset()
    assert searched({str(number) for number in range(100)}, jobs=100)[0] == frozenset()


def test_the_search_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash, "LONGEST_SEARCH_S", 0.0)
    assert searched({"3", "4"}, jobs=100)[0] == frozenset()


def test_the_last_few_reports_are_kept(tmp_path: Path) -> None:
    written = [write_report(tmp_path, ValueError(str(number)), None) for number in range(8)]
    assert sorted(tmp_path.glob(crash.REPORTS)) == sorted(written)[-MOST_REPORTS:]
