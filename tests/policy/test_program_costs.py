"""The cost of preemptions by program, learned from few and many, honest and false reports."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slurm_tiresias.core.features.program_costs import (
    KEPT,
    MOST_PROGRAMS,
    PRIOR,
    CostHistory,
    Measured,
)
from slurm_tiresias.model import USUAL_STAKE, ProgramCosts

TIMES = st.floats(0, 1e6)
MEASURED = st.builds(
    Measured, st.none() | TIMES, TIMES, st.none() | st.floats(1, 1e6), st.booleans(), st.booleans()
)
PROGRAMS = st.tuples(st.sampled_from("abcd"), st.sampled_from("xyz"))


def learned(*costs: tuple[str, str, Measured]) -> CostHistory:
    history = CostHistory()
    for user, name, measured in costs:
        history.add(user, name, measured)
    return history


def known(history: CostHistory, user: str, name: str) -> ProgramCosts:
    costs = history.costs_of(user, name)
    assert costs is not None
    return costs


def test_without_any_measurement_costs_are_unknown() -> None:
    assert CostHistory().costs_of("ann", "train") is None


def test_a_program_without_a_measurement_has_the_sites_costs() -> None:
    history = learned(("ann", "train", Measured(10.0, 100.0, 60.0)))
    assert history.costs_of("bob", "other") == ProgramCosts(10.0, 100.0)


def test_a_programs_own_measurements_count_more_the_more_there_are() -> None:
    others = [(user, "train", Measured(10.0, 100.0)) for user in "abcde"]
    for own in (1, 3, 12):
        history = learned(*others, *[("bob", "big", Measured(70.0, 400.0))] * own)
        costs = known(history, "bob", "big")
        assert costs.measured == own
        assert costs.unsaved_s == (own * 400.0 + PRIOR * 100.0) / (own + PRIOR)
        assert costs.restart_s == (own * 70.0 + PRIOR * 10.0) / (own + PRIOR)


def test_only_the_latest_measurements_of_a_program_count() -> None:
    old = [("ann", "train", Measured(5.0, 1000.0, 7.0, True))] * 100
    new = [("ann", "train", Measured(5.0, 10.0, 9.0))] * KEPT
    assert known(learned(*old, *new), "ann", "train") == ProgramCosts(5.0, 10.0, 9.0, KEPT)


def test_the_share_of_saves_on_request_is_not_mixed_with_the_sites() -> None:
    costs = [("ann", "train", Measured(1.0, 1.0, saved=saved)) for saved in (True, True, False)]
    history = learned(*costs, *[costs[0]])
    assert known(history, "ann", "train").saved_when_asked == 0.75
    assert known(history, "bob", "train").saved_when_asked == 0.0


def test_consecutive_total_losses_are_counted() -> None:
    lost = [True, True, False, True, True]
    history = learned(*(("ann", "train", Measured(1.0, 1.0, None, all_)) for all_ in lost))
    assert known(history, "ann", "train").lost_all_in_a_row == 2
    assert known(history, "bob", "train").lost_all_in_a_row == 0


@given(st.lists(st.tuples(PROGRAMS, MEASURED), min_size=1, max_size=60), PROGRAMS)
def test_costs_lie_within_what_was_measured(
    measured: list[tuple[tuple[str, str], Measured]], of: tuple[str, str]
) -> None:
    costs = known(learned(*((*program, one) for program, one in measured)), *of)
    restarts_s = [one.restart_s for _, one in measured if one.restart_s is not None]
    restarts_s = restarts_s or [USUAL_STAKE.restart_s]
    unsaved_s = [one.unsaved_s for _, one in measured]
    rounding = 1 + 1e-9
    assert min(restarts_s) / rounding <= costs.restart_s <= max(restarts_s) * rounding
    assert min(unsaved_s) / rounding <= costs.unsaved_s <= max(unsaved_s) * rounding
    assert costs.measured <= KEPT and costs.lost_all_in_a_row <= costs.measured


@given(
    st.lists(st.floats(10, 1000), min_size=5, max_size=12),
    st.lists(st.tuples(st.sampled_from("xyz"), st.floats(0, 1e6)), max_size=200),
)
def test_one_user_moves_the_sites_median_by_at_most_one_place(
    honest_s: list[float], lies: list[tuple[str, float]]
) -> None:
    """This holds for any number of the user's programs and of false reports."""
    costs = [(f"user{n}", "train", Measured(s, s)) for n, s in enumerate(honest_s)]
    costs += [("liar", name, Measured(s, s)) for name, s in lies]
    site_s = known(learned(*costs), "new", "job").unsaved_s
    in_order = sorted(honest_s)
    middle = (len(in_order) - 1) // 2
    assert in_order[max(0, middle - 1)] <= site_s <= in_order[middle + 1]


def test_programs_that_were_not_preempted_for_longest_are_forgotten() -> None:
    history = CostHistory()
    for number in range(MOST_PROGRAMS + 1):
        history.add("ann", f"job{number}", Measured(1.0, float(number)))
    assert known(history, "ann", "job0").measured == 0
    assert known(history, "ann", f"job{MOST_PROGRAMS}").measured == 1
