"""Fitting the pack limit to measured speeds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_tiresias.profiler.fit import LEAST_PAIRS, Pair, fitted_pack_limit
from slurm_tiresias.simulator.physics import MODELS

OF_THE_PAPER = [Pair(m.skew or 0.0, 1 / m.spread_speed) for m in MODELS.values()]
"""Skew from Table 6, cost of spreading from Fig. 3."""


@pytest.mark.parametrize("prior", [0.01, 0.10, 0.65, 0.99])
def test_from_the_papers_ten_models_the_limit_splits_them_as_the_paper_does(prior: float) -> None:
    limit = fitted_pack_limit(OF_THE_PAPER, prior)
    assert 0.146 < limit < 0.610


def test_a_prior_that_separates_as_well_is_kept() -> None:
    assert fitted_pack_limit(OF_THE_PAPER, 0.5) == 0.5


def test_one_odd_model_does_not_move_the_limit() -> None:
    odd = [*OF_THE_PAPER, Pair(0.9, 0.95)]
    assert 0.146 < fitted_pack_limit(odd, 0.05) < 0.610


@pytest.mark.parametrize(
    ("pairs", "least"),
    [
        ([], 1),
        (OF_THE_PAPER[:9], LEAST_PAIRS),
        ([Pair(0.1, 1.3), Pair(0.2, 1.3)], 2),
        ([Pair(0.1, 1.0), Pair(0.2, 1.0)], 2),
    ],
)
def test_without_both_kinds_of_models_the_prior_is_kept(pairs: list[Pair], least: int) -> None:
    assert fitted_pack_limit(pairs, 0.42, least) == 0.42


@given(
    st.lists(st.builds(Pair, st.floats(0.01, 1), st.floats(0.5, 2)), max_size=30), st.floats(0, 1)
)
def test_the_limit_is_never_worse_than_the_prior(pairs: list[Pair], prior: float) -> None:
    def errors(cut: float) -> int:
        return sum((pair.skew > cut) != pair.gains for pair in pairs)

    limit = fitted_pack_limit(pairs, prior, least_pairs=1)
    assert errors(limit) <= errors(prior)
    assert 0 <= limit <= 1
