"""Which ends of jobs are reported: each once, and only those of managed jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from slurm_tiresias.controller.ends import Completion
from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.controller.reconcile import Reconciler
from slurm_tiresias.errors import SlurmUnreachableError
from slurm_tiresias.slurm.protocol import AccountedRun, Slurm
from slurm_tiresias.store.ledger import Ledger
from tests.controller.test_job_store import CONFIG, decide, ended, pending, running, see


@pytest.fixture
def job_store(ledger: Ledger) -> JobStore:
    return JobStore(ledger, CONFIG, accounting=False)


class Accounting:
    """Run a stand-in for sacct, which may not answer."""

    def __init__(self, *rows: AccountedRun) -> None:
        self.rows = rows

    def runs(self, _keys: object, _since_s: float) -> Sequence[AccountedRun]:
        if not self.rows:
            raise SlurmUnreachableError("slurmdbd is down", "start it")
        return self.rows


def test_an_ended_job_is_counted_once_with_its_jct_and_waiting_time(job_store: JobStore) -> None:
    see(job_store, 1000, pending())
    see(job_store, 1010, running(1004, 6))
    see(job_store, 1020, pending(restarts=1, submit_s=1014))
    see(job_store, 1050, running(1040, 10, restarts=1, submit_s=1014))
    decide(job_store, 1050, tier=1)
    assert job_store.take_stats().ended == []
    see(job_store, 1080, ended(1040, 30, restarts=1, submit_s=1014))
    # It ran 16 s by observation, and 30 s by accounting.
    assert job_store.take_stats().ended == [Completion(tier=1, jct_s=70, queued_s=70 - 16 - 30)]
    see(job_store, 1090, ended(1040, 30, restarts=1, submit_s=1014))
    see(job_store, 1100)
    see(job_store, 1110)
    assert job_store.take_stats().ended == []


def test_a_job_not_seen_running_is_counted_if_it_ended_since_the_start(job_store: JobStore) -> None:
    see(job_store, 1000, ended(900, 50))
    see(job_store, 1010, ended(900, 50), ended(1002, 3, key="8", raw_id=8, submit_s=1001))
    assert job_store.take_stats().ended == [Completion(tier=0, jct_s=4, queued_s=1)]


def test_a_job_of_less_than_a_second_has_run_and_a_cancelled_one_not(job_store: JobStore) -> None:
    see(job_store, 1000, pending(), pending("8"))
    cancelled = pending("8", state=None, slurm_state="CANCELLED", reason="", end_s=1010.0)
    see(job_store, 1020, ended(1010, 0), cancelled)
    assert job_store.take_stats().ended == [Completion(tier=0, jct_s=10, queued_s=10)]
    see(job_store, 1030)
    see(job_store, 1040)
    assert job_store.take_stats().ended == []


def test_a_requeued_job_cancelled_while_waiting_ends_then(job_store: JobStore) -> None:
    see(job_store, 1000, running(1000, 0))
    see(job_store, 1010, pending(restarts=1, submit_s=1010))
    see(job_store, 1040, pending(restarts=1, state=None, slurm_state="CANCELLED", end_s=1035.0))
    assert job_store.take_stats().ended == [Completion(tier=0, jct_s=35, queued_s=25)]


def test_an_end_counted_elsewhere_is_not_counted_again(job_store: JobStore, ledger: Ledger) -> None:
    see(job_store, 1000, pending(), pending("8"))
    see(job_store, 1020, ended(1010, 5), running(1010, 10, key="8", raw_id=8))
    assert len(job_store.take_stats().ended) == 1
    later = JobStore(ledger, CONFIG, accounting=False)
    see(later, 1050, ended(1010, 5), ended(1010, 25, key="8", raw_id=8))
    assert later.take_stats().ended == [Completion(tier=0, jct_s=35, queued_s=10)]


def test_a_job_requeued_after_its_end_is_counted_once(job_store: JobStore) -> None:
    see(job_store, 1000, running(1000, 0))
    see(job_store, 1010, ended(1000, 8))
    assert len(job_store.take_stats().ended) == 1
    see(job_store, 1020, pending(restarts=1, submit_s=1015))
    see(job_store, 1040, ended(1030, 8, restarts=1, submit_s=1015))
    assert job_store.take_stats().ended == []


def test_an_end_is_counted_once_accounting_has_confirmed_it(ledger: Ledger) -> None:
    job_store = JobStore(ledger, CONFIG, accounting=True)
    see(job_store, 1000, running(1000, 0))
    see(job_store, 1010)  # Slurm no longer shows it.
    accounting = Accounting()
    reconciler = Reconciler(job_store, cast(Slurm, accounting))
    reconciler.reconcile(1010)
    stats = job_store.take_stats()
    assert (stats.ended, stats.accounting_failures) == ([], 1)
    accounting.rows = (AccountedRun("7", 1000.0, 1007.0, 7.0, 4, "COMPLETED"),)
    reconciler.reconcile(1500)
    job_store.commit()
    assert job_store.take_stats().ended == [Completion(tier=0, jct_s=7, queued_s=0)]


def test_an_end_is_counted_even_if_the_cycle_that_learned_of_it_failed(ledger: Ledger) -> None:
    job_store = JobStore(ledger, CONFIG, accounting=False)
    see(job_store, 1000, running(1000, 0))
    see(job_store, 1010, ended(1000, 8))
    # That cycle failed; by the next cycles the job is gone.
    see(job_store, 1020)
    see(job_store, 1030)
    assert len(job_store.take_stats().ended) == 1


def test_events_are_counted_by_kind(job_store: JobStore) -> None:
    see(job_store, 1000, running(1000, 0))
    decide(job_store, 1000, tier=0)
    decide(job_store, 1100, tier=1)
    assert job_store.take_stats().events == {"demoted": 1}
    assert job_store.take_stats().events == {}
