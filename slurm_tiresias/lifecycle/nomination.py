"""Nomination: GPUs set aside for a waiting job that is about to start.

    none --Nominated, others run there--> PENDING --StillWaiting, victims leave--> ASKED
    none --Nominated, idle GPUs---------> FREE                                       |
    PENDING, ASKED --StillWaiting, nothing in the way--> FREE --Started--> none <----+

PENDING and FREE become EXPIRED where Slurm has not tried the job, or not started it, within
``preemption.start_bound_s``, and any of them when Slurm names a reason of its own to let the job
wait. An expired nomination backs off, twice as long after each time. Once its back-off is over the
job may be nominated again; it forgets its expirations when it starts. ``Withdrawn`` ends a
nomination, and leaves what is left of an earlier back-off. Where a victim had been requeued for it
(``VictimLeft``), an expired nomination was in vain: no job is preempted for that job again in the
same situation, however long ago that was. Pure: no I/O and no clock.
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, replace

from slurm_tiresias.model import Allocation, Amount

MAX_BACKOFF_DOUBLINGS = 3


class NominationState(enum.StrEnum):
    """How far a nomination has come."""

    PENDING = "pending"
    """Slurm has not tried the job since, or found more in its way than the jobs on its nodes: no
    victim has been signalled."""
    ASKED = "asked"
    """Its victims are leaving, or a job on its nodes completes."""
    FREE = "free"
    """Nothing stands between the job and its start."""
    EXPIRED = "expired"
    """The job did not start: it backs off."""


@dataclass(frozen=True, slots=True)
class Nomination:
    """The nomination of one job, or what is remembered of its last one.

    ``allocation`` is JSON (``allocation_text``), empty where Slurm is to choose the nodes.
    ``free_s`` is the time from which nothing stood in the way. ``expired_s`` and ``situation`` are
    of the last expiration: when it was, and what the job asked for and its nodes were like when the
    start was tried (``controller/situation.py``). ``victims_left``: a victim was requeued since the
    nomination began. ``in_vain`` is the situation of the last expiration after that.
    """

    key: str
    state: NominationState
    nominated_s: float | None = None
    free_s: float | None = None
    allocation: str = ""
    expired_s: float | None = None
    situation: str = ""
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
        """What is set aside on named nodes; None where Slurm is to choose them."""
        if not self.is_active or not self.allocation:
            return None
        return {
            node: Amount(gpus=amount["gpus"], cpus=amount["cpus"], memory_mb=amount["memory_mb"])
            for node, amount in json.loads(self.allocation).items()
        }

    def backs_off(self, now_s: float, first_s: float) -> bool:
        """Whether less than ``first_s`` seconds, doubled with each expiration, have passed."""
        if self.expired_s is None:
            return False
        doublings = min(self.expirations - 1, MAX_BACKOFF_DOUBLINGS)
        return now_s - self.expired_s < first_s * 2.0**doublings


def allocation_text(allocation: Allocation) -> str:
    """An allocation as it stands in the ledger."""
    return json.dumps(
        {
            node: {"gpus": dict(amount.gpus), "cpus": amount.cpus, "memory_mb": amount.memory_mb}
            for node, amount in allocation.items()
        }
    )


# Events


@dataclass(frozen=True, slots=True)
class Nominated:
    """The plan starts the job: on these GPUs, or (empty text) wherever Slurm likes."""

    at_s: float
    allocation: str
    needs_victims: bool


class Blocker(enum.Enum):
    """What stands between a nomination and its start."""

    NOTHING = enum.auto()
    NOT_TRIED = enum.auto()
    """It has victims, and Slurm has yet to find that it lacks only their GPUs."""
    NODES_IN_USE = enum.auto()
    """Victims are on their way out, or an epilog is."""


@dataclass(frozen=True, slots=True)
class StillWaiting:
    """The job still waits: what is in its way, and the situation of this try if its time is up."""

    at_s: float
    blocker: Blocker
    start_bound_s: float
    situation: str
    why: str


@dataclass(frozen=True, slots=True)
class Expired:
    """The job is not to be waited for any longer. ``may_pass``: the reason may go while the
    situation stays as it is."""

    at_s: float
    situation: str
    why: str
    may_pass: bool = False


@dataclass(frozen=True, slots=True)
class VictimLeft:
    """A victim was requeued for the job."""


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The plan has changed, Slurm refused the job its priority, or others got its GPUs."""


@dataclass(frozen=True, slots=True)
class Started:
    """The job runs, or is over."""


NominationEvent = Nominated | StillWaiting | Expired | VictimLeft | Withdrawn | Started


# Effects


@dataclass(frozen=True, slots=True)
class NoteExpired:
    """Tell that the job backs off, and why."""

    at_s: float
    why: str


NominationEffects = tuple[NoteExpired, ...]


def transition(
    key: str, current: Nomination | None, event: NominationEvent
) -> tuple[Nomination | None, NominationEffects]:
    """The nomination of a job after an event, None where nothing is left of it, and its effects."""
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
        case VictimLeft():
            return replace(current, victims_left=current.is_active), ()
        case StillWaiting():
            return _still_waiting(current, event)


def _nominated(key: str, current: Nomination | None, event: Nominated) -> Nomination:
    current = current or Nomination(key, NominationState.EXPIRED)
    same_nodes = current.is_active and current.allocation in ("", event.allocation)
    if same_nodes and not event.needs_victims:
        # To name the nodes later gives the job no more time.
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
    if event.blocker is Blocker.NODES_IN_USE:
        asked = current.free_s is None
        return (replace(current, state=NominationState.ASKED) if asked else current), ()
    if event.blocker is Blocker.NOTHING and current.free_s is None:
        return replace(current, state=NominationState.FREE, free_s=event.at_s), ()
    since_s = current.free_s
    if event.blocker is Blocker.NOT_TRIED:
        since_s = current.nominated_s
        current = replace(current, state=NominationState.PENDING)
    assert since_s is not None
    if event.at_s - since_s <= event.start_bound_s:
        return current, ()
    expired = _expired(current, Expired(event.at_s, event.situation, event.why))
    return expired, (NoteExpired(event.at_s, event.why),)


def _expired(current: Nomination, event: Expired) -> Nomination:
    return replace(
        _without_gpus(current),
        expired_s=event.at_s,
        situation="" if event.may_pass else event.situation,
        expirations=current.expirations + 1,
        victims_left=False,
        in_vain=event.situation if current.victims_left else current.in_vain,
    )


def _without_gpus(current: Nomination) -> Nomination:
    return replace(
        current, state=NominationState.EXPIRED, nominated_s=None, free_s=None, allocation=""
    )


def shifted(nomination: Nomination, by_s: float) -> Nomination:
    """The nomination after slurmctld's clock was set by so many seconds."""

    def moved(at_s: float | None) -> float | None:
        return None if at_s is None else at_s + by_s

    return replace(
        nomination,
        nominated_s=moved(nomination.nominated_s),
        free_s=moved(nomination.free_s),
        expired_s=moved(nomination.expired_s),
    )
