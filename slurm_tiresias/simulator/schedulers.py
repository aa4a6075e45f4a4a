"""The policies that a simulation can run: the product's own decision, and its yardsticks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from slurm_tiresias.config import Config
from slurm_tiresias.decide import decide
from slurm_tiresias.model import (
    Action,
    Decision,
    Job,
    JobState,
    PlacementStyle,
    Plan,
    Reason,
    Snapshot,
)
from slurm_tiresias.placement.choose import node_sets, place_on_any
from slurm_tiresias.placement.pool import Pool
from slurm_tiresias.policy.continuous import Continuous, shortest_remaining_service
from slurm_tiresias.policy.gittins import ServiceHistory
from slurm_tiresias.policy.standing import Policy, Standing
from slurm_tiresias.policy.tiers import TieredLas, make_policy, service_to_next_tier_gpu_s

JUST_AFTER_S = 1e-6
"""A wake-up exactly at a threshold would come a rounding error too early, again and again."""


@dataclass(frozen=True, slots=True)
class Decided:
    """``decide`` under some policy: what the controller runs."""

    policy: Policy
    config: Config
    to_next_change_s: Callable[[Job], float]

    def plan(self, snapshot: Snapshot) -> Plan:
        return decide(snapshot, self.policy, self.config)

    def next_change_s(self, job: Job) -> float:
        return self.to_next_change_s(job)


def tiresias(config: Config, history: ServiceHistory | None = None) -> Decided:
    """Tiresias-L or Tiresias-G, as the configuration says."""
    thresholds = config.policy.thresholds_gpu_s

    def to_next_tier_s(job: Job) -> float:
        return service_to_next_tier_gpu_s(job, thresholds) / max(1, job.width) + JUST_AFTER_S

    return Decided(make_policy(config.policy, history), config, to_next_tier_s)


def one_dimensional_las(config: Config) -> Decided:
    """LAS that counts seconds, not GPU-seconds: the thresholds are seconds."""
    thresholds = config.policy.thresholds_gpu_s
    tiers = TieredLas(thresholds, lambda job: (job.submitted_s,))

    @dataclass(frozen=True, slots=True)
    class BySeconds:
        def standing(self, job: Job) -> Standing:
            return tiers.standing(_counting_seconds(job))

    def to_next_tier_s(job: Job) -> float:
        left_s = service_to_next_tier_gpu_s(_counting_seconds(job), thresholds)
        return left_s + JUST_AFTER_S

    return Decided(BySeconds(), config, to_next_tier_s)


def _counting_seconds(job: Job) -> Job:
    return replace(job, attained_since_promotion_gpu_s=job.executed_since_promotion_s)


def _never(_: Job) -> float:
    return math.inf


def smallest_first(config: Config) -> Decided:
    """SF: fewest GPUs first, preemptive."""
    return Decided(Continuous(lambda job: job.request.gpu_count), config, _never)


def shortest_remaining_time(config: Config) -> Decided:
    """SRTF, clairvoyant: least remaining time first."""
    return Decided(Continuous(lambda job: job.remaining_s or 0.0), config, _never)


def shortest_remaining_service_first(config: Config) -> Decided:
    """SRSF, clairvoyant: least remaining time x GPUs first."""
    return Decided(shortest_remaining_service(), config, _never)


def best_effort(config: Config) -> Decided:
    """First come, first served; what does not fit is skipped; nobody is preempted."""

    @dataclass(frozen=True, slots=True)
    class BySubmission:
        def standing(self, job: Job) -> Standing:
            return Standing((0.0,), (job.submitted_s,), 0)

    return Decided(BySubmission(), config, _never)


@dataclass(frozen=True, slots=True)
class HeadOfLine:
    """YARN-CS: first come, first served, consolidated; the first that does not fit stops all."""

    def plan(self, snapshot: Snapshot) -> Plan:
        pool = Pool(snapshot.nodes)
        decisions: dict[str, Decision] = {}
        blocked = False
        for job in snapshot.jobs:
            if job.state is JobState.RUNNING:
                pool.take(job.allocation)
        for job in sorted(snapshot.jobs, key=_as_submitted):
            if job.state is JobState.RUNNING:
                decisions[job.job_id] = Decision(job.job_id, Action.RUN_ON, Reason.RUNS_ON)
                continue
            sets = [] if blocked else node_sets(job.request, snapshot.nodes)
            allocation = place_on_any(job.request, sets, pool, PlacementStyle.CONSOLIDATE)
            if allocation is None:
                blocked = True
                decisions[job.job_id] = Decision(job.job_id, Action.WAIT, Reason.NO_ROOM)
            else:
                pool.take(allocation)
                decisions[job.job_id] = Decision(
                    job.job_id, Action.START, Reason.STARTS, start_on=allocation
                )
        return Plan(decisions)

    def next_change_s(self, job: Job) -> float:
        return math.inf


def _as_submitted(job: Job) -> tuple[float, int, str]:
    return (job.submitted_s, len(job.job_id), job.job_id)


BASELINES: Mapping[str, Callable[[Config], Decided | HeadOfLine]] = {
    "yarn-cs": lambda _: HeadOfLine(),
    "best-effort": best_effort,
    "sf": smallest_first,
    "srtf": shortest_remaining_time,
    "srsf": shortest_remaining_service_first,
    "las": one_dimensional_las,
}
"""What Tiresias is compared to, by the names of the command line."""
