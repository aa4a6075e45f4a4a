"""What a rebuilt ledger takes over from a damaged one, on the in-memory Slurm."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scripts.testbed.constants import replaced
from slurm_tiresias.controller.rebuild import Rebuilt, rebuild
from slurm_tiresias.model import JobAccount, Lane
from slurm_tiresias.store.ledger import FILE_NAME, FIRST_LOOK, Ledger
from slurm_tiresias.store.records import DrilledProgram, EventRecord, RunRecord, Sample
from slurm_tiresias.store.retention import DOUBTED_UNTIL
from slurm_tiresias.store.tables import JOBS, RUNS, TABLES
from tests.controller.in_memory import ONE_GPU, WHOLE_NODE, Managed

SETTINGS: dict[str, dict[str, object]] = {
    "policy": {"thresholds_gpu_s": [8], "promote_knob": 0.5},
    "preemption": {"min_run_s": 1, "budget_share": 0.5},
}
PAGE_BYTES = 4096
EVERYTHING = tuple(table.holds for table in TABLES if table.holds)


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    with replaced({"PROMOTE_FLOOR_S": 4.0, "START_BOUND_S": 8.0}):
        yield


class Site(Managed):
    """A site with preempted, promoted and ended jobs, whose controller has stopped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with closing(Ledger(path)) as ledger:
            super().__init__(ledger, SETTINGS)
            wall = self.fill()
            short = self.submit(replace(ONE_GPU, script="ends"))
            urgent = self.submit(WHOLE_NODE)
            self.wait_until(lambda: self.events("preempted"), "a preemption")
            self.wait_until(lambda: self.events("promoted"), "a promotion")
            self.wait_for_state(short, None)
            for _ in range(10):
                self.cycle()
            assert urgent and wall
            with ledger.transaction():
                ledger.drilled.put([DrilledProgram("ann", "train", 5.0)])
                ledger.samples.put([Sample(9.0, "ann", "old", 60.0, 240.0)])
                ledger._database.execute(
                    "UPDATE jobs SET user = 'eve' WHERE key IN (SELECT for_job FROM preemptions)"
                )
                ledger.events.put([EventRecord(1.0, "demoted", "1", "", "x" * 40)] * 400)

    def rebuild(self) -> Rebuilt:
        return rebuild(self.slurm, self.config, self.path.parent)

    def rows(self, table: str) -> Sequence[Any]:
        with closing(sqlite3.connect(self.path)) as database:
            return sorted(database.execute(f"SELECT * FROM {table}").fetchall(), key=repr)

    def damage(self, table: str) -> None:
        """Overwrite a page in the middle of a table."""
        with closing(sqlite3.connect(self.path)) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            pages = [
                n
                for (n,) in database.execute(
                    "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf'", (table,)
                )
            ]
        with self.path.open("r+b") as file:
            file.seek((pages[len(pages) // 2] - 1) * PAGE_BYTES)
            file.write(b"\xff" * PAGE_BYTES)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / FILE_NAME)


KEPT = (
    *("promotions", "promoted_at_gpu_s", "preemptions", "preempted_by", "claimed_gpu_s"),
    *("idle_requeues", "lane", "ended_s", "submitted_s", "first_started_s"),
)


def test_all_that_a_readable_ledger_has_is_taken_over(site: Site) -> None:
    tables = [table.name for table in TABLES if table.holds and table not in (JOBS, RUNS)]
    before = {table: site.rows(table) for table in tables}
    with closing(Ledger(site.path)) as ledger:
        jobs = {key: ledger.jobs.one(key) for (key, *_) in site.rows("jobs")}
        runs, losses = ledger.runs.live(), ledger.preemptions.losses_since(0.0)
        began = ledger.value(FIRST_LOOK)
    rebuilt = site.rebuild()
    assert rebuilt.lost == () and rebuilt.copied > 400
    assert {table: site.rows(table) for table in tables} == before
    assert losses
    with closing(Ledger(site.path)) as ledger:
        assert (ledger.preemptions.losses_since(0.0), ledger.runs.live()) == (losses, runs)
        assert ledger.value(FIRST_LOOK) == began
        for key, then in jobs.items():
            now = ledger.jobs.one(key)
            assert [getattr(now, name) for name in KEPT] == [getattr(then, name) for name in KEPT]
        numbers = [job.entry_number for job in jobs.values() if job]
        assert ledger.next_number() > max(numbers)


def test_the_readable_rows_of_a_damaged_table_are_taken_over_and_counted(site: Site) -> None:
    before, jobs = site.rows("events"), site.rows("jobs")
    site.damage("events")
    rebuilt = site.rebuild()
    assert rebuilt.lost == ("events",)
    now = site.rows("events")
    assert 0.4 * len(before) < len(now) < len(before) and set(now) < set(before)
    assert len(site.rows("jobs")) == len(jobs)


def test_without_a_readable_file_everything_but_what_slurm_knows_is_lost(site: Site) -> None:
    service_gpu_s = site.rebuild().attained_gpu_s
    site.path.write_bytes(b"garbage" * 1000)
    rebuilt = site.rebuild()
    assert (rebuilt.copied, rebuilt.lost) == (0, EVERYTHING)
    assert rebuilt.attained_gpu_s == service_gpu_s


def test_of_another_versions_ledger_the_common_columns_are_taken_over(site: Site) -> None:
    kept = {name: site.rows(name) for name in ("drilled", "preemptions", "events")}
    at_a_prompt = RunRecord("900", 1.0, 9.0, 8.0, 1, confirmed=True)
    with closing(Ledger(site.path)) as ledger:
        account = JobAccount("900", 0, 1.0, 1.0, 1.0, 1, ended_s=9.0, user="ann")
        ledger.jobs.put([replace(account, lane=Lane.INTERACTIVE)])
        ledger.runs.put([at_a_prompt])
        ledger.set_value("paused", "yes")
        ledger.set_value(DOUBTED_UNTIL, "1000.5")
        ledger.set_value("schema_version", "2")
    with closing(sqlite3.connect(site.path)) as database:
        database.execute("ALTER TABLE runs RENAME COLUMN idle_s TO idle_for_s")
        database.execute("ALTER TABLE samples RENAME COLUMN run_s TO ran_s")
    jobs = site.rows("jobs")
    rebuilt = site.rebuild()
    assert rebuilt.lost == ("runs", "samples of pruned jobs")
    assert rebuilt.paused and rebuilt.copied > 400
    assert {name: site.rows(name) for name in kept} == kept
    assert len(site.rows("jobs")) == len(jobs)
    with closing(Ledger(site.path)) as ledger:
        assert ledger.runs.in_lane(Lane.INTERACTIVE, 0.0) == [("ann", at_a_prompt)]
        assert ledger.value(DOUBTED_UNTIL) == "1000.5"


def test_a_run_that_could_not_be_read_comes_from_accounting(site: Site) -> None:
    with closing(sqlite3.connect(site.path, isolation_level=None)) as database:
        (key,) = database.execute("SELECT key FROM jobs WHERE restarts > 0").fetchone()
        before = site.rows("runs")
        database.execute("DELETE FROM runs WHERE key = ? AND end_s IS NOT NULL", (key,))
    site.rebuild()
    assert [row[:5] for row in site.rows("runs")] == [row[:5] for row in before]
