"""The observations of a job that was preempted on purpose: one ``Run`` for each start."""

from __future__ import annotations

import enum
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field


class Disposition(enum.StrEnum):
    """What a process does with a signal."""

    HANDLER = "handler"
    BLOCKED = "blocked"
    """The signal is accepted by sigwait when the process asks for it, or by another thread."""
    IGNORED = "ignored"
    DEFAULT = "default"
    """The signal kills the process."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process of the job, as it was when the signal came. Times are by the clock of its node."""

    node: str
    pid: int
    start: int
    """Its start, in ticks since its node was booted; identifies the process together with
    ``pid``."""
    parent: int
    command: str
    direct: bool
    """Whether Slurm itself started it: the batch script, or a task of srun."""
    dispositions: Mapping[int, Disposition]
    cpu_s: float = 0.0
    reports: bool = False
    """Whether it has the job's progress file open."""
    gone_s: float | None = None
    orphaned: bool = False
    """Whether the process that started it is gone, so that Slurm may not find it."""

    def on(self, number: int) -> Disposition:
        """Return what it does with this signal."""
        return self.dispositions.get(number, Disposition.DEFAULT)


@dataclass(frozen=True, slots=True)
class Save:
    """A save. ``step`` is None if unknown, ``began_s`` if its beginning was not seen, ``ended_s``
    if it did not end."""

    step: int | None
    began_s: float | None
    ended_s: float | None


@dataclass(frozen=True, slots=True)
class Run:
    """One start of the job until it left its nodes. Times in seconds since 1970."""

    number: int
    nodes: tuple[str, ...] = ()
    started_s: float = 0.0
    processes: tuple[Process, ...] = ()
    signal: int = 0
    """The checkpoint signal that was sent before the requeue; 0 for none."""
    signal_s: float | None = None
    asked: bool = False
    """Whether that signal asked a run to save that had announced that it saves on request, and
    would otherwise get no signal."""
    answered_s: float | None = None
    """When its record showed a save that answers the signal."""
    requeued_s: float | None = None
    term_s: float | None = None
    """When SIGTERM came."""
    reaches_all: bool = True
    """Whether Slurm's SIGTERM reaches more than the processes that Slurm itself started."""
    again_s: float | None = None
    """When the drill sent the signal again, in the middle of a save."""
    last_gone_s: float | None = None
    killed: bool = False
    """Whether SIGKILL ended it: some of its processes existed until then."""
    resumed_step: int | None = None
    resume_is_guess: bool = False
    """Whether the step follows from the first step that was seen."""
    first_step: int | None = None
    first_step_s: float | None = None
    last_step: int | None = None
    saves: tuple[Save, ...] = ()
    output_emptied: bool = False
    logs: frozenset[str] = frozenset()
    """The log files that were written in this run, by path."""
    trackers: frozenset[tuple[str, str]] = frozenset()
    """The runs of experiment trackers that it wrote to: the tracker, and the run's id."""
    ended: str = ""
    """The state in which the job ended by itself, such as FAILED; "" if it was requeued."""
    exit_code: str = ""
    finished: bool = False
    """Whether it reported that all of its steps are done."""

    def reaches(self, process: Process) -> bool:
        """Whether Slurm's signal reached this process."""
        return process.direct or (self.reaches_all and not process.orphaned)

    @property
    def told_s(self) -> float | None:
        """When the job was first told to save."""
        told = [at_s for at_s in (self.signal_s, self.term_s) if at_s is not None]
        return min(told, default=None)

    @property
    def told_by(self) -> int:
        """The signal that it must handle: the first, but not the one that only asks it to save."""
        return signal.SIGTERM if self.asked else self.signal or signal.SIGTERM

    @property
    def told_by_s(self) -> float | None:
        """When that signal came; None if it has not."""
        return self.term_s if self.asked else self.told_s


@dataclass(frozen=True, slots=True)
class Survivor:
    """A process of a run that still existed after the job had left its node."""

    run: int
    node: str
    pid: int
    command: str
    gpu_bytes: int = 0


class Kind(enum.StrEnum):
    """When the job is preempted."""

    START_UP = "start-up"
    STEP = "step"
    SAVE = "save"
    TWICE = "twice"


@dataclass(frozen=True, slots=True)
class Trial:
    """One preemption, or two in a row: the runs that were preempted, and the run that followed."""

    kind: Kind
    runs: tuple[Run, ...]
    after: Run | None = None
    before: tuple[Run, ...] = ()
    """All runs before these."""
    survivors: tuple[Survivor, ...] = ()
    trouble: str = ""
    """Why the trial could not be carried out; "" if it was."""


@dataclass(frozen=True, slots=True)
class Drill:
    """Everything that was observed in one drill."""

    job_id: str
    kill_wait_s: float
    signal: str
    """The checkpoint signal set by the site or the job, without SIG; "" for none."""
    grace_s: float
    trials: tuple[Trial, ...] = field(default=())
    unwatched_nodes: tuple[str, ...] = ()
    """Nodes on which leftover processes could not be looked for."""
    last_lines: tuple[str, ...] = ()
    """The last lines of the job's output."""
    removed: tuple[str, ...] = ()
    """Files named by the job's id, which the drill has removed."""
