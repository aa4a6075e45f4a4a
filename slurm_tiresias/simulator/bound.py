"""A lower bound on the average job completion time of any schedule, to compare policies with.

It holds even for a scheduler that knows all durations and future arrivals and preempts at no cost.
It may not be attainable. ``docs/explanation/simulator.md`` has the proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace

import numpy as np
from numpy.typing import NDArray

from slurm_tiresias.simulator.physics import physics_of
from slurm_tiresias.simulator.workload import TraceJob

Numbers = NDArray[np.float64]

MOST_ROUNDS = 200
FEWEST_ROUNDS = 20
JOBS_WEIGHED = 1_600_000
"""Job evaluations in the search for the best weights. Each round visits all jobs, with diminishing
returns: 200 rounds up to 8,000 jobs, fewer for more, 20 from 80,000."""

LARGEST_STEP = 3.0
"""Limits the step of one job's weight, which would be huge if it waits 1,000 times its duration."""


def unit_speed(_: TraceJob) -> float:
    """Return the progress per second if placement does not affect speed."""
    return 1.0


def best_speed(job: TraceJob) -> float:
    """Return the highest progress per second of a job on any placement, by the speed table.

    Some models run faster spread than consolidated (``physics``). A 1-GPU job cannot be spread.
    """
    return max(1.0, physics_of(job.model).spread_speed) if job.gpus > 1 else 1.0


def lower_bound_jct_s(
    jobs: Sequence[TraceJob], gpus: int, speed: Callable[[TraceJob], float] = unit_speed
) -> float:
    """Return a lower bound on the average job completion time, in seconds, on this many GPUs.

    A job holds exactly the GPUs it requests, or none, and progresses at most at ``speed``, which is
    ``best_speed`` if the speed table is on. Placement, restarts and polling are not counted; they
    can only add time. The bound is 0 without jobs. Raises ``ValueError`` if there is no GPU.
    """
    if gpus < 1:
        raise ValueError("a cluster needs at least one GPU")
    relaxed = _relaxed(jobs, gpus, speed)
    if not relaxed.releases_s:
        return 0.0
    # No job ends sooner than if it were alone on the cluster.
    alone_s = math.fsum(relaxed.durations_s)
    return max(alone_s, _in_turn_s(relaxed), _by_mean_dates_s(relaxed)) / len(jobs)


@dataclass(frozen=True, slots=True)
class _Relaxed:
    """Jobs on a single machine that stands for the whole cluster, ordered by release.

    ``durations_s`` are the durations on the requested GPUs, ``lengths_s`` those on all GPUs.
    """

    releases_s: list[float]
    durations_s: Numbers
    lengths_s: list[float]


def _relaxed(jobs: Sequence[TraceJob], gpus: int, speed: Callable[[TraceJob], float]) -> _Relaxed:
    rows = sorted(
        (job.submitted_s, job.duration_s / speed(job), job.gpus)
        for job in jobs
        if job.gpus * job.duration_s > 0
    )
    return _Relaxed(
        [release_s for release_s, _, _ in rows],
        np.array([duration_s for _, duration_s, _ in rows]),
        [duration_s * width / gpus for _, duration_s, width in rows],
    )


# Bounds on the sum of all completion times, each measured from the job's release


def _in_turn_s(jobs: _Relaxed) -> float:
    """The bound by shortest remaining time first, which is optimal on one machine."""
    ends_s = {number: end_s for number, _, end_s in _slices(jobs)}
    return math.fsum(end_s - jobs.releases_s[number] for number, end_s in ends_s.items())


def _by_mean_dates_s(jobs: _Relaxed) -> float:
    """The best bound found by mean dates, over choices of weights.

    A job's weight says how much its bound follows the time at which the machine does its work (1)
    or its duration (0). Any weights give a bound, which is concave in them. So the weights are
    moved along the supergradient in decreasing steps: up for a job whose work is done later than
    if it were alone, down for one whose work is done sooner.
    """
    weights = np.ones_like(jobs.durations_s)
    best_s = 0.0
    for round_ in range(_rounds(len(weights))):
        waits = _delays_s(jobs, weights) - jobs.durations_s / 2
        best_s = max(best_s, math.fsum(jobs.durations_s + weights * waits))
        steps = np.clip(waits / jobs.durations_s, -LARGEST_STEP, LARGEST_STEP) / (1 + round_)
        weights = np.clip(weights + steps, 0.0, 1.0)
    return best_s


def _rounds(jobs: int) -> int:
    return min(MOST_ROUNDS, max(FEWEST_ROUNDS, JOBS_WEIGHED // jobs))


def _delays_s(jobs: _Relaxed, weights: Numbers) -> Numbers:
    """The period from each release to the mean date of the job's work, with the least weighted sum.

    The sum is least if the job with the most weight per length always goes first.
    """
    lengths_s = jobs.lengths_s
    ranks = (-weights / lengths_s).tolist()
    delays_s = [0.0] * len(lengths_s)
    for number, from_s, to_s in _slices(jobs, ranks):
        share = (to_s - from_s) / lengths_s[number]
        delays_s[number] += share * ((from_s + to_s) / 2 - jobs.releases_s[number])
    return np.array(delays_s)


def _slices(
    jobs: _Relaxed, ranks: Sequence[float] | None = None
) -> Iterator[tuple[int, float, float]]:
    """Yield the schedule of one machine as (job number, from, to). The smallest rank runs first,
    with preemption.

    Without ranks, the job with the shortest remaining time runs first.
    """
    left_s = list(jobs.lengths_s)
    ranks = left_s if ranks is None else ranks
    waiting: list[tuple[float, int]] = []
    now_s = -math.inf
    for newcomer, release_s in enumerate((*jobs.releases_s, math.inf)):
        while waiting and now_s < release_s:
            number = waiting[0][1]
            end_s = now_s + left_s[number]
            if end_s > release_s:
                left_s[number] = end_s - release_s
                heapreplace(waiting, (ranks[number], number))
                end_s = release_s
            else:
                heappop(waiting)
            yield number, now_s, end_s
            now_s = end_s
        if newcomer < len(left_s):
            heappush(waiting, (ranks[newcomer], newcomer))
            now_s = max(now_s, release_s)
