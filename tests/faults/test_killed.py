"""kill -9 of the controller, at every place that matters and at random."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.faults import places, sweep
from tests.faults.busy import SETTINGS, Busy, drain, kill_at_random, not_remembered
from tests.faults.places import AFTER, INSIDE, Place
from tests.slurm.cluster import RealCluster
from tests.slurm.controller import RealController

A_FEW = (
    Place("update-node_list", AFTER),
    Place("requeue", AFTER),
    Place("commit-carry_out-2", INSIDE),
)
"""Where most is under way."""


def test_every_method_of_the_driver_is_known_to_read_or_to_write() -> None:
    assert places.methods_of_the_driver() == places.READING | places.WRITING
    assert not places.READING & places.WRITING


def test_every_write_and_every_commit_is_a_place_of_some_setting() -> None:
    reached = {place.name for setting in sweep.ALL_SETTINGS for place in sweep.places_of(setting)}
    assert reached | sweep.OF_A_COMMAND == {place.name for place in places.everywhere()}
    assert sweep.ELSEWHERE.keys() | sweep.OF_A_COMMAND <= {p.name for p in places.everywhere()}


@pytest.mark.slurm
def test_a_controller_killed_where_it_acts_loses_nothing_and_harms_nobody(
    clean_cluster: RealCluster, tmp_path: Path
) -> None:
    _, wrong = sweep.kill_at(A_FEW, sweep.AT_WORK, clean_cluster, tmp_path)
    assert wrong == []


@pytest.mark.slurm
@pytest.mark.long
@pytest.mark.parametrize("setting", sweep.ALL_SETTINGS, ids=lambda setting: setting.name)
def test_a_controller_killed_anywhere_loses_nothing_and_harms_nobody(
    clean_cluster: RealCluster, tmp_path: Path, setting: sweep.Setting
) -> None:
    _, wrong = sweep.kill_at(sweep.places_of(setting), setting, clean_cluster, tmp_path)
    assert wrong == []


@pytest.mark.slurm
def test_a_controller_killed_at_random_loses_nothing_and_harms_nobody(
    clean_cluster: RealCluster, tmp_path: Path
) -> None:
    controller = RealController(clean_cluster, tmp_path, SETTINGS)
    controller.write_config()
    busy = Busy(clean_cluster, tmp_path)
    for seed in range(3):
        kill_at_random(controller, busy, random.Random(seed), longest_s=3.0)
        assert not_remembered(controller, busy) == []
    assert drain(controller, busy) == []
