"""Futures go on from the present as the simulation would have."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random
from typing import cast

import pytest

from slurm_tiresias.config import parse
from slurm_tiresias.core.features.make import make_policy
from slurm_tiresias.core.job import Job
from slurm_tiresias.forecast.futures import REQUEUE_S, Fork, Futures, Present, present
from slurm_tiresias.forecast.past import Past, PastJob
from slurm_tiresias.model import Claim, JobState, Lane
from slurm_tiresias.simulator.engine import SimJob, Simulation, Timing
from slurm_tiresias.simulator.reports import ReportModel, Reports
from slurm_tiresias.simulator.run import Setup, asking
from slurm_tiresias.simulator.schedulers import TiresiasScheduler
from slurm_tiresias.simulator.sim_cluster import Costs, SimCluster
from slurm_tiresias.simulator.workload import TraceJob, Workload, paper480

CONFIG = parse(
    {
        "policy": {"estimates": ["reports"], "thresholds_gpu_s": [3200, 20_000]},
        "manage": {"partitions": ["gpu"]},
        "controller": {"interval_s": 30},
    }
)
SITE = SimCluster(4, 4)
NODES = SITE.as_nodes()
COSTS = Costs(SITE, speeds=False, flat_s=60.0)
MOST_S = 100.0


class Watched(TiresiasScheduler):
    """Tiresias, with the starts that it made."""

    def __init__(self, reports: Reports) -> None:
        super().__init__(make_policy(CONFIG.policy), CONFIG, NODES, reports)
        self.starts: dict[str, list[float]] = {}
        self.stopped_s = 0.0

    def runs(self, job: SimJob, now_s: float) -> None:
        assert job.running_since_s is not None
        self.starts.setdefault(job.job_id, []).append(job.running_since_s)
        super().runs(job, now_s)


class Told(Past):
    """Knows how long each job needs, and which jobs arrive."""

    def __init__(self, left_s: dict[str, float], coming: tuple[TraceJob, ...]) -> None:
        super().__init__((), 0.0)
        self._left_s, self._coming = left_s, coming

    def remaining_s(self, job: Job, chance: Random) -> float:
        return self._left_s[job.job_id]

    def arrivals(self, chance: Random) -> tuple[TraceJob, ...]:
        return self._coming


def simulation(
    jobs: tuple[TraceJob, ...], until_s: float, share: float
) -> tuple[Simulation, Watched]:
    """Simulate until a time from ``until_s`` on at which no job restarts; ``share`` of the jobs
    report, exactly."""
    scheduler = Watched(Reports(ReportModel(share), Workload("jobs", jobs)))
    setup = Setup(SITE, CONFIG, COSTS, Timing(30.0, REQUEUE_S))
    ask = asking(setup, only_consolidated=False)

    def until(now_s: float) -> bool:
        restarts = any(job.overhead_s or job.not_eligible for job in made.live)
        scheduler.stopped_s = now_s
        return now_s >= until_s and not restarts

    made = Simulation(jobs, scheduler, COSTS, setup.timing, ask, until=until)
    made.run()
    return made, scheduler


# Of a job that has been restarted, a report counts less in a simulation than in a future.
@pytest.mark.parametrize(
    ("stopped_s", "share"), [(900.0, 0.0), (900.0, 1.0), (3000.0, 0.0), (6000.0, 0.0)]
)
def test_a_stopped_simulation_goes_on_as_if_it_had_not_been_stopped(
    stopped_s: float, share: float
) -> None:
    jobs = tuple(replace(job, gpus=min(job.gpus, 8)) for job in paper480(1).jobs[:150])
    _, whole = simulation(jobs, math.inf, share)
    part, scheduler = simulation(jobs, stopped_s, share)
    stopped_s = scheduler.stopped_s
    live = list(part.live)
    for job in live:
        if job.state is JobState.RUNNING:
            job.settle(stopped_s)
    left_s = {job.job_id: job.work_s for job in live}
    coming = tuple(job for job in jobs if job.submitted_s > stopped_s)
    waiting = {job.job_id for job in live if job.state is JobState.PENDING}

    at = present(stopped_s, NODES, live)
    futures = Futures(at, CONFIG, Told(left_s, coming), scheduler.policy)
    drawn = futures.begin("", MOST_S, futures.waiting).result()

    assert waiting and drawn and drawn.after_s.keys() == waiting
    starts = {
        job_id: min(start_s for start_s in whole.starts[job_id] if start_s >= stopped_s)
        for job_id in drawn.after_s
    }
    found = {job_id: stopped_s + s for job_id, s in drawn.after_s.items()}
    assert found == pytest.approx(starts)


def running(job_id: str, gpus: int, left_s: float, limit_s: float | None = None) -> Job:
    """A job on the first node that reports what it still needs."""
    node = NODES[0]
    job = Job(job_id, SITE.request(gpus), submitted_s=0.0, settled_s=100.0, time_limit_s=limit_s)
    job.set(state=JobState.RUNNING, running_since_s=0.0, first_started_s=0.0, run_s=100.0)
    job.set(allocation={node.name: node.total}, attained_gpu_s=100.0 * gpus, lane=Lane.IDLE_ONLY)
    job.cannot_be_requeued = "--no-requeue"
    job.claim = Claim((100.0 + left_s) * gpus, math.inf)
    job.count_gpus()
    return job


def test_a_job_waits_until_the_only_node_is_free() -> None:
    waits = Job("2", SITE.request(4), submitted_s=90.0, settled_s=100.0, queued_s=90.0)
    at = Present(100.0, NODES[:1], present(100.0, NODES, [running("1", 4, 5000.0), waits]).rows)
    futures = Futures(at, CONFIG, Past((), 100.0), make_policy(CONFIG.policy))
    drawn = [futures.begin(str(n), MOST_S, ["2"]).result() for n in range(5)]
    after_s = [one.after_s["2"] for one in drawn if one]
    assert len(after_s) == 5
    assert all(3500.0 < s < 7000.0 for s in after_s)
    assert len(set(after_s)) > 1  # a report without a range is taken to be a little off


def test_a_time_limit_ends_a_job_whatever_it_reports() -> None:
    past = Past((), 100.0)
    job = running("1", 4, 5000.0, limit_s=600.0)
    assert past.remaining_s(job, Random(1)) == 500.0


def test_a_future_that_fails_or_hangs_is_none() -> None:
    assert Fork(lambda: 1 // 0, 10.0).result() is None
    assert Fork(lambda: cast(int, __import__("time").sleep(60)), 0.1).result() is None
    assert Fork(lambda: 7, 10.0).result() == 7


def test_arrivals_are_those_of_earlier_times() -> None:
    now_s = 10 * 86400.0
    jobs = [
        PastJob(day * 86400.0 + 3600.0 * hour, 2, "ada", "train", None, 60.0, ended=True)
        for day in range(10)
        for hour in (9, 10, 11)
    ]
    arrivals = Past(jobs, now_s).arrivals(Random(1))
    hours = {(job.submitted_s % 86400.0) / 3600.0 for job in arrivals}
    assert hours == {9.0, 10.0, 11.0}
    assert [job.submitted_s for job in arrivals] == sorted(job.submitted_s for job in arrivals)
    assert min(job.submitted_s for job in arrivals) >= now_s
    assert not Past(jobs[:2], jobs[1].submitted_s).arrivals(Random(1)), "an hour is too little"


def test_jobs_of_an_array_are_submitted_at_once_with_and_without_a_limit() -> None:
    job = PastJob(0.0, 1, "ann", "sweep", None, 60.0, ended=True)
    jobs = [replaced for at_s in range(0, 7200, 60) for replaced in _at(job, float(at_s))]
    past = Past(jobs, 7200.0)
    assert past.is_known
    assert all(coming.submitted_s >= 0.0 for coming in past.arrivals(Random(1)))


def _at(job: PastJob, at_s: float) -> list[PastJob]:
    return [job._replace(submitted_s=at_s), job._replace(submitted_s=at_s, limit_s=600.0)]
