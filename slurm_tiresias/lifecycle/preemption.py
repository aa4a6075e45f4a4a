"""Preemption: one running job makes room for a nominated one.

    none --Planned--> PLANNED --PreemptorTried--> SIGNALLED --GraceOver--> REQUEUE_SENT
                         ^                            |                    |     |
                         +--SignalRefused, Unanswered-+    GraceOver again +     | Requeued
                                                                                 v
                                             none <--Resumed, Running-- REQUEUED

A preemption is abandoned (no state is left of it) when its preemptor waits no longer, when Slurm
refuses the signal ``MAX_SIGNAL_REFUSALS`` times or the requeue once, or when the victim ends or
leaves by itself. A job that was requeued by others is no preemption. Pure: no I/O and no clock.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

MAX_SIGNAL_REFUSALS = 3
"""How often a victim is sent its checkpoint signal, once a cycle, while Slurm refuses it."""


class PreemptionState(enum.StrEnum):
    """How far a preemption has come."""

    PLANNED = "planned"
    """The victim has heard nothing yet."""
    SIGNALLED = "signalled"
    """The victim was asked to save its state, and its grace runs."""
    REQUEUE_SENT = "requeue-sent"
    """The requeue was sent to Slurm, and has not been seen yet."""
    REQUEUED = "requeued"
    """The victim waits for Slurm's own delay after a requeue."""


@dataclass(frozen=True, slots=True)
class Preemption:
    """The preemption of one job that is under way. ``refusals``: of its signal, in a row."""

    key: str
    state: PreemptionState
    preemptor: str
    signalled_s: float | None = None
    requeue_sent_s: float | None = None
    refusals: int = 0

    @property
    def is_leaving(self) -> bool:
        """Whether the victim has been signalled and still runs."""
        return self.state in (PreemptionState.SIGNALLED, PreemptionState.REQUEUE_SENT)

    @property
    def makes_room(self) -> bool:
        """Whether the victim's GPUs are to be its preemptor's, and are not yet."""
        return self.state is not PreemptionState.REQUEUED


# Events


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan preempts the job."""

    preemptor: str


@dataclass(frozen=True, slots=True)
class PreemptorTried:
    """Slurm has tried to start the preemptor, and found that it lacks nothing but room."""

    at_s: float


@dataclass(frozen=True, slots=True)
class SignalHeard:
    """Slurm has sent the checkpoint signal."""


@dataclass(frozen=True, slots=True)
class SignalRefused:
    """Slurm refused the checkpoint signal, in these words."""

    at_s: float
    signal: str
    words: str


@dataclass(frozen=True, slots=True)
class SignalUnanswered:
    """It is not known whether the victim has heard the signal: it may hear it twice."""


@dataclass(frozen=True, slots=True)
class GraceOver:
    """The victim's grace is over, and it runs still. ``allow_requeue``: its owner has forbidden
    Slurm to requeue it since it started."""

    at_s: float
    allow_requeue: bool


@dataclass(frozen=True, slots=True)
class RequeueRefused:
    """Slurm refused the requeue."""


@dataclass(frozen=True, slots=True)
class Requeued:
    """The victim was seen to have been requeued. ``by_others``: before our requeue reached it."""

    at_s: float
    by_others: bool


@dataclass(frozen=True, slots=True)
class NotRunning:
    """The job does not run, and has not been requeued by us since it did."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The job is over."""


@dataclass(frozen=True, slots=True)
class Running:
    """The job runs again."""


@dataclass(frozen=True, slots=True)
class StartDelayed:
    """The requeued job still waits for Slurm's own delay."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """The requeued job waits for its turn like any other."""


@dataclass(frozen=True, slots=True)
class PreemptorGone:
    """The preemptor has no nomination any more, or waits no longer.

    A victim that does not run after a requeue was sent (``victim_runs``) has left by that, though
    its row cannot be read for now: the requeue is yet to be counted.
    """

    victim_runs: bool


@dataclass(frozen=True, slots=True)
class StoodDown:
    """The controller acts no more. A requeue that has been sent takes its course."""


PreemptionEvent = (
    Planned
    | PreemptorTried
    | SignalHeard
    | SignalRefused
    | SignalUnanswered
    | GraceOver
    | RequeueRefused
    | Requeued
    | NotRunning
    | Ended
    | Running
    | StartDelayed
    | Resumed
    | PreemptorGone
    | StoodDown
)


# Effects


@dataclass(frozen=True, slots=True)
class SendSignal:
    """Send the victim its checkpoint signal."""


@dataclass(frozen=True, slots=True)
class SendRequeue:
    """Requeue the victim, and ``allow`` that first where its owner has forbidden it."""

    allow: bool


@dataclass(frozen=True, slots=True)
class SetStartTime:
    """Tell Slurm that the requeued job may start at once."""


@dataclass(frozen=True, slots=True)
class NoteSignalRefused:
    """Tell that Slurm refused the signal."""

    at_s: float
    text: str
    preemptor: str


@dataclass(frozen=True, slots=True)
class BackOff:
    """The preemptor is not to be waited for any longer."""

    at_s: float
    preemptor: str
    why: str


@dataclass(frozen=True, slots=True)
class CountPreemption:
    """The victim was preempted: remember by whom and what it cost."""

    at_s: float
    of: Preemption


PreemptionEffect = (
    SendSignal | SendRequeue | SetStartTime | NoteSignalRefused | BackOff | CountPreemption
)
PreemptionEffects = tuple[PreemptionEffect, ...]


def transition(
    key: str, current: Preemption | None, event: PreemptionEvent
) -> tuple[Preemption | None, PreemptionEffects]:
    """The preemption of a job after an event, None where none is under way, and its effects.

    An event that does not concern the present state changes nothing.
    """
    if current is None or isinstance(event, Ended):
        if isinstance(event, Planned):
            return Preemption(key, PreemptionState.PLANNED, event.preemptor), ()
        return None, ()
    if current.state is PreemptionState.REQUEUED:
        return _after_requeue(current, event)
    return _before_requeue(current, event)


def _after_requeue(
    current: Preemption, event: PreemptionEvent
) -> tuple[Preemption | None, PreemptionEffects]:
    match event:
        case StartDelayed():
            return current, (SetStartTime(),)
        case Resumed() | Running():
            return None, ()
        case Planned(preemptor):
            return Preemption(current.key, PreemptionState.PLANNED, preemptor), ()
        case _:
            return current, ()


def _before_requeue(
    current: Preemption, event: PreemptionEvent
) -> tuple[Preemption | None, PreemptionEffects]:
    match event:
        case PreemptorGone(victim_runs):
            left = current.state is PreemptionState.REQUEUE_SENT and not victim_runs
            return (current if left else None), ()
        case RequeueRefused() | NotRunning():
            return None, ()
        case StoodDown():
            sent = current.state is PreemptionState.REQUEUE_SENT
            return (current if sent else None), ()
        case Requeued(at_s, by_others):
            if by_others or current.requeue_sent_s is None:
                return None, ()
            requeued = Preemption(current.key, PreemptionState.REQUEUED, current.preemptor)
            return requeued, (CountPreemption(at_s, current),)
        case PreemptorTried(at_s) if current.state is PreemptionState.PLANNED:
            signalled = replace(current, state=PreemptionState.SIGNALLED, signalled_s=at_s)
            return signalled, (SendSignal(),)
        case GraceOver(at_s, allow) if current.is_leaving:
            sent_again = replace(current, state=PreemptionState.REQUEUE_SENT, requeue_sent_s=at_s)
            return sent_again, (SendRequeue(allow),)
        case SignalHeard() | SignalUnanswered() | SignalRefused() if (
            current.state is PreemptionState.SIGNALLED
        ):
            return _signal_answered(current, event)
        case _:
            return current, ()


def _signal_answered(
    current: Preemption, event: SignalHeard | SignalUnanswered | SignalRefused
) -> tuple[Preemption | None, PreemptionEffects]:
    if isinstance(event, SignalHeard):
        return replace(current, refusals=0), ()
    # Its grace has not begun.
    planned = replace(current, state=PreemptionState.PLANNED, signalled_s=None)
    if isinstance(event, SignalUnanswered):
        return planned, ()
    note = NoteSignalRefused(event.at_s, f"{event.signal}: {event.words}", current.preemptor)
    if current.refusals + 1 < MAX_SIGNAL_REFUSALS:
        return replace(planned, refusals=current.refusals + 1), (note,)
    # Its work would be lost.
    why = f"job {current.key} cannot be told to save its state ({event.words})"
    return None, (note, BackOff(event.at_s, current.preemptor, why))


def shifted(preemption: Preemption, by_s: float) -> Preemption:
    """The preemption after slurmctld's clock was set by so many seconds."""

    def moved(at_s: float | None) -> float | None:
        return None if at_s is None else at_s + by_s

    return replace(
        preemption,
        signalled_s=moved(preemption.signalled_s),
        requeue_sent_s=moved(preemption.requeue_sent_s),
    )
