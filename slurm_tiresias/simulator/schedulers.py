"""The controller's own decision, as a simulation runs it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from slurm_tiresias.board import Board, Start
from slurm_tiresias.config import Config
from slurm_tiresias.model import JobState, Node
from slurm_tiresias.policy.gittins import ServiceHistory
from slurm_tiresias.policy.recurring import RunHistory
from slurm_tiresias.policy.standing import Policy, Rank
from slurm_tiresias.policy.tiers import (
    TieredGittins,
    TieredHistory,
    charged_gpu_s,
    left_in_tier,
    make_policy,
    starving_s,
)
from slurm_tiresias.simulator.charges import Charges, charges_of
from slurm_tiresias.simulator.engine import SimJob

FEWEST_S_TO_LOOK_AGAIN = 30.0
SHARE_TO_LOOK_AGAIN = 0.1
"""Under 2D-History a running job is ranked anew when it has run a tenth longer."""


class Decided:
    """The controller's own decision, kept up to date event by event (``board.py``).

    ``to_next_change_s`` says after how many running seconds a job's standing changes.
    ``drifts`` says whether that of a running job changes all the time. ``learn`` is told of every
    job that ends, its books up to date.
    """

    def __init__(
        self,
        policy: Policy,
        config: Config,
        nodes: Sequence[Node],
        to_next_change_s: Callable[[SimJob], float],
        drifts: Callable[[SimJob], bool] | None = None,
        learn: Callable[[SimJob], None] | None = None,
    ) -> None:
        self._policy = policy
        self._config = config
        self._to_next_change_s = to_next_change_s
        self._drifts = drifts
        self._learn = learn
        self._drifting: dict[str, SimJob] = {}
        self._charges = charges_of(config.policy)
        self._board = Board(nodes, most_victims=config.preemption.max_victims_per_cycle)

    def waits(self, job: SimJob, now_s: float) -> None:
        if self._charges:
            self._charge(self._charges, job, now_s)
        if self._has_starved(job, now_s):
            job.promote()
        self._wait(job, now_s)

    def _charge(self, charges: Charges, job: SimJob, now_s: float) -> None:
        if job.runs:
            charges.over(job, job.runs[-1])
        else:
            charges.comes(job, now_s)

    def _recharge(self, charges: Charges, now_s: float) -> None:
        changed = {job.job_id: job for job in charges.charged_anew(now_s)}
        for job in charges.new_jobs:
            if self._starved_s(job) <= now_s:
                job.promote()
                changed[job.job_id] = job
        for job in changed.values():
            self._wait(job, now_s)

    def _has_starved(self, job: SimJob, now_s: float) -> bool:
        return bool(job.preemptions or job.inherited_gpu_s) and self._starved_s(job) <= now_s

    def _starved_s(self, job: SimJob) -> float:
        """When a job has waited so long that it is promoted."""
        assert job.queued_s is not None
        return job.queued_s + starving_s(job, self._config.policy)

    def _wait(self, job: SimJob, now_s: float) -> None:
        kind = self._board.kind(job.ask, job.ask.request, job.ask.style)
        self._board.wait(self._rank(job, now_s), kind)

    def runs(self, job: SimJob, now_s: float) -> None:
        guarded_until_s = self._guarded_until_s(job)
        self._board.run(self._rank(job, now_s), job.allocation, job.width, guarded_until_s)
        if self._charges:
            # Those who have just left for it may have been its own payer's.
            self._charges.starts(job)
            self._board.rerank(self._rank(job, now_s))
        self._watch(job)

    def moved(self, job: SimJob, now_s: float) -> None:
        self._board.rerank(self._rank(job, now_s))
        self._watch(job)

    def ended(self, job: SimJob) -> None:
        self._board.leave(job.job_id)
        if self._drifting:
            self._drifting.pop(job.job_id, None)
        if self._learn:
            job.settle(job.end_s)
            self._learn(job)
        if self._charges:
            assert job.running_since_s is not None
            self._charges.over(job, (job.running_since_s, job.end_s))

    def choose(self, now_s: float) -> Iterable[Start]:
        if self._charges:
            self._recharge(self._charges, now_s)
        if not self._drifting:
            return self._board.choose(now_s)
        starts = self._board.choose(now_s, before_evictions=lambda: self._follow_drift(now_s))
        for start in starts:
            for victim in start.victims:
                self._drifting.pop(victim, None)
        return starts

    def _follow_drift(self, now_s: float) -> None:
        for job in self._drifting.values():
            job.settle(now_s)
            self._board.rerank(self._rank(job, now_s))

    def _watch(self, job: SimJob) -> None:
        if self._drifts is None:
            return
        if self._drifts(job):
            self._drifting[job.job_id] = job
        else:
            self._drifting.pop(job.job_id, None)

    def next_change_s(self, job: SimJob, now_s: float) -> float:
        if job.state is JobState.RUNNING:
            return now_s + self._to_next_change_s(job)
        return self._starved_s(job)

    def next_wake_s(self, now_s: float) -> float:
        if self._charges is None:
            return self._board.next_try_s
        starved_s = min(map(self._starved_s, self._charges.new_jobs), default=math.inf)
        return min(self._board.next_try_s, self._charges.next_change_s, starved_s)

    def _rank(self, job: SimJob, now_s: float) -> Rank:
        standing = self._policy.standing(job)
        if standing.tier != job.tier:
            job.tier, job.tier_entered_s = standing.tier, now_s
            standing = self._policy.standing(job)
        return Rank(standing.level, standing.order, job.id_key, job.job_id)

    def _guarded_until_s(self, job: SimJob) -> float:
        config = self._config.preemption
        if 0 < config.max_per_job <= job.preemptions:
            return math.inf
        assert job.running_since_s is not None
        return job.running_since_s + config.min_run_s if config.min_run_s > 0 else -math.inf


def tiresias(
    config: Config, nodes: Sequence[Node], history: ServiceHistory | None = None
) -> Decided:
    """Tiresias-L, Tiresias-G or Tiresias-H, as the configuration says."""
    if config.policy.name == "2d-history":
        return _by_history(config, nodes)
    thresholds = config.policy.thresholds_gpu_s

    ends = (*thresholds, math.inf)

    def to_next_tier_s(job: SimJob) -> float:
        return (ends[job.tier] - charged_gpu_s(job)) / job.width

    policy = make_policy(config.policy, history)
    # The Gittins index follows the service attained. It matters where one tier is above and one
    # below: nobody asks a job of the first tier to leave, and the last is ordered otherwise.
    drifts = isinstance(policy, TieredGittins) and len(thresholds) > 1
    between = range(1, len(thresholds))
    in_between = (lambda job: job.tier in between) if drifts else None
    return Decided(policy, config, nodes, to_next_tier_s, in_between)


def _by_history(config: Config, nodes: Sequence[Node]) -> Decided:
    """Tiresias-H, which at every moment knows the jobs that have ended by then."""
    runs = RunHistory(config.policy.history_samples)

    def learn(job: SimJob) -> None:
        runs.add(job.user, job.name, job.attained_gpu_s / job.width)

    thresholds = config.policy.thresholds_gpu_s

    def to_look_again_s(job: SimJob) -> float:
        by_service_s = left_in_tier(charged_gpu_s(job), thresholds) / job.width
        again_s = SHARE_TO_LOOK_AGAIN * job.executed_since_promotion_s
        return min(by_service_s, max(FEWEST_S_TO_LOOK_AGAIN, again_s))

    return Decided(TieredHistory(thresholds, runs), config, nodes, to_look_again_s, learn=learn)
