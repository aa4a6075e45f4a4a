"""Who may see which job's history over the controller's socket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_tiresias.model import JobAccount
from slurm_tiresias.status.job_history import Found, find, history_service, query_history
from slurm_tiresias.status.server import serving
from slurm_tiresias.status.service import Service
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.records import EventRecord, RunRecord
from tests import other_user
from tests.other_user import as_root, folder_for_all


@pytest.fixture
def folder() -> Iterator[Path]:
    """A state directory that other users may read, with a ledger that they may not."""
    with folder_for_all() as path:
        with closing(Ledger(path / "ledger.sqlite")) as ledger, ledger.transaction():
            ledger.jobs.put([job("1", "nobody"), job("2", "alice"), job("3", "")])
            ledger.runs.put([RunRecord("1", 20.0, 50.0, 30.0, 4, True)])
            ledger.events.put([EventRecord(50.0, "preempted", "1", "2", "restart 1")])
        yield path


def job(key: str, user: str) -> JobAccount:
    return JobAccount(
        key=key,
        restarts=0,
        submitted_s=10.0,
        tier_entered_s=10.0,
        queued_s=10.0,
        entry_number=1,
        user=user,
        name=f"name of {key}",
    )


def asked_by_nobody(folder: Path, job_id: str) -> str:
    imports = "from slurm_tiresias.status.job_history import query_history"
    query = "query_history(Path(sys.argv[1]), sys.argv[2])"
    return other_user.asked_by_nobody(imports, query, folder, job_id)


def ledger_of(folder: Path) -> Path:
    return folder / "ledger.sqlite"


def histories(folder: Path, *, private: bool = False) -> dict[str, Service]:
    return {"history": history_service(ledger_of(folder), private=private)}


def test_the_socket_returns_the_same_as_the_ledger(folder: Path) -> None:
    from_ledger = query_history(folder, "1")
    assert from_ledger.history is not None
    assert [run.attained_gpu_s for run in from_ledger.history.runs] == [120.0]
    assert [event.other for event in from_ledger.history.events] == ["2"]
    with serving(folder, histories(folder)):
        assert query_history(folder, "1") == from_ledger
        assert query_history(folder, "4") == Found()


def test_a_jobs_history_includes_the_controllers_pauses_during_its_life(folder: Path) -> None:
    with closing(Ledger(ledger_of(folder))) as ledger:
        pauses = [
            EventRecord(5.0, "paused", "", "", "by root (uid 0)"),
            EventRecord(12.0, "resumed", "", "", "by root (uid 0)"),
            EventRecord(60.0, "paused", "", "", "by slurm (uid 64030)"),
            EventRecord(90.0, "resumed", "", "", "by root (uid 0)"),
        ]
        with ledger.transaction():
            ledger.jobs.put([replace(job("1", "nobody"), ended_s=70.0)])
            ledger.events.put(pauses)
        for user in (None, "nobody"):
            history = find(ledger, "1", user).history
            assert history is not None
            told = [(event.at_s, event.kind) for event in history.events]
            assert told == [(12.0, "resumed"), (50.0, "preempted"), (60.0, "paused")]
            assert history.events[-1].text == "by slurm (uid 64030)"


@as_root
def test_every_user_sees_every_job_without_private_data(folder: Path) -> None:
    with serving(folder, histories(folder)):
        assert "name of 1" in asked_by_nobody(folder, "1")
        assert "name of 2" in asked_by_nobody(folder, "2")


@as_root
def test_private_data_limits_each_user_to_own_jobs(folder: Path) -> None:
    with serving(folder, histories(folder, private=True)):
        assert "name of 1" in asked_by_nobody(folder, "1")
        assert "name of" not in asked_by_nobody(folder, "2")
        assert "name of" not in asked_by_nobody(folder, "3")
        assert query_history(folder, "2").history is not None, "root sees them all"


def test_event_texts_about_others_jobs_are_hidden_if_jobs_are_private(folder: Path) -> None:
    with closing(Ledger(folder / "ledger.sqlite")) as ledger:
        with ledger.transaction():
            ledger.events.put([EventRecord(60.0, "preempted", "2", "1", "restart 7 of alice's")])
        whole, own = find(ledger, "1").history, find(ledger, "1", "nobody").history
    assert whole and own
    assert [event.text for event in whole.events] == ["restart 1", "restart 7 of alice's"]
    assert [event.text for event in own.events] == ["restart 1", ""]


@as_root
def test_without_a_controller_others_cannot_read_the_ledger(folder: Path) -> None:
    assert "No controller answers" in asked_by_nobody(folder, "1")


def test_an_invalid_job_id_finds_nothing_and_harms_nothing(folder: Path) -> None:
    with serving(folder, histories(folder)):
        for asked in ("1' OR '1'='1", "%", "*", "é" * 400, ""):
            assert query_history(folder, asked) == Found()
        assert query_history(folder, "1").history is not None
