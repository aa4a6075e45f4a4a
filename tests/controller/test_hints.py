"""The hints in a job's comment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_tiresias.job_hints import Hints, checkpoint_of, first_look_until_s, hints_of
from slurm_tiresias.model import PlacementStyle
from slurm_tiresias.settings.preemption import Checkpoint, PreemptionConfig

CONSOLIDATE, SPREAD = PlacementStyle.CONSOLIDATE, PlacementStyle.SPREAD


@pytest.mark.parametrize(
    ("comment", "hints"),
    [
        ("", Hints()),
        ("my favourite run", Hints()),
        ("tiresias:model=vgg16", Hints("vgg16")),
        ("tiresias:placement=consolidate", Hints(style=CONSOLIDATE)),
        ("tiresias:placement=auto,model=gpt-2.1_x+y", Hints("gpt-2.1_x+y")),
        ("tiresias:profile=on,checkpoint=USR1@60", Hints(checkpoint=Checkpoint("USR1", 60))),
        (
            "tiresias:checkpoint=SIGINT@3600,placement=spread",
            Hints(style=SPREAD, checkpoint=Checkpoint("INT", 3600)),
        ),
        ("exp 7 tiresias:model=vgg16 for the paper", Hints("vgg16")),
        ("see\ttiresias:model=vgg16\n", Hints("vgg16")),
        ("xtiresias:model=vgg16", Hints()),
        ("about tiresias: it is fine", Hints(problem="'' is no part of one")),
    ],
)
def test_a_comment_may_hold_a_hint_among_other_words(comment: str, hints: Hints) -> None:
    assert hints_of("", comment) == hints


@pytest.mark.parametrize(
    "word",
    [
        "",
        "model",
        "model=",
        "model=-x",
        "model=a'b",
        "model=" + "x" * 65,
        "model=" + "x" * 70_000,
        "model=vgg16,",
        "model=vgg16,model=vgg19",
        "model=vgg16;placement=spread",
        "placement=random",
        "placement=Consolidate",
        "profile=maybe",
        "checkpoint=USR1",
        "checkpoint=KILL@10",
        "checkpoint=USR1@-1",
        "checkpoint=USR1@3601",
        "checkpoint=USR1@1e3",
        "colour=blue",
        "model=vgg16\u0661",
        "model=vgg16 tiresias:model=vgg19",
    ],
)
def test_an_unreadable_hint_is_ignored_with_a_reason(word: str) -> None:
    hints = hints_of("", f"tiresias:{word}")
    assert (hints.model, hints.style) == ("", None)
    assert hints.problem
    assert len(hints.problem) < 100


def test_hints_in_the_admin_comment_take_precedence_over_the_users_comment() -> None:
    assert hints_of("tiresias:model=vgg16", "tiresias:model=alexnet") == Hints("vgg16")
    assert hints_of("seen by ops", "tiresias:model=alexnet") == Hints("alexnet")


@given(st.text(), st.text())
def test_any_comment_is_parsed_or_ignored(admin_comment: str, comment: str) -> None:
    hints_of(f"tiresias:{admin_comment}", comment)
    hints_of(admin_comment, f"tiresias:{comment}")


def test_the_checkpoint_signal_is_the_users_within_the_sites_limits() -> None:
    site = PreemptionConfig(checkpoint="SIGTERM@20", max_grace_s=90)
    assert checkpoint_of("", "run 7", site) == Checkpoint("TERM", 20)
    assert checkpoint_of("", "tiresias:checkpoint=USR1@60", site) == Checkpoint("USR1", 60)
    assert checkpoint_of("tiresias:checkpoint=USR1@0", "", site) == Checkpoint("USR1", 0)
    assert checkpoint_of("", "tiresias:checkpoint=USR1@3600", site) == Checkpoint("USR1", 90)
    assert checkpoint_of("", "tiresias:checkpoint=KILL@60", site) == Checkpoint("TERM", 20)


def test_a_user_over_budget_gets_no_longer_grace_than_the_site_gives_to_all() -> None:
    site = PreemptionConfig(checkpoint="SIGTERM@20", max_grace_s=90)
    wish = "tiresias:checkpoint=USR1@60"
    assert checkpoint_of("", wish, site, over_budget=True) == Checkpoint("USR1", 20)
    assert checkpoint_of("", "", site, over_budget=True) == Checkpoint("TERM", 20)


@pytest.mark.parametrize(
    ("admin_comment", "until_s"),
    [
        ("tiresias-first-look:1700000000", 1_700_000_000.0),
        ("tiresias:model=vgg16 tiresias-first-look:17 and more", 17.0),
        ("", None),
        ("tiresias-first-look:", None),
        ("tiresias-first-look:soon", None),
        ("tiresias-first-look:99999999999", None),
        ("xtiresias-first-look:17", None),
        ("tiresias-first-look:\u0661", None),
    ],
)
def test_the_admin_comment_has_a_deferred_start(admin_comment: str, until_s: float | None) -> None:
    assert first_look_until_s(admin_comment) == until_s
    assert hints_of(admin_comment.replace("tiresias:model=vgg16 ", ""), "") == Hints()
