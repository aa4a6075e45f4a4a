"""The figures of a replay, real and simulated, all scaled to the paper's seconds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from scripts.tools.bench.replay.calibrate import Calibration
from scripts.tools.bench.replay.policies import POLICIES
from scripts.tools.bench.replay.setting import Setting
from scripts.tools.bench.replay.store import Head, JobRuns, Replayed
from slurm_tiresias.config import parse
from slurm_tiresias.simulator import report, run
from slurm_tiresias.simulator.bound import lower_bound_jct_s
from slurm_tiresias.simulator.engine import Outcome, Timing
from slurm_tiresias.simulator.sim_cluster import Costs, SimCluster
from slurm_tiresias.simulator.workload import TraceJob

LEAST_INTERVAL_S = 0.25
Measures = Mapping[str, float]
"""Figures by their names in ``simulator.report.Figures``, and the average JCT by bin."""

TIMES = (
    "average_jct_s",
    "median_jct_s",
    "p95_jct_s",
    "makespan_s",
    "average_wait_s",
    "median_wait_s",
    "p95_wait_s",
)


@dataclass(frozen=True, slots=True)
class Compared:
    """All inputs of the tables, by policy."""

    head: Head
    real: Mapping[str, Measures]
    foreseen: Mapping[str, Measures]
    """The simulation of this cluster with this factor."""
    ideal: Mapping[str, Measures]
    """A simulation like the paper authors': GPUs are only counted, and nothing has a cost."""
    bound_s: float


def compared(head: Head, policies: Iterable[str], runs: Mapping[str, Replayed]) -> Compared:
    setting, names = head.setting, tuple(policies)
    return Compared(
        head=head,
        real={name: of_the_real(setting, replayed.jobs) for name, replayed in runs.items()},
        foreseen={name: foreseen(head, name) for name in names},
        ideal={name: ideal(setting, name) for name in names},
        bound_s=lower_bound_jct_s(setting.whole().jobs, setting.nodes * setting.gpus),
    )


def measures(outcomes: Sequence[Outcome], setting: Setting) -> Measures:
    found = report.figures(outcomes, setting.nodes * setting.gpus)
    times = {name: getattr(found, name) for name in TIMES}
    bins = {bin_.name: bin_.average_jct_s for bin_ in found.bins if bin_.average_jct_s is not None}
    return {**times, **bins, "preemptions": float(found.preemptions)}


# The real


def of_the_real(setting: Setting, runs: Sequence[JobRuns]) -> Measures:
    jobs = {job.job_id: job for job in setting.whole().jobs}
    return measures([_outcome(jobs[one.job_id], one, setting) for one in runs], setting)


def _outcome(job: TraceJob, ran: JobRuns, setting: Setting) -> Outcome:
    restarts = len(ran.runs) - 1
    ended_s = ran.runs[-1][1]
    held_s = sum(end_s - start_s for start_s, end_s in ran.runs)
    return Outcome(
        job=replace(job, submitted_s=ran.submitted_s),
        first_start_s=ran.runs[0][0],
        end_s=ended_s,
        waited_s=ended_s - ran.submitted_s - held_s,
        preemptions=restarts,
        lost_s=restarts * setting.load_s,
        runs=ran.runs,
    )


# Simulations


def foreseen_s(head: Head, policy: str) -> float:
    """Return the expected duration of the real run, in real seconds."""
    return foreseen(head, policy)["makespan_s"] / head.setting.factor


def foreseen(head: Head, policy: str) -> Measures:
    """Return the mean over the phases at which the first job may arrive in a cycle."""
    ours = POLICIES[policy]
    setting = ours.own(_as_it_answers(head.setting, head.calibration))
    jobs = {job.job_id: job for job in setting.whole().jobs}
    runs = [
        measures([_slow(outcome, jobs, setting.factor) for outcome in outcomes], setting)
        for outcomes in (
            setting.simulate(workload, ours.simulated, head.calibration)
            for workload in setting.phases()
        )
    ]
    return {name: fmean(one[name] for one in runs) for name in runs[0]}


def _as_it_answers(setting: Setting, calibration: Calibration) -> Setting:
    """Return the setting with the interval that gives the measured waiting time.

    Slurm's hooks nudge the controller, so a job waits less than half of its real interval. The
    interval is rounded to a power of two, whose multiples have no rounding error.
    """
    doublings = round(math.log2(2 * calibration.idle_start_s))
    return replace(setting, interval_s=max(LEAST_INTERVAL_S, 2.0**doublings))


def _slow(outcome: Outcome, jobs: Mapping[str, TraceJob], factor: float) -> Outcome:
    """Return the outcome of a shortened job, scaled to the paper's time."""
    job = outcome.job
    return outcome._replace(
        job=replace(jobs[job.job_id], submitted_s=job.submitted_s * factor),
        first_start_s=outcome.first_start_s * factor,
        end_s=outcome.end_s * factor,
        waited_s=outcome.waited_s * factor,
        lost_s=outcome.lost_s * factor,
        runs=tuple((start_s * factor, end_s * factor) for start_s, end_s in outcome.runs),
    )


def ideal(shared: Setting, policy: str) -> Measures:
    """Simulate with decisions at every event, no protections, and free preemption."""
    ours = POLICIES[policy]
    setting = ours.own(shared)
    site = SimCluster(setting.nodes, setting.gpus, "pooled")
    thresholds = {"thresholds_gpu_s": list(setting.thresholds_gpu_s)}
    config = parse({"policy": thresholds, "preemption": {"min_run_s": 0, "budget_share": 0}})
    costs = Costs(site, speeds=False, flat_s=0.0)
    setup = run.Setup(site, config, costs, Timing(), reports=setting.reports)
    return measures(run.simulate(setting.whole(), ours.simulated, setup), setting)
