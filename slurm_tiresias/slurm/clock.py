"""The offset between slurmctld's clock, which all of Slurm's times refer to, and this host's.

A wrong clock on this host falsifies some of Slurm's answers too: squeue computes how long a job
has run from the clock of the host on which squeue runs.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace

from slurm_tiresias.model import JobState, JobStatus
from slurm_tiresias.slurm.protocol import Observation
from slurm_tiresias.steady_clock import steady_s

log = logging.getLogger("tiresias-slurm")

SAME_S = 3.0
"""Clocks that differ by at most this are treated as equal: Slurm prints whole seconds."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment by this host's wall clock, which may be set, and by its steady clock."""

    clock_s: float
    steady_s: float

    @classmethod
    def now(cls) -> Moment:
        return cls(time.time(), steady_s())


class SlurmClock:
    """Tracks how far slurmctld's clock is ahead of this host's: ``ahead_s``, 0.0 if they agree."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def compare(self, began: Moment, shown_s: float) -> bool:
        """Update ``ahead_s`` from slurmctld's clock, as shown some time after ``began``.

        Returns False if this host's clock was set meanwhile; what was read since is then useless.
        """
        ended = Moment.now()
        took_s = ended.steady_s - began.steady_s
        if abs(ended.clock_s - began.clock_s - took_s) > SAME_S:
            return False
        earliest_s = began.clock_s + self.ahead_s - 1.0
        if earliest_s - SAME_S <= shown_s <= earliest_s + took_s + 1.0 + SAME_S:
            return True
        ahead_s = shown_s + 0.5 - (began.clock_s + took_s / 2)
        self.ahead_s = ahead_s if abs(ahead_s) > SAME_S else 0.0
        if self.ahead_s:
            way = "behind" if self.ahead_s > 0 else "ahead of"
            log.warning(
                "this host's clock is %.0f s %s slurmctld's, which counts; correct it",
                *(abs(self.ahead_s), way),
            )
        else:
            log.warning("this host's clock agrees with slurmctld's again")
        return True

    def applied(self, seen: Observation) -> Observation:
        """Return the observation with its times corrected to slurmctld's clock."""
        if not self.ahead_s:
            return seen
        at_s = seen.at_s + self.ahead_s
        return replace(seen, at_s=at_s, jobs=tuple(self._applied(job, at_s) for job in seen.jobs))

    def _applied(self, job: JobStatus, at_s: float) -> JobStatus:
        # For a suspended job slurmctld itself reports how long it has run.
        stands_still = job.slurm_state in ("SUSPENDED", "STOPPED")
        if job.state is not JobState.RUNNING or job.start_s is None or stands_still:
            return job
        # squeue shows no run time for a job that seems to start in the future.
        elapsed_s = min(job.elapsed_s + self.ahead_s, at_s - job.start_s)
        return replace(job, elapsed_s=max(0.0, elapsed_s))
