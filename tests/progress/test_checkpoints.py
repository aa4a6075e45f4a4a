"""Checkpoint folders: what a node sees of them, with which rights, and file systems that hang."""

from __future__ import annotations

import os
import signal
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.testbed.patience import PATIENCE_S, wait_until
from slurm_tiresias.job_hints import checkpoint_folder_of
from slurm_tiresias.profiler.run_id import RunId
from slurm_tiresias.progress import checkpoints
from slurm_tiresias.progress.checkpoints import (
    GIVEN_UP_AFTER_S,
    LIST_NAME,
    LOOK_EVERY_S,
    MOST_LOOKS,
    TOLD_FOR_S,
    CheckpointFolders,
    folders_in,
    look_into,
    text_of_folders,
)
from slurm_tiresias.progress.live_file import parse, text_of
from slurm_tiresias.progress.node import FOLDER, NodeProgress
from tests.other_user import as_root

RUN = RunId(7, 0, "n1")
NOBODY = 65534


def save(path: Path, at_s: float, content: bytes = b"weights") -> None:
    path.write_bytes(content)
    os.utime(path, (at_s, at_s))


def newest_s(folder: Path) -> float | None:
    scan = look_into(str(folder), None)
    return None if scan is None else scan.newest.changed_ns / 1e9


@dataclass
class Node:
    """The service of a node on which job 7 runs, with a fake clock."""

    folder: Path
    now_s: float = 1000.0
    running: dict[RunId, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.list = self.folder / LIST_NAME
        self.saved_in = self.folder / "run1"
        self.saved_in.mkdir()
        file = self.folder / "7.0.n1.progress"
        file.touch()
        self.running = {RUN: file}
        self.list.write_bytes(text_of_folders({7: str(self.saved_in)}))
        self.folders = CheckpointFolders(self.list)

    def tick(self, after_s: float = 0.0) -> dict[RunId, float]:
        self.now_s += after_s
        return dict(self.folders.saves(self.running, self.now_s))

    def look(self) -> dict[RunId, float]:
        """Scan once more, and return the known saves."""
        self.tick(LOOK_EVERY_S)
        give_up_s = time.monotonic() + PATIENCE_S
        while self.folders._processes:
            assert time.monotonic() < give_up_s
            time.sleep(0.01)
            self.tick()
        return self.tick()

    def wait_for(self, saved_s: float) -> None:
        wait_until(lambda: self.tick().get(RUN) == saved_s)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    for look in made.folders._processes.values():
        os.kill(look.pid, signal.SIGKILL)


def test_the_newest_file_shows_when_a_job_last_saved(node: Node) -> None:
    assert node.look() == {}
    save(node.saved_in / "step-10", 500.0)
    save(node.saved_in / "step-20", 600.0)
    assert node.look() == {}
    assert node.look() == {RUN: 600.0}
    save(node.saved_in / "step-30", 700.0)
    assert node.tick(LOOK_EVERY_S / 2) == {RUN: 600.0}
    assert node.look() == {RUN: 600.0}
    assert node.look() == {RUN: 700.0}


def test_a_file_counts_once_it_stops_changing(node: Node) -> None:
    save(node.saved_in / "step-10", 500.0)
    node.look()
    partial = node.saved_in / "step-20.tmp"
    for more in range(1, 4):
        save(partial, 600.0 + more, b"w" * more)
        assert node.look() == {RUN: 500.0}, "the save before it stays known"
    os.utime(partial, (610.0, 610.0))
    assert node.look() == {RUN: 500.0}, "only its time moved: its content was overwritten"
    partial.rename(node.saved_in / "step-20")
    assert node.look() == {RUN: 610.0}, "renamed, it is the same file"


def test_a_file_that_grows_at_an_unchanged_time_is_still_written(node: Node) -> None:
    for size in (1, 2, 3):
        save(node.saved_in / "step-10", 500.0, b"w" * size)
        assert node.look() == {}
    assert node.look() == {RUN: 500.0}


def test_with_a_save_between_any_two_scans_the_previous_file_counts(node: Node) -> None:
    known = []
    for number in range(1, 5):
        save(node.saved_in / f"step-{2 * number - 1}", 100.0 * number)
        save(node.saved_in / f"step-{2 * number}", 100.0 * number + 50.0)
        known.append(node.look().get(RUN))
    assert known == [None, 150.0, 250.0, 350.0]


def test_a_save_is_remembered_after_its_file_is_removed(node: Node) -> None:
    save(node.saved_in / "step-10", 500.0)
    save(node.saved_in / "old", 100.0)
    node.look()
    assert node.look() == {RUN: 500.0}
    (node.saved_in / "step-10").unlink()
    save(node.saved_in / "step-20", 600.0)
    assert node.look() == {RUN: 500.0}


def test_a_scan_started_before_the_end_of_a_run_is_not_the_last(node: Node) -> None:
    save(node.saved_in / "step-10", 500.0)
    node.tick()
    node.running = {}
    save(node.saved_in / "step-20", 600.0)
    assert node.look() == {RUN: 600.0}


def test_an_ended_run_is_scanned_once_more_and_reported_for_a_while(node: Node) -> None:
    save(node.saved_in / "step-10", 500.0)
    node.look()
    assert node.look() == {RUN: 500.0}
    save(node.saved_in / "step-20", 600.0)
    node.running = {}
    node.tick(1.0)
    node.wait_for(600.0)
    save(node.saved_in / "step-30", 700.0)
    assert node.tick(TOLD_FOR_S - 1.0) == {RUN: 600.0}
    assert node.tick(2.0) == {}


def test_a_list_that_was_out_of_reach_is_read_again(node: Node) -> None:
    save(node.saved_in / "step-10", 500.0)
    aside = node.list.rename(node.folder / "aside")
    assert node.tick(LOOK_EVERY_S) == {}
    aside.rename(node.list)
    node.look()
    assert node.look() == {RUN: 500.0}


def test_only_regular_files_directly_in_the_folder_count(tmp_path: Path) -> None:
    folder = tmp_path / "run1"
    (folder / "deeper").mkdir(parents=True)
    save(folder / "deeper" / "new", 900.0)
    save(tmp_path / "elsewhere", 800.0)
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    (folder / "dangling").symlink_to("nowhere")
    os.mkfifo(folder / "fifo")
    assert newest_s(folder) is None
    save(folder / "step-10", 500.0)
    assert newest_s(folder) == 500.0


def test_the_entries_examined_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "MOST_ENTRIES", 3)
    for number in range(10):
        save(tmp_path / f"step-{number}", 100.0)
    assert newest_s(tmp_path) == 100.0


@pytest.mark.parametrize("what", ["missing", "file", "fifo"])
def test_a_path_that_is_not_a_folder_is_ignored_without_blocking(node: Node, what: str) -> None:
    path = node.folder / what
    if what == "file":
        save(path, 500.0)
    if what == "fifo":
        os.mkfifo(path)
    node.list.write_bytes(text_of_folders({7: str(path)}))
    began_s = time.monotonic()
    assert node.tick() == node.tick(LOOK_EVERY_S) == {}
    assert time.monotonic() - began_s < PATIENCE_S


@pytest.fixture
def hangs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A file system whose server does not respond."""
    monkeypatch.setattr(checkpoints, "look_into", lambda _path, _before: time.sleep(600.0))
    yield


def test_a_hanging_file_system_delays_no_tick_and_is_left_alone(node: Node, hangs: None) -> None:
    began_s = time.monotonic()
    node.tick()
    (look,) = node.folders._processes.values()
    for _ in range(5):
        node.tick(0.1 * LOOK_EVERY_S)
    assert [one.pid for one in node.folders._processes.values()] == [look.pid]
    node.tick(GIVEN_UP_AFTER_S + 1.0)
    assert time.monotonic() - began_s < PATIENCE_S
    give_up_s = time.monotonic() + PATIENCE_S
    while any(one.pid == look.pid for one in node.folders._processes.values()):
        assert time.monotonic() < give_up_s
        node.tick()


def test_the_number_of_concurrent_scans_is_bounded(node: Node, hangs: None) -> None:
    runs = [RunId(number, 0, "n1") for number in range(3 * MOST_LOOKS)]
    node.running = dict.fromkeys(runs, node.running[RUN])
    node.list.write_bytes(text_of_folders(dict.fromkeys(range(len(runs)), "/scratch")))
    node.tick()
    looks = node.folders._processes
    assert len(looks) == MOST_LOOKS


@as_root
def test_a_folder_is_scanned_with_the_rights_of_the_jobs_user(node: Node) -> None:
    save(node.saved_in / "step-10", 500.0)
    os.chown(node.running[RUN], NOBODY, NOBODY)
    for parent in (node.folder, *node.folder.parents):
        mode = parent.stat().st_mode
        if not mode & stat.S_IXOTH:  # such as pytest's own folder
            parent.chmod(stat.S_IMODE(mode) | stat.S_IXOTH)
    node.saved_in.chmod(0o700)
    node.tick()
    give_up_s = time.monotonic() + PATIENCE_S
    while node.folders._processes:
        assert time.monotonic() < give_up_s
        assert node.tick() == {}
    os.chown(node.saved_in, NOBODY, NOBODY)
    node.look()
    assert node.look() == {RUN: 500.0}


def test_the_node_reports_saves_to_the_controller(tmp_path: Path) -> None:
    run, collect, folder = (tmp_path / name for name in ("run", "collect", "saved"))
    for path in (run, collect, collect / FOLDER, folder):
        path.mkdir()
    save(folder / "step-10", 500.25)
    (run / "7.0.n1.progress").write_bytes(bytes(1024))
    (collect / FOLDER / LIST_NAME).write_bytes(text_of_folders({7: str(folder)}))
    service = NodeProgress(run, collect, host="n1")
    live = collect / FOLDER / "n1.live"
    give_up_s = time.monotonic() + PATIENCE_S
    now_s = 1000.0
    while not live.exists():
        assert time.monotonic() < give_up_s
        now_s += LOOK_EVERY_S
        service.tick(now_s, 2000.0)
        time.sleep(0.01)
    assert parse(live.read_bytes())[1] == {RUN: 500.25}


def test_written_lists_and_saves_can_be_read() -> None:
    folders = {7: "/scratch/ann/run-1", 12: "/home/bob"}
    assert folders_in(text_of_folders(folders)) == folders
    assert parse(text_of({}, {RUN: 1795464000.25}))[1] == {RUN: 1795464000.25}


@given(st.binary(max_size=200))
def test_any_bytes_are_parsed_or_ignored(content: bytes) -> None:
    for text in (content, b"tiresias-checkpoints 1\n" + content):
        assert all(path.startswith("/") for path in folders_in(text).values())
    for lines in (content, b"7.0.n1 saved " + content):
        _, saves = parse(text_of({}) + lines)
        assert all(0 <= at_s < 1e11 for at_s in saves.values())


@pytest.mark.parametrize(
    ("value", "folder"),
    [
        ("/scratch/ann/run-1", "/scratch/ann/run-1"),
        ("/scratch/ann/.ckpt/", "/scratch/ann/.ckpt/"),
        ("scratch/ann", ""),
        ("/scratch/../etc", ""),
        ("/scratch/.", ""),
        ("//scratch", ""),
        ("/a;b c", ""),
        ("/scratch//run1", ""),
        ("/", ""),
        ("/" + "x" * 255, "/" + "x" * 255),
        ("/" + "x" * 256, ""),
        ("", ""),
    ],
)
def test_a_hint_names_an_absolute_folder_in_usual_characters(value: str, folder: str) -> None:
    assert checkpoint_folder_of("", f"tiresias:model=bert,checkpoint-dir={value}") == folder
    assert checkpoint_folder_of(f"tiresias:checkpoint-dir={value}", "words") == folder
