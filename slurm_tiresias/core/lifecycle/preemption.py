"""Preemption: one running job makes room for a nominated one, or leaves GPUs of which it makes no
use.

    none --Planned--> PLANNED --PreemptorTried--> SIGNALLED --------GraceOver---> REQUEUE_SENT
                         ^                           |  |                         |     |
                         +--SignalRefused, Unanswered+  |         GraceOver again +     | Requeued
                                                        |                               v
                                                        +---Requeued, by itself--> REQUEUED
                                                                                        |
                                                    none <------Resumed, Running--------+

A victim's own grace ends when it has ``Saved``, or at a time that is fixed when it is signalled.
``GraceOver`` comes once that holds for all victims of the preemptor.

Many programs requeue themselves when they get their signal. That is the end of a preemption as much
as our requeue is: it counts, and is charged to the preemptor. If that is gone after the signal, the
preemption is called off, and still counts if the victim requeues itself in its own grace:

    SIGNALLED, REQUEUE_SENT --PreemptorGone--> CALLED_OFF --Requeued, by itself--> REQUEUED
                                                  |  |
                  none <--------SignalExpired-----+  +--Planned, for another--> PLANNED

``Cause`` says why. A preemption of a job that leaves its GPUs idle or hangs has no preemptor:
``Leaves`` plans it, ``StillLeaves`` takes the place of ``PreemptorTried``, and ``Spared`` that of
``PreemptorGone``. If the plan preempts such a victim for another job meanwhile, a preemption for
that job begins.

A preemption is abandoned (its state is removed) when its preemptor no longer waits and the victim
has got no signal, when the victim uses a GPU again, when Slurm refuses the signal
``MAX_SIGNAL_REFUSALS`` times or the requeue once, or when the victim ends, or leaves before its
signal or because its node failed.
Pure: no I/O and no clock.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from slurm_tiresias.model import Reason

MAX_SIGNAL_REFUSALS = 3
"""How often a victim is sent its checkpoint signal, once a cycle, if Slurm refuses it."""


class PreemptionState(enum.StrEnum):
    """How far a preemption has come."""

    PLANNED = "planned"
    """The victim has not been signalled."""
    SIGNALLED = "signalled"
    """The victim was sent its checkpoint signal, and its grace has begun."""
    REQUEUE_SENT = "requeue-sent"
    """The requeue was sent to Slurm, but Slurm does not show it yet."""
    REQUEUED = "requeued"
    """The victim was requeued, and waits for Slurm's own delay."""
    CALLED_OFF = "called-off"
    """The preemptor is gone, but the victim may still requeue itself on its signal."""


class Cause(enum.StrEnum):
    """Why a job is preempted."""

    FOR_JOB = "for-job"
    """Another job, its preemptor, is to start on its GPUs."""
    IDLE_GPUS = "idle-gpus"
    """Its GPUs have long been idle. No other job needs to wait for them."""
    HUNG = "hung"
    """It has made no step for unusually long. No other job needs to wait for its GPUs."""


OWN_CAUSES: Final[Mapping[Reason, Cause]] = {
    Reason.IDLE_GPUS: Cause.IDLE_GPUS,
    Reason.HUNG: Cause.HUNG,
}
"""The causes without a preemptor, by the reasons of decisions."""


@dataclass(frozen=True, slots=True)
class Preemption:
    """A preemption under way. ``refusals`` counts consecutive refusals of the signal.

    ``grace_until_s`` is the end of the victim's own grace; the other victims of its preemptor may
    still be in theirs.
    """

    SHIFTED: ClassVar = ("signalled_s", "requeue_sent_s", "grace_until_s")

    key: str
    state: PreemptionState
    preemptor: str
    """Empty unless the cause is ``FOR_JOB``."""
    signalled_s: float | None = None
    """Also set in ``PLANNED`` if the victim may have got a signal that Slurm has not answered."""
    requeue_sent_s: float | None = None
    refusals: int = 0
    asked: bool = False
    """Whether it would get no signal, and was asked to save because it does that on request."""
    cause: Cause = Cause.FOR_JOB
    grace_until_s: float | None = None
    signalled_for: str = ""
    """The preemptor of the preemption called off before this one was planned: for that one the
    victim was signalled."""

    @property
    def charged(self) -> str:
        """The preemptor for which the victim was signalled."""
        return self.signalled_for or self.preemptor

    @property
    def is_leaving(self) -> bool:
        """Whether the victim has been signalled and still runs."""
        return self.state in (PreemptionState.SIGNALLED, PreemptionState.REQUEUE_SENT)

    @property
    def makes_room(self) -> bool:
        """Whether the victim still holds the GPUs that it is to leave."""
        return self.state not in (PreemptionState.REQUEUED, PreemptionState.CALLED_OFF)


# Events


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan preempts the job."""

    preemptor: str


@dataclass(frozen=True, slots=True)
class Leaves:
    """The plan preempts the job for no other job."""

    cause: Cause


@dataclass(frozen=True, slots=True)
class PreemptorTried:
    """Slurm has tried to start the preemptor, and found it to lack only resources.

    The victim gets ``grace_s``. ``asks``: it would get no signal, but saves when it is asked to.
    """

    at_s: float
    grace_s: float = 0.0
    asks: bool = False


@dataclass(frozen=True, slots=True)
class StillLeaves:
    """The plan still preempts the victim for no other job. Has the same as ``PreemptorTried``."""

    at_s: float
    grace_s: float = 0.0
    asks: bool = False


@dataclass(frozen=True, slots=True)
class SignalHeard:
    """Slurm has sent the checkpoint signal."""


@dataclass(frozen=True, slots=True)
class SignalRefused:
    """Slurm refused the checkpoint signal; ``words`` is its message."""

    at_s: float
    signal: str
    words: str


@dataclass(frozen=True, slots=True)
class SignalUnanswered:
    """Slurm did not answer: the victim may have got the signal, and may get it twice.

    ``sent`` is false if another victim's signal was not answered before this one was sent.
    """

    sent: bool = True


@dataclass(frozen=True, slots=True)
class SignalExpired:
    """The victim's own grace ended long ago: a requeue is no answer to its signal any more."""


@dataclass(frozen=True, slots=True)
class GraceOver:
    """The graces of the victim, and of the others of its preemptor, are over, and it still runs.

    ``allow_requeue``: its owner has forbidden Slurm to requeue it since it started.
    """

    at_s: float
    allow_requeue: bool


@dataclass(frozen=True, slots=True)
class Saved:
    """The victim has done a save that it began after its signal, which ends its own grace."""

    at_s: float


@dataclass(frozen=True, slots=True)
class RequeueRefused:
    """Slurm refused the requeue."""


@dataclass(frozen=True, slots=True)
class Requeued:
    """Slurm shows that the victim was requeued.

    ``by_others``: not for this preemption, but because its node failed.
    """

    at_s: float
    by_others: bool


@dataclass(frozen=True, slots=True)
class NotRunning:
    """The job does not run, but not because of our requeue."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The job has ended."""


@dataclass(frozen=True, slots=True)
class Running:
    """The job runs again."""


@dataclass(frozen=True, slots=True)
class StartDelayed:
    """The requeued job still waits for Slurm's own delay."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """The requeued job waits like any other job."""


@dataclass(frozen=True, slots=True)
class PreemptorGone:
    """The preemptor has no nomination any more, or no longer waits.

    A victim that does not run (``victim_runs`` is false) after its signal has been requeued,
    although its row cannot be read for now: the requeue is still to be counted.
    """

    victim_runs: bool


@dataclass(frozen=True, slots=True)
class Spared:
    """The victim of a preemption for no other job still runs, and is not preempted any more.

    It uses a GPU again, for example, or its nodes report nothing. Since Slurm shows it as running,
    a requeue that is recorded as sent was not carried out.
    """

    at_s: float
    why: str


@dataclass(frozen=True, slots=True)
class StoodDown:
    """The controller stops acting. A requeue that was sent is still followed."""


PreemptionEvent = (
    Planned
    | Leaves
    | PreemptorTried
    | StillLeaves
    | SignalHeard
    | SignalRefused
    | SignalUnanswered
    | SignalExpired
    | GraceOver
    | Saved
    | RequeueRefused
    | Requeued
    | NotRunning
    | Ended
    | Running
    | StartDelayed
    | Resumed
    | PreemptorGone
    | Spared
    | StoodDown
)


# Effects


@dataclass(frozen=True, slots=True)
class SendSignal:
    """Send the victim its checkpoint signal."""


@dataclass(frozen=True, slots=True)
class SendRequeue:
    """Requeue the victim; ``allow``: first permit it, since its owner has forbidden it."""

    allow: bool


@dataclass(frozen=True, slots=True)
class SetStartTime:
    """Let the requeued job start at once."""


@dataclass(frozen=True, slots=True)
class NoteSignalRefused:
    """Record that Slurm refused the signal."""

    at_s: float
    text: str
    preemptor: str


@dataclass(frozen=True, slots=True)
class BackOff:
    """Let the preemptor's nomination expire."""

    at_s: float
    preemptor: str
    why: str


@dataclass(frozen=True, slots=True)
class CountPreemption:
    """Record the preemption, with its preemptor and its cost."""

    at_s: float
    of: Preemption


@dataclass(frozen=True, slots=True)
class CountOwnRequeue:
    """Record that the job was requeued for no other job."""

    at_s: float
    of: Preemption


@dataclass(frozen=True, slots=True)
class MarkSignalled:
    """Record that this run was signalled for no other job: it is not again for this cause.

    ``heard`` is false if Slurm refused the signal too often.
    """

    at_s: float
    cause: Cause
    heard: bool


@dataclass(frozen=True, slots=True)
class NoteSpared:
    """Record that the job is not preempted for this cause after all, and why."""

    at_s: float
    cause: Cause
    why: str


PreemptionEffect = (
    SendSignal
    | SendRequeue
    | SetStartTime
    | NoteSignalRefused
    | BackOff
    | CountPreemption
    | CountOwnRequeue
    | MarkSignalled
    | NoteSpared
)
PreemptionEffects = tuple[PreemptionEffect, ...]


def transition(
    key: str, current: Preemption | None, event: PreemptionEvent
) -> tuple[Preemption | None, PreemptionEffects]:
    """Return a job's preemption after an event, None if none is under way, and its effects.

    An event that does not apply to the present state changes nothing.
    """
    if current is None or isinstance(event, Ended):
        return _begun(key, event), ()
    if current.state is PreemptionState.REQUEUED:
        return _after_requeue(current, event)
    match current.cause:
        case Cause.FOR_JOB:
            decided = _for_job(current, event)
        case _:
            decided = _for_itself(current, event)
    return decided or _before_requeue(current, event)


def _begun(key: str, event: PreemptionEvent) -> Preemption | None:
    match event:
        case Planned(preemptor):
            return Preemption(key, PreemptionState.PLANNED, preemptor)
        case Leaves(cause):
            return Preemption(key, PreemptionState.PLANNED, "", cause=cause)
        case _:
            return None


def _after_requeue(
    current: Preemption, event: PreemptionEvent
) -> tuple[Preemption | None, PreemptionEffects]:
    match event:
        case StartDelayed():
            return current, (SetStartTime(),)
        case Resumed() | Running():
            return None, ()
        case Planned() | Leaves():
            return _begun(current.key, event), ()
        case _:
            return current, ()


def _for_job(
    current: Preemption, event: PreemptionEvent
) -> tuple[Preemption | None, PreemptionEffects] | None:
    """Apply the events that concern the preemptor; None for all others."""
    match event:
        case PreemptorGone(victim_runs):
            left = current.is_leaving and not victim_runs
            return (current if left else _called_off(current)), ()
        case Planned(preemptor) if current.state is PreemptionState.CALLED_OFF:
            planned = replace(current, state=PreemptionState.PLANNED, preemptor=preemptor)
            return replace(planned, signalled_for=current.preemptor), ()
        case PreemptorTried() if current.state is PreemptionState.PLANNED:
            return _signalled(current, event), (SendSignal(),)
        case _:
            return None


def _called_off(current: Preemption) -> Preemption | None:
    """Return the preemption without its preemptor; None if the victim has got no signal."""
    if current.signalled_s is None:
        return None
    return replace(
        current,
        state=PreemptionState.CALLED_OFF,
        preemptor=current.charged,
        signalled_for="",
        requeue_sent_s=None,
    )


def _for_itself(
    current: Preemption, event: PreemptionEvent
) -> tuple[Preemption | None, PreemptionEffects] | None:
    """Apply the events of a preemption without a preemptor; None for all others."""
    match event:
        case StillLeaves() if current.state is PreemptionState.PLANNED:
            return _signalled(current, event), (SendSignal(),)
        case Spared(at_s, why):
            # A victim that was not signalled has noticed nothing.
            was_signalled = current.state is not PreemptionState.PLANNED
            return None, ((NoteSpared(at_s, current.cause, why),) if was_signalled else ())
        case Planned() if current.state is not PreemptionState.REQUEUE_SENT:
            # It is signalled again once its preemptor has been tried, and has its whole grace from
            # then on: it may have worked since it saved.
            return _begun(current.key, event), ()
        case _:
            return None


def _signalled(current: Preemption, event: PreemptorTried | StillLeaves) -> Preemption:
    return replace(
        current,
        state=PreemptionState.SIGNALLED,
        signalled_s=event.at_s,
        grace_until_s=event.at_s + event.grace_s,
        asked=event.asks,
        signalled_for="",
    )


def _before_requeue(
    current: Preemption, event: PreemptionEvent
) -> tuple[Preemption | None, PreemptionEffects]:
    match event:
        case RequeueRefused() | NotRunning():
            return None, ()
        case StoodDown():
            sent = current.state is PreemptionState.REQUEUE_SENT
            return (current if sent else None), ()
        case Requeued(at_s, by_others):
            if by_others or current.signalled_s is None:
                return None, ()
            requeued = Preemption(
                current.key, PreemptionState.REQUEUED, current.preemptor, cause=current.cause
            )
            of = replace(current, preemptor=current.charged, signalled_for="")
            return requeued, (_counted(of, at_s),)
        case SignalExpired() if not current.is_leaving:
            called_off = current.state is PreemptionState.CALLED_OFF
            return (None if called_off else _unsignalled(current)), ()
        case Saved(at_s) if current.state is PreemptionState.SIGNALLED:
            until_s = at_s if current.grace_until_s is None else min(at_s, current.grace_until_s)
            return replace(current, grace_until_s=until_s), ()
        case GraceOver(at_s, allow) if current.is_leaving:
            sent_again = replace(current, state=PreemptionState.REQUEUE_SENT, requeue_sent_s=at_s)
            return sent_again, (SendRequeue(allow),)
        case SignalHeard() | SignalUnanswered() | SignalRefused() if (
            current.state is PreemptionState.SIGNALLED
        ):
            return _signal_answered(current, event)
        case _:
            return current, ()


def _unsignalled(current: Preemption) -> Preemption:
    """Return the planned preemption of a victim that has got no signal."""
    return Preemption(
        current.key,
        PreemptionState.PLANNED,
        current.preemptor,
        refusals=current.refusals,
        cause=current.cause,
    )


def _counted(current: Preemption, at_s: float) -> CountPreemption | CountOwnRequeue:
    if current.cause is Cause.FOR_JOB:
        return CountPreemption(at_s, current)
    return CountOwnRequeue(at_s, current)


def _signal_answered(
    current: Preemption, event: SignalHeard | SignalUnanswered | SignalRefused
) -> tuple[Preemption | None, PreemptionEffects]:
    for_itself = current.cause is not Cause.FOR_JOB
    if isinstance(event, SignalHeard):
        mark = MarkSignalled(current.signalled_s or 0.0, current.cause, heard=True)
        return replace(current, refusals=0), (mark,) if for_itself else ()
    if isinstance(event, SignalUnanswered):
        planned = replace(current, state=PreemptionState.PLANNED)
        return planned if event.sent else _unsignalled(current), ()
    note = NoteSignalRefused(event.at_s, f"{event.signal}: {event.words}", current.preemptor)
    if current.refusals + 1 < MAX_SIGNAL_REFUSALS:
        return replace(_unsignalled(current), refusals=current.refusals + 1), (note,)
    # A requeue without the signal would lose its work.
    if for_itself:
        return None, (note, MarkSignalled(event.at_s, current.cause, heard=False))
    why = f"job {current.key} cannot be told to save its state ({event.words})"
    return None, (note, BackOff(event.at_s, current.preemptor, why))
