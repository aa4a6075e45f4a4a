"""Job ids that slurmctld gives out again: nothing of the first holder is the second holder's.

Ids come again where the sequence wraps, where StateSaveLocation was lost while slurmdbd was kept,
and where slurmctld was killed before it saved the state with its last submissions.
"""

from __future__ import annotations

from typing import cast

import pytest

from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.controller.reconcile import Reconciler
from slurm_tiresias.core.features.losses import Loss
from slurm_tiresias.core.lifecycle.preemption import Planned, PreemptorTried
from slurm_tiresias.model import JobStatus
from slurm_tiresias.slurm.protocol import AccountedRun, Slurm
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.records import PreemptionRecord
from tests.controller.test_job_store import CONFIG, Accounting, ended, pending, running, see

OLD = AccountedRun("7", 100.0, 900.0, 800.0, 8, "COMPLETED", 90.0)
FORGOTTEN = AccountedRun("7", 996.0, None, 60.0, 8, "RUNNING", 995.0)
AHEAD = AccountedRun("7", 5001.0, 5020.0, 19.0, 4, "COMPLETED", 5000.0)
"""slurmctld was killed before it saved this job: accounting never learns of its end."""
FIRST = AccountedRun("7", 1005.0, 1015.0, 10.0, 4, "REQUEUED", 1000.0)
SECOND = AccountedRun("7", 1030.0, 1050.0, 20.0, 4, "REQUEUED", 1016.0)
NOW = AccountedRun("7", 1060.0, None, 5.0, 4, "RUNNING", 1051.0)


@pytest.fixture
def job_store(ledger: Ledger) -> JobStore:
    return JobStore(ledger, CONFIG, accounting=True)


def ask(job_store: JobStore, at_s: float, *rows: AccountedRun) -> None:
    Reconciler(job_store, cast(Slurm, Accounting(*rows))).ask_and_wait(at_s)
    job_store.commit()


def known(job_store: JobStore) -> tuple[float, float | None, float]:
    """Return the attained service of job 7, its first start and its submission."""
    record = job_store.accounts.all["7"]
    return job_store.runs.attained_gpu_s("7"), record.first_started_s, record.submitted_s


@pytest.mark.parametrize(
    "earlier",
    [OLD, FORGOTTEN, AHEAD],
    ids=["ended", "forgotten by slurmctld", "before the clock was set back"],
)
def test_a_requeued_job_gets_no_service_of_an_earlier_job_with_its_id(
    job_store: JobStore, earlier: AccountedRun
) -> None:
    see(job_store, 1000, pending())
    see(job_store, 1010, running(1005, 5))
    see(job_store, 1020, pending(restarts=1, submit_s=1016))
    ask(job_store, 1021, earlier, FIRST)
    assert known(job_store) == (40, 1005, 1000)


@pytest.mark.parametrize("earlier", [OLD, FORGOTTEN], ids=["ended", "forgotten by slurmctld"])
def test_a_job_first_seen_after_requeues_gets_only_as_many_rows_as_it_has_run(
    job_store: JobStore, earlier: AccountedRun
) -> None:
    """As with a new ledger, a pruned one, or a rebuilt one."""
    see(job_store, 1065, running(1060, 5, restarts=2, submit_s=1051))
    ask(job_store, 1066, earlier, FIRST, SECOND, NOW)
    assert known(job_store) == (40 + 80 + 20, 1005, 1000)
    assert not job_store.accounts.is_doubtful("7")


def test_a_run_that_accounting_lacks_is_not_replaced_by_an_older_jobs(job_store: JobStore) -> None:
    see(job_store, 1010, running(1005, 5))
    see(job_store, 1020, pending(restarts=1, submit_s=1016))
    ask(job_store, 1021, OLD)
    assert known(job_store)[0] == 60, "the estimate"
    assert job_store.accounts.is_doubtful("7")
    ask(job_store, 1030, OLD, FIRST)
    assert not job_store.accounts.is_doubtful("7")


def test_runs_that_accounting_learns_late_bring_in_no_earlier_job(job_store: JobStore) -> None:
    """The job is first seen after one requeue, and requeued again before accounting answers."""
    see(job_store, 1035, running(1030, 5, restarts=1, submit_s=1016))
    see(job_store, 1055, pending(restarts=2, submit_s=1051))
    ask(job_store, 1056, OLD, FIRST, SECOND)
    assert known(job_store) == (40 + 80, 1005, 1000)


HOLDERS = {
    "waits": pending(),
    "runs": running(1001, 9),
    "has ended": ended(1001, 8),
    "was requeued": pending(restarts=1, submit_s=1009),
}


@pytest.mark.parametrize("first", HOLDERS.values(), ids=HOLDERS)
@pytest.mark.parametrize("restarted", [False, True], ids=["running on", "restarted"])
def test_a_job_that_takes_over_an_id_within_seconds_is_a_new_job(
    ledger: Ledger, job_store: JobStore, first: JobStatus, restarted: bool
) -> None:
    """slurmctld was killed after the submission of the first and has given its id away again."""
    see(job_store, 1010, first)
    if restarted:
        job_store = JobStore(ledger, CONFIG, accounting=True)
    see(job_store, 1014, pending(submit_s=1012))
    assert known(job_store) == (0, None, 1012)
    assert ledger.runs.of("7") == []
    see(job_store, 1020, running(1015, 5, submit_s=1012))
    assert known(job_store) == (20, 1015, 1012)


def test_a_preemption_under_way_does_not_pass_to_the_next_job(job_store: JobStore) -> None:
    see(job_store, 1010, running(1001, 9), pending("8"))
    job_store.lifecycles.preemption_event("7", Planned("8"))
    job_store.lifecycles.preemption_event("7", PreemptorTried(1010.0))
    see(job_store, 1014, pending("8"), running(1013, 1, submit_s=1012, partitions=("other",)))
    assert "7" not in job_store.lifecycles.preemptions
    assert job_store.accounts.of("7") is None


def test_an_unmanaged_job_with_the_id_of_a_managed_run_stays_unmanaged(job_store: JobStore) -> None:
    see(job_store, 1010, running(1001, 9))
    see(job_store, 1014, running(1013, 1, submit_s=1012, batch=False, het=True))
    assert job_store.why_unmanaged("7")


def test_a_job_stays_the_same_if_slurmctld_forgot_its_requeue(job_store: JobStore) -> None:
    """Also if the clock was set back in between, by more than the job is old."""
    job_store.follow_clock(9010.0, 10.0)
    see(job_store, 9010, running(9005, 5, submit_s=9000))
    job_store.follow_clock(1820.0, 20.0)
    see(job_store, 1820, pending(restarts=1, submit_s=1819))
    job_store.follow_clock(1830.0, 30.0)
    see(job_store, 1830, running(9005, 0, submit_s=9000))
    assert known(job_store)[1:] == (9005, 9000)


def test_runs_since_the_clock_was_set_back_are_found_in_accounting(job_store: JobStore) -> None:
    """Also if no controller ran then."""
    see(job_store, 9000, pending(submit_s=9000))
    see(job_store, 1830, pending(restarts=1, submit_s=1828))
    first = AccountedRun("7", 1810.0, 1828.0, 18.0, 4, "REQUEUED", 9000.0)
    last = AccountedRun("7", 1900.0, 1910.0, 10.0, 4, "COMPLETED", 1828.0)
    ask(job_store, 1831, first)
    see(job_store, 1920, ended(1900, 10, restarts=1, submit_s=1828))
    ask(job_store, 1921, first, last)
    assert known(job_store) == (72 + 40, 1810, 9000)


def test_what_a_preemptor_cost_others_is_not_charged_to_the_next_job_with_its_id(
    job_store: JobStore, ledger: Ledger
) -> None:
    see(job_store, 1010, running(1001, 9, key="8", raw_id=8, user="ben"), pending(user="ann"))
    with ledger.transaction():
        ledger.preemptions.put([PreemptionRecord("8", "7", 1010.0, 1001.0)])
    assert ledger.preemptions.losses_since(0.0) == [Loss(1010.0, "ann", 36.0)]
    see(job_store, 1014, running(1001, 13, key="8", raw_id=8, user="ben"))
    see(job_store, 1020, pending(submit_s=1018, user="eve"))
    assert ledger.preemptions.losses_since(0.0) == []


def test_an_ended_job_that_slurmctld_brings_back_is_the_same(job_store: JobStore) -> None:
    see(job_store, 1010, running(1005, 5))
    see(job_store, 1020, pending(restarts=1, submit_s=1018))
    see(job_store, 1024, ended(1005, 13, restarts=1, submit_s=1018))
    # It was running in the last saved state; its node has failed since.
    see(job_store, 1030, pending(restarts=1, submit_s=1028))
    record = job_store.accounts.all["7"]
    assert (record.submitted_s, record.ended_s) == (1000, None)
    assert job_store.runs.attained_gpu_s("7") > 0
