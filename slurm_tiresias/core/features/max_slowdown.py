"""The bound on harm: no job ends much later than with a fair share of the GPUs.

``policy.max_slowdown`` limits the ratio of a job's completion time to the one that it would have
had if all jobs shared the GPUs evenly (``fair_finish.py``; finish-time fairness, Themis, NSDI 2020,
section 3.1). From what is known of its length follows the latest time at which a job must run, and
from then on without a break. A waiting job for which that time has come is at its bound: it goes
before all others. If its length is known, it may preempt any job that is not near its own bound;
otherwise those that a job of the first tier may preempt. A run near its bound is not preempted.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from slurm_tiresias.core.features.fair_finish import FairShares
from slurm_tiresias.core.features.feature import Explained, Feature, Gauge
from slurm_tiresias.core.features.policy import Policy
from slurm_tiresias.core.features.protection import Protected
from slurm_tiresias.core.job import ALL_ALIKE, Job
from slurm_tiresias.model import (
    NOT_BOUND,
    USUAL_STAKE,
    JobAccount,
    JobState,
    Node,
    Protection,
    PublishedBound,
    SlowdownStanding,
    weighed,
)
from slurm_tiresias.settings import Config

RUNS_ON_BY: Final = 0.25
LEAST_RUN_S: Final = 300.0
"""A job of unknown length is expected to run for a quarter more than it has, or than five minutes
(chosen by simulation: the more that is expected, the fewer jobs come to their bound)."""

NEAR_S: Final = 600.0
"""A run is not preempted if the job, once preempted, could wait no longer than this. A job of
unknown length gets away from its bound by running, one of known length does not (chosen
by simulation: with two minutes, more jobs of unknown length are preempted at their bounds)."""

COUNTS_ANEW_AFTER_S: Final = 600.0
"""A job that Slurm has kept waiting for so long (held, dependency, a limit) has had no share
meanwhile, and counts anew once it may start again. A requeue keeps it waiting for seconds."""

LOOKS_BACK_S: Final = 3 * 86_400.0
"""Fair shares are reckoned from so long ago on. Older jobs count anew from then."""


KEPT: Final = (Protected(Protection.AT_BOUND, -math.inf, math.inf),)


class BoundNow(NamedTuple):
    """What is known of a job's bound."""

    standing: SlowdownStanding
    must_run_by_s: float
    """When it must run at the latest, and then to its end."""
    length_known: bool
    kept_until_s: float = -math.inf
    """When it is next seen whether its run must still be kept."""


class EarlierJob(NamedTuple):
    """A job that counted before the feature began."""

    job_id: str
    gpus: float
    since_s: float
    """Since when Slurm might have started it."""
    run_s: float
    """Its running time before ``since_s``, or in all if it has ended."""
    preemptions: int = 0
    job: Job | None = None
    """None if it has ended."""


@dataclass(slots=True, eq=False)
class _Counted:
    """A job that runs, or that only lacks resources."""

    job: Job
    since_s: float
    ran_before_s: float
    """Its running time before ``since_s``."""
    now: BoundNow = BoundNow(NOT_BOUND, math.inf, False)  # noqa: RUF009 - immutable
    blocked_since_s: float = math.inf
    """Since when Slurm has kept it waiting for something else."""
    due_s: float = math.inf
    """When it may stand otherwise although nothing has happened to it."""
    facts: object = None
    """Of what it depended when it was last looked at."""

    @property
    def done_s(self) -> float:
        run_s = self.job.run_s - self.ran_before_s
        return _done_s(run_s, self.job.preemptions, _restart_s(self.job))


class MaxSlowdown(Feature):
    """Sets ``fair``: which waiting jobs are at their bound, and which runs are near it."""

    _policy: Policy

    def __init__(
        self, config: Config, nodes: Sequence[Node], earlier: Iterable[EarlierJob] = ()
    ) -> None:
        self._times = config.policy.max_slowdown
        self._start_takes_s = config.preemption.min_run_s + config.controller.interval_s
        """How long the jobs that would have to make room may be protected still."""
        self._gpu_weights: Mapping[str, float] = ALL_ALIKE
        self.follow_nodes(nodes)
        self._shares = FairShares(self._gpus)
        self._counted: dict[str, _Counted] = {}
        self._bound: dict[str, _Counted] = {}
        """Those at their bound or near it."""
        self._due: list[tuple[float, str]] = []
        """Heap of (``due_s``, job id); some are outdated."""
        self._left: dict[str, float] = {}
        """What jobs have run that have left since time last advanced."""
        self._ticked_s = -math.inf
        for one in sorted(earlier, key=lambda one: (one.since_s, one.job_id)):
            self._shares.enter(one.job_id, max(1, one.gpus), one.since_s)
            if one.job is not None:
                self._counted[one.job_id] = _Counted(one.job, one.since_s, one.run_s)
            else:
                done_s = _done_s(one.run_s, one.preemptions, USUAL_STAKE.restart_s)
                self._shares.leave(one.job_id, done_s)

    def of(self, job_id: str) -> BoundNow | None:
        """Return how a job stands to its bound; None if it has none now."""
        one = self._counted.get(job_id)
        return one.now if one else None

    @property
    def warning(self) -> str:
        """Why the bound cannot be kept for all jobs now; "" if it can."""
        needed = sum(one.job.width for one in self._bound.values())
        waiting = sum(one.now.standing.at_bound for one in self._bound.values())
        if not waiting or needed <= self._gpus:
            return ""
        return (
            f"policy.max_slowdown = {self._times:g} cannot be kept for all jobs now: "
            f"{waiting} that wait and {len(self._bound) - waiting} that run would need {needed:g} "
            f"GPUs at once, of {self._gpus:g}"
        )

    def follow_nodes(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        here = (node.total.gpus for node in nodes if node.available)
        self._gpus = max(1.0, sum(weighed(gpus, self._gpu_weights) for gpus in here))

    def follow_policy(self, policy: Policy) -> None:
        self._policy = policy

    def follow_clock(self, set_by_s: float) -> None:
        self._shares.shift(set_by_s)
        self._ticked_s += set_by_s
        for one in self._counted.values():
            standing, must_run_by_s, known, kept_until_s = one.now
            must_run_by_s += set_by_s
            one.now = BoundNow(standing, must_run_by_s, known, kept_until_s + set_by_s)
            one.since_s += set_by_s
            one.blocked_since_s += set_by_s
            one.due_s = -math.inf
        self._due = [(-math.inf, job_id) for job_id in sorted(self._counted)]

    def follow(self, job: Job, now_s: float) -> None:
        if job.gpu_weights is not self._gpu_weights:
            self._gpu_weights = job.gpu_weights
            self.follow_nodes(self._nodes)
        self._advance(now_s)
        one = self._counted.get(job.job_id)
        may_start = counts(job)
        if one is not None and not may_start:
            one.blocked_since_s = min(one.blocked_since_s, now_s)
        if not may_start and (one is None or not _briefly_blocked(one, job, now_s)):
            self.forget(job)
            return
        if one is None:
            # If it was submitted earlier, something else than resources kept it waiting.
            since_s = min(now_s, max(job.submitted_s, self._ticked_s))
            self._left.pop(job.job_id, None)
            self._shares.enter(job.job_id, job.gpus_asked, now_s)
            one = self._counted[job.job_id] = _Counted(job, since_s, job.run_s)
        elif may_start:
            one.blocked_since_s = math.inf
        one.job = job
        # Each look expects another length of a run, so the reference would depend on how often the
        # engine is told of a job.
        if one.facts != (facts := self._facts_of(one)) or one.due_s <= now_s:
            one.facts = facts
            self._look_at(one, now_s)
        job.slowdown = one.now.standing

    def forget(self, job: Job) -> None:
        job.slowdown = NOT_BOUND
        self._bound.pop(job.job_id, None)
        one = self._counted.pop(job.job_id, None)
        if one is not None:
            one.job = job
            self._left[job.job_id] = one.done_s

    def forget_all_but(self, job_ids: Collection[str]) -> None:
        """Follow the ends of all other jobs."""
        for one in [one for job_id, one in self._counted.items() if job_id not in job_ids]:
            self.forget(one.job)

    def tick(self, now_s: float) -> Iterable[Job]:
        self._advance(now_s)
        self._ticked_s = now_s
        while self.next_change_s <= now_s:
            one = self._counted[heapq.heappop(self._due)[1]]
            one.due_s = math.inf
            job, before = one.job, one.now.standing
            if one.blocked_since_s < math.inf:
                one.facts = None
                yield job
                continue
            if job.state is JobState.RUNNING:
                job.settle(now_s)
            self._look_at(one, now_s)
            if one.now.standing != before:
                yield job

    @property
    def next_change_s(self) -> float:
        while self._due:
            due_s, job_id = self._due[0]
            one = self._counted.get(job_id)
            if one is not None and one.due_s == due_s:
                return due_s
            heapq.heappop(self._due)
        return math.inf

    def explain(self, job: Job, account: JobAccount | None, now_s: float) -> Explained | None:
        one = self.of(job.job_id)
        if one is None:
            return None
        until_s = one.kept_until_s
        bound = PublishedBound(
            one.standing.at_bound,
            None if job.state is JobState.RUNNING else one.must_run_by_s,
            one.standing.kept,
            until_s if now_s < until_s < math.inf else None,
            one.length_known,
        )
        sentence = _sentence(bound)
        return Explained({"bound": bound}, (sentence,) if sentence else ())

    def _advance(self, now_s: float) -> None:
        self._shares.advance(now_s)
        self._shares.gpus = self._gpus
        for job_id, done_s in self._left.items():
            self._shares.leave(job_id, done_s)
        self._left.clear()

    def _facts_of(self, one: _Counted) -> object:
        """Return of what a job's standing depends besides the time."""
        job = one.job
        runs = job.state is JobState.RUNNING
        return (
            runs or job.run_s,
            one.blocked_since_s,
            job.preemptions,
            job.promotions,
            job.gpus_asked,
            _restart_s(job),
            job.claim,
        )

    def _look_at(self, one: _Counted, now_s: float) -> None:
        """Update how a job stands, and when it may stand otherwise."""
        job, shares, done_s = one.job, self._shares, one.done_s
        runs = job.state is JobState.RUNNING
        remaining_gpu_s = self._policy.reported_gpu_s(job)
        known = remaining_gpu_s is not None
        length_s = max(done_s, LEAST_RUN_S) * (1.0 + RUNS_ON_BY)
        if remaining_gpu_s is not None:
            length_s = done_s + remaining_gpu_s / max(1, job.gpus_asked)
        remaining_s = length_s - done_s
        shares.expect(job.job_id, math.inf if runs and not known else length_s)
        if runs and not known and now_s < one.now.kept_until_s < math.inf:
            # Otherwise the end of this protection would move with each look.
            self._look_again(one, one.now.kept_until_s)
            return
        fair_end_s = shares.reached_s(job.job_id, length_s)
        slack_grows_by = 0.0  # at most, in each second
        if fair_end_s is None:
            # At the earliest: if it had all its GPUs from now on.
            fair_end_s = now_s + length_s - shares.had_s(job.job_id)
            slack_grows_by = self._times if runs else self._times - 1.0
        # The slack is how long it could wait from now on and still end within the bound if it then
        # ran to its end; negative if it no longer can.
        slack_s = one.since_s + self._times * (fair_end_s - one.since_s) - now_s - remaining_s
        # A start takes time.
        left_s = slack_s - self._start_takes_s - _restart_s(job)
        short_s = (NEAR_S if runs else 0.0) - left_s
        gets_away_in_s = short_s / slack_grows_by if slack_grows_by else math.inf
        # The slack of a waiting job falls by at most a second each second, that of a run never.
        standing, changes_in_s = NOT_BOUND, math.inf if runs else left_s
        kept_until_s = -math.inf
        if runs and short_s > 0.0 and known:
            # It may also outlive what it was expected to run.
            standing, kept_until_s = SlowdownStanding(kept=True), math.inf
            changes_in_s = min(gets_away_in_s, remaining_s)
        elif runs and short_s > 0.0:
            # Each second of running moves the bound by at least so many seconds more than it takes.
            changes_in_s = max(short_s / ((self._times - 1.0) * (1.0 + RUNS_ON_BY)), 1.0)
            standing, kept_until_s = SlowdownStanding(kept=True), now_s + changes_in_s
        elif not runs and short_s >= 0.0:
            standing = SlowdownStanding(at_bound=True, length_known=known)
            changes_in_s = gets_away_in_s
        one.now = BoundNow(standing, now_s + slack_s, known, kept_until_s)
        if standing is NOT_BOUND:
            self._bound.pop(job.job_id, None)
        else:
            self._bound[job.job_id] = one
        self._look_again(one, now_s + max(changes_in_s, 1.0))

    def _look_again(self, one: _Counted, at_s: float) -> None:
        due_s, one.due_s = one.due_s, min(at_s, one.blocked_since_s + COUNTS_ANEW_AFTER_S)
        if due_s != one.due_s < math.inf:
            heapq.heappush(self._due, (one.due_s, one.job.job_id))


def protect(job: Job, _config: Config) -> Sequence[Protected]:
    """Return whether a run is kept because the job is near its bound; one that leaves its GPUs idle
    is not."""
    return KEPT if job.slowdown.kept and not job.ranks_last else ()


def counts(job: Job) -> bool:
    """Whether a job runs, or only lacks resources, and others must make room for it."""
    blocked = job.state is not JobState.RUNNING and job.blocked_by_slurm is not None
    return _may_count(job) and not blocked


def _sentence(bound: PublishedBound) -> str:
    known = "" if bound.length_known else " (its length is a guess, because it does not report)"
    if bound.at_bound:
        return (
            "It is at its bound: to stay within policy.max_slowdown it must run now, so it goes "
            f"ahead of all others{known}."
        )
    if bound.must_run_by_s is not None:
        by = f"{{{bound.must_run_by_s} moment}}"
        return f"To stay within policy.max_slowdown it must run from {by} on{known}."
    if not bound.kept:
        return ""
    until = "" if bound.kept_until_s is None else f" before {{{bound.kept_until_s} moment}}"
    return (
        "It is near its bound: if it had to wait again, it could exceed policy.max_slowdown, so it "
        f"is not preempted{until}{known}."
    )


def _may_count(job: Job) -> bool:
    return job.managed and job.gpus_asked > 0 and job.is_preemptible


def _briefly_blocked(one: _Counted, job: Job, now_s: float) -> bool:
    return _may_count(job) and now_s < one.blocked_since_s + COUNTS_ANEW_AFTER_S


def _restart_s(job: Job) -> float:
    return (job.at_stake or USUAL_STAKE).restart_s


def _done_s(run_s: float, preemptions: int, restart_s: float) -> float:
    """Return the running time that was no restart."""
    return max(0.0, run_s - preemptions * restart_s)


GAUGES: Final = (
    Gauge(
        "tiresias_bound_jobs",
        "at-bound: waiting jobs at their bound (policy.max_slowdown), which go before all others; "
        "kept: running jobs near theirs, which are not preempted.",
        "bound",
        {"at-bound": lambda bound: bound.at_bound, "kept": lambda bound: bound.kept},
        {"standing": "at-bound or kept"},
    ),
)
