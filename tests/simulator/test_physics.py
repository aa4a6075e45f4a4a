"""The costs of placement and preemption, compared with the paper's tables."""

from __future__ import annotations

import pytest

from slurm_tiresias.simulator.physics import MODELS, physics_of, restart_cost_s

SKEWED = {"vgg19", "vgg16", "vgg11", "alexnet"}


def test_skewed_models_lose_a_fifth_and_more_when_spread_and_the_others_gain_a_little() -> None:
    for name, model in MODELS.items():
        spread = model.spread_speed
        assert 0.72 <= spread <= 0.80 if name in SKEWED else 1.02 <= spread <= 1.08


def test_one_skew_threshold_separates_the_models_as_in_the_paper() -> None:
    assert {name for name, model in MODELS.items() if (model.skew or 0) > 0.5} == SKEWED


@pytest.mark.parametrize(
    ("gpus", "cost_s"), [(1, 21.0), (2, 47.7), (5, 49.7), (8, 51.7), (32, 51.7), (0, 21.0)]
)
def test_the_cost_of_a_restart_is_interpolated(gpus: int, cost_s: float) -> None:
    assert restart_cost_s("vgg19", gpus) == pytest.approx(cost_s)


def test_an_unmeasured_model_costs_the_papers_mean_and_ignores_placement() -> None:
    assert restart_cost_s("bert", 4) == pytest.approx(62.1)
    assert physics_of("bert").spread_speed == 1.0
    assert physics_of("").skew is None


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("VGG-16", "vgg16"),
        ("inception_v3", "inception3"),
        ("Inception-v4", "inception4"),
        ("GoogLeNet", "googlenet"),
        ("ResNet50", "resnet50"),
        ("resnet50v2", ""),
    ],
)
def test_models_are_known_by_their_common_spellings(spelling: str, name: str) -> None:
    assert physics_of(spelling).name == name
