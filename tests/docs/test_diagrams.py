"""The diagrams in docs/images show what the program does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import pytest

from scripts.tools.pictures.main import IMAGES
from scripts.tools.pictures.svg import dark
from slurm_tiresias.controller.bands import BAND, NOMINATED, TOP_TIER
from slurm_tiresias.core.lifecycle import nomination, preemption
from slurm_tiresias.core.lifecycle.nomination import (
    IN_USE_BOUNDS,
    Blocker,
    Nominated,
    Nomination,
    NominationState,
)
from slurm_tiresias.core.lifecycle.preemption import (
    MAX_SIGNAL_REFUSALS,
    Preemption,
    PreemptionState,
)
from slurm_tiresias.settings import Config

BOUND_S = 60.0


def words(name: str) -> str:
    """All text in a diagram."""
    texts = ElementTree.parse(IMAGES / name).iter("{http://www.w3.org/2000/svg}text")
    return "\n".join(text.text or "" for text in texts)


@pytest.mark.parametrize("light", sorted(IMAGES.glob("*-light.svg")), ids=lambda path: path.stem)
def test_dark_pages_have_the_same_picture_in_their_colours(light: Path) -> None:
    other = light.with_name(light.name.replace("-light", "-dark"))
    assert other.read_text() == dark(light.read_text()), "run scripts/dev pictures dark"


def test_all_states_are_drawn_and_every_name_of_an_event_exists() -> None:
    for name, states, module in (
        ("preemption", PreemptionState, preemption),
        ("nomination", NominationState, nomination),
    ):
        text = words(f"{name}-light.svg")
        assert {state.name for state in states} <= set(text.split("\n"))
        for event in re.findall(r"\b[A-Z][a-z]+[A-Z]\w+", text):
            assert hasattr(module, event), event


PREEMPTION_EVENTS: Mapping[str, preemption.PreemptionEvent] = {
    "Planned": preemption.Planned("2"),
    "PreemptorTried": preemption.PreemptorTried(5.0),
    "SignalRefused": preemption.SignalRefused(5.0, "TERM", "no"),
    "SignalUnanswered": preemption.SignalUnanswered(),
    "SignalExpired": preemption.SignalExpired(),
    "Saved": preemption.Saved(5.0),
    "GraceOver": preemption.GraceOver(5.0, False),
    "Requeued": preemption.Requeued(5.0, False),
    "Running": preemption.Running(),
    "Resumed": preemption.Resumed(),
    "PreemptorGone": preemption.PreemptorGone(True),
    "Ended": preemption.Ended(),
    "NotRunning": preemption.NotRunning(),
    "RequeueRefused": preemption.RequeueRefused(),
    "StoodDown": preemption.StoodDown(),
}


@pytest.mark.parametrize(
    ("state", "event", "then"),
    [
        (None, "Planned", "PLANNED"),
        ("PLANNED", "PreemptorTried", "SIGNALLED"),
        ("SIGNALLED", "SignalRefused", "PLANNED"),
        ("SIGNALLED", "SignalUnanswered", "PLANNED"),
        ("SIGNALLED", "Saved", "SIGNALLED"),
        ("SIGNALLED", "GraceOver", "REQUEUE_SENT"),
        ("REQUEUE_SENT", "GraceOver", "REQUEUE_SENT"),
        ("REQUEUE_SENT", "Requeued", "REQUEUED"),
        ("SIGNALLED", "Requeued", "REQUEUED"),
        ("REQUEUED", "Planned", "PLANNED"),
        ("REQUEUED", "Running", None),
        ("REQUEUED", "Resumed", None),
        ("PLANNED", "PreemptorGone", None),
        ("SIGNALLED", "PreemptorGone", "CALLED_OFF"),
        ("REQUEUE_SENT", "PreemptorGone", "CALLED_OFF"),
        ("CALLED_OFF", "Requeued", "REQUEUED"),
        ("CALLED_OFF", "Planned", "PLANNED"),
        ("CALLED_OFF", "SignalExpired", None),
        ("SIGNALLED", "Ended", None),
        ("SIGNALLED", "NotRunning", None),
        ("REQUEUE_SENT", "RequeueRefused", None),
        ("SIGNALLED", "StoodDown", None),
    ],
)
def test_each_arrow_of_a_preemption_exists(state: str | None, event: str, then: str | None) -> None:
    assert event in words("preemption-light.svg")
    times_s = () if state == "PLANNED" else (1.0, 2.0)
    before = state and Preemption("1", PreemptionState[state], "2", *times_s)
    after, _ = preemption.transition("1", before or None, PREEMPTION_EVENTS[event])
    assert (after and after.state.name) == then


def waits(blocker: Blocker, at_s: float = 5.0) -> nomination.StillWaiting:
    return nomination.StillWaiting(at_s, blocker, BOUND_S, "", "it was not started")


@pytest.mark.parametrize(
    ("state", "event", "then"),
    [
        (None, Nominated(5.0, "", True), "PENDING"),
        (None, Nominated(5.0, "", False), "FREE"),
        ("PENDING", waits(Blocker.NODES_IN_USE), "ASKED"),
        ("ASKED", waits(Blocker.NOT_TRIED), "PENDING"),
        ("ASKED", waits(Blocker.NOTHING), "FREE"),
        ("PENDING", waits(Blocker.NOTHING), "FREE"),
        ("PENDING", waits(Blocker.NOT_TRIED, 5.0 + BOUND_S), "EXPIRED"),
        ("FREE", waits(Blocker.NOTHING, 5.0 + BOUND_S), "EXPIRED"),
        ("ASKED", waits(Blocker.NODES_IN_USE, 5.0 + IN_USE_BOUNDS * BOUND_S), "EXPIRED"),
        ("EXPIRED", Nominated(5.0, "", True), "PENDING"),
        ("EXPIRED", Nominated(5.0, "", False), "FREE"),
        *((state.name, nomination.Started(), None) for state in NominationState),
        *((s.name, nomination.Expired(5.0, "", "why"), "EXPIRED") for s in NominationState),
        *((state.name, nomination.Withdrawn(), None) for state in NominationState),
    ],
)
def test_each_arrow_of_a_nomination_is_a_transition(
    state: str | None, event: nomination.NominationEvent, then: str | None
) -> None:
    assert type(event).__name__ in words("nomination-light.svg")
    free_s = 1.0 if state == "FREE" else None
    before = state and Nomination("1", NominationState[state], 1.0, free_s)
    after, _ = nomination.transition("1", before or None, event)
    assert (after and after.state.name) == then


def test_the_tiers_and_priorities_are_those_of_the_default_configuration() -> None:
    text = words("tiers-light.svg")
    thresholds_gpu_s = Config().policy.thresholds_gpu_s
    for threshold_gpu_s in thresholds_gpu_s:
        assert re.search(rf"\b{threshold_gpu_s / 3600:g} (GPU-hour|to)", text)
    lowest = (TOP_TIER - number * BAND for number in range(len(thresholds_gpu_s) + 1))
    assert re.findall("from ([0-9,]{9,})", text) == [f"{n:,}" for n in (NOMINATED, *lowest)]


def test_the_numbers_in_other_diagrams_are_those_of_the_program() -> None:
    interval_s = Config().controller.interval_s
    assert f"again after {interval_s:g} s" in words("cycle-light.svg")
    assert f"SignalRefused: {MAX_SIGNAL_REFUSALS} in a row" in words("preemption-light.svg")
