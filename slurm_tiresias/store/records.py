"""The rows of the state database."""

from __future__ import annotations

import enum
import operator
from dataclasses import astuple, dataclass

from slurm_tiresias.core.lifecycle.preemption import Cause
from slurm_tiresias.model import EventRecord as EventRecord
from slurm_tiresias.model import RunRecord as RunRecord

LOST_PARTS = ("save", "leave", "again", "restart")
"""The parts of what a preemption loses."""


@dataclass(frozen=True, slots=True)
class RunProgressRecord:
    """The last report of a run that has ended: ``model.JobProgress`` as a row."""

    key: str
    restarts: int
    source: str
    state: str
    first_step: int
    step: int
    total: int | None
    reported_s: float
    advanced_s: float
    saved_step: int | None = None
    saved_s: float | None = None
    resumed_step: int | None = None
    step_s: float | None = None
    step_least_s: float | None = None
    step_most_s: float | None = None
    first_step_s: float | None = None
    save_every_s: float | None = None
    first_s: float | None = None
    asked_s: float | None = None
    saving_s: float | None = None
    longest_gap_s: float = 0.0


@dataclass(frozen=True, slots=True)
class PreemptionRecord:
    """The preemption of one run, for another job or for its idle GPUs.

    Unlike events, preemptions are kept as long as their job. ``at_s`` is when it was observed,
    ``run_start_s`` identifies the run, and ``signalled_s`` is when the victim was signalled and its
    grace began; the tiers are those of both jobs at that time. None means not known. ``late_s`` is
    by how much its own grace was longer than the site's.
    """

    key: str
    for_job: str
    at_s: float
    run_start_s: float | None = None
    signalled_s: float | None = None
    tier: int | None = None
    for_tier: int | None = None
    cause: Cause = Cause.FOR_JOB
    late_s: float = 0.0


class CostSource(enum.StrEnum):
    """The source of a preemption's cost, or why the cost is not known."""

    REPORTS = "reports"
    OUTPUT = "output"
    COMMENT = "comment"
    FOLDER = "folder"
    """The modification times in a checkpoint folder that the job names."""
    AWAITED = "awaited"
    """Not known yet: the job has not made a new step since."""
    SILENT = "silent"
    """Not known: the job does not report."""
    ENDED = "ended"
    """Not known: the job ended before it reported the step from which it resumed."""


UNKNOWN = (CostSource.AWAITED, CostSource.SILENT, CostSource.ENDED)


@dataclass(frozen=True, slots=True)
class PreemptionCost:
    """What the preemption of one run cost, as measured (``core/features/preemption_cost.py``).

    The run is the one that began at ``run_start_s``, after ``restarts`` restarts. ``at_s`` is when
    the preemption was observed, ``asked_s`` when the job was signalled, or requeued if there is no
    signal, and ``gone_s`` when its last process was gone. The four parts are seconds in which the
    GPUs were held and no new step was done; None if unknown.
    """

    key: str
    run_start_s: float
    restarts: int
    at_s: float
    asked_s: float
    gpus: int
    source: str = CostSource.AWAITED
    gone_s: float | None = None
    saved_s: float | None = None
    """When it last saved, according to its checkpoint folder."""
    save_s: float | None = None
    """The time to write the requested checkpoint."""
    leave_s: float | None = None
    """From the end of that save, or from the request if there was no save, until the last process
    was gone."""
    again_s: float | None = None
    """The work done before the request that had to be repeated."""
    restart_s: float | None = None
    """From the next start to the first new step, less one usual step."""
    answered_s: float | None = None
    """From the request to the end of the save that followed; None if there was none."""
    resumed_step: int | None = None
    """The step from which the job resumed."""
    steps_again: int | None = None
    """How many steps beyond that the run had done."""
    lost_all: bool = False
    """Whether the job resumed from the step at which the run had begun, or from an earlier one."""
    save_every_s: float | None = None
    """The usual time between two saves of that run."""

    @property
    def is_known(self) -> bool:
        return self.source not in UNKNOWN

    @property
    def lost_gpu_s(self) -> float:
        """GPU-seconds lost, as far as they are known."""
        parts_s = (self.save_s, self.leave_s, self.again_s, self.restart_s)
        return self.gpus * sum(part_s or 0.0 for part_s in parts_s)


@dataclass(frozen=True, slots=True)
class LostTotals:
    """The total losses of all preemptions in a period, as far as known."""

    lost_gpu_s: float
    """GPU-seconds lost in the ``measured`` ones."""
    measured: int
    not_yet: int
    """Number of preemptions whose cost is not known yet."""
    unknown: int
    """Number of preemptions whose cost cannot be known."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The total run time and service of an ended job, from which policies learn."""

    ended_s: float
    user: str
    name: str
    run_s: float
    service_gpu_s: float
    time_limit_s: float | None = None


@dataclass(frozen=True, slots=True)
class DrilledProgram:
    """A program (a user's jobs of one name) that passed a drill. Its name is untrusted."""

    user: str
    name: str
    at_s: float


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node that was drained on suspicion, or cleared of it."""

    name: str
    drained_s: float = 0.0
    is_drained: bool = False
    """Whether it has been out of service since then."""
    own_weight: int | None = None
    """Its weight in Slurm, kept while a suspect has another one."""
    cleared_s: float = 0.0
    """Runs that ended before this do not count against it."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """The number of rows that were removed, or would be."""

    jobs: int = 0
    runs: int = 0
    preemptions: int = 0
    events: int = 0

    def __add__(self, other: Pruned) -> Pruned:
        return Pruned(*map(operator.add, astuple(self), astuple(other)))

    def __bool__(self) -> bool:
        return bool(self.jobs or self.events)


@dataclass(frozen=True, slots=True)
class CompletedJob:
    """A job that has ended. ``ran_s`` is the sum over its runs, ``gpus`` the most of any run."""

    key: str
    submitted_s: float
    ended_s: float
    tier: int
    preemptions: int
    ran_s: float
    gpus: int

    @property
    def jct_s(self) -> float:
        """The job completion time, from the first submission to the end, in seconds."""
        return max(0.0, self.ended_s - self.submitted_s)

    @property
    def queued_s(self) -> float:
        """The part of ``jct_s`` in which the job did not run."""
        return max(0.0, self.jct_s - self.ran_s)
