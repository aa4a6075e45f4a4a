"""How much of the recent service of a user or account is charged to new jobs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.testbed.constants import replaced
from scripts.testbed.job_views import changed
from slurm_tiresias.config import parse
from slurm_tiresias.controller.cycle import SHADOW, Cycles
from slurm_tiresias.core.features.charge import Charging, EndedRun, RecentService, payer_of
from slurm_tiresias.core.job import Job
from slurm_tiresias.model import Amount, JobStatus, Node
from slurm_tiresias.profiler.service import Profiler
from slurm_tiresias.profiler.store import ProfileStore
from slurm_tiresias.settings.policy import CHARGES
from slurm_tiresias.slurm.protocol import Cluster, Observation, Partition, Slurm
from slurm_tiresias.store.ledger import Ledger
from tests.controller.test_job_store import ended, pending, running
from tests.pictures import gpus

PARTITION = Partition("gpu", frozenset({"n1"}), up=True)
NODES = (Node("n1", Amount({"": 4}, 4), frozenset({"gpu"})),)


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    with replaced({"CHARGE_WINDOW_S": 1000.0}):
        yield


class Site:
    """A controller that sees two jobs of one user as they are given, and only watches."""

    def __init__(self, ledger: Ledger, charge: str) -> None:
        policy = {"thresholds_gpu_s": [100], "charge": charge}
        self._config = parse({"policy": policy, "manage": {"partitions": ["gpu"]}})
        self._ledger = ledger
        self.restart()

    def restart(self) -> None:
        cluster = Cluster("site", (25, 5, 0), "priority/multifactor", False, 30.0, 0.0, 0.0)
        profiler = Profiler(ProfileStore(None), self._config)
        self.cycles = Cycles(cast(Slurm, self), cluster, self._ledger, self._config, profiler)

    def observe(self) -> Observation:
        return self._seen

    def see(self, at_s: float, *jobs: JobStatus) -> float:
        """Run a cycle; return what the second job inherits."""
        self._seen = Observation(at_s, jobs, NODES, (PARTITION,), steady_s=at_s)
        cycle = self.cycles.run(SHADOW)
        found = {job.job_id: job for job in cycle.snapshot.jobs}
        assert cycle.plan.decisions.keys() == found.keys()
        return found["8"].inherited_gpu_s if "8" in found else math.nan


@pytest.fixture
def site(ledger: Ledger) -> Site:
    return Site(ledger, "user")


@pytest.fixture
def by_account(ledger: Ledger) -> Site:
    return Site(ledger, "account")


def second(job: JobStatus, user: str = "ann") -> JobStatus:
    return changed(job, key="8", raw_id=8, user=user, submit_s=1005.0)


def test_a_new_job_inherits_its_users_recent_service(site: Site) -> None:
    site.see(1010, running(1005, 5))
    assert site.see(1050, ended(1005, 30), second(pending())) == 120
    assert (record := site.cycles.job_store.accounts.of("8")) and record.tier == 1


def test_the_service_of_a_running_job_is_charged_only_after_the_run(site: Site) -> None:
    """A long job does not delay its user's debugging jobs; a run preempted for one of them
    counts."""
    assert site.see(1050, running(1005, 45), second(pending())) == 0
    left = pending(restarts=1, submit_s=1051)
    assert site.see(1052, left, second(pending())) == pytest.approx(188)


def test_inherited_service_is_fixed_at_the_first_start(site: Site) -> None:
    over = ended(1005, 30)
    site.see(1010, running(1005, 5))
    site.see(1036, over, second(pending()))
    assert site.see(2034, second(pending())) == 120
    assert site.see(2040, second(running(2034, 6))) == 120
    assert site.see(9000, second(running(2034, 6966))) == 120


def test_service_while_the_clock_was_ahead_is_not_recent() -> None:
    """Neither at once nor when that time comes."""
    run = EndedRun("7", 5000.0, "user ann", 5010.0, 40.0)
    recent = RecentService(100.0, [run])
    recent.forget_all_but_recent(1000.0)
    assert recent.gpu_s("user ann", 1000.0) == recent.gpu_s("user ann", 5020.0) == 0.0
    charging = Charging(parse({"policy": {"charge": "user"}}).policy, [run], now_s=1000.0)
    job = Job("8", gpus(1), user="ann")
    for now_s in (1000.0, 5020.0):
        charging.follow(job, now_s)
        assert job.inherited_gpu_s == 0.0


def test_a_run_that_seems_to_end_later_counts_from_then_on() -> None:
    charging = Charging(parse({"policy": {"charge": "user"}}).policy)
    job = Job("8", gpus(1), user="ann")
    charging.follow(job, 1000.0)
    charging.count("6", "ann", "", 900.0, 1000.0, 40.0)
    charging.count("7", "ann", "", 900.0, 1005.0, 40.0)
    assert list(charging.tick(1000.0)) == [job]
    assert charging.next_change_s == 1005.0
    assert list(charging.tick(1005.0)) == [job]
    charging.follow(job, 1005.0)
    assert job.inherited_gpu_s == 80.0


def test_a_job_that_is_about_to_start_does_not_inherit_the_runs_of_its_victims() -> None:
    charging = Charging(parse({"policy": {"charge": "user"}}).policy)
    charging.count("6", "ann", "", 900.0, 950.0, 40.0)
    job = Job("8", gpus(1), user="ann")
    charging.follow(job, 1000.0)
    job.nominated_to = {"n1": Amount({"": 1}, cpus=1)}
    charging.count("7", "ann", "", 900.0, 1005.0, 40.0)
    charging.follow(job, 1005.0)
    assert job.inherited_gpu_s == 40.0
    job.nominated_to = None
    charging.follow(job, 1005.0)
    assert job.inherited_gpu_s == 80.0


def test_a_restarted_controller_charges_the_same(site: Site) -> None:
    site.see(1010, running(1005, 5))
    assert site.see(1050, ended(1005, 30), second(running(1040, 10))) == 120
    site.see(1400, second(running(1040, 360)))
    site.restart()
    assert site.see(5000, second(running(1040, 3960))) == 120


def test_service_that_accounting_corrects_is_charged_as_corrected(site: Site) -> None:
    site.see(1010, running(1005, 5), second(pending()))
    assert site.see(1012, second(pending())) == 20, "as last seen"
    [run] = site.cycles.job_store.runs.in_order("7")
    site.cycles.job_store.runs.keep(replace(run, end_s=1011.0, elapsed_s=6.0))
    assert site.see(1014, second(pending())) == 24


def test_a_promotion_resets_inherited_service(site: Site) -> None:
    site.see(1010, running(1005, 5))
    assert site.see(1050, ended(1005, 30), second(pending())) == 120
    job_store = site.cycles.job_store
    job_store.accounts.put(replace(job_store.accounts.all["8"], promotions=1))
    assert site.see(1060, ended(1005, 30), second(pending())) == 0


def test_a_user_who_changes_accounts_leaves_the_first_ones_usage_behind(by_account: Site) -> None:
    by_account.see(1010, running(1005, 5))
    over = ended(1005, 30)
    assert by_account.see(1050, over, second(pending())) == 120
    assert by_account.see(1060, over, second(pending(account="other"))) == 0
    assert math.isnan(by_account.see(1070))
    assert math.isnan(by_account.see(2100)), "it has gone from both accounts"


@pytest.mark.parametrize(("user", "inherited_gpu_s"), [("ann", 120), ("ben", 0), ("lab", 0)])
def test_jobs_without_an_account_are_charged_to_their_users(
    by_account: Site, user: str, inherited_gpu_s: float
) -> None:
    by_account.see(1010, running(1005, 5, account=""))
    later = second(pending(account=""), user=user)
    assert by_account.see(1050, ended(1005, 30, account=""), later) == inherited_gpu_s


def test_an_account_is_remembered_by_the_ledger(by_account: Site) -> None:
    by_account.see(1010, running(1005, 5))
    by_account.see(1050, ended(1005, 30))
    by_account.restart()
    assert by_account.see(1100, second(pending(), user="ben")) == 120


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
    site = Site(ledger, charge)
    site.see(1010, second(running(1005, 5)))
    assert site.see(1032, second(pending(restarts=1, submit_s=1031))) == 0


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
