"""Jobs that are preempted for their idle GPUs alone, cycle by cycle."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

import pytest

from scripts.testbed.constants import replaced
from slurm_tiresias.controller import bands
from slurm_tiresias.controller.lifecycles import IDLE_REQUEUED, IDLE_SIGNALLED, IDLE_SPARED
from slurm_tiresias.core.features.idle_gpus import GPUS_IDLE, LATE_AFTER_S, MOST_IN_A_ROW
from slurm_tiresias.core.lifecycle.preemption import Cause, PreemptionState
from slurm_tiresias.model import Action, JobState, Reason
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.records import PreemptionRecord
from tests.controller.in_memory import WHOLE_NODE, Tables
from tests.controller.test_idle_gpus import AFTER_S, NODE_GPUS, Site
from tests.known import known

LEAVE_AFTER_S = 2 * AFTER_S
GRACE_S = 6.0
SIGNAL = "USR1"


class LeavingSite(Site):
    """A site that preempts jobs for their idle GPUs."""

    def __init__(
        self,
        ledger: Ledger,
        folder: Path,
        tables: Tables = MappingProxyType({}),
        **preemption: object,
    ) -> None:
        usual: dict[str, object] = {"checkpoint": f"{SIGNAL}@{GRACE_S:g}", "min_run_s": 0.0}
        leave = {"idle_gpus": {"action": "leave", "leave_after_s": LEAVE_AFTER_S}}
        super().__init__(
            ledger, folder, "leave", tables={**leave, "preemption": usual | preemption, **tables}
        )

    def go_on_until(self, kind: str, key: str, times: int = 1) -> None:
        """Go on until this has happened to a job so often."""
        for _ in range(400):
            if self.times(kind, key) >= times:
                return
            self.go_on(0.5)
        raise AssertionError(f"{kind} has not happened to {key} {times} times")

    def leave_idle_until(self, kind: str, times: int = 1) -> str:
        """Leave the GPUs of the first job idle until this has happened to it; return the job."""
        idle = self.jobs[0]
        self.busy[idle] = 0
        self.go_on_until(kind, idle, times)
        return idle

    def times(self, kind: str, key: str) -> int:
        return [job for job, _ in self.events(kind)].count(key)

    def under_way(self, key: str) -> PreemptionState | None:
        found = self.cycles.job_store.lifecycles.preemptions.get(key)
        assert found is None or found.cause is Cause.IDLE_GPUS
        return found.state if found else None

    def signals(self, key: str) -> list[str]:
        sent = self.slurm.signals
        return [one.signal for one in sent if one.key == key]

    def rows(self) -> list[PreemptionRecord]:
        return self.ledger.preemptions.all()


@pytest.fixture
def site(ledger: Ledger, tmp_path: Path) -> LeavingSite:
    return LeavingSite(ledger, tmp_path)


def test_an_idle_job_is_requeued_if_none_waits_and_busy_ones_run_on(site: LeavingSite) -> None:
    idle, partly, busy, _ = site.jobs
    site.busy |= {idle: 0, partly: 1}
    began_s = site.last.seen.at_s
    site.go_on(LEAVE_AFTER_S - 2)
    assert [key for key, _ in site.events(GPUS_IDLE)] == [idle]
    assert site.last_ones() == [idle]
    assert site.signals(idle) == []
    site.go_on_until(IDLE_SIGNALLED, idle)
    told_s = site.last.seen.at_s
    assert told_s - began_s == pytest.approx(LEAVE_AFTER_S, abs=2)
    assert site.signals(idle) == [SIGNAL]
    decision = known(site.decision(idle))
    assert (decision.action, decision.reason) == (Action.PREEMPT, Reason.IDLE_GPUS)
    site.go_on_until(IDLE_REQUEUED, idle)
    assert site.last.seen.at_s - told_s == pytest.approx(GRACE_S, abs=2)
    site.wait_for_state(idle, JobState.RUNNING)
    assert site.seen(idle).restarts == 1
    assert {key for key in site.jobs if site.seen(key).restarts} == {idle}
    assert site.events("preempted") == site.events("requeued") == []
    assert site.signals(partly) == site.signals(busy) == []


def test_a_requeue_for_idle_gpus_counts_apart_from_preemptions(site: LeavingSite) -> None:
    idle = site.leave_idle_until(IDLE_REQUEUED)
    (row,) = site.rows()
    assert (row.key, row.for_job, row.cause) == (idle, "", Cause.IDLE_GPUS)
    record = known(site.cycles.job_store.accounts.of(idle))
    assert (record.preemptions, record.preempted_by, record.idle_requeues) == (0, "", 1)
    assert not site.cycles.job_store.lifecycles.costs.awaited


def test_a_requeued_job_ranks_last_until_it_uses_a_gpu(site: LeavingSite) -> None:
    idle = site.leave_idle_until(IDLE_REQUEUED)
    assert site.last_ones() == [idle]
    site.wait_for_state(idle, JobState.RUNNING)
    site.go_on(2)
    assert site.last_ones() == [idle]
    site.busy[idle] = 1
    site.go_on(1)
    assert site.last_ones() == []
    assert known(site.cycles.job_store.accounts.of(idle)).idle_requeues == 0


def test_a_requeued_job_that_runs_without_samples_does_not_rank_last(site: LeavingSite) -> None:
    idle = site.leave_idle_until(IDLE_REQUEUED)
    site.wait_for_state(idle, JobState.RUNNING)
    for _ in range(5):
        site.cycle()
        assert site.last_ones() == []
    site.go_on(1)
    assert site.last_ones() == [idle]


@pytest.mark.parametrize("write", ["pinned", "site-factor"])
def test_a_requeued_job_waits_behind_all_others_and_preempts_none(
    ledger: Ledger, tmp_path: Path, write: str
) -> None:
    site = LeavingSite(ledger, tmp_path, {"priority": {"write": write}})
    idle = site.leave_idle_until(IDLE_REQUEUED)
    later = [site.submit(WHOLE_NODE) for _ in range(2)]
    site.go_on(30)
    running = [key for key in later if site.seen(key).state is JobState.RUNNING]
    assert len(running) == 1
    assert site.seen(idle).state is JobState.PENDING
    (waiting,) = set(later) - set(running)
    assert site.seen(waiting).priority > site.seen(idle).priority
    lowest = bands.LOWEST[write]
    assert lowest <= site.seen(idle).priority < lowest + bands.SITE_FACTOR_BAND
    assert site.events("preempted") == []


def test_after_three_requeues_in_a_row_a_job_is_only_ranked_last(site: LeavingSite) -> None:
    idle = site.leave_idle_until(IDLE_REQUEUED, MOST_IN_A_ROW)
    site.wait_for_state(idle, JobState.RUNNING)
    site.go_on(3 * LEAVE_AFTER_S)
    assert site.times(IDLE_REQUEUED, idle) == len(site.signals(idle)) == MOST_IN_A_ROW
    assert site.times(GPUS_IDLE, idle) == MOST_IN_A_ROW + 1
    assert site.last_ones() == [idle]
    # One kernel is enough to begin anew.
    site.busy[idle] = 1
    site.go_on(1)
    site.busy[idle] = 0
    site.go_on_until(IDLE_REQUEUED, idle, MOST_IN_A_ROW + 1)
    assert known(site.cycles.job_store.accounts.of(idle)).idle_requeues == 1


def test_a_busy_sample_in_the_grace_spares_a_run_for_good(site: LeavingSite) -> None:
    idle = site.leave_idle_until(IDLE_SIGNALLED)
    assert site.under_way(idle) is PreemptionState.SIGNALLED
    site.busy[idle] = 1
    site.go_on(0.5)
    assert site.under_way(idle) is None
    assert site.last_ones() == []
    site.busy[idle] = 0
    site.go_on(2 * LEAVE_AFTER_S)
    assert site.times(IDLE_SPARED, idle) == 1
    found = [one.text for one in site.ledger.events.last(100) if one.kind == IDLE_SPARED]
    assert found == [f"1 of its {NODE_GPUS} GPUs is used"]
    assert site.seen(idle).restarts == 0
    assert site.signals(idle) == [SIGNAL]
    assert site.last_ones() == [idle]


def test_a_job_that_was_busy_while_no_controller_ran_is_spared(site: LeavingSite) -> None:
    idle = site.leave_idle_until(IDLE_SIGNALLED)
    slurm = site.slurm
    slurm.advance(10)
    site._idle_since_s[idle] = site.last.seen.at_s + 10
    slurm.advance(2 * LEAVE_AFTER_S)
    site.restart()
    site.tells(late_s=-10 - 2 * LEAVE_AFTER_S)
    site.cycle()
    assert site.times(IDLE_SPARED, idle) == 1
    site.go_on(GRACE_S + 5)
    assert site.seen(idle).restarts == 0


def test_a_job_without_samples_in_its_grace_is_spared(site: LeavingSite) -> None:
    idle = site.leave_idle_until(IDLE_SIGNALLED)
    site.tells(late_s=LATE_AFTER_S + 1)
    for _ in range(round(4 * GRACE_S)):
        site.cycle()
    assert site.under_way(idle) is None
    assert site.times(IDLE_SPARED, idle) == 1
    assert site.seen(idle).restarts == 0


def test_a_preemptor_takes_over_a_victim_and_signals_it_again(site: LeavingSite) -> None:
    idle = site.leave_idle_until(IDLE_SIGNALLED)
    waiting = site.submit(WHOLE_NODE)
    site.wait_for_state(waiting, JobState.RUNNING)
    assert site.events("preempted") == [(idle, waiting)]
    assert site.events(IDLE_REQUEUED) == []
    assert site.signals(idle) == [SIGNAL, SIGNAL]
    record = known(site.cycles.job_store.accounts.of(idle))
    assert (record.preemptions, record.idle_requeues) == (1, 0)


def test_the_minimum_run_time_protects_an_idle_job(ledger: Ledger, tmp_path: Path) -> None:
    site = LeavingSite(ledger, tmp_path, min_run_s=90.0)
    idle = site.jobs[0]
    began_s = site.seen(idle).start_s
    site.busy[idle] = 0
    site.go_on_until(IDLE_SIGNALLED, idle)
    assert began_s is not None
    assert site.last.seen.at_s - began_s == pytest.approx(90.0, abs=2)


def test_the_limit_of_victims_bounds_these_preemptions(ledger: Ledger, tmp_path: Path) -> None:
    seldom = {"controller": {"interval_s": 2.0}}
    told: list[int] = []
    with replaced({"MAX_VICTIMS": 1}):
        site = LeavingSite(ledger, tmp_path, seldom)
        site.busy = dict.fromkeys(site.jobs, 0)
        site.go_on(AFTER_S)
        for _ in range(round(2 * LEAVE_AFTER_S)):
            site.go_on(0.5)
            told.append(len(site.events(IDLE_SIGNALLED)))
    assert told[-1] >= len(site.jobs)
    assert max(b - a for a, b in zip(told, told[4:], strict=False)) == 1
