"""How the programs of a workload save, and therefore how much work preemptions make them repeat."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from slurm_tiresias.core.features.program_costs import Measured
from slurm_tiresias.model import JobProgress, ProgressSource
from slurm_tiresias.simulator.workload import TraceJob

ON_REQUEST_S = 0.0
"""The save interval of programs that save on request: a preemption loses no work."""

NEVER_S = math.inf

LOSSLESS = "all save when asked to, so that preemption loses no work"


@dataclass(frozen=True, slots=True)
class SaveModel:
    """The save intervals of programs, and how many of them report their saves.

    A program is the set of a user's jobs with one name; a job without a name is its own program.
    """

    shares: tuple[tuple[float, float], ...]
    """(save interval in seconds, share of the programs); the shares add up to 1."""
    told: float = 1.0
    """Share of the programs whose jobs report their saves."""
    seed: int = 0
    """Selects which programs save how."""

    def __str__(self) -> str:
        kinds = ", ".join(f"{100 * share:g} % {_words(every_s)}" for every_s, share in self.shares)
        if self.told <= 0:
            return f"{kinds}; none says when"
        silent = f"; {100 * (1 - self.told):g} % do not say when" if self.told < 1 else ""
        return f"{kinds}{silent}"

    def as_record(self) -> dict[str, Any]:
        """Return the model for programs; a save interval of None means that they never save."""
        shares = [
            {"every_s": None if every_s == NEVER_S else every_s, "share": share}
            for every_s, share in self.shares
        ]
        return {"shares": shares, "told": self.told}

    def every_s(self, job: TraceJob) -> float:
        """Return the save interval of a job: ``ON_REQUEST_S``, ``NEVER_S`` or seconds."""
        ends = list(accumulate(share for _, share in self.shares))
        drawn = _drawn(f"saves{self.seed or ''}", job) * ends[-1]
        return self.shares[min(bisect_right(ends, drawn), len(self.shares) - 1)][0]

    def tells(self, job: TraceJob) -> bool:
        """Whether a job reports its saves."""
        return _drawn(f"tells{self.seed or ''}", job) < self.told


PESSIMISTIC = SaveModel(((ON_REQUEST_S, 0.4), (1800.0, 0.4), (NEVER_S, 0.2)), told=0.0)
"""The default assumption: none of the jobs tells the controller how much a preemption loses."""


def reported(
    restarts: int, now_s: float, first_s: float, saved_s: float | None, save_every_s: float
) -> JobProgress:
    """Return what a running job reports of its saves. That it makes progress from ``first_s`` on is
    known at its start."""
    return JobProgress(
        restarts=restarts,
        source=ProgressSource.REPORTS,
        state="running",
        first_step=0,
        step=0,
        total=None,
        reported_s=now_s,
        advanced_s=now_s,
        quiet_after_s=math.inf,
        first_s=first_s,
        saved_s=saved_s,
        save_every_s=regular_s(save_every_s),
    )


def measured(
    restart_s: float, unsaved_s: float, saved_s: float | None, save_every_s: float
) -> Measured:
    """Return what a preemption cost that lost ``unsaved_s`` of work; ``saved_s`` is when the run
    last saved, None if it has not."""
    return Measured(
        restart_s=restart_s,
        unsaved_s=unsaved_s,
        save_every_s=regular_s(save_every_s),
        lost_all=save_every_s > ON_REQUEST_S and saved_s is None,
        saved=save_every_s == ON_REQUEST_S,
    )


def regular_s(save_every_s: float) -> float | None:
    """Return the time between two saves; None if a program does not save at intervals."""
    return save_every_s if ON_REQUEST_S < save_every_s < NEVER_S else None


def _drawn(what: str, job: TraceJob) -> float:
    """Return a number from 0 up to 1 that depends on the program only."""
    program = f"{job.user}:{job.name}" if job.name else job.job_id
    return random.Random(f"{what}:{program}").random()


def _words(every_s: float) -> str:
    if every_s == ON_REQUEST_S:
        return "save when asked to"
    if every_s == NEVER_S:
        return "never save"
    return f"save every {every_s / 60:g} minutes"
