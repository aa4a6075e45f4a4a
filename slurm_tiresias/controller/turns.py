"""Which of several jobs that share a limit, such as a licence or a QOS limit, may preempt now.

For Slurm each of them lacks only resources, until one has started and the limit is reached for the
others. The victims of those others would have lost their work for nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from slurm_tiresias.model import JobSpec
from slurm_tiresias.slurm.protocol import Limit


@dataclass(frozen=True, slots=True)
class Awaited:
    """The limit that a job waits for, and the jobs that must start before it."""

    limit: str
    others: frozenset[str]


@dataclass(slots=True)
class Turns:
    """The jobs that may preempt ``now``, and those that must wait for others to start first.

    A job whose limit is already reached is in neither set: Slurm will name the limit when it tries
    the job.
    """

    now: set[str] = field(default_factory=set)
    later: dict[str, Awaited] = field(default_factory=dict)


def turns(
    in_order: Iterable[JobSpec], ready: Collection[str], limits: Mapping[str, Sequence[Limit]]
) -> Turns:
    """Decide which of the jobs that are ``ready`` to preempt may do so now.

    ``in_order`` has these and all other jobs that are about to start, in Slurm's order: a limit
    must have room for a job and for all before it. ``ready`` and ``limits`` are by job key.
    """
    found = Turns()
    takers: dict[str, dict[str, float]] = {}
    for job in in_order:
        mine = limits.get(job.key, ())
        if job.key in ready:
            if any(limit.is_reached for limit in mine):
                continue
            too_tight = (
                Awaited(limit.name, frozenset(others))
                for limit in mine
                if (others := takers.get(limit.name))
                and sum(others.values()) + limit.takes_at_most > limit.left
            )
            if awaited := next(too_tight, None):
                found.later[job.key] = awaited
                continue
            found.now.add(job.key)
        for limit in mine:
            takers.setdefault(limit.name, {})[job.key] = limit.takes_at_most
    return found
