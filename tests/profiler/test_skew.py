"""The skew of the ten models of Table 6 (page 500), per tensor and in buckets."""

from __future__ import annotations

import pytest

from scripts.testbed.models import NAMES, gradient_sizes, tensor_sizes
from slurm_tiresias.model import PlacementStyle
from slurm_tiresias.profiler.models import SKEWS, known_name
from slurm_tiresias.profiler.skew import (
    BUCKET_BYTES,
    LEAST_SKEWED_BYTES,
    MB,
    in_buckets,
    skew_of,
    style_for,
)
from slurm_tiresias.settings import Config
from slurm_tiresias.simulator.physics import MODELS
from tests.known import known

PACK_LIMIT = Config().placement.pack_limit
SKEWED = {"vgg19", "vgg16", "vgg11", "alexnet"}

TABLE_6 = {
    "vgg19": (39, 15, 392.0),
    "vgg16": (33, 12, 392.0),
    "vgg11": (23, 9, 392.0),
    "alexnet": (17, 7, 144.0),
    "resnet152": (778, 48, 9.0),
    "resnet101": (523, 35, 9.0),
    "resnet50": (268, 18, 9.0),
    "inception4": (599, 81, 5.9),
    "inception3": (397, 21, 7.8),
    "googlenet": (117, 7, 3.9),
}
"""Number of tensors, number of 1 MB or more, and the largest in MB; sizes and ratios are the
simulator's."""


def wanted(name: str) -> PlacementStyle:
    return PlacementStyle.CONSOLIDATE if name in SKEWED else PlacementStyle.SPREAD


def test_the_built_in_skews_are_those_of_the_networks() -> None:
    assert {name: skew_of(tensor_sizes(name)) for name in NAMES} == SKEWS


@pytest.mark.parametrize("name", NAMES)
def test_the_networks_have_the_size_and_the_largest_tensor_that_the_paper_prints(name: str) -> None:
    skew = known(skew_of(tensor_sizes(name)))
    assert round(skew.total_bytes / MB, 1) == MODELS[name].size_mb
    assert round(skew.largest_bytes / MB, 1) == TABLE_6[name][2]
    assert round(skew.ratio, 3) == MODELS[name].skew


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"inception3"}))
def test_the_networks_have_as_many_tensors_as_the_paper_counts(name: str) -> None:
    with_the_step_counter = len(list(tensor_sizes(name))) + 1
    assert with_the_step_counter == TABLE_6[name][0]


def test_inception3_has_379_tensors_where_the_paper_prints_397() -> None:
    assert len(list(tensor_sizes("inception3"))) + 1 == 379
    assert TABLE_6["inception3"][0] == 397


@pytest.mark.parametrize("name", NAMES)
def test_the_paper_counts_tensors_above_1_mb_not_those_of_exactly_1_mb(name: str) -> None:
    assert sum(size > MB for size in tensor_sizes(name)) == TABLE_6[name][1]


@pytest.mark.parametrize("name", NAMES)
def test_every_model_is_placed_as_the_paper_does_per_tensor(name: str) -> None:
    skew = known(skew_of(tensor_sizes(name)))
    assert style_for(skew, PACK_LIMIT) is wanted(name)


@pytest.mark.parametrize("name", NAMES)
def test_every_model_is_placed_as_the_paper_does_in_buckets_of_25_mb(name: str) -> None:
    skew = known(skew_of(in_buckets(gradient_sizes(name))))
    assert style_for(skew, PACK_LIMIT) is wanted(name)


def test_by_share_alone_a_model_of_one_bucket_would_count_as_skewed() -> None:
    skew = known(skew_of(in_buckets(gradient_sizes("googlenet"))))
    assert skew.ratio > PACK_LIMIT
    assert skew.largest_bytes < LEAST_SKEWED_BYTES


def test_by_size_alone_a_large_tensor_of_a_larger_model_would_count_as_skewed() -> None:
    skew = known(skew_of([60 * MB] * 40))
    assert style_for(skew, PACK_LIMIT) is PlacementStyle.SPREAD


def test_a_bucket_of_small_tensors_stays_below_twice_its_nominal_size() -> None:
    sizes = [BUCKET_BYTES - 1] * 7
    assert max(in_buckets(sizes)) < 2 * BUCKET_BYTES <= LEAST_SKEWED_BYTES


def test_no_tensor_is_split_over_buckets_and_none_is_lost() -> None:
    sizes = gradient_sizes("vgg16")
    buckets = in_buckets(sizes)
    assert sum(buckets) == sum(sizes)
    assert max(buckets) >= max(sizes)


def test_an_empty_list_has_no_skew() -> None:
    assert skew_of([]) is None
    assert skew_of([0, 0]) is None


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        skew_of([5, -1])


@pytest.mark.parametrize(
    ("spelt", "name"),
    [
        ("VGG-16", "vgg16"),
        ("inception_v3", "inception3"),
        ("GoogLeNet", "googlenet"),
        ("vgg17", None),
        ("", None),
    ],
)
def test_models_are_known_in_any_spelling(spelt: str, name: str | None) -> None:
    assert known_name(spelt) == name
