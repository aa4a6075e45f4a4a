"""Nomination: GPUs set aside for a waiting job that is about to start.

    none --Nominated, others run there--> PENDING --StillWaiting, victims leave--> ASKED
    none --Nominated, idle GPUs---------> FREE                                       |
    PENDING, ASKED --StillWaiting, nothing in the way--> FREE --Started--> none <----+

PENDING and FREE become EXPIRED if Slurm has not tried the job, or not started it, within
``START_BOUND_S``; any state does if Slurm names a reason of its own to let the job wait,
or if its nodes stay in use, as by an epilog that hangs.
An expired nomination backs off, twice as long after each expiration. After its back-off the job may
be nominated again; the expirations are forgotten when it starts. ``Withdrawn`` ends a nomination,
but not what is left of an earlier back-off. If a victim had been requeued for the job
(``VictimLeft``), or is requeued on its signal later, an expired nomination was in vain: no job is
preempted for this job again in the same situation, however long ago that was. That its nodes stayed
in use says nothing about other nodes, so it was not in vain for that. Pure: no I/O and no clock.
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, replace
from typing import ClassVar

from slurm_tiresias.model import Allocation, Amount

MAX_BACKOFF_DOUBLINGS = 3

START_BOUND_S = 60.0
"""How long the GPUs of a nomination may be idle: in this time slurmctld runs its main scheduler at
least once (``sched_interval``), which starts the first job of the queue."""

RETRY_AFTER_S = 600.0
"""How long a job preempts nothing after an expiration: ten times as long as its GPUs were idle, so
that jobs which never start idle a tenth of them at most. Each further expiration doubles it."""

IN_USE_BOUNDS = 5
"""How often ``START_BOUND_S`` nodes may stay in use after the graces: some programs end
slowly, and some epilogs check and clean the node."""


class NominationState(enum.StrEnum):
    """How far a nomination has come."""

    PENDING = "pending"
    """No victim has been signalled: Slurm has not tried the job since, or found it to lack more
    than the GPUs of its victims."""
    ASKED = "asked"
    """Its victims are leaving, or a job on its nodes is completing."""
    FREE = "free"
    """The job only waits for Slurm to start it."""
    EXPIRED = "expired"
    """The job did not start, and backs off."""


@dataclass(frozen=True, slots=True)
class Nomination:
    """The nomination of one job, or what is remembered of its last one.

    ``allocation`` is JSON (``allocation_text``), "" if Slurm chooses the nodes. ``free_s`` is the
    time since when nothing has blocked the start. ``expired_s``, ``situation`` and ``may_pass`` are
    of the last expiration: its time, the job's request and the state of its nodes when the start
    was tried (``controller/situation.py``; "" if the nodes stayed in use), and whether its reason
    may go away in that situation. ``victims_left``: a victim was requeued since the nomination
    began. ``in_vain`` is the situation of the last expiration for which a victim was requeued.
    """

    SHIFTED: ClassVar = ("nominated_s", "free_s", "expired_s")

    key: str
    state: NominationState
    nominated_s: float | None = None
    free_s: float | None = None
    allocation: str = ""
    expired_s: float | None = None
    situation: str = ""
    may_pass: bool = False
    expirations: int = 0
    victims_left: bool = False
    in_vain: str = ""

    @property
    def is_active(self) -> bool:
        """Whether GPUs are set aside for the job now."""
        return self.state is not NominationState.EXPIRED

    @property
    def needs_no_victims(self) -> bool:
        """Whether it was nominated on idle GPUs."""
        return self.is_active and self.free_s == self.nominated_s

    def allocated(self) -> Allocation | None:
        """The GPUs set aside on named nodes; None if Slurm chooses the nodes."""
        if not self.is_active or not self.allocation:
            return None
        return {
            node: Amount(gpus=amount["gpus"], cpus=amount["cpus"], memory_mb=amount["memory_mb"])
            for node, amount in json.loads(self.allocation).items()
        }

    def backs_off(self, now_s: float, first_s: float) -> bool:
        """Whether the back-off, ``first_s`` seconds doubled with each expiration, is under way."""
        if self.expired_s is None:
            return False
        doublings = min(self.expirations - 1, MAX_BACKOFF_DOUBLINGS)
        return now_s - self.expired_s < first_s * 2.0**doublings


def allocation_text(allocation: Allocation) -> str:
    """Convert an allocation to the text that is kept in the ledger."""
    return json.dumps(
        {
            node: {"gpus": dict(amount.gpus), "cpus": amount.cpus, "memory_mb": amount.memory_mb}
            for node, amount in allocation.items()
        }
    )


# Events


@dataclass(frozen=True, slots=True)
class Nominated:
    """The plan starts the job on these GPUs; with an empty text Slurm chooses the nodes."""

    at_s: float
    allocation: str
    needs_victims: bool


class Blocker(enum.Enum):
    """What stands between a nomination and its start."""

    NOTHING = enum.auto()
    NOT_TRIED = enum.auto()
    """The job has victims, and Slurm has yet to find that it lacks only their GPUs."""
    NODES_IN_USE = enum.auto()
    """Victims are leaving, or an epilog runs."""


@dataclass(frozen=True, slots=True)
class StillWaiting:
    """The job still waits.

    Has what blocks its start, and the situation to blame if the nomination expires now.
    ``longest_grace_s`` is the longest that any victim may have.
    """

    at_s: float
    blocker: Blocker
    start_bound_s: float
    situation: str
    why: str
    longest_grace_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Expired:
    """The nomination expires.

    ``may_pass``: the reason may go away while the situation stays the same.
    """

    at_s: float
    situation: str
    why: str
    may_pass: bool = False


@dataclass(frozen=True, slots=True)
class VictimLeft:
    """A victim was requeued for the job."""


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The plan has changed, Slurm refused the job its priority, or other jobs got its GPUs."""


@dataclass(frozen=True, slots=True)
class Started:
    """The job runs, or has ended."""


NominationEvent = Nominated | StillWaiting | Expired | VictimLeft | Withdrawn | Started


# Effects


@dataclass(frozen=True, slots=True)
class NoteExpired:
    """Record that the job backs off, and why."""

    at_s: float
    why: str


NominationEffects = tuple[NoteExpired, ...]


def transition(
    key: str, current: Nomination | None, event: NominationEvent
) -> tuple[Nomination | None, NominationEffects]:
    """Return a job's nomination after an event, None if there is none left, and its effects."""
    match event:
        case Started():
            return None, ()
        case Nominated():
            return _nominated(key, current, event), ()
        case Expired(at_s, _, why):
            current = current or Nomination(key, NominationState.EXPIRED)
            return _expired(current, event), (NoteExpired(at_s, why),)
        case _ if current is None:
            return None, ()
        case Withdrawn():
            return _without_gpus(current) if current.expirations else None, ()
        case VictimLeft() if current.is_active:
            return replace(current, victims_left=True), ()
        case VictimLeft():
            return replace(current, in_vain=current.situation or current.in_vain), ()
        case StillWaiting():
            return _still_waiting(current, event)


def _nominated(key: str, current: Nomination | None, event: Nominated) -> Nomination:
    current = current or Nomination(key, NominationState.EXPIRED)
    same_nodes = current.is_active and current.allocation in ("", event.allocation)
    if same_nodes and not event.needs_victims:
        # Naming the nodes later does not extend the time that the job has to start.
        return replace(current, allocation=event.allocation)
    return replace(
        current,
        state=NominationState.PENDING if event.needs_victims else NominationState.FREE,
        nominated_s=event.at_s,
        free_s=None if event.needs_victims else event.at_s,
        allocation=event.allocation,
    )


def _still_waiting(
    current: Nomination, event: StillWaiting
) -> tuple[Nomination, NominationEffects]:
    if not current.is_active:
        return current, ()
    if event.blocker is Blocker.NOTHING and current.free_s is None:
        return replace(current, state=NominationState.FREE, free_s=event.at_s), ()
    since_s, bound_s = current.free_s, event.start_bound_s
    in_use = event.blocker is Blocker.NODES_IN_USE
    if in_use:
        bound_s = event.longest_grace_s + IN_USE_BOUNDS * event.start_bound_s
        if since_s is None:
            since_s = current.nominated_s
            current = replace(current, state=NominationState.ASKED)
    elif event.blocker is Blocker.NOT_TRIED:
        since_s = current.nominated_s
        current = replace(current, state=NominationState.PENDING)
    assert since_s is not None
    if event.at_s - since_s <= bound_s:
        return current, ()
    situation = "" if in_use else event.situation
    expired = _expired(current, Expired(event.at_s, situation, event.why))
    return expired, (NoteExpired(event.at_s, event.why),)


def _expired(current: Nomination, event: Expired) -> Nomination:
    return replace(
        _without_gpus(current),
        expired_s=event.at_s,
        situation=event.situation,
        may_pass=event.may_pass,
        expirations=current.expirations + 1,
        victims_left=False,
        in_vain=(current.victims_left and event.situation) or current.in_vain,
    )


def _without_gpus(current: Nomination) -> Nomination:
    return replace(
        current, state=NominationState.EXPIRED, nominated_s=None, free_s=None, allocation=""
    )
