"""What a policy says of a job: its standing among all others."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from slurm_tiresias.model import Job

Key = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a job stands. Smaller is better everywhere.

    ``level`` is the preemption class: a job may take GPUs only from jobs of a strictly larger
    level. ``order`` ranks jobs of one level. ``tier`` is what people see and what Slurm's
    priority bands follow; for a discretized policy level and tier are the same thing.
    """

    level: Key
    order: Key
    tier: int


class Policy(Protocol):
    """A scheduling policy: pure, and total on every job."""

    def standing(self, job: Job) -> Standing: ...


def job_id_key(job_id: str) -> Key:
    """Job ids as numbers, so that 9 comes before 10 and task 12_9 before 12_10."""
    return tuple(float(number) for number in re.findall(r"\d+", job_id))
