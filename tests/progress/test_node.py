"""The service on a node: which content of users' files reaches the controller."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_tiresias.job.record import RECORD_BYTES, Record, encode
from slurm_tiresias.model import ProgressSource
from slurm_tiresias.profiler.run_id import RunId
from slurm_tiresias.progress.live_file import MOST_RUNS, NodeReport, parse, text_of
from slurm_tiresias.progress.node import FOLDER, SIGN_OF_LIFE_S, NodeProgress

NOW_S = 5000.0


def record(step: int, total: int | None = 100) -> Record:
    return Record(step, total, NOW_S + step, 0, NOW_S)


@dataclass(frozen=True)
class Node:
    """The folders of a node n1, and its service."""

    run: Path
    collect: Path
    service: NodeProgress

    def report(self, name: str, step: int) -> Path:
        path = self.run / f"{name}.progress"
        path.write_bytes(encode(record(step)))
        return path

    def tick(self, now_s: float = 0.0) -> None:
        self.service.tick(now_s, time.time())

    def told(self) -> dict[str, Record]:
        """Return what the controller can read about each run."""
        content = (self.collect / FOLDER / "n1.live").read_bytes()
        return {str(run_id): told.record() for run_id, told in parse(content)[0].items()}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    run, collect = tmp_path / "run", tmp_path / "collect"
    run.mkdir()
    (collect / FOLDER).mkdir(parents=True)
    return Node(run, collect, NodeProgress(run, collect, host="n1"))


def test_reports_of_running_jobs_are_forwarded_and_those_of_ended_jobs_are_not(node: Node) -> None:
    first = node.report("7.0.n1", 10)
    node.report("8_3.0.n1", 10)  # not the name of a run
    node.report("9.2.n2", 20)  # another node of Slurm on this host
    node.tick()
    assert node.told() == {"7.0.n1": record(10), "9.2.n2": record(20)}
    first.unlink()
    node.tick()
    assert node.told() == {"9.2.n2": record(20)}


def test_an_answered_request_is_forwarded_at_once(node: Node) -> None:
    path = node.report("7.0.n1", 10)
    assert not node.service.has_news()
    path.write_bytes(encode(replace(record(11), answered_s=NOW_S)))
    assert node.service.has_news()
    node.tick()
    assert not node.service.has_news()
    assert node.told()["7.0.n1"].answered_s == NOW_S
    path.unlink()
    assert not node.service.has_news()


def test_an_empty_file_is_not_forwarded(node: Node) -> None:
    (node.run / "7.0.n1.progress").write_bytes(bytes(RECORD_BYTES))
    node.tick()
    assert not (node.collect / FOLDER / "n1.live").exists()


def test_the_file_is_written_on_changes_and_every_minute(node: Node) -> None:
    live = node.collect / FOLDER / "n1.live"
    node.report("7.0.n1", 10)
    node.tick(0.0)
    before = live.stat().st_ino, live.stat().st_mtime_ns
    node.tick(SIGN_OF_LIFE_S - 1)
    assert (live.stat().st_ino, live.stat().st_mtime_ns) == before
    node.tick(SIGN_OF_LIFE_S)
    assert (live.stat().st_ino, live.stat().st_mtime_ns) != before


def symlink(path: Path) -> None:
    (path.parent / "target").write_bytes(encode(record(1)))
    path.symlink_to(path.parent / "target")


def fifo(path: Path) -> None:
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.mkdir()


def huge(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(1 << 40)


def cut_off(path: Path) -> None:
    path.write_bytes(encode(record(1))[:-1])


def forged(path: Path) -> None:
    path.write_bytes(encode(record(1)).replace(b'"step":1', b'"step":2'))


def noise(path: Path) -> None:
    path.write_bytes(os.urandom(RECORD_BYTES))


@pytest.mark.parametrize("plant", [symlink, fifo, folder, huge, cut_off, forged, noise])
def test_bad_content_of_a_users_file_is_ignored(node: Node, plant: Callable[[Path], None]) -> None:
    plant(node.run / "7.0.n1.progress")
    node.report("8.0.n1", 10)
    began_s = time.monotonic()
    node.tick()
    assert node.told() == {"8.0.n1": record(10)}
    assert time.monotonic() - began_s < 30.0


def test_a_lease_on_a_file_does_not_block_the_node(node: Node) -> None:
    path = node.report("7.0.n1", 10)
    node.report("8.0.n1", 10)
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)  # the owner does not release the lease
    try:
        with path.open("r+b") as stream:
            assert fcntl.fcntl(stream, fcntl.F_SETLEASE, fcntl.F_WRLCK) == 0
            began_s = time.monotonic()
            node.tick()
            assert time.monotonic() - began_s < 30.0
    finally:
        signal.signal(signal.SIGIO, before)
    assert "8.0.n1" in node.told()


def test_a_folder_that_cannot_be_written_is_logged_once_and_tried_again(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.report("7.0.n1", 10)
    (node.collect / FOLDER).rmdir()
    node.tick()
    node.tick()
    assert len(caplog.records) == 1
    assert "cannot be told how far jobs are" in caplog.text
    (node.collect / FOLDER).mkdir()
    node.tick()
    assert node.told() == {"7.0.n1": record(10)}


def test_more_runs_than_a_node_can_have_are_left_out() -> None:
    content = encode(record(1)).rstrip()
    runs = {
        RunId(number, 0, "n1"): NodeReport(ProgressSource.REPORTS, content)
        for number in range(MOST_RUNS + 5)
    }
    assert len(parse(text_of(runs))[0]) == MOST_RUNS


@given(st.binary(max_size=2000))
def test_a_reader_of_any_bytes_gets_records_or_a_value_error(content: bytes) -> None:
    for start in (b"", b"tiresias-live 1\n", b"tiresias-live 1\n7.0.n1 reports "):
        try:
            told, _ = parse(start + content)
        except ValueError:
            continue
        for one in told.values():
            try:
                one.record()
            except ValueError:
                continue
