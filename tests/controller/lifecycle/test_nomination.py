"""Every event in every state of a nomination: the state after it, and what it makes others do."""

from __future__ import annotations

import pytest

from slurm_tiresias.core.lifecycle.nomination import (
    IN_USE_BOUNDS,
    Blocker,
    Expired,
    Nominated,
    Nomination,
    NominationEvent,
    NominationState,
    NoteExpired,
    Started,
    StillWaiting,
    VictimLeft,
    Withdrawn,
    transition,
)
from slurm_tiresias.core.lifecycle.tracker import shifted
from tests.controller.lifecycle.tables import cells

BOUND_S = 60.0
EARLY_S, LATE_S = 1030.0, 1100.0
"""Within the bound of what happened at 1000, and after it."""
GRACE_S = 100.0
TOO_LATE_S = 1001.0 + GRACE_S + IN_USE_BOUNDS * BOUND_S
"""After the longest time for which nodes may stay in use."""


def looked(at_s: float, blocker: Blocker) -> StillWaiting:
    return StillWaiting(at_s, blocker, BOUND_S, "abc", "Resources", GRACE_S)


STATES: dict[str, Nomination | None] = {
    "none": None,
    "pending": Nomination("7", NominationState.PENDING, 1000.0, None, "{}"),
    "asked": Nomination("7", NominationState.ASKED, 1000.0, None, "{}"),
    "free": Nomination("7", NominationState.FREE, 1000.0, 1000.0, "{}"),
    "expired": Nomination("7", NominationState.EXPIRED, expired_s=990.0, expirations=1),
}
EVENTS: dict[str, NominationEvent] = {
    "nominated with victims": Nominated(EARLY_S, "{}", needs_victims=True),
    "nominated on idle GPUs": Nominated(EARLY_S, "{}", needs_victims=False),
    "nominated on other idle GPUs": Nominated(EARLY_S, '{"n2": 1}', needs_victims=False),
    "not tried yet": looked(EARLY_S, Blocker.NOT_TRIED),
    "not tried for too long": looked(LATE_S, Blocker.NOT_TRIED),
    "victims leave": looked(LATE_S, Blocker.NODES_IN_USE),
    "victims leave for too long": looked(TOO_LATE_S, Blocker.NODES_IN_USE),
    "nothing in the way": looked(EARLY_S, Blocker.NOTHING),
    "nothing in the way for long": looked(LATE_S, Blocker.NOTHING),
    "Slurm has a reason of its own": Expired(EARLY_S, "", "Licenses"),
    "a victim left": VictimLeft(),
    "withdrawn": Withdrawn(),
    "started": Started(),
}
# "!": and an event records that the job backs off.
TABLE = """
                              | none     | pending  | asked    | free     | expired
nominated with victims        | pending  | pending  | pending  | pending  | pending
nominated on idle GPUs        | free     | pending  | asked    | free     | free
nominated on other idle GPUs  | free     | free     | free     | free     | free
not tried yet                 | none     | pending  | pending  | pending  | expired
not tried for too long        | none     | expired! | expired! | expired! | expired
victims leave                 | none     | asked    | asked    | free     | expired
victims leave for too long    | none     | expired! | expired! | expired! | expired
nothing in the way            | none     | free     | free     | free     | expired
nothing in the way for long   | none     | free     | free     | expired! | expired
Slurm has a reason of its own | expired! | expired! | expired! | expired! | expired!
a victim left                 | none     | pending  | asked    | free     | expired
withdrawn                     | none     | none     | none     | none     | expired
started                       | none     | none     | none     | none     | none
"""


def test_the_table_has_every_event_in_every_state() -> None:
    assert {(event, state) for event, state, _ in cells(TABLE)} == {
        (event, state) for event in EVENTS for state in STATES
    }


@pytest.mark.parametrize(("event", "state", "wanted"), cells(TABLE))
def test_each_event_leads_to_the_state_in_the_table(event: str, state: str, wanted: str) -> None:
    then, effects = transition("7", STATES[state], EVENTS[event])
    found = "none" if then is None else then.state.value
    assert found + "!" * len(effects) == wanted
    assert all(isinstance(effect, NoteExpired) for effect in effects)


def after(nomination: Nomination | None, *events: NominationEvent) -> Nomination:
    """Return the nomination after these events."""
    for event in events:
        nomination, _ = transition("7", nomination, event)
    assert nomination is not None
    return nomination


WITH_VICTIMS = Nominated(1000.0, "{}", needs_victims=True)


def test_a_nomination_keeps_its_expirations_until_the_job_starts() -> None:
    nomination = after(STATES["expired"], Nominated(1000.0, "", needs_victims=False))
    assert (nomination.expirations, nomination.expired_s) == (1, 990.0)
    nomination = after(nomination, looked(LATE_S, Blocker.NOTHING))
    assert (nomination.expirations, nomination.expired_s) == (2, LATE_S)
    assert (nomination.nominated_s, nomination.free_s, nomination.allocation) == (None, None, "")


@pytest.mark.parametrize(
    ("expirations", "backs_off_s"), [(1, 60), (2, 120), (3, 240), (4, 480), (5, 480), (9, 480)]
)
def test_the_back_off_doubles_up_to_eight_times(expirations: int, backs_off_s: float) -> None:
    nomination = Nomination("7", NominationState.EXPIRED, expired_s=1000.0, expirations=expirations)
    assert nomination.backs_off(1000.0 + backs_off_s - 1, 60.0)
    assert not nomination.backs_off(1000.0 + backs_off_s, 60.0)


def test_a_start_that_fails_after_a_victim_left_was_in_vain_in_that_situation() -> None:
    licenses = Expired(EARLY_S, "abc", "Licenses", may_pass=True)
    found = after(None, WITH_VICTIMS, VictimLeft(), licenses)
    assert (found.in_vain, found.may_pass, found.victims_left) == ("abc", True, False)
    # Idle GPUs may be tried again, and cost no victims: the situation stays known.
    again = Nominated(2000.0, "{}", needs_victims=False)
    found = after(found, again, Expired(LATE_S, "abd", "None"))
    assert (found.in_vain, found.situation, found.may_pass) == ("abc", "abd", False)


@pytest.mark.parametrize("may_pass", [False, True])
def test_a_victim_that_leaves_after_the_expiration_was_preempted_in_vain(may_pass: bool) -> None:
    expired = Expired(EARLY_S, "abc", "Licenses", may_pass)
    nomination = after(None, WITH_VICTIMS, expired, VictimLeft())
    assert (nomination.in_vain, nomination.victims_left) == ("abc", False)


def test_a_start_on_nodes_that_stay_in_use_was_not_in_vain() -> None:
    in_use = looked(TOO_LATE_S, Blocker.NODES_IN_USE)
    nomination = after(None, WITH_VICTIMS, VictimLeft(), in_use)
    assert nomination.state is NominationState.EXPIRED
    assert (nomination.in_vain, nomination.situation, nomination.expirations) == ("", "", 1)
    assert after(nomination, VictimLeft()).in_vain == ""


def test_a_start_that_fails_before_any_victim_left_was_not_in_vain() -> None:
    assert after(STATES["pending"], Expired(EARLY_S, "abc", "Licenses")).in_vain == ""


def test_adding_a_node_list_does_not_restart_a_nominations_time() -> None:
    unnamed, at_last = (1000.0, ""), (1050.0, "{}")
    named = after(None, *(Nominated(*each, needs_victims=False) for each in (unnamed, at_last)))
    assert (named.allocation, named.free_s) == ("{}", 1000.0)


def test_a_step_of_slurms_clock_moves_what_is_waited_for() -> None:
    nomination = STATES["free"]
    assert nomination is not None
    moved = shifted(nomination, 3600.0)
    assert (moved.nominated_s, moved.free_s, moved.expired_s) == (4600.0, 4600.0, None)
