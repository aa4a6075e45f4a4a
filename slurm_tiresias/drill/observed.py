"""The observations of a job that was preempted on purpose: one ``DrillRun`` for each start."""

from __future__ import annotations

import enum
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field

from slurm_tiresias.drill.counters import Counter, Point


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
    orphaned_s: float | None = None
    """When the process that started it was seen to be gone, so that Slurm may not find it."""

    def on(self, number: int) -> Disposition:
        """Return what it does with this signal."""
        return self.dispositions.get(number, Disposition.DEFAULT)


@dataclass(frozen=True, slots=True)
class Save:
    """A save that the program announced, or a file that it was writing.

    ``step`` is None if unknown, ``began_s`` if its beginning was not seen, ``ended_s`` if it did
    not end. ``point`` is what was announced, in the program's own counting.
    """

    step: int | None
    began_s: float | None
    ended_s: float | None
    point: Point | None = None


@dataclass(frozen=True, slots=True)
class DrillRun:
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
    counters: Mapping[str, Counter] = field(default_factory=dict)
    claimed: tuple[Point, ...] = ()
    """The points at which it said that it resumed."""
    has_progress_file: bool = True
    by_plugin: bool = False
    """Whether the site's plugin gave it its progress file."""

    resumed_step: int | None = None
    """Where it began: as it said, if its steps agree, and otherwise before its first step. This
    and the following are filled in by ``in_steps``, which selects the counter."""
    claimed_step: int | None = None
    """Where it said that it resumed, if its steps agree."""
    counts_done: bool = False
    """Whether that is exact: the number of steps that were done, by its reports."""
    first_step: int | None = None
    """The first step that was seen."""
    first_step_s: float | None = None
    last_step: int | None = None
    every: int | None = 1
    """The steps between two that are seen; None if unknown."""
    saves: tuple[Save, ...] = ()
    deleted: str = ""
    """A file that it deleted after it was told to save, and that did not come back."""
    emptied: str = ""
    """The log that its start emptied: its output, or a file of its own."""
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
        return process.direct or (self.reaches_all and not self.is_orphan(process))

    def is_orphan(self, process: Process) -> bool:
        """Whether the process had lost its parent before SIGTERM came, not because of it."""
        orphaned_s, since_s = process.orphaned_s, self.since_s
        return orphaned_s is not None and (since_s is None or orphaned_s < since_s)

    @property
    def told_s(self) -> float | None:
        """When the job was first told to save."""
        told = [at_s for at_s in (self.signal_s, self.term_s) if at_s is not None]
        return min(told, default=None)

    @property
    def since_s(self) -> float | None:
        """The earliest time at which a signal can have come to a process.

        The watcher gets SIGTERM a little later than the program, which may have saved by then.
        """
        sent = [at_s for at_s in (self.signal_s, self.requeued_s) if at_s is not None]
        return min(sent, default=self.term_s)

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


class TrialKind(enum.StrEnum):
    """When the job is preempted."""

    START_UP = "start-up"
    STEP = "step"
    SAVE = "save"
    TWICE = "twice"


MOMENTS = {
    TrialKind.START_UP: "during start-up",
    TrialKind.STEP: "in a step",
    TrialKind.SAVE: "during a save",
    TrialKind.TWICE: "twice in a row",
}


@dataclass(frozen=True, slots=True)
class Trial:
    """One preemption, or two in a row: the runs that were preempted, and the run that followed."""

    kind: TrialKind
    runs: tuple[DrillRun, ...]
    after: DrillRun | None = None
    before: tuple[DrillRun, ...] = ()
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
    left: tuple[str, ...] = ()
    """New files in the job's folder that have its id in their names. The drill made none of
    them."""
    unit: str = "step"
    """What the steps of the trials are: steps, or epochs if nothing else was seen."""

    @property
    def runs(self) -> tuple[DrillRun, ...]:
        """All runs, each once."""
        found: dict[int, DrillRun] = {}
        for trial in self.trials:
            last = (trial.after,) if trial.after else ()
            found |= {run.number: run for run in (*trial.before, *trial.runs, *last)}
        return tuple(found[number] for number in sorted(found))

    @property
    def only_nodes(self) -> tuple[str, ...]:
        """The nodes of the job if each start was on the same ones; otherwise none."""
        nodes = {tuple(sorted(run.nodes)) for run in self.runs if run.nodes}
        return nodes.pop() if len(nodes) == 1 else ()
