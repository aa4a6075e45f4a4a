"""Accounting is asked in parts: a part without an answer costs the others nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import pytest

from slurm_tiresias.config import parse
from slurm_tiresias.controller import accounting_query
from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.controller.reconcile import Reconciler
from slurm_tiresias.errors import SlurmUnreachableError
from slurm_tiresias.slurm.protocol import AccountedRun, Slurm
from slurm_tiresias.store.ledger import Ledger
from tests.controller.test_job_store import pending, running, see

KEYS = [str(number) for number in range(1, 10)]


class Accounting:
    """Answers only about jobs that ``answers`` accepts."""

    def __init__(self, answers: Callable[[str], bool]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, ...]] = []

    def runs(self, keys: Sequence[str], _since_s: float) -> Sequence[AccountedRun]:
        self.asked.append(tuple(keys))
        if not all(map(self.answers, keys)):
            raise SlurmUnreachableError("sacct gave no answer within 30 s", "see slurmdbd")
        return [AccountedRun(key, 1000.0, 1007.0, 7.0, 4, "COMPLETED") for key in keys]


@pytest.fixture
def job_store(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> JobStore:
    """Nine jobs that Slurm no longer shows, and whose ends only accounting knows."""
    monkeypatch.setattr(accounting_query, "MOST_KEYS_AT_ONCE", 3)
    job_store = JobStore(ledger, parse({}), accounting=True)
    see(job_store, 1000, *(running(1000, 0, key=key, raw_id=int(key)) for key in KEYS))
    see(job_store, 1010)
    return job_store


def doubtful(job_store: JobStore) -> list[str]:
    return [
        key for key in KEYS if key in job_store.accounts.all and job_store.accounts.is_doubtful(key)
    ]


def test_the_answers_before_a_part_that_fails_are_kept(job_store: JobStore) -> None:
    accounting = Accounting(lambda key: key != "5")
    reconciler = Reconciler(job_store, cast(Slurm, accounting))
    reconciler.reconcile(1010)
    assert doubtful(job_store) == ["4", "5", "6", "7", "8", "9"]
    assert job_store.take_stats().accounting_failures == 1
    assert len(accounting.asked) == 2, "no further part is asked about"


def test_a_part_without_any_answer_keeps_no_other_from_its_own(job_store: JobStore) -> None:
    accounting = Accounting(lambda key: key != "2")
    reconciler = Reconciler(job_store, cast(Slurm, accounting))
    for at_s in (1010, 1100, 1300):
        reconciler.reconcile(at_s)
    assert doubtful(job_store) == ["1", "2", "3"]
    accounting.answers = lambda _key: True
    reconciler.reconcile(2000)
    assert doubtful(job_store) == []


def test_a_run_whose_start_accounting_has_lost_stands_as_slurm_showed_it(ledger: Ledger) -> None:
    """slurmdbd may record the end of a short run, and never its start."""
    job_store = JobStore(ledger, parse({}), accounting=True)
    see(job_store, 1010, running(1000, 10))
    see(job_store, 1020, pending(restarts=1, submit_s=1012))
    see(job_store, 1030, running(1028, 2, restarts=1))
    see(job_store, 1040)
    rows = [
        AccountedRun("7", 1000.0, 1012.0, 12.0, 4, "PREEMPTED", submit_s=1000.0),
        AccountedRun("7", None, 1031.0, 0.0, 4, "CANCELLED", submit_s=1012.0),
    ]
    reconciler = Reconciler(job_store, cast(Slurm, Answering(rows)))
    reconciler.reconcile(1040)
    assert job_store.accounts.is_doubtful("7"), "the start may come a little later"
    for at_s in range(1041, 1060):
        reconciler.reconcile(at_s)
    assert not job_store.accounts.is_doubtful("7")
    assert {(run.start_s, run.elapsed_s) for run in job_store.runs.of("7")} == {
        (1000, 12),
        (1028, 2),
    }


class Answering:
    """Accounting that always has the same rows."""

    def __init__(self, rows: Sequence[AccountedRun]) -> None:
        self._rows = rows

    def runs(self, _keys: Sequence[str], _since_s: float) -> Sequence[AccountedRun]:
        return self._rows
