"""Which jobs may use the interactive lane.

A job that Slurm cannot requeue (salloc, srun, ``--no-requeue``) can never be preempted. A job at a
prompt goes first in the top tier as long as its user stays within a bound: GPUs at a time, and GPU
hours in any 24 (``[interactive]``). Any other job that cannot be requeued may use idle GPUs only,
and ranks by the most that it may use before its GPUs become free again: GPUs x time limit.

The bound counts what jobs may use by their time limits, so it holds whatever happens to them later.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from slurm_tiresias.settings.interactive import InteractiveConfig

WINDOW_S: Final = 86_400.0
"""The window over which the GPU hours of a user are counted."""


class LaneUse(NamedTuple):
    """A user's share of the lane: GPUs now, and the service of the last ``WINDOW_S`` plus what
    running jobs may still use."""

    gpus: int = 0
    service_gpu_s: float = 0.0

    def plus(self, gpus: int, service_gpu_s: float) -> LaneUse:
        return LaneUse(self.gpus + gpus, self.service_gpu_s + service_gpu_s)


@dataclass(frozen=True, slots=True)
class Applicant:
    """A job at a prompt that waits and could start."""

    key: str
    user: str
    gpus: int
    time_limit_s: float | None
    whole_nodes: bool
    """Whether it takes whole nodes, so that it may hold more GPUs than it requests."""
    in_lane: bool
    """Whether it was admitted before."""
    order: tuple[float, ...]
    """Sort key: the order of submission."""


def most_service_gpu_s(gpus: int, time_limit_s: float | None) -> float:
    """Return the service that a job may attain in one run."""
    return gpus * (math.inf if time_limit_s is None else time_limit_s)


def used_gpu_s(
    gpus: int, since_s: float, until_s: float, now_s: float, window_s: float = WINDOW_S
) -> float:
    """Return the part of a run's service from ``since_s`` to ``until_s`` that counts: the part
    after the beginning of the window that ends now."""
    return gpus * max(0.0, until_s - max(since_s, now_s - window_s))


def why_refused(
    applicants: Iterable[Applicant], use: Mapping[str, LaneUse], config: InteractiveConfig
) -> Mapping[str, str]:
    """Return for each job at a prompt why it is not in the lane, in words; "" if it is.

    Parameters
    ----------
    applicants
        The jobs that wait. Those admitted before keep their places; the others follow in the order
        of their submission.
    use
        By user, what jobs have of the lane that run or have run. Users without any may be missing.
    config
        The bound.
    """
    taken = dict(use)
    refused: dict[str, str] = {}
    for one in sorted(applicants, key=lambda one: (not one.in_lane, one.order)):
        of_user = taken.get(one.user, LaneUse())
        why = refused[one.key] = _why_refused(one, of_user, config)
        if not why:
            most_gpu_s = most_service_gpu_s(one.gpus, one.time_limit_s)
            taken[one.user] = of_user.plus(one.gpus, most_gpu_s)
    return refused


def _why_refused(one: Applicant, use: LaneUse, config: InteractiveConfig) -> str:
    if config.gpus_per_user == 0:
        return "jobs at a prompt have no lane on this site (interactive.gpus_per_user is 0)"
    if one.whole_nodes:
        return "jobs at a prompt that take whole nodes (--exclusive) have no lane"
    if one.gpus > config.gpus_per_user:
        return (
            f"a user has at most {config.gpus_per_user} at a prompt that go first "
            "(interactive.gpus_per_user): ask for fewer GPUs"
        )
    if use.gpus + one.gpus > config.gpus_per_user:
        return (
            f"its user's other jobs at a prompt have {use.gpus} of the {config.gpus_per_user} that "
            "go first (interactive.gpus_per_user)"
        )
    left_gpu_s = config.gpu_hours_per_user * 3600.0 - use.service_gpu_s
    if most_service_gpu_s(one.gpus, one.time_limit_s) <= left_gpu_s:
        return ""
    minutes = max(0, math.floor(left_gpu_s / one.gpus / 60.0))
    hours = f"{config.gpu_hours_per_user:g} GPU hours in 24 hours (interactive.gpu_hours_per_user)"
    if minutes == 0:
        return f"its user's jobs at a prompt have used up {hours}"
    limit = "has no time limit" if one.time_limit_s is None else "may run for too long"
    return f"it {limit}, and its user has {hours}: ask for --time={minutes} or less"
