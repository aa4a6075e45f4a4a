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
from tests.controller.test_job_store import running, see

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
    return [key for key in KEYS if key in job_store.records() and job_store.is_doubtful(key)]


def test_the_answers_before_a_part_that_fails_are_kept(job_store: JobStore) -> None:
    accounting = Accounting(lambda key: key != "5")
    reconciler = Reconciler(job_store, cast(Slurm, accounting))
    reconciler.reconcile(1010)
    assert doubtful(job_store) == ["4", "5", "6", "7", "8", "9"]
    assert job_store.take_stats().accounting_failures == 1
    assert len(accounting.asked) == 2, "no further part is asked about"


def test_a_part_that_never_gets_an_answer_does_not_keep_others_from_theirs(
    job_store: JobStore,
) -> None:
    accounting = Accounting(lambda key: key != "2")
    reconciler = Reconciler(job_store, cast(Slurm, accounting))
    for at_s in (1010, 1100, 1300):
        reconciler.reconcile(at_s)
    assert doubtful(job_store) == ["1", "2", "3"]
    accounting.answers = lambda _key: True
    reconciler.reconcile(2000)
    assert doubtful(job_store) == []
