"""Accounting from what Slurm shows and the ledger alone."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn, cast

import pytest

from scripts.testbed.job_views import changed, status
from slurm_tiresias.config import parse
from slurm_tiresias.controller.bands import NOMINATED, TOP_TIER
from slurm_tiresias.controller.feed import Feed
from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.controller.reconcile import Reconciler
from slurm_tiresias.core.features.interactive import InteractiveLane
from slurm_tiresias.core.job import Job
from slurm_tiresias.core.lifecycle.preemption import (
    GraceOver,
    Planned,
    PreemptionState,
    PreemptorTried,
)
from slurm_tiresias.errors import LedgerError
from slurm_tiresias.model import (
    Action,
    Amount,
    Decision,
    JobAccount,
    JobState,
    JobStatus,
    Lane,
    Node,
    Plan,
    Protection,
    Reason,
)
from slurm_tiresias.slurm.protocol import AccountedRun, Observation, Slurm
from slurm_tiresias.store.ledger import FIRST_LOOK, Ledger
from slurm_tiresias.store.records import PreemptionRecord
from tests.controller.fed import fed
from tests.known import known
from tests.pictures import gpus

CONFIG = parse({"policy": {"thresholds_gpu_s": [100]}, "controller": {"interval_s": 10}})
HELD = {"n1": Amount({"": 4}, 4)}


@pytest.fixture
def job_store(ledger: Ledger) -> JobStore:
    return JobStore(ledger, CONFIG, accounting=False)


def pending(key: str = "7", **changes: Any) -> JobStatus:
    job = status(
        key,
        gpus(4),
        name="train",
        user="ann",
        account="lab",
        qos="normal",
        submit_s=1000.0,
        eligible_s=1000.0,
    )
    return changed(job, **changes)


def preempt(job_store: JobStore, sent_s: float | None) -> None:
    """Job 7 is signalled at 1030 to make room for job 8, and then requeued, unless ``requeued_s``
    is None."""
    job_store.lifecycles.preemption_event("7", Planned("8"))
    job_store.lifecycles.preemption_event("7", PreemptorTried(1030.0))
    if sent_s is not None:
        job_store.lifecycles.preemption_event("7", GraceOver(sent_s, allow_requeue=False))


def running(start_s: float, elapsed_s: float, **changes: Any) -> JobStatus:
    return changed(
        pending(),
        **{
            "state": JobState.RUNNING,
            "slurm_state": "RUNNING",
            "start_s": start_s,
            "elapsed_s": elapsed_s,
            "allocation": HELD,
            **changes,
        },
    )


def ended(start_s: float, elapsed_s: float, **changes: Any) -> JobStatus:
    return changed(
        pending(),
        state=None,
        slurm_state="COMPLETED",
        start_s=start_s,
        end_s=start_s + elapsed_s,
        elapsed_s=elapsed_s,
        **changes,
    )


def record_of(job_store: JobStore) -> JobAccount:
    """What is kept of job 7."""
    return known(job_store.accounts.of("7"))


def kept_preemptions(path: Path) -> list[PreemptionRecord]:
    """All preemptions in a ledger, in the order in which they were recorded."""
    with closing(Ledger.to_read(path)) as ledger:
        return ledger.preemptions.all()


def see(job_store: JobStore, at_s: float, *jobs: JobStatus) -> None:
    job_store.observe(Observation(at_s, jobs, (), ()))
    job_store.commit()


def decide(job_store: JobStore, at_s: float, tier: int, *, promoted: bool = False) -> None:
    """Job 7 is in this tier by the plan of the cycle."""
    decision = Decision("7", Action.WAIT, Reason.NO_ROOM, tier=tier, promoted=promoted)
    job_store.follow(Plan({"7": decision}), at_s, promotes=not promoted)
    job_store.commit()


def test_a_job_runs_from_when_its_nodes_have_booted(job_store: JobStore, ledger: Ledger) -> None:
    see(job_store, 1000, pending())
    see(job_store, 1100, running(1010, 90, slurm_state="CONFIGURING"))
    assert job_store.runs.attained_gpu_s("7") == 0
    see(job_store, 1130, running(1120, 10))
    assert job_store.runs.attained_gpu_s("7") == 40
    assert [run.start_s for run in ledger.runs.of("7")] == [1120]


def test_a_waiting_job_ended_with_its_node_has_an_end(job_store: JobStore, ledger: Ledger) -> None:
    """Slurm resets Requeue of the job, so that it would no longer be managed."""
    see(job_store, 1000, pending())
    gone = changed(pending(), state=None, slurm_state="NODE_FAIL", end_s=1005.0, requeue=False)
    see(job_store, 1010, gone)
    record = ledger.jobs.one("7")
    assert record is not None and record.ended_s == 1005.0
    see(job_store, 1020, changed(gone, elapsed_s=0.0))
    assert ledger.jobs.one("7") == record


def test_attained_service_is_gpus_times_running_seconds_over_all_runs(job_store: JobStore) -> None:
    see(job_store, 1000, pending())
    see(job_store, 1010, running(1005, 5))
    assert job_store.runs.attained_gpu_s("7") == 20
    see(job_store, 1020, running(1005, 15))
    see(job_store, 1021, pending(restarts=1, submit_s=1020))
    see(job_store, 1050, running(1040, 10, restarts=1, submit_s=1020))
    assert job_store.runs.attained_gpu_s("7") == pytest.approx(4 * (16 + 10))


def test_a_requeued_job_keeps_its_submission_and_its_first_start(job_store: JobStore) -> None:
    see(job_store, 1010, running(1005, 5))
    see(job_store, 1050, running(1040, 10, restarts=1, submit_s=1020, eligible_s=1020))
    record = record_of(job_store)
    assert (record.submitted_s, record.first_started_s, record.restarts) == (1000, 1005, 1)


def test_unobserved_running_time_counts_at_most_one_interval(job_store: JobStore) -> None:
    see(job_store, 1010, running(1005, 5))
    see(job_store, 9000, pending(restarts=1, submit_s=2000))
    assert job_store.runs.attained_gpu_s("7") == 4 * 15


def test_a_job_that_runs_entirely_between_two_cycles_is_counted(job_store: JobStore) -> None:
    see(job_store, 1010, ended(1002, 3))
    assert job_store.runs.attained_gpu_s("7") == 12


def test_a_job_requeued_by_hand_after_its_end_keeps_its_service(job_store: JobStore) -> None:
    see(job_store, 1010, running(1005, 5))
    see(job_store, 1020, ended(1005, 12))
    see(job_store, 1100, pending(restarts=1, submit_s=1090))
    assert record_of(job_store).ended_s is None
    assert job_store.runs.attained_gpu_s("7") == 48


def test_an_id_that_slurm_gives_to_a_new_job_starts_from_nothing(job_store: JobStore) -> None:
    see(job_store, 1010, running(1005, 5))
    see(job_store, 1020, ended(1005, 12))
    see(job_store, 5010, running(5005, 5, submit_s=5000))
    assert job_store.runs.attained_gpu_s("7") == 20


def test_a_job_whose_last_requeue_slurmctld_forgot_keeps_its_service(job_store: JobStore) -> None:
    """slurmctld was killed before it had saved the requeue."""
    see(job_store, 1010, running(1005, 5))
    see(job_store, 1021, pending(restarts=1, submit_s=1020))
    see(job_store, 1030, running(1005, 25))
    assert record_of(job_store).restarts == 0
    assert job_store.runs.attained_gpu_s("7") == 4 * 25
    see(job_store, 1041, pending(restarts=1, submit_s=1040))
    record = record_of(job_store)
    assert (record.restarts, record.submitted_s) == (1, 1000)


def test_a_job_that_slurm_forgot_has_ended_unless_it_shows_again(job_store: JobStore) -> None:
    see(job_store, 1010, running(1005, 5))
    see(job_store, 1020)
    assert record_of(job_store).ended_s == 1020
    see(job_store, 1030, running(1005, 25))
    assert record_of(job_store).ended_s is None
    assert job_store.runs.attained_gpu_s("7") == 100


def test_first_starts_seen_at_once_are_numbered_in_order(job_store: JobStore) -> None:
    late = changed(running(1009, 1), key="8", raw_id=8, submit_s=999)
    see(job_store, 1010, late, running(1005, 5))
    numbers = [job_store.accounts.all[key].start_number or 0 for key in ("7", "8")]
    assert numbers == sorted(numbers)


def test_committed_changes_are_seen_by_other_processes(job_store: JobStore, ledger: Ledger) -> None:
    see(job_store, 1010, running(1005, 5))
    again = JobStore(ledger, CONFIG, accounting=False)
    assert again.accounts.all == job_store.accounts.all
    assert again.runs.attained_gpu_s("7") == 20


def test_ended_jobs_leave_memory_but_not_the_ledger(job_store: JobStore, ledger: Ledger) -> None:
    see(job_store, 1010, running(1005, 5))
    see(job_store, 1020, ended(1005, 12))
    see(job_store, 1400)
    assert job_store.accounts.of("7") is None
    assert [one.service_gpu_s for one in ledger.samples.since()] == [48.0]


def test_an_ended_job_stays_in_memory_until_the_ledger_has_everything(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_store = JobStore(ledger, CONFIG, accounting=True)
    see(job_store, 1010, running(1005, 5))
    see(job_store, 1020)
    row = AccountedRun("7", 1005.0, 1019.0, 14.0, 4, "COMPLETED")
    Reconciler(job_store, cast(Slurm, Accounting(row))).ask_and_wait(1030)
    with monkeypatch.context() as full:
        full.setattr(ledger, "transaction", _no_room)
        with pytest.raises(LedgerError):
            job_store.commit()
    see(job_store, 1040)
    see(job_store, 1050)
    assert job_store.accounts.of("7") is None
    assert [one.service_gpu_s for one in ledger.samples.since()] == [56.0]


def _no_room() -> NoReturn:
    raise LedgerError("The disk is full", "make room")


def test_the_ledger_has_the_total_running_time_of_jobs_by_user_and_name(
    job_store: JobStore, ledger: Ledger
) -> None:
    see(job_store, 1010, running(1005, 5))
    see(job_store, 1021, pending(restarts=1, submit_s=1020))
    see(job_store, 1050, running(1040, 10, restarts=1, submit_s=1020))
    assert ledger.samples.since() == []
    see(job_store, 1060, ended(1040, 15, restarts=1, submit_s=1020))
    (sample,) = ledger.samples.since()
    assert (sample.user, sample.name) == ("ann", "train")
    assert sample.run_s == pytest.approx(job_store.runs.executed_s("7"))


@pytest.mark.parametrize(
    "changes",
    [
        {"partitions": ("gpu", "other")},
        {"het": True},
        {"reservation": "maintenance"},
        {"request": gpus(0)},
    ],
)
def test_an_unmanaged_job_has_no_record(job_store: JobStore, changes: dict[str, Any]) -> None:
    see(job_store, 1010, running(1005, 5, **changes))
    assert job_store.accounts.of("7") is None


def test_a_reused_id_is_forgotten_and_recorded_at_once(job_store: JobStore, ledger: Ledger) -> None:
    """If killed in between, the ledger would have a job whose old service is only in accounting."""
    see(job_store, 1010, running(1005, 5))
    see(job_store, 1020, ended(1005, 12))
    job_store.observe(Observation(5010, (running(5005, 5, submit_s=5000),), (), ()))
    assert sum(i.attained_gpu_s for i in ledger.runs.of("7")) == 48
    job_store.commit()
    again = JobStore(ledger, CONFIG, accounting=False)
    assert again.runs.attained_gpu_s("7") == 20
    assert record_of(again).born_after_s == 5000


HELD_BY_ADMIN = {"priority": 0, "reason": "JobHeldAdmin"}
HELD_BY_OWNER = {"priority": 0, "reason": "JobHeldUser"}


@pytest.mark.parametrize(
    "changes", [HELD_BY_ADMIN, {"slurm_state": "SUSPENDED"}, {"priority": 0, "reason": "Enchanted"}]
)
def test_a_job_that_is_suspended_or_held_by_an_administrator_is_protected(
    job_store: JobStore, changes: dict[str, Any]
) -> None:
    jobs = (running(1005, 5, **changes), running(1005, 5, key="8", raw_id=8))
    see(job_store, 1010, *jobs)
    suspended, other = fed(Feed(job_store, CONFIG), Observation(1010, jobs, (), ())).jobs
    assert suspended.protected_by is Protection.HELD
    assert other.protected_by is None


def test_an_owners_hold_on_a_running_job_gives_no_protection(job_store: JobStore) -> None:
    held = running(1005, 5, **HELD_BY_OWNER)
    see(job_store, 1010, held)
    (job,) = fed(Feed(job_store, CONFIG), Observation(1010, (held,), (), ())).jobs
    assert job.protected_by is None


FORBIDDEN: dict[str, Any] = {"requeue": False}


def can_be_preempted(job_store: JobStore, job: JobStatus) -> bool:
    """Let the core judge the job as it is seen now."""
    (view,) = fed(Feed(job_store, CONFIG), Observation(0.0, (job,), (), ())).jobs
    lane = InteractiveLane(CONFIG)
    lane.follow(view, 0.0)
    job_store.record(lane.take_news(), 0.0)
    job_store.commit()
    return view.lane is Lane.PREEMPTIBLE


def test_a_job_whose_owner_forbids_its_requeue_while_it_runs_can_be_preempted(
    job_store: JobStore, ledger: Ledger
) -> None:
    see(job_store, 1000, pending())
    see(job_store, 1010, forbidden := running(1005, 5, **FORBIDDEN))
    assert can_be_preempted(job_store, forbidden), "it could be when it waited"
    job_store = JobStore(ledger, CONFIG, accounting=False)
    see(job_store, 1020, forbidden := running(1005, 15, **FORBIDDEN))
    assert can_be_preempted(job_store, forbidden), "its run is in the ledger"
    see(job_store, 1030, forbidden := pending(restarts=1, submit_s=1025, **FORBIDDEN))
    assert job_store.runs.attained_gpu_s("7") > 0
    see(job_store, 1040, forbidden)
    assert not can_be_preempted(job_store, forbidden), "the next run is its owner's to forbid"


def test_an_unknown_running_job_is_recognized_by_its_starting_priority(job_store: JobStore) -> None:
    see(job_store, 1010, born := running(1005, 5, priority=TOP_TIER, **FORBIDDEN))
    assert can_be_preempted(job_store, born)
    for priority in (TOP_TIER - 5, NOMINATED + 1):
        job = running(1005, 5, key=str(priority), priority=priority, **FORBIDDEN)
        see(job_store, 1020, job)
        assert not can_be_preempted(job_store, job), "a site's own priorities may be as high"


def test_losses_caused_by_a_user_outlive_a_restart(job_store: JobStore, ledger: Ledger) -> None:
    hunter = pending("8", user="eve")
    see(job_store, 1030, running(1000, 30), hunter)
    preempt(job_store, sent_s=1040.0)
    see(job_store, 1040, pending(restarts=1), hunter)
    again = JobStore(ledger, parse({"preemption": {"budget_share": 0.01}}), accounting=False)
    losses = again.lifecycles.costs.recent_losses(1050)
    assert losses.over_budget(1050, 4) == {"eve"}, "160 GPU-seconds of 144"
    assert losses.over_budget(1050, 5) == frozenset(), "160 GPU-seconds of 180"
    assert losses.over_budget(1040 + 3600, 4) == frozenset()


@pytest.mark.parametrize("step_s", [3600, -3600])
def test_a_clock_step_is_neither_service_nor_waiting(job_store: JobStore, step_s: float) -> None:
    """The start of a running job stays as Slurm recorded it; later times are by the new clock."""

    def look(real_s: float, set_by_s: float) -> Job:
        at_s = real_s + set_by_s
        # squeue shows INVALID for a job that seems to start in the future.
        elapsed_s = max(0.0, at_s - 1005)
        seen = Observation(at_s, (running(1005, elapsed_s), pending("8")), (), ())
        job_store.follow_clock(at_s, real_s)
        job_store.observe(seen)
        waiting = known(job_store.accounts.of("8"))
        assert at_s - waiting.queued_s == real_s - 1000
        return fed(Feed(job_store, CONFIG), seen).jobs[0]

    look(1010, 0)
    job = look(1020, step_s)
    assert job.attained_gpu_s == 4 * 15
    assert job.running_since_s == 1005 + step_s
    assert look(1028, step_s).attained_gpu_s == 4 * 23
    assert look(1029, 0).attained_gpu_s == 4 * 24


@pytest.mark.parametrize("step_s", [86_400.0, -3600.0])
@pytest.mark.parametrize("end", ["shown", "in accounting"])
def test_a_step_of_the_clock_never_counts_also_after_a_restart_and_at_the_end_of_the_run(
    ledger: Ledger, step_s: float, end: str
) -> None:
    def controller() -> JobStore:
        job_store = JobStore(ledger, CONFIG, accounting=True)
        job_store.follow_clock(see_s, see_s - set_by_s)
        return job_store

    see_s, set_by_s = 100_010.0, 0.0
    job_store = controller()
    see(job_store, see_s, running(100_005, 5))
    see_s, set_by_s = 100_020.0 + step_s, step_s
    assert job_store.follow_clock(see_s, see_s - set_by_s)
    see(job_store, see_s, running(100_005, max(0.0, see_s - 100_005)))
    job_store = controller()
    see_s += 10.0
    see(job_store, see_s, running(100_005, max(0.0, see_s - 100_005)))
    assert job_store.runs.attained_gpu_s("7") == 4 * 25
    end_s = see_s + 5.0
    shown_s = max(0.0, end_s - 100_005)
    if end == "shown":
        see(job_store, see_s + 10.0, changed(ended(100_005, shown_s), end_s=end_s))
    else:
        see(job_store, see_s + 10.0)
        row = AccountedRun("7", 100_005, end_s, shown_s, 4, "COMPLETED", 1000.0)
        ask(job_store, see_s + 11.0, row)
    assert job_store.runs.attained_gpu_s("7") == 4 * 30
    assert not job_store.accounts.is_doubtful("7")


@pytest.mark.parametrize("step_s", [3600.0, -3600.0])
def test_a_clock_step_after_a_run_is_not_taken_out_of_it(ledger: Ledger, step_s: float) -> None:
    """The run ends and the clock is set between the same two observations."""
    job_store = JobStore(ledger, CONFIG, accounting=True)
    job_store.follow_clock(100_085.0, 85.0)
    see(job_store, 100_085, running(100_005, 80))
    at_s = 100_095.0 + step_s
    job_store.follow_clock(at_s, 95.0)
    see(job_store, at_s, pending(restarts=1, submit_s=100_091))
    row = AccountedRun("7", 100_005, 100_090.0, 85.0, 4, "REQUEUED", 1000.0)
    ask(job_store, at_s + 1, row)
    assert job_store.runs.attained_gpu_s("7") == 4 * 85


def test_attained_service_of_a_running_job_never_decreases(job_store: JobStore) -> None:
    for at_s, elapsed_s in ((1010, 5), (1011, 4), (1012, 0), (1013, 8)):
        see(job_store, at_s, running(1005, elapsed_s))
        assert job_store.runs.attained_gpu_s("7") == 4 * max(5, elapsed_s)


def test_a_drifting_clock_is_not_taken_for_a_clock_step(job_store: JobStore) -> None:
    see(job_store, 1000, pending("8"))
    for real_s in range(1000, 1100, 10):
        job_store.follow_clock(real_s * 1.1, real_s)
    assert job_store.accounts.all["8"].queued_s == 1000


def test_a_jobs_first_tier_does_not_count_as_a_demotion(ledger: Ledger) -> None:
    """Even if Slurm had started it before the first observation."""

    def decided(job_store: JobStore, at_s: float, tier: int) -> list[str]:
        see(job_store, at_s, running(1005, at_s - 1005))
        decide(job_store, at_s, tier)
        assert (record := job_store.accounts.of("7")) and record.tier == tier
        return [event.text for event in ledger.events.last(10) if event.kind == "demoted"]

    job_store = JobStore(ledger, CONFIG, accounting=False)
    assert decided(job_store, 1010, tier=1) == []
    assert decided(job_store, 1020, tier=1) == []
    assert decided(job_store, 1030, tier=2) == ["from tier 1 to tier 2"]
    again = JobStore(ledger, CONFIG, accounting=False)
    assert decided(again, 1040, tier=3)[1:] == ["from tier 2 to tier 3"]


def test_a_job_enters_the_top_tier_once_it_is_promoted(job_store: JobStore) -> None:
    """In shadow mode it never is."""
    see(job_store, 1010, pending())
    decide(job_store, 1010, tier=1)
    decide(job_store, 1020, tier=0, promoted=True)
    record = job_store.accounts.all["7"]
    assert (record.tier, record.tier_entered_s) == (1, 1010)


def test_the_ledger_keeps_each_preemption_with_the_run_that_it_ended_and_both_tiers(
    job_store: JobStore, ledger: Ledger
) -> None:
    see(job_store, 1030, running(1000, 30), pending("8"))
    decide(job_store, 1030, tier=1)
    preempt(job_store, sent_s=1040.0)
    see(job_store, 1040, pending(restarts=1), pending("8"))
    see(job_store, 1050, pending(restarts=1), pending("8"))
    see(job_store, 1060, pending(restarts=2), pending("8"))
    assert kept_preemptions(ledger.path) == [
        PreemptionRecord("7", "8", 1040.0, 1000.0, 1030.0, 1, 0)
    ]


def test_a_running_jobs_partition_is_the_one_it_runs_in(ledger: Ledger) -> None:
    job_store = JobStore(
        ledger, parse({"manage": {"partitions": ["gpu", "short"]}}), accounting=False
    )
    see(job_store, 1000, pending(partitions=("gpu", "short")))
    assert record_of(job_store).partition == "gpu,short"
    see(job_store, 1010, running(1005, 5, partitions=("short",)))
    assert record_of(job_store).partition == "short"


# Who requeued a job, and how it ended

N1, N1_DOWN = (Node("n1", Amount({"": 4}, 16), state=state) for state in ("ALLOCATED", "DOWN*"))


def planned_victim(job_store: JobStore, sent_s: float | None) -> None:
    """Job 7 runs on n1 and has its grace, or has already been requeued, for job 8."""
    see(job_store, 1030, running(1000, 30), pending("8"))
    preempt(job_store, sent_s)


@pytest.mark.parametrize(
    ("sent_s", "node", "left_s", "kind"),
    [
        (1038.0, N1, 1038.0, "preempted"),
        (1038.0, N1_DOWN, 1038.0, "preempted"),
        (None, N1, 1035.0, "preempted"),
        (None, N1_DOWN, 1035.0, "node-failed"),
        (1038.0, N1_DOWN, 1035.0, "node-failed"),
    ],
    ids=[
        "requeued by us",
        "requeued by us before its node failed",
        "requeued itself in its grace",
        "its node failed in its grace",
        "its node failed before our requeue reached Slurm",
    ],
)
def test_a_requeue_after_the_signal_is_a_preemption_unless_the_node_failed(
    job_store: JobStore, ledger: Ledger, sent_s: float | None, node: Node, left_s: float, kind: str
) -> None:
    planned_victim(job_store, sent_s)
    left = pending(restarts=1, submit_s=left_s)
    job_store.observe(Observation(1040, (left, pending("8")), (node,), ()))
    job_store.commit()
    preempted = kind == "preempted"
    assert [(e.kind, e.other) for e in ledger.events.last(10) if e.job_id == "7"] == [
        (kind, "8" if preempted else "")
    ]
    assert (
        len(kept_preemptions(ledger.path)) == job_store.accounts.all["7"].preemptions == preempted
    )
    state = job_store.lifecycles.preemptions["7"].state if preempted else None
    assert state is (PreemptionState.REQUEUED if preempted else None)
    assert preempted or "7" not in job_store.lifecycles.preemptions


class Accounting:
    """Returns the same given answer for any job."""

    def __init__(self, *rows: AccountedRun) -> None:
        self.rows = rows

    def runs(self, _keys: object, _since_s: float) -> Sequence[AccountedRun]:
        return self.rows


def ask(job_store: JobStore, at_s: float, *rows: AccountedRun) -> None:
    Reconciler(job_store, cast(Slurm, Accounting(*rows))).ask_and_wait(at_s)
    job_store.commit()


def test_a_node_failure_between_two_cycles_is_learned_from_accounting(ledger: Ledger) -> None:
    job_store = JobStore(ledger, CONFIG, accounting=True)
    see(job_store, 1010, running(1005, 5))
    see(job_store, 1040, pending(restarts=1, submit_s=1030))
    row = AccountedRun("7", 1005.0, 1030.0, 25.0, 4, "NODE_FAIL", 1000.0)
    for at_s in (1041, 1050):
        ask(job_store, at_s, row)
    assert [e.kind for e in ledger.events.last(10)] == ["requeued", "node-failed"]


def test_a_requeued_jobs_submission_time_comes_from_accounting(ledger: Ledger) -> None:
    job_store = JobStore(ledger, CONFIG, accounting=True)
    see(job_store, 5010, running(5005, 5, restarts=2, submit_s=5000))
    assert job_store.accounts.all["7"].submitted_s == 5000
    ask(
        job_store,
        5011,
        AccountedRun("7", 100.0, 110.0, 10.0, 4, "COMPLETED", 90.0),  # of an older job
        AccountedRun("7", 1005.0, 2000.0, 995.0, 4, "REQUEUED", 1000.0),
        AccountedRun("7", 2100.0, 3000.0, 900.0, 4, "NODE_FAIL", 2001.0),
        AccountedRun("7", 5005.0, None, 5.0, 4, "RUNNING", 5000.0),
    )
    record = job_store.accounts.all["7"]
    assert (record.submitted_s, record.queued_s, record.restarts) == (1000, 5000, 2)


def test_a_job_that_ran_and_was_purged_between_two_cycles_has_run(ledger: Ledger) -> None:
    job_store = JobStore(ledger, CONFIG, accounting=True)
    see(job_store, 1000, pending())
    job_store = JobStore(ledger, CONFIG, accounting=True)
    see(job_store, 9000)
    assert job_store.accounts.is_doubtful("7")
    ask(job_store, 9001, AccountedRun("7", 1010.0, 1050.0, 40.0, 4, "COMPLETED", 1000.0))
    record = job_store.accounts.all["7"]
    assert (record.ended_s, record.first_started_s) == (1050, 1010)
    assert job_store.runs.attained_gpu_s("7") == 160
    assert not job_store.accounts.is_doubtful("7")


def test_the_end_of_a_forgotten_cancelled_job_comes_from_accounting(ledger: Ledger) -> None:
    job_store = JobStore(ledger, CONFIG, accounting=True)
    see(job_store, 1000, pending())
    see(job_store, 9000)
    ask(job_store, 9001, AccountedRun("7", None, 1050.0, 0.0, 0, "CANCELLED", 1000.0, "0:0", 0))
    record = job_store.accounts.all["7"]
    assert (record.ended_s, record.first_started_s) == (1050, None)
    assert not job_store.runs.of("7") and not job_store.accounts.is_doubtful("7")


def test_a_restarted_job_waits_from_the_end_of_its_last_run(job_store: JobStore) -> None:
    see(job_store, 1010, running(1005, 5))
    see(job_store, 1050, running(1040, 10, restarts=1, submit_s=1020))
    assert job_store.accounts.all["7"].queued_s == 1020


def test_the_time_of_the_very_first_cycle_is_kept(job_store: JobStore, ledger: Ledger) -> None:
    see(job_store, 1010)
    see(job_store, 1020, pending())
    see(JobStore(ledger, CONFIG, accounting=False), 9000, pending())
    assert ledger.value(FIRST_LOOK) == "1010"


def test_the_last_run_is_known_after_a_clock_step_in_the_one_before(job_store: JobStore) -> None:
    job_store.follow_clock(1010, 10)
    see(job_store, 1010, running(1005, 5))
    job_store.follow_clock(991, 11)
    see(job_store, 991, running(1005, 6))
    see(job_store, 995, pending(restarts=1, submit_s=994))
    see(job_store, 1000, running(999, 1, restarts=1, submit_s=994))
    see(job_store, 1010, pending(restarts=2, submit_s=1009))
    assert known(job_store.runs.last_ended("7")).start_s == 999


def test_the_last_run_is_known_although_the_clock_was_set_back_after_the_one_before(
    job_store: JobStore, ledger: Ledger
) -> None:
    job_store.follow_clock(1010, 10)
    see(job_store, 1010, running(1005, 5))
    see(job_store, 1012, pending(restarts=1, submit_s=1011))
    job_store.follow_clock(993, 13)
    see(job_store, 993, pending(restarts=1, submit_s=1011))
    see(job_store, 1002, running(999, 3, restarts=1, submit_s=994))
    see(job_store, 1010, pending(restarts=2, submit_s=1009))
    for store in (job_store, JobStore(ledger, CONFIG, accounting=True)):
        last = store.runs.last_ended("7")
        assert last is not None and last.start_s == 999
        assert [run.start_s for run in store.runs.in_order("7")] == [1005, 999]
        assert store.accounts.all["7"].queued_s == last.end_s
