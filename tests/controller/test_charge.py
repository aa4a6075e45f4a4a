"""How much of the recent service of a user or account is charged to new jobs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.testbed.job_views import changed
from slurm_tiresias.config import CHARGES, Config, parse
from slurm_tiresias.controller.feed import Feed
from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.core.features.charge import EndedRun, RecentService, payer_of
from slurm_tiresias.core.job import Job
from slurm_tiresias.model import JobStatus
from slurm_tiresias.slurm.protocol import Observation
from slurm_tiresias.store.ledger import Ledger
from tests.controller.fed import fed
from tests.controller.test_job_store import ended, pending, running, see


def charged_by(charge: str) -> Config:
    policy = {"thresholds_gpu_s": [100], "charge": charge, "charge_window_s": 1000}
    return parse({"policy": policy})


CONFIG = charged_by("user")


@pytest.fixture
def job_store(ledger: Ledger) -> JobStore:
    return JobStore(ledger, CONFIG, accounting=False)


def second(job: JobStatus, user: str = "ann") -> JobStatus:
    return changed(job, key="8", raw_id=8, user=user, submit_s=1005.0)


def the_second(job_store: JobStore, at_s: float, *jobs: JobStatus) -> Job:
    """The second job as a decision sees it after these observations."""
    see(job_store, at_s, *jobs)
    snapshot = fed(Feed(job_store, CONFIG), Observation(at_s, jobs, (), ()))
    return next(job for job in snapshot.jobs if job.job_id == "8")


def test_a_new_job_inherits_its_users_recent_service(job_store: JobStore) -> None:
    see(job_store, 1010, running(1005, 5))
    assert the_second(job_store, 1050, ended(1005, 30), second(pending())).inherited_gpu_s == 120
    assert job_store.records()["8"].tier == 1


def test_no_service_is_inherited_from_another_user(job_store: JobStore) -> None:
    see(job_store, 1010, running(1005, 5))
    another = second(pending(), user="ben")
    assert the_second(job_store, 1050, ended(1005, 30), another).inherited_gpu_s == 0


def test_the_service_of_a_running_job_is_charged_only_after_the_run(
    job_store: JobStore,
) -> None:
    """A long job does not delay its user's debugging jobs; a run preempted for one of them
    counts."""
    assert the_second(job_store, 1050, running(1005, 45), second(pending())).inherited_gpu_s == 0
    left = pending(restarts=1, submit_s=1051)
    assert the_second(job_store, 1052, left, second(pending())).inherited_gpu_s == pytest.approx(
        188
    )


def test_inherited_service_is_fixed_at_the_first_start(job_store: JobStore) -> None:
    over = ended(1005, 30)
    see(job_store, 1010, running(1005, 5))
    see(job_store, 1036, over, second(pending()))
    assert the_second(job_store, 2034, second(pending())).inherited_gpu_s == 120
    assert the_second(job_store, 2040, second(running(2034, 6))).inherited_gpu_s == 120
    assert the_second(job_store, 9000, second(running(2034, 6966))).inherited_gpu_s == 120


def test_inherited_service_ends_with_the_window_while_a_job_waits(job_store: JobStore) -> None:
    see(job_store, 1010, running(1005, 5))
    see(job_store, 1036, ended(1005, 30), second(pending()))
    assert the_second(job_store, 2036, second(pending())).inherited_gpu_s == 0


def test_service_while_the_clock_was_ahead_is_not_recent() -> None:
    """Neither at once nor when that time comes."""
    recent = RecentService(100.0, [EndedRun("7", 5000.0, "user ann", 5010.0, 40.0)])
    recent.forget_all_but_recent(1000.0)
    assert recent.gpu_s("user ann", 1000.0) == recent.gpu_s("user ann", 5020.0) == 0.0


def test_a_restarted_controller_charges_the_same(job_store: JobStore, ledger: Ledger) -> None:
    see(job_store, 1010, running(1005, 5))
    before = the_second(job_store, 1050, ended(1005, 30), second(running(1040, 10)))
    see(job_store, 1400, second(running(1040, 360)))
    again = JobStore(ledger, CONFIG, accounting=False)
    after = the_second(again, 5000, second(running(1040, 3960)))
    assert before.inherited_gpu_s == after.inherited_gpu_s == 120


def test_a_promotion_resets_inherited_service(job_store: JobStore) -> None:
    see(job_store, 1010, running(1005, 5))
    see(job_store, 1050, ended(1005, 30), second(pending()))
    job_store.put(replace(job_store.records()["8"], promotions=1))
    assert the_second(job_store, 1060, ended(1005, 30), second(pending())).inherited_gpu_s == 0


@pytest.fixture
def accounts_book(ledger: Ledger) -> JobStore:
    return JobStore(ledger, charged_by("account"), accounting=False)


def test_a_new_job_inherits_its_accounts_service_whoever_submits_it(
    accounts_book: JobStore,
) -> None:
    see(accounts_book, 1010, running(1005, 5))
    of_ben = second(pending(account="lab"), user="ben")
    assert the_second(accounts_book, 1050, ended(1005, 30), of_ben).inherited_gpu_s == 120


def test_a_user_who_changes_accounts_leaves_the_first_ones_usage_behind(
    accounts_book: JobStore,
) -> None:
    see(accounts_book, 1010, running(1005, 5))
    over = ended(1005, 30)
    assert the_second(accounts_book, 1050, over, second(pending())).inherited_gpu_s == 120
    moved = second(pending(account="other"))
    assert the_second(accounts_book, 1060, over, moved).inherited_gpu_s == 0


@pytest.mark.parametrize(("user", "inherited_gpu_s"), [("ann", 120), ("ben", 0), ("lab", 0)])
def test_jobs_without_an_account_are_charged_to_their_users(
    accounts_book: JobStore, user: str, inherited_gpu_s: float
) -> None:
    see(accounts_book, 1010, running(1005, 5, account=""))
    later = second(pending(account=""), user=user)
    over = ended(1005, 30, account="")
    assert the_second(accounts_book, 1050, over, later).inherited_gpu_s == inherited_gpu_s


def test_an_account_is_remembered_by_the_ledger(accounts_book: JobStore, ledger: Ledger) -> None:
    see(accounts_book, 1010, running(1005, 5))
    see(accounts_book, 1050, ended(1005, 30))
    again = JobStore(ledger, charged_by("account"), accounting=False)
    assert the_second(again, 1100, second(pending(), user="ben")).inherited_gpu_s == 120


names = st.sampled_from(["", "ann", "lab"])


@given(names, names, names, names)
def test_two_jobs_share_a_payer_exactly_if_their_charges_are_shared(
    user: str, account: str, other_user: str, other_account: str
) -> None:
    mine, others = ((user, account), (other_user, other_account))
    assert not any(payer_of("job", *names) for names in (mine, others))
    both = [payer_of("user", *names) for names in (mine, others)]
    assert (both[0] == both[1] != "") == (user == other_user != "")
    both = [payer_of("account", *names) for names in (mine, others)]
    by_account = account == other_account != ""
    by_user = account == other_account == "" and user == other_user != ""
    assert (both[0] == both[1] != "") == (by_account or by_user)


@pytest.mark.parametrize("charge", CHARGES)
def test_a_job_never_inherits_from_itself(ledger: Ledger, charge: str) -> None:
    job_store = JobStore(ledger, charged_by(charge), accounting=False)
    see(job_store, 1010, second(running(1005, 5)))
    again = second(pending(restarts=1, submit_s=1031))
    assert the_second(job_store, 1032, again).inherited_gpu_s == 0


def test_by_default_every_job_is_charged_for_itself(ledger: Ledger) -> None:
    job_store = JobStore(ledger, parse({}), accounting=False)
    see(job_store, 1010, running(1005, 5))
    assert the_second(job_store, 1050, ended(1005, 30), second(pending())).inherited_gpu_s == 0


runs = st.lists(
    st.builds(
        EndedRun,
        st.sampled_from("123"),
        st.integers(0, 50).map(float),
        st.sampled_from(["ann", "ben", ""]),
        st.integers(0, 100).map(float),
        st.integers(0, 9).map(float),
    )
)


@given(runs, st.integers(0, 150), st.integers(1, 60))
def test_inherited_service_is_the_sum_of_runs_that_ended_in_the_window(
    over: list[EndedRun], at_s: int, window_s: int
) -> None:
    recent = RecentService(window_s, over)
    latest = {(run.job_id, run.start_s): run for run in over if run.payer}
    for payer in ("ann", "ben"):
        mine = [run for run in latest.values() if run.payer == payer]
        inside = [run.service_gpu_s for run in mine if at_s - window_s < run.end_s <= at_s]
        assert recent.gpu_s(payer, at_s) == sum(inside)
        change_s = recent.next_change_s(payer, at_s)
        assert change_s > at_s
    assert recent.gpu_s("", at_s) == 0
    before = recent.gpu_s("ann", at_s)
    recent.forget_all_but_recent(at_s)
    assert recent.gpu_s("ann", at_s) == before
