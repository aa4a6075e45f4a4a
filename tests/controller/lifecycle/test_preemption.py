"""Every event in every state of a preemption: the state after it, and what is to be done."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_tiresias.core.lifecycle.preemption import (
    MAX_SIGNAL_REFUSALS,
    BackOff,
    Cause,
    CountOwnRequeue,
    CountPreemption,
    Ended,
    GraceOver,
    Leaves,
    MarkSignalled,
    NoteSignalRefused,
    NoteSpared,
    NotRunning,
    Planned,
    Preemption,
    PreemptionEvent,
    PreemptionState,
    PreemptorGone,
    PreemptorTried,
    Requeued,
    RequeueRefused,
    Resumed,
    Running,
    Saved,
    SendRequeue,
    SendSignal,
    SetStartTime,
    SignalExpired,
    SignalHeard,
    SignalRefused,
    SignalUnanswered,
    Spared,
    StartDelayed,
    StillLeaves,
    StoodDown,
    transition,
)
from slurm_tiresias.core.lifecycle.tracker import shifted
from tests.controller.lifecycle.tables import cells

STATES: dict[str, Preemption | None] = {
    "none": None,
    "planned": Preemption("7", PreemptionState.PLANNED, "8"),
    "signalled": Preemption("7", PreemptionState.SIGNALLED, "8", 1000.0),
    "requeue-sent": Preemption("7", PreemptionState.REQUEUE_SENT, "8", 1000.0, 1010.0),
    "requeued": Preemption("7", PreemptionState.REQUEUED, "8"),
    "called-off": Preemption("7", PreemptionState.CALLED_OFF, "8", 1000.0),
}
IDLE_STATES: dict[str, Preemption | None] = {
    "idle planned": Preemption("7", PreemptionState.PLANNED, "", cause=Cause.IDLE_GPUS),
    "idle signalled": Preemption("7", PreemptionState.SIGNALLED, "", 1000.0, cause=Cause.IDLE_GPUS),
    "idle requeue-sent": Preemption(
        "7", PreemptionState.REQUEUE_SENT, "", 1000.0, 1010.0, cause=Cause.IDLE_GPUS
    ),
    "idle requeued": Preemption("7", PreemptionState.REQUEUED, "", cause=Cause.IDLE_GPUS),
}
EVENTS: dict[str, PreemptionEvent] = {
    "planned": Planned("9"),
    "gpus idle": Leaves(Cause.IDLE_GPUS),
    "preemptor tried": PreemptorTried(1020.0),
    "still idle": StillLeaves(1020.0),
    "signal heard": SignalHeard(),
    "signal refused": SignalRefused(1020.0, "USR1", "denied"),
    "signal unanswered": SignalUnanswered(),
    "signal expired": SignalExpired(),
    "grace over": GraceOver(1020.0, allow_requeue=True),
    "saved": Saved(1020.0),
    "requeue refused": RequeueRefused(),
    "requeued": Requeued(1020.0, by_others=False),
    "requeued by others": Requeued(1020.0, by_others=True),
    "not running": NotRunning(),
    "ended": Ended(),
    "running": Running(),
    "start delayed": StartDelayed(),
    "resumed": Resumed(),
    "preemptor gone": PreemptorGone(victim_runs=True),
    "both gone": PreemptorGone(victim_runs=False),
    "stays": Spared(1020.0, "1 of its 4 GPUs is used"),
    "stood down": StoodDown(),
}
MARKS = {
    SendSignal: "signal",
    SendRequeue: "requeue",
    SetStartTime: "start",
    CountPreemption: "count",
    NoteSignalRefused: "note",
    BackOff: "back off",
    CountOwnRequeue: "count idle",
    MarkSignalled: "mark",
    NoteSpared: "note stays",
}
TABLE = """
                   | none    | planned            | signalled            | requeue-sent          | requeued        | called-off
planned            | planned | planned            | signalled            | requeue-sent          | planned         | planned
gpus idle          | idle planned | planned       | signalled            | requeue-sent          | idle planned    | called-off
preemptor tried    | none    | signalled, signal  | signalled            | requeue-sent          | requeued        | called-off
still idle         | none    | planned            | signalled            | requeue-sent          | requeued        | called-off
signal heard       | none    | planned            | signalled            | requeue-sent          | requeued        | called-off
signal refused     | none    | planned            | planned, note        | requeue-sent          | requeued        | called-off
signal unanswered  | none    | planned            | planned              | requeue-sent          | requeued        | called-off
signal expired     | none    | planned            | signalled            | requeue-sent          | requeued        | none
grace over         | none    | planned            | requeue-sent, requeue | requeue-sent, requeue | requeued       | called-off
saved              | none    | planned            | signalled            | requeue-sent          | requeued        | called-off
requeue refused    | none    | none               | none                 | none                  | requeued        | none
requeued           | none    | none               | requeued, count      | requeued, count       | requeued        | requeued, count
requeued by others | none    | none               | none                 | none                  | requeued        | none
not running        | none    | none               | none                 | none                  | requeued        | none
ended              | none    | none               | none                 | none                  | none            | none
running            | none    | planned            | signalled            | requeue-sent          | none            | called-off
start delayed      | none    | planned            | signalled            | requeue-sent          | requeued, start | called-off
resumed            | none    | planned            | signalled            | requeue-sent          | none            | called-off
preemptor gone     | none    | none               | called-off           | called-off            | requeued        | called-off
both gone          | none    | none               | signalled            | requeue-sent          | requeued        | called-off
stays              | none    | planned            | signalled            | requeue-sent          | requeued        | called-off
stood down         | none    | none               | none                 | requeue-sent          | requeued        | none
"""  # noqa: E501
IDLE_TABLE = """
                   | idle planned           | idle signalled             | idle requeue-sent          | idle requeued
planned            | planned                | planned                    | idle requeue-sent          | planned
gpus idle          | idle planned           | idle signalled             | idle requeue-sent          | idle planned
preemptor tried    | idle planned           | idle signalled             | idle requeue-sent          | idle requeued
still idle         | idle signalled, signal | idle signalled             | idle requeue-sent          | idle requeued
signal heard       | idle planned           | idle signalled, mark       | idle requeue-sent          | idle requeued
signal refused     | idle planned           | idle planned, note         | idle requeue-sent          | idle requeued
signal unanswered  | idle planned           | idle planned               | idle requeue-sent          | idle requeued
signal expired     | idle planned           | idle signalled             | idle requeue-sent          | idle requeued
grace over         | idle planned           | idle requeue-sent, requeue | idle requeue-sent, requeue | idle requeued
saved              | idle planned           | idle signalled             | idle requeue-sent          | idle requeued
requeue refused    | none                   | none                       | none                       | idle requeued
requeued           | none                   | idle requeued, count idle  | idle requeued, count idle  | idle requeued
requeued by others | none                   | none                       | none                       | idle requeued
not running        | none                   | none                       | none                       | idle requeued
ended              | none                   | none                       | none                       | none
running            | idle planned           | idle signalled             | idle requeue-sent          | none
start delayed      | idle planned           | idle signalled             | idle requeue-sent          | idle requeued, start
resumed            | idle planned           | idle signalled             | idle requeue-sent          | none
preemptor gone     | idle planned           | idle signalled             | idle requeue-sent          | idle requeued
both gone          | idle planned           | idle signalled             | idle requeue-sent          | idle requeued
stays              | none                   | none, note stays           | none, note stays           | idle requeued
stood down         | none                   | none                       | idle requeue-sent          | idle requeued
"""  # noqa: E501


def test_the_tables_have_every_event_in_every_state() -> None:
    for table, states in ((TABLE, STATES), (IDLE_TABLE, IDLE_STATES)):
        assert {(event, state) for event, state, _ in cells(table)} == {
            (event, state) for event in EVENTS for state in states
        }


@pytest.mark.parametrize(("event", "state", "wanted"), [*cells(TABLE), *cells(IDLE_TABLE)])
def test_each_event_leads_to_the_state_in_the_table(event: str, state: str, wanted: str) -> None:
    then, effects = transition("7", (STATES | IDLE_STATES)[state], EVENTS[event])
    found = "none" if then is None else then.state.value
    if then is not None and then.cause is Cause.IDLE_GPUS:
        found = f"idle {found}"
        assert then.preemptor == ""
    assert ", ".join([found, *(MARKS[type(effect)] for effect in effects)]) == wanted


def test_a_victim_with_idle_gpus_is_signalled_anew_for_a_preemptor() -> None:
    planned = Preemption("7", PreemptionState.PLANNED, "9")
    assert transition("7", IDLE_STATES["idle signalled"], Planned("9")) == (planned, ())


def test_a_run_that_cannot_be_signalled_is_not_preempted_for_its_idle_gpus_again() -> None:
    current = IDLE_STATES["idle planned"]
    for number in range(MAX_SIGNAL_REFUSALS):
        signalled, _ = transition("7", current, StillLeaves(1000.0 + number))
        current, effects = transition("7", signalled, EVENTS["signal refused"])
    assert current is None
    assert [type(effect) for effect in effects] == [NoteSignalRefused, MarkSignalled]
    assert effects[-1] == MarkSignalled(1020.0, Cause.IDLE_GPUS, heard=False)


def after(preemption: Preemption | None, *events: PreemptionEvent) -> Preemption:
    """Return the preemption after these events."""
    for event in events:
        preemption, _ = transition("7", preemption, event)
    assert preemption is not None
    return preemption


def test_a_planned_preemption_keeps_its_preemptor() -> None:
    assert after(STATES["signalled"], Planned("9")).preemptor == "8"


def test_a_victim_that_requeues_itself_on_an_unanswered_signal_counts() -> None:
    planned = after(STATES["signalled"], SignalUnanswered())
    assert planned.state is PreemptionState.PLANNED
    counted = CountPreemption(1020.0, planned)
    assert transition("7", planned, EVENTS["requeued"]) == (STATES["requeued"], (counted,))


def test_a_victim_counts_for_the_preemptor_it_was_signalled_for_while_another_is_planned() -> None:
    planned = after(STATES["called-off"], Planned("9"))
    assert planned.preemptor == "9"
    _, (effect,) = transition("7", planned, EVENTS["requeued"])
    assert effect == CountPreemption(1020.0, replace(planned, preemptor="8", signalled_for=""))
    assert transition("7", planned, EVENTS["preemptor gone"]) == (STATES["called-off"], ())
    unsignalled = Preemption("7", PreemptionState.PLANNED, "9")
    assert transition("7", planned, SignalExpired()) == (unsignalled, ())
    assert after(planned, EVENTS["preemptor tried"]).charged == "9"


def test_a_signal_that_was_heard_ends_the_count_of_refusals() -> None:
    refused = Preemption("7", PreemptionState.SIGNALLED, "8", 1000.0, refusals=2)
    assert after(refused, SignalHeard()).refusals == 0


def test_a_grace_ends_with_a_save_or_at_a_time_fixed_with_the_signal() -> None:
    signalled = after(STATES["planned"], PreemptorTried(1000.0, 30.0))
    assert signalled.grace_until_s == 1030.0
    for saved_s, until_s in ((1012.0, 1012.0), (1090.0, 1030.0)):
        assert after(signalled, Saved(saved_s)).grace_until_s == until_s


def test_a_requeue_that_is_sent_again_replaces_the_first_ones_time() -> None:
    sent, effects = transition("7", STATES["requeue-sent"], GraceOver(1020.0, allow_requeue=False))
    assert sent is not None
    assert (sent.signalled_s, sent.requeue_sent_s) == (1000.0, 1020.0)
    assert effects == (SendRequeue(allow=False),)


def test_a_step_of_slurms_clock_moves_what_is_waited_for() -> None:
    preemption = STATES["requeue-sent"]
    assert preemption is not None
    moved = shifted(preemption, -3600.0)
    assert (moved.signalled_s, moved.requeue_sent_s) == (-2600.0, -2590.0)
    assert shifted(replace(preemption, grace_until_s=1030.0), -3600.0).grace_until_s == -2570.0
