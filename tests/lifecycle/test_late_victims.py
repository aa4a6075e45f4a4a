"""Each victim's user is charged for its own grace, whatever the other victims do."""

from __future__ import annotations

from contextlib import closing

from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.testbed.lifecycle import memory
from scripts.testbed.lifecycle.world import GPUS, SAVE_GRACE_S, Ask, Setup, World
from slurm_tiresias.core.features.losses import LEAVES_WITHIN_S
from tests.lifecycle.test_regressions import GRACE_S, STEP_S, Course

LONGEST_S = 40

graces = st.sampled_from(["", "USR1@5", "USR2@33", f"USR1@{LONGEST_S}"])
saves_after = st.sampled_from([None, 1, 5, 7])
"""In how many cycles after its signal a victim saves."""


def late_s(
    checkpoint: str,
    saves: int | None = None,
    other: Ask | None = None,
    other_saves: int | None = None,
    setup: Setup | None = None,
) -> float:
    """What is recorded for a victim of two nodes that has this grace, and leaves with another."""
    with closing(World(setup or Setup())) as world:
        others = world.submit(other) if other else []
        victim = Ask(GPUS, nodes=2, user="ann", checkpoint=checkpoint)
        one = Course(world, victim, Ask(GPUS, nodes=3 if other else 2, user="ben"))
        for key in (one.victim, *others):
            world.report(key, 50, 0)
        one.until(one.asked)
        for number in range(1, 30):
            for key, after in ((one.victim, saves), *((key, other_saves) for key in others)):
                if after == number and one.runs(key):
                    world.save(key)
            one.cycle()
        (recorded_s,) = memory.late_s(world.cycles, one.victim)
        return recorded_s


@settings(max_examples=6, deadline=None)
@given(graces, saves_after, graces, saves_after)
def test_the_charge_does_not_depend_on_another_victim(
    checkpoint: str, saves: int | None, of_other: str, other_saves: int | None
) -> None:
    other = Ask(GPUS, user="cid", checkpoint=of_other)
    assert late_s(checkpoint, saves, other, other_saves) == late_s(checkpoint, saves)


def test_a_victim_that_waits_for_others_is_not_late_and_one_with_a_long_grace_is() -> None:
    slow = Ask(GPUS, user="cid", checkpoint=f"USR1@{LONGEST_S}")
    assert late_s("", other=slow) == 0.0
    assert late_s(f"USR1@{LONGEST_S}") == LONGEST_S - GRACE_S - LEAVES_WITHIN_S


def test_a_save_ends_what_is_charged() -> None:
    assert late_s(f"USR1@{LONGEST_S}", saves=7) == 7 * STEP_S - GRACE_S - LEAVES_WITHIN_S


def test_a_victim_that_is_asked_to_save_has_the_time_that_the_site_gives_for_that() -> None:
    assert SAVE_GRACE_S > LEAVES_WITHIN_S
    assert late_s("", setup=Setup(signal="")) == 0.0
