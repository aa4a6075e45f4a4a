"""The progress of jobs over several cycles: what is shown, and what is kept of ended runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.controller.progress import ProgressTracker
from slurm_tiresias.job import comment
from slurm_tiresias.job.record import DONE, Record, encode
from slurm_tiresias.model import JobStatus, ProgressSource
from slurm_tiresias.profiler.run_id import RunId
from slurm_tiresias.progress.folder import ProgressFolder
from slurm_tiresias.progress.live_file import NodeReport, text_of
from slurm_tiresias.progress.node import FOLDER
from slurm_tiresias.slurm.protocol import Observation
from slurm_tiresias.store.ledger import Ledger
from tests.controller.test_job_store import CONFIG, ended, pending, running
from tests.known import known

START_S = 1000.0
AHEAD_S = 1000.0
"""How far Slurm's clock, and every other wall clock, is ahead of the steady one."""


def record(step: int, **changes: Any) -> Record:
    """One step per second since the start, of 1,000."""
    return replace(Record(step, 1000, START_S + step, 0, START_S), **changes)


@dataclass
class Site:
    """A controller that reads a shared folder, with one clock for all."""

    collect: Path
    ledger: Ledger
    now_s: float = START_S
    told: dict[RunId, Record] = field(default_factory=dict)
    source: ProgressSource = ProgressSource.REPORTS

    def __post_init__(self) -> None:
        self.writes = 0
        self.begin()

    def begin(self) -> None:
        """A controller that knows only what is in the ledger."""
        self.folder = ProgressFolder(
            str(self.collect), lambda: self.now_s - AHEAD_S, lambda: self.now_s
        )
        self.job_store = JobStore(self.ledger, CONFIG, accounting=False)
        self.tracker = ProgressTracker(self.job_store, self.folder)

    def cycle(self, *jobs: JobStatus) -> None:
        path = self.collect / FOLDER / "n1.live"
        path.write_bytes(
            text_of(
                {of: NodeReport(self.source, encode(one).rstrip()) for of, one in self.told.items()}
            )
        )
        self.writes += 1
        os.utime(path, ns=(self.writes, self.writes))
        seen = self.seen(*jobs)
        self.job_store.follow_clock(seen.at_s, seen.steady_s)
        self.job_store.observe(seen)
        self.tracker.follow(seen)
        self.job_store.commit()

    def seen(self, *jobs: JobStatus) -> Observation:
        return Observation(self.now_s, jobs, (), (), steady_s=self.now_s - AHEAD_S)

    def run_to(self, step: int, by: int = 10, **changes: Any) -> None:
        """Job 7 reports every ten seconds up to this step; a cycle follows each report."""
        first = self.told[RUN].step + by if RUN in self.told else 0
        for each in range(first, step + 1, by):
            self.now_s = START_S + each
            self.told[RUN] = record(each, **changes)
            self.cycle(job(self.now_s))


RUN = RunId(7, 0, "n1")


def job(now_s: float, **changes: Any) -> JobStatus:
    """Job 7, running since its start."""
    return running(START_S, now_s - START_S, raw_id=7, **changes)


@pytest.fixture
def site(tmp_path: Path, ledger: Ledger) -> Site:
    (tmp_path / FOLDER).mkdir()
    return Site(tmp_path, ledger)


def test_the_progress_of_a_running_job_has_its_step_and_remaining_time(site: Site) -> None:
    site.run_to(500, saved_step=400, saved_s=START_S + 400)
    progress = known(site.tracker.of("7"))
    assert (progress.step, progress.total, progress.source) == (500, 1000, ProgressSource.REPORTS)
    assert (progress.saved_step, progress.saved_s) == (400, START_S + 400)
    assert progress.reported_s == progress.advanced_s == START_S + 500
    remaining = known(progress.remaining(progress.step))
    assert remaining.likely_s == pytest.approx(500.0)
    assert remaining.least_s < 500.0 < remaining.most_s


def test_a_job_without_reports_has_no_progress(site: Site) -> None:
    site.cycle(job(site.now_s))
    assert site.tracker.of("7") is None


def test_unchanged_progress_is_the_same_object_from_cycle_to_cycle(site: Site) -> None:
    site.run_to(100)
    before = site.tracker.of("7")
    site.now_s += 0.5
    site.cycle(job(site.now_s))
    assert site.tracker.of("7") is before


def test_the_last_run_of_a_requeued_job_is_kept_across_restarts(site: Site) -> None:
    site.run_to(500, saved_step=400, saved_s=START_S + 400)
    site.told.clear()
    site.now_s += 10.0
    waits = pending("7", raw_id=7, restarts=1)
    for _ in range(2):
        site.cycle(waits)
        progress = known(site.tracker.of("7"))
        assert (progress.restarts, progress.step, progress.saved_step) == (0, 500, 400)
        remaining = known(progress.remaining(400))
        assert remaining.likely_s == pytest.approx(600.0)
        site.begin()


def test_before_its_first_report_a_run_shows_the_previous_runs_progress(site: Site) -> None:
    site.run_to(500)
    site.told.clear()
    site.cycle(pending("7", raw_id=7, restarts=1))
    site.cycle(job(site.now_s, restarts=1))
    progress = known(site.tracker.of("7"))
    assert (progress.restarts, progress.step) == (0, 500)
    site.told[RunId(7, 1, "n1")] = record(510)
    site.cycle(job(site.now_s, restarts=1))
    progress = known(site.tracker.of("7"))
    assert (progress.restarts, progress.step) == (1, 510)
    assert [row.restarts for row in site.ledger.progress.of("7")] == [0]


def test_collected_reports_replace_earlier_live_ones(site: Site) -> None:
    site.run_to(500)
    collected = site.collect / FOLDER / "7.0.n1.progress"
    collected.write_bytes(encode(record(507, saved_step=507, saved_s=START_S + 507)))
    site.told.clear()
    waits = pending("7", raw_id=7, restarts=1)
    site.cycle(waits)
    (row,) = site.ledger.progress.of("7")
    assert (row.step, row.saved_step) == (507, 507)
    assert row.step_s == pytest.approx(1.0)
    assert collected.exists()
    # Removed only after the ledger has certainly stored it.
    site.cycle(waits)
    site.cycle(waits)
    assert not collected.exists()


def test_a_job_that_ends_keeps_its_last_progress_in_the_ledger(site: Site) -> None:
    site.run_to(990)
    (site.collect / FOLDER / "7.0.n1.progress").write_bytes(encode(record(1000, state=DONE)))
    site.told.clear()
    site.now_s += 10.0
    site.cycle(ended(START_S, 1000.0, raw_id=7))
    (row,) = site.ledger.progress.of("7")
    assert (row.step, row.state) == (1000, DONE)


def test_a_stalled_job_is_quiet_since_its_last_step(site: Site) -> None:
    site.run_to(100)
    progress = known(site.tracker.of("7"))
    late_s = site.now_s + 200.0
    assert progress.quiet_since_s(late_s) is None, "its node has not told of it since"
    progress = replace(progress, heard_s=late_s)
    assert progress.quiet_since_s(site.now_s + 100.0) is None
    assert progress.quiet_since_s(site.now_s + 200.0) == START_S + 100


def test_a_finished_job_or_one_on_a_silent_node_is_not_stalled(site: Site) -> None:
    site.run_to(100)
    progress = known(site.tracker.of("7"))
    late_s = site.now_s + 10_000.0
    assert replace(progress, state=DONE).quiet_since_s(late_s) is None
    assert replace(progress, total=100).quiet_since_s(late_s) is None
    assert replace(progress, lost=True).quiet_since_s(late_s) is None


# Comments


def commented(now_s: float, of: Record, words: str = "my words") -> JobStatus:
    return job(now_s, comment=comment.join(words, comment.encode(of)))


def test_progress_in_a_comment_counts_if_no_node_reports(site: Site) -> None:
    for step in range(0, 500, 50):
        site.now_s = START_S + step
        site.cycle(commented(site.now_s, record(step)))
    progress = known(site.tracker.of("7"))
    assert (progress.source, progress.step) == (ProgressSource.COMMENT, 450)
    assert progress.remaining(450) is not None


def test_a_comment_of_an_earlier_run_is_ignored(site: Site) -> None:
    site.cycle(commented(START_S, record(0, at_s=START_S - 500, first_s=START_S - 500)))
    assert site.tracker.of("7") is None


FORGED: Mapping[str, str] = {
    "no record": "tiresias-progress:",
    "not the last word": "tiresias-progress: of nothing",
    "no checksum": "tiresias-progress:37;90;1795464000;0.125;-;-;-;running;1;1795460000;-;-;-;0;0",
    "endless": "tiresias-progress:" + "9" * 10_000,
    "a hint": "tiresias:model=vgg16",
}


@pytest.mark.parametrize("word", FORGED.values(), ids=FORGED)
def test_a_forged_comment_is_ignored(site: Site, word: str) -> None:
    site.cycle(job(START_S, comment=word))
    assert site.tracker.of("7") is None


def test_a_comment_that_becomes_invalid_leaves_the_earlier_report(site: Site) -> None:
    site.cycle(commented(START_S, record(0)))
    site.now_s += 10.0
    site.cycle(job(site.now_s, comment="tiresias-progress: of nothing"))
    progress = known(site.tracker.of("7"))
    assert progress.step == 0


def test_the_last_reports_of_two_runs_are_kept_and_the_later_shown(site: Site) -> None:
    site.cycle(pending("7", raw_id=7))
    for restarts, step in ((0, 300), (1, 200)):
        path = site.collect / FOLDER / f"7.{restarts}.n1.progress"
        path.write_bytes(encode(record(step)))
    (site.collect / FOLDER / "7.1.n2.progress").write_bytes(encode(record(900)))
    site.cycle(pending("7", raw_id=7, restarts=2))
    assert [row.step for row in site.ledger.progress.of("7")] == [300, 200]
    progress = known(site.tracker.of("7"))
    assert (progress.restarts, progress.step) == (1, 200)


def test_reports_of_an_earlier_job_with_the_same_id_are_not_the_next_jobs(site: Site) -> None:
    """Nodes name runs by job id and restarts, and report on a run until they know of its end."""
    site.run_to(300)
    site.now_s += 30.0
    start_s, submit_s = site.now_s - 10.0, site.now_s - 15.0
    next_holder = running(start_s, 10.0, raw_id=7, submit_s=submit_s)
    site.begin()
    site.cycle(next_holder)
    assert site.tracker.of("7") is None
    (site.collect / FOLDER / RUN.file_name("progress")).write_bytes(encode(record(301)))
    site.cycle(next_holder)
    assert site.tracker.of("7") is None and site.tracker.past_runs("7") == []
    site.told[RUN] = record(1, at_s=site.now_s)
    site.cycle(next_holder)
    assert known(site.tracker.of("7")).step == 1
