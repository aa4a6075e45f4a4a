"""A managed job in the engine, with what was derived from its facts."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum, auto

from slurm_tiresias.core.cluster import EquivalenceClass
from slurm_tiresias.core.features.protection import Protected
from slurm_tiresias.core.job import Job
from slurm_tiresias.core.rank import UniqueRank
from slurm_tiresias.model import NOWHERE, Allocation, Reason, WorkAtStake


class Role(Enum):
    """The role of a job in the cluster state."""

    RUNS = auto()
    """A running managed job: a preemption candidate, protected or not."""
    HOLDS = auto()
    """A nominated job: its resources are booked, and it is not a preemption candidate."""
    WAITS = auto()
    STARTS = auto()
    """Chosen to start: its resources are booked until its owner says that it runs."""
    NONE = auto()


@dataclass(slots=True, eq=False)
class Entry:
    """What was derived when the job last changed."""

    job: Job
    rank: UniqueRank
    tier: int
    promoted: bool
    """Whether it is to be promoted now."""
    role: Role
    holds: Allocation = field(default_factory=lambda: NOWHERE)
    job_class: EquivalenceClass | None = None
    protections: tuple[Protected, ...] = ()
    at_stake: WorkAtStake | None = None
    leaves_because: Reason | None = None
    steady_until_s: float = math.inf
    """Its running time since its promotion beyond which its rank may be another."""
