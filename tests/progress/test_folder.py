"""The shared folder as read by the controller: live reports, ended runs, silent nodes."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from slurm_tiresias.job.record import DONE, Record, encode
from slurm_tiresias.model import ProgressSource
from slurm_tiresias.profiler.run_id import RunId
from slurm_tiresias.progress.folder import KEPT_S, LOST_AFTER_S, ProgressFolder, slowest_of
from slurm_tiresias.progress.live_file import NodeReport, text_of
from slurm_tiresias.progress.node import FOLDER
from slurm_tiresias.progress.reported_run import LEAST_QUIET_S

EPOCH_S = 1_700_000_000.0
"""The time by the wall clock when the steady one is at 0."""


@dataclass
class Site:
    """A shared folder, its reader, and one clock for all."""

    folder: Path
    now_s: float = 0.0

    def __post_init__(self) -> None:
        collect = str(self.folder.parent)
        self.reader = ProgressFolder(
            collect, lambda: self.now_s, lambda: EPOCH_S + self.now_s, lambda _s: None
        )
        self._writes = 0

    def tell(self, host: str, **steps: int | Record) -> None:
        """Write a host's file: progress out of 100 steps by run, such as ``run_7_0``, reached just
        now."""
        runs = {}
        for name, step in steps.items():
            _, job, restarts = name.split("_")
            one = step if isinstance(step, Record) else self.record(step)
            told = NodeReport(ProgressSource.REPORTS, encode(one).rstrip())
            runs[RunId(int(job), int(restarts), host)] = told
        path = self.folder / f"{host}.live"
        path.write_bytes(text_of(runs))
        # At the interval at which nodes write, which a fast test would not keep.
        self._writes += 1
        os.utime(path, ns=(self._writes, self._writes))

    def record(self, step: int) -> Record:
        return Record(step, 100, EPOCH_S + self.now_s, 0, EPOCH_S)

    def look(self, after_s: float = 0.0) -> None:
        self.now_s += after_s
        self.reader.look()

    def steps(self) -> dict[int, int]:
        return {job: told.step for job, told in self.reader.latest.running.items()}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    (tmp_path / FOLDER).mkdir()
    return Site(tmp_path / FOLDER)


def test_without_a_shared_folder_nothing_is_read() -> None:
    reader = ProgressFolder("")
    reader.look()
    assert not reader.latest.running


def test_the_controller_makes_the_subfolder(tmp_path: Path) -> None:
    ProgressFolder(str(tmp_path)).look()
    assert (tmp_path / FOLDER).is_dir()


def test_each_reading_has_the_latest_report_of_every_host(site: Site) -> None:
    site.tell("a", run_7_0=10)
    site.tell("b", run_8_2=20, run_9_0=30)
    site.look()
    assert site.steps() == {7: 10, 8: 20, 9: 30}
    site.tell("b", run_8_2=25, run_9_0=30)
    site.look(10.0)
    assert site.steps() == {7: 10, 8: 25, 9: 30}


def test_the_first_by_name_of_several_nodes_counts(site: Site) -> None:
    site.tell("b", run_7_0=90)
    site.tell("a", run_7_0=10)
    site.look()
    assert site.steps() == {7: 10}


def test_the_last_of_several_runs_counts(site: Site) -> None:
    site.tell("a", run_7_0=90)
    site.tell("b", run_7_1=10)
    site.look()
    assert site.reader.latest.running[7].restarts == 1


def test_a_run_gone_from_its_file_is_kept_until_its_end_was_seen(site: Site) -> None:
    site.tell("a", run_7_0=10)
    site.look()
    site.tell("a")
    site.look(KEPT_S)
    assert site.steps() == {7: 10}
    site.look(1.0)
    assert site.steps() == {}


def test_a_silent_node_is_distinguished_from_a_stalled_job(site: Site) -> None:
    site.tell("a", run_7_0=10)
    told = site.record(10)
    site.tell("b", run_8_0=told)
    site.look()
    for _ in range(4):
        site.tell("b", run_8_0=told)
        site.look(LOST_AFTER_S / 4)
    site.look(1.0)
    silent, stands_still = site.reader.latest.running[7], site.reader.latest.running[8]
    assert silent.lost
    assert not stands_still.lost
    now_s = EPOCH_S + site.now_s
    assert silent.quiet_since_s(now_s) is None
    assert stands_still.quiet_since_s(now_s) == EPOCH_S
    assert stands_still.quiet_after_s == LEAST_QUIET_S
    site.tell("a", run_7_0=10)
    site.look()
    assert not site.reader.latest.running[7].lost


def test_the_time_that_counts_as_stalled_depends_on_earlier_gaps(site: Site) -> None:
    for step in range(1, 10):
        site.tell("a", run_7_0=step)
        site.look(300.0)
    assert site.reader.latest.running[7].quiet_after_s == pytest.approx(
        3000.0
    )  # ten steps of 300 s


def test_ended_runs_are_read_once_and_removed_when_they_are_stored(site: Site) -> None:
    path = site.folder / "7.0.a.progress"
    path.write_bytes(encode(replace(site.record(100), state=DONE)))
    site.look()
    run_id = RunId(7, 0, "a")
    assert site.reader.latest.ended[run_id].state == DONE
    site.look()
    assert path.exists()
    site.reader.stored([run_id])
    site.look()
    assert not path.exists()
    assert not site.reader.latest.ended


def test_invalid_records_are_removed_and_foreign_files_left_alone(site: Site) -> None:
    (site.folder / "7.0.a.progress").write_bytes(b"x" * 1024)
    (site.folder / "8.0.a.progress").symlink_to("/etc/passwd")
    (site.folder / "notes").write_text("an admin's")
    (site.folder / "c.live").write_bytes(os.urandom(1000))
    os.mkfifo(site.folder / "d.live")
    site.tell("a", run_9_0=10)
    site.look()
    assert site.steps() == {9: 10}
    assert sorted(path.name for path in site.folder.iterdir()) == [
        "a.live",
        "c.live",
        "d.live",
        "notes",
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"at_s": EPOCH_S + 1e6, "first_s": EPOCH_S + 1e6},
        {"at_s": EPOCH_S - 1e6, "first_s": EPOCH_S - 1e6},
        {"at_s": 0.0, "first_s": 0.0, "saved_step": 10, "saved_s": 1e11},
        {"first_s": EPOCH_S + 100},
    ],
    ids=["clock ahead", "clock behind", "no clock", "began later"],
)
def test_times_of_a_node_are_converted_to_slurms_clock(site: Site, changes: dict[str, Any]) -> None:
    site.now_s = 50.0
    site.tell("a", run_7_0=replace(site.record(10), **changes))
    site.look()
    told = site.reader.latest.running[7]
    assert told.reported_s == told.advanced_s == EPOCH_S + 50.0
    assert told.saved_s is None or told.saved_s <= EPOCH_S + 50.0


def test_a_hanging_file_system_keeps_progress(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread hangs, and a caller still gets an answer at once."""
    site.tell("a", run_7_0=10)
    site.look()
    hangs, may_go_on = threading.Event(), threading.Event()

    def hang(_path: object) -> None:
        hangs.set()
        may_go_on.wait(30.0)

    monkeypatch.setattr("slurm_tiresias.progress.folder.os.scandir", hang)
    site.reader.background.start()
    try:
        assert hangs.wait(30.0)
        site.reader.background.step_unless_started()
        assert site.steps() == {7: 10}
    finally:
        site.reader.background.stop()
        may_go_on.set()


def test_the_slowest_process_is_named_and_the_first_process_reports(site: Site) -> None:
    told = site.record(10)
    of_a = replace(told, step=9, ranks=((2, 1.0), (3, 1.4)))
    of_b = replace(told, ranks=((0, 1.0), (1, 1.05)))
    site.tell("a", run_7_0=of_a)
    site.tell("b", run_7_0=of_b)
    site.look()
    progress = site.reader.latest.running[7]
    assert progress.step == 10
    slowest = progress.slowest
    assert slowest is not None
    assert (slowest.rank, slowest.of) == (3, 4)
    assert slowest.slower_by == pytest.approx(1.4 / 1.025 - 1)


@pytest.mark.parametrize(
    ("step_s", "rank"),
    [
        ({0: 1.0}, None),
        ({0: 1.0, 1: 1.09}, None),
        ({0: 1.0, 1: 1.2}, 1),
        ({0: 1.0, 1: 0.0, 2: 1.0}, None),
        ({0: 2.0, 1: 1.0, 2: 1.0, 3: 1.0}, 0),
    ],
)
def test_a_slowest_process_is_a_tenth_slower(step_s: Mapping[int, float], rank: int | None) -> None:
    found = slowest_of({number: (one_s, "n1") for number, one_s in step_s.items()})
    assert (found and found.rank) == rank
