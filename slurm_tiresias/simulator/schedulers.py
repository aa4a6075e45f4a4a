"""The policies that a simulation can run: the product's own decision, and its yardsticks."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from slurm_tiresias.board import Board, Start
from slurm_tiresias.config import Config
from slurm_tiresias.model import JobState, Node
from slurm_tiresias.placement.choose import node_sets, place_on_any
from slurm_tiresias.placement.pool import NodeSet, Pool
from slurm_tiresias.policy.continuous import Continuous, shortest_remaining_service
from slurm_tiresias.policy.gittins import ServiceHistory
from slurm_tiresias.policy.standing import JobFacts, Policy, Rank, Standing
from slurm_tiresias.policy.tiers import (
    TieredGittins,
    TieredLas,
    left_in_tier,
    make_policy,
    starving_s,
)
from slurm_tiresias.simulator.engine import Ask, Scheduler, SimJob


class Decided:
    """The controller's own decision, kept up to date event by event (``board.py``).

    ``to_next_change_s`` says after how many running seconds a job's standing changes.
    ``drifts`` says whether that of a running job changes all the time.
    """

    def __init__(
        self,
        policy: Policy,
        config: Config,
        nodes: Sequence[Node],
        to_next_change_s: Callable[[SimJob], float],
        drifts: Callable[[SimJob], bool] = lambda _: False,
    ) -> None:
        self._policy = policy
        self._config = config
        self._to_next_change_s = to_next_change_s
        self._drifts = drifts
        self._drifting: dict[str, SimJob] = {}
        self._board = Board(nodes, most_victims=config.preemption.max_victims_per_cycle)

    def waits(self, job: SimJob, now_s: float) -> None:
        assert job.queued_s is not None
        if job.preemptions and now_s - job.queued_s >= starving_s(job, self._config.policy):
            job.promote()
        kind = self._board.kind(job.ask, job.ask.request, job.ask.style)
        self._board.wait(self._rank(job, now_s), kind)

    def runs(self, job: SimJob, now_s: float) -> None:
        guarded_until_s = self._guarded_until_s(job)
        self._board.run(self._rank(job, now_s), job.allocation, job.width, guarded_until_s)
        self._watch(job)

    def moved(self, job: SimJob, now_s: float) -> None:
        self._board.rerank(self._rank(job, now_s))
        self._watch(job)

    def ended(self, job: SimJob) -> None:
        self._board.leave(job.job_id)
        self._drifting.pop(job.job_id, None)

    def choose(self, now_s: float) -> Iterable[Start]:
        if self._drifting and self._board.somebody_waits:
            for job in self._drifting.values():
                job.settle(now_s)
                self._board.rerank(self._rank(job, now_s))
        starts = self._board.choose(now_s)
        if self._drifting:
            for start in starts:
                for victim in start.victims:
                    self._drifting.pop(victim, None)
        return starts

    def _watch(self, job: SimJob) -> None:
        if self._drifts(job):
            self._drifting[job.job_id] = job
        else:
            self._drifting.pop(job.job_id, None)

    def next_change_s(self, job: SimJob, now_s: float) -> float:
        if job.state is JobState.RUNNING:
            return now_s + self._to_next_change_s(job)
        assert job.queued_s is not None
        return job.queued_s + starving_s(job, self._config.policy)

    def next_wake_s(self, now_s: float) -> float:
        return self._board.next_try_s

    def _rank(self, job: SimJob, now_s: float) -> Rank:
        standing = self._policy.standing(job)
        if standing.tier != job.tier:
            job.tier, job.tier_entered_s = standing.tier, now_s
            standing = self._policy.standing(job)
        return Rank.of(job.job_id, standing)

    def _guarded_until_s(self, job: SimJob) -> float:
        config = self._config.preemption
        if 0 < config.max_per_job <= job.preemptions:
            return math.inf
        assert job.running_since_s is not None
        return job.running_since_s + config.min_run_s if config.min_run_s > 0 else -math.inf


def tiresias(
    config: Config, nodes: Sequence[Node], history: ServiceHistory | None = None
) -> Decided:
    """Tiresias-L or Tiresias-G, as the configuration says."""
    thresholds = config.policy.thresholds_gpu_s

    def to_next_tier_s(job: SimJob) -> float:
        return left_in_tier(job.attained_since_promotion_gpu_s, thresholds) / job.width

    policy = make_policy(config.policy, history)
    # The Gittins index follows the service attained. It matters where one tier is above and one
    # below: nobody asks a job of the first tier to leave, and the last is ordered otherwise.
    between = range(1, len(thresholds) if isinstance(policy, TieredGittins) else 0)
    return Decided(policy, config, nodes, to_next_tier_s, lambda job: job.tier in between)


def one_dimensional_las(config: Config, nodes: Sequence[Node]) -> Decided:
    """LAS that counts seconds, not GPU-seconds: the thresholds are seconds."""
    thresholds = config.policy.thresholds_gpu_s
    policy = TieredLas(thresholds, _submission, lambda job: job.executed_since_promotion_s)

    def to_next_tier_s(job: SimJob) -> float:
        return left_in_tier(job.executed_since_promotion_s, thresholds)

    return Decided(policy, config, nodes, to_next_tier_s)


def _submission(job: JobFacts) -> tuple[float, ...]:
    return (job.submitted_s,)


def _never(_: SimJob) -> float:
    return math.inf


def smallest_first(config: Config, nodes: Sequence[Node]) -> Decided:
    """SF: fewest GPUs first, preemptive."""
    return Decided(Continuous(lambda job: job.width), config, nodes, _never)


def shortest_remaining_time(config: Config, nodes: Sequence[Node]) -> Decided:
    """SRTF, clairvoyant: least remaining time first."""
    policy = Continuous(lambda job: job.remaining_s or 0.0)
    return Decided(policy, config, nodes, _never, lambda _: True)


def shortest_remaining_service_first(config: Config, nodes: Sequence[Node]) -> Decided:
    """SRSF, clairvoyant: least remaining time x GPUs first."""
    return Decided(shortest_remaining_service(), config, nodes, _never, lambda _: True)


def best_effort(config: Config, nodes: Sequence[Node]) -> Decided:
    """First come, first served; what does not fit is skipped; nobody is preempted."""

    @dataclass(frozen=True, slots=True)
    class BySubmission:
        def standing(self, job: JobFacts) -> Standing:
            return Standing((0.0,), (job.submitted_s,), 0)

    return Decided(BySubmission(), config, nodes, _never)


class HeadOfLine:
    """YARN-CS: first come, first served, consolidated; the first that does not fit stops all."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._pool = Pool(nodes)
        self._queue: list[tuple[float, int, SimJob]] = []
        self._sets: dict[Ask, list[NodeSet]] = {}

    def waits(self, job: SimJob, now_s: float) -> None:
        heapq.heappush(self._queue, (job.submitted_s, job.number, job))

    def runs(self, job: SimJob, now_s: float) -> None:
        pass

    def moved(self, job: SimJob, now_s: float) -> None:
        pass

    def ended(self, job: SimJob) -> None:
        self._pool.give(job.allocation)

    def choose(self, now_s: float) -> Iterable[Start]:
        while self._queue:
            job = self._queue[0][2]
            allocation = place_on_any(
                job.ask.request, self._where(job.ask), self._pool, job.ask.style
            )
            if allocation is None:
                return
            self._pool.take(allocation)
            heapq.heappop(self._queue)
            yield Start(job.job_id, allocation)

    def next_change_s(self, job: SimJob, now_s: float) -> float:
        return math.inf

    def next_wake_s(self, now_s: float) -> float:
        return math.inf

    def _where(self, ask: Ask) -> list[NodeSet]:
        if ask not in self._sets:
            sets = node_sets(ask.request, self._nodes)
            self._sets[ask] = [self._pool.nodes(names) for names in sets]
        return self._sets[ask]


BASELINES: Mapping[str, Callable[[Config, Sequence[Node]], Scheduler]] = {
    "yarn-cs": lambda _, nodes: HeadOfLine(nodes),
    "best-effort": best_effort,
    "sf": smallest_first,
    "srtf": shortest_remaining_time,
    "srsf": shortest_remaining_service_first,
    "las": one_dimensional_las,
}
"""What Tiresias is compared to, by the names of the command line."""
