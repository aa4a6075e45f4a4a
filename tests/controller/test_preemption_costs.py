"""The measured cost of preemptions, over several cycles and controllers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_tiresias.controller.preemption_costs import SETTLES_S, PreemptionCosts
from slurm_tiresias.job.record import Record, encode
from slurm_tiresias.model import USUAL_STAKE, JobState, JobStatus, ProgramCosts
from slurm_tiresias.profiler.run_id import RunId
from slurm_tiresias.progress.checkpoints import LIST_NAME, folders_in
from slurm_tiresias.progress.node import FOLDER
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.records import CostSource, PreemptionCost, RunRecord
from tests.controller.test_job_store import ended, pending, preempt, running
from tests.controller.test_progress import START_S, Site, record

ASKED_S, GONE_S, AGAIN_S = 1030.0, 1042.0, 1060.0
"""Times: job 7 gets its signal, its last process is gone, and it runs again."""

WAITS = pending("7", raw_id=7, restarts=1, submit_s=GONE_S)


class CostSite(Site):
    """A controller that also measures the cost of preemptions."""

    def begin(self) -> None:
        super().begin()
        self.costs = PreemptionCosts(self.job_store, self.tracker)

    def cycle(self, *jobs: JobStatus) -> None:
        super().cycle(*jobs)
        self.costs.follow(self.seen(*jobs))
        self.job_store.commit()

    def at(self, now_s: float, *jobs: JobStatus) -> None:
        self.now_s = now_s
        self.cycle(*jobs)

    def tell(self, restarts: int, told: Record | None) -> None:
        """Set the node's report on a run of job 7; None: no report."""
        self.told.pop(RunId(7, restarts, "n1"), None)
        if told is not None:
            self.told[RunId(7, restarts, "n1")] = told

    def leave(self, told: Record | None) -> None:
        """Preempt job 7 after this report; it then waits."""
        self.tell(0, told)
        self.at(ASKED_S, running(START_S, 30.0, raw_id=7), pending("8"))
        preempt(self.job_store, sent_s=1040.0)
        self.tell(0, None)
        leaves = running(0.0, 0.0, raw_id=7, restarts=1)
        self.at(1041.0, replace(leaves, state=JobState.COMPLETING, start_s=None), pending("8"))
        self.at(1045.0, WAITS, pending("8"))

    def cost(self, number: int = 0) -> PreemptionCost:
        return self.ledger.costs.of("7")[number]


@pytest.fixture
def site(tmp_path: Path, ledger: Ledger) -> CostSite:
    (tmp_path / FOLDER).mkdir()
    return CostSite(tmp_path, ledger)


def again(now_s: float, restarts: int = 1, since_s: float = AGAIN_S, **more: Any) -> JobStatus:
    ran_s = now_s - since_s
    return running(since_s, ran_s, raw_id=7, restarts=restarts, submit_s=GONE_S, **more)


def resumed(step: int, new_step_s: float | None, **more: Any) -> Record:
    """The report of a run that resumed from a step, and made a new step at this time."""
    done = step if new_step_s is None else step + 1
    at_s = AGAIN_S + 2 if new_step_s is None else new_step_s
    changes = {"at_s": at_s, "first_step": step, "first_s": AGAIN_S + 2.0, "resumed_step": step}
    return record(done, **{**changes, "new_step_s": new_step_s, **more})


def test_a_preemption_is_measured_with_the_first_new_step_by_any_controller(site: CostSite) -> None:
    site.leave(record(30, saved_step=20, saving_s=START_S + 20, saved_s=START_S + 23, saves=2))
    site.begin()
    assert site.cost().source == CostSource.AWAITED and site.cost().gone_s == GONE_S
    site.tell(1, resumed(20, None))
    site.at(1065.0, again(1065.0))
    site.begin()
    assert site.cost().source == CostSource.AWAITED
    assert site.costs.costs_of("ann", "train") is None
    site.tell(1, resumed(20, AGAIN_S + 6.0))
    site.at(1068.0, again(1068.0))
    cost = site.cost()
    assert (cost.source, cost.resumed_step, cost.steps_again) == ("reports", 20, 10)
    assert (cost.save_s, cost.leave_s, cost.again_s) == (0.0, GONE_S - ASKED_S, 10.0)
    assert cost.restart_s == 5.0, "less one usual step"
    assert site.job_store.take_stats().costs == [cost]
    learned = site.costs.costs_of("ann", "train")
    site.begin()
    assert learned == site.costs.costs_of("ann", "train")
    assert learned == ProgramCosts(5.0, 10.0, None, 1)


def test_collected_reports_take_precedence_over_live_ones(site: CostSite) -> None:
    """The job saved when asked, which was only learned from the collected file."""
    site.leave(record(28))
    last = record(33, at_s=1036.0, saved_step=33, saving_s=1033.0, saved_s=1036.0, saves=1)
    (site.collect / FOLDER / "7.0.n1.progress").write_bytes(encode(last))
    site.tell(1, resumed(33, AGAIN_S + 6.0))
    site.at(1068.0, again(1068.0))
    cost = site.cost()
    assert (cost.answered_s, cost.save_s, cost.again_s) == (6.0, 3.0, 0.0)
    assert cost.leave_s == GONE_S - 1036.0


def test_the_cost_for_a_job_without_reports_is_unknown(site: CostSite) -> None:
    site.leave(None)
    site.at(1041.0 + SETTLES_S, WAITS)
    assert site.cost().source == CostSource.AWAITED
    site.at(1042.0 + SETTLES_S, WAITS)
    cost = site.cost()
    assert cost.source == CostSource.SILENT and not cost.is_known and cost.lost_gpu_s == 0.0
    assert site.costs.costs_of("ann", "train") is None


def test_the_last_save_of_a_silent_job_is_known_from_its_checkpoint_folder(site: CostSite) -> None:
    """The node reports a save during the run, and a save before its end once the run has ended."""
    comment = "tiresias:checkpoint-dir=/scratch/ann/run1"
    told = {"run": b"7.0.n1 saved 1020.500\n", "end": b"7.0.n1 saved 1036.500\n"}
    told["next"] = b"7.0.n1 saved 1070.000\n"
    node = site.collect / FOLDER / "n2.live"
    node.write_bytes(b"tiresias-live 1\n" + told["run"])
    site.at(ASKED_S, running(START_S, 30.0, raw_id=7, comment=comment), pending("8"))
    listed = site.collect / FOLDER / LIST_NAME
    site.at(ASKED_S, running(START_S, 30.0, raw_id=7, comment=comment), pending("8"))
    assert folders_in(listed.read_bytes()) == {7: "/scratch/ann/run1"}
    site.leave(None)
    assert site.cost().saved_s == 1020.5
    for after_s, line in ((10.0, told["end"]), (20.0, told["next"])):
        node.write_bytes(b"tiresias-live 1\n" + line)
        site.at(1045.0 + after_s, WAITS)
    assert site.cost().saved_s == 1036.5, "the next run's saves are not this one's"
    assert folders_in(listed.read_bytes()) == {}
    site.begin()
    site.at(1042.0 + SETTLES_S, WAITS)
    cost = site.cost()
    assert (cost.source, cost.answered_s) == ("folder", 6.5)
    assert cost.again_s == 0.0 and cost.restart_s is None
    assert cost.leave_s == GONE_S - 1036.5
    assert site.costs.costs_of("ann", "train") == ProgramCosts(
        USUAL_STAKE.restart_s, 0.0, None, 1, saved_when_asked=1.0
    )


def test_the_cost_is_unknown_if_a_job_ends_before_it_tells_its_step(site: CostSite) -> None:
    site.leave(record(30))
    over = ended(AGAIN_S, 5.0, raw_id=7, restarts=1, submit_s=GONE_S)
    site.at(1065.0, again(1065.0))
    site.at(1070.0, over)
    assert site.cost().source == CostSource.AWAITED, "its last report may still come"
    site.at(1070.0 + SETTLES_S, over)
    assert site.cost().source == CostSource.ENDED
    assert [cost.source for cost in site.job_store.take_stats().costs] == ["ended"]


def test_preempting_a_run_without_steps_loses_no_work(site: CostSite) -> None:
    site.leave(record(30, saved_step=20, saving_s=START_S + 20, saved_s=START_S + 23))
    site.at(1070.0, again(1070.0), pending("8"))
    preempt(site.job_store, sent_s=1080.0)
    site.at(1085.0, pending("7", raw_id=7, restarts=2, submit_s=1082.0), pending("8"))
    told = resumed(20, 1108.0, at_s=1108.0, first_s=1103.0)
    site.tell(2, told)
    # Only now is it certain that the run between them has reported nothing.
    site.at(1110.0 + SETTLES_S, again(1110.0 + SETTLES_S, restarts=2, since_s=1100.0))
    first, second = site.cost(0), site.cost(1)
    assert first.again_s == 10.0 and first.restart_s == pytest.approx(20.0)
    assert (second.again_s, second.lost_all) == (0.0, True)
    assert second.restart_s == pytest.approx(7.0)


def test_a_new_job_with_the_same_id_is_not_measured(site: CostSite) -> None:
    site.leave(record(30))
    site.at(1070.0, ended(AGAIN_S, 5.0, raw_id=7, restarts=1, submit_s=GONE_S))
    site.at(9000.0, running(8995.0, 5.0, raw_id=7, submit_s=8990.0))
    assert site.ledger.costs.of("7") == [] and not site.job_store.lifecycles.costs.awaited


def test_a_preemption_is_measured_by_the_next_run_after_a_clock_step(site: CostSite) -> None:
    earlier = RunRecord("7", AGAIN_S + 15, AGAIN_S + 25, 10.0, 4, True, clock_set_since_s=-100.0)
    site.job_store.runs.keep(earlier)
    site.leave(record(30, saved_step=20, saving_s=START_S + 20, saved_s=START_S + 23, saves=2))
    site.tell(1, resumed(20, AGAIN_S + 6.0))
    site.at(1068.0, again(1068.0))
    cost = site.cost()
    assert (cost.run_start_s, cost.restart_s) == (START_S, 5.0), "less one usual step"
