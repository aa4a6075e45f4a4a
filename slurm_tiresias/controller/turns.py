"""Who may preempt now of several jobs that share a limit: a licence, say, or a bound of their QOS.

Slurm finds of each of them that it lacks nothing but room, until one has started and the limit is
reached for the others. What was preempted for those would have lost its work for nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from slurm_tiresias.model import JobSpec
from slurm_tiresias.slurm.protocol import Limit


@dataclass(frozen=True, slots=True)
class Awaited:
    """The limit for which a job waits, and the jobs that are to start first."""

    limit: str
    others: frozenset[str]


@dataclass(slots=True)
class Turns:
    """Whose turn it is, by key, and which jobs wait for others to start first.

    Jobs whose limits are reached are neither: Slurm will say so when it looks at them.
    """

    now: set[str] = field(default_factory=set)
    later: dict[str, Awaited] = field(default_factory=dict)


def turns(
    in_order: Iterable[JobSpec], ready: Collection[str], limits: Mapping[str, Sequence[Limit]]
) -> Turns:
    """Whose turn it is of the jobs that are ``ready`` to preempt, by key.

    ``in_order`` are these and all others that are about to start, the first in the queue first: a
    limit must have room for a job and for all before it.
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
