"""The least average job completion time that any schedule can reach: a yardstick for all policies.

It holds even for a scheduler that knows every duration and every arrival to come and preempts for
free. It may be out of reach. ``docs/lower-bound.md`` has the proof.
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
"""The search for the best weights goes over all jobs again and again, and each round gives less:
200 rounds up to 8,000 jobs, fewer for more, 20 from 80,000."""

LARGEST_STEP = 3.0
"""Keeps one job that waits a thousand times its duration from losing its weight in one step."""


def unit_speed(_: TraceJob) -> float:
    """Progress per second where placement changes nothing."""
    return 1.0


def best_speed(job: TraceJob) -> float:
    """The most progress per second that the speed table grants the job on any placement.

    Some models run faster spread than consolidated (``physics``). A job of one GPU cannot be
    spread.
    """
    return max(1.0, physics_of(job.model).spread_speed) if job.gpus > 1 else 1.0


def lower_bound_jct_s(
    jobs: Sequence[TraceJob],
    gpus: int,
    speed: Callable[[TraceJob], float] = unit_speed,
) -> float:
    """The average job completion time, in seconds, that no schedule on so many GPUs goes below.

    A job holds exactly the GPUs it asks for, or none; it progresses at most at ``speed``, which
    is ``best_speed`` where the speed table is on. Placement, restarts and polling only add to
    what is counted here. The bound is 0 for no jobs; ``ValueError`` if there is no GPU.
    """
    if gpus < 1:
        raise ValueError("a cluster needs at least one GPU")
    relaxed = _relaxed(jobs, gpus, speed)
    if not relaxed.releases_s:
        return 0.0
    # No job is over sooner than if it were alone on the cluster.
    alone_s = math.fsum(relaxed.durations_s)
    return max(alone_s, _in_turn_s(relaxed), _by_mean_dates_s(relaxed)) / len(jobs)


@dataclass(frozen=True, slots=True)
class _Relaxed:
    """Jobs on one machine that is the whole cluster, by their release.

    ``durations_s`` are those on the GPUs that a job asks for, ``lengths_s`` those on all GPUs.
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


# Bounds on the sum of all completion times, each counted from the job's own release


def _in_turn_s(jobs: _Relaxed) -> float:
    """On one machine nothing beats shortest remaining time first."""
    ends_s = {number: end_s for number, _, end_s in _slices(jobs)}
    return math.fsum(end_s - jobs.releases_s[number] for number, end_s in ends_s.items())


def _by_mean_dates_s(jobs: _Relaxed) -> float:
    """The best that is found of the bounds by mean dates, one for each choice of weights.

    A weight says how far a job is bounded by when the machine can do its work, and how far by its
    duration. Every choice gives a bound, and the bound is concave in the weights. So they are
    moved, in steps ever smaller, along the supergradient: up for a job whose work is done later
    than if it were alone, down for one whose work is done sooner.
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
    """From each release to the mean date of the job's work, on the machine that keeps them least.

    Their sum by weight is least where the job of most weight per length always goes first.
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
    """What one machine does when: a job's number, from, to. It preempts by rank, smallest first.

    Without ranks, the job of which least is left goes first.
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
