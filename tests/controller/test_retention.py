"""How long the ledger keeps ended jobs, and what does not grow with their number."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_tiresias.config import parse
from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.controller.state import state_dir_locked
from slurm_tiresias.core.features.charge import CHARGE_WINDOW_S
from slurm_tiresias.core.features.losses import BUDGET_WINDOW_S
from slurm_tiresias.errors import LeaseLostError
from slurm_tiresias.model import JobAccount
from slurm_tiresias.settings import Config
from slurm_tiresias.status.job_history import find
from slurm_tiresias.store import queries, terms
from slurm_tiresias.store import retention as retention_module
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.period import period
from slurm_tiresias.store.queries import SampleRows
from slurm_tiresias.store.records import (
    EventRecord,
    PreemptionCost,
    PreemptionRecord,
    Pruned,
    RunRecord,
)
from slurm_tiresias.store.retention import (
    AGAIN_AFTER_S,
    DAY_S,
    FIRST_AFTER_S,
    JOBS_AT_A_TIME,
    Retention,
    latest_cutoff_s,
    prunable,
    prune,
)
from slurm_tiresias.store.samples import Samples
from slurm_tiresias.store.tables import SAMPLES
from slurm_tiresias.store.terms import inherited_ledger
from tests.cli.running import Site, error_of
from tests.controller.test_job_store import ended, pending, see

NOW_S = 1000 * DAY_S
CONFIG = parse({"controller": {"keep_ended_jobs_days": 30.0}})


def job_record(key: str, ended_s: float | None, started_s: float = 100.0) -> JobAccount:
    number = int(key)
    job = JobAccount(key, 0, 50.0, 50.0, 50.0, number, first_started_s=started_s)
    return replace(job, ended_s=ended_s, user=f"user{number % 3}", name="train")


def keep_job(ledger: Ledger, key: str, ended_s: float | None, *, confirmed: bool = True) -> None:
    """Add a job with two GPUs that ran for 10 s, was preempted, and ran for as many more seconds as
    its id."""
    run_s = float(key)
    last_s = 1000.0 if ended_s is None else ended_s - run_s
    ledger.jobs.put([job_record(key, ended_s)])
    ledger.runs.put(
        [
            RunRecord(key, 100.0, 110.0, 10.0, 2, True),
            RunRecord(key, last_s, ended_s, run_s, 2, confirmed and ended_s is not None),
        ]
    )
    ledger.preemptions.put([PreemptionRecord(key, "999", at_s=110.0, run_start_s=100.0)])
    ledger.costs.put([PreemptionCost(key, 100.0, 0, 110.0, 105.0, 2)])
    ledger.events.put([EventRecord(ended_s or NOW_S, "demoted", key, "", "")])


@pytest.fixture
def aged(ledger: Ledger) -> Ledger:
    """Jobs 1 to 6 ended 60, 50, ... 10 days ago, and job 7 runs."""
    with ledger.transaction():
        for key in range(1, 7):
            keep_job(ledger, str(key), NOW_S - (70 - 10 * key) * DAY_S)
        keep_job(ledger, "7", None)
    return ledger


def keys(ledger: Ledger, table: str) -> set[str]:
    column = "job_id" if table == "events" else "key"
    return {key for (key,) in ledger._database.execute(f"SELECT {column} FROM {table}")}


def test_jobs_ended_before_a_time_are_removed_with_all_their_records(aged: Ledger) -> None:
    before_s = NOW_S - 30 * DAY_S
    would = prunable(aged, before_s)
    assert prune(aged, before_s, at_most=100) == would == Pruned(3, 6, 3, 3)
    for table in ("jobs", "runs", "preemptions", "events"):
        assert keys(aged, table) == {"4", "5", "6", "7"}, table
    assert aged.pruned_before_s == before_s
    assert find(aged, "3").history is None and find(aged, "4").history is not None
    assert not prune(aged, before_s, at_most=100)
    assert [cost.key for cost in aged.costs.awaited()] == ["4", "5", "6", "7"]


def test_a_step_removes_the_oldest_and_no_more_than_it_may(aged: Ledger) -> None:
    assert prune(aged, NOW_S, at_most=2).jobs == 2
    assert keys(aged, "jobs") == {"3", "4", "5", "6", "7"}


def test_jobs_in_use_or_not_confirmed_by_accounting_stay(aged: Ledger) -> None:
    keep_job(aged, "8", NOW_S - 90 * DAY_S, confirmed=False)
    assert prune(aged, NOW_S, at_most=1, kept={"1", "2"}).jobs == 1
    assert keys(aged, "jobs") == {"1", "2", "4", "5", "6", "7", "8"}


def test_history_still_includes_pruned_jobs(aged: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    before = aged.samples.since()
    assert [one.service_gpu_s for one in before] == [22.0, 24.0, 26.0, 28.0, 30.0, 32.0]
    prune(aged, NOW_S - 30 * DAY_S, at_most=2)
    prune(aged, NOW_S - 30 * DAY_S, at_most=2)
    assert aged.samples.since() == before
    aged.samples.table = replace(SAMPLES, most_rows=2)
    assert aged.samples.since() == before[-2:]
    prune(aged, NOW_S, at_most=100)
    assert aged.samples.since() == before[-2:]
    assert [one for (one,) in aged._database.execute("SELECT COUNT(*) FROM samples")] == [2]


def test_newly_ended_jobs_are_learned_without_reading_all_again(
    aged: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = Samples(aged)
    assert list(samples.latest(NOW_S)) == aged.samples.since()
    asked: list[float] = []
    real = SampleRows.since

    def counted(rows: SampleRows, since_s: float, meanwhile: Callable[[], None]) -> object:
        asked.append(since_s)
        return real(rows, since_s, meanwhile)

    monkeypatch.setattr(SampleRows, "since", counted)
    keep_job(aged, "9", NOW_S + 100)
    found = samples.latest(NOW_S + 300)
    assert [one.ended_s for one in found][-2:] == [NOW_S - 10 * DAY_S, NOW_S + 100]
    assert len(found) == 7
    assert asked[0] > NOW_S - DAY_S


# By the controller


class Clock:
    """The unset clock, as the retention reads it."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return NOW_S


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(retention_module, "time", clock)
    return clock


def test_the_controller_prunes_in_steps_after_its_start(ledger: Ledger, clock: Clock) -> None:
    old = 2 * JOBS_AT_A_TIME + 1
    with ledger.transaction():
        for key in range(1, old + 1):
            keep_job(ledger, str(key), NOW_S - 31 * DAY_S + key)
        keep_job(ledger, "5000", NOW_S - 29 * DAY_S)
        ledger.events.put([EventRecord(NOW_S, "requeued", "5000", "", "")])
    retention = Retention(ledger, CONFIG, JobStore(ledger, CONFIG, accounting=True).accounts.ended)

    def left() -> int:
        retention.prune_some(NOW_S)
        return len(keys(ledger, "jobs")) - 1

    assert left() == old
    clock.now_s = FIRST_AFTER_S
    assert [left(), left(), left()] == [JOBS_AT_A_TIME + 1, 1, 0]
    keep_job(ledger, "1", NOW_S - 31 * DAY_S)
    assert left() == 1, "there is nothing to do for an hour"
    clock.now_s += AGAIN_AFTER_S
    assert left() == 0


def test_a_job_that_slurm_still_shows_stays(ledger: Ledger, clock: Clock) -> None:
    config = parse({"controller": {"keep_ended_jobs_days": 1e-6}})
    job_store = JobStore(ledger, config, accounting=False)
    see(job_store, 1000, pending("7"))
    see(job_store, 1100, ended(1010, 50, key="7"))
    retention = Retention(ledger, config, job_store.accounts.ended)
    clock.now_s = FIRST_AFTER_S
    retention.prune_some(1200.0)
    assert keys(ledger, "jobs") == {"7"}
    see(job_store, 1210)
    see(job_store, 1220)
    clock.now_s += AGAIN_AFTER_S
    retention.prune_some(1300.0 + BUDGET_WINDOW_S)
    assert keys(ledger, "jobs") == set()


def test_nothing_is_pruned_for_a_day_after_the_clock_was_set(aged: Ledger, clock: Clock) -> None:
    retention = Retention(aged, CONFIG, JobStore(aged, CONFIG, accounting=True).accounts.ended)
    clock.now_s = FIRST_AFTER_S
    retention.put_off(NOW_S - DAY_S)
    retention.prune_some(NOW_S - 1)
    assert len(keys(aged, "jobs")) == 7
    retention.prune_some(NOW_S)
    assert len(keys(aged, "jobs")) == 4


def test_a_start_with_a_clock_ahead_prunes_nothing_for_a_day(aged: Ledger, clock: Clock) -> None:
    """Nor does the next controller, for which the newest time in the ledger is a wrong one."""
    ahead_s = NOW_S + 400 * DAY_S
    for hours in (0, 1, 23):
        retention = Retention(aged, CONFIG, list)
        clock.now_s += FIRST_AFTER_S
        retention.prune_some(ahead_s + hours * 3600.0)
        assert len(keys(aged, "jobs")) == 7
        aged.events.put([EventRecord(ahead_s, "requeued", "7", "", "")])
    retention.prune_some(NOW_S)
    assert len(keys(aged, "jobs")) == 4, "the clock was set right"
    clock.now_s += AGAIN_AFTER_S
    retention.prune_some(ahead_s + DAY_S)
    assert keys(aged, "jobs") == {"7"}


def test_a_failure_to_prune_the_ledger_is_logged_at_intervals(
    aged: Ledger, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    retention = Retention(aged, CONFIG, JobStore(aged, CONFIG, accounting=True).accounts.ended)
    clock.now_s = FIRST_AFTER_S
    aged._database.execute("PRAGMA query_only = 1")
    for _ in range(3):
        retention.prune_some(NOW_S)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.parametrize("charge", ["job", "user"])
def test_records_that_count_for_budgets_and_later_jobs_are_kept(aged: Ledger, charge: str) -> None:
    """Job 7 started at 100; after a restart its inherited service is computed again."""
    config = parse({"policy": {"charge": charge}})
    latest_s = {"job": NOW_S - BUDGET_WINDOW_S, "user": 100.0 - CHARGE_WINDOW_S}
    assert latest_cutoff_s(config, aged, NOW_S) == latest_s[charge]


def test_with_0_days_all_jobs_are_kept_for_good(aged: Ledger, clock: Clock) -> None:
    config = parse({"controller": {"keep_ended_jobs_days": 0}})
    clock.now_s = FIRST_AFTER_S
    Retention(aged, config, JobStore(aged, config, accounting=True).accounts.ended).prune_some(
        NOW_S
    )
    assert len(keys(aged, "jobs")) == 7


# Constant costs


def filled(path: Path, jobs: int) -> Ledger:
    """A ledger of jobs that ended long ago, some minutes apart, with one run each. It has as many
    events as any ledger may have."""
    ledger = Ledger(path)
    with ledger.transaction():
        ledger.jobs.put(job_record(str(n), ended_s=300.0 * n) for n in range(1, jobs + 1))
        ledger.runs.put(
            RunRecord(str(n), 300.0 * n - 9, 300.0 * n, 9.0, 1, True) for n in range(1, jobs + 1)
        )
        ledger.preemptions.put(
            PreemptionRecord(str(n), str(n + 1), 300.0 * n) for n in range(1, jobs + 1)
        )
        ledger.events.put(
            EventRecord(300.0 * n, "preempted", str(n), str(n + 1), "") for n in range(1, 51)
        )
    return ledger


def steps_of(ledger: Ledger, ask: Callable[[Ledger], object]) -> int:
    """Count the steps of SQLite's virtual machine."""
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1

    ledger._database.set_progress_handler(step, 1)
    ask(ledger)
    ledger._database.set_progress_handler(None, 1)
    return steps


LATELY_S = 1e9
ASKED: dict[str, Callable[[Ledger], object]] = {
    "a start": lambda ledger: JobStore(ledger, Config(), accounting=True),
    "events to publish": lambda ledger: ledger.events.last(300),
    "what to charge": lambda ledger: ledger.runs.ended_since(LATELY_S, "user"),
    "budgets": lambda ledger: ledger.preemptions.losses_since(LATELY_S),
    "new samples": lambda ledger: ledger.samples.since(LATELY_S),
    "the page's last jobs": lambda ledger: ledger.jobs.completed(20),
    "a job's life": lambda ledger: find(ledger, "7"),
    "a report": lambda ledger: period(ledger, LATELY_S, 2 * LATELY_S),
    "a shadow report": lambda ledger: (
        ledger.jobs.alive_since(LATELY_S),
        ledger.runs.since(LATELY_S),
    ),
    "an id given to another job": lambda ledger: ledger.forget(["7"]),
    "pruning": lambda ledger: prune(ledger, 3000.0, at_most=5),
}


@pytest.fixture(scope="module")
def folder_of_ledgers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("filled")
    for jobs in (50, 5000):
        filled(folder / str(jobs), jobs).close()
    return folder


@pytest.mark.parametrize("asked", ASKED)
def test_the_cost_of_ledger_queries_does_not_grow_with_old_ended_jobs(
    folder_of_ledgers: Path, tmp_path: Path, asked: str
) -> None:
    steps = []
    for jobs in (50, 5000):
        path = tmp_path / str(jobs)
        path.write_bytes((folder_of_ledgers / str(jobs)).read_bytes())
        with closing(Ledger(path)) as ledger:
            steps.append(steps_of(ledger, ASKED[asked]))
    assert steps[1] <= 1.2 * steps[0] + 50


def test_a_lease_is_kept_while_its_term_inherits_a_large_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite checks a table in one step, which nothing interrupts."""
    filled(tmp_path / "ledger.sqlite", 200).close()
    renewed = threading.Event()
    real = terms._copy

    def slow(before: Path, mine: Path) -> None:
        real(before, mine)
        assert renewed.wait(30.0)

    monkeypatch.setattr(terms, "_copy", slow)
    inherited_ledger(tmp_path, 1, renewed.set)
    assert renewed.is_set()

    def lost() -> None:
        raise LeaseLostError("The lease is over", "nothing")

    monkeypatch.setattr(terms, "_copy", lambda before, mine: time.sleep(0.2))
    with pytest.raises(LeaseLostError):
        inherited_ledger(tmp_path, 2, lost)


def test_a_lease_is_kept_while_samples_load(aged: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "SAMPLES_AT_A_TIME", 2)
    renewals: list[int] = []
    Samples(aged, lambda: renewals.append(1)).latest(NOW_S)
    assert len(renewals) == 3


# By a command


@pytest.fixture
def site_with_jobs(tmp_path: Path) -> Site:
    """Jobs 1 and 2 ended long ago."""
    with closing(Ledger(tmp_path / "ledger.sqlite")) as ledger, ledger.transaction():
        for key, ended_s in (("1", 10 * DAY_S), ("2", 20 * DAY_S), ("3", None)):
            keep_job(ledger, key, ended_s)
    return Site(tmp_path)


def jobs_in(site: Site) -> set[str]:
    with closing(Ledger.to_read(site.folder / "ledger.sqlite")) as ledger:
        return keys(ledger, "jobs")


def test_a_dry_run_counts_and_removes_nothing_beside_a_controller(site_with_jobs: Site) -> None:
    with state_dir_locked(parse({"controller": {"state_dir": str(site_with_jobs.folder)}})):
        result = site_with_jobs.run("ledger", "prune", "--before=1970-01-15", "--dry-run")
    assert result.exit_code == 0
    said = " ".join(result.stdout.split())
    assert said.startswith("Would remove 1 job that ended before 1970-01-15")
    assert "with 2 runs and 1 preemption" in said
    assert jobs_in(site_with_jobs) == {"1", "2", "3"}


def test_prune_uses_the_given_time_or_the_configured_retention(site_with_jobs: Site) -> None:
    result = site_with_jobs.run("ledger", "prune", "--before=1970-01-15", "--json")
    told = json.loads(result.stdout)
    assert told["pruned"] == {"jobs": 1, "runs": 2, "preemptions": 1, "events": 1}
    assert told["dry_run"] is False and told["bytes_after"] <= told["bytes_before"]
    assert jobs_in(site_with_jobs) == {"2", "3"}
    result = site_with_jobs.run("ledger", "prune")
    assert result.stdout.startswith("Removed 1 job that ended before ")
    assert jobs_in(site_with_jobs) == {"3"}


def test_jobs_that_still_count_are_never_pruned(site_with_jobs: Site) -> None:
    site_with_jobs.configure('[policy]\ncharge = "user"\n')
    result = site_with_jobs.run("ledger", "prune", "--before=now")
    assert "still count in decisions, and stay" in result.stdout
    assert jobs_in(site_with_jobs) == {"1", "2", "3"}, "job 3 started before they ended"


def test_pruning_beside_a_running_controller_is_a_one_line_error(site_with_jobs: Site) -> None:
    with state_dir_locked(parse({"controller": {"state_dir": str(site_with_jobs.folder)}})):
        result = site_with_jobs.run("ledger", "prune", "--before=now")
    assert result.exit_code == 9
    assert "stop the controller first" in error_of(result)
    assert jobs_in(site_with_jobs) == {"1", "2", "3"}


def test_pruning_needs_a_time_if_everything_is_kept_by_default(site_with_jobs: Site) -> None:
    site_with_jobs.configure("keep_ended_jobs_days = 0\n")
    result = site_with_jobs.run("ledger", "prune")
    assert result.exit_code == 2
    assert "--before" in error_of(result)


def test_a_report_and_a_history_say_that_older_jobs_were_removed(site_with_jobs: Site) -> None:
    site_with_jobs.run("ledger", "prune", "--before=1970-01-15")
    told = " ".join(site_with_jobs.run("report", "-S", "1970-01-02").stdout.split())
    assert "Jobs that ended before 1970-01-15 00:00 have been removed from the ledger" in told
    later = site_with_jobs.run("report", "-S", "1970-01-16").stdout
    assert "have been removed" not in later and "managed job" in later
    gone = site_with_jobs.run("history", "1")
    assert "ended too long ago" in error_of(gone)
