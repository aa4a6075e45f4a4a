"""What the ledger lacks until it is committed."""

from __future__ import annotations

import pytest

from slurm_tiresias.errors import LedgerError
from slurm_tiresias.model import JobAccount
from slurm_tiresias.store.changes import Changes
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.records import EventRecord, RunProgressRecord

OLD = JobAccount("7", 0, 1.0, 1.0, 1.0, 1, user="ann")
NEW = JobAccount("7", 0, 2.0, 2.0, 2.0, 2, user="bob")
REPORT = RunProgressRecord("7", 0, "reports", "running", 0, 5, 10, 1.0, 1.0)
EVENT = EventRecord(1.0, "demoted", "7", "", "")


def test_only_the_events_of_a_job_whose_id_is_reused_are_written(ledger: Ledger) -> None:
    ledger.jobs.put([OLD])
    changes = Changes(ledger)
    changes.put(ledger.progress, REPORT)
    changes.put(ledger.events, EVENT)
    changes.forget("7")
    assert changes.of(ledger.jobs, "7") == []
    assert changes.of(ledger.progress, "7") == []
    changes.put(ledger.jobs, NEW)
    assert changes.of(ledger.jobs, "7") == [NEW]
    changes.commit()
    assert ledger.jobs.all() == [NEW]
    assert ledger.progress.all() == []
    assert ledger.events.all() == [EVENT]


def test_a_failed_commit_keeps_all_changes(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_self: Ledger, _jobs: object) -> None:
        raise LedgerError("the disk is full", "make room")

    changes = Changes(ledger)
    changes.put(ledger.jobs, OLD)
    changes.put(ledger.events, EVENT, EVENT)
    changes.forget("8")
    monkeypatch.setattr(Ledger, "forget", fails)
    with pytest.raises(LedgerError):
        changes.commit()
    monkeypatch.undo()
    assert ledger.jobs.all() == []
    changes.commit()
    assert ledger.jobs.all() == [OLD]
    assert ledger.events.all() == [EVENT, EVENT]
